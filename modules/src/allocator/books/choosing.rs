//! The books' part on choosing: which agents a client is never to be given, whatever is free there (SPEC 4.5 `capable`, 2.4, S126).
//!
//! Pure, like all of the books. A client that would take any agent costs one look for each slate, and nothing for its agents.

use module_api::demand::Looks;
use module_api::sorter::{Client, Pool};
use protocol::Capability;

use super::{Agent, Books};
use crate::allocator::clients::{Clients, Member};

/// The active clients that would not take just any agent.
#[derive(Default)]
pub(super) struct Choosers {
    without_gpus: Vec<Client>,
    not_remote: Vec<Client>,
    demanding: Vec<Client>,
}

impl Choosers {
    /// Calls `exclude` with each client that is not to be given this agent.
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
            let member = clients.get_mut(*client);
            if member.is_some_and(|member| !member.choice.takes(slot, agent.looks())) {
                exclude(*client);
            }
        }
    }
}

impl Agent {
    /// What of it constraints look at.
    pub(super) fn looks(&self) -> Looks<'_> {
        Looks {
            hostname: &self.hostname,
            attributes: &self.attributes,
            domain: self.domain.as_ref(),
        }
    }
}

impl Member {
    /// Whether it would take the agent in that slot.
    pub(super) fn would_take(&mut self, slot: u32, agent: &Agent) -> bool {
        self.lacks(agent).next().is_none() && self.choice.takes(slot, agent.looks())
    }

    /// The capabilities without which it is not given this agent.
    pub(super) fn lacks(&self, agent: &Agent) -> impl Iterator<Item = Capability> + use<> {
        let gpus = (agent.gpus && !self.takes.gpus).then_some(Capability::GpuResources);
        let remote = (agent.remote && !self.takes.remote).then_some(Capability::RegionAware);
        gpus.into_iter().chain(remote)
    }
}

impl Books {
    pub(super) fn choosers(&self, pool: Pool) -> Choosers {
        let mut choosers = Choosers::default();
        for (client, member) in self.clients.iter() {
            if !member.is_active(pool) {
                continue;
            }
            if self.with_gpus > 0 && !member.takes.gpus {
                choosers.without_gpus.push(client);
            }
            if self.region.is_some() && !member.takes.remote {
                choosers.not_remote.push(client);
            }
            if !member.choice.is_open() {
                choosers.demanding.push(client);
            }
        }
        choosers
    }
}
