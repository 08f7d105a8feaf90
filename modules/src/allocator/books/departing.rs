//! The books' part on agents that will be away: who is asked to leave them (SPEC 4.7).
//!
//! Pure, like all of the books. Remembers who was asked and has not answered, and who has answered and is not to be asked again for a
//! while. What frameworks answered is the master's to know.

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::{InverseAnswered, InverseGrant, UnavailabilityChanged};
use protocol::{AgentId, FrameworkId, Unavailability};
use runtime::Instant;

use super::filters::Mark;
use super::{Agent, Books};

/// An agent that will be away.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    unavailability: Unavailability,
    /// Who was asked to leave it and has not answered.
    asked: BTreeSet<FrameworkId>,
    /// Until when those who have answered are not asked again.
    refused: BTreeMap<FrameworkId, Instant>,
}

impl Books {
    /// An agent will be away at another time, or will not. Who was asked before, and has answered, counts no more.
    pub fn unavailability_changed(&mut self, changed: &UnavailabilityChanged) {
        let id = &changed.agent_id;
        self.departing.remove(id);
        let Some((slot, _)) = self.agent_by_id(id) else {
            return;
        };
        if let Some(unavailability) = changed.unavailability {
            let departure = Departure {
                unavailability,
                asked: BTreeSet::new(),
                refused: BTreeMap::new(),
            };
            self.departing.insert(id.clone(), departure);
        }
        self.mark(slot, Mark::Run);
    }

    /// A framework is not being asked any more.
    pub fn inverse_answered(&mut self, answered: &InverseAnswered, now: Instant) {
        let Some(departure) = self.departing.get_mut(&answered.agent_id) else {
            return;
        };
        departure.asked.remove(&answered.framework_id);
        if let Some(refuse) = answered.refuse.filter(|refuse| !refuse.is_zero()) {
            let framework = answered.framework_id.clone();
            departure.refused.insert(framework, now + refuse);
        }
    }

    /// A framework wants to be asked again wherever it has something.
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

    /// A framework that takes part is asked at once to leave where it has something and is neither being asked nor to be left alone.
    pub(super) fn ask_again_to_leave(&mut self, id: &FrameworkId) {
        if !self.frameworks.get(id).is_some_and(|one| one.active) {
            return;
        }
        let clients = self.clients.of(id);
        let mut unasked = Vec::new();
        for (agent_id, departure) in &self.departing {
            if departure.asked.contains(id) || departure.refused.contains_key(id) {
                continue;
            }
            let slot = self.by_id.get(agent_id).copied();
            let agent = slot.and_then(|slot| self.agents[slot as usize].as_ref());
            let holds = |agent: &Agent| {
                let mut sides = agent.sides.iter();
                sides.any(|side| clients.iter().any(|one| side.holders.get(*one).is_some()))
            };
            if agent.is_some_and(holds) {
                unasked.extend(slot);
            }
        }
        unasked
            .into_iter()
            .for_each(|slot| self.mark(slot, Mark::Run));
    }

    /// A framework is no more.
    pub(super) fn forget_inverse(&mut self, framework: &FrameworkId) {
        for departure in self.departing.values_mut() {
            departure.asked.remove(framework);
            departure.refused.remove(framework);
        }
    }

    /// Who is to be asked now to leave which of these agents, or with none named of all that will be away: each active framework that has
    /// something there, was not asked already, and is not to be left alone for a while.
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
        let holders = agent.sides.iter().flat_map(|side| side.holders.iter());
        let holders = holders.filter_map(|(client, _)| self.clients.get(client));
        // A framework may hold something in several roles.
        let holders: BTreeSet<&FrameworkId> = holders.map(|member| &member.framework).collect();
        for framework in holders {
            let active = self.frameworks.get(framework);
            let active = active.is_some_and(|framework| framework.active);
            if !active || departure.refused.contains_key(framework) {
                continue;
            }
            if departure.asked.insert(framework.clone()) {
                grants.push(InverseGrant {
                    framework_id: framework.clone(),
                    agent_id: id.clone(),
                    unavailability: departure.unavailability,
                });
            }
        }
    }
}
