//! Choice: the agents that a client accepts, with cached verdicts.
//!
//! Keeps two bits for each agent, by slot, until another agent is in the slot or the demand
//! changes.

use module_api::demand::{AgentProperties, AgentTest};
use protocol::Demand;
use protocol::view::explain::UnmetConstraint;
use resources::Role;

/// The constraints of one client on agents.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    test: AgentTest,
    judged: Bits,
    taken: Bits,
}

impl Choice {
    /// The constraints of this demand. The master has already rejected invalid ones; one that
    /// arrives anyway counts as none.
    pub fn new(role: &Role, demand: &Demand) -> Self {
        let test = AgentTest::new(role.as_str(), demand).unwrap_or_else(|error| {
            tracing::warn!(%error, "ignoring an invalid demand");
            AgentTest::default()
        });
        Self {
            test,
            ..Self::default()
        }
    }

    /// Whether both have the same constraints.
    pub fn is_same(&self, other: &Self) -> bool {
        self.test == other.test
    }

    /// Whether every agent is accepted.
    pub fn is_open(&self) -> bool {
        self.test.is_open()
    }

    /// Whether the agent in that slot, with these properties, is accepted.
    pub fn accepts(&mut self, slot: u32, properties: AgentProperties<'_>) -> bool {
        if self.is_open() {
            return true;
        }
        if !self.judged.has(slot) {
            self.judged.set(slot, true);
            self.taken.set(slot, self.test.passes(properties));
        }
        self.taken.has(slot)
    }

    /// The reasons why an agent is not accepted: at most `most`, and the number of further ones.
    pub fn unmet(
        &self,
        properties: AgentProperties<'_>,
        most: usize,
    ) -> (Vec<UnmetConstraint>, u64) {
        self.test.unmet(properties, most)
    }

    /// Drops the verdict on the agent in that slot.
    pub fn forget(&mut self, slot: u32) {
        self.judged.set(slot, false);
    }
}

/// A bit set by slot; missing words are zero.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, slot: u32) -> bool {
        let word = self.0.get(slot as usize / 64);
        word.is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    fn set(&mut self, slot: u32, on: bool) {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if on && self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        match self.0.get_mut(word) {
            Some(word) if on => *word |= bit,
            Some(word) => *word &= !bit,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::Attributes;

    #[test]
    fn verdict_holds_until_the_slot_changes() {
        let mut choice = Choice::new(&Role::STAR, &Demand::on_hosts(["a"]));
        let attributes = Attributes::default();
        let properties = |hostname| AgentProperties {
            hostname,
            attributes: &attributes,
            domain: None,
        };
        assert!(choice.accepts(70, properties("a")) && !choice.accepts(3, properties("b")));
        assert!(choice.accepts(70, properties("b")), "judged before");
        choice.forget(70);
        assert!(!choice.accepts(70, properties("b")));
        assert!(
            Choice::default().accepts(70, properties("b")),
            "who demands nothing takes all"
        );
    }
}
