//! The memory and the load of the host.
//!
//! Read from `/proc` on each call; the parsers are pure.

/// A host's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total memory.
    pub total: u64,
    /// Memory available for new work.
    pub available: u64,
}

impl Memory {
    /// The host's memory now; zero where it cannot be read.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/meminfo")
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Reads `/proc/meminfo`.
    fn parse(text: &str) -> Self {
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
        Self {
            total: field("MemTotal"),
            available: field("MemAvailable"),
        }
    }
}

/// The load averages of 1, 5 and 15 minutes; `None` where they cannot be read.
pub fn load() -> Option<[f64; 3]> {
    parse_load(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

/// Reads `/proc/loadavg`.
fn parse_load(text: &str) -> Option<[f64; 3]> {
    let mut fields = text
        .split_ascii_whitespace()
        .map(|field| field.parse::<f64>().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_load_are_parsed() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(
            Memory::parse(text),
            Memory {
                total: 16 << 20,
                available: 8 << 20
            }
        );
        assert_eq!(Memory::parse("nonsense"), Memory::default());
        assert_eq!(parse_load("0.50 1 2.25 3/400 5\n"), Some([0.5, 1.0, 2.25]));
        assert_eq!(parse_load("0.50 much"), None);
    }
}
