//! What can be told of a task of an ACCEPT that has no meaning here (SPEC 2.2).

use protocol::{AgentId, Reason, TaskId};
use resources::Invalid;

use crate::convert::At;
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
    pub invalid: Invalid,
}

impl Meaningless {
    /// An error is only an id that is none.
    pub(super) fn of(info: &TaskInfo, reason: Reason, invalid: Invalid) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: id_of(info)?,
            name: info.name.clone(),
            agent_id: (&info.agent_id).try_into().ok(),
            reason,
            invalid,
        })
    }
}

fn id_of(task: &TaskInfo) -> Result<TaskId, Invalid> {
    (&task.task_id).try_into().at("task_id")
}
