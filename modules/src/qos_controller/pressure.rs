//! The QoS controller by pressure: best-effort executors use less while regular ones wait.
//!
//! Graded. While the expected pressure of regular containers is at its bounds, each check lets
//! executors with lent resources use less of the resource that is short. If that does not help for
//! some time, the executor that has done the least work is killed. When the pressure has stayed
//! below half of its bounds, the degrees are lifted again, step by step. Corrects only throttleable
//! resources: idle reservations are lent by the allocator. Where the machine's pressure stands in
//! for that of regular containers, only waiting for memory kills: throttled executors wait for
//! CPUs, input and output themselves, which would raise the alarm until none is left.
//!
//! The pressure is read at each check, and as soon as a trigger of the kernel fires for a regular
//! container. A trigger is no verdict: the kernel counts a container that waits for its own quota,
//! too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use module_api::{ModuleError, Parameters};
use protocol::usage::Throttle;
use protocol::{ContainerId, ExecutorUsage, QosCorrection, ResourceUsage};
use runtime::Instant;

use super::QosPolicy;
use super::steps::{CPU_STEPS, MEMORY_STEPS, throttle};
use super::trigger::Trigger;
use crate::usage_history::UsageHistory;
use crate::usage_history::pressure::{
    Expected, PressureBounds, PressureSource, PressureTrend, Waiting,
};

const CHECK_INTERVAL: &str = "check_interval";
const KILL_AFTER: &str = "kill_after";
const RESTORE_AFTER: &str = "restore_after";

/// A shorter interval would give no average.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(500);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The part of its bounds below which the pressure is low.
const LOW: f64 = 0.5;
/// Time for which a killed executor may take to end, and is not corrected again.
const KILLED_FOR: Duration = Duration::from_secs(60);

/// The settings of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureSettings {
    bounds: PressureBounds,
    check_interval: Duration,
    /// Time at the bounds after which an executor is killed.
    kill_after: Duration,
    /// Time of low pressure after which a degree is lifted by one step.
    restore_after: Duration,
}

impl PressureSettings {
    /// Reads the parameters.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let own = [CHECK_INTERVAL, KILL_AFTER, RESTORE_AFTER];
        given.only(&[&own, &PressureBounds::KEYS[..]].concat())?;
        let within = |key, min, default| {
            crate::duration_within(given, key, min..=HOUR, Duration::from_secs(default))
        };
        Ok(Self {
            bounds: PressureBounds::from_parameters(given)?,
            check_interval: within(CHECK_INTERVAL, CHECK_INTERVAL_MIN, 1)?,
            kill_after: within(KILL_AFTER, SECOND, 10)?,
            restore_after: within(RESTORE_AFTER, SECOND, 30)?,
        })
    }
}

/// The controller.
pub struct PressurePolicy {
    settings: PressureSettings,
    history: UsageHistory,
    trend: PressureTrend,
    /// Since when a pressure that may kill is at its bounds.
    high_since: Option<Instant>,
    /// Since when all are low, or the last step back.
    low_since: Option<Instant>,
    /// The last check.
    checked_at: Option<Instant>,
    /// The last correction by pressure at its bounds.
    corrected_at: Option<Instant>,
    /// Containers that were killed recently.
    killed: BTreeMap<ContainerId, Instant>,
}

impl PressurePolicy {
    /// Without a history yet.
    pub fn new(settings: PressureSettings, source: PressureSource) -> Self {
        Self {
            settings,
            history: UsageHistory::default(),
            trend: PressureTrend::new(settings.bounds, source),
            high_since: None,
            low_since: None,
            checked_at: None,
            corrected_at: None,
            killed: BTreeMap::new(),
        }
    }

    /// Corrects by the pressure of `source`, of which a part may kill.
    fn judge(
        &mut self,
        source: &str,
        pressure: Waiting,
        may_kill: Waiting,
        usage: &ResourceUsage,
        now: Instant,
    ) -> Vec<QosCorrection> {
        self.killed.retain(|_, at| now - *at < KILLED_FOR);
        let lent = usage.executors.iter();
        let lent = lent.filter(|one| !one.allocated.throttleable().is_empty());
        let lent = lent.filter(|one| !self.killed.contains_key(&one.container_id));
        let lent: Vec<&ExecutorUsage> = lent.collect();
        if lent.is_empty() {
            // The next executor is throttled before it is killed.
            (self.high_since, self.low_since) = (None, None);
            return Vec::new();
        }
        let lent = lent.into_iter();
        let reason = format!("{source}: {pressure} of the bounds");
        if pressure.greatest() >= 1.0 {
            self.low_since = None;
            self.corrected_at = Some(now);
            let is_killing = may_kill.greatest() >= 1.0;
            let since = self.high_since.filter(|_| is_killing).unwrap_or(now);
            self.high_since = is_killing.then_some(since);
            if now - since < self.settings.kill_after {
                let corrections = lent.filter_map(|one| stronger(one, pressure, &reason));
                return corrections.collect();
            }
            self.high_since = Some(now);
            let cheapest = lent.min_by(|one, other| {
                let by_work = cpu_time(one).total_cmp(&cpu_time(other));
                by_work.then_with(|| one.container_id.cmp(&other.container_id))
            });
            let id = cheapest.map(|one| one.container_id.clone());
            self.killed.extend(id.map(|id| (id, now)));
            let correction = cheapest.map(|one| kill(one, &reason));
            return correction.into_iter().collect();
        }
        self.high_since = None;
        if pressure.greatest() >= LOW {
            self.low_since = None;
            return Vec::new();
        }
        let since = *self.low_since.get_or_insert(now);
        if now - since < self.settings.restore_after {
            return Vec::new();
        }
        self.low_since = Some(now);
        lent.filter_map(|one| weaker(one, &reason)).collect()
    }
}

/// CPU time of an executor, in seconds: the work that a kill would lose.
fn cpu_time(executor: &ExecutorUsage) -> f64 {
    let measured = executor.statistics.as_ref();
    measured.map_or(0.0, |one| {
        one.cpus_user_time_secs + one.cpus_system_time_secs
    })
}

fn kill(executor: &ExecutorUsage, reason: &str) -> QosCorrection {
    QosCorrection::Kill {
        framework_id: executor.framework_id.clone(),
        executor_id: executor.executor_id.clone(),
        container_id: Some(executor.container_id.clone()),
        reason: reason.to_owned(),
    }
}

fn stronger(executor: &ExecutorUsage, pressure: Waiting, reason: &str) -> Option<QosCorrection> {
    let mut degree = executor.throttle;
    if pressure.cpu >= 1.0 {
        degree.cpu = CPU_STEPS.stronger(degree.cpu);
    }
    if pressure.mem >= 1.0 {
        degree.memory = MEMORY_STEPS.stronger(degree.memory);
    }
    if pressure.io >= 1.0 {
        degree.io = CPU_STEPS.stronger(degree.io);
    }
    throttle(executor, degree, reason)
}

fn weaker(executor: &ExecutorUsage, reason: &str) -> Option<QosCorrection> {
    let before = executor.throttle;
    let degree = Throttle {
        cpu: CPU_STEPS.weaker(before.cpu),
        memory: MEMORY_STEPS.weaker(before.memory),
        io: CPU_STEPS.weaker(before.io),
    };
    throttle(executor, degree, reason)
}

impl QosPolicy for PressurePolicy {
    fn is_alarmed(&mut self) -> bool {
        true
    }

    fn check_interval(&self) -> Duration {
        self.settings.check_interval
    }

    fn triggers(&self, usage: &ResourceUsage) -> BTreeSet<Trigger> {
        let is_lent = |one: &ExecutorUsage| !one.allocated.throttleable().is_empty();
        if !usage.executors.iter().any(is_lent) {
            return BTreeSet::new(); // There is nothing to correct.
        }
        let bounds = self.trend.bounds();
        let files = [
            ("cpu.pressure", bounds.cpu),
            ("memory.pressure", bounds.mem),
            ("io.pressure", bounds.io),
        ];
        let regular = usage.executors.iter().filter(|one| !one.is_revocable());
        let counted = regular.filter_map(|one| {
            let directory = one.statistics.as_ref()?.pressure_directory.as_ref()?;
            Some(files.map(|(file, bound)| Trigger {
                file: Path::new(directory).join(file),
                thousandths: ((bound * 1000.0) as u32).max(1),
            }))
        });
        counted.flatten().collect()
    }

    fn triggered(&mut self, usage: &ResourceUsage, now: Instant) -> Vec<QosCorrection> {
        let interval = self.settings.check_interval;
        if self.corrected_at.is_some_and(|last| now - last < interval) {
            return Vec::new(); // The last step takes effect.
        }
        let samples = self.history.peek(usage);
        let pressure = self.trend.peek(usage, &samples);
        let Some(pressure) = pressure.filter(|pressure| pressure.greatest() >= 1.0) else {
            return Vec::new();
        };
        self.checked_at = Some(now);
        self.judge(
            "trigger, waiting regular executors",
            pressure,
            pressure,
            usage,
            now,
        )
    }

    fn corrections(&mut self, usage: &ResourceUsage, now: Instant) -> Vec<QosCorrection> {
        // A request comes soon after the last answer.
        let interval = self.settings.check_interval;
        if self.checked_at.is_some_and(|last| now - last < interval) {
            return Vec::new();
        }
        self.checked_at = Some(now);
        let samples = self.history.advance(usage);
        match self.trend.advance(usage, &samples) {
            Expected::OfContainers(pressure) => {
                self.judge("waiting regular executors", pressure, pressure, usage, now)
            }
            Expected::OfMachine(pressure) => {
                let mem = pressure.mem;
                let may_kill = Waiting {
                    mem,
                    ..Waiting::default()
                };
                self.judge("pressure of the machine", pressure, may_kill, usage, now)
            }
            Expected::TooEarly => Vec::new(),
            Expected::Unknown => {
                (self.high_since, self.low_since) = (None, None);
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measure, usage};
    use protocol::usage::Pressure;

    fn given() -> Parameters {
        Parameters::none("pressure")
    }

    /// An agent whose corrections are carried out at once, measured each second.
    struct Fixture {
        policy: PressurePolicy,
        usage: ResourceUsage,
        seconds: u32,
        /// For CPUs and for memory, in seconds.
        waited: (f64, f64),
    }

    impl Fixture {
        fn new(executors: &str) -> Self {
            let settings = PressureSettings::from_parameters(&given()).unwrap();
            let mut fixture = Self {
                policy: PressurePolicy::new(settings, Box::new(|| None)),
                usage: usage(executors),
                seconds: 0,
                waited: (0.0, 0.0),
            };
            assert_eq!(fixture.next(0.0, 0.0), "", "nothing is known yet");
            fixture
        }

        /// The corrections after a second in which the regular executor waited this part of it.
        fn next(&mut self, cpu: f64, mem: f64) -> String {
            self.seconds += 1;
            (self.waited.0, self.waited.1) = (self.waited.0 + cpu, self.waited.1 + mem);
            let names: Vec<String> = { self.usage.executors.iter() }
                .map(|one| one.executor_id.to_string())
                .collect();
            for (index, name) in names.iter().enumerate() {
                let at = f64::from(self.seconds);
                measure(&mut self.usage, name, at, at * index as f64);
                let pressure = |some_secs| {
                    Some(Pressure {
                        some_secs,
                        full_secs: 0.0,
                    })
                };
                let statistics = self.usage.executors[index].statistics.as_mut().unwrap();
                // Best-effort executors always wait.
                let always = f64::from(self.seconds) * 0.9;
                let is_regular = name == "web";
                statistics.cpu_pressure = pressure(if is_regular { self.waited.0 } else { always });
                statistics.mem_pressure = pressure(if is_regular { self.waited.1 } else { always });
                statistics.io_pressure = pressure(0.0);
            }
            let now = Instant::default() + Duration::from_secs(u64::from(self.seconds));
            let corrections = self.policy.corrections(&self.usage, now);
            let mut said = Vec::new();
            for correction in corrections {
                let (_, executor_id, _) = correction.target();
                let executors = &mut self.usage.executors;
                let index = executors
                    .iter()
                    .position(|one| one.executor_id == *executor_id);
                let index = index.unwrap();
                said.push(match &correction {
                    QosCorrection::Kill { .. } => format!("kill {executor_id}"),
                    QosCorrection::Restore { .. } => {
                        executors[index].throttle = Throttle::default();
                        format!("restore {executor_id}")
                    }
                    QosCorrection::Throttle { degree, .. } => {
                        executors[index].throttle = *degree;
                        format!("{executor_id}: {degree}")
                    }
                });
                if let QosCorrection::Kill { .. } = correction {
                    executors.remove(index);
                }
            }
            said.join("; ")
        }
    }

    // Covers S16 in part: throttling by the pressure of regular tasks.
    #[test]
    fn pressure_throttles_then_kills_the_cheapest() {
        let mut agent = Fixture::new("web:cpus:4 small:cpus*:1 large:cpus*:2");
        assert_eq!(agent.next(0.05, 0.0), "");
        assert_eq!(agent.next(0.3, 0.0), "small: cpu 50%; large: cpu 50%");
        assert_eq!(agent.next(0.3, 0.0), "small: cpu 25%; large: cpu 25%");
        assert_eq!(agent.next(0.3, 0.0), "small: cpu 12.5%; large: cpu 12.5%");
        assert_eq!(agent.next(0.3, 0.0), "small: cpu 6.2%; large: cpu 6.2%");
        assert_eq!(agent.next(0.3, 0.0), "small: cpu 5%; large: cpu 5%");
        let later: Vec<String> = (0..16).map(|_| agent.next(0.3, 0.0)).collect();
        assert_eq!(later[5], "kill small", "it has done less work");
        assert_eq!(later[15], "kill large");
        assert!(
            later[..5].iter().chain(&later[6..15]).all(String::is_empty),
            "{later:?}"
        );
        assert_eq!(agent.next(0.3, 0.0), "", "nothing is left to correct");
    }

    #[test]
    fn rising_pressure_is_corrected_before_its_bound() {
        let mut agent = Fixture::new("web:cpus:4 batch:cpus*:1");
        assert_eq!(agent.next(0.1, 0.0), "");
        assert_eq!(agent.next(0.16, 0.0), "batch: cpu 50%", "0.22 are expected");
    }

    /// The kernel's triggers are an input beside the checks of each second.
    #[test]
    fn trigger_corrects_between_two_checks_once() {
        let mut agent = Fixture::new("web:cpus:4 batch:cpus*:1");
        assert_eq!(agent.next(0.05, 0.0), "");
        let at = |agent: &mut Fixture, millis: u64, waited: f64| {
            let web = agent.usage.executors[0].statistics.as_mut().unwrap();
            let seconds = millis as f64 / 1000.0;
            web.timestamp = runtime::Timestamp::from_nanos(millis * 1_000_000);
            web.cpus_user_time_secs = seconds;
            web.cpu_pressure = Some(Pressure {
                some_secs: waited,
                full_secs: 0.0,
            });
            let now = Instant::default() + Duration::from_millis(millis);
            agent.policy.triggered(&agent.usage, now).len()
        };
        assert_eq!(
            at(&mut agent, 2200, 0.06),
            0,
            "a trigger alone is no verdict"
        );
        assert_eq!(at(&mut agent, 2300, 0.45), 1, "0.45 of 1.3 seconds");
        assert_eq!(at(&mut agent, 2400, 0.9), 0, "the last step takes effect");
        assert_eq!(agent.policy.triggers(&agent.usage), BTreeSet::new());
        let web = agent.usage.executors[0].statistics.as_mut().unwrap();
        web.pressure_directory = Some("/sys/fs/cgroup/meros/web".to_owned());
        let triggers = agent.policy.triggers(&agent.usage);
        let triggers = triggers.iter();
        let triggers: Vec<_> = triggers
            .map(|one| {
                (
                    one.file.file_name().unwrap().to_str().unwrap(),
                    one.thousandths,
                )
            })
            .collect();
        let expected = [
            ("cpu.pressure", 200),
            ("io.pressure", 200),
            ("memory.pressure", 50),
        ];
        assert_eq!(triggers, expected, "only regular containers");
    }

    #[test]
    fn calm_lifts_the_degrees_step_by_step() {
        let mut agent = Fixture::new("web:cpus:4 batch:cpus*:1");
        for degree in ["50%", "25%"] {
            assert_eq!(agent.next(0.5, 0.0), format!("batch: cpu {degree}"));
        }
        assert_eq!(agent.next(0.15, 0.0), "", "between both, nothing changes");
        let calm: Vec<String> = (0..70).map(|_| agent.next(0.01, 0.0)).collect();
        let said = calm.iter().enumerate().filter(|(_, said)| !said.is_empty());
        let said: Vec<_> = said.map(|(second, said)| (second, said.as_str())).collect();
        assert_eq!(said, [(30, "batch: cpu 50%"), (60, "restore batch")]);
    }

    #[test]
    fn only_the_short_resource_is_throttled() {
        let mut agent = Fixture::new("web:cpus:4;mem:64 batch:cpus*:1;mem:64");
        assert_eq!(agent.next(0.0, 0.2), "batch: memory 80%");
        assert_eq!(agent.next(0.0, 0.2), "batch: memory 64%");
        assert_eq!(agent.next(0.5, 0.0), "batch: cpu 50%, memory 64%");
    }

    #[test]
    fn without_regular_executors_nothing_is_corrected() {
        let mut agent = Fixture::new("batch:cpus*:1");
        assert_eq!(agent.next(0.9, 0.9), "");
        let mut agent = Fixture::new("web:cpus:1");
        assert_eq!(agent.next(0.9, 0.9), "", "and without lent resources");
    }

    #[test]
    fn pressure_of_the_machine_kills_only_for_memory() {
        for (waiting, expected) in [
            (
                Waiting {
                    cpu: 0.9,
                    mem: 0.0,
                    io: 0.9,
                },
                vec![],
            ),
            (
                Waiting {
                    cpu: 0.9,
                    mem: 0.1,
                    io: 0.9,
                },
                vec![11, 21],
            ),
        ] {
            let settings = PressureSettings::from_parameters(&given()).unwrap();
            let mut policy = PressurePolicy::new(settings, Box::new(move || Some(waiting)));
            let mut usage = usage("web:cpus:1 batch:cpus*:1 late:cpus*:1");
            let mut kills = Vec::new();
            for second in 1..40_u32 {
                measure(&mut usage, "web", f64::from(second), f64::from(second));
                let now = Instant::default() + Duration::from_secs(second.into());
                let corrections = policy.corrections(&usage, now);
                let again = policy.corrections(&usage, now + Duration::from_millis(100));
                assert_eq!(again, [], "an interval between two checks");
                let is_kill = |one: &QosCorrection| matches!(one, QosCorrection::Kill { .. });
                kills.extend(corrections.iter().any(is_kill).then_some(second));
            }
            // Neither ends, and neither is killed again at once.
            assert_eq!(kills, expected, "{waiting:?}");
        }
    }

    #[test]
    fn parameters_have_units_and_bounds() {
        let read = |given| PressureSettings::from_parameters(&given);
        let default = read(given()).unwrap();
        assert_eq!(default.kill_after, Duration::from_secs(10));
        for (key, text, expected) in [
            (CHECK_INTERVAL, "100ms", "from `500ms` to `1hrs`"),
            (KILL_AFTER, "0secs", "from `1secs` to `1hrs`"),
            (RESTORE_AFTER, "2hrs", "from `1secs` to `1hrs`"),
            ("cpu_pressure_max", "20%", "above 0 and at most 1"),
            ("load_threshold_5min", "1", "only"),
        ] {
            let error = read(given().with(key, text)).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(expected), "{error}");
        }
    }
}
