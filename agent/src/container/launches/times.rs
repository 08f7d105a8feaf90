//! How long the phases of launches take, for metrics. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::ContainerId;
use runtime::{Instant, Statistics, TimeSeries};

use crate::container::machine::Phase;

/// Window of the statistics, and the largest number of launches in them.
const WINDOW: Duration = Duration::from_secs(3600);
const LAUNCHES_MAX: usize = 500;

/// A phase of a launch. Each begins at the end of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchPhase {
    /// The task has been accepted: its checkpoint is written, and its sandbox created.
    Sandbox,
    /// Its image is pulled, and its root file system made.
    Image,
    /// Isolators prepare it.
    Isolation,
    /// Its files are fetched.
    Fetch,
    /// It waits for a free slot, and its process is started, isolated and released.
    Start,
}

impl LaunchPhase {
    /// Its part of the metric's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Image => "image",
            Self::Isolation => "isolation",
            Self::Fetch => "fetch",
            Self::Start => "start",
        }
    }
}

/// The phases of launches in progress, and the times of the latest ones.
#[derive(Clone, Debug, Default)]
pub struct LaunchTimes {
    open: BTreeMap<ContainerId, (LaunchPhase, Instant)>,
    /// In milliseconds.
    times: BTreeMap<LaunchPhase, TimeSeries<f64>>,
}

impl LaunchTimes {
    /// A launch begins.
    pub fn begin(&mut self, id: &ContainerId, now: Instant) {
        self.open.insert(id.clone(), (LaunchPhase::Sandbox, now));
    }

    /// The next phase begins. No effect for a container that is not being launched.
    pub fn enter(&mut self, id: &ContainerId, next: LaunchPhase, now: Instant) {
        let Some((phase, since)) = self.open.get_mut(id) else {
            return;
        };
        if *phase < next {
            Self::record(&mut self.times, *phase, *since, now);
            (*phase, *since) = (next, now);
        }
    }

    /// The container is in this phase now; `None` if it is gone.
    pub fn phase_changed(&mut self, id: &ContainerId, phase: Option<Phase>, now: Instant) {
        match phase {
            Some(Phase::Preparing) => {}
            Some(Phase::Launching) => self.enter(id, LaunchPhase::Start, now),
            Some(Phase::Registering | Phase::Running) => {
                if let Some((phase, since)) = self.open.remove(id) {
                    Self::record(&mut self.times, phase, since, now);
                }
            }
            _ => _ = self.open.remove(id),
        }
    }

    fn record(
        times: &mut BTreeMap<LaunchPhase, TimeSeries<f64>>,
        phase: LaunchPhase,
        since: Instant,
        now: Instant,
    ) {
        let series = times
            .entry(phase)
            .or_insert_with(|| TimeSeries::new(WINDOW, LAUNCHES_MAX));
        series.record(now, (now - since).as_secs_f64() * 1e3);
    }

    /// The times of the last hour in milliseconds; those of fewer than two launches are left out.
    pub fn statistics(&self) -> Vec<(LaunchPhase, Statistics)> {
        let all = self.times.iter();
        all.filter_map(|(phase, series)| Some((*phase, series.statistics()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_ends_with_the_next_and_failed_launches_end_none() {
        let id = |name| ContainerId::new(name).unwrap();
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let mut times = LaunchTimes::default();
        for (container, begun) in [("a", 0), ("b", 100)] {
            let container = id(container);
            times.begin(&container, at(begun));
            times.enter(&container, LaunchPhase::Isolation, at(begun + 2));
            times.phase_changed(&container, Some(Phase::Preparing), at(begun + 3));
            times.phase_changed(&container, Some(Phase::Launching), at(begun + 5));
            times.phase_changed(&container, Some(Phase::Running), at(begun + 9));
            times.phase_changed(&container, Some(Phase::Running), at(begun + 50));
        }
        times.begin(&id("killed"), at(200));
        times.phase_changed(&id("killed"), Some(Phase::Terminating), at(210));
        times.enter(&id("unknown"), LaunchPhase::Fetch, at(220));
        assert!(times.open.is_empty());
        let found = times.statistics().into_iter();
        let found: Vec<_> = found
            .map(|(phase, all)| (phase.name(), all.count, all.p50))
            .collect();
        let expected = [
            ("sandbox", 2, 2.0),
            ("isolation", 2, 3.0),
            ("start", 2, 4.0),
        ];
        assert_eq!(found, expected);
    }
}
