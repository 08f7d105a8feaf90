//! Messages about operations between a master and an agent.
//!
//! The master also relays `AcknowledgeOperation` of [`super::scheduler`] unchanged.

use resources::Conversion;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::operation::{AgentResources, OperationUpdate};

/// Applies a validated conversion, which the master has already applied to its own state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyOperation {
    /// Framework and operation id for status updates; `None` if none are wanted.
    pub feedback: Option<(FrameworkId, OperationId)>,
    /// The conversion, without allocations.
    pub conversion: Conversion,
    /// Version of the agent's resources that the conversion expects.
    pub version: Uuid,
    /// Serial of the operation in the registry. Serials of one agent increase, and an agent applies
    /// none twice. `None` if the master's registry does not store operations.
    pub serial: Option<u64>,
}

/// All operations up to this serial are settled: applied and on the agent's disk, or refused. None
/// of them will be applied later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationsSettled {
    /// The agent.
    pub agent_id: AgentId,
    /// The serial.
    pub serial: u64,
}

/// An operation has a new state. The agent repeats this until the framework acknowledges it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationUpdated {
    /// The agent.
    pub agent_id: AgentId,
    /// The update.
    pub update: OperationUpdate,
}

/// The agent did not apply an operation, and reports its actual resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcesReported {
    /// The agent.
    pub agent_id: AgentId,
    /// Its resources.
    pub resources: AgentResources,
}

remote! { ApplyOperation = "operation/apply_operation" v1 }
remote! { OperationsSettled = "operation/operations_settled" v1 }
remote! { OperationUpdated = "operation/operation_updated" v1 }
remote! { ResourcesReported = "operation/resources_reported" v1 }
