//! Operations on offered resources, and their status updates (`Offer.Operation` and
//! `OperationStatus` in Mesos).
//!
//! [`Conversion`] has the rules of resource conversions.

use resources::{Conversion, Resources};
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::task::status::named;
use crate::task::{ExecutorInfo, TaskInfo};

/// One step of an accept. Steps run in order, each on the result of the previous one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// Launches tasks.
    Launch {
        /// The tasks. An empty list declines the offers.
        tasks: Vec<TaskInfo>,
    },
    /// Launches all of these tasks under one executor, or none.
    LaunchGroup {
        /// The executor.
        executor: Box<ExecutorInfo>,
        /// The tasks, at least one.
        tasks: Vec<TaskInfo>,
    },
    /// Reserves, unreserves, creates, destroys, grows or shrinks resources.
    Convert {
        /// Id for status updates, chosen by the framework and unique among its active operations.
        /// `None`: no updates.
        id: Option<OperationId>,
        /// The conversion.
        conversion: Conversion,
    },
}

impl Operation {
    /// A conversion without status updates.
    pub fn convert(conversion: Conversion) -> Self {
        Self::Convert {
            id: None,
            conversion,
        }
    }

    /// Tasks that it launches; may be empty.
    pub fn tasks(&self) -> &[TaskInfo] {
        match self {
            Self::Launch { tasks } | Self::LaunchGroup { tasks, .. } => tasks,
            Self::Convert { .. } => &[],
        }
    }

    /// Tasks that it launches; may be empty.
    pub fn into_tasks(self) -> Vec<TaskInfo> {
        match self {
            Self::Launch { tasks } | Self::LaunchGroup { tasks, .. } => tasks,
            Self::Convert { .. } => Vec::new(),
        }
    }
}

named! {
    /// State of an operation.
    OperationState, "OPERATION_" {
        /// Sent to the agent.
        Pending = "PENDING",
        /// Applied by the agent.
        Finished = "FINISHED",
        /// Not applied: the agent failed.
        Failed = "FAILED",
        /// Invalid, and not sent to the agent.
        Error = "ERROR",
        /// Not applied: it was lost, or the agent's resources had changed.
        Dropped = "DROPPED",
        /// The agent is unreachable and may return.
        Unreachable = "UNREACHABLE",
        /// The agent was marked gone by an operator.
        GoneByOperator = "GONE_BY_OPERATOR",
        /// The agent has not reregistered with this master yet.
        Recovering = "RECOVERING",
        /// Unknown to the master.
        Unknown = "UNKNOWN",
    }
}

impl OperationState {
    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        use OperationState::*;
        matches!(self, Finished | Failed | Error | Dropped | GoneByOperator)
    }
}

/// Status of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Id chosen by the framework.
    pub operation_id: OperationId,
    /// The state.
    pub state: OperationState,
    /// Text for display; may be empty.
    pub message: String,
    /// Resulting resources of a finished operation.
    pub converted: Resources,
    /// Set if the framework must acknowledge the status. The agent repeats it until then.
    pub uuid: Option<Uuid>,
    /// The agent, if known.
    pub agent_id: Option<AgentId>,
}

impl OperationStatus {
    /// A status without resources that needs no acknowledgement.
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

    /// Sets the agent.
    pub fn on(mut self, agent: &AgentId) -> Self {
        self.agent_id = Some(agent.clone());
        self
    }
}

/// A status update on its way from an agent to a framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationUpdate {
    /// Framework of the operation.
    pub framework_id: FrameworkId,
    /// The status, with a `uuid`.
    pub status: OperationStatus,
}

/// An agent's resources after all operations.
///
/// A master applies an operation to its own state at once, and sends it to the agent with the known
/// resource version. The agent takes a new version whenever it did not apply an operation, so it
/// also drops later operations that depend on that one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentResources {
    /// Changes when the agent's resources differ from the master's view.
    pub version: Uuid,
    /// All resources, neither revocable nor allocated.
    pub total: Resources,
    /// Operations with an unacknowledged last status.
    pub operations: Vec<OperationUpdate>,
    /// Serial of the newest settled operation: applied and on disk, or refused. 0 before the first;
    /// `None` if the agent does not know serials.
    pub settled: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_states_are_terminal() {
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
