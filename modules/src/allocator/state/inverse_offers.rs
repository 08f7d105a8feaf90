//! Agents with a planned downtime: selects the frameworks for inverse offers.
//!
//! Keeps outstanding inverse offers and their filters. The master keeps the frameworks' replies.

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::{InverseAnswered, InverseGrant, UnavailabilityChanged};
use protocol::{AgentId, FrameworkId, Unavailability};
use runtime::Instant;

use super::filters::Mark;
use super::{Agent, AllocatorState};

/// An agent with a planned downtime.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    unavailability: Unavailability,
    /// Frameworks with an outstanding inverse offer.
    outstanding: BTreeSet<FrameworkId>,
    /// Frameworks with a filter, and its end.
    refused: BTreeMap<FrameworkId, Instant>,
}

impl AllocatorState {
    /// Sets or clears the planned downtime of an agent. Drops outstanding inverse offers and
    /// filters.
    pub fn unavailability_changed(&mut self, changed: &UnavailabilityChanged) {
        let id = &changed.agent_id;
        self.departing.remove(id);
        let Some((slot, _)) = self.agent_by_id(id) else {
            return;
        };
        if let Some(unavailability) = changed.unavailability {
            let departure = Departure {
                unavailability,
                outstanding: BTreeSet::new(),
                refused: BTreeMap::new(),
            };
            self.departing.insert(id.clone(), departure);
        }
        self.mark(slot, Mark::Run);
    }

    /// Ends an inverse offer.
    pub fn inverse_answered(&mut self, answered: &InverseAnswered, now: Instant) {
        let Some(departure) = self.departing.get_mut(&answered.agent_id) else {
            return;
        };
        departure.outstanding.remove(&answered.framework_id);
        if let Some(refuse) = answered.refuse.filter(|refuse| !refuse.is_zero()) {
            let framework = answered.framework_id.clone();
            departure.refused.insert(framework, now + refuse);
        }
    }

    /// Drops a framework's filters on inverse offers, so that it gets new ones at once.
    pub(super) fn drop_inverse_filters(&mut self, framework: &FrameworkId) {
        let mut refused = Vec::new();
        for (id, departure) in &mut self.departing {
            if departure.refused.remove(framework).is_some() {
                refused.extend(self.by_id.get(id));
            }
        }
        refused
            .into_iter()
            .for_each(|slot| self.mark(slot, Mark::Run));
    }

    /// Marks the agents for which an active framework needs an inverse offer: it holds resources
    /// there, and has neither an outstanding inverse offer nor a filter.
    pub(super) fn ask_again_to_leave(&mut self, id: &FrameworkId) {
        if !self.frameworks.get(id).is_some_and(|one| one.active) {
            return;
        }
        let clients = self.clients.of(id);
        let mut missing = Vec::new();
        for (agent_id, departure) in &self.departing {
            if departure.outstanding.contains(id) || departure.refused.contains_key(id) {
                continue;
            }
            let slot = self.by_id.get(agent_id).copied();
            let agent = slot.and_then(|slot| self.agents[slot as usize].as_ref());
            let holds = |agent: &Agent| {
                let mut pools = agent.pools.iter();
                pools.any(|balance| {
                    clients
                        .iter()
                        .any(|one| balance.holders.get(*one).is_some())
                })
            };
            if agent.is_some_and(holds) {
                missing.extend(slot);
            }
        }
        missing
            .into_iter()
            .for_each(|slot| self.mark(slot, Mark::Run));
    }

    /// Removes a framework.
    pub(super) fn forget_inverse(&mut self, framework: &FrameworkId) {
        for departure in self.departing.values_mut() {
            departure.outstanding.remove(framework);
            departure.refused.remove(framework);
        }
    }

    /// New inverse offers for these agents, or for all with a planned downtime: one for each active
    /// framework that holds resources there, without an outstanding inverse offer or a filter.
    pub fn inverse_grants(&mut self, slots: Option<&[u32]>, now: Instant) -> Vec<InverseGrant> {
        if self.departing.is_empty() {
            return Vec::new();
        }
        let ids: Vec<AgentId> = match slots {
            None => self.departing.keys().cloned().collect(),
            Some(slots) => {
                let names = slots.iter().filter_map(|slot| self.name_of(*slot));
                let names = names.map(|(id, _)| id);
                names
                    .filter(|id| self.departing.contains_key(*id))
                    .cloned()
                    .collect()
            }
        };
        let mut grants = Vec::new();
        for id in ids {
            self.ask_to_leave(&id, now, &mut grants);
        }
        grants
    }

    fn ask_to_leave(&mut self, id: &AgentId, now: Instant, grants: &mut Vec<InverseGrant>) {
        let slot = self.by_id.get(id);
        let agent = slot.and_then(|slot| self.agents[*slot as usize].as_ref());
        let agent = agent.filter(|agent| agent.active);
        let (Some(agent), Some(departure)) = (agent, self.departing.get_mut(id)) else {
            return;
        };
        departure.refused.retain(|_, until| *until > now);
        let holders = agent
            .pools
            .iter()
            .flat_map(|balance| balance.holders.iter());
        let holders = holders.filter_map(|(client, _)| self.clients.get(client));
        // A framework may hold resources in several roles.
        let holders: BTreeSet<&FrameworkId> = holders.map(|record| &record.framework).collect();
        for framework in holders {
            let active = self.frameworks.get(framework);
            let active = active.is_some_and(|framework| framework.active);
            if !active || departure.refused.contains_key(framework) {
                continue;
            }
            if departure.outstanding.insert(framework.clone()) {
                grants.push(InverseGrant {
                    framework_id: framework.clone(),
                    agent_id: id.clone(),
                    unavailability: departure.unavailability,
                });
            }
        }
    }
}
