//! Pressure: the part of the time in which processes wait for CPUs, memory, or input and output.
//!
//! Counts containers without revocable resources, since best-effort ones wait by design. Where the
//! kernel counts no single containers (control groups v1, or no control groups), the pressure of
//! the machine stands in, which best-effort work raises as well.

use std::collections::BTreeMap;

use module_api::{ModuleError, Parameters};
use protocol::{ContainerId, ResourceUsage};

use super::Sample;

/// Parts of the time, from 0 to 1, in which at least one process waited; or the times themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// For a CPU.
    pub cpu: f64,
    /// For memory.
    pub mem: f64,
    /// For input and output.
    pub io: f64,
}

impl Waiting {
    fn each(self, other: Self, merge: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            cpu: merge(self.cpu, other.cpu),
            mem: merge(self.mem, other.mem),
            io: merge(self.io, other.io),
        }
    }

    /// The greatest of the three.
    pub fn greatest(self) -> f64 {
        self.cpu.max(self.mem).max(self.io)
    }
}

/// Reads the machine's pressure; `None` if the kernel does not count it.
pub type PressureSource = Box<dyn FnMut() -> Option<Waiting> + Send>;

/// This machine's pressure over ten seconds. `/proc` is in memory, so reading it does not wait for
/// a disk.
pub fn proc_pressure() -> PressureSource {
    let read = |kind: &str| {
        let text = std::fs::read_to_string(format!("/proc/pressure/{kind}"));
        parse(&text.ok()?)
    };
    Box::new(move || {
        Some(Waiting {
            cpu: read("cpu")?,
            mem: read("memory")?,
            io: read("io")?,
        })
    })
}

/// The part of the last ten seconds, from a line `some avg10=percent ...`.
fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = line.split_whitespace().next()?.strip_prefix("avg10=")?;
    let percent: f64 = percent.parse().ok()?;
    percent.is_finite().then_some(percent / 100.0)
}

/// The pressure of regular containers, of which the greatest counts.
fn of_regular(usage: &ResourceUsage, samples: &BTreeMap<ContainerId, Sample>) -> Option<Waiting> {
    let regular = usage.executors.iter().filter(|one| !one.is_revocable());
    let waiting = regular.filter_map(|one| samples.get(&one.container_id)?.waiting);
    waiting.reduce(|one, other| one.each(other, f64::max))
}

/// The pressures that regular containers may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureBounds(pub Waiting);

const CPU_MAX: &str = "cpu_pressure_max";
const MEM_MAX: &str = "mem_pressure_max";
const IO_MAX: &str = "io_pressure_max";

impl PressureBounds {
    /// The keys of the parameters.
    pub const KEYS: [&str; 3] = [CPU_MAX, MEM_MAX, IO_MAX];

    /// Reads the parameters.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let expected = "a part of the time such as `0.2`, above 0 and at most 1";
        let read = |key, default| -> Result<f64, ModuleError> {
            let part = given.optional(key, expected, |text| {
                let part: f64 = text.parse().ok()?;
                (part > 0.0 && part <= 1.0).then_some(part)
            })?;
            Ok(part.unwrap_or(default))
        };
        Ok(Self(Waiting {
            cpu: read(CPU_MAX, 0.2)?,
            // Waiting for memory is time lost in the kernel; waiting for a CPU is mostly a queue.
            mem: read(MEM_MAX, 0.05)?,
            io: read(IO_MAX, 0.2)?,
        }))
    }
}

/// The pressure over time, relative to its bounds.
pub struct PressureTrend {
    bounds: PressureBounds,
    source: PressureSource,
    last: Option<Waiting>,
}

impl PressureTrend {
    /// Without measurements yet.
    pub fn new(bounds: PressureBounds, source: PressureSource) -> Self {
        Self {
            bounds,
            source,
            last: None,
        }
    }

    /// Adds a report; returns the pressure that is expected next, relative to the bounds: 1 is at
    /// the bound. A rise is expected to go on, so that there is a reaction before the bound. `None`
    /// if no pressure is known.
    pub fn advance(
        &mut self,
        usage: &ResourceUsage,
        samples: &BTreeMap<ContainerId, Sample>,
    ) -> Option<Waiting> {
        let now = of_regular(usage, samples).or_else(|| (self.source)())?;
        let now = now.each(self.bounds.0, |part, most| part / most);
        let rise = |now: f64, before: f64| now + (now - before).max(0.0);
        let next = self.last.map_or(now, |before| now.each(before, rise));
        self.last = Some(now);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::usage;
    use std::time::Duration;

    #[test]
    fn kernel_file_is_read() {
        let text = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1500000\n\
                    full avg10=99.00 avg60=0.00 avg300=0.00 total=500000\n";
        assert_eq!(parse(text), Some(0.125));
        for text in [
            "",
            "some",
            "some avg10=x",
            "full avg10=1.00",
            "some avg10=inf",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn bounds_are_checked() {
        let given = Parameters::none("pressure");
        let default = PressureBounds::from_parameters(&given).unwrap();
        assert_eq!((default.0.cpu, default.0.mem), (0.2, 0.05));
        for text in ["0", "1.1", "-1", "NaN", "much"] {
            let given = given.clone().with(IO_MAX, text);
            let error = PressureBounds::from_parameters(&given)
                .unwrap_err()
                .to_string();
            assert!(error.contains("`io_pressure_max` is `"), "{error}");
        }
    }

    #[test]
    fn pressure_of_regular_containers_counts_and_its_rise() {
        let bounds = PressureBounds(Waiting {
            cpu: 0.5,
            mem: 0.5,
            io: 0.5,
        });
        let machine = || {
            Some(Waiting {
                io: 0.1,
                ..Waiting::default()
            })
        };
        let mut trend = PressureTrend::new(bounds, Box::new(machine));
        let usage = usage("web:cpus:1 db:cpus:1 batch:cpus*:1");
        let mut advance = |parts: &[(&str, f64)]| {
            let sample = |cpu| Sample {
                elapsed: Duration::from_secs(1),
                cpus: 0.0,
                mem_megabytes: 0.0,
                waiting: Some(Waiting {
                    cpu,
                    ..Waiting::default()
                }),
            };
            let id = |name| ContainerId::new(format!("container-{name}")).unwrap();
            let samples = parts.iter().map(|(name, cpu)| (id(name), sample(*cpu)));
            trend.advance(&usage, &samples.collect()).unwrap()
        };
        let calm = advance(&[("web", 0.05), ("db", 0.1), ("batch", 0.9)]);
        assert_eq!((calm.cpu, calm.io), (0.2, 0.0));
        assert_eq!(advance(&[("web", 0.2)]).cpu, 0.4 + 0.2, "the rise goes on");
        assert_eq!(advance(&[("web", 0.1)]).cpu, 0.2, "a fall does not");
        let machine = advance(&[("batch", 0.9)]);
        assert_eq!(
            (machine.cpu, machine.io),
            (0.0, 0.4),
            "the machine stands in"
        );
    }
}
