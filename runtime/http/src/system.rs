//! What a machine says of itself: its load and its memory, as `system/*` among the metrics and as `/system/stats.json` (SPEC 3.9, 5.11).
//!
//! Read from `/proc` when somebody looks. What cannot be read is zero, or left out.

use std::collections::BTreeMap;

use crate::metrics::Counters;

/// A host's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What could be used now.
    pub available: u64,
}

/// Reads `/proc/meminfo`.
fn parse_memory(text: &str) -> Memory {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(':')?
                    .trim()
                    .strip_suffix("kB")?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
    };
    Memory {
        total: field("MemTotal"),
        available: field("MemAvailable"),
    }
}

/// The host's memory now; zero where it cannot be read.
pub fn memory() -> Memory {
    std::fs::read_to_string("/proc/meminfo")
        .map_or_else(|_| Memory::default(), |text| parse_memory(&text))
}

/// Reads `/proc/loadavg`.
fn parse_load(text: &str) -> Option<[f64; 3]> {
    let mut fields = text
        .split_ascii_whitespace()
        .map(|field| field.parse::<f64>().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
}

/// The load averages of 1, 5 and 15 minutes.
fn load() -> Option<[f64; 3]> {
    parse_load(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

/// The host's own figures, by the names that they have behind `system/`.
fn figures() -> BTreeMap<&'static str, f64> {
    let memory = memory();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let names = ["load_1min", "load_5min", "load_15min"];
    let mut all: BTreeMap<_, _> = names
        .into_iter()
        .zip(load().into_iter().flatten())
        .collect();
    all.insert("cpus_total", cores as f64);
    all.insert("mem_total_bytes", memory.total as f64);
    all.insert("mem_free_bytes", memory.available as f64);
    all
}

/// The host's own figures, as metrics.
pub(crate) fn counters() -> Counters {
    let named = |(name, value)| (format!("system/{name}"), value);
    figures().into_iter().map(named).collect()
}

/// The same as Mesos has them in `/system/stats.json`.
pub(crate) fn stats() -> Counters {
    let named = |(name, value): (&str, f64)| match name.starts_with("load") {
        true => (format!("avg_{name}"), value),
        false => (name.to_owned(), value),
    };
    figures().into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes_and_the_load_as_three_numbers() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(
            parse_memory(text),
            Memory {
                total: 16 << 20,
                available: 8 << 20
            }
        );
        assert_eq!(parse_memory("nonsense"), Memory::default());
        assert_eq!(parse_load("0.50 1 2.25 3/400 5\n"), Some([0.5, 1.0, 2.25]));
        assert_eq!(parse_load("0.50 much"), None);
    }

    /// SPEC 3.9, 5.11.
    #[test]
    fn the_machine_has_the_names_that_mesos_gives_it() {
        let (counters, stats) = (counters(), stats());
        for (metric, stat) in [
            ("system/cpus_total", "cpus_total"),
            ("system/mem_total_bytes", "mem_total_bytes"),
            ("system/mem_free_bytes", "mem_free_bytes"),
            ("system/load_1min", "avg_load_1min"),
            ("system/load_5min", "avg_load_5min"),
            ("system/load_15min", "avg_load_15min"),
        ] {
            assert!(counters.contains_key(metric), "{metric}");
            assert!(stats.contains_key(stat), "{stat}");
        }
        assert!(stats["mem_total_bytes"] > 0.0 && stats["cpus_total"] >= 1.0);
    }
}
