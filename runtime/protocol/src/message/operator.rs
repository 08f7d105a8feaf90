//! What an operator's command asks of masters and agents.

use std::collections::BTreeMap;
use std::time::Duration;

use resources::{Conversion, Invalid, Resources};
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::explain::OffersExplained;
use crate::id::{AgentId, ExecutorId, FrameworkId, TaskId};
use crate::maintenance::{MachineId, MaintenanceStatus, Window};
use crate::quota::Quota;
use crate::view::{ClusterView, RoleView};

/// How does the cluster look?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewCluster;

/// An operator wants this task killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillByOperator {
    /// Which; there must be one framework that has it.
    pub task_id: TaskId,
    /// Whose, when several frameworks have a task of that id.
    pub framework_id: Option<FrameworkId>,
}

/// What is every role's weight and quota, and what does it hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewRoles;

/// An operator wants these roles to have these quotas, all of them or none. The others keep theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateQuotas {
    /// By role; the default takes the quota away.
    pub quotas: BTreeMap<String, Quota>,
    /// Also if the cluster has less than is guaranteed, or a role holds more than its limit already.
    pub force: bool,
}

/// An operator wants these roles to have these weights, all of them or none. The others keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateWeights {
    /// By role; above zero, and 1 is what a role has of which nothing is said.
    pub weights: BTreeMap<String, f64>,
}

/// Which machines will be away, and when?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaintenanceSchedule;

/// Which machines are being left or are away, and what do frameworks say of it?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaintenanceStatus;

/// An operator says which machines will be away, and when, in place of all that was said before (SPEC 3.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateMaintenanceSchedule {
    /// Each machine once; those that are away already stay in it.
    pub windows: Vec<Window>,
}

/// These machines, which are scheduled, are away from now on: their agents stop, and none of them is taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartMaintenance {
    /// One or more, each once.
    pub machines: Vec<MachineId>,
}

/// These machines are back, and are in the schedule no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopMaintenance {
    /// One or more, each once.
    pub machines: Vec<MachineId>,
}

/// An operator wants this agent drained: nothing of it is offered, and its tasks end (SPEC 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainAgent {
    /// Which.
    pub agent_id: AgentId,
    /// The longest time that a task has to end; `None` is each task's own.
    pub max_grace_period: Option<Duration>,
    /// Whether the agent is declared gone once it is drained.
    pub mark_gone: bool,
}

/// An operator wants nothing of this agent offered; what runs there goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeactivateAgent {
    /// Which.
    pub agent_id: AgentId,
}

/// An operator wants this agent, which was deactivated or is drained, offered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactivateAgent {
    /// Which.
    pub agent_id: AgentId,
}

/// An operator wants this agent, which is being drained, drained no more but offered again (W30). Tasks that were told to end still do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelDrain {
    /// Which.
    pub agent_id: AgentId,
}

/// An operator says that this agent will never come back: its tasks are over, and it is refused for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkAgentGone {
    /// Which.
    pub agent_id: AgentId,
}

/// Why an update of quotas, weights, maintenance or agents was not made. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum UpdateRefused {
    /// It will never be made as it is.
    #[error("{reason}")]
    Invalid {
        /// Names the field, the value and what was expected.
        reason: String,
    },
    /// The cluster as it is just now does not allow it; made all the same when forced.
    #[error("{reason}")]
    Conflict {
        /// Names the role, the resource, what was asked for and what there is.
        reason: String,
    },
    /// The master cannot do it just now: try again.
    #[error("{reason}")]
    NotNow {
        /// For the operator.
        reason: String,
    },
}

/// Why is this framework offered nothing (W26)?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainOffers {
    /// Its id, or its name if no other has it.
    pub framework: String,
    /// In this role; `None` is each of its roles.
    pub role: Option<String>,
    /// On the agent of this id, or of this host if no other is there; `None` is all of them, counted by reason.
    pub agent: Option<String>,
}

/// A question is let go: too many of its asker's wait for their turn under the masters' `--rate_limits` (W29). Ask later, and less.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("over its rate limit: {reason}")]
pub struct OverRateLimit {
    /// For the operator.
    pub reason: String,
}

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unexplained {
    /// There is no such framework, role or agent.
    #[error(transparent)]
    Unknown(Invalid),
    /// The allocator says nothing just now, or never explains.
    #[error("{reason}")]
    NoAnswer {
        /// For the operator.
        reason: String,
    },
}

/// An operator wants this done with what an agent has (SPEC 3.5). What is offered is taken back as far as needed; what runs is not touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operate {
    /// On which agent.
    pub agent_id: AgentId,
    /// What becomes what, allocated to nobody.
    pub conversion: Conversion,
}

/// An operator's operation that was not applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum OperationRefused {
    /// There is no such agent, or it is not connected.
    #[error("agent_id is `{agent_id}`: expected an agent that is connected")]
    NoAgent {
        /// Which.
        agent_id: AgentId,
    },
    /// It is against the rules, whatever is free.
    #[error(transparent)]
    Invalid(Invalid),
    /// The agent has not, or has in use, what the operation needs.
    #[error("{lacking} lacks: {free} is free on the agent")]
    NotFree {
        /// The first resource that lacks.
        lacking: String,
        /// What could be had: what nobody uses.
        free: Box<Resources>,
    },
}

/// A piece of a file in an executor's sandbox, please.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSandbox {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which executor; its newest run is read.
    pub executor_id: ExecutorId,
    /// The file's path inside the sandbox, for example `stdout`.
    pub path: String,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes at most; never more than 1 MiB are sent.
    pub length: u32,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    /// The bytes; empty at the end of the file.
    #[serde(with = "runtime::codec::octets")]
    pub data: Vec<u8>,
    /// The file's size when it was read.
    pub size: u64,
}

/// An operator's wish that cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OperatorError {
    /// There is no such thing.
    #[error("{what} is not known here")]
    NotFound {
        /// What was asked for, for example ``task `t1` ``.
        what: String,
    },
    /// There are several of that name.
    #[error("{what} is ambiguous: name one of {candidates}")]
    Ambiguous {
        /// What was asked for.
        what: String,
        /// What it could be.
        candidates: String,
    },
    /// It exists but cannot be read.
    #[error("{what}: {reason}")]
    Failed {
        /// What was asked for.
        what: String,
        /// Why not.
        reason: String,
    },
}

remote! { ViewCluster = "operator/view_cluster" v4 -> Result<ClusterView, OverRateLimit> }
remote! { ViewRoles = "operator/view_roles" v2 -> Result<Vec<RoleView>, OverRateLimit> }
remote! { ExplainOffers = "operator/explain_offers" v3 -> Result<OffersExplained, Unexplained> }
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
remote! { ReadSandbox = "operator/read_sandbox" v1 -> Result<FilePiece, OperatorError> }
