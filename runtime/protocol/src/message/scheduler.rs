//! Messages between a framework's scheduler and the master.

use std::collections::BTreeSet;
use std::time::Duration;

use runtime::{Pid, Timestamp, remote};
use serde::{Deserialize, Serialize};

use crate::agent::MasterInfo;
use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId, OfferId, OperationId, TaskId, Uuid};
use crate::maintenance::InverseOffer;
use crate::offers::offer::{Filters, Offer};
use crate::offers::wants::Wants;
use crate::operation::{Operation, OperationStatus};
use crate::task::KillPolicy;
use crate::task::status::{TaskStatus, Termination};

/// Subscribes a framework. With an id it replaces the framework's earlier scheduler: the newest
/// wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscribe {
    /// The framework's description.
    pub framework: FrameworkInfo,
    /// Actor that receives the master's messages.
    pub scheduler: Pid,
    /// Offer preferences.
    pub wants: Wants,
}

/// Changes a framework's description or offer preferences. User, principal and checkpointing cannot
/// change. Outstanding offers stay valid, except in roles that the framework leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateFramework {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The new description.
    pub framework: FrameworkInfo,
    /// The new offer preferences.
    pub wants: Wants,
}

/// The framework is subscribed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// Its id; unchanged if it had one.
    pub framework_id: FrameworkId,
    /// The master.
    pub master: MasterInfo,
}

/// The framework is not subscribed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum SubscriptionRefused {
    /// The registry cannot answer now: retry later.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// The request is invalid and must not be repeated.
    #[error("{reason}")]
    Never {
        /// Field, value and expectation.
        reason: String,
    },
}

/// Accepts offers, all of one agent and one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The offers.
    pub offer_ids: Vec<OfferId>,
    /// Operations, applied in order.
    pub operations: Vec<Operation>,
    /// Filters for the unused resources, which are declined.
    pub filters: Filters,
}

/// Declines offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclineOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The offers.
    pub offer_ids: Vec<OfferId>,
    /// How long similar offers are not wanted.
    pub filters: Filters,
}

/// The framework will leave these agents in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptInverseOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The inverse offers.
    pub inverse_offer_ids: Vec<OfferId>,
    /// How long similar inverse offers are not wanted.
    pub filters: Filters,
}

/// The framework cannot leave these agents in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclineInverseOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The inverse offers.
    pub inverse_offer_ids: Vec<OfferId>,
    /// How long similar inverse offers are not wanted.
    pub filters: Filters,
}

/// Resumes offers: removes filters and suppressions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviveOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Roles; empty means all.
    pub roles: BTreeSet<String>,
}

/// Suppresses offers until they are revived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressOffers {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Roles; empty means all.
    pub roles: BTreeSet<String>,
}

/// Acknowledges a task status, so that it is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeStatus {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Agent that sent the status.
    pub agent_id: AgentId,
    /// The task.
    pub task_id: TaskId,
    /// Uuid of the status.
    pub uuid: Uuid,
}

/// Asks for the states of tasks. The answers are [`StatusChanged`] messages with reason
/// `RECONCILIATION`, which need no acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileTasks {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Tasks, with their agents if known; empty means all active tasks.
    pub tasks: Vec<(TaskId, Option<AgentId>)>,
}

/// Acknowledges an operation status, so that it is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeOperation {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Agent that sent the status.
    pub agent_id: AgentId,
    /// The operation.
    pub operation_id: OperationId,
    /// Uuid of the status.
    pub uuid: Uuid,
}

/// Asks for the states of operations. The answers are [`OperationChanged`] messages, which need no
/// acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileOperations {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Operations, with their agents if known; empty means all that the master knows.
    pub operations: Vec<(OperationId, Option<AgentId>)>,
}

/// Kills a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillTask {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The task.
    pub task_id: TaskId,
    /// The task's agent, if known. A master that does not know the task yet waits for this agent to
    /// register before it answers.
    pub agent_id: Option<AgentId>,
    /// Kill policy; `None` uses the task's own.
    pub kill_policy: Option<KillPolicy>,
}

/// Removes a framework for good, with its tasks and executors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TearDown {
    /// The framework.
    pub framework_id: FrameworkId,
}

/// Data between a scheduler and an executor, in either direction. Delivered at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkMessage {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The agent.
    pub agent_id: AgentId,
    /// The executor, receiver or sender.
    pub executor_id: ExecutorId,
    /// The data.
    #[serde(with = "runtime::wire::codec::octets")]
    pub data: Vec<u8>,
}

/// New offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffersMade {
    /// The offers, at least one.
    pub offers: Vec<Offer>,
}

/// An offer is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferRescinded {
    /// The offer.
    pub offer_id: OfferId,
}

/// Agents will become unavailable: the framework should answer whether it leaves them in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOffersMade {
    /// The inverse offers, at least one.
    pub inverse_offers: Vec<InverseOffer>,
}

/// An inverse offer is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOfferRescinded {
    /// The inverse offer.
    pub inverse_offer_id: OfferId,
}

/// A task has a new state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusChanged {
    /// The status, to be acknowledged if it has a uuid.
    pub status: TaskStatus,
}

/// Tasks are revoked. At the deadline each remaining one is killed; if that fails, its executor
/// with all its tasks is. Until then the framework may save its work and end the tasks itself.
/// Repeated to a scheduler that subscribes before the deadline. If a task may stay after all, its
/// unchanged status is sent. A later leader starts anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TasksRevoked {
    /// Current status of the tasks, at least one, all of one framework, each with the cause as
    /// message. Without uuid: no acknowledgement.
    pub tasks: Vec<TaskStatus>,
    /// Time of the kill, by the master's clock.
    pub deadline: Timestamp,
    /// Time from now to the deadline, for receivers that do not trust clocks.
    pub grace: Duration,
    /// The role below its guarantee that needs the resources. `None`: the tasks exceeded the
    /// duration of tasks that are not marked as long.
    pub role: Option<String>,
}

/// An operation has a new state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationChanged {
    /// The status, to be acknowledged if it has a uuid.
    pub status: OperationStatus,
}

/// An agent was removed or an executor has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The agent.
    pub agent_id: AgentId,
    /// The executor; `None` means the whole agent.
    pub executor_id: Option<ExecutorId>,
    /// End of the executor, if known.
    pub termination: Option<Termination>,
}

/// This scheduler was replaced, or its framework was removed: it must stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkFailed {
    /// The cause.
    pub message: String,
}

remote! { Subscribe = "scheduler/subscribe" v1 -> Result<Subscribed, SubscriptionRefused> }
remote! { UpdateFramework = "scheduler/update_framework" v1 -> Result<(), SubscriptionRefused> }
remote! { AcceptOffers = "scheduler/accept_offers" v1 }
remote! { DeclineOffers = "scheduler/decline_offers" v1 }
remote! { AcceptInverseOffers = "scheduler/accept_inverse_offers" v1 }
remote! { DeclineInverseOffers = "scheduler/decline_inverse_offers" v1 }
remote! { ReviveOffers = "scheduler/revive_offers" v1 }
remote! { SuppressOffers = "scheduler/suppress_offers" v1 }
remote! { AcknowledgeStatus = "scheduler/acknowledge_status" v1 }
remote! { ReconcileTasks = "scheduler/reconcile_tasks" v1 }
remote! { AcknowledgeOperation = "scheduler/acknowledge_operation" v1 }
remote! { ReconcileOperations = "scheduler/reconcile_operations" v1 }
remote! { KillTask = "scheduler/kill_task" v1 }
remote! { TearDown = "scheduler/tear_down" v1 }
remote! { FrameworkMessage = "scheduler/framework_message" v1 }
remote! { OffersMade = "scheduler/offers_made" v1 }
remote! { OfferRescinded = "scheduler/offer_rescinded" v1 }
remote! { InverseOffersMade = "scheduler/inverse_offers_made" v1 }
remote! { InverseOfferRescinded = "scheduler/inverse_offer_rescinded" v1 }
remote! { StatusChanged = "scheduler/status_changed" v1 }
remote! { TasksRevoked = "scheduler/tasks_revoked" v1 }
remote! { OperationChanged = "scheduler/operation_changed" v1 }
remote! { Lost = "scheduler/lost" v1 }
remote! { FrameworkFailed = "scheduler/framework_failed" v1 }
