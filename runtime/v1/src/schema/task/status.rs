//! Task statuses.

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentID, CheckInfoType, ContainerStatus, ExecutorID, Labels, Resource, TaskID, TimeInfo,
};

messages! {
    /// Status of a task.
    TaskStatus {
        1 task_id: TaskID,
        2 state: TaskState,
        /// Set by the executor.
        3 data: Option<Bytes>,
        4 message: Option<String>,
        5 agent_id: Option<AgentID>,
        /// In seconds since 1970-01-01 UTC.
        6 timestamp: Option<f64>,
        7 executor_id: Option<ExecutorID>,
        8 healthy: Option<bool>,
        9 source: Option<TaskStatusSource>,
        10 reason: Option<TaskStatusReason>,
        /// Present if the framework must acknowledge the status.
        11 uuid: Option<Bytes>,
        12 labels: Option<Labels>,
        13 container_status: Option<Box<ContainerStatus>>,
        /// Since when its agent is unreachable.
        14 unreachable_time: Option<TimeInfo>,
        15 check_status: Option<CheckStatusInfo>,
        /// The exceeded limit.
        16 limitation: Option<TaskResourceLimitation>,
        /// The newest results of the task's named checks. Specific to Meros: Mesos skips them.
        1000 check_statuses: Vec<NamedCheckStatus>,
    }

    /// The resources whose limit a container exceeded.
    TaskResourceLimitation {
        1 resources: Vec<Resource>,
    }

    /// The newest result of a check.
    CheckStatusInfo {
        1 r#type: Option<CheckInfoType>,
        2 command: Option<CheckStatusInfoCommand>,
        3 http: Option<CheckStatusInfoHttp>,
        4 tcp: Option<CheckStatusInfoTcp>,
    }

    /// The newest result of a named check. Specific to Meros.
    NamedCheckStatus {
        1 name: String,
        2 status: CheckStatusInfo,
    }

    /// The value of the label `meros.check_statuses`. Specific to Meros.
    NamedCheckStatuses {
        1 check_statuses: Vec<NamedCheckStatus>,
    }

    /// Of a command; absent: no result yet.
    CheckStatusInfoCommand {
        1 exit_code: Option<i32>,
    }

    /// Of a GET; absent: no result yet.
    CheckStatusInfoHttp {
        1 status_code: Option<u32>,
    }

    /// Of a connection; absent: no result yet.
    CheckStatusInfoTcp {
        1 succeeded: Option<bool>,
    }
}

enums! {
    /// The sender of a status.
    TaskStatusSource {
        Master = 0 "SOURCE_MASTER",
        Agent = 1 "SOURCE_AGENT",
        Executor = 2 "SOURCE_EXECUTOR",
    }

    /// The reason of a state.
    TaskStatusReason {
        CommandExecutorFailed = 0 "REASON_COMMAND_EXECUTOR_FAILED",
        ExecutorTerminated = 1 "REASON_EXECUTOR_TERMINATED",
        ExecutorUnregistered = 2 "REASON_EXECUTOR_UNREGISTERED",
        FrameworkRemoved = 3 "REASON_FRAMEWORK_REMOVED",
        GcError = 4 "REASON_GC_ERROR",
        InvalidFrameworkId = 5 "REASON_INVALID_FRAMEWORKID",
        InvalidOffers = 6 "REASON_INVALID_OFFERS",
        MasterDisconnected = 7 "REASON_MASTER_DISCONNECTED",
        ContainerLimitationMemory = 8 "REASON_CONTAINER_LIMITATION_MEMORY",
        Reconciliation = 9 "REASON_RECONCILIATION",
        AgentDisconnected = 10 "REASON_AGENT_DISCONNECTED",
        AgentRemoved = 11 "REASON_AGENT_REMOVED",
        AgentRestarted = 12 "REASON_AGENT_RESTARTED",
        AgentUnknown = 13 "REASON_AGENT_UNKNOWN",
        TaskInvalid = 14 "REASON_TASK_INVALID",
        TaskUnauthorized = 15 "REASON_TASK_UNAUTHORIZED",
        TaskUnknown = 16 "REASON_TASK_UNKNOWN",
        ContainerPreempted = 17 "REASON_CONTAINER_PREEMPTED",
        ResourcesUnknown = 18 "REASON_RESOURCES_UNKNOWN",
        ContainerLimitation = 19 "REASON_CONTAINER_LIMITATION",
        ContainerLimitationDisk = 20 "REASON_CONTAINER_LIMITATION_DISK",
        ContainerLaunchFailed = 21 "REASON_CONTAINER_LAUNCH_FAILED",
        ContainerUpdateFailed = 22 "REASON_CONTAINER_UPDATE_FAILED",
        ExecutorRegistrationTimeout = 23 "REASON_EXECUTOR_REGISTRATION_TIMEOUT",
        ExecutorReregistrationTimeout = 24 "REASON_EXECUTOR_REREGISTRATION_TIMEOUT",
        TaskGroupInvalid = 25 "REASON_TASK_GROUP_INVALID",
        TaskGroupUnauthorized = 26 "REASON_TASK_GROUP_UNAUTHORIZED",
        IoSwitchboardExited = 27 "REASON_IO_SWITCHBOARD_EXITED",
        TaskCheckStatusUpdated = 28 "REASON_TASK_CHECK_STATUS_UPDATED",
        TaskHealthCheckStatusUpdated = 29 "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED",
        TaskKilledDuringLaunch = 30 "REASON_TASK_KILLED_DURING_LAUNCH",
        AgentRemovedByOperator = 31 "REASON_AGENT_REMOVED_BY_OPERATOR",
        AgentReregistered = 32 "REASON_AGENT_REREGISTERED",
        MaxCompletionTimeReached = 33 "REASON_MAX_COMPLETION_TIME_REACHED",
        AgentDraining = 34 "REASON_AGENT_DRAINING",
    }

    /// State of a task.
    TaskState {
        Starting = 0 "TASK_STARTING",
        Running = 1 "TASK_RUNNING",
        Finished = 2 "TASK_FINISHED",
        Failed = 3 "TASK_FAILED",
        Killed = 4 "TASK_KILLED",
        Lost = 5 "TASK_LOST",
        Staging = 6 "TASK_STAGING",
        Error = 7 "TASK_ERROR",
        Killing = 8 "TASK_KILLING",
        Dropped = 9 "TASK_DROPPED",
        Unreachable = 10 "TASK_UNREACHABLE",
        Gone = 11 "TASK_GONE",
        GoneByOperator = 12 "TASK_GONE_BY_OPERATOR",
        Unknown = 13 "TASK_UNKNOWN",
    }
}
