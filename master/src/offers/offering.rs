//! Offering: turns grants into offers, and ends offers by decline or rescission. Expiry is in
//! [`crate::offers::expiry`].
//!
//! Pure decisions on [`MasterState`]. Grants that are outdated by newer changes go straight back to
//! the allocator.

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
use crate::frameworks::counters::FrameworkCounter;
use crate::maintenance::send_plan;
use crate::state::effects::{Effects, SendEffects, ToAllocator, ToScheduler};
use crate::state::size::offers_in_frames;
use crate::state::{MasterState, freed_of, freed_offer};
use crate::tasks::Freed;

impl MasterState {
    /// Turns grants into offers, several per message.
    pub fn granted(&mut self, granted: Granted, now: Timestamp, out: &mut Effects) {
        // A run grants to hundreds of frameworks in turn: the offers of each are found by hash.
        let mut made: Vec<(FrameworkId, Pid, Vec<Offer>)> = Vec::new();
        let mut places: FxHashMap<FrameworkId, usize> = FxHashMap::default();
        let most = self.offers_max();
        let mut count = 0;
        for grant in granted.grants {
            let agent = self.agents.get(&grant.agent_id);
            let current = agent.map(|agent| self.agents.allocator_session(agent));
            if current.is_some_and(|session| session != grant.session) {
                // Granted before the allocator saw the agent's new registration, or before its own
                // restart: its current state does not contain this grant.
                continue;
            }
            let scheduler = agent.and_then(|agent| Some((agent, self.may_offer(&grant, agent)?)));
            let Some((agent, pid)) = scheduler else {
                self.recovered(freed_grant(grant), None, out);
                continue;
            };
            if let Some(most) = most.filter(|_| !self.has_budget(&grant.framework_id, most)) {
                self.refuse_over_budget(freed_grant(grant), most, out);
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

    /// The scheduler that may still get this offer.
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

    /// The offer for a grant.
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
            endpoint: Some(agent.endpoint()),
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            role: grant.role,
            resources: grant.resources,
        }
    }

    /// The allocator withdraws resources: rescinds offers that contain them until enough is free.
    /// Order: revocable and not throttleable, other revocable, regular.
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

    /// These offers could not be sent: their resources are free again.
    pub fn not_offered(&mut self, ids: Vec<OfferId>, out: &mut Effects) {
        for id in ids {
            if let Some(offer) = self.offers.remove(&id) {
                self.recovered(freed_offer(&offer), None, out);
            }
            self.remove_inverse(&id, None, out);
        }
        self.renew_budgets(out);
    }

    /// Rescinds all offers, because the allocator has lost its grants.
    pub fn rescind_all(&mut self, out: &mut Effects) {
        let ids = self.offers.iter().map(|offer| offer.id.clone()).collect();
        self.rescind(ids, out);
        let inverse = self.inverse_offers.iter().map(|offer| offer.id.clone());
        let inverse = inverse.collect();
        self.rescind_inverse(inverse, out);
    }

    /// Sends the allocator all frameworks and agents, as if they had just registered.
    pub fn resend_to_allocator(&self, out: &mut Effects) {
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
                session: self.agents.allocator_session(agent),
                info: agent.info.clone(),
                oversubscribed: agent.oversubscribed.clone(),
                used: held.map(|(of, held)| (of.clone(), held.clone())).collect(),
            })));
            self.tell_inactive(agent, out);
            if agent.unavailability.is_some() {
                send_plan(&agent.id, agent.unavailability, out);
            }
        }
    }

    /// The framework declines offers. Ids that are not its offers are ignored.
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
            .count(framework, FrameworkCounter::OfferDeclined, declined);
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

    /// The framework wants no more offers. Open offers stay.
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

    /// The framework's own roles among these; an empty set means all its roles. `None` if it has
    /// none of them or is unknown.
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

    /// An agent's revocable resources have changed: replaces the total, and rescinds offers of
    /// revocable resources there.
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

/// The resources freed when a grant becomes no offer.
fn freed_grant(grant: Grant) -> Freed {
    Freed {
        framework_id: grant.framework_id,
        agent_id: grant.agent_id,
        resources: grant.resources,
    }
}

/// Checks that all lent resources are revocable.
pub(crate) fn check_oversubscribed(total: &Resources) -> Result<(), String> {
    match total.iter().find(|resource| !resource.is_revocable()) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "oversubscribed is `{wrong}`: expected revocable resources only"
        )),
    }
}

/// The order in which offers are rescinded.
fn kind(resources: &Resources) -> u8 {
    let revocable = resources.iter().any(Resource::is_revocable);
    let throttleable = resources.iter().all(Resource::is_throttleable);
    match (revocable, throttleable) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    }
}
