//! Invalid tasks of an ACCEPT.

use protocol::{AgentId, Reason, TaskId};

use crate::schema::TaskInfo;

/// A task that cannot be launched, with the fields for its status.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidTask {
    /// Its id.
    pub task_id: TaskId,
    /// Its name.
    pub name: String,
    /// Its agent, if the id is valid.
    pub agent_id: Option<AgentId>,
    /// The reason of its status.
    pub reason: Reason,
    /// The message of its status.
    pub message: String,
}

impl InvalidTask {
    /// None for a task with an invalid id.
    pub(super) fn of(info: &TaskInfo, reason: Reason, message: &str) -> Option<Self> {
        Some(Self {
            task_id: (&info.task_id).try_into().ok()?,
            name: info.name.clone(),
            agent_id: (&info.agent_id).try_into().ok(),
            reason,
            message: message.to_owned(),
        })
    }
}
