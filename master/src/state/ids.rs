//! Ids of agents, frameworks and offers, each used once in a leadership.
//!
//! Three counters. No registry is needed: the prefix is new in each leadership.

use protocol::{AgentId, FrameworkId, MasterId, OfferId};

/// Assigns ids with one leadership's prefix.
#[derive(Clone, Debug)]
pub struct Ids {
    master: MasterId,
    agents: u64,
    frameworks: u64,
    offers: u64,
}

impl Ids {
    /// Starts at zero with this prefix.
    pub fn new(master: MasterId) -> Self {
        Self {
            master,
            agents: 0,
            frameworks: 0,
            offers: 0,
        }
    }

    /// The next agent's id, counted from zero.
    pub fn agent(&mut self) -> AgentId {
        self.agents += 1;
        self.master.agent(self.agents - 1)
    }

    /// The next framework's id (`<master>-0000`).
    pub fn framework(&mut self) -> FrameworkId {
        self.frameworks += 1;
        self.master.framework(self.frameworks - 1)
    }

    /// Whether this leadership has assigned that offer id.
    pub fn minted(&self, offer: &OfferId) -> bool {
        let number = offer.as_str().strip_prefix(self.master.as_str());
        let number = number.and_then(|rest| rest.strip_prefix("-O")?.parse().ok());
        number.is_some_and(|number: u64| number < self.offers)
    }

    /// The next offer's id (`<master>-O0`).
    pub fn offer(&mut self) -> OfferId {
        let id = self.next_offer();
        self.offers += 1;
        id
    }

    /// The id of the next offer, without using it.
    pub fn next_offer(&self) -> OfferId {
        self.master.offer(self.offers)
    }
}
