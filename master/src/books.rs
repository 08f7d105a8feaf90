//! The books: all that the master knows, as one plain value that is cheap to take a snapshot of.
//!
//! Decisions are methods of [`Books`], one family a file: [`crate::admission`] (agents come and go),
//! [`crate::subscription`] (frameworks come and go), [`crate::standby`] (who of a framework's schedulers leads), [`crate::offering`], [`crate::hoarding`], [`crate::accept`], [`crate::status`],
//! [`crate::operations`], [`crate::draining`], [`crate::reconcile`], [`crate::kill`], [`crate::revocation`], [`crate::long_tasks`], [`crate::quota`], [`crate::weights`], [`crate::maintenance`], [`crate::explain`]. Each changes the books and appends [`Effects`]; none does I/O, reads a clock or
//! draws by chance. Large parts are shared behind `Arc`s, so that a snapshot costs one count, and the next change after it
//! copies only the maps' skeletons.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use authority::{Acls, Approver, Shared};
use module_api::allocator::Recovered;
use protocol::message::scheduler::{OfferRescinded, StatusChanged};
use protocol::{
    AgentId, FrameworkId, InverseOffer, MasterInfo, OfferId, Quota, Reason, Source, TaskId,
    TaskState, TaskStatus,
};
use resources::{Resource, Resources, Role};
use runtime::Timestamp;

use crate::agents::Agents;
use crate::config::Config;
use crate::counters::Counters;
use crate::dealings::Dealing;
use crate::effects::{Effects, Tell, ToAllocator, ToScheduler};
use crate::expected::Expected;
use crate::frameworks::{Framework, Frameworks};
use crate::hoarding::OfferBudget;
use crate::ids::Ids;
use crate::kill::EarlyKills;
use crate::long_tasks::LongTasks;
use crate::maintenance::Answers;
use crate::offers::Offers;
use crate::operations::{Operations, Pending};
use crate::registry::{Machines, RegistryState};
use crate::revocation::Revocations;
use crate::standby::Standbys;
use crate::tasks::{Freed, Limits, Tasks};
use crate::weights::{self, Weights};

/// What the operator has chosen, as far as decisions look at it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The roles that frameworks may have; `None` is any.
    pub roles: Option<BTreeSet<String>>,
    /// Whether frameworks and tasks may run as `root`.
    pub root_submissions: bool,
    /// Who may do what.
    pub acls: Shared<Acls>,
    /// After so long an unanswered offer is rescinded.
    pub offer_timeout: Option<Duration>,
    /// How many unanswered offers each framework may hold.
    pub offer_budget: Option<OfferBudget>,
    /// How long frameworks that were not seen since the master's start are kept at least.
    pub agent_reregister_timeout: Duration,
    /// Whether each framework has metrics of its own.
    pub publish_per_framework_metrics: bool,
}

/// All that the master knows.
#[derive(Clone, Debug)]
pub struct Books {
    /// Who this master is.
    pub master: MasterInfo,
    /// Since when it leads.
    pub elected: Timestamp,
    /// Since when it runs.
    pub started: Timestamp,
    /// The agents.
    pub agents: Agents,
    /// The frameworks.
    pub frameworks: Frameworks,
    /// Which schedulers wait for their turn to lead.
    pub standbys: Standbys,
    /// The offers.
    pub offers: Offers,
    /// The tasks.
    pub tasks: Tasks,
    /// The quotas of the roles that have one.
    pub quotas: Arc<BTreeMap<String, Quota>>,
    /// The weights of the roles that have not the default.
    pub weights: Arc<Weights>,
    /// The schedule of maintenance, and which machines are away.
    pub machines: Arc<Machines>,
    /// The inverse offers.
    pub inverse_offers: Offers<InverseOffer>,
    /// What frameworks said to inverse offers, since the plans for those agents were made.
    pub inverse_answers: Arc<Answers>,
    /// The operations that somebody wants to hear about.
    pub operations: Operations,
    /// What has happened.
    pub counters: Counters,
    /// Which roles whoever these books are shown to may see; `None` is all.
    pub(crate) roles_seen: Option<Arc<Approver>>,
    /// Whether the registry has been read.
    begun: bool,
    pub(crate) ids: Ids,
    /// What the last leader knew to be on the agents that are still awaited.
    pub(crate) expected: Option<Arc<Expected>>,
    /// The operations that were accepted and are not over.
    pub(crate) pending: Pending,
    /// Whether a look at the oldest offers is planned.
    pub(crate) expiry_planned: bool,
    /// Who holds as many offers as it may, as the allocator has heard.
    pub(crate) spent: BTreeSet<FrameworkId>,
    pub(crate) early_kills: EarlyKills,
    pub(crate) revocations: Revocations,
    pub(crate) long_tasks: Option<LongTasks>,
    pub(crate) policy: Policy,
}

impl Books {
    /// Empty books of this master.
    pub fn new(master: MasterInfo, config: &Config, now: Timestamp) -> Self {
        Self {
            ids: Ids::new(master.id.clone()),
            master,
            elected: now,
            started: now,
            agents: Agents::default(),
            frameworks: Frameworks::new(config.max_completed_frameworks),
            standbys: Standbys::default(),
            offers: Offers::default(),
            tasks: Tasks::new(Limits {
                completed: config.max_completed_tasks_per_framework,
                unreachable: config.max_unreachable_tasks_per_framework,
            }),
            quotas: Arc::default(),
            weights: Arc::new(config.weights.clone()),
            machines: Arc::default(),
            inverse_offers: Offers::default(),
            inverse_answers: Arc::default(),
            operations: Operations::default(),
            counters: Counters::default(),
            roles_seen: None,
            begun: false,
            expected: None,
            pending: Pending::default(),
            expiry_planned: false,
            spent: BTreeSet::new(),
            early_kills: BTreeMap::new(),
            revocations: BTreeMap::new(),
            long_tasks: None,
            policy: Policy {
                roles: config.roles.clone(),
                root_submissions: config.root_submissions,
                acls: config.acls.clone(),
                offer_timeout: config.offer_timeout,
                offer_budget: config.offer_budget,
                agent_reregister_timeout: config.agent_reregister_timeout,
                publish_per_framework_metrics: config.publish_per_framework_metrics,
            },
        }
    }

    /// Takes over what the registry holds at the beginning of a leadership.
    pub fn recover(&mut self, state: RegistryState, now: Timestamp, out: &mut Effects) {
        (self.elected, self.begun) = (now, true);
        let (held, warnings) = weights::effective(&self.weights, &state.weights);
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        (self.quotas, self.weights) = (Arc::new(state.quotas), Arc::new(held));
        self.machines = Arc::new(state.machines);
        self.agents.recover(state.agents, state.unreachable);
        self.agents.recover_orders(state.gone, state.orders);
        self.frameworks.recover_removed(state.removed_frameworks);
        for (id, entry) in state.frameworks {
            self.recover_framework(id, entry.info, entry.deadline, now, out);
        }
        self.recover_operations(&state.accepted);
        self.recover_leaders(state.leading, out);
        out.push(crate::effects::Effect::Later(
            self.policy.agent_reregister_timeout,
            crate::effects::Due::RecoveryOver,
        ));
    }

    /// The agents that the registry told of had this under the last leader, as far as is known here. It is only held against what they say.
    pub fn expect(&mut self, before: &Books) {
        if self.agents.recovered().next().is_some() {
            self.tasks.tell_newcomers(true);
            self.expected = Some(Arc::new(Expected::of(before)));
        }
    }

    /// Forgets what was expected once no agent is awaited any more.
    pub(crate) fn expect_no_more(&mut self) {
        if self.expected.is_some() && self.agents.recovered().next().is_none() {
            self.tasks.tell_newcomers(false);
            self.expected = None;
        }
    }

    /// Whether the registry has been read.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether nothing has been taken out for whoever they are shown to.
    pub(crate) fn is_whole(&self) -> bool {
        self.roles_seen.is_none()
    }

    /// Whether whoever these books are shown to may see this role.
    pub fn shows_role(&self, role: &str) -> bool {
        let seen = self.roles_seen.as_ref();
        seen.is_none_or(|approver| approver.allows(role))
    }

    /// Of an agent's resources, those of roles that are seen: what is reserved for others, or allocated to them, is left out.
    pub fn seen_of<'r>(&self, all: &'r Resources) -> Cow<'r, Resources> {
        if self.is_whole() {
            return Cow::Borrowed(all);
        }
        let shows = |role: &Role| self.shows_role(role.as_str());
        let is_seen = |resource: &Resource| {
            let mut stack = resource.reservations().iter();
            stack.all(|one| shows(&one.role)) && resource.allocation_role().is_none_or(shows)
        };
        Cow::Owned(all.filter(is_seen))
    }

    /// Whether all that can be known soon is known: each agent that the registry told of is back or given up, or has had `patience`.
    pub fn is_settled(&self, patience: Duration, now: Timestamp) -> bool {
        let awaits = self.agents.recovered().next().is_some();
        self.begun && (!awaits || now.saturating_since(self.elected) >= patience)
    }

    /// Tells the allocator that this is free again.
    pub(crate) fn recovered(&self, freed: Freed, refuse: Option<Duration>, out: &mut Effects) {
        self.tell_recovered(freed, refuse, false, out);
    }

    /// The same, of a task or executor that has ended. Beside an unanswered offer its resources would be a small offer of their own.
    pub(crate) fn recovered_by_end(&self, freed: Freed, out: &mut Effects) {
        let beside_offer = self.offers.of_agent(&freed.agent_id).next().is_some();
        self.tell_recovered(freed, None, beside_offer, out);
    }

    fn tell_recovered(
        &self,
        freed: Freed,
        refuse: Option<Duration>,
        beside_offer: bool,
        out: &mut Effects,
    ) {
        if !freed.resources.is_empty() {
            out.allocator(ToAllocator::Recovered(Recovered {
                framework_id: freed.framework_id,
                agent_id: freed.agent_id,
                resources: freed.resources,
                refuse,
                beside_offer,
            }));
        }
    }

    /// Takes these offers back: their frameworks are told, the allocator has the resources again, without a filter.
    pub(crate) fn rescind(&mut self, offers: Vec<OfferId>, out: &mut Effects) {
        self.rescind_refused(offers, None, out);
    }

    /// The same, with a filter of so long for who held them.
    pub(crate) fn rescind_refused(
        &mut self,
        offers: Vec<OfferId>,
        refuse: Option<Duration>,
        out: &mut Effects,
    ) {
        for id in offers {
            let Some(offer) = self.offers.remove(&id) else {
                continue;
            };
            self.counters.count("master/offers_rescinded");
            let framework = &offer.framework_id;
            self.frameworks.dealt(framework, Dealing::OfferRescinded, 1);
            let rescinded = ToScheduler::Rescind(OfferRescinded { offer_id: id });
            out.scheduler(self.frameworks.scheduler(framework), rescinded);
            self.frameworks.dealt_if_told(framework, Dealing::Rescind);
            self.recovered(freed_of(offer), refuse, out);
        }
    }

    /// Takes back all offers of one agent's resources.
    pub(crate) fn rescind_of_agent(&mut self, agent: &AgentId, out: &mut Effects) {
        let ids = self.offers.of_agent(agent).map(|offer| offer.id.clone());
        let ids = ids.collect();
        self.rescind(ids, out);
        self.rescind_inverse_of_agent(agent, out);
    }

    /// Takes back all offers made to one framework.
    pub(crate) fn rescind_of_framework(&mut self, framework: &FrameworkId, out: &mut Effects) {
        let ids = self.offers.of_framework(framework);
        let ids = ids.map(|offer| offer.id.clone()).collect();
        self.rescind(ids, out);
        let inverse = self.inverse_offers.of_framework(framework);
        let inverse = inverse.map(|offer| offer.id.clone()).collect();
        self.rescind_inverse(inverse, out);
    }

    /// Counts the end of a task, as its framework is told it.
    pub(crate) fn task_ended(&mut self, framework: &FrameworkId, status: &TaskStatus) {
        self.counters.task_ended(status);
        if let Some(end) = Dealing::ended(status.state) {
            self.frameworks.dealt(framework, end, 1);
        }
    }

    /// Tells a framework a status that the master itself made: it bears no uuid, so nobody acknowledges it.
    pub(crate) fn tell_status(
        &mut self,
        framework: &FrameworkId,
        status: TaskStatus,
        out: &mut Effects,
    ) {
        out.scheduler(
            self.frameworks.scheduler(framework),
            ToScheduler::Status(Box::new(StatusChanged { status })),
        );
    }
}

/// What is free when this offer is no longer out.
pub(crate) fn freed_offer(offer: &protocol::Offer) -> Freed {
    Freed {
        framework_id: offer.framework_id.clone(),
        agent_id: offer.agent_id.clone(),
        resources: offer.resources.clone(),
    }
}

/// The same of one that nobody needs any more, unless a snapshot has it.
pub(crate) fn freed_of(offer: Arc<protocol::Offer>) -> Freed {
    match Arc::try_unwrap(offer) {
        Ok(offer) => Freed {
            framework_id: offer.framework_id,
            agent_id: offer.agent_id,
            resources: offer.resources,
        },
        Err(shared) => freed_offer(&shared),
    }
}

/// A status that the master makes, in the words this framework understands.
pub(crate) fn master_status(
    framework: Option<&Framework>,
    task: &TaskId,
    state: TaskState,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
) -> TaskStatus {
    let state = framework.map_or_else(|| state.as_told(false), |f| f.told(state));
    let reason = match (reason, state) {
        // As Mesos: the finer reason comes with the finer state.
        (Reason::AgentRemovedByOperator, TaskState::Lost) => Reason::AgentRemoved,
        _ => reason,
    };
    TaskStatus::new(task.clone(), state, Source::Master, now).because(reason, message)
}

/// The sum of these.
pub(crate) fn sum<'a>(parts: impl IntoIterator<Item = &'a Resources>) -> Resources {
    let mut sum = Resources::default();
    for part in parts {
        sum += part;
    }
    sum
}

#[cfg(test)]
mod laws;
