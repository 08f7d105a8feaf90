//! Choice: which agents a client would take, each judged once (SPEC 2.4, S126).
//!
//! Pure. Remembers the verdict on each agent by its slot, two bits, until the agent is another or the client wants something else.

use module_api::demand::{AgentTest, Looks};
use protocol::Demand;
use protocol::explain::Unmet;
use resources::Role;

/// What one client demands of offers in its role.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    test: AgentTest,
    judged: Bits,
    taken: Bits,
}

impl Choice {
    /// By this demand. The master has refused what cannot be understood; if it has not, nothing is demanded.
    pub fn new(role: &Role, demand: &Demand) -> Self {
        let test = AgentTest::new(role.as_str(), demand).unwrap_or_else(|error| {
            tracing::warn!(%error, "a demand is passed over");
            AgentTest::default()
        });
        Self {
            test,
            ..Self::default()
        }
    }

    /// Whether the other would take the same agents, because the same is demanded.
    pub fn is_same(&self, other: &Self) -> bool {
        self.test == other.test
    }

    /// Whether it would take any agent.
    pub fn is_open(&self) -> bool {
        self.test.is_open()
    }

    /// Whether it would take the agent in that slot, which looks so.
    pub fn takes(&mut self, slot: u32, looks: Looks<'_>) -> bool {
        if self.is_open() {
            return true;
        }
        if !self.judged.has(slot) {
            self.judged.set(slot, true);
            self.taken.set(slot, self.test.passes(looks));
        }
        self.taken.has(slot)
    }

    /// Why it would not take an agent that looks so, at most so many reasons and how many more.
    pub fn unmet(&self, looks: Looks<'_>, most: usize) -> (Vec<Unmet>, u64) {
        self.test.unmet(looks, most)
    }

    /// The agent in that slot is gone.
    pub fn forget(&mut self, slot: u32) {
        self.judged.set(slot, false);
    }
}

/// Bits by slot; those beyond the last word are not set.
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
    fn a_verdict_holds_until_another_agent_is_in_the_slot() {
        let mut choice = Choice::new(&Role::STAR, &Demand::on_hosts(["a"]));
        let attributes = Attributes::default();
        let looks = |hostname| Looks {
            hostname,
            attributes: &attributes,
            domain: None,
        };
        assert!(choice.takes(70, looks("a")) && !choice.takes(3, looks("b")));
        assert!(choice.takes(70, looks("b")), "judged before");
        choice.forget(70);
        assert!(!choice.takes(70, looks("b")));
        assert!(
            Choice::default().takes(70, looks("b")),
            "who demands nothing takes all"
        );
    }
}
