//! Messages about operations between a master and an agent.
//!
//! The master also relays `AcknowledgeOperation` of [`super::scheduler`] unchanged.

use resources::Conversion;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::operation::{AgentResources, AgentResourcesV1, OperationUpdate};

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

/// [`ApplyOperation`] before serials existed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyOperationV1 {
    /// Framework and operation id for status updates; `None` if none are wanted.
    pub feedback: Option<(FrameworkId, OperationId)>,
    /// The conversion, without allocations.
    pub conversion: Conversion,
    /// Version of the agent's resources that the conversion expects.
    pub version: Uuid,
}

impl From<ApplyOperationV1> for ApplyOperation {
    fn from(older: ApplyOperationV1) -> Self {
        Self {
            feedback: older.feedback,
            conversion: older.conversion,
            version: older.version,
            serial: None,
        }
    }
}

impl From<&ApplyOperation> for ApplyOperationV1 {
    fn from(newer: &ApplyOperation) -> Self {
        Self {
            feedback: newer.feedback.clone(),
            conversion: newer.conversion.clone(),
            version: newer.version,
        }
    }
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

/// [`ResourcesReported`] before serials existed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcesReportedV1 {
    /// The agent.
    pub agent_id: AgentId,
    /// Its resources.
    pub resources: AgentResourcesV1,
}

impl From<ResourcesReportedV1> for ResourcesReported {
    fn from(older: ResourcesReportedV1) -> Self {
        Self {
            agent_id: older.agent_id,
            resources: older.resources.into(),
        }
    }
}

impl From<&ResourcesReported> for ResourcesReportedV1 {
    fn from(newer: &ResourcesReported) -> Self {
        Self {
            agent_id: newer.agent_id.clone(),
            resources: (&newer.resources).into(),
        }
    }
}

remote! { ApplyOperationV1 = "operation/apply_operation" v1 }
remote! { ApplyOperation = "operation/apply_operation" v2 older ApplyOperationV1 }
remote! { OperationsSettled = "operation/operations_settled" v1 }
remote! { OperationUpdated = "operation/operation_updated" v1 }
remote! { ResourcesReportedV1 = "operation/resources_reported" v1 }
remote! { ResourcesReported = "operation/resources_reported" v2 older ResourcesReportedV1 }
