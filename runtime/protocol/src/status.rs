//! Task states, and the updates that report them (SPEC 2.8, `TaskState`, `TaskStatus`).

use std::net::IpAddr;

use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ContainerId, ExecutorId, FrameworkId, TaskId, Uuid};
use crate::task::Labels;

macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $prefix:literal { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// All of them, in wire order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used on the v1 wire, in metrics and in messages to people.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => concat!($prefix, $name),)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;

named! {
    /// How a task is.
    TaskState, "TASK_" {
        /// The master has sent it to its agent.
        Staging = "STAGING",
        /// Its executor has it.
        Starting = "STARTING",
        /// It runs.
        Running = "RUNNING",
        /// It is being killed.
        Killing = "KILLING",
        /// It ended well.
        Finished = "FINISHED",
        /// It ended badly.
        Failed = "FAILED",
        /// It was killed on request.
        Killed = "KILLED",
        /// Its description was invalid.
        Error = "ERROR",
        /// It did not run or no longer runs, as told to frameworks that are not partition-aware.
        Lost = "LOST",
        /// It never started.
        Dropped = "DROPPED",
        /// Its agent cannot be reached; it may come back.
        Unreachable = "UNREACHABLE",
        /// It no longer runs.
        Gone = "GONE",
        /// Its agent was declared gone by an operator.
        GoneByOperator = "GONE_BY_OPERATOR",
        /// The master has never heard of it, or has forgotten it.
        Unknown = "UNKNOWN",
    }
}

impl TaskState {
    /// Whether it is the last state a task can have.
    pub fn is_terminal(self) -> bool {
        use TaskState::*;
        matches!(
            self,
            Finished | Failed | Killed | Error | Lost | Dropped | Gone | GoneByOperator
        )
    }

    /// The state as told to a framework: one that is not partition-aware hears `TASK_LOST` for the five finer states.
    pub fn as_told(self, partition_aware: bool) -> Self {
        use TaskState::*;
        match self {
            Dropped | Unreachable | Gone | GoneByOperator | Unknown if !partition_aware => Lost,
            state => state,
        }
    }
}

named! {
    /// Who says so.
    Source, "SOURCE_" {
        /// The master.
        Master = "MASTER",
        /// The agent.
        Agent = "AGENT",
        /// The executor.
        Executor = "EXECUTOR",
    }
}

named! {
    /// Why a task is in its state.
    Reason, "REASON_" {
        /// The command executor could not run its command.
        CommandExecutorFailed = "COMMAND_EXECUTOR_FAILED",
        /// The executor ended while the task had not.
        ExecutorTerminated = "EXECUTOR_TERMINATED",
        /// The executor never subscribed.
        ExecutorUnregistered = "EXECUTOR_UNREGISTERED",
        /// Its framework was removed.
        FrameworkRemoved = "FRAMEWORK_REMOVED",
        /// The sandbox could not be prepared for it.
        GcError = "GC_ERROR",
        /// The framework is not known.
        InvalidFrameworkId = "INVALID_FRAMEWORKID",
        /// An offer of its accept was not valid.
        InvalidOffers = "INVALID_OFFERS",
        /// The scheduler's driver had no master.
        MasterDisconnected = "MASTER_DISCONNECTED",
        /// It used more memory than its limit.
        ContainerLimitationMemory = "CONTAINER_LIMITATION_MEMORY",
        /// An answer to reconciliation.
        Reconciliation = "RECONCILIATION",
        /// Its agent was not connected.
        AgentDisconnected = "SLAVE_DISCONNECTED",
        /// Its agent was removed.
        AgentRemoved = "SLAVE_REMOVED",
        /// Its agent was restarted.
        AgentRestarted = "SLAVE_RESTARTED",
        /// Its agent is not known.
        AgentUnknown = "SLAVE_UNKNOWN",
        /// Its description was invalid.
        TaskInvalid = "TASK_INVALID",
        /// It may not be run.
        TaskUnauthorized = "TASK_UNAUTHORIZED",
        /// It is not known.
        TaskUnknown = "TASK_UNKNOWN",
        /// The QoS controller made it yield.
        ContainerPreempted = "CONTAINER_PREEMPTED",
        /// Its resources are not there.
        ResourcesUnknown = "RESOURCES_UNKNOWN",
        /// It went beyond a limit.
        ContainerLimitation = "CONTAINER_LIMITATION",
        /// It used more disk than its limit.
        ContainerLimitationDisk = "CONTAINER_LIMITATION_DISK",
        /// Its container could not be launched.
        ContainerLaunchFailed = "CONTAINER_LAUNCH_FAILED",
        /// Its container could not be given its resources.
        ContainerUpdateFailed = "CONTAINER_UPDATE_FAILED",
        /// The executor did not subscribe in time.
        ExecutorRegistrationTimeout = "EXECUTOR_REGISTRATION_TIMEOUT",
        /// The executor did not come back in time after its agent's restart.
        ExecutorReregistrationTimeout = "EXECUTOR_REREGISTRATION_TIMEOUT",
        /// Its group's description was invalid.
        TaskGroupInvalid = "TASK_GROUP_INVALID",
        /// Its group may not be run.
        TaskGroupUnauthorized = "TASK_GROUP_UNAUTHORIZED",
        /// The container's switchboard ended.
        IoSwitchboardExited = "IO_SWITCHBOARD_EXITED",
        /// A check has a new result.
        TaskCheckStatusUpdated = "TASK_CHECK_STATUS_UPDATED",
        /// A health check has a new result.
        TaskHealthCheckStatusUpdated = "TASK_HEALTH_CHECK_STATUS_UPDATED",
        /// It was killed before it had started.
        TaskKilledDuringLaunch = "TASK_KILLED_DURING_LAUNCH",
        /// Its agent was removed by an operator.
        AgentRemovedByOperator = "SLAVE_REMOVED_BY_OPERATOR",
        /// Its agent came back.
        AgentReregistered = "SLAVE_REREGISTERED",
        /// It ran longer than allowed.
        MaxCompletionTimeReached = "MAX_COMPLETION_TIME_REACHED",
        /// Its agent is being drained.
        AgentDraining = "SLAVE_DRAINING",
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Termination {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl Termination {
    /// The code a shell would report: the exit code, or 128 and the signal's number.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Termination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Signaled(signal) => write!(f, "terminated by signal {signal}"),
        }
    }
}

/// How a task is, who says so, why and since when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Whose state.
    pub task_id: TaskId,
    /// The state.
    pub state: TaskState,
    /// Who says so.
    pub source: Source,
    /// Why, when there is more to say than the state.
    pub reason: Option<Reason>,
    /// A sentence for people; may be empty.
    pub message: String,
    /// Bytes from the executor.
    pub data: Vec<u8>,
    /// Where it is or was.
    pub agent_id: Option<AgentId>,
    /// Who runs or ran it.
    pub executor_id: Option<ExecutorId>,
    /// The container it runs in.
    pub container_id: Option<ContainerId>,
    /// The address of that container's network, which is its agent's. No link tells it: a master knows it of the agent that it hears, and who hears that master on
    /// another node does not.
    #[serde(skip)]
    pub address: Option<IpAddr>,
    /// When this came to be, by the source's wall clock.
    pub timestamp: Timestamp,
    /// Set when the framework must acknowledge it: its agent sends it again until then.
    pub uuid: Option<Uuid>,
    /// What a health check says, where there is one.
    pub healthy: Option<bool>,
    /// How the task's process ended, in a terminal update of a command task.
    pub termination: Option<Termination>,
    /// Since when the agent cannot be reached.
    pub unreachable_since: Option<Timestamp>,
    /// Notes for people and tools.
    pub labels: Labels,
}

impl TaskStatus {
    /// A status with nothing but its state, source and time.
    pub fn new(task_id: TaskId, state: TaskState, source: Source, timestamp: Timestamp) -> Self {
        Self {
            task_id,
            state,
            source,
            reason: None,
            message: String::new(),
            data: Vec::new(),
            agent_id: None,
            executor_id: None,
            container_id: None,
            address: None,
            timestamp,
            uuid: None,
            healthy: None,
            termination: None,
            unreachable_since: None,
            labels: Labels::default(),
        }
    }

    /// The same with a reason and a sentence for people.
    pub fn because(mut self, reason: Reason, message: impl Into<String>) -> Self {
        self.reason = Some(reason);
        self.message = message.into();
        self
    }

    /// The same, placed on an agent.
    pub fn on(mut self, agent: &AgentId) -> Self {
        self.agent_id = Some(agent.clone());
        self
    }
}

/// A status on its way from an agent to a framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// Whose task.
    pub framework_id: FrameworkId,
    /// The status; its `uuid` is set.
    pub status: TaskStatus,
    /// The newest state the agent knows, so that resources are freed even while older updates wait for an acknowledgement.
    pub latest_state: TaskState,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_states_are_terminal_and_unreachable_is_not() {
        let terminal: Vec<_> = TaskState::ALL
            .iter()
            .filter(|state| state.is_terminal())
            .collect();
        assert_eq!(terminal.len(), 8);
        assert!(!TaskState::Unreachable.is_terminal() && !TaskState::Unknown.is_terminal());
    }

    #[test]
    fn only_partition_aware_frameworks_hear_the_finer_states() {
        assert_eq!(TaskState::Gone.as_told(false), TaskState::Lost);
        assert_eq!(TaskState::Gone.as_told(true), TaskState::Gone);
        assert_eq!(TaskState::Failed.as_told(false), TaskState::Failed);
    }

    #[test]
    fn names_are_the_wires() {
        assert_eq!(TaskState::GoneByOperator.name(), "TASK_GONE_BY_OPERATOR");
        assert_eq!(
            Reason::ContainerPreempted.name(),
            "REASON_CONTAINER_PREEMPTED"
        );
        assert_eq!(Source::Executor.to_string(), "SOURCE_EXECUTOR");
    }
}
