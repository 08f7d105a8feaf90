//! Pages about the process and its machine, which every service has.
//!
//! `help` is `/help`, `logging` the log level, `metrics` the metrics as JSON and as Prometheus
//! text, and `processes` the page `/__processes__`. This file has the load and the memory of the
//! machine, as metrics `system/*` and as `/system/stats.json`. Values are read on demand; an
//! unreadable one is zero or absent.

pub(crate) mod help;
pub mod logging;
pub mod metrics;
pub mod processes;

use std::collections::BTreeMap;

use runtime::observe::host::{self, Memory};

use crate::system::metrics::Counters;

/// The host's values, by their names behind `system/`.
fn figures() -> BTreeMap<&'static str, f64> {
    let memory = Memory::now();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let names = ["load_1min", "load_5min", "load_15min"];
    let mut all: BTreeMap<_, _> = names
        .into_iter()
        .zip(host::load().into_iter().flatten())
        .collect();
    all.insert("cpus_total", cores as f64);
    all.insert("mem_total_bytes", memory.total as f64);
    all.insert("mem_free_bytes", memory.available as f64);
    all
}

/// The host's values as metrics.
pub(crate) fn counters() -> Counters {
    let named = |(name, value)| (format!("system/{name}"), value);
    figures().into_iter().map(named).collect()
}

/// The host's values as in Mesos' `/system/stats.json`.
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

    /// SPEC 3.9, 5.11.
    // Covers 3.9 `/__processes__`, `/system/stats.json`, `/help`, `/logging/toggle`.
    #[test]
    fn machine_metrics_have_the_names_of_mesos() {
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
