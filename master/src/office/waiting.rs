//! Waiting: who wants to be told who leads, after which term.
//!
//! Each node waits once: who asks again has lost patience with what it asked before, or its link. Beyond a bound the oldest is let go, and asks
//! again. Decides nothing but that.

use std::collections::BTreeMap;

use protocol::message::registration::LeaderAnnounced;
use runtime::{NodeId, Promise};

/// How many may wait: the agents and drivers of a large cluster.
const WAITING_MAX: usize = 65_536;

/// One question.
struct Question {
    asker: Option<NodeId>,
    /// The newest term that the asker has seen.
    term: u64,
    promise: Promise<LeaderAnnounced>,
}

/// Those who wait.
#[derive(Default)]
pub(super) struct Waiting {
    /// By when they asked.
    questions: BTreeMap<u64, Question>,
    newest: BTreeMap<NodeId, u64>,
    asked: u64,
}

impl Waiting {
    /// This node waits for a later term than this; whoever waits on this node, if it is nobody.
    pub(super) fn add(
        &mut self,
        asker: Option<NodeId>,
        term: u64,
        promise: Promise<LeaderAnnounced>,
    ) {
        self.asked += 1;
        if let Some(asker) = &asker
            && let Some(before) = self.newest.insert(asker.clone(), self.asked)
        {
            self.questions.remove(&before);
        }
        let question = Question {
            asker,
            term,
            promise,
        };
        self.questions.insert(self.asked, question);
        if self.questions.len() > WAITING_MAX
            && let Some((number, oldest)) = self.questions.pop_first()
        {
            self.forget(number, oldest.asker.as_ref());
        }
    }

    /// Tells those who know only earlier terms.
    pub(super) fn tell(&mut self, leader: &LeaderAnnounced) {
        let questions = std::mem::take(&mut self.questions);
        let (told, wait) = questions
            .into_iter()
            .partition(|(_, question)| leader.term > question.term);
        self.questions = wait;
        let told: BTreeMap<u64, Question> = told;
        for (number, question) in told {
            self.forget(number, question.asker.as_ref());
            question.promise.answer(leader.clone());
        }
    }

    fn forget(&mut self, number: u64, asker: Option<&NodeId>) {
        if let Some(asker) = asker
            && self.newest.get(asker) == Some(&number)
        {
            self.newest.remove(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::{Reply, promise};

    use super::*;

    fn ask(waiting: &mut Waiting, asker: &str, term: u64) -> Reply<LeaderAnnounced> {
        let (promise, reply) = promise();
        waiting.add(Some(NodeId::new(asker, 1)), term, promise);
        reply
    }

    fn leader(term: u64) -> LeaderAnnounced {
        let address = "a:5050".to_owned();
        LeaderAnnounced { address, term }
    }

    #[test]
    fn those_who_know_an_earlier_term_are_told_and_the_others_wait_on() {
        let mut waiting = Waiting::default();
        let _replies = [5, 4, 6].map(|term| ask(&mut waiting, &format!("driver-{term}"), term));
        waiting.tell(&leader(5));
        let left: Vec<u64> = waiting.questions.values().map(|one| one.term).collect();
        assert_eq!(left, [5, 6]);
        assert_eq!(waiting.newest.len(), 2);
        waiting.tell(&leader(7));
        assert!(waiting.questions.is_empty() && waiting.newest.is_empty());
    }

    #[test]
    fn a_node_waits_once_however_often_it_asks() {
        let mut waiting = Waiting::default();
        let _other = ask(&mut waiting, "agent-1", 3);
        for term in 0..1_000 {
            let _ = ask(&mut waiting, "agent-2", term);
        }
        let left: Vec<u64> = waiting.questions.values().map(|one| one.term).collect();
        assert_eq!(left, [3, 999]);
        assert_eq!(waiting.newest.len(), 2);
    }

    #[test]
    fn beyond_the_bound_the_one_that_asked_first_is_let_go() {
        let mut waiting = Waiting::default();
        for nth in 0..=WAITING_MAX {
            let _ = ask(&mut waiting, &format!("agent-{nth}"), 0);
        }
        assert_eq!(waiting.questions.len(), WAITING_MAX);
        assert_eq!(waiting.newest.len(), WAITING_MAX);
        assert!(!waiting.newest.contains_key(&NodeId::new("agent-0", 1)));
    }
}
