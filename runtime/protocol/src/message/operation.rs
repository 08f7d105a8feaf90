//! What a master and an agent say to each other about operations (SPEC 3.5, 5.2).
//!
//! `AcknowledgeOperation` of [`super::scheduler`] is passed on as it is.

use resources::Conversion;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::operation::{AgentResources, AgentResourcesV1, OperationUpdate};

/// This conversion has been validated and is in the master's books: make it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyOperation {
    /// Who wants to hear how it goes, and its name there; `None` if nobody does.
    pub feedback: Option<(FrameworkId, OperationId)>,
    /// What becomes what, allocated to nobody.
    pub conversion: Conversion,
    /// The version of the agent's resources that it is meant for.
    pub version: Uuid,
    /// Under which serial the registry knows it. Those of one agent rise, and an agent does none twice; `None` of a master whose registry
    /// knows no operations.
    pub serial: Option<u64>,
}

/// [`ApplyOperation`] as it was said before operations had serials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyOperationV1 {
    /// Who wants to hear how it goes, and its name there; `None` if nobody does.
    pub feedback: Option<(FrameworkId, OperationId)>,
    /// What becomes what, allocated to nobody.
    pub conversion: Conversion,
    /// The version of the agent's resources that it is meant for.
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

/// All operations up to this serial are over: done, which is on the agent's disk, or refused. None of them will be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationsSettled {
    /// On which agent.
    pub agent_id: AgentId,
    /// Up to which serial.
    pub serial: u64,
}

/// An operation has a new state. Sent again until the framework has acknowledged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationUpdated {
    /// On which agent.
    pub agent_id: AgentId,
    /// The update.
    pub update: OperationUpdate,
}

/// The agent has not done what it was told: this is what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcesReported {
    /// Which.
    pub agent_id: AgentId,
    /// What it has.
    pub resources: AgentResources,
}

/// [`ResourcesReported`] as it was said before operations had serials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcesReportedV1 {
    /// Which.
    pub agent_id: AgentId,
    /// What it has.
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
