//! Fence: what an agent or a driver knows of its masters' terms, and by it keeps a deposed master out (DESIGN 5).
//!
//! Both are bound to one master at a time: by an answer that names its term, and from then on they obey that actor and nobody else. So
//! no command carries a term. The fence says to whom they may be bound, whose announcement they follow, and who is told that it was
//! deposed. It remembers the newest term, and whom it has told. It sends nothing, and it is not kept on a disk: whoever has forgotten
//! it has forgotten its id as well, and is let in only by a majority of the masters.

use std::collections::BTreeMap;

use runtime::NodeId;

/// How many masters that were told are remembered.
const TOLD_MAX: usize = 64;

/// The terms that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    seen: u64,
    refused: u64,
    /// Masters that were told, each with the term that it was told of.
    told: BTreeMap<NodeId, u64>,
}

impl Fence {
    /// The newest term that was seen; 0 before the first, and with a master that is alone.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// How many messages were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether to be bound to a master that has taken us in under `term`, when `asked_with` was the newest term as it was asked. An
    /// older term than the newest is believed only of a master that was asked knowing it: it has asked its majority since, and a
    /// deposed one finds none. (Then the masters' group was begun anew, and counts from the beginning.)
    pub fn binds(&mut self, term: u64, asked_with: u64) -> bool {
        let may = term >= self.seen || asked_with >= self.seen;
        if may {
            self.seen = term;
        }
        may
    }

    /// Whether to go to the master that says, or is said, to lead under `term`: a bound one leaves its master only for a later term.
    pub fn follows(&mut self, term: u64, bound: bool) -> bool {
        let may = term > self.seen || (term == self.seen && !bound);
        if may {
            self.seen = term;
        }
        may
    }

    /// A message from a master on this node was refused. Gives the term that it is to be told, once for each term.
    pub fn refuse(&mut self, node: &NodeId) -> Option<u64> {
        self.refused += 1;
        if self.told.get(node) == Some(&self.seen) {
            return None;
        }
        if self.told.len() >= TOLD_MAX && !self.told.contains_key(node) {
            self.told.pop_first();
        }
        self.told.insert(node.clone(), self.seen);
        Some(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_term_binds_only_if_its_master_was_asked_knowing_the_newer_one() {
        let mut fence = Fence::default();
        assert!(fence.binds(0, 0), "a master that is alone");
        assert!(
            fence.binds(5, 0) && fence.binds(5, 5),
            "again after a lost link"
        );
        assert!(fence.follows(7, true));
        assert!(!fence.binds(5, 5), "asked before the newer term was seen");
        assert_eq!(fence.seen(), 7);
        assert!(
            fence.binds(1, 7),
            "a majority has said so since: a new group"
        );
        assert_eq!(fence.seen(), 1);
    }

    #[test]
    fn a_bound_one_follows_only_a_later_term_and_a_free_one_none_that_is_older() {
        let mut fence = Fence::default();
        assert!(fence.binds(5, 0));
        assert!(!fence.follows(4, true) && !fence.follows(5, true));
        assert!(!fence.follows(4, false) && fence.follows(5, false));
        assert!(fence.follows(6, true));
        assert_eq!(fence.seen(), 6);
    }

    #[test]
    fn a_deposed_master_is_told_once_for_each_term_and_few_are_remembered() {
        let mut fence = Fence::default();
        assert!(fence.binds(5, 0));
        let node = NodeId::new("old", 1);
        let told: Vec<_> = (0..3).map(|_| fence.refuse(&node)).collect();
        assert_eq!(told, [Some(5), None, None]);
        assert!(fence.follows(6, true));
        assert_eq!(fence.refuse(&node), Some(6));
        assert_eq!(fence.refused(), 4);
        for epoch in 0..1_000 {
            fence.refuse(&NodeId::new("many", epoch));
        }
        assert_eq!(fence.told.len(), TOLD_MAX);
    }
}
