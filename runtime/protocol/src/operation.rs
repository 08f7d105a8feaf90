//! Operations: what a framework asks to be done with the resources of offers it accepts, and how that went (SPEC 2.8,
//! `Offer.Operation`, `OperationStatus`).
//!
//! The rules of what may be converted into what are [`Conversion`]'s.

use resources::{Conversion, Resources};
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::status::named;
use crate::task::{ExecutorInfo, TaskInfo};

/// One step of an accept; steps are applied in order, each seeing the result of the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// Start these tasks.
    Launch {
        /// One or more; an empty list declines.
        tasks: Vec<TaskInfo>,
    },
    /// Start these tasks together under one executor, or none of them.
    LaunchGroup {
        /// Their executor.
        executor: Box<ExecutorInfo>,
        /// One or more.
        tasks: Vec<TaskInfo>,
    },
    /// Reserve, unreserve, create, destroy, grow or shrink.
    Convert {
        /// The framework's name for it, if it wants to hear how it went. No two of its operations that are under way have the same.
        id: Option<OperationId>,
        /// What becomes what.
        conversion: Conversion,
    },
}

impl Operation {
    /// A conversion about which the framework wants to hear nothing.
    pub fn convert(conversion: Conversion) -> Self {
        Self::Convert {
            id: None,
            conversion,
        }
    }

    /// The tasks that it starts; none if it starts none.
    pub fn tasks(&self) -> &[TaskInfo] {
        match self {
            Self::Launch { tasks } | Self::LaunchGroup { tasks, .. } => tasks,
            Self::Convert { .. } => &[],
        }
    }

    /// The tasks that it starts; none if it starts none.
    pub fn into_tasks(self) -> Vec<TaskInfo> {
        match self {
            Self::Launch { tasks } | Self::LaunchGroup { tasks, .. } => tasks,
            Self::Convert { .. } => Vec::new(),
        }
    }
}

named! {
    /// How an operation is.
    OperationState, "OPERATION_" {
        /// The master has sent it to its agent.
        Pending = "PENDING",
        /// Its agent has applied it.
        Finished = "FINISHED",
        /// Its agent could not apply it.
        Failed = "FAILED",
        /// It was invalid, and was never sent.
        Error = "ERROR",
        /// Its agent never applied it: it did not arrive, or was meant for what the agent no longer has.
        Dropped = "DROPPED",
        /// Its agent cannot be reached; it may come back.
        Unreachable = "UNREACHABLE",
        /// Its agent was declared gone by an operator.
        GoneByOperator = "GONE_BY_OPERATOR",
        /// Its agent has not come back to this master yet.
        Recovering = "RECOVERING",
        /// The master has never heard of it, or has forgotten it.
        Unknown = "UNKNOWN",
    }
}

impl OperationState {
    /// Whether it is the last state that an operation can have.
    pub fn is_terminal(self) -> bool {
        use OperationState::*;
        matches!(self, Finished | Failed | Error | Dropped | GoneByOperator)
    }
}

/// How an operation is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Which; the framework's name for it.
    pub operation_id: OperationId,
    /// The state.
    pub state: OperationState,
    /// A sentence for people; may be empty.
    pub message: String,
    /// What the resources have become, once it is finished.
    pub converted: Resources,
    /// Set when the framework must acknowledge it: its agent sends it again until then.
    pub uuid: Option<Uuid>,
    /// On which agent, where known.
    pub agent_id: Option<AgentId>,
}

impl OperationStatus {
    /// A status with nothing but its state and a sentence, which nobody has to acknowledge.
    pub fn new(
        operation_id: OperationId,
        state: OperationState,
        message: impl Into<String>,
    ) -> Self {
        Self {
            operation_id,
            state,
            message: message.into(),
            converted: Resources::default(),
            uuid: None,
            agent_id: None,
        }
    }

    /// The same, placed on an agent.
    pub fn on(mut self, agent: &AgentId) -> Self {
        self.agent_id = Some(agent.clone());
        self
    }
}

/// How an operation went, on its way from an agent to a framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationUpdate {
    /// Whose.
    pub framework_id: FrameworkId,
    /// The status; its `uuid` is set.
    pub status: OperationStatus,
}

/// What an agent has, with all that operations have made of it.
///
/// A master applies an operation to its own books at once and sends it with the version that it knows. The agent takes a new version
/// whenever it has not done what it was told, so that what was built upon that is dropped as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentResources {
    /// Changes when the agent does not hold what its master believes.
    pub version: Uuid,
    /// All that it has, neither revocable nor allocated.
    pub total: Resources,
    /// The operations whose last status nobody has acknowledged.
    pub operations: Vec<OperationUpdate>,
    /// The serial of the newest operation that is over here: done, which is on the disk with what it has made, or refused. 0 before the
    /// first; `None` of an agent that does not know serials.
    pub settled: Option<u64>,
}

/// [`AgentResources`] as they were told before operations had serials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentResourcesV1 {
    /// Changes when the agent does not hold what its master believes.
    pub version: Uuid,
    /// All that it has, neither revocable nor allocated.
    pub total: Resources,
    /// The operations whose last status nobody has acknowledged.
    pub operations: Vec<OperationUpdate>,
}

impl From<AgentResourcesV1> for AgentResources {
    fn from(older: AgentResourcesV1) -> Self {
        Self {
            version: older.version,
            total: older.total,
            operations: older.operations,
            settled: None,
        }
    }
}

impl From<&AgentResources> for AgentResourcesV1 {
    fn from(newer: &AgentResources) -> Self {
        Self {
            version: newer.version,
            total: newer.total.clone(),
            operations: newer.operations.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_states_are_terminal_and_names_are_the_wires() {
        let terminal = OperationState::ALL
            .iter()
            .filter(|state| state.is_terminal());
        assert_eq!(terminal.count(), 5);
        assert!(!OperationState::Unreachable.is_terminal());
        assert_eq!(
            OperationState::GoneByOperator.name(),
            "OPERATION_GONE_BY_OPERATOR"
        );
    }
}
