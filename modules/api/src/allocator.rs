//! The allocator's interface: the allocator tracks all allocated resources and decides the next
//! offers.
//!
//! The master sends [`AllocatorFact`]s in the order in which they happen and never waits for the
//! allocator. The allocator replies with [`Granted`], [`Withdrawn`] and [`InverseGranted`]. An
//! allocator that revokes tasks to meet guarantees also sends [`TasksWanted`], [`VictimsNamed`],
//! [`StillLacking`] and [`LongTasksBounded`].
//!
//! Either side may name a framework or agent that the other has just removed, so an unknown id is
//! never an error. [`Explain`] and [`Measure`] are optional.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::view::explain::Explanation;
use protocol::{
    AgentId, AgentInfo, FrameworkId, FrameworkInfo, Quota, TaskId, Unavailability, Wants,
};
use resources::{Name, Quantities, Resources};
use runtime::{ActorRef, AskError, Pid, TellError, Timestamp, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

/// The first message: the configuration of this allocator. Sent again after either side restarts;
/// all earlier state is then obsolete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Receives [`Granted`] and all other messages of the allocator.
    pub master: Pid,
    /// Time between two batches; also the shortest duration of an offer filter (1 s by default).
    pub allocation_interval: Duration,
    /// Weight of each role whose weight is not 1. Always above zero.
    pub weights: BTreeMap<String, f64>,
    /// Quota of each role that has one.
    pub quotas: BTreeMap<String, Quota>,
    /// The master's region, if configured. Agents of other regions are offered only to frameworks
    /// with the `REGION_AWARE` capability.
    pub region: Option<String>,
    /// Number of agents in the registry. If there is any quota, nothing is granted until enough of
    /// them have reregistered, see [`RecoveryPause`].
    pub agents_expected: u64,
}

/// Pause in allocation after a [`Begin`] with quotas: the agents that are still missing may hold
/// the resources that a guarantee needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryPause {
    /// Fraction of the expected agents that ends the pause, from 0 to 1 (0.8 by default). A lower
    /// value ends it sooner, but guarantees may then not be met.
    pub factor: f64,
    /// Longest pause (10 minutes by default).
    pub timeout: Duration,
}

impl Default for RecoveryPause {
    fn default() -> Self {
        Self {
            factor: 0.8,
            timeout: Duration::from_secs(600),
        }
    }
}

/// New quotas for these roles; the default quota means none. Other roles keep theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotasChanged {
    /// By role.
    pub quotas: BTreeMap<String, Quota>,
}

/// New weights for these roles, each above zero. Other roles keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightsChanged {
    /// By role.
    pub weights: BTreeMap<String, f64>,
}

/// Only agents of these hosts are offered from now on. Also sent after [`Begin`] if there is a
/// whitelist. Existing allocations are not affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhitelistChanged {
    /// Host names, compared without regard to case; `None` means all hosts.
    pub hosts: Option<BTreeSet<String>>,
}

/// A registered agent, whose resources may be offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentAdded {
    /// The agent; replaces an earlier agent of the same id.
    pub agent_id: AgentId,
    /// Number of this registration. Each grant carries it, so that the master recognizes and drops
    /// grants made before the allocator received this registration.
    pub session: u64,
    /// Description and total resources of the agent.
    pub info: AgentInfo,
    /// Oversubscribed resources, allocated and available together; all revocable.
    pub oversubscribed: Resources,
    /// Resources that frameworks already use on the agent.
    pub used: Vec<(FrameworkId, Resources)>,
}

/// The agent is removed, and all allocations on it with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRemoved {
    /// The removed agent.
    pub agent_id: AgentId,
}

/// Activates or deactivates an agent. An inactive agent is not offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentActivity {
    /// The agent.
    pub agent_id: AgentId,
    /// Whether it may be offered.
    pub active: bool,
}

/// The planned unavailability of an agent has changed. It holds until the next such message or
/// until the agent is removed. Also sent after the first [`AgentAdded`] if a maintenance is
/// scheduled. Clears the record of inverse offers: frameworks may get new ones for this agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailabilityChanged {
    /// The agent.
    pub agent_id: AgentId,
    /// The planned downtime; `None` cancels it.
    pub unavailability: Option<Unavailability>,
}

/// An inverse offer has ended: the framework replied, or the offer was not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseAnswered {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The agent of the inverse offer.
    pub agent_id: AgentId,
    /// Time during which the framework gets no other inverse offer for this agent; `None` means no
    /// filter.
    pub refuse: Option<Duration>,
}

/// The agent's oversubscribed resources have changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentOversubscribed {
    /// The agent.
    pub agent_id: AgentId,
    /// The new total, allocated and available together; all revocable.
    pub total: Resources,
}

/// A subscribed framework. Sent again when its description changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkAdded {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Its description: roles and capabilities among others.
    pub info: FrameworkInfo,
    /// Its suppressed roles and its demands (requested offer shapes).
    pub wants: Wants,
    /// Whether it gets offers at present.
    pub active: bool,
}

/// A framework is removed. Its resources were recovered before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkRemoved {
    /// The framework.
    pub framework_id: FrameworkId,
}

/// Activates or deactivates a framework. Deactivation drops its filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkActivity {
    /// The framework.
    pub framework_id: FrameworkId,
    /// Whether it gets offers.
    pub active: bool,
}

/// A framework has reached its limit of unanswered offers, or no longer has. Until then it is
/// granted nothing: the master rejects further grants to it and recovers their resources. Its
/// filters stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferBudgetSpent {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The reached limit; `None` means that the framework may get offers again.
    pub most: Option<u64>,
}

/// Resources are no longer allocated to a framework: an offer was declined, rescinded or not fully
/// used, or a task has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// The framework that held them.
    pub framework_id: FrameworkId,
    /// The agent.
    pub agent_id: AgentId,
    /// The recovered resources, each with the role it was allocated to.
    pub resources: Resources,
    /// Duration of the filter on any subset of these resources; `None` means no filter. Zero means
    /// no filter either, but marks a refusal: the resources are offered to the framework again in
    /// the next batch, not at once.
    pub refuse: Option<Duration>,
    /// Another offer of that agent is still unanswered. The agent is then offered again when that
    /// offer is answered, or in the next batch, so that its free resources go out in one offer.
    pub beside_offer: bool,
}

/// An operation replaced allocated resources of an agent. An empty `consumed` with a shared volume
/// that the agent already has means one more copy for the framework: another task uses the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Converted {
    /// The framework that holds them, before and after.
    pub framework_id: FrameworkId,
    /// The agent.
    pub agent_id: AgentId,
    /// The resources that no longer exist, each with the role it is allocated to.
    pub consumed: Resources,
    /// The resources in their place, each with the role it is allocated to.
    pub converted: Resources,
}

/// A framework wants no offers for these of its roles; an empty set means all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressed {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The suppressed roles.
    pub roles: BTreeSet<String>,
}

/// A framework wants offers again for these of its roles (an empty set means all). Drops its
/// filters there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revived {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The revived roles.
    pub roles: BTreeSet<String>,
}

/// New offers. Their resources count as allocated until they are recovered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// In the order of the decisions.
    pub grants: Vec<Grant>,
}

/// Resources of one agent for one framework in one role. One grant never mixes regular and
/// revocable resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The framework that gets the offer.
    pub framework_id: FrameworkId,
    /// The role; the resources carry it as their allocation.
    pub role: String,
    /// The agent.
    pub agent_id: AgentId,
    /// The registration of that agent, from [`AgentAdded`].
    pub session: u64,
    /// The offered resources.
    pub resources: Resources,
}

/// Requests for inverse offers. The allocator does not repeat one for the same framework and agent
/// until the master reports its end ([`InverseAnswered`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseGranted {
    /// In no particular order.
    pub grants: Vec<InverseGrant>,
}

/// A framework that uses resources of an agent with a planned downtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseGrant {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The agent, as a whole.
    pub agent_id: AgentId,
    /// The planned downtime.
    pub unavailability: Unavailability,
}

/// The master should rescind unanswered offers of this agent that contain any of these resources,
/// and then recover them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// The agent.
    pub agent_id: AgentId,
    /// The resources that the allocator needs back.
    pub resources: Resources,
}

/// Requests the tasks of these agents: a guarantee is not met, and tasks may have to be revoked.
/// The master rescinds offers there and replies with [`TasksListed`], since only the master knows
/// tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksWanted {
    /// Number of the request, repeated in the reply; a reply to an earlier request is ignored.
    pub number: u64,
    /// The agents.
    pub agents: BTreeSet<AgentId>,
    /// The roles with an unmet guarantee. Offers to them and to roles below them are not rescinded.
    pub roles: BTreeSet<String>,
    /// Resource names that they lack. Offers without any of them are not rescinded.
    pub names: BTreeSet<Name>,
}

/// Tasks of the requested agents, after all facts sent before. A long list comes in several parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TasksListed {
    /// Number of the request.
    pub number: u64,
    /// A part of the list. All parts together contain each unfinished task of those agents once,
    /// and each terminating task elsewhere. While the master waits for agents after its election,
    /// it does not reply.
    pub tasks: Vec<ListedTask>,
    /// Only in the last part: the quota consumption of each role without outstanding offers. The
    /// consumption of a parent role includes its children.
    pub consumed: Option<BTreeMap<String, Quantities>>,
}

/// An unfinished task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedTask {
    /// Its framework.
    pub framework_id: FrameworkId,
    /// Its id.
    pub task_id: TaskId,
    /// Its agent.
    pub agent_id: AgentId,
    /// Its resources, each with the role it is allocated to.
    pub resources: Resources,
    /// Priority given by its framework; tasks of the lowest priority are revoked first. A task that
    /// is being killed anyway has the lowest value.
    pub priority: i32,
    /// Start of the task; `None` if it is not running yet.
    pub since: Option<Timestamp>,
    /// The task has already been asked to end.
    pub leaves: bool,
}

/// Tasks to revoke. Their frameworks are warned; tasks that have not ended after the grace time are
/// killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VictimsNamed {
    /// In no particular order.
    pub victims: Vec<Victim>,
    /// Time between the warning and the kill.
    pub grace: Duration,
}

/// A task to revoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Its framework.
    pub framework_id: FrameworkId,
    /// Its id.
    pub task_id: TaskId,
    /// Its agent.
    pub agent_id: AgentId,
    /// The role whose guarantee is not met.
    pub role: String,
}

/// The roles whose guarantees are still unmet. A task named for any other role may stay, unless it
/// is already killed. Sent when a role for which tasks were named no longer needs them, and once
/// after each [`Begin`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillLacking {
    /// The roles; empty if all guarantees are met.
    pub roles: BTreeSet<String>,
}

/// Bounds on long tasks, enforced by the master, since only the master knows tasks. Sent after each
/// [`Begin`] if configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongTasksBounded {
    /// Largest share of long tasks in each unreserved resource of an agent, in thousandths.
    pub share: u16,
    /// Longest run time of a task that is not marked as long, before it is revoked; `None` means no
    /// limit.
    pub short_max: Option<Duration>,
    /// Time between the warning and the kill of such a task.
    pub grace: Duration,
}

/// Requests the reasons why a framework gets no offers. Sent only on an operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explain {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The role; `None` means each role of the framework.
    pub role: Option<String>,
    /// The agent, for which every reason is listed; `None` counts all agents by reason.
    pub agent_id: Option<AgentId>,
}

/// Requests the allocator's metrics: values by name, as `/metrics/snapshot` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure;

remote! { Begin = "allocator/begin" v1 }
remote! { QuotasChanged = "allocator/quotas_changed" v1 }
remote! { WeightsChanged = "allocator/weights_changed" v1 }
remote! { WhitelistChanged = "allocator/whitelist_changed" v1 }
remote! { AgentAdded = "allocator/agent_added" v1 }
remote! { AgentRemoved = "allocator/agent_removed" v1 }
remote! { AgentActivity = "allocator/agent_activity" v1 }
remote! { UnavailabilityChanged = "allocator/unavailability_changed" v1 }
remote! { InverseAnswered = "allocator/inverse_answered" v1 }
remote! { AgentOversubscribed = "allocator/agent_oversubscribed" v1 }
remote! { FrameworkAdded = "allocator/framework_added" v1 }
remote! { FrameworkRemoved = "allocator/framework_removed" v1 }
remote! { FrameworkActivity = "allocator/framework_activity" v1 }
remote! { OfferBudgetSpent = "allocator/offer_budget_spent" v1 }
remote! { Recovered = "allocator/recovered" v1 }
remote! { Converted = "allocator/converted" v1 }
remote! { Suppressed = "allocator/suppressed" v1 }
remote! { Revived = "allocator/revived" v1 }
remote! { Granted = "allocator/granted" v1 }
remote! { InverseGranted = "allocator/inverse_granted" v1 }
remote! { Withdrawn = "allocator/withdrawn" v1 }
remote! { TasksWanted = "allocator/tasks_wanted" v1 }
remote! { TasksListed = "allocator/tasks_listed" v1 }
remote! { VictimsNamed = "allocator/victims_named" v1 }
remote! { StillLacking = "allocator/still_lacking" v1 }
remote! { LongTasksBounded = "allocator/long_tasks_bounded" v1 }
remote! { Measure = "allocator/measure" v1 -> BTreeMap<String, f64> }
remote! { Explain = "allocator/explain" v1 -> Result<Explanation, Fault> }

/// The master's handle of its allocator.
#[derive(Clone)]
pub struct AllocatorRef {
    actor: ActorRef,
}

impl AllocatorRef {
    /// A handle of the allocator behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self { actor }
    }

    /// The allocator's address.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Timeout of [`explain`](Self::explain).
    const EXPLAIN_PATIENCE: Duration = Duration::from_secs(4);

    /// Timeout of [`measure`](Self::measure). Late metrics are left out of the snapshot, as in
    /// Mesos.
    const MEASURE_PATIENCE: Duration = Duration::from_secs(1);

    /// Requests the metrics. An allocator without [`Measure`] returns an error.
    pub fn measure(
        &self,
    ) -> impl Future<Output = Result<BTreeMap<String, f64>, ModuleError>> + Send + use<> {
        let measured = self.actor.ask(Measure, Self::MEASURE_PATIENCE);
        async move {
            let measured = measured.await;
            measured.map_err(|error| ModuleError::of_ask(ModuleKind::Allocator, error))
        }
    }

    /// Requests an explanation. An allocator without [`Explain`] returns [`Fault::Failed`].
    pub fn explain(
        &self,
        question: Explain,
    ) -> impl Future<Output = Result<Explanation, ModuleError>> + Send + use<> {
        let kind = ModuleKind::Allocator;
        let answer = self.actor.ask(question, Self::EXPLAIN_PATIENCE);
        async move {
            let answer = answer.await.map_err(|error| match error {
                AskError::Refused { .. } => {
                    let reason = "it does not support explanations".to_owned();
                    let fault = Fault::Failed { reason };
                    ModuleError::Fault { kind, fault }
                }
                error => ModuleError::of_ask(kind, error),
            });
            answer?.map_err(|fault| ModuleError::Fault { kind, fault })
        }
    }

    /// Sends a fact. An error means that the allocator is down or its mailbox is full.
    pub fn tell<F: AllocatorFact>(&self, fact: F) -> Result<(), TellError> {
        self.actor.tell(fact)
    }
}

/// A fact that the master sends to an allocator.
pub trait AllocatorFact: runtime::Remote<Result = ()> {}

macro_rules! facts {
    ($($fact:ty),*) => { $(impl AllocatorFact for $fact {})* };
}
facts!(
    Begin,
    QuotasChanged,
    WeightsChanged,
    WhitelistChanged,
    AgentAdded,
    AgentRemoved,
    AgentActivity,
    UnavailabilityChanged,
    InverseAnswered,
    AgentOversubscribed,
    FrameworkAdded,
    FrameworkRemoved,
    FrameworkActivity,
    OfferBudgetSpent,
    Recovered,
    Converted,
    Suppressed,
    Revived,
    TasksListed
);
