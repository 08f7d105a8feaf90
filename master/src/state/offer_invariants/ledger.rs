//! A model of the allocator's ledger: holdings by framework and agent, from the master's facts and
//! the grants since.

use std::collections::BTreeMap;

use module_api::allocator::Grant;
use protocol::{AgentId, FrameworkId};
use resources::{Resources, Role};

use crate::state::effects::ToAllocator;
use crate::state::sum;

#[derive(Default)]
pub struct Ledger {
    hosts: BTreeMap<AgentId, Host>,
}

struct Host {
    session: u64,
    active: bool,
    total: Resources,
    lent: Resources,
    held: BTreeMap<FrameworkId, Resources>,
}

impl Ledger {
    pub fn agents(&self) -> impl Iterator<Item = &AgentId> {
        self.hosts.keys()
    }

    pub fn held_on(&self, agent: &AgentId) -> BTreeMap<FrameworkId, Resources> {
        self.hosts[agent].held.clone()
    }

    pub fn receive(&mut self, fact: ToAllocator) {
        match fact {
            ToAllocator::AgentAdded(added) => {
                let host = Host {
                    session: added.session,
                    active: true,
                    total: added.info.resources,
                    lent: added.oversubscribed,
                    held: added.used.into_iter().collect(),
                };
                self.hosts.insert(added.agent_id, host);
            }
            ToAllocator::AgentRemoved(removed) => drop(self.hosts.remove(&removed.agent_id)),
            ToAllocator::AgentActivity(activity) => {
                if let Some(host) = self.hosts.get_mut(&activity.agent_id) {
                    host.active = activity.active;
                }
            }
            ToAllocator::AgentOversubscribed(lent) => {
                if let Some(host) = self.hosts.get_mut(&lent.agent_id) {
                    host.lent = lent.total;
                }
            }
            ToAllocator::Recovered(freed) => {
                let Some(host) = self.hosts.get_mut(&freed.agent_id) else {
                    return; // The agent is removed, and nothing is held there.
                };
                let held = host.held.entry(freed.framework_id).or_default();
                let rest = held.checked_sub(&freed.resources);
                *held = rest.unwrap_or_else(|_| {
                    panic!(
                        "of {held} on {} are free {}",
                        freed.agent_id, freed.resources
                    )
                });
                host.held.retain(|_, held| !held.is_empty());
            }
            _ => {}
        }
    }

    /// Grants these resources if they are free.
    pub fn grant(
        &mut self,
        agent: &AgentId,
        framework: &FrameworkId,
        wanted: Resources,
    ) -> Option<Grant> {
        let host = self.hosts.get_mut(agent).filter(|host| host.active)?;
        let held = sum(host.held.values()).unallocate();
        let free = match wanted.revocable().is_empty() {
            true => host.total.saturating_sub(&held.non_revocable()),
            false => host.lent.saturating_sub(&held.revocable()),
        };
        let resources = free
            .contains(&wanted)
            .then(|| wanted.allocate(&Role::STAR))?;
        *host.held.entry(framework.clone()).or_default() += &resources;
        Some(Grant {
            framework_id: framework.clone(),
            role: Role::STAR.to_string(),
            agent_id: agent.clone(),
            session: host.session,
            resources,
        })
    }
}
