//! The estimator of usage slack: resources that are allocated and not used.
//!
//! For each container it keeps the peak of its use, which decays, and the error of that peak as a
//! prediction: by how much later use exceeded it. Peak and error together are kept back, the rest
//! of the allocation is lent. A container that is young, or could not be measured, lends nothing,
//! and so does the part by which an allocation has grown, as for a further task, until a warm-up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::{ModuleError, Parameters};
use protocol::{ContainerId, ExecutorUsage, ResourceUsage};
use resources::{Name, Quantities, Resources};

use super::{EstimatorPolicy, lend};
use crate::usage_history::{Sample, UsageHistory};

const PEAK_HALF_LIFE: &str = "peak_half_life";
const ERROR_HALF_LIFE: &str = "error_half_life";
const MARGIN: &str = "margin_min";
const WARM_UP: &str = "warm_up";
const SAMPLING: &str = "sampling_interval";
/// Whether memory is lent too.
pub const MEMORY: &str = "memory";

const SAMPLING_MIN: Duration = Duration::from_secs(1);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The settings of the estimator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlackSettings {
    /// Time in which a peak of use halves.
    pub peak_half_life: Duration,
    /// Time in which an error halves.
    pub error_half_life: Duration,
    /// Smallest part of an allocation that is kept back beyond the peak.
    pub margin_min: f64,
    /// Time for which a new container, or a new part of its allocation, lends nothing.
    pub warm_up: Duration,
    /// Time between two measurements.
    pub sampling_interval: Duration,
    /// Whether memory is lent: it is not compressible, so a wrong estimate ends tasks.
    pub memory: bool,
}

impl Default for SlackSettings {
    fn default() -> Self {
        Self {
            peak_half_life: Duration::from_secs(5 * 60),
            error_half_life: Duration::from_secs(30 * 60),
            margin_min: 0.1,
            warm_up: Duration::from_secs(60),
            sampling_interval: Duration::from_secs(5),
            memory: false,
        }
    }
}

impl SlackSettings {
    /// Reads the parameters.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        given.only(&[
            PEAK_HALF_LIFE,
            ERROR_HALF_LIFE,
            MARGIN,
            WARM_UP,
            SAMPLING,
            MEMORY,
        ])?;
        let within = |key, min, default| crate::duration_within(given, key, min..=WEEK, default);
        let default = Self::default();
        Ok(Self {
            peak_half_life: within(PEAK_HALF_LIFE, SAMPLING_MIN, default.peak_half_life)?,
            error_half_life: within(ERROR_HALF_LIFE, SAMPLING_MIN, default.error_half_life)?,
            margin_min: super::part(given, MARGIN, default.margin_min)?,
            warm_up: within(WARM_UP, Duration::ZERO, default.warm_up)?,
            sampling_interval: within(SAMPLING, SAMPLING_MIN, default.sampling_interval)?,
            memory: super::lends_memory(given)?,
        })
    }
}

/// A decaying peak of the use of one resource, and its decaying error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Peak {
    use_max: f64,
    /// A part of the allocation.
    error: f64,
    allocation: Allocation,
}

/// The allocation of one resource, and the part of it whose use is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Allocation {
    last: Option<f64>,
    /// Age of the container when the allocation grew.
    grown_at: Duration,
    settled: f64,
}

impl Allocation {
    fn learn(&mut self, allocated: f64, age: Duration, warm_up: Duration) {
        if self.last.is_some_and(|last| allocated > last) {
            self.grown_at = age;
        }
        self.last = Some(allocated);
        self.settled = match age.saturating_sub(self.grown_at) >= warm_up {
            true => allocated,
            false => self.settled.min(allocated),
        };
    }
}

impl Peak {
    fn learn(&mut self, used: f64, allocated: f64, decay: &Decay) {
        if decay.counts_errors && allocated > 0.0 {
            let error = (used - self.use_max) / allocated;
            self.error = error.max(self.error * decay.error);
        }
        self.use_max = used.max(self.use_max * decay.peak);
    }

    /// The part of the allocation that is not needed.
    fn slack(&self, allocated: f64, margin_min: f64) -> f64 {
        let margin = self.error.clamp(margin_min, 1.0);
        let settled = self.allocation.settled.min(allocated);
        (settled - self.use_max - margin * allocated).max(0.0)
    }
}

/// The factors of one step in time.
struct Decay {
    peak: f64,
    error: f64,
    counts_errors: bool,
}

/// The history of one container.
#[derive(Clone, Copy, Debug, Default)]
struct ContainerPeaks {
    /// For how long it was measured.
    age: Duration,
    cpus: Peak,
    mem: Peak,
}

/// The regular resources of a container: CPUs, and megabytes of memory.
fn allocated(executor: &ExecutorUsage) -> (f64, f64) {
    let regular = executor.allocated.non_revocable();
    (regular.cpus().as_f64(), regular.mem().as_f64())
}

/// The estimator.
pub struct UsageSlack {
    settings: SlackSettings,
    history: UsageHistory,
    peaks: BTreeMap<ContainerId, ContainerPeaks>,
}

impl UsageSlack {
    /// Without a history yet.
    pub fn new(settings: SlackSettings) -> Self {
        Self {
            settings,
            history: UsageHistory::default(),
            peaks: BTreeMap::new(),
        }
    }

    fn learn(&mut self, executor: &ExecutorUsage, sample: &Sample) {
        let settings = &self.settings;
        let factor = |half_life: Duration| {
            0.5_f64.powf(sample.elapsed.as_secs_f64() / half_life.as_secs_f64())
        };
        let id = executor.container_id.clone();
        let own = self.peaks.entry(id).or_default();
        let decay = Decay {
            peak: factor(settings.peak_half_life),
            error: factor(settings.error_half_life),
            // Before that, nothing was predicted.
            counts_errors: own.age >= settings.warm_up && !own.age.is_zero(),
        };
        let (cpus, mem) = allocated(executor);
        own.cpus.learn(sample.cpus, cpus, &decay);
        own.mem.learn(sample.mem_megabytes, mem, &decay);
        own.age += sample.elapsed;
        let (age, warm_up) = (own.age, settings.warm_up);
        own.cpus.allocation.learn(cpus, age, warm_up);
        own.mem.allocation.learn(mem, age, warm_up);
    }
}

impl EstimatorPolicy for UsageSlack {
    fn sampling_interval(&self) -> Option<Duration> {
        Some(self.settings.sampling_interval)
    }

    fn observe(&mut self, usage: &ResourceUsage) {
        let samples = self.history.advance(usage);
        let live: BTreeSet<_> = usage
            .executors
            .iter()
            .map(|one| &one.container_id)
            .collect();
        self.peaks.retain(|id, _| live.contains(id));
        for executor in &usage.executors {
            if let Some(sample) = samples.get(&executor.container_id) {
                self.learn(executor, sample);
            }
        }
    }

    fn lendable(&self, usage: &ResourceUsage) -> Resources {
        let settings = &self.settings;
        let mut amounts = Quantities::new();
        for executor in &usage.executors {
            let own = self.peaks.get(&executor.container_id);
            let is_known = |own: &&ContainerPeaks| {
                executor.statistics.is_some() && own.age >= settings.warm_up
            };
            let Some(own) = own.filter(is_known) else {
                continue;
            };
            let (cpus, mem) = allocated(executor);
            super::add(
                &mut amounts,
                Name::Cpus,
                own.cpus.slack(cpus, settings.margin_min),
            );
            if settings.memory {
                super::add(
                    &mut amounts,
                    Name::Mem,
                    own.mem.slack(mem, settings.margin_min),
                );
            }
        }
        lend(&amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measure, usage};

    /// Feeds the estimator a measurement of `web` each ten seconds, with this use of CPUs, and
    /// returns what can be lent after each.
    fn lent(settings: SlackSettings, allocated: &str, used: &[f64]) -> Vec<String> {
        let mut estimator = UsageSlack::new(settings);
        let mut report = usage(allocated);
        let (mut at, mut cpu_secs) = (0.0, 0.0);
        measure(&mut report, "web", at, cpu_secs);
        estimator.observe(&report);
        let mut lent = Vec::new();
        for cpus in used {
            at += 10.0;
            cpu_secs += 10.0 * cpus;
            measure(&mut report, "web", at, cpu_secs);
            estimator.observe(&report);
            lent.push(estimator.lendable(&report).quantities().to_string());
        }
        lent
    }

    fn quick() -> SlackSettings {
        SlackSettings {
            peak_half_life: Duration::from_secs(10),
            error_half_life: Duration::from_secs(20),
            warm_up: Duration::from_secs(20),
            ..SlackSettings::default()
        }
    }

    // Covers S5 in part: usage slack.
    #[test]
    fn unused_cpus_are_lent_after_the_warm_up() {
        // Ten CPUs, of which one is the margin.
        assert_eq!(
            lent(quick(), "web:cpus:10;mem:1024", &[2.0, 2.0, 2.0]),
            ["", "cpus:7", "cpus:7"]
        );
    }

    #[test]
    fn peak_is_kept_back_and_decays() {
        let used = [8.0, 0.0, 0.0, 0.0];
        assert_eq!(
            lent(quick(), "web:cpus:10", &used),
            ["", "cpus:5", "cpus:7", "cpus:8"],
            "the peak halves from one to the next"
        );
    }

    #[test]
    fn margin_grows_with_the_own_error_and_recovers() {
        let used = [2.0, 2.0, 6.0, 0.0, 0.0, 0.0, 0.0];
        // The peak was wrong by 4 of 10 CPUs: that much is kept back beyond it.
        assert_eq!(
            lent(quick(), "web:cpus:10", &used)[2..],
            ["", "cpus:4.1", "cpus:6.5", "cpus:7.8", "cpus:8.6"]
        );
    }

    #[test]
    fn grown_allocation_lends_after_another_warm_up() {
        let mut estimator = UsageSlack::new(quick());
        let mut report = usage("web:cpus:10");
        let mut lent = |at: f64, allocated: &str| {
            report.executors[0].allocated = usage(allocated).executors[0].allocated.clone();
            measure(&mut report, "web", at, at * 2.0);
            estimator.observe(&report);
            estimator.lendable(&report).quantities().to_string()
        };
        let found = [0.0, 10.0, 20.0].map(|at| lent(at, "web:cpus:10"));
        assert_eq!(found, ["", "", "cpus:7"]);
        let found = [30.0, 40.0, 50.0].map(|at| lent(at, "web:cpus:20"));
        assert_eq!(
            found,
            ["cpus:6", "cpus:6", "cpus:16"],
            "with a margin of two"
        );
        assert_eq!(lent(60.0, "web:cpus:10"), "cpus:7");
    }

    #[test]
    fn memory_is_lent_only_when_told() {
        let mut report = usage("web:cpus:1;mem:1000");
        for memory in [false, true] {
            let mut estimator = UsageSlack::new(SlackSettings { memory, ..quick() });
            for at in [0.0, 10.0, 20.0, 30.0] {
                measure(&mut report, "web", at, at);
                let statistics = report.executors[0].statistics.as_mut().unwrap();
                statistics.mem_rss_bytes = 100 << 20;
                statistics.mem_total_bytes = Some(900 << 20);
                statistics.mem_cache_bytes = Some(700 << 20);
                estimator.observe(&report);
            }
            let lent = estimator.lendable(&report).quantities().to_string();
            // 200 MB are more than page cache, and 100 MB are the margin.
            assert_eq!(lent, if memory { "mem:672" } else { "" });
        }
    }

    #[test]
    fn unmeasured_and_revocable_containers_lend_nothing() {
        let mut estimator = UsageSlack::new(quick());
        let mut report = usage("web:cpus:4 batch:cpus*:4");
        for at in [0.0, 10.0, 20.0, 30.0] {
            measure(&mut report, "web", at, 0.0);
            measure(&mut report, "batch", at, 0.0);
            estimator.observe(&report);
        }
        let lent = |estimator: &UsageSlack, report: &ResourceUsage| {
            estimator.lendable(report).quantities().to_string()
        };
        assert_eq!(
            lent(&estimator, &report),
            "cpus:3.6",
            "only of the regular one"
        );
        let all = report.executors.iter_mut();
        all.for_each(|one| one.statistics = None);
        assert_eq!(lent(&estimator, &report), "");
        estimator.observe(&usage(""));
        assert!(estimator.peaks.is_empty(), "ended containers are forgotten");
    }

    #[test]
    fn parameters_have_units_and_bounds() {
        let none = || Parameters::none("usage_slack");
        let read = |given| SlackSettings::from_parameters(&given);
        assert_eq!(read(none()), Ok(SlackSettings::default()));
        let given = none()
            .with(PEAK_HALF_LIFE, "10mins")
            .with(MEMORY, "true")
            .with(MARGIN, "0");
        let found = read(given).unwrap();
        assert_eq!(found.peak_half_life, Duration::from_secs(600));
        assert_eq!((found.memory, found.margin_min), (true, 0.0));
        for (key, text, expected) in [
            (PEAK_HALF_LIFE, "0secs", "from `1secs` to `1weeks`"),
            (ERROR_HALF_LIFE, "10", "from `1secs` to `1weeks`"),
            (WARM_UP, "2weeks", "from `0ns` to `1weeks`"),
            (SAMPLING, "10ms", "from `1secs` to `1weeks`"),
            (MARGIN, "1.5", "from 0 to 1"),
            (MEMORY, "yes", "true or false"),
            ("half_life", "1secs", "only"),
        ] {
            let error = read(none().with(key, text)).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(expected), "{error}");
        }
    }
}
