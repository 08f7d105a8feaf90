//! Revoker: when tasks are looked for that must make room, and what has been heard of them so far (S115, S122).
//!
//! Pure: it is told the time and what the books say. A role that lacks something waits first, since tasks end by themselves; then the
//! master is asked what runs, and again every few seconds for as long as something is lacking. Remembers one question at a time; whoever
//! is restarted begins to wait anew. Chooses nobody: that is for [`super::victims`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{ListedTask, TasksListed};
use resources::{Quantities, Role};
use runtime::Instant;

/// The least time between two questions.
const LOOK: Duration = Duration::from_secs(5);

/// How tasks are made to make room for what is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// How long something must have been lacking before any task is revoked.
    pub after: Duration,
    /// How long a task has from the warning on.
    pub grace: Duration,
}

/// What the master says runs, once it has said all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// The roles that it was asked for.
    pub roles: BTreeSet<Role>,
    /// All tasks on the agents that it was asked about.
    pub tasks: Vec<ListedTask>,
    /// What counts for each role with a quota.
    pub consumed: BTreeMap<String, Quantities>,
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Revoker {
    revocation: Revocation,
    /// Since when each role lacks something.
    since: BTreeMap<Role, Instant>,
    next_look: Instant,
    /// The last slot that was asked about.
    turn: u32,
    number: u64,
    asked: Option<Heard>,
}

impl Revoker {
    /// One that has seen nothing.
    pub fn new(revocation: Revocation) -> Self {
        Self {
            revocation,
            since: BTreeMap::new(),
            next_look: Instant::default(),
            turn: u32::MAX,
            number: 0,
            asked: None,
        }
    }

    /// The books were begun anew: what was seen and asked counts no more.
    pub fn begin(&mut self) {
        self.since.clear();
        self.asked = None;
    }

    /// How long a task has from the warning on.
    pub fn grace(&self) -> Duration {
        self.revocation.grace
    }

    /// The last slot that was asked about.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// These roles are short now. Gives those that have been for long enough, if it is time to ask for them.
    pub fn due(&mut self, short: BTreeSet<Role>, now: Instant) -> BTreeSet<Role> {
        self.since.retain(|role, _| short.contains(role));
        for role in short {
            self.since.entry(role).or_insert(now);
        }
        if now < self.next_look {
            return BTreeSet::new();
        }
        let after = self.revocation.after;
        let long = self
            .since
            .iter()
            .filter(|(_, since)| now - **since >= after);
        long.map(|(role, _)| role.clone()).collect()
    }

    /// The master is asked for these roles, about agents up to that slot. Gives the question's number.
    pub fn ask(&mut self, roles: BTreeSet<Role>, turn: u32, now: Instant) -> u64 {
        self.next_look = now + LOOK;
        self.turn = turn;
        self.number += 1;
        self.asked = Some(Heard {
            roles,
            ..Heard::default()
        });
        self.number
    }

    /// The master has answered, or a part of it. Gives the whole when it is there; an answer to an earlier question is none.
    pub fn hear(&mut self, listed: TasksListed) -> Option<Heard> {
        if listed.number != self.number {
            return None;
        }
        let asked = self.asked.as_mut()?;
        asked.tasks.extend(listed.tasks);
        asked.consumed = listed.consumed?;
        self.asked.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(names: &[&str]) -> BTreeSet<Role> {
        names.iter().map(|name| Role::new(name).unwrap()).collect()
    }

    fn revoker() -> Revoker {
        let (after, grace) = (Duration::from_secs(10), Duration::from_secs(30));
        Revoker::new(Revocation { after, grace })
    }

    /// S115: tasks are revoked only if waiting for others to end was not fast enough.
    #[test]
    fn a_role_is_asked_for_when_it_has_been_short_without_a_break_for_long_enough() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let mut due = |short: &[&str], seconds| revoker.due(roles(short), at(seconds));
        assert_eq!(due(&["a"], 0), roles(&[]));
        assert_eq!(due(&["a", "b"], 9), roles(&[]));
        assert_eq!(due(&["a", "b"], 10), roles(&["a"]));
        assert_eq!(due(&["b"], 11), roles(&[]));
        assert_eq!(due(&["a", "b"], 19), roles(&["b"]));
        assert_eq!(due(&["a", "b"], 29), roles(&["a", "b"]));
    }

    #[test]
    fn nobody_is_asked_again_too_soon_and_only_a_whole_answer_to_the_last_question_counts() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let listed = |number, last: bool| TasksListed {
            number,
            tasks: Vec::new(),
            consumed: last.then(BTreeMap::new),
        };
        revoker.due(roles(&["a"]), at(0));
        let due = revoker.due(roles(&["a"]), at(10));
        let first = revoker.ask(due, 7, at(10));
        assert_eq!(revoker.turn(), 7);
        assert_eq!(revoker.due(roles(&["a"]), at(14)), roles(&[]));
        let due = revoker.due(roles(&["a"]), at(15));
        let second = revoker.ask(due, 9, at(15));
        assert_eq!(revoker.hear(listed(first, true)), None);
        assert_eq!(revoker.hear(listed(second, false)), None);
        let heard = revoker.hear(listed(second, true)).unwrap();
        assert_eq!(heard.roles, roles(&["a"]));
        assert_eq!(revoker.hear(listed(second, true)), None, "heard once");
    }
}
