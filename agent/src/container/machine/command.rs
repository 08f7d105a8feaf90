//! A container that runs a command under a container init: the agent reports what an executor
//! would.
//!
//! Pure. States, messages and their order are those of Mesos' command executor (SPEC 5.4), whose
//! updates have a reason only for results of checks and an exceeded completion time.

use std::time::Duration;

use protocol::text::reserved_labels::objective;
use protocol::usage::{Objective, TaskObjective};
use protocol::{
    Capability, ContainerId, KillPolicy, Reason, Source, TaskId, TaskInfo, TaskState, Termination,
    Uuid,
};

use runtime::Timestamp;

use super::{Container, Effect, Phase, TaskReport};
use crate::launcher::ContainerEnd;

/// Default time between SIGTERM and SIGKILL.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);

/// How long a task may take to stop by its own policy.
pub fn kill_grace(info: &TaskInfo) -> Duration {
    info.kill_policy
        .map_or(GRACE_DEFAULT, |policy| policy.grace_period)
}

/// The state of a command that its task's state does not have.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandState {
    /// The time since its start, when this agent process took it over.
    pub(super) age: Duration,
    /// Whether it was asked to end.
    pub(super) killed: bool,
    /// Whether that was for its health.
    is_unhealthy: bool,
    /// Whether that was for its completion time.
    is_overdue: bool,
    /// The last reported health.
    healthy: Option<bool>,
    /// The last reported results of its checks: in the order of [`TaskInfo::all_checks`], up to the
    /// last check that has had one.
    check_results: Vec<Option<i32>>,
    /// The objective, as last measured by its check.
    objective: Option<TaskObjective>,
}

/// A report about a task's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthChange {
    /// Whether it is healthy.
    pub healthy: bool,
    /// Whether it is to be killed.
    pub kill: bool,
}

/// Whether an update with this reason has the result of a check.
pub fn is_check_update(reason: Option<Reason>) -> bool {
    let reasons = [
        Reason::TaskCheckStatusUpdated,
        Reason::TaskHealthCheckStatusUpdated,
    ];
    reason.is_some_and(|reason| reasons.contains(&reason))
}

/// The id of a command's update. The next agent process reports a state that was not stored under
/// the same id, so that its framework is told of it once. A command has each state once, except for
/// results of checks, which have ids of their own.
pub fn update_id(container: &ContainerId, state: TaskState) -> Option<Uuid> {
    let mut id = Uuid::parse(container.name())?;
    id.0[15] ^= state as u8 + 1;
    Some(id)
}

/// The state and message of a task after its command has ended.
pub fn outcome(termination: Termination, kill_wanted: bool) -> (TaskState, String) {
    let message = match termination {
        Termination::Exited(code) => format!("Command exited with status {code}"),
        Termination::Signaled(signal) => {
            format!("Command terminated with signal {}", signal_name(signal))
        }
    };
    let state = match termination {
        _ if kill_wanted => TaskState::Killed,
        Termination::Exited(0) => TaskState::Finished,
        _ => TaskState::Failed,
    };
    (state, message)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Container {
    /// The command runs, perhaps since an earlier agent process.
    pub(super) fn command_started(&mut self) -> Vec<Effect> {
        self.phase = Phase::Running;
        let mut effects = Vec::new();
        // A recovered task may have been reported as starting.
        for (before, state) in [
            (TaskState::Staging, TaskState::Starting),
            (TaskState::Starting, TaskState::Running),
        ] {
            for id in self.tasks_in(|state| state == before) {
                effects.extend(self.report_command(&id, state));
            }
        }
        // An earlier agent process may have asked it to end.
        self.command.killed |= !self
            .tasks_in(|state| state == TaskState::Killing)
            .is_empty();
        if self.command.killed {
            return effects;
        }
        let tasks = || self.tasks.values().map(|task| &task.info);
        let has_checks = |task: &TaskInfo| task.all_checks().next().is_some();
        if tasks().any(|task| task.health_check.is_some() || has_checks(task)) {
            effects.push(Effect::StartChecks);
        }
        let limits = tasks().filter_map(|task| task.max_completion_time);
        if let Some(limit) = limits.filter(|limit| !limit.is_zero()).min() {
            let rest = limit.saturating_sub(self.command.age);
            match rest.is_zero() {
                true => effects.extend(self.completion_overdue(rest)),
                false => effects.push(Effect::AwaitCompletion(rest)),
            }
        }
        effects
    }

    /// The time since its start, when this agent process took it over.
    pub fn age(&self) -> Duration {
        self.command.age
    }

    /// Whether results of checks count: its command runs and was not asked to end.
    pub fn is_checked(&self) -> bool {
        let runs = self.is_command && self.phase == Phase::Running && !self.is_gone;
        runs && !self.command.killed
    }

    /// A result of the health check; an unhealthy task may be killed.
    pub fn health_changed(&mut self, change: HealthChange) -> Vec<Effect> {
        if !self.is_checked() {
            return Vec::new();
        }
        self.command.healthy = Some(change.healthy);
        let mut effects = self.report_checks(Reason::TaskHealthCheckStatusUpdated);
        if change.kill {
            self.command.is_unhealthy = true;
            for id in self.tasks_in(|state| !state.is_terminal()) {
                effects.extend(self.kill_command(&id, None));
            }
        }
        effects
    }

    /// The result of the check at this place of [`TaskInfo::all_checks`] has changed.
    pub fn check_changed(&mut self, index: usize, result: Option<i32>) -> Vec<Effect> {
        if !self.is_checked() {
            return Vec::new();
        }
        let results = &mut self.command.check_results;
        results.resize(results.len().max(index + 1), None);
        results[index] = result;
        self.report_checks(Reason::TaskCheckStatusUpdated)
    }

    /// The check of a task with an objective took so long, and the task may have stated a value.
    pub fn check_measured(&mut self, took: Duration, stated: Option<f64>, at: Timestamp) {
        let value = |objective| match objective {
            Objective::LatencyMillis(_) => Some(stated.unwrap_or(millis(took))),
            Objective::ProgressPerSecond(_) => stated,
        };
        self.set_objective(value, at);
    }

    /// The check of a task with an objective failed; a success would have taken at least so long.
    pub fn check_missed(&mut self, took: Duration, at: Timestamp) {
        let value = |objective| match objective {
            // A timeout may be shorter than the objective, or absent.
            Objective::LatencyMillis(max) => Some(millis(took).max(2.0 * max)),
            Objective::ProgressPerSecond(_) => Some(0.0),
        };
        self.set_objective(value, at);
    }

    fn set_objective(&mut self, value: impl FnOnce(Objective) -> Option<f64>, at: Timestamp) {
        let labels = self.tasks().next().map(|task| &task.info.labels);
        let objective = labels.and_then(|labels| objective(labels).ok()?);
        let measured = objective.and_then(|objective| {
            Some(TaskObjective {
                objective,
                value: value(objective)?,
                at,
            })
        });
        self.command.objective = measured.or(self.command.objective);
    }

    /// The objective of its task, as last measured.
    pub fn objective(&self) -> Option<TaskObjective> {
        self.command.objective
    }

    /// Its maximum completion time has passed. As in Mesos, it has no time to end, and its killing
    /// is not reported.
    pub fn completion_overdue(&mut self, _: Duration) -> Vec<Effect> {
        if !self.is_checked() {
            return Vec::new();
        }
        (self.command.killed, self.command.is_overdue) = (true, true);
        vec![Effect::Terminate(Duration::ZERO)]
    }

    /// Reports the newest results of its checks with the state that it has.
    fn report_checks(&mut self, reason: Reason) -> Vec<Effect> {
        let healthy = self.command.healthy;
        let mut effects = Vec::new();
        for id in self.tasks_in(|state| state == TaskState::Running) {
            let mut report = self.command_report(&id, TaskState::Running);
            let results = report.check_results.iter_mut();
            for (reported, newest) in results.zip(&self.command.check_results) {
                *reported = *newest;
            }
            effects.extend(self.report(TaskReport {
                reason: Some(reason),
                healthy,
                ..report
            }));
        }
        effects
    }

    /// Whether its command was launched and can be asked to end.
    pub(super) fn has_command(&self) -> bool {
        let is_launched = matches!(self.phase, Phase::Launching | Phase::Running);
        self.is_command && self.has_run_tasks && is_launched
    }

    /// The container has ended.
    pub fn ended(&mut self, end: ContainerEnd) -> Vec<Effect> {
        let is_overdue = self.command.is_overdue;
        let mut reason = None;
        let (state, message, termination) = match end {
            // The kill of a container of groups is regular when its tasks are over.
            ContainerEnd::Leader(_) if self.is_group() && self.end_status.is_some() => {
                return self.exited(Some(Termination::Signaled(nix::libc::SIGKILL)));
            }
            ContainerEnd::Leader(termination) => return self.exited(Some(termination)),
            ContainerEnd::Command {
                termination,
                kill_wanted,
            } => {
                let (mut state, message) = outcome(termination, kill_wanted);
                if kill_wanted && is_overdue {
                    state = TaskState::Failed;
                    reason = Some(Reason::MaxCompletionTimeReached);
                }
                (state, message, Some(termination))
            }
            ContainerEnd::CommandNotStarted(reason) => {
                let message = format!("Command cannot be started: {reason}");
                (TaskState::Failed, message, None)
            }
        };
        let mut effects = Vec::new();
        if self.end_status.is_none() {
            for id in self.tasks_in(|state| !state.is_terminal()) {
                let report = self.command_report(&id, state);
                let is_unhealthy = self.command.is_unhealthy && state == TaskState::Killed;
                effects.extend(self.report(TaskReport {
                    reason,
                    message: message.clone(),
                    termination,
                    healthy: is_unhealthy.then_some(false),
                    ..report
                }));
            }
        }
        effects.extend(self.exited(termination));
        effects
    }

    /// Kills the command's task.
    pub(super) fn kill_command(
        &mut self,
        task_id: &TaskId,
        policy: Option<KillPolicy>,
    ) -> Vec<Effect> {
        let own = self.tasks.get(task_id).map(|task| kill_grace(&task.info));
        let grace = policy.map(|policy| policy.grace_period).or(own);
        self.terminate(grace.unwrap_or_default())
    }

    /// Ends the command; it is killed after `grace`.
    pub(super) fn shut_down_command(&mut self, grace: Duration) -> Vec<Effect> {
        self.phase = Phase::Terminating;
        let own = self.tasks().map(|task| kill_grace(&task.info)).min();
        let grace = own.map_or(grace, |own| own.min(grace));
        let mut effects = self.terminate(grace);
        effects.push(Effect::DestroyAfter(grace));
        effects
    }

    fn terminate(&mut self, grace: Duration) -> Vec<Effect> {
        self.command.killed = true;
        let mut effects = Vec::new();
        if self.framework.can(Capability::TaskKillingState) {
            let is_first = |state: TaskState| !state.is_terminal() && state != TaskState::Killing;
            for id in self.tasks_in(is_first) {
                effects.extend(self.report_command(&id, TaskState::Killing));
            }
        }
        effects.push(Effect::Terminate(grace));
        effects
    }

    fn tasks_in(&self, is_wanted: impl Fn(TaskState) -> bool) -> Vec<TaskId> {
        let tasks = self.tasks.iter().filter(|(_, task)| is_wanted(task.state));
        tasks.map(|(id, _)| id.clone()).collect()
    }

    fn report_command(&mut self, task_id: &TaskId, state: TaskState) -> Option<Effect> {
        let report = self.command_report(task_id, state);
        self.report(report)
    }

    /// A report as an executor would make it: without results of the checks, if there are any.
    fn command_report(&self, task_id: &TaskId, state: TaskState) -> TaskReport {
        let task = self.tasks.get(task_id);
        let checks = task.map_or(0, |task| task.info.all_checks().count());
        TaskReport {
            task_id: task_id.clone(),
            state,
            source: Source::Executor,
            reason: None,
            message: String::new(),
            termination: None,
            healthy: None,
            check_results: vec![None; checks],
        }
    }
}

/// The name of a signal that may end a process, as glibc prints it.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        16 => "Stack fault",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        26 => "Virtual timer expired",
        27 => "Profiling timer expired",
        29 => "I/O possible",
        30 => "Power failure",
        31 => "Bad system call",
        34..=64 => return format!("Real-time signal {}", signal - 34),
        _ => return format!("Unknown signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{id, task};
    use super::*;
    use protocol::task::check::{
        CheckInfo, CheckKind, CheckTiming, HealthCheck, NamedCheck, TcpCheck,
    };
    use protocol::{CommandInfo, ExecutorId, ExecutorInfo, FrameworkInfo, Termination};

    const EXITED: Termination = Termination::Exited(0);
    const TERMINATED: Termination = Termination::Signaled(15);

    fn container(info: TaskInfo, capabilities: &[Capability]) -> Container {
        let executor = ExecutorInfo {
            executor_id: ExecutorId::from(&info.task_id),
            kind: protocol::ExecutorKind::Custom,
            name: String::new(),
            command: CommandInfo::shell("true"),
            resources: Default::default(),
            data: Vec::new(),
            shutdown_grace_period: None,
            labels: Default::default(),
            container: None,
        };
        let framework = FrameworkInfo {
            capabilities: capabilities.iter().copied().collect(),
            ..FrameworkInfo::new("", "f")
        };
        let id = ContainerId::new("c").unwrap();
        let mut container = Container::new(id, framework, executor, true, "secret".into());
        container.add(info);
        assert_eq!(container.prepared(Ok(())), [Effect::Launch]);
        container
    }

    fn launched(info: TaskInfo, capabilities: &[Capability]) -> Container {
        let mut container = container(info, capabilities);
        assert_eq!(container.launch_requested(), [Effect::AwaitSubscription]);
        container
    }

    fn running(capabilities: &[Capability]) -> Container {
        let mut container = launched(task("t"), capabilities);
        let effects = container.started(42);
        assert_eq!(
            reports(&effects),
            ["TASK_STARTING ", "TASK_RUNNING "],
            "{effects:?}"
        );
        container
    }

    /// The state, reason and message of each report.
    fn reports(effects: &[Effect]) -> Vec<String> {
        let report = |effect: &Effect| match effect {
            Effect::Report(report) => {
                let reason = report.reason.map(|reason| format!("{reason:?}: "));
                let reason = reason.unwrap_or_default();
                Some(format!("{} {reason}{}", report.state, report.message))
            }
            _ => None,
        };
        effects.iter().filter_map(report).collect()
    }

    fn command(termination: Termination, kill_wanted: bool) -> ContainerEnd {
        ContainerEnd::Command {
            termination,
            kill_wanted,
        }
    }

    /// SPEC 5.4.
    #[test]
    fn exit_status_decides_the_state_unless_killed() {
        for (termination, kill_wanted, expected) in [
            (EXITED, false, "TASK_FINISHED Command exited with status 0"),
            (
                Termination::Exited(3),
                false,
                "TASK_FAILED Command exited with status 3",
            ),
            (
                Termination::Signaled(9),
                false,
                "TASK_FAILED Command terminated with signal Killed",
            ),
            (
                TERMINATED,
                true,
                "TASK_KILLED Command terminated with signal Terminated",
            ),
            (EXITED, true, "TASK_KILLED Command exited with status 0"),
            (
                Termination::Signaled(40),
                false,
                "TASK_FAILED Command terminated with signal Real-time signal 6",
            ),
        ] {
            let mut container = running(&[]);
            let effects = container.ended(command(termination, kill_wanted));
            assert_eq!(reports(&effects), [expected]);
            assert_eq!(effects.last(), Some(&Effect::Ended(Some(termination))));
            assert_eq!(container.ended(command(termination, kill_wanted)), []);
        }
    }

    #[test]
    fn command_that_cannot_start_fails_without_a_reason() {
        let mut container = container(task("t"), &[]);
        let effects = container.ended(ContainerEnd::CommandNotStarted("no file".into()));
        let expected = ["TASK_FAILED Command cannot be started: no file"];
        assert_eq!(reports(&effects), expected);
    }

    #[test]
    fn end_of_an_init_is_the_end_of_an_executor() {
        let effects = running(&[]).ended(ContainerEnd::Leader(Termination::Signaled(9)));
        let expected = "TASK_FAILED ExecutorTerminated: Executor terminated";
        assert_eq!(reports(&effects), [expected]);
    }

    // Covers 5.4 Kill escalation.
    #[test]
    fn kill_uses_the_frameworks_policy_then_the_tasks_then_the_default() {
        let policy = |seconds| KillPolicy {
            grace_period: Duration::from_secs(seconds),
        };
        let grace = |own: Option<u64>, given: Option<u64>| {
            let info = TaskInfo {
                kill_policy: own.map(policy),
                ..task("t")
            };
            let mut container = launched(info, &[]);
            container.started(42);
            container.kill(&id("t"), given.map(policy))
        };
        let seconds = |seconds| [Effect::Terminate(Duration::from_secs(seconds))];
        assert_eq!(grace(None, None), seconds(3));
        assert_eq!(grace(Some(7), None), seconds(7));
        assert_eq!(grace(Some(7), Some(9)), seconds(9));
    }

    #[test]
    fn killing_is_reported_once_and_only_to_frameworks_that_know_it() {
        assert_eq!(reports(&running(&[]).kill(&id("t"), None)), [""; 0]);
        let mut container = running(&[Capability::TaskKillingState]);
        let killing = ["TASK_KILLING "];
        assert_eq!(reports(&container.kill(&id("t"), None)), killing);
        let again = container.kill(&id("t"), None);
        assert_eq!(again, [Effect::Terminate(GRACE_DEFAULT)], "may be shorter");
        container.ended(command(TERMINATED, true));
        assert_eq!(container.kill(&id("t"), None), []);
    }

    #[test]
    fn kill_before_the_launch_ends_the_container() {
        let mut container = container(task("t"), &[]);
        let effects = container.kill(&id("t"), None);
        let message = "Killed before delivery to the executor";
        let expected = format!("TASK_KILLED TaskKilledDuringLaunch: {message}");
        assert_eq!(reports(&effects), [expected]);
        assert_eq!(effects.last(), Some(&Effect::Destroy));
    }

    #[test]
    fn kill_between_launch_and_start_keeps_the_grace_period() {
        let mut container = launched(task("t"), &[Capability::TaskKillingState]);
        let effects = container.kill(&id("t"), None);
        assert_eq!(reports(&effects), ["TASK_KILLING "]);
        assert_eq!(effects.last(), Some(&Effect::Terminate(GRACE_DEFAULT)));
        assert_eq!(container.started(42), [], "it goes on ending");
        let effects = container.ended(command(TERMINATED, true));
        let expected = "TASK_KILLED Command terminated with signal Terminated";
        assert_eq!(reports(&effects), [expected]);

        let mut container = launched(task("t"), &[]);
        let effects = container.shut_down(GRACE_DEFAULT);
        assert_eq!(effects[0], Effect::Terminate(GRACE_DEFAULT));
        assert_eq!(container.started(42), []);
    }

    #[test]
    fn recovered_command_reports_what_was_not_stored() {
        let mut container = launched(task("t"), &[]);
        container.on_update(&id("t"), TaskState::Starting);
        assert_eq!(reports(&container.started(42)), ["TASK_RUNNING "]);
        assert_eq!(container.started(42), []);
    }

    #[test]
    fn each_state_of_a_command_has_an_id_of_its_own() {
        let container = ContainerId::from(Uuid([7; 16]));
        let states = [TaskState::Starting, TaskState::Running, TaskState::Finished];
        let ids = states.map(|state| update_id(&container, state));
        assert!(ids.iter().all(Option::is_some));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!(update_id(&container, TaskState::Running), ids[1]);
    }

    fn checked(capabilities: &[Capability]) -> Container {
        let kind = CheckKind::Tcp(TcpCheck::default());
        let timing = CheckTiming::default();
        let info = TaskInfo {
            health_check: Some(Box::new(HealthCheck {
                kind: kind.clone(),
                timing,
                grace_period: Duration::ZERO,
                consecutive_failures: 3,
            })),
            check: Some(Box::new(CheckInfo { kind, timing })),
            ..task("t")
        };
        let mut container = launched(info, capabilities);
        let effects = container.started(42);
        assert_eq!(effects.last(), Some(&Effect::StartChecks));
        assert_eq!(results(&effects), [(None, "-".into()), (None, "-".into())]);
        container
    }

    /// The health and the results of the checks of each report: a digit, or `-` for none.
    fn results(effects: &[Effect]) -> Vec<(Option<bool>, String)> {
        let letter = |result: &Option<i32>| result.map_or("-".to_owned(), |one| one.to_string());
        let result = |effect: &Effect| match effect {
            Effect::Report(report) => {
                let results = report.check_results.iter().map(letter).collect();
                Some((report.healthy, results))
            }
            _ => None,
        };
        effects.iter().filter_map(result).collect()
    }

    fn healthy(healthy: bool, kill: bool) -> HealthChange {
        HealthChange { healthy, kill }
    }

    /// SPEC 5.12: each update has the newest of both, others have neither.
    // Covers 5.12 Health and checks.
    #[test]
    fn results_of_checks_are_updates_of_a_running_task() {
        let mut container = checked(&[]);
        let effects = container.health_changed(healthy(true, false));
        assert_eq!(
            reports(&effects),
            ["TASK_RUNNING TaskHealthCheckStatusUpdated: "]
        );
        assert_eq!(results(&effects), [(Some(true), "-".into())]);
        let effects = container.check_changed(0, Some(1));
        assert_eq!(reports(&effects), ["TASK_RUNNING TaskCheckStatusUpdated: "]);
        assert_eq!(results(&effects), [(Some(true), "1".into())]);
        let effects = container.health_changed(healthy(false, false));
        assert_eq!(results(&effects), [(Some(false), "1".into())]);
        container.kill(&id("t"), None);
        assert!(!container.is_checked());
        assert_eq!(container.check_changed(0, None), []);
        assert_eq!(container.health_changed(healthy(false, true)), []);
        let effects = container.ended(command(TERMINATED, true));
        assert_eq!(results(&effects), [(None, "-".into())]);
    }

    #[test]
    fn named_checks_are_reported_with_the_single_one() {
        let check = CheckInfo {
            kind: CheckKind::Tcp(TcpCheck::default()),
            timing: CheckTiming::default(),
        };
        let named = |name: &str| NamedCheck {
            name: name.to_owned(),
            check: check.clone(),
        };
        let with = |single| TaskInfo {
            check: single,
            checks: vec![named("a"), named("b")],
            ..task("t")
        };
        let mut container = launched(with(Some(Box::new(check.clone()))), &[]);
        let effects = container.started(42);
        assert_eq!(effects.last(), Some(&Effect::StartChecks));
        assert_eq!(results(&effects)[1], (None, "---".into()));
        let effects = container.check_changed(2, Some(1));
        assert_eq!(reports(&effects), ["TASK_RUNNING TaskCheckStatusUpdated: "]);
        assert_eq!(results(&effects), [(None, "--1".into())]);
        let effects = container.check_changed(0, Some(0));
        assert_eq!(results(&effects), [(None, "0-1".into())]);
        let effects = container.check_changed(2, None);
        assert_eq!(results(&effects), [(None, "0--".into())]);

        let mut container = launched(with(None), &[]);
        let effects = container.started(42);
        assert_eq!(effects.last(), Some(&Effect::StartChecks));
        let effects = container.check_changed(1, Some(1));
        assert_eq!(results(&effects), [(None, "-1".into())]);
    }

    #[test]
    fn check_measures_the_objective_of_its_task() {
        let measured = |label: &str, stated| {
            let mut info = task("t");
            info.labels.insert("meros.sla".to_owned(), label.to_owned());
            let mut container = container(info, &[]);
            container.check_measured(Duration::from_millis(70), stated, Timestamp::from_nanos(7));
            container
                .objective()
                .map(|one| (one.value, one.attainment()))
        };
        assert_eq!(measured("latency:35", None), Some((70.0, 0.5)));
        assert_eq!(measured("latency:35", Some(20.0)), Some((20.0, 1.75)));
        assert_eq!(measured("progress:100", None), None, "no check takes it");
        assert_eq!(measured("progress:100", Some(50.0)), Some((50.0, 0.5)));
    }

    #[test]
    fn failed_check_misses_the_objective_of_its_task() {
        let missed = |label: &str| {
            let mut info = task("t");
            info.labels.insert("meros.sla".to_owned(), label.to_owned());
            let mut container = container(info, &[]);
            container.check_missed(Duration::from_millis(70), Timestamp::from_nanos(7));
            container.objective().map(|one| one.value)
        };
        assert_eq!(missed("latency:35"), Some(70.0));
        assert_eq!(missed("latency:100"), Some(200.0));
        assert_eq!(missed("progress:100"), Some(0.0));
    }

    #[test]
    fn unhealthy_task_is_killed_as_by_its_framework() {
        let mut container = checked(&[Capability::TaskKillingState]);
        let effects = container.health_changed(healthy(false, true));
        let unhealthy = "TASK_RUNNING TaskHealthCheckStatusUpdated: ";
        assert_eq!(reports(&effects), [unhealthy, "TASK_KILLING "]);
        assert_eq!(effects.last(), Some(&Effect::Terminate(GRACE_DEFAULT)));
        let effects = container.ended(command(TERMINATED, true));
        let killed = "TASK_KILLED Command terminated with signal Terminated";
        assert_eq!(reports(&effects), [killed]);
        assert_eq!(results(&effects), [(Some(false), "-".into())]);
    }

    /// SPEC 5.4, 5.12.
    #[test]
    fn task_that_takes_too_long_fails_without_a_grace_period() {
        let minute = Duration::from_secs(60);
        let info = |limit| TaskInfo {
            max_completion_time: Some(limit),
            ..task("t")
        };
        let late = || {
            let mut container = launched(info(minute), &[Capability::TaskKillingState]);
            let effects = container.started(42);
            assert_eq!(effects.last(), Some(&Effect::AwaitCompletion(minute)));
            container
        };
        let mut container = late();
        let effects = container.completion_overdue(minute);
        assert_eq!(effects, [Effect::Terminate(Duration::ZERO)]);
        let effects = container.ended(command(TERMINATED, true));
        let message = "Command terminated with signal Terminated";
        let failed = format!("TASK_FAILED MaxCompletionTimeReached: {message}");
        assert_eq!(reports(&effects), [failed]);

        let mut container = late();
        container.completion_overdue(minute);
        let effects = container.ended(command(EXITED, false));
        let finished = "TASK_FINISHED Command exited with status 0";
        assert_eq!(reports(&effects), [finished], "it ended before the kill");

        let mut container = late();
        container.kill(&id("t"), None);
        assert_eq!(
            container.completion_overdue(minute),
            [],
            "it keeps its grace"
        );

        let mut unlimited = launched(info(Duration::ZERO), &[]);
        assert_eq!(reports(&unlimited.started(42)).len(), 2);
        let mut recovered = launched(info(minute), &[]).with_age(minute);
        let effects = recovered.started(42);
        assert_eq!(effects.last(), Some(&Effect::Terminate(Duration::ZERO)));
    }

    #[test]
    fn command_cannot_be_impersonated() {
        let actor = super::super::tests::actor();
        assert!(running(&[]).subscribe("secret", actor).is_err());
    }

    #[test]
    fn shutdown_ends_within_the_shorter_grace_period() {
        let mut container = running(&[]);
        let effects = container.shut_down(Duration::from_secs(5));
        let ends = |grace| [Effect::Terminate(grace), Effect::DestroyAfter(grace)];
        assert_eq!(effects, ends(GRACE_DEFAULT));
        assert_eq!(container.shut_down(Duration::from_secs(5)), []);
        let second = Duration::from_secs(1);
        assert_eq!(running(&[]).shut_down(second), ends(second));
    }

    #[test]
    fn preempted_command_has_the_agents_reason() {
        let mut container = running(&[Capability::PartitionAware]);
        assert_eq!(container.preempt(), [Effect::Destroy]);
        let effects = container.ended(command(Termination::Signaled(9), true));
        let message = "Container preempted by QoS correction";
        let expected = format!("TASK_GONE ContainerPreempted: {message}");
        assert_eq!(reports(&effects), [expected]);
    }
}
