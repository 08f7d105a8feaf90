//! Usage over time: averages of each container between two measurements.
//!
//! Shared by the estimators and QoS controllers that judge by a history. Plain data: policies pass
//! it each report of the monitor. Keeps one measurement of each live container.

pub mod pressure;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{ContainerId, ExecutorUsage, ResourceStatistics, ResourceUsage};
use runtime::Timestamp;

use pressure::Waiting;

/// Minimum time between two measurements: CPU time is counted in ticks of about 10 ms.
const ELAPSED_MIN: Duration = Duration::from_millis(500);
/// For how long an unchanged measurement may be the earlier one with a new time: isolators keep the
/// statistics of a container without CPU use a little shorter.
pub const UNCHANGED_MAX: Duration = Duration::from_secs(9);
const MEGABYTE: f64 = 1024.0 * 1024.0;

/// The averages of one container between two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time between the two.
    pub elapsed: Duration,
    /// CPUs in use.
    pub cpus: f64,
    /// Memory in use at the second one, without page cache, in megabytes.
    pub mem_megabytes: f64,
    /// Waiting for resources, where the kernel counts it for each container.
    pub waiting: Option<Waiting>,
}

/// The last measurements of each container.
#[derive(Clone, Debug, Default)]
pub struct UsageHistory(BTreeMap<ContainerId, Known>);

/// Measurements that averages start from.
#[derive(Clone, Copy, Debug)]
struct Known {
    last: Totals,
    /// The one before, for averages at a moment that is too close to the last.
    earlier: Option<Totals>,
}

/// Totals since the start of a container.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at: Timestamp,
    cpu_secs: f64,
    throttled_secs: f64,
    waiting_secs: Option<Waiting>,
}

impl Totals {
    fn of(measured: &ResourceStatistics) -> Self {
        let some = |pressure: Option<protocol::usage::Pressure>| {
            pressure.map(|pressure| pressure.some_secs)
        };
        let waiting = || {
            Some(Waiting {
                cpu: some(measured.cpu_pressure)?,
                mem: some(measured.mem_pressure)?,
                io: some(measured.io_pressure)?,
            })
        };
        Self {
            at: measured.timestamp,
            cpu_secs: measured.cpus_user_time_secs + measured.cpus_system_time_secs,
            throttled_secs: measured.cpus_throttled_time_secs.unwrap_or_default(),
            waiting_secs: waiting(),
        }
    }

    /// The averages since `before`; `None` if too little time has passed, or it may be the same
    /// measurement.
    fn since(&self, before: &Self, mem_megabytes: f64) -> Option<Sample> {
        let elapsed = self.at.saturating_since(before.at);
        let is_unchanged =
            self.cpu_secs == before.cpu_secs && self.waiting_secs == before.waiting_secs;
        if elapsed < ELAPSED_MIN || (is_unchanged && elapsed < UNCHANGED_MAX) {
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let part = |now: f64, before: f64| ((now - before) / seconds).max(0.0);
        let cpus = part(self.cpu_secs, before.cpu_secs);
        // The kernel counts a container that waits for its own quota as waiting for a CPU. It sums
        // that over CPUs, of which each either runs the container or is throttled for it.
        let throttled = part(self.throttled_secs, before.throttled_secs);
        let throttled = throttled / (cpus + throttled).max(1.0);
        let waiting = self.waiting_secs.zip(before.waiting_secs);
        let waiting = waiting.map(|(now, before)| Waiting {
            cpu: (part(now.cpu, before.cpu) - throttled).clamp(0.0, 1.0),
            mem: part(now.mem, before.mem).min(1.0),
            io: part(now.io, before.io).min(1.0),
        });
        Some(Sample {
            elapsed,
            cpus,
            mem_megabytes,
            waiting,
        })
    }
}

impl UsageHistory {
    /// Adds a report; returns the averages of the containers for which enough time has passed since
    /// their last measurement.
    pub fn advance(&mut self, usage: &ResourceUsage) -> BTreeMap<ContainerId, Sample> {
        let mut before = std::mem::take(&mut self.0);
        let mut samples = BTreeMap::new();
        for executor in &usage.executors {
            let id = &executor.container_id;
            let last = before.remove(id);
            let Some(measured) = &executor.statistics else {
                self.0.extend(last.map(|last| (id.clone(), last)));
                continue;
            };
            let totals = Totals::of(measured);
            let megabytes = measured.working_set_bytes() as f64 / MEGABYTE;
            let sample = last.and_then(|known| totals.since(&known.last, megabytes));
            // A clock that was set back starts the averages anew.
            let keeps = last.filter(|known| sample.is_none() && known.last.at <= totals.at);
            let known = keeps.unwrap_or(Known {
                last: totals,
                earlier: sample.and(last).map(|known| known.last),
            });
            self.0.insert(id.clone(), known);
            samples.extend(sample.map(|sample| (id.clone(), sample)));
        }
        samples
    }

    /// The averages at this moment, between two reports: over the time since the last measurement
    /// in [`advance`](Self::advance), or the one before if that is too short.
    pub fn peek(&self, usage: &ResourceUsage) -> BTreeMap<ContainerId, Sample> {
        let sample = |executor: &ExecutorUsage| {
            let measured = executor.statistics.as_ref()?;
            let known = self.0.get(&executor.container_id)?;
            let totals = Totals::of(measured);
            let megabytes = measured.working_set_bytes() as f64 / MEGABYTE;
            let since_last = totals.since(&known.last, megabytes);
            let sample = since_last.or_else(|| totals.since(&known.earlier?, megabytes))?;
            Some((executor.container_id.clone(), sample))
        };
        usage.executors.iter().filter_map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measure, usage};

    fn only(samples: &BTreeMap<ContainerId, Sample>) -> Sample {
        assert_eq!(samples.len(), 1, "{samples:?}");
        *samples.values().next().unwrap()
    }

    #[test]
    fn averages_need_two_measurements_and_time() {
        let mut history = UsageHistory::default();
        let mut report = usage("web:cpus:2");
        for (at, cpu_secs, expected) in [
            (10.0, 100.0, None),
            (10.2, 100.1, None),
            (12.0, 101.0, Some((2.0, 0.5))),
            // The clock is set back.
            (5.0, 102.0, None),
            (6.0, 103.0, Some((1.0, 1.0))),
        ] {
            measure(&mut report, "web", at, cpu_secs);
            let samples = history.advance(&report);
            let found = samples.values().next();
            let found = found.map(|one| (one.elapsed.as_secs_f64(), one.cpus));
            assert_eq!(found, expected, "at {at}");
        }
    }

    #[test]
    fn failed_measurement_keeps_the_earlier_one() {
        let mut history = UsageHistory::default();
        let mut report = usage("web:cpus:2");
        measure(&mut report, "web", 1.0, 1.0);
        history.advance(&report);
        let last = report.executors[0].statistics.take();
        assert_eq!(history.advance(&report), BTreeMap::new());
        report.executors[0].statistics = last;
        measure(&mut report, "web", 5.0, 3.0);
        assert_eq!(only(&history.advance(&report)).cpus, 0.5);
        assert_eq!(history.advance(&usage("")), BTreeMap::new());
        assert!(history.0.is_empty(), "an ended container is forgotten");
    }

    #[test]
    fn peek_averages_over_half_a_second_at_least() {
        let mut history = UsageHistory::default();
        let mut report = usage("web:cpus:2");
        for (at, cpu_secs) in [(10.0, 1.0), (11.0, 2.0)] {
            measure(&mut report, "web", at, cpu_secs);
            history.advance(&report);
        }
        for (at, cpu_secs, expected) in [(11.25, 3.0, (1.25, 1.6)), (12.0, 3.0, (1.0, 1.0))] {
            measure(&mut report, "web", at, cpu_secs);
            let peeked = only(&history.peek(&report));
            let found = (peeked.elapsed.as_secs_f64(), peeked.cpus);
            assert_eq!(found, expected);
        }
        assert_eq!(only(&history.advance(&report)).cpus, 1.0, "nothing changed");
    }

    #[test]
    fn own_quota_is_not_pressure() {
        let mut history = UsageHistory::default();
        let mut report = usage("web:cpus:2");
        let mut at = |report: &mut ResourceUsage, seconds, used, waited: f64, throttled| {
            measure(report, "web", seconds, used);
            let statistics = report.executors[0].statistics.as_mut().unwrap();
            let pressure = protocol::usage::Pressure {
                some_secs: waited,
                full_secs: 0.0,
            };
            statistics.cpu_pressure = Some(pressure);
            statistics.mem_pressure = Some(pressure);
            statistics.io_pressure = Some(pressure);
            statistics.cpus_throttled_time_secs = throttled;
            history.advance(report)
        };
        at(&mut report, 0.0, 0.0, 0.0, None);
        let waiting = only(&at(&mut report, 2.0, 0.5, 1.0, Some(0.5)));
        let waiting = waiting.waiting.unwrap();
        assert_eq!((waiting.cpu, waiting.mem, waiting.io), (0.25, 0.5, 0.5));
        // Eight CPUs, each throttled for three quarters of the time.
        let waiting = only(&at(&mut report, 4.0, 4.5, 3.0, Some(12.5)));
        assert_eq!(waiting.waiting.unwrap().cpu, 0.25);
    }

    #[test]
    fn repeated_measurement_gives_no_sample() {
        let mut history = UsageHistory::default();
        let mut report = usage("web:cpus:2");
        let mut at = |at, cpu_secs| {
            measure(&mut report, "web", at, cpu_secs);
            let samples = history.advance(&report);
            let found = samples.values().next();
            found.map(|one| (one.elapsed.as_secs_f64(), one.cpus))
        };
        assert_eq!(at(1.0, 1.0), None);
        assert_eq!(at(2.0, 1.0), None);
        assert_eq!(at(5.0, 1.0), None);
        assert_eq!(at(6.0, 3.5), Some((5.0, 0.5)), "over the whole time");
        assert_eq!(at(15.0, 3.5), Some((9.0, 0.0)), "it was idle");
    }
}
