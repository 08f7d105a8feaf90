//! The allocator's interface: it keeps the books of who holds what, and says who is offered what next.
//!
//! Hears facts from the master, in the order they happened; answers with [`Granted`], [`Withdrawn`] and [`InverseGranted`], and with
//! [`TasksWanted`], [`VictimsNamed`], [`StillLacking`] and [`LongTasksBounded`] where tasks may have to make room. Both sides may name a
//! framework or agent that the other has just removed, so an unknown one is never an error. The master never waits for the allocator. An allocator may
//! also explain itself ([`Explain`]); one that does not is still one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::explain::Explanation;
use protocol::{
    AgentId, AgentInfo, FrameworkId, FrameworkInfo, Quota, TaskId, Unavailability, Wants,
};
use resources::{Name, Quantities, Resources};
use runtime::{ActorRef, AskError, Pid, TellError, Timestamp, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

/// Begin: tell grants to `master`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Who hears [`Granted`] and all else that an allocator says.
    pub master: Pid,
    /// How long after one run the next begins by itself; also the floor of every offer filter (1 s by default).
    pub allocation_interval: Duration,
    /// The weight of each role that has not weight 1; always above zero.
    pub weights: BTreeMap<String, f64>,
    /// The quota of each role that has one.
    pub quotas: BTreeMap<String, Quota>,
    /// The master's own region, if it says: agents of another are for frameworks that are `REGION_AWARE`.
    pub region: Option<String>,
    /// How many agents the registry knows. If there is any quota, nothing is granted before so many of them are back as a
    /// [`RecoveryPause`] says.
    pub agents_expected: u64,
}

/// How long nothing is granted after a [`Begin`] with quotas: what is missing could be what a guarantee needs (SPEC 4.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryPause {
    /// The part of the expected agents that ends it, from 0 to 1 (0.8 by default). Less ends it sooner, and guarantees may not be met then.
    pub factor: f64,
    /// The longest that it lasts (10 minutes by default).
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

/// From now on these roles have these quotas; the default is none. The others keep theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotasChanged {
    /// By role.
    pub quotas: BTreeMap<String, Quota>,
}

/// From now on these roles have these weights, each above zero. The others keep theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightsChanged {
    /// By role.
    pub weights: BTreeMap<String, f64>,
}

/// From now on only agents of these hosts are offered; said after [`Begin`] too, if there is such a list. What is held stays held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhitelistChanged {
    /// The hosts, in any case; `None` is all.
    pub hosts: Option<BTreeSet<String>>,
}

/// An agent may be offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentAdded {
    /// Which; an earlier agent of that id is replaced.
    pub agent_id: AgentId,
    /// Which registration of it this is. Every grant there bears it, so that the master knows one made before the allocator
    /// heard of this registration: nobody holds what that gave.
    pub session: u64,
    /// What it is and has.
    pub info: AgentInfo,
    /// What it lends, allocated and available together; all revocable.
    pub oversubscribed: Resources,
    /// What frameworks hold there already.
    pub used: Vec<(FrameworkId, Resources)>,
}

/// An agent is no more; whatever was held there is free and gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRemoved {
    /// Which.
    pub agent_id: AgentId,
}

/// An agent is to be offered, or not for the present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentActivity {
    /// Which.
    pub agent_id: AgentId,
    /// Whether it is offered.
    pub active: bool,
}

/// When an agent will be away is something else from now on (SPEC 3.6, 4.7); it holds until it is said anew or the agent is removed. Said
/// after the first [`AgentAdded`], if the agent will be away. Which frameworks were asked to leave it is forgotten: they may be asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailabilityChanged {
    /// Which.
    pub agent_id: AgentId,
    /// When; `None` is not at all.
    pub unavailability: Option<Unavailability>,
}

/// A framework is not being asked to leave that agent any more: it has answered, or was not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseAnswered {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which agent.
    pub agent_id: AgentId,
    /// For how long it is not to be asked again; `None` is no filter.
    pub refuse: Option<Duration>,
}

/// What an agent lends has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentOversubscribed {
    /// Which.
    pub agent_id: AgentId,
    /// All it lends now, allocated and available together; all revocable.
    pub total: Resources,
}

/// A framework may be offered to. Said again when its info has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkAdded {
    /// Which.
    pub framework_id: FrameworkId,
    /// What it is.
    pub info: FrameworkInfo,
    /// Which offers it would like.
    pub wants: Wants,
    /// Whether it is offered anything at present.
    pub active: bool,
}

/// A framework is no more. What it held was recovered before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkRemoved {
    /// Which.
    pub framework_id: FrameworkId,
}

/// A framework is to be offered to, or not for the present. Going inactive drops its filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkActivity {
    /// Which.
    pub framework_id: FrameworkId,
    /// Whether it is offered anything.
    pub active: bool,
}

/// A framework holds as many unanswered offers as it may, or no longer (W8). While it does it is granted nothing: the master takes no more
/// grants to it, and says that what they gave is free again. Its filters stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferBudgetSpent {
    /// Which.
    pub framework_id: FrameworkId,
    /// How many it may hold, as long as it holds them; `None` is from now on not any more.
    pub most: Option<u64>,
}

/// What was granted to a framework is free again: an offer was declined, rescinded or not used up, or a task has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// Who held it.
    pub framework_id: FrameworkId,
    /// Where.
    pub agent_id: AgentId,
    /// What; each resource bears the role it was allocated to.
    pub resources: Resources,
    /// For how long this framework wants nothing contained in it; `None` is no filter. Zero is none either, but says that the
    /// framework has just refused this: it is offered again with the next batch, not at once.
    pub refuse: Option<Duration>,
    /// Whether another offer of that agent is unanswered. The agent is offered again when that offer is answered, or with the next
    /// batch, so that its free resources go out in one offer.
    pub beside_offer: bool,
}

/// An operation has turned what a framework holds into something else: the agent has the one no more, and the other instead. Nothing that
/// turns into a shared volume that the agent has already is one copy more of it for the framework: another task uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Converted {
    /// Who holds it, before and after.
    pub framework_id: FrameworkId,
    /// Where.
    pub agent_id: AgentId,
    /// What is no more; each resource bears the role it is allocated to.
    pub consumed: Resources,
    /// What there is instead; each resource bears the role it is allocated to.
    pub converted: Resources,
}

/// A framework wants no offers for these of its roles; empty is all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressed {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which roles.
    pub roles: BTreeSet<String>,
}

/// A framework wants offers again for these of its roles (empty is all), its filters there forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revived {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which roles.
    pub roles: BTreeSet<String>,
}

/// These are the next offers. They count as held until recovered (S128).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// In the order they were decided.
    pub grants: Vec<Grant>,
}

/// Resources of one agent for one framework in one role; regular and revocable ones are never in one grant (S61).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// To whom.
    pub framework_id: FrameworkId,
    /// In which role; the resources bear it as their allocation.
    pub role: String,
    /// Where.
    pub agent_id: AgentId,
    /// In which registration of that agent, as [`AgentAdded`] said.
    pub session: u64,
    /// What.
    pub resources: Resources,
}

/// These frameworks should be asked to leave these agents. Each is not asked again about the same one before the master says that it has
/// answered ([`InverseAnswered`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseGranted {
    /// In no particular order.
    pub grants: Vec<InverseGrant>,
}

/// A framework that has something on an agent which will be away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InverseGrant {
    /// Who.
    pub framework_id: FrameworkId,
    /// Which agent; the whole of it.
    pub agent_id: AgentId,
    /// When it will be away.
    pub unavailability: Unavailability,
}

/// What was granted there and is only offered yet should be rescinded, as far as it contains any of this; then recovered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// Where.
    pub agent_id: AgentId,
    /// What is wanted back.
    pub resources: Resources,
}

/// The allocator would like to know what runs on these agents: somebody lacks what is guaranteed to it, and tasks may have to make room
/// (S123). The master takes back what is only offered there, and answers with [`TasksListed`], since it alone knows tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksWanted {
    /// Comes back with the answer, so that one to an earlier question is known.
    pub number: u64,
    /// Which agents.
    pub agents: BTreeSet<AgentId>,
    /// The roles that lack something; what is offered to them, or to roles below them, stays.
    pub roles: BTreeSet<String>,
    /// What they lack; offers without any of it stay as well.
    pub names: BTreeSet<Name>,
}

/// What runs on the agents that the allocator has asked about, as it is after all facts told before; of much in several pieces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TasksListed {
    /// Of the question.
    pub number: u64,
    /// Another piece; together they have each task there that has not ended once, and each elsewhere that leaves. There is no answer while
    /// the master waits for agents after its election.
    pub tasks: Vec<ListedTask>,
    /// In the last piece: what counts against each role's quota without what is only offered. Those above it include it.
    pub consumed: Option<BTreeMap<String, Quantities>>,
}

/// A task that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedTask {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub task_id: TaskId,
    /// Where.
    pub agent_id: AgentId,
    /// What it uses; each resource bears the role it is allocated to.
    pub resources: Resources,
    /// How important its framework holds it to be; the least important make room first. The least of all if it is being killed anyway.
    pub priority: i32,
    /// Since when it runs, if it does.
    pub since: Option<Timestamp>,
    /// It was told that it must go.
    pub leaves: bool,
}

/// These tasks are to make room: their frameworks are to be warned, and the tasks killed after that time if they have not ended by then
/// (S122).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VictimsNamed {
    /// In no particular order.
    pub victims: Vec<Victim>,
    /// How long they have.
    pub grace: Duration,
}

/// A task that is to make room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub task_id: TaskId,
    /// Where.
    pub agent_id: AgentId,
    /// The role that lacks what is guaranteed to it.
    pub role: String,
}

/// Only these roles still lack what is guaranteed to them: a task that was named for any other may stay, unless it is killed already (S122).
/// Said when a role for which tasks were named lacks nothing any more, or wants nothing, and once after each [`Begin`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillLacking {
    /// The roles, none if nothing lacks anywhere.
    pub roles: BTreeSet<String>,
}

/// How much of each agent long tasks may use, and for how long a task may run that is not marked as long (S121). Said after each [`Begin`],
/// if at all. The master sees to it, since it alone knows tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongTasksBounded {
    /// Of each resource that an agent has and nothing reserves, in thousandths.
    pub share: u16,
    /// How long a task may run that is not marked as long, before it is revoked; `None` is for ever.
    pub short_max: Option<Duration>,
    /// How long such a task has then from the warning on.
    pub grace: Duration,
}

/// Why is this framework offered nothing (W26)? Asked only when somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explain {
    /// Which framework.
    pub framework_id: FrameworkId,
    /// In this role; `None` is each of its roles.
    pub role: Option<String>,
    /// On this agent, every reason; `None` is on all agents, counted by reason.
    pub agent_id: Option<AgentId>,
}

/// How does it stand? Answered with numbers by name, as `/metrics/snapshot` shows them (SPEC 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure;

remote! { Begin = "allocator/begin" v2 }
remote! { QuotasChanged = "allocator/quotas_changed" v1 }
remote! { WeightsChanged = "allocator/weights_changed" v1 }
remote! { WhitelistChanged = "allocator/whitelist_changed" v1 }
remote! { AgentAdded = "allocator/agent_added" v2 }
remote! { AgentRemoved = "allocator/agent_removed" v1 }
remote! { AgentActivity = "allocator/agent_activity" v1 }
remote! { UnavailabilityChanged = "allocator/unavailability_changed" v1 }
remote! { InverseAnswered = "allocator/inverse_answered" v1 }
remote! { AgentOversubscribed = "allocator/agent_oversubscribed" v1 }
remote! { FrameworkAdded = "allocator/framework_added" v3 }
remote! { FrameworkRemoved = "allocator/framework_removed" v1 }
remote! { FrameworkActivity = "allocator/framework_activity" v1 }
remote! { OfferBudgetSpent = "allocator/offer_budget_spent" v1 }
remote! { Recovered = "allocator/recovered" v2 }
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
remote! { Explain = "allocator/explain" v3 -> Result<Explanation, Fault> }

/// The master's hold on its allocator.
#[derive(Clone)]
pub struct AllocatorRef {
    actor: ActorRef,
}

impl AllocatorRef {
    /// Speaks to the allocator behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self { actor }
    }

    /// Whom it speaks to.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// How long an explanation may take.
    const EXPLAIN_PATIENCE: Duration = Duration::from_secs(4);

    /// How long the allocator's metrics may take: whoever is late is left out, as in Mesos.
    const MEASURE_PATIENCE: Duration = Duration::from_secs(1);

    /// Asks how it stands. An allocator that does not say has no metrics.
    pub fn measure(
        &self,
    ) -> impl Future<Output = Result<BTreeMap<String, f64>, ModuleError>> + Send + use<> {
        let measured = self.actor.ask(Measure, Self::MEASURE_PATIENCE);
        async move {
            let measured = measured.await;
            measured.map_err(|error| ModuleError::of_ask(ModuleKind::Allocator, error))
        }
    }

    /// Asks why a framework is offered nothing. An allocator that never explains says so.
    pub fn explain(
        &self,
        question: Explain,
    ) -> impl Future<Output = Result<Explanation, ModuleError>> + Send + use<> {
        let kind = ModuleKind::Allocator;
        let answer = self.actor.ask(question, Self::EXPLAIN_PATIENCE);
        async move {
            let answer = answer.await.map_err(|error| match error {
                AskError::Refused { .. } => {
                    let reason = "it does not explain itself".to_owned();
                    let fault = Fault::Failed { reason };
                    ModuleError::Fault { kind, fault }
                }
                error => ModuleError::of_ask(kind, error),
            });
            answer?.map_err(|fault| ModuleError::Fault { kind, fault })
        }
    }

    /// Tells one of the facts of this file. An error means that the allocator is down or drowned.
    pub fn tell<F: AllocatorFact>(&self, fact: F) -> Result<(), TellError> {
        self.actor.tell(fact)
    }
}

/// A fact that an allocator hears from the master.
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
