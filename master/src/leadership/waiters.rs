//! Requests that wait for a leader of a later term.
//!
//! One per node: a new request of a node replaces its previous one, whose caller has timed out or
//! lost its link. Above a bound the oldest request is dropped, and its caller asks again.

use std::collections::BTreeMap;

use protocol::message::registration::LeaderAnnounced;
use runtime::{NodeId, Promise};

/// Maximum waiting requests: the agents and drivers of a large cluster.
const WAITING_MAX: usize = 65_536;

/// A waiting request.
struct LeaderWaiter {
    caller: Option<NodeId>,
    /// The newest term that the caller has seen.
    term: u64,
    promise: Promise<LeaderAnnounced>,
}

/// All waiting requests.
#[derive(Default)]
pub(super) struct LeaderWaiters {
    /// In the order of arrival.
    questions: BTreeMap<u64, LeaderWaiter>,
    newest: BTreeMap<NodeId, u64>,
    asked: u64,
}

impl LeaderWaiters {
    /// Adds a request for a leader of a later term; `caller` is `None` for a caller on this node.
    pub(super) fn add(
        &mut self,
        caller: Option<NodeId>,
        term: u64,
        promise: Promise<LeaderAnnounced>,
    ) {
        self.asked += 1;
        if let Some(caller) = &caller
            && let Some(before) = self.newest.insert(caller.clone(), self.asked)
        {
            self.questions.remove(&before);
        }
        let question = LeaderWaiter {
            caller,
            term,
            promise,
        };
        self.questions.insert(self.asked, question);
        if self.questions.len() > WAITING_MAX
            && let Some((number, oldest)) = self.questions.pop_first()
        {
            self.forget(number, oldest.caller.as_ref());
        }
    }

    /// Answers the requests with an earlier term.
    pub(super) fn tell(&mut self, leader: &LeaderAnnounced) {
        let questions = std::mem::take(&mut self.questions);
        let (due, wait) = questions
            .into_iter()
            .partition(|(_, question)| leader.term > question.term);
        self.questions = wait;
        let due: BTreeMap<u64, LeaderWaiter> = due;
        for (number, question) in due {
            self.forget(number, question.caller.as_ref());
            question.promise.answer(leader.clone());
        }
    }

    fn forget(&mut self, number: u64, caller: Option<&NodeId>) {
        if let Some(caller) = caller
            && self.newest.get(caller) == Some(&number)
        {
            self.newest.remove(caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::{Reply, promise};

    use super::*;

    fn ask(waiting: &mut LeaderWaiters, caller: &str, term: u64) -> Reply<LeaderAnnounced> {
        let (promise, reply) = promise();
        waiting.add(Some(NodeId::new(caller, 1)), term, promise);
        reply
    }

    fn leader(term: u64) -> LeaderAnnounced {
        let address = "a:5050".to_owned();
        LeaderAnnounced { address, term }
    }

    #[test]
    fn requests_with_earlier_terms_are_answered() {
        let mut waiting = LeaderWaiters::default();
        let _replies = [5, 4, 6].map(|term| ask(&mut waiting, &format!("driver-{term}"), term));
        waiting.tell(&leader(5));
        let left: Vec<u64> = waiting.questions.values().map(|one| one.term).collect();
        assert_eq!(left, [5, 6]);
        assert_eq!(waiting.newest.len(), 2);
        waiting.tell(&leader(7));
        assert!(waiting.questions.is_empty() && waiting.newest.is_empty());
    }

    #[test]
    fn node_has_at_most_one_waiting_request() {
        let mut waiting = LeaderWaiters::default();
        let _other = ask(&mut waiting, "agent-1", 3);
        for term in 0..1_000 {
            let _ = ask(&mut waiting, "agent-2", term);
        }
        let left: Vec<u64> = waiting.questions.values().map(|one| one.term).collect();
        assert_eq!(left, [3, 999]);
        assert_eq!(waiting.newest.len(), 2);
    }

    #[test]
    fn oldest_request_is_dropped_above_the_bound() {
        let mut waiting = LeaderWaiters::default();
        for nth in 0..=WAITING_MAX {
            let _ = ask(&mut waiting, &format!("agent-{nth}"), 0);
        }
        assert_eq!(waiting.questions.len(), WAITING_MAX);
        assert_eq!(waiting.newest.len(), WAITING_MAX);
        assert!(!waiting.newest.contains_key(&NodeId::new("agent-0", 1)));
    }
}
