//! Pressure: for how long the processes of a group have waited for a resource.

use protocol::usage::Pressure;

/// Reads `cpu.pressure`, `memory.pressure` or `io.pressure`, with lines
/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=microseconds`.
pub fn parse(text: &str) -> Option<Pressure> {
    let seconds = |key| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let micros: u64 = line.rsplit_once("total=")?.1.trim().parse().ok()?;
        Some(micros as f64 / 1e6)
    };
    Some(Pressure {
        some_secs: seconds("some ")?,
        // Older kernels have none for CPUs.
        full_secs: seconds("full ").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n";
        let expected = Pressure {
            some_secs: 1.5,
            full_secs: 0.5,
        };
        assert_eq!(parse(text), Some(expected));
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(parse(first).map(|found| found.full_secs), Some(0.0));
        assert_eq!(parse(""), None);
    }
}
