//! Requests of operators' commands to masters and agents.

use std::collections::BTreeMap;
use std::time::Duration;

use resources::{Conversion, Invalid, Resources};
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ExecutorId, FrameworkId, TaskId};
use crate::maintenance::{MachineId, MaintenanceStatus, Window};
use crate::quota::Quota;
use crate::view::explain::OffersExplained;
use crate::view::oversubscription::OversubscriptionView;
use crate::view::{ClusterView, RoleView};

/// Requests a snapshot of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewCluster;

/// Kills a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillByOperator {
    /// The task. Without `framework_id`, exactly one framework must have a task of this id.
    pub task_id: TaskId,
    /// Framework of the task; required if several frameworks have a task of this id.
    pub framework_id: Option<FrameworkId>,
}

/// Requests the weight, quota and resources of all roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewRoles;

/// Sets the quotas of these roles, all or none. Other roles keep theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateQuotas {
    /// Quotas by role; the default quota removes one.
    pub quotas: BTreeMap<String, Quota>,
    /// Also accept guarantees above the cluster's resources, and limits below current consumption.
    pub force: bool,
}

/// Sets the weights of these roles, all or none. Other roles keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateWeights {
    /// Weights by role, above 0. The default weight is 1.
    pub weights: BTreeMap<String, f64>,
}

/// Requests the maintenance schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaintenanceSchedule;

/// Requests the state of the maintenance, with the answers of frameworks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaintenanceStatus;

/// Replaces the maintenance schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateMaintenanceSchedule {
    /// The new schedule. Each machine occurs once; machines that are down must stay in it.
    pub windows: Vec<Window>,
}

/// Starts the maintenance of scheduled machines: their agents stop, and new ones are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartMaintenance {
    /// The machines, at least one, without duplicates.
    pub machines: Vec<MachineId>,
}

/// Ends the maintenance of these machines and removes them from the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopMaintenance {
    /// The machines, at least one, without duplicates.
    pub machines: Vec<MachineId>,
}

/// Drains an agent: it is not offered, and its tasks end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainAgent {
    /// The agent.
    pub agent_id: AgentId,
    /// Longest grace period of a task; `None` uses each task's own.
    pub max_grace_period: Option<Duration>,
    /// Mark the agent gone when the drain completes.
    pub mark_gone: bool,
}

/// Stops offers of this agent. Its tasks keep running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeactivateAgent {
    /// The agent.
    pub agent_id: AgentId,
}

/// Resumes offers of a deactivated or drained agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactivateAgent {
    /// The agent.
    pub agent_id: AgentId,
}

/// Cancels a drain and resumes offers of the agent. Tasks that were already told to end still do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelDrain {
    /// The agent.
    pub agent_id: AgentId,
}

/// Marks an agent as gone for ever: its tasks are over, and it may not return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkAgentGone {
    /// The agent.
    pub agent_id: AgentId,
}

/// Why quotas, weights, maintenance or agents were not updated. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum UpdateRefused {
    /// The request is invalid and must not be repeated.
    #[error("{reason}")]
    Invalid {
        /// Field, value and expectation.
        reason: String,
    },
    /// The current state of the cluster does not allow it; possible with `force`.
    #[error("{reason}")]
    Conflict {
        /// Role, resource, requested and available amount.
        reason: String,
    },
    /// The master cannot do it now: retry.
    #[error("{reason}")]
    NotNow {
        /// For the operator.
        reason: String,
    },
}

/// Requests the reasons why a framework receives no offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainOffers {
    /// Id of the framework, or its name if unique.
    pub framework: String,
    /// One role; `None` for each of the framework's roles.
    pub role: Option<String>,
    /// One agent, by id or by host name if unique; `None` counts all agents by reason.
    pub agent: Option<String>,
}

/// Request dropped: too many requests of this principal are queued under the masters'
/// `--rate_limits`. Retry later, and less often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("over its rate limit: {reason}")]
pub struct OverRateLimit {
    /// For the operator.
    pub reason: String,
}

/// No explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ExplainError {
    /// Unknown framework, role or agent.
    #[error(transparent)]
    Unknown(Invalid),
    /// The allocator did not answer, or does not support explanations.
    #[error("{reason}")]
    NoAnswer {
        /// For the operator.
        reason: String,
    },
}

/// Applies an operation to an agent's resources. Offers are rescinded as far as necessary; running
/// tasks keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operate {
    /// The agent.
    pub agent_id: AgentId,
    /// The conversion, without allocations.
    pub conversion: Conversion,
}

/// An operator's operation was not applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum OperationRefused {
    /// The agent is unknown or not connected.
    #[error("agent_id is `{agent_id}`: expected an agent that is connected")]
    NoAgent {
        /// The agent.
        agent_id: AgentId,
    },
    /// Invalid, regardless of free resources.
    #[error(transparent)]
    Invalid(Invalid),
    /// The required resources do not exist or are in use.
    #[error("the agent's unused resources, {free}, do not contain {lacking}")]
    NotFree {
        /// The required resources, in the format of Mesos.
        lacking: String,
        /// The agent's unused resources.
        free: Box<Resources>,
    },
}

/// Reads a part of a file in an executor's sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSandbox {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The executor; its newest container is read.
    pub executor_id: ExecutorId,
    /// Path inside the sandbox, for example `stdout`.
    pub path: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Maximum number of bytes; at most 1 MiB is returned.
    pub length: u32,
}

/// Requests an agent's oversubscription: usage, estimate and corrections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewOversubscription;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChunk {
    /// The bytes; empty at the end of the file.
    #[serde(with = "runtime::wire::codec::octets")]
    pub data: Vec<u8>,
    /// Size of the file at the time of reading.
    pub size: u64,
}

/// An operator's request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OperatorError {
    /// Not found.
    #[error("{what} is not known here")]
    NotFound {
        /// The requested object, for example ``task `t1` ``.
        what: String,
    },
    /// The name is not unique.
    #[error("{what} is ambiguous: name one of {candidates}")]
    Ambiguous {
        /// The requested object.
        what: String,
        /// The candidates.
        candidates: String,
    },
    /// The object exists but cannot be read.
    #[error("{what}: {reason}")]
    Failed {
        /// The requested object.
        what: String,
        /// The reason.
        reason: String,
    },
}

remote! { ViewCluster = "operator/view_cluster" v1 -> Result<ClusterView, OverRateLimit> }
remote! { ViewRoles = "operator/view_roles" v1 -> Result<Vec<RoleView>, OverRateLimit> }
remote! { ExplainOffers = "operator/explain_offers" v1 -> Result<OffersExplained, ExplainError> }
remote! { UpdateQuotas = "operator/update_quotas" v1 -> Result<(), UpdateRefused> }
remote! { UpdateWeights = "operator/update_weights" v1 -> Result<(), UpdateRefused> }
remote! { ViewMaintenanceSchedule = "operator/view_maintenance_schedule" v1 -> Result<Vec<Window>, UpdateRefused> }
remote! { ViewMaintenanceStatus = "operator/view_maintenance_status" v1 -> Result<MaintenanceStatus, UpdateRefused> }
remote! { UpdateMaintenanceSchedule = "operator/update_maintenance_schedule" v1 -> Result<(), UpdateRefused> }
remote! { StartMaintenance = "operator/start_maintenance" v1 -> Result<(), UpdateRefused> }
remote! { StopMaintenance = "operator/stop_maintenance" v1 -> Result<(), UpdateRefused> }
remote! { DrainAgent = "operator/drain_agent" v1 -> Result<(), UpdateRefused> }
remote! { DeactivateAgent = "operator/deactivate_agent" v1 -> Result<(), UpdateRefused> }
remote! { ReactivateAgent = "operator/reactivate_agent" v1 -> Result<(), UpdateRefused> }
remote! { CancelDrain = "operator/cancel_drain" v1 -> Result<(), UpdateRefused> }
remote! { MarkAgentGone = "operator/mark_agent_gone" v1 -> Result<(), UpdateRefused> }
remote! { KillByOperator = "operator/kill_by_operator" v1 -> Result<FrameworkId, OperatorError> }
remote! { Operate = "operator/operate" v1 -> Result<(), OperationRefused> }
remote! { ReadSandbox = "operator/read_sandbox" v1 -> Result<FileChunk, OperatorError> }
remote! {
    ViewOversubscription = "operator/view_oversubscription" v1
        -> Result<OversubscriptionView, OperatorError>
}
