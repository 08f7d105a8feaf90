//! Fence: protects agents and drivers from deposed masters.
//!
//! Agents and drivers are bound to one master at a time, by a registration answer with its term.
//! Then they obey only that actor, so commands need no term. The fence decides which master may
//! bind them, which leader announcement to follow, and which deposed master to inform. It stores
//! the newest term and the masters it has informed. It sends nothing. It is not persistent: a
//! process that lost its fence has lost its id too, and only a master with a majority admits it
//! again.

use std::collections::BTreeMap;

use runtime::NodeId;

/// Number of informed masters to remember.
const INFORMED_MAX: usize = 64;

/// The terms seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    newest_term: u64,
    rejected: u64,
    /// Informed masters, with the term that each was informed of.
    informed: BTreeMap<NodeId, u64>,
}

impl Fence {
    /// The newest term; 0 before the first.
    pub fn newest_term(&self) -> u64 {
        self.newest_term
    }

    /// Number of rejected messages.
    pub fn rejected_count(&self) -> u64 {
        self.rejected
    }

    /// Accepts or rejects a registration under `term`, where `asked_with` was the newest known term
    /// at the time of the request. An older term is valid only if the request carried the newest
    /// one: the master has then confirmed its leadership with its majority since, which a deposed
    /// master cannot. (In that case the group was created anew, with terms from the beginning.)
    pub fn try_bind(&mut self, term: u64, asked_with: u64) -> bool {
        let may = term >= self.newest_term || asked_with >= self.newest_term;
        if may {
            self.newest_term = term;
        }
        may
    }

    /// Accepts or rejects an announced leader of `term`. A bound client changes its master only for
    /// a later term.
    pub fn try_follow(&mut self, term: u64, bound: bool) -> bool {
        let may = term > self.newest_term || (term == self.newest_term && !bound);
        if may {
            self.newest_term = term;
        }
        may
    }

    /// Counts a rejected message from a master on this node. Returns the term to inform it of, once
    /// per term.
    pub fn reject(&mut self, node: &NodeId) -> Option<u64> {
        self.rejected += 1;
        if self.informed.get(node) == Some(&self.newest_term) {
            return None;
        }
        if self.informed.len() >= INFORMED_MAX && !self.informed.contains_key(node) {
            self.informed.pop_first();
        }
        self.informed.insert(node.clone(), self.newest_term);
        Some(self.newest_term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_term_binds_only_after_a_newer_request() {
        let mut fence = Fence::default();
        assert!(fence.try_bind(0, 0), "a master that is alone");
        assert!(
            fence.try_bind(5, 0) && fence.try_bind(5, 5),
            "again after a lost link"
        );
        assert!(fence.try_follow(7, true));
        assert!(
            !fence.try_bind(5, 5),
            "asked before the newer term was seen"
        );
        assert_eq!(fence.newest_term(), 7);
        assert!(
            fence.try_bind(1, 7),
            "confirmed by a majority since: a new group"
        );
        assert_eq!(fence.newest_term(), 1);
    }

    #[test]
    fn bound_client_follows_only_later_terms() {
        let mut fence = Fence::default();
        assert!(fence.try_bind(5, 0));
        assert!(!fence.try_follow(4, true) && !fence.try_follow(5, true));
        assert!(!fence.try_follow(4, false) && fence.try_follow(5, false));
        assert!(fence.try_follow(6, true));
        assert_eq!(fence.newest_term(), 6);
    }

    #[test]
    fn deposed_master_is_informed_once_per_term() {
        let mut fence = Fence::default();
        assert!(fence.try_bind(5, 0));
        let node = NodeId::new("old", 1);
        let informed: Vec<_> = (0..3).map(|_| fence.reject(&node)).collect();
        assert_eq!(informed, [Some(5), None, None]);
        assert!(fence.try_follow(6, true));
        assert_eq!(fence.reject(&node), Some(6));
        assert_eq!(fence.rejected_count(), 4);
        for epoch in 0..1_000 {
            fence.reject(&NodeId::new("many", epoch));
        }
        assert_eq!(fence.informed.len(), INFORMED_MAX);
    }
}
