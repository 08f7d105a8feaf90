//! Task states and status updates.

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
            /// All values, in wire order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name on the v1 wire, in metrics and in messages.
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
    /// State of a task.
    TaskState, "TASK_" {
        /// Sent to the agent.
        Staging = "STAGING",
        /// Received by the executor.
        Starting = "STARTING",
        /// Running.
        Running = "RUNNING",
        /// Being killed.
        Killing = "KILLING",
        /// Ended successfully.
        Finished = "FINISHED",
        /// Ended with an error.
        Failed = "FAILED",
        /// Killed on request.
        Killed = "KILLED",
        /// Invalid description.
        Error = "ERROR",
        /// Did not run, or no longer runs; used for frameworks that are not partition-aware.
        Lost = "LOST",
        /// Never started.
        Dropped = "DROPPED",
        /// The agent is unreachable and may return.
        Unreachable = "UNREACHABLE",
        /// No longer runs.
        Gone = "GONE",
        /// The agent was marked gone by an operator.
        GoneByOperator = "GONE_BY_OPERATOR",
        /// Unknown to the master.
        Unknown = "UNKNOWN",
    }
}

impl TaskState {
    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        use TaskState::*;
        matches!(
            self,
            Finished | Failed | Killed | Error | Lost | Dropped | Gone | GoneByOperator
        )
    }

    /// The state as reported to a framework. A framework that is not partition-aware receives
    /// `TASK_LOST` for five of the states.
    pub fn for_framework(self, partition_aware: bool) -> Self {
        use TaskState::*;
        match self {
            Dropped | Unreachable | Gone | GoneByOperator | Unknown if !partition_aware => Lost,
            state => state,
        }
    }
}

named! {
    /// Origin of a status.
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
    /// Reason of a task's state.
    Reason, "REASON_" {
        /// Mesos: its command executor could not run the command. Not used here.
        CommandExecutorFailed = "COMMAND_EXECUTOR_FAILED",
        /// The executor ended before the task.
        ExecutorTerminated = "EXECUTOR_TERMINATED",
        /// The executor never subscribed.
        ExecutorUnregistered = "EXECUTOR_UNREGISTERED",
        /// The framework was removed.
        FrameworkRemoved = "FRAMEWORK_REMOVED",
        /// The sandbox could not be prepared.
        GcError = "GC_ERROR",
        /// Unknown framework.
        InvalidFrameworkId = "INVALID_FRAMEWORKID",
        /// An offer of the accept call was invalid.
        InvalidOffers = "INVALID_OFFERS",
        /// The scheduler driver was not connected to a master.
        MasterDisconnected = "MASTER_DISCONNECTED",
        /// Memory limit exceeded.
        ContainerLimitationMemory = "CONTAINER_LIMITATION_MEMORY",
        /// Answer to a reconciliation.
        Reconciliation = "RECONCILIATION",
        /// The agent was not connected.
        AgentDisconnected = "SLAVE_DISCONNECTED",
        /// The agent was removed.
        AgentRemoved = "SLAVE_REMOVED",
        /// The agent was restarted.
        AgentRestarted = "SLAVE_RESTARTED",
        /// Unknown agent.
        AgentUnknown = "SLAVE_UNKNOWN",
        /// Invalid task description.
        TaskInvalid = "TASK_INVALID",
        /// Not permitted.
        TaskUnauthorized = "TASK_UNAUTHORIZED",
        /// Unknown task.
        TaskUnknown = "TASK_UNKNOWN",
        /// Killed by a QoS correction.
        ContainerPreempted = "CONTAINER_PREEMPTED",
        /// The task's resources do not exist on the agent.
        ResourcesUnknown = "RESOURCES_UNKNOWN",
        /// A limit was exceeded.
        ContainerLimitation = "CONTAINER_LIMITATION",
        /// Disk limit exceeded.
        ContainerLimitationDisk = "CONTAINER_LIMITATION_DISK",
        /// The container could not be launched.
        ContainerLaunchFailed = "CONTAINER_LAUNCH_FAILED",
        /// The container's resources could not be updated.
        ContainerUpdateFailed = "CONTAINER_UPDATE_FAILED",
        /// The executor did not subscribe in time.
        ExecutorRegistrationTimeout = "EXECUTOR_REGISTRATION_TIMEOUT",
        /// The executor did not reregister in time after a restart of its agent.
        ExecutorReregistrationTimeout = "EXECUTOR_REREGISTRATION_TIMEOUT",
        /// Invalid description of the task's group.
        TaskGroupInvalid = "TASK_GROUP_INVALID",
        /// The task's group is not permitted.
        TaskGroupUnauthorized = "TASK_GROUP_UNAUTHORIZED",
        /// The container's I/O switchboard ended.
        IoSwitchboardExited = "IO_SWITCHBOARD_EXITED",
        /// New result of a check.
        TaskCheckStatusUpdated = "TASK_CHECK_STATUS_UPDATED",
        /// New result of a health check.
        TaskHealthCheckStatusUpdated = "TASK_HEALTH_CHECK_STATUS_UPDATED",
        /// Killed before its start.
        TaskKilledDuringLaunch = "TASK_KILLED_DURING_LAUNCH",
        /// The agent was removed by an operator.
        AgentRemovedByOperator = "SLAVE_REMOVED_BY_OPERATOR",
        /// The agent reregistered.
        AgentReregistered = "SLAVE_REREGISTERED",
        /// Maximum completion time exceeded.
        MaxCompletionTimeReached = "MAX_COMPLETION_TIME_REACHED",
        /// The agent is being drained.
        AgentDraining = "SLAVE_DRAINING",
    }
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Termination {
    /// Exited with this code.
    Exited(i32),
    /// Killed by this signal.
    Signaled(i32),
}

impl Termination {
    /// The code that a shell reports: the exit code, or 128 plus the signal number.
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

/// Status of a task at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The task.
    pub task_id: TaskId,
    /// The state.
    pub state: TaskState,
    /// Origin of the status.
    pub source: Source,
    /// Reason, if any.
    pub reason: Option<Reason>,
    /// Text for display; may be empty.
    pub message: String,
    /// Data from the executor.
    pub data: Vec<u8>,
    /// The task's agent.
    pub agent_id: Option<AgentId>,
    /// The task's executor.
    pub executor_id: Option<ExecutorId>,
    /// The task's container.
    pub container_id: Option<ContainerId>,
    /// Address of the container's network, which is the agent's. Not sent on links: the agent's
    /// master knows it from the connection, other nodes do not have it.
    #[serde(skip)]
    pub address: Option<IpAddr>,
    /// Wall clock time of the status at its source.
    pub timestamp: Timestamp,
    /// Set if the framework must acknowledge the status. The agent repeats it until then.
    pub uuid: Option<Uuid>,
    /// Result of the health check, if any.
    pub healthy: Option<bool>,
    /// End of the process, in a terminal update of a command task.
    pub termination: Option<Termination>,
    /// Start of the agent's unreachability.
    pub unreachable_since: Option<Timestamp>,
    /// Labels; may contain [reserved ones](crate::text::reserved_labels).
    pub labels: Labels,
}

impl TaskStatus {
    /// A status with state, source and time only.
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

    /// Sets the reason and the message.
    pub fn with_reason(mut self, reason: Reason, message: impl Into<String>) -> Self {
        self.reason = Some(reason);
        self.message = message.into();
        self
    }

    /// Sets the agent.
    pub fn on(mut self, agent: &AgentId) -> Self {
        self.agent_id = Some(agent.clone());
        self
    }
}

/// A status on its way from an agent to a framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// Framework of the task.
    pub framework_id: FrameworkId,
    /// The status, with a `uuid`.
    pub status: TaskStatus,
    /// Newest state known to the agent. The master frees resources by it while older updates are
    /// still unacknowledged.
    pub latest_state: TaskState,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_states_are_terminal() {
        let terminal: Vec<_> = TaskState::ALL
            .iter()
            .filter(|state| state.is_terminal())
            .collect();
        assert_eq!(terminal.len(), 8);
        assert!(!TaskState::Unreachable.is_terminal() && !TaskState::Unknown.is_terminal());
    }

    #[test]
    fn unaware_frameworks_see_lost_tasks() {
        assert_eq!(TaskState::Gone.for_framework(false), TaskState::Lost);
        assert_eq!(TaskState::Gone.for_framework(true), TaskState::Gone);
        assert_eq!(TaskState::Failed.for_framework(false), TaskState::Failed);
    }

    #[test]
    fn names_are_those_of_mesos() {
        assert_eq!(TaskState::GoneByOperator.name(), "TASK_GONE_BY_OPERATOR");
        assert_eq!(
            Reason::ContainerPreempted.name(),
            "REASON_CONTAINER_PREEMPTED"
        );
        assert_eq!(Source::Executor.to_string(), "SOURCE_EXECUTOR");
    }
}
