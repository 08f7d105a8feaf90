//! Pressure: the part of the time in which processes wait for CPUs, memory, or input and output.
//!
//! Counts containers without revocable resources, since best-effort ones wait by design; without
//! such containers there is no pressure. Where the kernel counts no single containers (control
//! groups v1, or no control groups), the pressure of the machine stands in, which best-effort work
//! raises as well, and all the more when it is throttled.

use std::collections::BTreeMap;
use std::fmt;

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

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:.0}%", part * 100.0);
        let (cpu, mem, io) = (percent(self.cpu), percent(self.mem), percent(self.io));
        write!(f, "cpu {cpu}, memory {mem}, io {io}")
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

/// The pressure that is expected next, relative to its bounds: 1 is at the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// Of regular containers, of which the greatest counts; zero if there are none.
    OfContainers(Waiting),
    /// Of the machine, since the kernel counts no single containers.
    OfMachine(Waiting),
    /// Too little time has passed for new averages.
    TooEarly,
    /// The kernel does not count it, or no regular container could be measured.
    Unknown,
}

/// The pressure over time, relative to its bounds.
pub struct PressureTrend {
    bounds: PressureBounds,
    source: PressureSource,
    last: Option<Waiting>,
    /// The last averages of regular containers: not all have new ones at the same time.
    regular: BTreeMap<ContainerId, Waiting>,
}

impl PressureTrend {
    /// Without measurements yet.
    pub fn new(bounds: PressureBounds, source: PressureSource) -> Self {
        Self {
            bounds,
            source,
            last: None,
            regular: BTreeMap::new(),
        }
    }

    /// Adds a report.
    pub fn advance(
        &mut self,
        usage: &ResourceUsage,
        samples: &BTreeMap<ContainerId, Sample>,
    ) -> Expected {
        let regular = usage.executors.iter().filter(|one| !one.is_revocable());
        let mut before = std::mem::take(&mut self.regular);
        let (mut has_regular, mut has_new) = (false, false);
        let (mut is_measured, mut is_counted) = (false, false);
        for executor in regular {
            let id = &executor.container_id;
            let measured = executor.statistics.as_ref();
            let new = samples.get(id).and_then(|sample| sample.waiting);
            has_regular = true;
            has_new |= new.is_some();
            is_measured |= measured.is_some();
            is_counted |= measured.is_some_and(|one| one.cpu_pressure.is_some());
            let waiting = new.or_else(|| before.remove(id));
            self.regular.extend(waiting.map(|one| (id.clone(), one)));
        }
        if !has_regular {
            self.last = None;
            return Expected::OfContainers(Waiting::default());
        }
        if has_new {
            let all = self.regular.values().copied();
            let greatest = all.reduce(|one, other| one.each(other, f64::max));
            return Expected::OfContainers(self.trend(greatest.unwrap_or_default()));
        }
        if is_counted {
            return Expected::TooEarly;
        }
        match (self.source)().filter(|_| is_measured) {
            Some(machine) => Expected::OfMachine(self.trend(machine)),
            None => Expected::Unknown,
        }
    }

    /// The greatest pressures of regular containers in these averages, relative to the bounds and
    /// without a trend; `None` if there are no averages of any.
    pub fn peek(
        &self,
        usage: &ResourceUsage,
        samples: &BTreeMap<ContainerId, Sample>,
    ) -> Option<Waiting> {
        let regular = usage.executors.iter().filter(|one| !one.is_revocable());
        let waiting = regular.filter_map(|one| samples.get(&one.container_id)?.waiting);
        let greatest = waiting.reduce(|one, other| one.each(other, f64::max))?;
        Some(greatest.each(self.bounds.0, |part, most| part / most))
    }

    /// The bounds.
    pub fn bounds(&self) -> Waiting {
        self.bounds.0
    }

    /// A rise is expected to go on, so that there is a reaction before the bound.
    fn trend(&mut self, now: Waiting) -> Waiting {
        let now = now.each(self.bounds.0, |part, most| part / most);
        let rise = |now: f64, before: f64| now + (now - before).max(0.0);
        let next = self.last.map_or(now, |before| now.each(before, rise));
        self.last = Some(now);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measure, usage};
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
        let mut usage = usage("web:cpus:1 db:cpus:1 batch:cpus*:1");
        measure(&mut usage, "web", 0.0, 0.0);
        let mut advance = |usage: &ResourceUsage, parts: &[(&str, f64)]| {
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
            trend.advance(usage, &samples.collect())
        };
        let of_containers = |cpu| {
            Expected::OfContainers(Waiting {
                cpu,
                ..Waiting::default()
            })
        };
        let machine = Expected::OfMachine(Waiting {
            io: 0.2,
            ..Waiting::default()
        });
        let none = advance(&usage, &[("batch", 0.9)]);
        assert_eq!(none, machine, "the machine stands in");
        let calm = advance(&usage, &[("web", 0.05), ("db", 0.1), ("batch", 0.9)]);
        assert_eq!(calm, of_containers(0.2 + 0.2));
        let rise = advance(&usage, &[("web", 0.2)]);
        assert_eq!(rise, of_containers(0.4 + 0.2), "the rise goes on");
        let fall = advance(&usage, &[("web", 0.05)]);
        assert_eq!(fall, of_containers(0.2), "the last one of `db` counts");
        let web = usage.executors[0].statistics.as_mut().unwrap();
        web.cpu_pressure = Some(protocol::usage::Pressure::default());
        assert_eq!(advance(&usage, &[]), Expected::TooEarly);
        usage.executors[0].statistics = None;
        assert_eq!(advance(&usage, &[]), Expected::Unknown, "not measured");
        usage.executors.drain(..2);
        assert_eq!(advance(&usage, &[("batch", 0.9)]), of_containers(0.0));
    }
}
