//! What a framework's scheduler and the master say to each other (SPEC 2.2, 2.3).

use std::collections::BTreeSet;
use std::time::Duration;

use runtime::{Pid, Timestamp, remote};
use serde::{Deserialize, Serialize};

use crate::agent::MasterInfo;
use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId, OfferId, OperationId, TaskId, Uuid};
use crate::maintenance::InverseOffer;
use crate::offer::{Filters, Offer};
use crate::operation::{Operation, OperationStatus};
use crate::status::{TaskStatus, Termination};
use crate::task::KillPolicy;
use crate::wants::Wants;

/// This framework would like offers. With an id it takes over from its earlier scheduler (newest wins).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscribe {
    /// Who it is.
    pub framework: FrameworkInfo,
    /// Where its scheduler hears.
    pub scheduler: Pid,
    /// Which offers it would like.
    pub wants: Wants,
}

/// The framework is something else from now on, or wants other offers. Its user, principal and checkpointing stay what they were; the
/// offers that are out stay as well, but for those of roles that it has left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateFramework {
    /// Who says so.
    pub framework_id: FrameworkId,
    /// What it is.
    pub framework: FrameworkInfo,
    /// Which offers it would like.
    pub wants: Wants,
}

/// The framework is subscribed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// Its id, the old one if it had one.
    pub framework_id: FrameworkId,
    /// By whom.
    pub master: MasterInfo,
}

/// The framework is not subscribed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum SubscriptionRefused {
    /// The registry cannot answer just now: try again after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// It will never be subscribed as it is.
    #[error("{reason}")]
    Never {
        /// Names the field, the value and what was expected.
        reason: String,
    },
}

/// The framework takes these offers, all of one agent and one role, and wants this done with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which offers.
    pub offer_ids: Vec<OfferId>,
    /// What to do, in order.
    pub operations: Vec<Operation>,
    /// What is not used is declined with these.
    pub filters: Filters,
}

/// The framework does not want these offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclineOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which offers.
    pub offer_ids: Vec<OfferId>,
    /// For how long it wants none like them.
    pub filters: Filters,
}

/// The framework will have left these agents by then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptInverseOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which inverse offers.
    pub inverse_offer_ids: Vec<OfferId>,
    /// For how long it wants none like them.
    pub filters: Filters,
}

/// The framework cannot leave these agents by then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclineInverseOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which inverse offers.
    pub inverse_offer_ids: Vec<OfferId>,
    /// For how long it wants none like them.
    pub filters: Filters,
}

/// The framework wants offers again: its filters and suppressions end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviveOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// For which of its roles; empty is all.
    pub roles: BTreeSet<String>,
}

/// The framework wants no more offers until it revives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressOffers {
    /// Who.
    pub framework_id: FrameworkId,
    /// For which of its roles; empty is all.
    pub roles: BTreeSet<String>,
}

/// The framework has this status in hand: it need not be sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeStatus {
    /// Who.
    pub framework_id: FrameworkId,
    /// The agent that sends it.
    pub agent_id: AgentId,
    /// Whose status.
    pub task_id: TaskId,
    /// Which status.
    pub uuid: Uuid,
}

/// How are these tasks? Answered by [`StatusChanged`], each with reason `RECONCILIATION` and nothing to acknowledge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileTasks {
    /// Who asks.
    pub framework_id: FrameworkId,
    /// Which tasks, with their agents where known; empty is all that have not ended.
    pub tasks: Vec<(TaskId, Option<AgentId>)>,
}

/// The framework has this status of an operation in hand: it need not be sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeOperation {
    /// Who.
    pub framework_id: FrameworkId,
    /// The agent that sends it.
    pub agent_id: AgentId,
    /// Which operation's status.
    pub operation_id: OperationId,
    /// Which status.
    pub uuid: Uuid,
}

/// How are these operations? Answered by [`OperationChanged`], with nothing to acknowledge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileOperations {
    /// Who asks.
    pub framework_id: FrameworkId,
    /// Which operations, with their agents where known; empty is all that the master knows.
    pub operations: Vec<(OperationId, Option<AgentId>)>,
}

/// The task should end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillTask {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub task_id: TaskId,
    /// Where, as far as the caller knows: a master that does not know the task waits for this agent, and says nothing yet.
    pub agent_id: Option<AgentId>,
    /// How; `None` leaves it to the task's own policy.
    pub kill_policy: Option<KillPolicy>,
}

/// [`KillTask`] as it was said before it named the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillTaskV1 {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub task_id: TaskId,
    /// How; `None` leaves it to the task's own policy.
    pub kill_policy: Option<KillPolicy>,
}

impl From<KillTaskV1> for KillTask {
    fn from(older: KillTaskV1) -> Self {
        Self {
            framework_id: older.framework_id,
            task_id: older.task_id,
            agent_id: None,
            kill_policy: older.kill_policy,
        }
    }
}

impl From<&KillTask> for KillTaskV1 {
    fn from(newer: &KillTask) -> Self {
        Self {
            framework_id: newer.framework_id.clone(),
            task_id: newer.task_id.clone(),
            kill_policy: newer.kill_policy,
        }
    }
}

/// The framework leaves for good: its tasks and executors end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TearDown {
    /// Which.
    pub framework_id: FrameworkId,
}

/// Bytes between a scheduler and an executor, in either direction; delivered at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkMessage {
    /// Of which framework.
    pub framework_id: FrameworkId,
    /// On which agent.
    pub agent_id: AgentId,
    /// To or from which executor.
    pub executor_id: ExecutorId,
    /// The bytes.
    #[serde(with = "runtime::codec::octets")]
    pub data: Vec<u8>,
}

/// Here is something to choose from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffersMade {
    /// One or more.
    pub offers: Vec<Offer>,
}

/// This offer is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferRescinded {
    /// Which.
    pub offer_id: OfferId,
}

/// These agents will be away: the framework should say whether it will have left them by then (SPEC 3.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOffersMade {
    /// One or more.
    pub inverse_offers: Vec<InverseOffer>,
}

/// This inverse offer is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseOfferRescinded {
    /// Which.
    pub inverse_offer_id: OfferId,
}

/// A task has a new state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusChanged {
    /// The state, to be acknowledged if it bears a uuid.
    pub status: TaskStatus,
}

/// These tasks must go: each that has not ended by the deadline is killed, and if that does not help its executor with all its tasks
/// (S122). Until then the framework may save what it needs and end them itself.
/// Said again to a scheduler that subscribes in the meantime. A task that may stay after all is told as a status, unchanged. A master that
/// leads after this one begins anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TasksRevoked {
    /// How they are now, one or more, of one framework; each with the reason in words. None bears a uuid: there is nothing to acknowledge.
    pub tasks: Vec<TaskStatus>,
    /// When they are killed, by the master's clock.
    pub deadline: Timestamp,
    /// How long that is from now, for who does not trust clocks.
    pub grace: Duration,
    /// The role that lacks what is guaranteed to it, for which they make room; `None` if they have run for longer than tasks may
    /// that are not marked as long (S121).
    pub role: Option<String>,
}

/// An operation has a new state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationChanged {
    /// The state, to be acknowledged if it bears a uuid.
    pub status: OperationStatus,
}

/// An agent or one of its executors is no more (S133).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Which agent.
    pub agent_id: AgentId,
    /// Which executor; `None` is the whole agent.
    pub executor_id: Option<ExecutorId>,
    /// How the executor ended, where known.
    pub termination: Option<Termination>,
}

/// This scheduler has been replaced, or its framework removed: it must stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkFailed {
    /// Why.
    pub message: String,
}

remote! { Subscribe = "scheduler/subscribe" v4 -> Result<Subscribed, SubscriptionRefused> }
remote! { UpdateFramework = "scheduler/update_framework" v2 -> Result<(), SubscriptionRefused> }
remote! { AcceptOffers = "scheduler/accept_offers" v2 }
remote! { DeclineOffers = "scheduler/decline_offers" v1 }
remote! { AcceptInverseOffers = "scheduler/accept_inverse_offers" v1 }
remote! { DeclineInverseOffers = "scheduler/decline_inverse_offers" v1 }
remote! { ReviveOffers = "scheduler/revive_offers" v1 }
remote! { SuppressOffers = "scheduler/suppress_offers" v1 }
remote! { AcknowledgeStatus = "scheduler/acknowledge_status" v1 }
remote! { ReconcileTasks = "scheduler/reconcile_tasks" v1 }
remote! { AcknowledgeOperation = "scheduler/acknowledge_operation" v1 }
remote! { ReconcileOperations = "scheduler/reconcile_operations" v1 }
remote! { KillTaskV1 = "scheduler/kill_task" v1 }
remote! { KillTask = "scheduler/kill_task" v2 older KillTaskV1 }
remote! { TearDown = "scheduler/tear_down" v1 }
remote! { FrameworkMessage = "scheduler/framework_message" v1 }
remote! { OffersMade = "scheduler/offers_made" v2 }
remote! { OfferRescinded = "scheduler/offer_rescinded" v1 }
remote! { InverseOffersMade = "scheduler/inverse_offers_made" v1 }
remote! { InverseOfferRescinded = "scheduler/inverse_offer_rescinded" v1 }
remote! { StatusChanged = "scheduler/status_changed" v1 }
remote! { TasksRevoked = "scheduler/tasks_revoked" v1 }
remote! { OperationChanged = "scheduler/operation_changed" v1 }
remote! { Lost = "scheduler/lost" v1 }
remote! { FrameworkFailed = "scheduler/framework_failed" v1 }
