//! Entries of a call that cannot be handled because their id is invalid.
//!
//! The rest of the call is handled. A task or an operation is answered with an error status that
//! has the id as it was sent; for other ids the v1 API has no answer, so they are only counted.
//! Kept small, since a call may have millions of such entries.

use resources::Invalid;
use runtime::Timestamp;

use crate::convert::ids::id_problem;
use crate::limits::within;
use crate::schema::scheduler::{Event, EventType, EventUpdate, EventUpdateOperationStatus};
use crate::schema::{
    AgentID, OperationID, OperationState, OperationStatus, TaskID, TaskState, TaskStatus,
    TaskStatusReason, TaskStatusSource,
};

/// The rejected entries of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RejectedEntries {
    /// Entries that are answered.
    pub answered: Vec<RejectedEntry>,
    /// Number of entries without an answer.
    pub dropped: usize,
    /// The problem of the first of them.
    pub first_dropped: Option<Invalid>,
}

/// A task or an operation with an invalid id.
#[derive(Clone, Debug, PartialEq)]
pub enum RejectedEntry {
    /// A task, on this agent if the entry names one.
    Task(TaskID, Option<AgentID>),
    /// An operation, on this agent if the entry names one.
    Operation(OperationID, Option<AgentID>),
    /// An operation of a resource provider, which agents do not have.
    Provided(OperationID, Option<AgentID>),
}

impl RejectedEntry {
    /// The status that answers it.
    pub fn event(self, now: Timestamp) -> Event {
        match self {
            Self::Task(task_id, agent_id) => task_event(task_id, agent_id, now),
            Self::Operation(id, agent_id) => {
                let message = id_problem(&id.value).unwrap_or_default();
                operation_event(id, agent_id, message)
            }
            Self::Provided(id, agent_id) => {
                operation_event(id, agent_id, "Agents have no resource providers".to_owned())
            }
        }
    }
}

fn task_event(task_id: TaskID, agent_id: Option<AgentID>, now: Timestamp) -> Event {
    let status = TaskStatus {
        message: id_problem(&task_id.value),
        task_id,
        state: TaskState::Error,
        agent_id,
        timestamp: Some((now.as_nanos() / 1000) as f64 / 1e6),
        source: Some(TaskStatusSource::Master),
        reason: Some(TaskStatusReason::TaskInvalid),
        ..TaskStatus::default()
    };
    Event {
        r#type: Some(EventType::Update),
        update: Some(Box::new(EventUpdate { status })),
        ..Event::default()
    }
}

fn operation_event(id: OperationID, agent_id: Option<AgentID>, message: String) -> Event {
    let status = OperationStatus {
        operation_id: Some(id),
        state: OperationState::Error,
        message: Some(message),
        agent_id,
        ..OperationStatus::default()
    };
    Event {
        r#type: Some(EventType::UpdateOperationStatus),
        update_operation_status: Some(Box::new(EventUpdateOperationStatus { status })),
        ..Event::default()
    }
}

impl RejectedEntries {
    /// The valid values of this list; counts the others.
    pub(super) fn valid<'a, A, B>(&mut self, field: &str, list: &'a [A]) -> Vec<B>
    where
        B: TryFrom<&'a A, Error = Invalid>,
    {
        let mut valid = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            match B::try_from(value) {
                Ok(value) => valid.push(value),
                Err(bad) => self.drop_entry(|| within(bad, &format!("{field}[{index}]"))),
            }
        }
        valid
    }

    /// The value if it is valid; otherwise counts it.
    pub(super) fn take<A>(&mut self, value: Result<A, Invalid>) -> Option<A> {
        value.map_err(|bad| self.drop_entry(|| bad)).ok()
    }

    /// Counts an entry without an answer.
    pub(super) fn drop_entry(&mut self, problem: impl FnOnce() -> Invalid) {
        self.dropped += 1;
        self.first_dropped.get_or_insert_with(problem);
    }
}
