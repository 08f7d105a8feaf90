//! The master's state: one plain value of which a snapshot is cheap.
//!
//! Decisions are methods of [`MasterState`], one family per file: [`crate::agents::admission`]
//! (registration and loss of agents), [`crate::frameworks::subscription`] (registration and loss of
//! frameworks), [`crate::frameworks::standby`] (the leading scheduler of a framework),
//! [`crate::offers::offering`], [`crate::offers::expiry`], [`crate::offers::accept`],
//! [`crate::tasks::status`], [`crate::operations`], [`crate::maintenance::draining`],
//! [`crate::tasks::reconcile`], [`crate::tasks::kill`], [`crate::tasks::revocation`],
//! [`crate::tasks::long`], [`crate::roles::quota`], [`crate::roles::weights`],
//! [`crate::maintenance`], [`crate::offers::explain`]. Each changes the state and appends
//! [`Effects`]; none does I/O, reads a clock or uses randomness. Large parts are behind `Arc`s: a
//! snapshot costs one reference count, and the first change after it copies only the skeletons of
//! the maps.
//!
//! | module | contents |
//! |---|---|
//! | `counters` | counters since the election of this master, under Mesos' names |
//! | `effects` | the actions that a decision requests, as data |
//! | `ids` | ids of agents, frameworks and offers, each used once in a leadership |
//! | `measure` | the decisions about synthetic agents, for tests |
//! | `offer_invariants` | only in tests: random orders of events between master and allocator |
//! | `size` | splits long lists into messages well below the maximum frame size |

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use authority::{Acls, Approver, Reloadable};
use module_api::allocator::Recovered;
use protocol::message::scheduler::{OfferRescinded, StatusChanged};
use protocol::{
    AgentId, FrameworkId, InverseOffer, MasterInfo, OfferId, Quota, Reason, Source, TaskId,
    TaskState, TaskStatus,
};
use resources::{Resource, Resources, Role};
use runtime::Timestamp;

use crate::agents::Agents;
use crate::agents::expected::Expected;
use crate::config::Config;
use crate::frameworks::counters::FrameworkCounter;
use crate::frameworks::standby::Standbys;
use crate::frameworks::{Framework, Frameworks};
use crate::maintenance::Answers;
use crate::offers::Offers;
use crate::offers::expiry::OfferBudget;
use crate::operations::{Operations, Pending};
use crate::registry::{Machines, RegistryState};
use crate::roles::weights::{self, Weights};
use crate::state::counters::Counters;
use crate::state::effects::{Effects, SendEffects, ToAllocator, ToScheduler};
use crate::state::ids::Ids;
use crate::tasks::kill::EarlyKills;
use crate::tasks::long::LongTasks;
use crate::tasks::revocation::Revocations;
use crate::tasks::{Freed, Limits, Tasks};

/// The operator's configuration that decisions need.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The roles that frameworks may have; `None` allows all.
    pub roles: Option<BTreeSet<String>>,
    /// Whether frameworks and tasks may run as `root`.
    pub root_submissions: bool,
    /// Access control lists.
    pub acls: Reloadable<Acls>,
    /// An unanswered offer is rescinded after this time.
    pub offer_timeout: Option<Duration>,
    /// Maximum unanswered offers per framework.
    pub offer_budget: Option<OfferBudget>,
    /// Minimum time for which frameworks without a scheduler since the master's start are kept.
    pub agent_reregister_timeout: Duration,
    /// Whether each framework has its own metrics.
    pub publish_per_framework_metrics: bool,
}

/// The whole state of a master.
#[derive(Clone, Debug)]
pub struct MasterState {
    /// This master's address and id.
    pub master: MasterInfo,
    /// When it was elected.
    pub elected: Timestamp,
    /// When it was started.
    pub started: Timestamp,
    /// The agents.
    pub agents: Agents,
    /// The frameworks.
    pub frameworks: Frameworks,
    /// Schedulers that wait to lead their frameworks.
    pub standbys: Standbys,
    /// The offers.
    pub offers: Offers,
    /// The tasks.
    pub tasks: Tasks,
    /// Quotas of the roles that have one.
    pub quotas: Arc<BTreeMap<String, Quota>>,
    /// Weights of the roles that do not have the default.
    pub weights: Arc<Weights>,
    /// The maintenance schedule, and the machines that are down.
    pub machines: Arc<Machines>,
    /// The inverse offers.
    pub inverse_offers: Offers<InverseOffer>,
    /// Answers of frameworks to inverse offers of the current maintenance plans.
    pub inverse_answers: Arc<Answers>,
    /// Operations of frameworks that want status updates.
    pub operations: Operations,
    /// The counters of the metrics.
    pub counters: Counters,
    /// Filter of the roles that the viewer may see; `None` shows all.
    pub(crate) visible_roles: Option<Arc<Approver>>,
    /// Whether the registry has been read.
    begun: bool,
    pub(crate) ids: Ids,
    /// The previous leader's knowledge of the agents that are still awaited.
    pub(crate) expected: Option<Arc<Expected>>,
    /// Operations that are accepted and not over.
    pub(crate) pending: Pending,
    /// Whether an expiry check of the oldest offers is scheduled.
    pub(crate) expiry_planned: bool,
    /// Frameworks at their offer budget, as last reported to the allocator.
    pub(crate) over_budget: BTreeSet<FrameworkId>,
    pub(crate) early_kills: EarlyKills,
    pub(crate) revocations: Revocations,
    pub(crate) long_tasks: Option<LongTasks>,
    pub(crate) policy: Policy,
}

impl MasterState {
    /// An empty state.
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
            visible_roles: None,
            begun: false,
            expected: None,
            pending: Pending::default(),
            expiry_planned: false,
            over_budget: BTreeSet::new(),
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

    /// Takes over the registry's state at the start of a leadership.
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
        out.push(crate::state::effects::Effect::Later(
            self.policy.agent_reregister_timeout,
            crate::state::effects::Due::RecoveryOver,
        ));
    }

    /// Records the previous leader's knowledge of the recovered agents. It is only compared with
    /// their own reports.
    pub fn expect(&mut self, before: &MasterState) {
        if self.agents.recovered().next().is_some() {
            self.tasks.track_newcomers(true);
            self.expected = Some(Arc::new(Expected::of(before)));
        }
    }

    /// Drops the expectations once no agent is awaited.
    pub(crate) fn drop_expectations(&mut self) {
        if self.expected.is_some() && self.agents.recovered().next().is_none() {
            self.tasks.track_newcomers(false);
            self.expected = None;
        }
    }

    /// Whether the registry has been read.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether nothing has been filtered out for the viewer.
    pub(crate) fn is_whole(&self) -> bool {
        self.visible_roles.is_none()
    }

    /// Whether the viewer may see this role.
    pub fn shows_role(&self, role: &str) -> bool {
        let seen = self.visible_roles.as_ref();
        seen.is_none_or(|approver| approver.allows(role))
    }

    /// The part of an agent's resources that the viewer may see: resources reserved for or
    /// allocated to other roles are left out.
    pub fn visible_part<'r>(&self, all: &'r Resources) -> Cow<'r, Resources> {
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

    /// Whether the state is complete: each recovered agent has returned or was given up, or
    /// `patience` has passed since the election.
    pub fn is_settled(&self, patience: Duration, now: Timestamp) -> bool {
        let awaits = self.agents.recovered().next().is_some();
        self.begun && (!awaits || now.saturating_since(self.elected) >= patience)
    }

    /// Reports freed resources to the allocator.
    pub(crate) fn recovered(&self, freed: Freed, refuse: Option<Duration>, out: &mut Effects) {
        self.tell_recovered(freed, refuse, false, out);
    }

    /// The same for an ended task or executor. Next to an unanswered offer its resources would
    /// become a small offer of their own.
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

    /// Rescinds these offers: frameworks are notified, and the allocator gets the resources back
    /// without a filter.
    pub(crate) fn rescind(&mut self, offers: Vec<OfferId>, out: &mut Effects) {
        self.rescind_refused(offers, None, out);
    }

    /// The same, with a filter of this duration for the holder.
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
            self.frameworks
                .count(framework, FrameworkCounter::OfferRescinded, 1);
            let rescinded = ToScheduler::Rescind(OfferRescinded { offer_id: id });
            out.scheduler(self.frameworks.scheduler(framework), rescinded);
            self.frameworks
                .count_if_connected(framework, FrameworkCounter::Rescind);
            self.recovered(freed_of(offer), refuse, out);
        }
    }

    /// Rescinds all offers of an agent's resources.
    pub(crate) fn rescind_of_agent(&mut self, agent: &AgentId, out: &mut Effects) {
        let ids = self.offers.of_agent(agent).map(|offer| offer.id.clone());
        let ids = ids.collect();
        self.rescind(ids, out);
        self.rescind_inverse_of_agent(agent, out);
    }

    /// Rescinds all offers made to a framework.
    pub(crate) fn rescind_of_framework(&mut self, framework: &FrameworkId, out: &mut Effects) {
        let ids = self.offers.of_framework(framework);
        let ids = ids.map(|offer| offer.id.clone()).collect();
        self.rescind(ids, out);
        let inverse = self.inverse_offers.of_framework(framework);
        let inverse = inverse.map(|offer| offer.id.clone()).collect();
        self.rescind_inverse(inverse, out);
    }

    /// Counts the end of a task as it is reported to its framework.
    pub(crate) fn task_ended(&mut self, framework: &FrameworkId, status: &TaskStatus) {
        self.counters.task_ended(status);
        if let Some(end) = FrameworkCounter::ended(status.state) {
            self.frameworks.count(framework, end, 1);
        }
    }

    /// Sends a framework a status made by the master. It has no uuid and is not acknowledged.
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

/// The resources freed when this offer ends.
pub(crate) fn freed_offer(offer: &protocol::Offer) -> Freed {
    Freed {
        framework_id: offer.framework_id.clone(),
        agent_id: offer.agent_id.clone(),
        resources: offer.resources.clone(),
    }
}

/// The same without a copy, unless a snapshot still holds the offer.
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

/// A status made by the master, in the states that this framework understands.
pub(crate) fn master_status(
    framework: Option<&Framework>,
    task: &TaskId,
    state: TaskState,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
) -> TaskStatus {
    let state = framework.map_or_else(|| state.for_framework(false), |f| f.report_state(state));
    let reason = match (reason, state) {
        // As in Mesos: the finer reason is used only with the finer state.
        (Reason::AgentRemovedByOperator, TaskState::Lost) => Reason::AgentRemoved,
        _ => reason,
    };
    TaskStatus::new(task.clone(), state, Source::Master, now).with_reason(reason, message)
}

pub(crate) fn sum<'a>(parts: impl IntoIterator<Item = &'a Resources>) -> Resources {
    let mut sum = Resources::default();
    for part in parts {
        sum += part;
    }
    sum
}

pub mod counters;
pub mod effects;
pub mod ids;
#[cfg(test)]
pub(crate) mod measure;
#[cfg(test)]
mod offer_invariants;
pub(crate) mod size;
