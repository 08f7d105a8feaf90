//! A container that runs a command under a container init: the agent reports what an executor
//! would.
//!
//! Pure. States, messages and their order are those of Mesos' command executor (SPEC 5.4), whose
//! updates have no reason.

use std::time::Duration;

use protocol::{
    Capability, ContainerId, KillPolicy, Source, TaskId, TaskInfo, TaskState, Termination, Uuid,
};

use super::{Container, Effect, Phase, TaskReport};
use crate::launcher::ContainerEnd;

/// Default time between SIGTERM and SIGKILL.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);

/// How long a task may take to stop by its own policy.
pub fn kill_grace(info: &TaskInfo) -> Duration {
    info.kill_policy
        .map_or(GRACE_DEFAULT, |policy| policy.grace_period)
}

/// The id of a command's update. The next agent process reports a state that was not stored under
/// the same id, so that its framework is told of it once. A command has each state once.
pub fn update_id(container: &ContainerId, state: TaskState) -> Option<Uuid> {
    let mut id = Uuid::parse(container.as_str())?;
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
                effects.extend(self.report_command(&id, state, String::new(), None));
            }
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
        let (state, message, termination) = match end {
            ContainerEnd::Leader(termination) => return self.exited(Some(termination)),
            ContainerEnd::Command {
                termination,
                kill_wanted,
            } => {
                let (state, message) = outcome(termination, kill_wanted);
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
                effects.extend(self.report_command(&id, state, message.clone(), termination));
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
        let mut effects = Vec::new();
        if self.framework.can(Capability::TaskKillingState) {
            let is_first = |state: TaskState| !state.is_terminal() && state != TaskState::Killing;
            for id in self.tasks_in(is_first) {
                effects.extend(self.report_command(&id, TaskState::Killing, String::new(), None));
            }
        }
        effects.push(Effect::Terminate(grace));
        effects
    }

    fn tasks_in(&self, is_wanted: impl Fn(TaskState) -> bool) -> Vec<TaskId> {
        let tasks = self.tasks.iter().filter(|(_, task)| is_wanted(task.state));
        tasks.map(|(id, _)| id.clone()).collect()
    }

    fn report_command(
        &mut self,
        task_id: &TaskId,
        state: TaskState,
        message: String,
        termination: Option<Termination>,
    ) -> Option<Effect> {
        self.report(TaskReport {
            task_id: task_id.clone(),
            state,
            source: Source::Executor,
            reason: None,
            message,
            termination,
        })
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
    use protocol::{CommandInfo, ExecutorId, ExecutorInfo, FrameworkInfo, Termination};

    const EXITED: Termination = Termination::Exited(0);
    const TERMINATED: Termination = Termination::Signaled(15);

    fn container(info: TaskInfo, capabilities: &[Capability]) -> Container {
        let executor = ExecutorInfo {
            executor_id: ExecutorId::from(&info.task_id),
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
