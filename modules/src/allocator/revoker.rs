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
/// How long a role must have lacked nothing at most before those may stay who make room for it; half their time, if that is less.
const CALM_MAX: Duration = Duration::from_secs(10);

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
    /// The roles for which tasks were named, each with since when it has lacked nothing at every look; `None` if it lacks something. What is
    /// only offered to it may be declined, and its framework may be away for a moment: until it has been so for a while it lacks something.
    served: BTreeMap<Role, Option<Instant>>,
    /// Whether the master may know of tasks that an earlier allocator has named, for whatever role.
    anew: bool,
    /// The first look since the books were begun.
    first_look: Option<Instant>,
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
            served: BTreeMap::new(),
            anew: true,
            first_look: None,
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
        self.first_look = None;
        self.asked = None;
    }

    /// These roles are short now. If tasks that were named may stay, since those for which they were have lacked nothing for a while, gives the
    /// roles that lack something still.
    pub fn spares(&mut self, short: &BTreeSet<Role>, now: Instant) -> Option<BTreeSet<Role>> {
        let calm = (self.revocation.grace / 2).min(CALM_MAX);
        if self.anew {
            // An earlier allocator may have named tasks for any of them.
            let all = short.iter().map(|role| (role.clone(), None));
            self.served.extend(all);
        }
        let before = self.served.len();
        self.served.retain(|role, since| {
            if short.contains(role) {
                *since = None;
            }
            short.contains(role) || now - *since.get_or_insert(now) < calm
        });
        let first = *self.first_look.get_or_insert(now);
        let begun = self.anew && now - first >= calm;
        self.anew &= !begun;
        let lacking = || short.iter().chain(self.served.keys()).cloned().collect();
        (begun || self.served.len() < before).then(lacking)
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
        let served = &self.served;
        let lacks = |role: &Role| short.contains(role) || served.contains_key(role);
        self.kept
            .retain(|_, (role, until)| now < *until && lacks(role));
        let before = self.since.len();
        self.since.retain(|role, _| lacks(role));
        let mut changed = self.since.len() < before;
        for role in &short {
            changed |= !self.since.contains_key(role);
            self.since.entry(role.clone()).or_insert(now);
        }
        if changed {
            self.wait = LOOK;
            self.next_look = self.next_look.min(now + LOOK);
        }
        if now < self.next_look {
            return BTreeSet::new();
        }
        let after = self.revocation.after;
        let long = self
            .since
            .iter()
            .filter(|(role, since)| now - **since >= after && short.contains(*role));
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
            self.served.insert(role.clone(), None);
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
    fn who_was_named_may_stay_when_the_role_has_lacked_nothing_for_a_while() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.anew = false;
        assert_eq!(revoker.spares(&roles(&["a"]), at(0)), None);
        assert_eq!(revoker.spares(&roles(&[]), at(50)), None, "nobody is named");
        let role = |name: &str| Role::new(name).unwrap();
        revoker.named([(1, role("a")), (2, role("b"))], at(50));
        let mut spares = |short: &[&str], seconds| revoker.spares(&roles(short), at(seconds));
        assert_eq!(spares(&["a", "b", "c"], 51), None);
        assert_eq!(spares(&["a", "c"], 52), None);
        assert_eq!(spares(&["c"], 61), None);
        let lacking = Some(roles(&["a", "c"]));
        assert_eq!(
            spares(&["c"], 62),
            lacking,
            "`a` has lacked nothing for 1 s"
        );
        assert_eq!(spares(&["a"], 70), None, "said once");
        assert_eq!(spares(&[], 71), None);
        assert_eq!(spares(&[], 80), None, "`a` lacked something at 70");
        assert_eq!(spares(&[], 81), Some(roles(&[])));
    }

    #[test]
    fn whom_an_earlier_allocator_named_may_stay_if_nobody_was_short_for_a_while() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.named([(1, Role::new("z").unwrap())], at(0));
        revoker.begin();
        let mut spares = |short: &[&str], seconds| revoker.spares(&roles(short), at(seconds));
        assert_eq!(spares(&["a"], 1), None);
        assert_eq!(spares(&["b"], 6), None);
        assert_eq!(spares(&["b"], 11), Some(roles(&["a", "b"])));
        assert_eq!(spares(&["b"], 16), Some(roles(&["b"])));
        assert_eq!(spares(&["b", "c"], 17), None);
        assert_eq!(spares(&["b"], 30), None, "nobody was named for `c`");
    }

    #[test]
    fn who_lacks_nothing_for_a_moment_goes_on_as_it_was() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let look = |revoker: &mut Revoker, short: &[&str], seconds| {
            revoker.spares(&roles(short), at(seconds));
            revoker.due(roles(short), at(seconds))
        };
        look(&mut revoker, &["a"], 0);
        revoker.named([(3, Role::new("a").unwrap())], at(10));
        look(&mut revoker, &["a"], 38);
        assert_eq!(look(&mut revoker, &[], 40), roles(&[]));
        assert_eq!(revoker.kept().len(), 1, "what comes free is kept together");
        let due = look(&mut revoker, &["a"], 45);
        assert_eq!(due, roles(&["a"]), "it has waited already");
        look(&mut revoker, &[], 46);
        look(&mut revoker, &[], 55);
        assert_eq!(revoker.kept().len(), 1);
        look(&mut revoker, &[], 56);
        assert!(revoker.kept().is_empty());
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
        for seconds in [71, 81] {
            revoker.spares(&roles(&["b"]), at(seconds));
            revoker.due(roles(&["b"]), at(seconds));
        }
        assert!(revoker.kept().is_empty(), "nothing lacks");
    }
}
