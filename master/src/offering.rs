//! Offering: grants become offers, and offers are declined or taken back (SPEC 2.2, 2.3, 5.7, S55). When they expire: [`crate::hoarding`].
//!
//! Pure decisions on [`Books`]. What the allocator granted in ignorance of what has just happened goes straight back to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::allocator::{
    AgentAdded, AgentOversubscribed, FrameworkAdded, Grant, Granted, Revived, Suppressed, Withdrawn,
};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::scheduler::{DeclineOffers, OffersMade, ReviveOffers, SuppressOffers};
use protocol::{Capability, FrameworkId, Offer, OfferId};
use resources::{Resource, Resources};
use runtime::{Pid, Timestamp};
use rustc_hash::FxHashMap;

use crate::agents::Agent;
use crate::books::{Books, freed_of, freed_offer};
use crate::dealings::Dealing;
use crate::effects::{Effects, Tell, ToAllocator, ToScheduler};
use crate::maintenance::tell_plan;
use crate::size::offers_in_frames;
use crate::tasks::Freed;

impl Books {
    /// The allocator has granted: each framework is told its offers, several in one message.
    pub fn granted(&mut self, granted: Granted, now: Timestamp, out: &mut Effects) {
        // A run deals to hundreds of frameworks in turn: where each one's offers are is found by hash.
        let mut made: Vec<(FrameworkId, Pid, Vec<Offer>)> = Vec::new();
        let mut places: FxHashMap<FrameworkId, usize> = FxHashMap::default();
        let most = self.offers_max();
        let mut count = 0;
        for grant in granted.grants {
            let agent = self.agents.get(&grant.agent_id);
            let told = agent.map(|agent| self.agents.session_told(agent));
            if told.is_some_and(|session| session != grant.session) {
                // Granted before the allocator heard that the agent has registered anew, or by books that have begun anew since: nobody
                // holds it in those that there are.
                continue;
            }
            let scheduler = agent.and_then(|agent| Some((agent, self.may_offer(&grant, agent)?)));
            let Some((agent, pid)) = scheduler else {
                self.recovered(freed_grant(grant), None, out);
                continue;
            };
            if let Some(most) = most.filter(|_| !self.has_budget(&grant.framework_id, most)) {
                self.over_budget(freed_grant(grant), most, out);
                continue;
            }
            let place = places.get(&grant.framework_id).copied();
            let place = place.unwrap_or_else(|| {
                made.push((grant.framework_id.clone(), pid.clone(), Vec::new()));
                places.insert(grant.framework_id.clone(), made.len() - 1);
                made.len() - 1
            });
            let offer = self.offer(grant, agent);
            self.ids.offer();
            count += 1;
            self.offers.insert(Arc::new(offer.clone()));
            made[place].2.push(offer);
        }
        self.counters.add("master/offers_made", count);
        made.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        for (_, pid, offers) in made {
            for offers in offers_in_frames(offers) {
                out.scheduler(Some(&pid), ToScheduler::Offers(OffersMade { offers }));
            }
        }
        self.plan_expiry(now, out);
    }

    /// The scheduler to which this may be offered still.
    fn may_offer(&self, grant: &Grant, agent: &Agent) -> Option<&Pid> {
        let framework = self.frameworks.get(&grant.framework_id)?;
        let scheduler = framework.scheduler.as_ref()?;
        if !agent.is_active() {
            return None;
        }
        let revocable = grant.resources.iter().any(Resource::is_revocable);
        let may = framework.info.roles.contains(&grant.role)
            && (!revocable || framework.info.can(Capability::RevocableResources));
        (may && !grant.resources.is_empty()).then_some(scheduler)
    }

    /// The offer that a grant becomes.
    fn offer(&self, grant: Grant, agent: &Agent) -> Offer {
        let executors = self.tasks.on_agent(&grant.agent_id);
        let executor_ids = executors.map(|on| {
            let mine = on
                .executors()
                .filter(|(owner, _)| **owner == grant.framework_id);
            mine.map(|(_, info)| info.executor_id.clone()).collect()
        });
        Offer {
            id: self.ids.next_offer(),
            hostname: agent.info.hostname.clone(),
            attributes: self.offered_attributes(&grant.agent_id, &agent.info.attributes),
            executor_ids: executor_ids.unwrap_or_default(),
            unavailability: agent.unavailability,
            domain: agent.info.domain.clone(),
            served: Some(agent.served()),
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            role: grant.role,
            resources: grant.resources,
        }
    }

    /// The allocator wants resources back: offers that contain any of them are rescinded, until enough is. Those that
    /// may not be throttled go first, then revocable ones, then regular ones (S56, S61).
    pub fn withdrawn(&mut self, withdrawn: &Withdrawn, out: &mut Effects) {
        let mut wanted = withdrawn.resources.unallocate();
        let mut offers: Vec<Arc<Offer>> =
            self.offers.of_agent(&withdrawn.agent_id).cloned().collect();
        offers.sort_by_key(|offer| kind(&offer.resources));
        let mut rescinded = Vec::new();
        for offer in offers {
            let held = offer.resources.unallocate();
            let rest = wanted.saturating_sub(&held);
            if rest != wanted {
                rescinded.push(offer.id.clone());
                wanted = rest;
            }
        }
        self.rescind(rescinded, out);
    }

    /// These offers did not go out to their framework: they are free again.
    pub fn not_offered(&mut self, ids: Vec<OfferId>, out: &mut Effects) {
        for id in ids {
            if let Some(offer) = self.offers.remove(&id) {
                self.recovered(freed_offer(&offer), None, out);
            }
            self.take_inverse(&id, None, out);
        }
        self.renew_budgets(out);
    }

    /// The allocator has forgotten what it granted: all offers are rescinded.
    pub fn rescind_all(&mut self, out: &mut Effects) {
        let ids = self.offers.iter().map(|offer| offer.id.clone()).collect();
        self.rescind(ids, out);
        let inverse = self.inverse_offers.iter().map(|offer| offer.id.clone());
        let inverse = inverse.collect();
        self.rescind_inverse(inverse, out);
    }

    /// Tells the allocator all frameworks and agents, as if they had just come.
    pub fn retell_allocator(&self, out: &mut Effects) {
        for framework in self.frameworks.iter() {
            out.allocator(ToAllocator::FrameworkAdded(Box::new(FrameworkAdded {
                framework_id: framework.id.clone(),
                info: framework.info.clone(),
                wants: framework.wants.clone(),
                active: framework.is_connected(),
            })));
        }
        for agent in self.agents.iter() {
            let on = self.tasks.on_agent(&agent.id);
            let held = on.into_iter().flat_map(|on| on.held().iter());
            out.allocator(ToAllocator::AgentAdded(Box::new(AgentAdded {
                agent_id: agent.id.clone(),
                session: self.agents.session_told(agent),
                info: agent.info.clone(),
                oversubscribed: agent.oversubscribed.clone(),
                used: held.map(|(of, held)| (of.clone(), held.clone())).collect(),
            })));
            self.tell_inactive(agent, out);
            if agent.unavailability.is_some() {
                tell_plan(&agent.id, agent.unavailability, out);
            }
        }
    }

    /// The framework does not want these; what is not its offer is ignored.
    pub fn decline(&mut self, call: DeclineOffers, out: &mut Effects) {
        self.counters.count("master/messages_decline_offers");
        let refuse = Some(call.filters.refuse());
        let mut declined = 0;
        for id in &call.offer_ids {
            let own = |offer: &Offer| offer.framework_id == call.framework_id;
            if let Some(offer) = self.offers.remove_if(id, own) {
                declined += 1;
                self.recovered(freed_of(offer), refuse, out);
            }
        }
        let framework = &call.framework_id;
        self.frameworks
            .dealt(framework, Dealing::OfferDeclined, declined);
    }

    /// The framework wants offers again.
    pub fn revive(&mut self, call: ReviveOffers, out: &mut Effects) {
        self.counters.count("master/messages_revive_offers");
        let Some(roles) = self.own_roles(&call.framework_id, call.roles) else {
            return;
        };
        self.frameworks.suppress(&call.framework_id, &roles, false);
        let framework_id = call.framework_id;
        out.allocator(ToAllocator::Revived(Revived {
            framework_id,
            roles,
        }));
    }

    /// The framework wants no more offers. Those that are out stay.
    pub fn suppress(&mut self, call: SuppressOffers, out: &mut Effects) {
        self.counters.count("master/messages_suppress_offers");
        let Some(roles) = self.own_roles(&call.framework_id, call.roles) else {
            return;
        };
        self.frameworks.suppress(&call.framework_id, &roles, true);
        let framework_id = call.framework_id;
        out.allocator(ToAllocator::Suppressed(Suppressed {
            framework_id,
            roles,
        }));
    }

    /// Those of these roles that the framework has; none stand for all of its own. The others are passed over. Nothing if it has none of them, or
    /// is not known.
    fn own_roles(
        &mut self,
        framework: &FrameworkId,
        mut roles: BTreeSet<String>,
    ) -> Option<BTreeSet<String>> {
        let known = self.frameworks.get(framework)?;
        let Some(role) = roles.difference(&known.info.roles).next() else {
            return Some(roles);
        };
        tracing::warn!(%framework, role, "passing over a role that the framework does not have");
        roles.retain(|role| known.info.roles.contains(role));
        self.counters.count("master/dropped_messages");
        (!roles.is_empty()).then_some(roles)
    }

    /// What an agent lends has changed: its total is replaced, and offers of revocable resources there are rescinded.
    pub fn oversubscribed(
        &mut self,
        changed: OversubscribedChanged,
        out: &mut Effects,
    ) -> Result<(), String> {
        self.counters.count("master/messages_update_slave");
        check_oversubscribed(&changed.total)?;
        let id = changed.agent_id;
        if self.agents.get(&id).is_none() {
            return Err(format!("agent_id is `{id}`: expected a registered agent"));
        }
        let total = changed.total.clone();
        self.agents
            .update(&id, |agent| agent.oversubscribed = total);
        out.allocator(ToAllocator::AgentOversubscribed(AgentOversubscribed {
            agent_id: id.clone(),
            total: changed.total,
        }));
        let revocable = self
            .offers
            .of_agent(&id)
            .filter(|offer| offer.resources.iter().any(Resource::is_revocable))
            .map(|offer| offer.id.clone())
            .collect();
        self.rescind(revocable, out);
        Ok(())
    }
}

/// What is free again when a grant becomes no offer.
fn freed_grant(grant: Grant) -> Freed {
    Freed {
        framework_id: grant.framework_id,
        agent_id: grant.agent_id,
        resources: grant.resources,
    }
}

/// Only revocable resources can be lent.
pub(crate) fn check_oversubscribed(total: &Resources) -> Result<(), String> {
    match total.iter().find(|resource| !resource.is_revocable()) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "oversubscribed is `{wrong}`: expected revocable resources only"
        )),
    }
}

/// In which order offers are taken back.
fn kind(resources: &Resources) -> u8 {
    let revocable = resources.iter().any(Resource::is_revocable);
    let throttleable = resources.iter().all(Resource::is_throttleable);
    match (revocable, throttleable) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    }
}
