//! Ids: mints the names of agents, frameworks and offers, each used once in a leadership (SPEC 3.2, 3.3, 3.13).
//!
//! Remembers three numbers. It never reuses one, and never asks a registry: the stem is new in each leadership.

use protocol::{AgentId, FrameworkId, MasterId, OfferId};

/// Mints ids under one leadership's stem.
#[derive(Clone, Debug)]
pub struct Ids {
    master: MasterId,
    agents: u64,
    frameworks: u64,
    offers: u64,
}

impl Ids {
    /// Begins at zero under this stem.
    pub fn new(master: MasterId) -> Self {
        Self {
            master,
            agents: 0,
            frameworks: 0,
            offers: 0,
        }
    }

    /// The next agent's, counted from zero.
    pub fn agent(&mut self) -> AgentId {
        self.agents += 1;
        self.master.agent(self.agents - 1)
    }

    /// The next framework's (`<master>-0000`).
    pub fn framework(&mut self) -> FrameworkId {
        self.frameworks += 1;
        self.master.framework(self.frameworks - 1)
    }

    /// Whether this leadership has minted that offer's id.
    pub fn minted(&self, offer: &OfferId) -> bool {
        let number = offer.as_str().strip_prefix(self.master.as_str());
        let number = number.and_then(|rest| rest.strip_prefix("-O")?.parse().ok());
        number.is_some_and(|number: u64| number < self.offers)
    }

    /// The next offer's (`<master>-O0`).
    pub fn offer(&mut self) -> OfferId {
        let id = self.next_offer();
        self.offers += 1;
        id
    }

    /// The id that the next offer will have, if there is one.
    pub fn next_offer(&self) -> OfferId {
        self.master.offer(self.offers)
    }
}
