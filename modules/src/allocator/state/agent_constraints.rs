//! Capabilities and constraints: the agents that a client must never get.
//!
//! A client that accepts every agent costs one check per slate, and none per agent.

use module_api::demand::AgentProperties;
use module_api::sorter::{Client, Pool};
use protocol::Capability;

use super::{Agent, AllocatorState};
use crate::allocator::clients::{ClientRecord, Clients};

/// The active clients that do not accept every agent.
#[derive(Default)]
pub(super) struct SelectiveClients {
    without_gpus: Vec<Client>,
    not_remote: Vec<Client>,
    demanding: Vec<Client>,
}

impl SelectiveClients {
    /// Calls `exclude` with each client that must not get this agent.
    pub(super) fn exclude(
        &self,
        slot: u32,
        agent: &Agent,
        clients: &mut Clients,
        mut exclude: impl FnMut(Client),
    ) {
        if agent.gpus {
            self.without_gpus.iter().copied().for_each(&mut exclude);
        }
        if agent.remote {
            self.not_remote.iter().copied().for_each(&mut exclude);
        }
        for client in &self.demanding {
            let record = clients.get_mut(*client);
            if record.is_some_and(|record| !record.choice.accepts(slot, agent.properties())) {
                exclude(*client);
            }
        }
    }
}

impl Agent {
    /// The properties that constraints can test.
    pub(super) fn properties(&self) -> AgentProperties<'_> {
        AgentProperties {
            hostname: &self.hostname,
            attributes: &self.attributes,
            domain: self.domain.as_ref(),
        }
    }
}

impl ClientRecord {
    /// Whether it accepts the agent in that slot.
    pub(super) fn would_accept(&mut self, slot: u32, agent: &Agent) -> bool {
        self.lacks(agent).next().is_none() && self.choice.accepts(slot, agent.properties())
    }

    /// The missing capabilities without which it never gets this agent.
    pub(super) fn lacks(&self, agent: &Agent) -> impl Iterator<Item = Capability> + use<> {
        let gpus = (agent.gpus && !self.capabilities.gpus).then_some(Capability::GpuResources);
        let remote = (agent.remote && !self.capabilities.remote).then_some(Capability::RegionAware);
        gpus.into_iter().chain(remote)
    }
}

impl AllocatorState {
    pub(super) fn selective(&self, pool: Pool) -> SelectiveClients {
        let mut selective = SelectiveClients::default();
        for (client, record) in self.clients.iter() {
            if !record.is_active(pool) {
                continue;
            }
            if self.with_gpus > 0 && !record.capabilities.gpus {
                selective.without_gpus.push(client);
            }
            if self.region.is_some() && !record.capabilities.remote {
                selective.not_remote.push(client);
            }
            if !record.choice.is_open() {
                selective.demanding.push(client);
            }
        }
        selective
    }
}
