//! The QoS controller by objectives: a task states a latency or a progress (label `meros.sla`), and
//! best-effort neighbours use less as long as that helps.
//!
//! A missed objective is no proof of interference. Neighbours are throttled by a step on trial: if
//! the objective is then met, or clearly nearer, they were a cause, and the steps go on. If two
//! steps change nothing, all are lifted, and the next trial comes later. A met objective lifts the
//! steps again, one after the other; a step that was lifted too early is taken back, and the next
//! try comes later. Compares medians of the values since the last step: single ones are noise. The
//! task with the lowest median counts. Throttles CPUs and io, never memory, and never kills.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::{ModuleError, Parameters};
use protocol::usage::Throttle;
use protocol::{ContainerId, ExecutorUsage, QosCorrection, ResourceUsage};
use runtime::{Instant, Timestamp};

use super::QosPolicy;
use super::steps::{CPU_STEPS, throttle};

const CHECK_INTERVAL: &str = "check_interval";
const SETTLE: &str = "settle";
const RETRY_AFTER: &str = "retry_after";
const RESTORE_AFTER: &str = "restore_after";

const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(500);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Values since the last step that a judgement needs.
const VALUES_MIN: usize = 3;
/// Values that are kept of a task; a judgement uses the newest.
const VALUES_MAX: usize = 32;
/// The factor by which an attainment must rise to be better.
const BETTER: f64 = 1.05;
/// Steps after which a trial must have shown an effect: CPUs are down to a quarter.
const TRIAL_STEPS: u32 = 2;
/// Steps to the strongest degree.
const STEPS_MAX: u32 = 5;
/// Time without a new value of any task after which nothing is throttled for objectives.
const UNKNOWN_AFTER: Duration = Duration::from_secs(300);
/// Times that the pause before a step back may double.
const DOUBLED_MAX: u32 = 4;

/// The settings of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlaSettings {
    check_interval: Duration,
    /// Time after a step before its effect is judged.
    settle: Duration,
    /// Time after a trial without effect before the next.
    retry_after: Duration,
    /// Time of met objectives after which a step is lifted.
    restore_after: Duration,
}

impl SlaSettings {
    /// Reads the parameters.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        given.only(&[CHECK_INTERVAL, SETTLE, RETRY_AFTER, RESTORE_AFTER])?;
        let within = |key, min, default| {
            crate::duration_within(given, key, min..=HOUR, Duration::from_secs(default))
        };
        Ok(Self {
            check_interval: within(CHECK_INTERVAL, CHECK_INTERVAL_MIN, 1)?,
            settle: within(SETTLE, SECOND, 5)?,
            retry_after: within(RETRY_AFTER, SECOND, 300)?,
            restore_after: within(RESTORE_AFTER, SECOND, 30)?,
        })
    }
}

/// The state of the search for interference.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing is throttled, and trials may begin.
    Watching,
    /// Throttled on trial. The attainment before the trial.
    Trying(f64),
    /// The neighbours are a cause: throttled as far as needed.
    Holding,
    /// The neighbours are no cause: not throttled until then.
    Cleared(Instant),
}

/// The controller.
pub struct SlaPolicy {
    settings: SlaSettings,
    phase: Phase,
    /// Throttling by this number of steps.
    steps: u32,
    /// The last change of the steps, or of the phase.
    changed_at: Option<Instant>,
    /// Doublings of the pause before the next step back.
    doubled: u32,
    /// Whether the last change was a step back.
    is_relaxed: bool,
    /// The objectives of each regular executor, by their places in its list.
    measured: BTreeMap<(ContainerId, usize), Attainments>,
    /// When a new value was seen last.
    measured_at: Option<Instant>,
}

/// The values of one objective.
#[derive(Clone, Debug, Default)]
struct Attainments {
    /// The time of the newest.
    at: Option<Timestamp>,
    /// Those since the last change.
    values: Vec<f64>,
}

impl Attainments {
    fn median(&self) -> Option<f64> {
        if self.values.len() < VALUES_MIN {
            return None;
        }
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

impl SlaPolicy {
    /// Without a history yet.
    pub fn new(settings: SlaSettings) -> Self {
        Self {
            settings,
            phase: Phase::Watching,
            steps: 0,
            changed_at: None,
            doubled: 0,
            is_relaxed: false,
            measured: BTreeMap::new(),
            measured_at: None,
        }
    }

    /// Adds the values of a report that are new, and forgets the objectives of ended executors.
    fn observe(&mut self, usage: &ResourceUsage, now: Instant) {
        let mut before = std::mem::take(&mut self.measured);
        let regular = usage.executors.iter().filter(|one| !one.is_revocable());
        for executor in regular {
            for (place, measured) in executor.objectives.iter().enumerate() {
                let key = (executor.container_id.clone(), place);
                let mut own = before.remove(&key).unwrap_or_default();
                if own.at != Some(measured.at) {
                    if own.values.len() == VALUES_MAX {
                        own.values.remove(0);
                    }
                    own.values.push(measured.attainment());
                    own.at = Some(measured.at);
                    self.measured_at = Some(now);
                }
                self.measured.insert(key, own);
            }
        }
    }

    /// Whether an objective has been measured recently.
    fn is_known(&self, now: Instant) -> bool {
        let last = self.measured_at.filter(|_| !self.measured.is_empty());
        last.is_some_and(|last| now - last < UNKNOWN_AFTER)
    }

    /// The median attainment since the last change of the task that is farthest from its
    /// objective, once one is known well enough.
    fn attainment(&self, now: Instant) -> Option<f64> {
        let settled = self
            .changed_at
            .is_none_or(|at| now - at >= self.settings.settle);
        let all = self.measured.values().filter_map(Attainments::median);
        all.min_by(f64::total_cmp).filter(|_| settled)
    }

    fn change(&mut self, phase: Phase, steps: u32, now: Instant) {
        self.is_relaxed = steps < self.steps;
        (self.phase, self.steps) = (phase, steps);
        self.changed_at = Some(now);
        let all = self.measured.values_mut();
        all.for_each(|one| one.values.clear());
    }

    /// Decides the next step by the attainment since the last one.
    fn advance(&mut self, attainment: f64, now: Instant) {
        let is_met = attainment >= 1.0;
        let (steps, stronger) = (self.steps, (self.steps + 1).min(STEPS_MAX));
        match self.phase {
            Phase::Cleared(until) if now < until => {}
            Phase::Watching | Phase::Cleared(_) if is_met => {}
            Phase::Watching | Phase::Cleared(_) => {
                self.change(Phase::Trying(attainment), stronger, now);
            }
            Phase::Trying(_) if is_met => self.change(Phase::Holding, steps, now),
            Phase::Trying(before) if attainment >= before * BETTER => {
                self.change(Phase::Holding, stronger, now);
            }
            Phase::Trying(before) if steps < TRIAL_STEPS => {
                self.change(Phase::Trying(before), stronger, now);
            }
            Phase::Trying(_) => {
                let until = now + self.settings.retry_after;
                self.change(Phase::Cleared(until), 0, now);
            }
            Phase::Holding if !is_met => {
                if self.is_relaxed {
                    self.doubled = (self.doubled + 1).min(DOUBLED_MAX);
                }
                if stronger > steps {
                    self.change(Phase::Holding, stronger, now);
                }
            }
            Phase::Holding => {
                let pause = self.settings.restore_after * 2_u32.pow(self.doubled);
                if self.changed_at.is_some_and(|at| now - at < pause) {
                    return;
                }
                let phase = match steps {
                    0 | 1 => Phase::Watching,
                    _ => Phase::Holding,
                };
                if phase == Phase::Watching {
                    self.doubled = 0;
                }
                self.change(phase, steps.saturating_sub(1), now);
            }
        }
    }

    fn degree(&self) -> Throttle {
        let degree = (0..self.steps).fold(None, |degree, _| CPU_STEPS.stronger(degree));
        Throttle {
            cpu: degree,
            memory: None,
            io: degree,
        }
    }
}

impl QosPolicy for SlaPolicy {
    fn is_alarmed(&mut self) -> bool {
        true
    }

    fn check_interval(&self) -> Duration {
        self.settings.check_interval
    }

    fn corrections(&mut self, usage: &ResourceUsage, now: Instant) -> Vec<QosCorrection> {
        self.observe(usage, now);
        let is_lent = |one: &&ExecutorUsage| !one.allocated.throttleable().is_empty();
        let lent: Vec<&ExecutorUsage> = usage.executors.iter().filter(is_lent).collect();
        if lent.is_empty() {
            // Others are tried anew.
            self.change(Phase::Watching, 0, now);
            return Vec::new();
        }
        let is_known = self.is_known(now);
        if !is_known && self.phase != Phase::Watching {
            self.change(Phase::Watching, 0, now);
        }
        let attainment = self.attainment(now);
        if let Some(attainment) = attainment {
            self.advance(attainment, now);
        }
        let reason = match (self.phase, attainment) {
            (Phase::Trying(_), Some(part)) => {
                format!("trial: {:.0}% of the objective", part * 100.0)
            }
            (Phase::Cleared(_), _) => "trial: no effect on the objective".to_owned(),
            (_, Some(part)) => format!("{:.0}% of the objective", part * 100.0),
            (_, None) if !is_known => "no objective is measured".to_owned(),
            (_, None) => "as its neighbours".to_owned(),
        };
        let degree = self.degree();
        let corrections = lent.into_iter();
        corrections
            .filter_map(|one| throttle(one, degree, &reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::usage;
    use protocol::usage::{Objective, TaskObjective};

    fn given() -> Parameters {
        Parameters::none("sla")
    }

    /// Runs the controller over a made trace: `latency` is that of the regular task at a second, by
    /// the thousandths of the CPUs that its neighbour may use. Returns the changes, as `second:
    /// thousandths`.
    fn run(seconds: u32, latency: impl Fn(u32, f64) -> f64) -> Vec<String> {
        let mut policy = SlaPolicy::new(SlaSettings::from_parameters(&given()).unwrap());
        let mut usage = usage("web:cpus:4 batch:cpus*:2");
        let mut changes = Vec::new();
        for second in 1..=seconds {
            let part = f64::from(usage.executors[1].throttle.cpu.unwrap_or(1000)) / 1000.0;
            usage.executors[0].objectives = vec![TaskObjective {
                objective: Objective::LatencyMillis(50.0),
                value: latency(second, part),
                at: Timestamp::from_nanos(u64::from(second) * 1_000_000_000),
            }];
            let now = Instant::default() + Duration::from_secs(second.into());
            for correction in policy.corrections(&usage, now) {
                let degree = match correction {
                    QosCorrection::Throttle { degree, .. } => degree,
                    QosCorrection::Restore { .. } => Throttle::default(),
                    QosCorrection::Kill { .. } => panic!("never"),
                };
                usage.executors[1].throttle = degree;
                changes.push(format!("{second}: {}", degree.cpu.unwrap_or(1000)));
            }
        }
        changes
    }

    #[test]
    fn met_objective_changes_nothing() {
        assert_eq!(run(600, |_, _| 49.0), [""; 0]);
        // Single values are noise.
        assert_eq!(
            run(600, |second, _| if second % 3 == 0 { 90.0 } else { 40.0 }),
            [""; 0]
        );
    }

    #[test]
    fn interfering_neighbour_is_throttled_until_the_load_passes() {
        // Below a quarter of the neighbour, and from minute two on, the objective is met.
        let busy = |second: u32, part: f64| match second < 120 {
            true => 30.0 + 80.0 * part,
            false => 30.0,
        };
        let changes = run(600, busy);
        assert_eq!(changes[..2], ["3: 500", "8: 250"], "70, then 50 ms");
        let rest: Vec<&str> = changes[2..].iter().map(String::as_str).collect();
        let degrees: Vec<&str> = rest
            .iter()
            .map(|one| one.split_once(' ').unwrap().1)
            .collect();
        assert_eq!(degrees.last(), Some(&"1000"), "{changes:?}");
        assert!(degrees.len() < 10, "no back and forth: {changes:?}");
    }

    #[test]
    fn innocent_neighbour_is_lifted_until_the_next_trial() {
        let changes = run(700, |_, _| 90.0);
        let expected = [
            "3: 500",
            "8: 250",
            "13: 1000",
            "313: 500",
            "318: 250",
            "323: 1000",
            "623: 500",
            "628: 250",
            "633: 1000",
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn partial_relief_throttles_to_the_end() {
        let changes = run(60, |_, part| 60.0 + 40.0 * part);
        assert_eq!(changes, ["3: 500", "8: 250", "13: 125", "18: 62", "23: 50"]);
    }

    /// The thousandths of the CPUs that the neighbour may use after each report.
    fn degrees(policy: &mut SlaPolicy, usage: &mut ResourceUsage, seconds: &[u64]) -> Vec<u16> {
        let mut degree = |second: &u64| {
            let now = Instant::default() + Duration::from_secs(*second);
            for correction in policy.corrections(usage, now) {
                let neighbour = usage.executors.last_mut().unwrap();
                neighbour.throttle = match correction {
                    QosCorrection::Throttle { degree, .. } => degree,
                    _ => Throttle::default(),
                };
            }
            let neighbour = usage.executors.last().unwrap();
            neighbour.throttle.cpu.unwrap_or(1000)
        };
        seconds.iter().map(&mut degree).collect()
    }

    fn measured(attainment: f64, second: u64) -> TaskObjective {
        TaskObjective {
            objective: Objective::ProgressPerSecond(100.0),
            value: 100.0 * attainment,
            at: Timestamp::from_nanos(second * 1_000_000_000),
        }
    }

    #[test]
    fn neighbour_is_restored_when_nothing_is_measured_any_more() {
        for ends in [true, false] {
            let mut policy = SlaPolicy::new(SlaSettings::from_parameters(&given()).unwrap());
            let mut usage = usage("web:cpus:4 batch:cpus*:2");
            for second in 1..=3 {
                usage.executors[0].objectives = vec![measured(0.5, second)];
                degrees(&mut policy, &mut usage, &[second]);
            }
            assert_eq!(degrees(&mut policy, &mut usage, &[4]), [500]);
            if ends {
                usage.executors[0].objectives.clear();
                assert_eq!(degrees(&mut policy, &mut usage, &[5]), [1000]);
            } else {
                assert_eq!(degrees(&mut policy, &mut usage, &[302, 303]), [500, 1000]);
            }
        }
    }

    #[test]
    fn task_that_is_measured_rarely_counts_like_the_others() {
        let mut policy = SlaPolicy::new(SlaSettings::from_parameters(&given()).unwrap());
        let mut usage = usage("api:cpus:2 web:cpus:2 batch:cpus*:2");
        let mut found = Vec::new();
        for second in 1..=20 {
            usage.executors[0].objectives = vec![measured(1.2, second)];
            usage.executors[1].objectives = vec![measured(0.5, second / 10 * 10)];
            found.extend(degrees(&mut policy, &mut usage, &[second]));
        }
        assert_eq!((found[18], found[19]), (1000, 500), "its third value");
    }

    #[test]
    fn executor_that_comes_later_is_throttled_as_its_neighbours() {
        let mut policy = SlaPolicy::new(SlaSettings::from_parameters(&given()).unwrap());
        let mut usage = usage("web:cpus:4 batch:cpus*:2 late:cpus*:1");
        let late = usage.executors.pop().unwrap();
        for second in 1..=3_u32 {
            usage.executors[0].objectives = vec![TaskObjective {
                objective: Objective::ProgressPerSecond(100.0),
                value: 60.0,
                at: Timestamp::from_nanos(u64::from(second) * 1_000_000_000),
            }];
            let now = Instant::default() + Duration::from_secs(second.into());
            let corrections = policy.corrections(&usage, now);
            assert_eq!(corrections.len(), usize::from(second == 3), "{second}");
        }
        usage.executors[1].throttle = policy.degree();
        usage.executors.push(late);
        let now = Instant::default() + Duration::from_secs(4);
        let corrections = policy.corrections(&usage, now);
        let [correction] = &corrections[..] else {
            panic!("{corrections:?}");
        };
        assert_eq!(correction.target().1.as_str(), "late");
        assert_eq!(correction.reason(), "as its neighbours");
    }
}
