//! The executor API (`/api/v1/executor` of the agent): an executor sends a [`Call`] and receives
//! [`Event`]s.

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentInfo, ContainerID, ExecutorID, ExecutorInfo, FrameworkID, FrameworkInfo, KillPolicy,
    TaskGroupInfo, TaskID, TaskInfo, TaskStatus,
};

messages! {
    /// An event for an executor; `type` selects its field.
    Event {
        1 r#type: Option<EventType>,
        2 subscribed: Option<Box<EventSubscribed>>,
        3 acknowledged: Option<Box<EventAcknowledged>>,
        4 launch: Option<Box<EventLaunch>>,
        5 kill: Option<EventKill>,
        6 message: Option<EventMessage>,
        7 error: Option<EventError>,
        8 launch_group: Option<EventLaunchGroup>,
    }

    /// The executor is subscribed.
    EventSubscribed {
        1 executor_info: ExecutorInfo,
        2 framework_info: FrameworkInfo,
        3 agent_info: AgentInfo,
        4 container_id: Option<ContainerID>,
    }

    /// Run a task.
    EventLaunch {
        1 task: TaskInfo,
    }

    /// Run tasks together.
    EventLaunchGroup {
        1 task_group: TaskGroupInfo,
    }

    /// Kill a task.
    EventKill {
        1 task_id: TaskID,
        2 kill_policy: Option<KillPolicy>,
    }

    /// A status update was acknowledged.
    EventAcknowledged {
        1 task_id: TaskID,
        2 uuid: Bytes,
    }

    /// Bytes from the scheduler.
    EventMessage {
        1 data: Bytes,
    }

    /// The executor must stop.
    EventError {
        1 message: String,
    }

    /// A call of an executor; `type` selects its field.
    Call {
        1 executor_id: ExecutorID,
        2 framework_id: FrameworkID,
        3 r#type: Option<CallType>,
        4 subscribe: Option<CallSubscribe>,
        5 update: Option<Box<CallUpdate>>,
        6 message: Option<CallMessage>,
    }

    /// Subscribes the executor.
    CallSubscribe {
        /// Tasks without an acknowledged status.
        1 unacknowledged_tasks: Vec<TaskInfo>,
        /// Unacknowledged status updates.
        2 unacknowledged_updates: Vec<CallUpdate>,
    }

    /// Reports a task's new state.
    CallUpdate {
        1 status: TaskStatus,
    }

    /// Bytes for the scheduler, delivered at most once.
    CallMessage {
        2 data: Bytes,
    }
}

enums! {
    /// Type of an event.
    EventType {
        Unknown = 0 "UNKNOWN",
        Subscribed = 1 "SUBSCRIBED",
        Launch = 2 "LAUNCH",
        Kill = 3 "KILL",
        Acknowledged = 4 "ACKNOWLEDGED",
        Message = 5 "MESSAGE",
        Error = 6 "ERROR",
        Shutdown = 7 "SHUTDOWN",
        LaunchGroup = 8 "LAUNCH_GROUP",
        Heartbeat = 9 "HEARTBEAT",
    }

    /// Type of a call.
    CallType {
        Unknown = 0 "UNKNOWN",
        Subscribe = 1 "SUBSCRIBE",
        Update = 2 "UPDATE",
        Message = 3 "MESSAGE",
        Heartbeat = 4 "HEARTBEAT",
    }
}
