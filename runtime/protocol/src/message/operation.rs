//! What a master and an agent say to each other about operations (SPEC 3.5, 5.2).
//!
//! `AcknowledgeOperation` of [`super::scheduler`] is passed on as it is.

use resources::Conversion;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, FrameworkId, OperationId, Uuid};
use crate::operation::{AgentResources, OperationUpdate};

/// This conversion has been validated and is in the master's books: make it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyOperation {
    /// Who wants to hear how it goes, and its name there; `None` if nobody does.
    pub feedback: Option<(FrameworkId, OperationId)>,
    /// What becomes what, allocated to nobody.
    pub conversion: Conversion,
    /// The version of the agent's resources that it is meant for.
    pub version: Uuid,
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

remote! { ApplyOperation = "operation/apply_operation" v1 }
remote! { OperationUpdated = "operation/operation_updated" v1 }
remote! { ResourcesReported = "operation/resources_reported" v1 }
