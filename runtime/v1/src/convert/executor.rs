//! Executors' calls and events.

use protocol::message::executor::{
    EndTask, ExecutorSubscribed, ExecutorUpdated, LaunchTask, UpdateStored,
};
use protocol::{ContainerId, ExecutorId, FrameworkId, TaskInfo, TaskStatus};
use resources::Invalid;

use super::ids::uuid_bytes;
use super::{At, absent, all, each, need, part};
use crate::schema::executor::{
    Call, CallType, CallUpdate, Event, EventAcknowledged, EventError, EventKill, EventLaunch,
    EventMessage, EventSubscribed, EventType,
};

/// A decoded call of an executor.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodedExecutorCall {
    /// Subscribes the executor.
    Subscribe {
        /// Tasks without an acknowledged status.
        tasks: Vec<TaskInfo>,
        /// Unacknowledged statuses, each with its uuid.
        updates: Vec<TaskStatus>,
    },
    /// A task has a new state.
    Update(ExecutorUpdated),
    /// Bytes for its scheduler.
    Message(Vec<u8>),
    /// The executor is alive.
    Heartbeat,
}

/// The refusal of a call, with the message of Mesos, which clients compare.
pub fn invalid(problem: impl std::fmt::Display) -> Invalid {
    Invalid::message(format!("Failed to validate Executor::Call: {problem}"))
}

/// Converts a call, and the ids of its executor.
pub fn to_protocol(call: &Call) -> Result<(FrameworkId, ExecutorId, DecodedExecutorCall), Invalid> {
    decode(call).map_err(invalid)
}

fn decode(call: &Call) -> Result<(FrameworkId, ExecutorId, DecodedExecutorCall), Invalid> {
    let framework_id = (&call.framework_id).try_into().at("framework_id")?;
    let executor_id = (&call.executor_id).try_into().at("executor_id")?;
    let decoded = match call.r#type.unwrap_or_default() {
        CallType::Unknown => return Err(absent("type")),
        CallType::Subscribe => {
            let subscribe = part("subscribe", call.subscribe.as_ref())?;
            let (tasks, updates) = (
                &subscribe.unacknowledged_tasks,
                &subscribe.unacknowledged_updates,
            );
            DecodedExecutorCall::Subscribe {
                tasks: all("unacknowledged_tasks", tasks).at("subscribe")?,
                updates: each("unacknowledged_updates", updates, update).at("subscribe")?,
            }
        }
        CallType::Update => {
            let call = part("update", call.update.as_deref())?;
            part("uuid", call.status.uuid.as_ref())?;
            let status = update(call).at("update")?;
            DecodedExecutorCall::Update(ExecutorUpdated { status })
        }
        CallType::Message => {
            let message = part("message", call.message.as_ref())?;
            DecodedExecutorCall::Message(message.data.to_vec())
        }
        CallType::Heartbeat => DecodedExecutorCall::Heartbeat,
    };
    Ok((framework_id, executor_id, decoded))
}

/// A status, which needs a uuid for its acknowledgement.
fn update(call: &CallUpdate) -> Result<TaskStatus, Invalid> {
    let status: TaskStatus = (&call.status).try_into().at("status")?;
    let expected = "16 bytes that name this status";
    need("status.uuid", status.uuid.as_ref(), expected)?;
    Ok(status)
}

impl Event {
    /// The executor is subscribed.
    pub fn subscribed(subscribed: &ExecutorSubscribed, container: &ContainerId) -> Self {
        let mut executor_info = crate::schema::ExecutorInfo::from(&subscribed.executor);
        executor_info.framework_id = subscribed.framework.id.as_ref().map(Into::into);
        Self {
            r#type: Some(EventType::Subscribed),
            subscribed: Some(Box::new(EventSubscribed {
                executor_info,
                framework_info: (&subscribed.framework).into(),
                agent_info: (&subscribed.agent).into(),
                container_id: Some(container.into()),
            })),
            ..Self::default()
        }
    }

    /// Launches this task of its framework.
    pub fn launch(launch: &LaunchTask, framework: Option<&FrameworkId>) -> Self {
        let mut task = crate::schema::TaskInfo::from(&launch.task);
        if let Some(executor) = &mut task.executor {
            executor.framework_id = framework.map(Into::into);
        }
        Self {
            r#type: Some(EventType::Launch),
            launch: Some(Box::new(EventLaunch { task })),
            ..Self::default()
        }
    }

    /// Bytes from its scheduler.
    pub fn message(data: Vec<u8>) -> Self {
        Self {
            r#type: Some(EventType::Message),
            message: Some(EventMessage { data: data.into() }),
            ..Self::default()
        }
    }

    /// The executor must stop.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            r#type: Some(EventType::Error),
            error: Some(EventError {
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// The executor must end its tasks and then itself.
    pub fn shutdown() -> Self {
        Self {
            r#type: Some(EventType::Shutdown),
            ..Self::default()
        }
    }

    /// Keeps the stream alive.
    pub fn heartbeat() -> Self {
        Self {
            r#type: Some(EventType::Heartbeat),
            ..Self::default()
        }
    }
}

impl From<&EndTask> for Event {
    fn from(end: &EndTask) -> Self {
        Self {
            r#type: Some(EventType::Kill),
            kill: Some(EventKill {
                task_id: (&end.task_id).into(),
                kill_policy: end.kill_policy.as_ref().map(Into::into),
            }),
            ..Self::default()
        }
    }
}

impl From<&UpdateStored> for Event {
    fn from(stored: &UpdateStored) -> Self {
        Self {
            r#type: Some(EventType::Acknowledged),
            acknowledged: Some(Box::new(EventAcknowledged {
                task_id: (&stored.task_id).into(),
                uuid: uuid_bytes(stored.uuid),
            })),
            ..Self::default()
        }
    }
}
