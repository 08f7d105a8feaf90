//! Revoker: when tasks are looked for that must make room, and what has been heard of them so far (S115, S122).
//!
//! Pure: it is told the time and what the books say. A role that lacks something waits first, since tasks end by themselves; then the
//! master is asked what runs, and again for as long as something is lacking: when those who were named have had their time, or ever less
//! often if nobody could be named. Remembers one question at a time, and the agents on which room is made; whoever is restarted begins to
//! wait anew. Chooses nobody: that is for [`super::victims`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{ListedTask, TasksListed};
use resources::{Quantities, Role};
use runtime::Instant;

/// The least time between two questions, and the most.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_MAX: Duration = Duration::from_secs(300);

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
    /// How long after a question that came to nothing the next one is.
    wait: Duration,
    /// The agents on which tasks make room, by their slots: for which role, and until when.
    kept: BTreeMap<u32, (Role, Instant)>,
    /// The roles for which tasks were named and that lack something since.
    served: BTreeSet<Role>,
    /// Whether the master may know of tasks that an earlier allocator has named.
    anew: bool,
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
            wait: LOOK,
            kept: BTreeMap::new(),
            served: BTreeSet::new(),
            anew: true,
            turn: u32::MAX,
            number: 0,
            asked: None,
        }
    }

    /// The books were begun anew: what was seen and asked counts no more.
    pub fn begin(&mut self) {
        self.since.clear();
        self.kept.clear();
        self.served.clear();
        self.anew = true;
        self.asked = None;
    }

    /// These roles are short now. Gives whether tasks that were named may stay, since those for which they were lack nothing any more.
    pub fn spares(&mut self, short: &BTreeSet<Role>) -> bool {
        let before = self.served.len();
        self.served.retain(|role| short.contains(role));
        std::mem::take(&mut self.anew) || self.served.len() < before
    }

    /// Room is made on these agents only, by their slots: any other was removed, and whoever has its slot now was never asked to make room.
    pub fn room_is_made_on(&mut self, slots: impl Fn(u32) -> bool) {
        self.kept.retain(|slot, _| slots(*slot));
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
        self.kept
            .retain(|_, (role, until)| now < *until && short.contains(role));
        if !self.since.keys().eq(&short) {
            self.wait = LOOK;
            self.next_look = self.next_look.min(now + LOOK);
        }
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
        self.next_look = now + self.wait;
        self.turn = turn;
        self.number += 1;
        self.asked = Some(Heard {
            roles,
            ..Heard::default()
        });
        self.number
    }

    /// Tasks were named on these agents, for these roles.
    pub fn named(&mut self, places: impl IntoIterator<Item = (u32, Role)>, now: Instant) {
        let until = now + self.revocation.grace * 2;
        for (slot, role) in places {
            self.served.insert(role.clone());
            self.kept.insert(slot, (role, until));
        }
        self.wait = LOOK;
        self.next_look = now + self.revocation.grace.max(LOOK);
    }

    /// Nobody could be named.
    pub fn named_nobody(&mut self, now: Instant) {
        self.wait = (self.wait * 2).min(LOOK_MAX);
        self.next_look = now + self.wait;
    }

    /// The agents, by their slots, where what comes free is kept together, and the role that lacks it.
    pub fn kept(&self) -> BTreeMap<u32, Role> {
        let kept = self.kept.iter();
        kept.map(|(slot, (role, _))| (*slot, role.clone()))
            .collect()
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
    fn who_was_named_may_stay_when_the_role_lacks_nothing_and_once_at_the_beginning() {
        let mut revoker = revoker();
        let now = Instant::default();
        let role = |name: &str| Role::new(name).unwrap();
        assert!(revoker.spares(&roles(&["a"])), "an earlier allocator's");
        assert!(!revoker.spares(&roles(&[])), "nobody was named");
        revoker.named([(1, role("a")), (2, role("b"))], now);
        assert!(!revoker.spares(&roles(&["a", "b", "c"])));
        assert!(revoker.spares(&roles(&["a", "c"])));
        assert!(!revoker.spares(&roles(&["a"])), "said once");
        assert!(revoker.spares(&roles(&[])));
        revoker.named([(1, role("a"))], now);
        revoker.begin();
        assert!(revoker.spares(&roles(&["a"])));
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

    #[test]
    fn who_can_name_nobody_asks_ever_less_often_until_somebody_else_is_short() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.due(roles(&["a"]), at(0));
        let mut asked = Vec::new();
        for second in 1..1000 {
            let due = revoker.due(roles(&["a"]), at(second));
            if !due.is_empty() {
                revoker.ask(due, 0, at(second));
                revoker.named_nobody(at(second));
                asked.push(second);
            }
        }
        assert_eq!(asked, [10, 20, 40, 80, 160, 320, 620, 920]);
        let both = roles(&["a", "b"]);
        assert_eq!(revoker.due(both.clone(), at(1000)), roles(&[]));
        assert_eq!(revoker.due(both, at(1005)), roles(&["a"]));
    }

    #[test]
    fn what_comes_free_is_kept_together_until_nothing_lacks_or_all_should_have_ended() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let role = Role::new("a").unwrap();
        revoker.due(roles(&["a"]), at(0));
        let due = revoker.due(roles(&["a"]), at(10));
        revoker.ask(due, 7, at(10));
        revoker.named([(3, role.clone())], at(10));
        assert_eq!(revoker.kept(), BTreeMap::from([(3, role.clone())]));
        let due = revoker.due(roles(&["a"]), at(39));
        assert_eq!(due, roles(&[]), "they have their time");
        assert_eq!(revoker.due(roles(&["a"]), at(40)), roles(&["a"]));
        assert_eq!(revoker.kept().len(), 1);
        revoker.due(roles(&["a"]), at(70));
        assert!(revoker.kept().is_empty(), "twice the grace");
        revoker.named([(3, role)], at(70));
        revoker.due(roles(&["b"]), at(71));
        assert!(revoker.kept().is_empty(), "nothing lacks");
    }
}
