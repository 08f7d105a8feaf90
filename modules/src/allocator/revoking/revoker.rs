//! Revoker: decides when to look for tasks to revoke, and collects the master's list of tasks.
//!
//! No I/O and no clock: the caller passes the time and the unmet guarantees. A role with an unmet
//! guarantee first waits, since tasks end by themselves. Then the master is asked for its tasks,
//! again and again while the guarantee is unmet: after the grace time of the named tasks, or with
//! growing intervals if none could be named. Keeps one request at a time and the agents on which
//! tasks are revoked; after a restart the wait begins anew. [`super::victims`] selects the tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{ListedTask, TasksListed};
use resources::{Quantities, Role};
use runtime::Instant;

/// Shortest and longest time between two requests.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_MAX: Duration = Duration::from_secs(300);
/// Time for which a role's guarantee must be met before tasks named for it may stay; half the grace
/// time if that is shorter.
const CALM_MAX: Duration = Duration::from_secs(10);

/// Settings for the revocation of tasks for unmet guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Time for which a guarantee must be unmet before any task is revoked.
    pub after: Duration,
    /// Time between the warning of a task and its kill.
    pub grace: Duration,
}

/// The master's complete list of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskListing {
    /// The roles of the request.
    pub roles: BTreeSet<Role>,
    /// All tasks on the requested agents.
    pub tasks: Vec<ListedTask>,
    /// Quota consumption of each role with a quota.
    pub consumed: BTreeMap<String, Quantities>,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Revoker {
    revocation: Revocation,
    /// Roles with an unmet guarantee, and since when.
    since: BTreeMap<Role, Instant>,
    next_look: Instant,
    /// Time to the next request after one without result.
    wait: Duration,
    /// Agents on which tasks are revoked, by slot, with the role and the end.
    kept_agents: BTreeMap<u32, (Role, Instant)>,
    /// Roles for which tasks were named, and since when each is met at every check; `None` while
    /// unmet. An offer to the role may be declined, and its framework may be inactive for a moment,
    /// so the role counts as unmet until it has been met for a while.
    served: BTreeMap<Role, Option<Instant>>,
    /// The master may know tasks that an earlier allocator named, for any role.
    after_begin: bool,
    /// The first check after a `Begin`.
    first_look: Option<Instant>,
    /// The last requested slot.
    last_slot: u32,
    number: u64,
    pending: Option<TaskListing>,
}

impl Revoker {
    /// A revoker without state.
    pub fn new(revocation: Revocation) -> Self {
        Self {
            revocation,
            since: BTreeMap::new(),
            next_look: Instant::default(),
            wait: LOOK,
            kept_agents: BTreeMap::new(),
            served: BTreeMap::new(),
            after_begin: true,
            first_look: None,
            last_slot: u32::MAX,
            number: 0,
            pending: None,
        }
    }

    /// Resets the state after a `Begin`.
    pub fn begin(&mut self) {
        self.since.clear();
        self.kept_agents.clear();
        self.served.clear();
        self.after_begin = true;
        self.first_look = None;
        self.pending = None;
    }

    /// Records the roles with unmet guarantees. If tasks named for another role may stay, because
    /// it has been met for a while, returns the roles that are still unmet.
    pub fn still_lacking(
        &mut self,
        unmet: &BTreeSet<Role>,
        now: Instant,
    ) -> Option<BTreeSet<Role>> {
        let calm = (self.revocation.grace / 2).min(CALM_MAX);
        if self.after_begin {
            // An earlier allocator may have named tasks for any of them.
            let all = unmet.iter().map(|role| (role.clone(), None));
            self.served.extend(all);
        }
        let before = self.served.len();
        self.served.retain(|role, since| {
            if unmet.contains(role) {
                *since = None;
            }
            unmet.contains(role) || now - *since.get_or_insert(now) < calm
        });
        let first = *self.first_look.get_or_insert(now);
        let begun = self.after_begin && now - first >= calm;
        self.after_begin &= !begun;
        let lacking = || unmet.iter().chain(self.served.keys()).cloned().collect();
        (begun || self.served.len() < before).then(lacking)
    }

    /// Keeps only agents that are still there: another agent in the same slot has no revoked tasks.
    pub fn retain_agents(&mut self, slots: impl Fn(u32) -> bool) {
        self.kept_agents.retain(|slot, _| slots(*slot));
    }

    /// Time between the warning of a task and its kill.
    pub fn grace(&self) -> Duration {
        self.revocation.grace
    }

    /// The last requested slot.
    pub fn last_slot(&self) -> u32 {
        self.last_slot
    }

    /// Records the roles with unmet guarantees. Returns those unmet for long enough, if a request
    /// is due.
    pub fn due(&mut self, unmet: BTreeSet<Role>, now: Instant) -> BTreeSet<Role> {
        let served = &self.served;
        let lacks = |role: &Role| unmet.contains(role) || served.contains_key(role);
        self.kept_agents
            .retain(|_, (role, until)| now < *until && lacks(role));
        let before = self.since.len();
        self.since.retain(|role, _| lacks(role));
        let mut changed = self.since.len() < before;
        for role in &unmet {
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
            .filter(|(role, since)| now - **since >= after && unmet.contains(*role));
        long.map(|(role, _)| role.clone()).collect()
    }

    /// Records a request for these roles, about agents up to that slot. Returns its number.
    pub fn record_request(&mut self, roles: BTreeSet<Role>, last_slot: u32, now: Instant) -> u64 {
        self.next_look = now + self.wait;
        self.last_slot = last_slot;
        self.number += 1;
        self.pending = Some(TaskListing {
            roles,
            ..TaskListing::default()
        });
        self.number
    }

    /// Records that tasks were named on these agents for these roles.
    pub fn record_victims(&mut self, places: impl IntoIterator<Item = (u32, Role)>, now: Instant) {
        let until = now + self.revocation.grace * 2;
        for (slot, role) in places {
            self.served.insert(role.clone(), None);
            self.kept_agents.insert(slot, (role, until));
        }
        self.wait = LOOK;
        self.next_look = now + self.revocation.grace.max(LOOK);
    }

    /// Records that no task could be named.
    pub fn record_no_victims(&mut self, now: Instant) {
        self.wait = (self.wait * 2).min(LOOK_MAX);
        self.next_look = now + self.wait;
    }

    /// Agents on which freed resources are kept, by slot, with the role that needs them.
    pub fn kept_agents(&self) -> BTreeMap<u32, Role> {
        let kept_agents = self.kept_agents.iter();
        kept_agents
            .map(|(slot, (role, _))| (*slot, role.clone()))
            .collect()
    }

    /// Adds a part of the master's reply. Returns the whole once it is complete. Replies to earlier
    /// requests are ignored.
    pub fn receive(&mut self, listed: TasksListed) -> Option<TaskListing> {
        if listed.number != self.number {
            return None;
        }
        let pending = self.pending.as_mut()?;
        pending.tasks.extend(listed.tasks);
        pending.consumed = listed.consumed?;
        self.pending.take()
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
    // Covers S115.
    #[test]
    fn request_waits_for_continuous_shortage() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let mut due = |unmet: &[&str], seconds| revoker.due(roles(unmet), at(seconds));
        assert_eq!(due(&["a"], 0), roles(&[]));
        assert_eq!(due(&["a", "b"], 9), roles(&[]));
        assert_eq!(due(&["a", "b"], 10), roles(&["a"]));
        assert_eq!(due(&["b"], 11), roles(&[]));
        assert_eq!(due(&["a", "b"], 19), roles(&["b"]));
        assert_eq!(due(&["a", "b"], 29), roles(&["a", "b"]));
    }

    #[test]
    fn victims_stay_after_a_calm_period() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.after_begin = false;
        assert_eq!(revoker.still_lacking(&roles(&["a"]), at(0)), None);
        assert_eq!(
            revoker.still_lacking(&roles(&[]), at(50)),
            None,
            "nobody is named"
        );
        let role = |name: &str| Role::new(name).unwrap();
        revoker.record_victims([(1, role("a")), (2, role("b"))], at(50));
        let mut still_lacking =
            |unmet: &[&str], seconds| revoker.still_lacking(&roles(unmet), at(seconds));
        assert_eq!(still_lacking(&["a", "b", "c"], 51), None);
        assert_eq!(still_lacking(&["a", "c"], 52), None);
        assert_eq!(still_lacking(&["c"], 61), None);
        let lacking = Some(roles(&["a", "c"]));
        assert_eq!(
            still_lacking(&["c"], 62),
            lacking,
            "`a` has lacked nothing for 1 s"
        );
        assert_eq!(still_lacking(&["a"], 70), None, "said once");
        assert_eq!(still_lacking(&[], 71), None);
        assert_eq!(still_lacking(&[], 80), None, "`a` lacked something at 70");
        assert_eq!(still_lacking(&[], 81), Some(roles(&[])));
    }

    #[test]
    fn victims_of_an_earlier_allocator_stay_after_a_calm_period() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.record_victims([(1, Role::new("z").unwrap())], at(0));
        revoker.begin();
        let mut still_lacking =
            |unmet: &[&str], seconds| revoker.still_lacking(&roles(unmet), at(seconds));
        assert_eq!(still_lacking(&["a"], 1), None);
        assert_eq!(still_lacking(&["b"], 6), None);
        assert_eq!(still_lacking(&["b"], 11), Some(roles(&["a", "b"])));
        assert_eq!(still_lacking(&["b"], 16), Some(roles(&["b"])));
        assert_eq!(still_lacking(&["b", "c"], 17), None);
        assert_eq!(still_lacking(&["b"], 30), None, "nobody was named for `c`");
    }

    #[test]
    fn short_calm_changes_nothing() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let look = |revoker: &mut Revoker, unmet: &[&str], seconds| {
            revoker.still_lacking(&roles(unmet), at(seconds));
            revoker.due(roles(unmet), at(seconds))
        };
        look(&mut revoker, &["a"], 0);
        revoker.record_victims([(3, Role::new("a").unwrap())], at(10));
        look(&mut revoker, &["a"], 38);
        assert_eq!(look(&mut revoker, &[], 40), roles(&[]));
        assert_eq!(
            revoker.kept_agents().len(),
            1,
            "what comes free is kept together"
        );
        let due = look(&mut revoker, &["a"], 45);
        assert_eq!(due, roles(&["a"]), "it has waited already");
        look(&mut revoker, &[], 46);
        look(&mut revoker, &[], 55);
        assert_eq!(revoker.kept_agents().len(), 1);
        look(&mut revoker, &[], 56);
        assert!(revoker.kept_agents().is_empty());
    }

    #[test]
    fn only_complete_replies_to_the_last_request_count() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let listed = |number, last: bool| TasksListed {
            number,
            tasks: Vec::new(),
            consumed: last.then(BTreeMap::new),
        };
        revoker.due(roles(&["a"]), at(0));
        let due = revoker.due(roles(&["a"]), at(10));
        let first = revoker.record_request(due, 7, at(10));
        assert_eq!(revoker.last_slot(), 7);
        assert_eq!(revoker.due(roles(&["a"]), at(14)), roles(&[]));
        let due = revoker.due(roles(&["a"]), at(15));
        let second = revoker.record_request(due, 9, at(15));
        assert_eq!(revoker.receive(listed(first, true)), None);
        assert_eq!(revoker.receive(listed(second, false)), None);
        let heard = revoker.receive(listed(second, true)).unwrap();
        assert_eq!(heard.roles, roles(&["a"]));
        assert_eq!(revoker.receive(listed(second, true)), None, "heard once");
    }

    #[test]
    fn requests_without_victims_back_off() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        revoker.due(roles(&["a"]), at(0));
        let mut pending = Vec::new();
        for second in 1..1000 {
            let due = revoker.due(roles(&["a"]), at(second));
            if !due.is_empty() {
                revoker.record_request(due, 0, at(second));
                revoker.record_no_victims(at(second));
                pending.push(second);
            }
        }
        assert_eq!(pending, [10, 20, 40, 80, 160, 320, 620, 920]);
        let both = roles(&["a", "b"]);
        assert_eq!(revoker.due(both.clone(), at(1000)), roles(&[]));
        assert_eq!(revoker.due(both, at(1005)), roles(&["a"]));
    }

    #[test]
    fn freed_resources_are_kept_until_the_need_ends() {
        let mut revoker = revoker();
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let role = Role::new("a").unwrap();
        revoker.due(roles(&["a"]), at(0));
        let due = revoker.due(roles(&["a"]), at(10));
        revoker.record_request(due, 7, at(10));
        revoker.record_victims([(3, role.clone())], at(10));
        assert_eq!(revoker.kept_agents(), BTreeMap::from([(3, role.clone())]));
        let due = revoker.due(roles(&["a"]), at(39));
        assert_eq!(due, roles(&[]), "they have their time");
        assert_eq!(revoker.due(roles(&["a"]), at(40)), roles(&["a"]));
        assert_eq!(revoker.kept_agents().len(), 1);
        revoker.due(roles(&["a"]), at(70));
        assert!(revoker.kept_agents().is_empty(), "twice the grace");
        revoker.record_victims([(3, role)], at(70));
        for seconds in [71, 81] {
            revoker.still_lacking(&roles(&["b"]), at(seconds));
            revoker.due(roles(&["b"]), at(seconds));
        }
        assert!(revoker.kept_agents().is_empty(), "nothing lacks");
    }
}
