//! What can be told of a task of an ACCEPT that has no meaning here (SPEC 2.2).

use protocol::{AgentId, Reason, TaskId};

use crate::schema::TaskInfo;

/// A task that has no meaning here, as far as it can be told of.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaningless {
    /// Its id.
    pub task_id: TaskId,
    /// What it is called.
    pub name: String,
    /// Where it was to run, if it says so in words that have a meaning.
    pub agent_id: Option<AgentId>,
    /// Why it does not run.
    pub reason: Reason,
    /// The same in words.
    pub message: String,
}

impl Meaningless {
    /// None of a task whose id is invalid.
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
