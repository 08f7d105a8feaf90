//! The frameworks that the master knows of, connected or not, and the ones that have ended.
//!
//! Plain data with pure transitions. Their tasks are in [`crate::tasks`], their offers in [`crate::offers`]. It never
//! decides whether one may come: see [`crate::subscription`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use protocol::{Capability, FrameworkId, FrameworkInfo, TaskState, Wants};
use resources::Invalid;
use runtime::{Pid, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::agents::keep;
use crate::dealings::{Dealing, Dealings};
use crate::size::wire_bytes;
use crate::tasks::{OfFramework, Task};

/// How many ids of removed frameworks are remembered, so that they are refused.
const REMOVED_MAX: usize = 10_000;

/// The most bytes of the tasks of frameworks that have ended, unless a single one has more.
const COMPLETED_BYTES_MAX: usize = 64 << 20;

/// The most bytes of all frameworks that have not ended. One whose scheduler has gone is remembered for its `failover_timeout`, which it
/// chooses as well.
const KNOWN_BYTES_MAX: usize = 128 << 20;

/// About as much as a framework takes whatever it says of itself.
const PLAIN_BYTES: usize = 1 << 10;

/// About how many bytes a framework takes that describes itself so.
fn known_bytes(info: &FrameworkInfo, wants: &Wants) -> usize {
    PLAIN_BYTES + wire_bytes(info) + wire_bytes(&wants.demands)
}

/// A framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Framework {
    /// Its id.
    pub id: FrameworkId,
    /// What it says of itself; its id is set.
    pub info: FrameworkInfo,
    /// Where its scheduler hears; `None` while none is connected.
    pub scheduler: Option<Pid>,
    /// Counts its connections and disconnections, so that a timer of an earlier one does nothing.
    pub session: u64,
    /// Since when it is registered.
    pub registered: Timestamp,
    /// When its scheduler last came back.
    pub reregistered: Option<Timestamp>,
    /// When it ended.
    pub unregistered: Option<Timestamp>,
    /// Which offers it would like for the present.
    pub wants: Wants,
    /// Whether the registry or an agent told of it, and no scheduler of it has come back yet.
    pub recovered: bool,
}

impl Framework {
    /// Whether a scheduler of it is connected.
    pub fn is_connected(&self) -> bool {
        self.scheduler.is_some()
    }

    /// The state as this framework is told it.
    pub fn told(&self, state: TaskState) -> TaskState {
        state.as_told(self.info.can(Capability::PartitionAware))
    }
}

/// A framework that has ended, with its newest tasks.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The framework.
    pub framework: Arc<Framework>,
    /// Its tasks.
    pub tasks: Arc<OfFramework>,
}

/// All frameworks.
#[derive(Clone, Debug)]
pub struct Frameworks {
    known: BTreeMap<FrameworkId, Arc<Framework>>,
    /// Of these; not kept by a mirror.
    known_bytes: usize,
    /// Never gone through.
    by_scheduler: FxHashMap<Pid, FrameworkId>,
    /// Of those that have not ended. Never gone through.
    dealings: FxHashMap<FrameworkId, Arc<Dealings>>,
    completed: VecDeque<Completed>,
    completed_max: usize,
    removed: BTreeSet<FrameworkId>,
    removed_order: VecDeque<FrameworkId>,
    sessions: u64,
    /// Of those that have not ended, which have become something else under this master: an agent that was away may know them as they were.
    changed: FxHashSet<FrameworkId>,
}

impl Frameworks {
    /// None yet; room for so many completed ones.
    pub fn new(completed_max: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            known_bytes: 0,
            by_scheduler: FxHashMap::default(),
            dealings: FxHashMap::default(),
            completed: VecDeque::new(),
            completed_max,
            removed: BTreeSet::new(),
            removed_order: VecDeque::new(),
            sessions: 0,
            changed: FxHashSet::default(),
        }
    }

    /// The framework of that id that has not ended.
    pub fn get(&self, id: &FrameworkId) -> Option<&Framework> {
        self.known.get(id).map(Arc::as_ref)
    }

    /// The framework whose scheduler hears there.
    pub fn at(&self, scheduler: &Pid) -> Option<&Framework> {
        self.get(self.by_scheduler.get(scheduler)?)
    }

    /// Where the scheduler of that framework hears, if one is connected.
    pub fn scheduler(&self, id: &FrameworkId) -> Option<&Pid> {
        self.get(id)?.scheduler.as_ref()
    }

    /// All that have not ended.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Framework>> {
        self.known.values()
    }

    /// The newest that have, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Completed> {
        self.completed.iter()
    }

    /// Whether a framework of that id has ended.
    pub fn is_removed(&self, id: &FrameworkId) -> bool {
        self.removed.contains(id)
    }

    /// The registry knew these to have ended when this master started.
    pub fn recover_removed(&mut self, ids: impl IntoIterator<Item = FrameworkId>) {
        for id in ids {
            self.remember_removed(id);
        }
    }

    /// So much more of this has passed between the master and this framework; nothing is counted of one that is not known.
    pub fn dealt(&mut self, id: &FrameworkId, dealing: Dealing, more: usize) {
        if let Some(dealings) = self.dealings.get_mut(id) {
            Arc::make_mut(dealings).add(dealing, more);
        }
    }

    /// The same with the framework whose scheduler hears there.
    pub fn dealt_at(&mut self, scheduler: &Pid, dealing: Dealing, more: usize) {
        if let Some(id) = self.by_scheduler.get(scheduler)
            && let Some(dealings) = self.dealings.get_mut(id)
        {
            Arc::make_mut(dealings).add(dealing, more);
        }
    }

    /// The same of one event that is on its way to the framework's scheduler, if one is connected.
    pub fn dealt_if_told(&mut self, id: &FrameworkId, dealing: Dealing) {
        if self.scheduler(id).is_some() {
            self.dealt(id, dealing, 1);
        }
    }

    /// What has passed between the master and this framework, if it has not ended.
    pub fn dealings(&self, id: &FrameworkId) -> Option<&Arc<Dealings>> {
        self.dealings.get(id)
    }

    /// It is known from now on, as it is given but for its session; gives that.
    pub fn insert(&mut self, mut framework: Framework) -> u64 {
        self.known_bytes += known_bytes(&framework.info, &framework.wants);
        if let Some(old) = self.known.remove(&framework.id) {
            self.subtract_bytes(&old);
            if let Some(scheduler) = &old.scheduler {
                self.by_scheduler.remove(scheduler);
            }
        }
        self.sessions += 1;
        framework.session = self.sessions;
        if let Some(scheduler) = &framework.scheduler {
            self.by_scheduler
                .insert(scheduler.clone(), framework.id.clone());
        }
        self.dealings.entry(framework.id.clone()).or_default();
        self.known.insert(framework.id.clone(), Arc::new(framework));
        self.sessions
    }

    /// Whether there is room beside all other frameworks for one that describes itself so. One that does not grow always has it.
    pub fn check_room(
        &self,
        id: &FrameworkId,
        info: &FrameworkInfo,
        wants: &Wants,
    ) -> Result<(), Invalid> {
        let before = self.get(id);
        let before = before.map_or(0, |before| known_bytes(&before.info, &before.wants));
        let own = known_bytes(info, wants);
        let others = self.known_bytes.saturating_sub(before);
        if own <= before || others + own <= KNOWN_BYTES_MAX {
            return Ok(());
        }
        let expected = format!(
            "at most {KNOWN_BYTES_MAX} bytes in all frameworks that have not ended, of which the others have {others}: tear down those that will not come back"
        );
        Err(Invalid::new("framework", format!("{own} bytes"), expected))
    }

    fn subtract_bytes(&mut self, framework: &Framework) {
        let bytes = known_bytes(&framework.info, &framework.wants);
        self.known_bytes = self.known_bytes.saturating_sub(bytes);
    }

    /// Its scheduler is gone; gives its new session.
    pub fn disconnect(&mut self, id: &FrameworkId) -> Option<u64> {
        let framework = self.known.get(id).filter(|f| f.is_connected())?;
        let framework = Framework {
            scheduler: None,
            ..Framework::clone(framework)
        };
        Some(self.insert(framework))
    }

    /// It says this of itself from now on; gives whether it is connected.
    pub fn update(
        &mut self,
        id: &FrameworkId,
        info: &FrameworkInfo,
        wants: &Wants,
    ) -> Option<bool> {
        let framework = Arc::make_mut(self.known.get_mut(id)?);
        let before = known_bytes(&framework.info, &framework.wants);
        self.known_bytes = (self.known_bytes + known_bytes(info, wants)).saturating_sub(before);
        (framework.info, framework.wants) = (info.clone(), wants.clone());
        Some(framework.is_connected())
    }

    /// It has become something else.
    pub(crate) fn note_change(&mut self, id: &FrameworkId) {
        self.changed.insert(id.clone());
    }

    /// Those of these that have become something else under this master, as they are now.
    pub(crate) fn changed<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a FrameworkId>,
    ) -> impl Iterator<Item = &'a FrameworkId> {
        // As good as always none has, and none is looked at.
        let ids = ids.take(if self.changed.is_empty() {
            0
        } else {
            usize::MAX
        });
        ids.filter(|id| self.changed.contains(*id))
    }

    /// It wants offers for these roles, or no longer; empty is all of its roles.
    pub fn suppress(&mut self, id: &FrameworkId, roles: &BTreeSet<String>, suppressed: bool) {
        let Some(framework) = self.known.get_mut(id) else {
            return;
        };
        let framework = Arc::make_mut(framework);
        let roles = if roles.is_empty() {
            framework.info.roles.clone()
        } else {
            roles & &framework.info.roles
        };
        let before = &framework.wants.suppressed_roles;
        framework.wants.suppressed_roles = match suppressed {
            true => before | &roles,
            false => before - &roles,
        };
    }

    /// It has ended.
    pub fn complete(&mut self, id: &FrameworkId, tasks: Arc<OfFramework>, now: Timestamp) {
        let Some(framework) = self.known.remove(id) else {
            return;
        };
        self.subtract_bytes(&framework);
        let mut framework = Arc::unwrap_or_clone(framework);
        if let Some(scheduler) = framework.scheduler.take() {
            self.by_scheduler.remove(&scheduler);
        }
        self.dealings.remove(id);
        self.changed.remove(id);
        framework.unregistered = Some(now);
        self.remember_removed(id.clone());
        self.completed.push_back(Completed {
            framework: Arc::new(framework),
            tasks,
        });
        self.forget_oldest();
    }

    /// Keeps those that are seen, ended ones too, and of these the tasks that are seen.
    pub(crate) fn keep_seen(
        &mut self,
        is_seen: impl Fn(&FrameworkInfo) -> bool,
        task: &impl Fn(&Task) -> bool,
    ) {
        self.known.retain(|_, framework| is_seen(&framework.info));
        let known = &self.known;
        self.by_scheduler.retain(|_, id| known.contains_key(id));
        self.dealings.retain(|id, _| known.contains_key(id));
        self.completed.retain(|one| is_seen(&one.framework.info));
        for one in &mut self.completed {
            Arc::make_mut(&mut one.tasks).keep_seen(task);
        }
    }

    /// A mirror is told of one that has not ended, or that there is none of that id.
    pub(crate) fn mirror(&mut self, id: FrameworkId, framework: Option<Arc<Framework>>) {
        if framework.is_none() {
            self.dealings.remove(&id);
        }
        keep(&mut self.known, id, framework);
    }

    /// A mirror is told what has passed between the leader and this framework.
    pub(crate) fn mirror_dealings(&mut self, id: FrameworkId, counts: &[u64]) {
        if self.known.contains_key(&id) {
            let dealings = Arc::new(Dealings::mirrored(counts));
            self.dealings.insert(id, dealings);
        }
    }

    /// A mirror is told that this one has ended last, with these tasks.
    pub(crate) fn mirror_completed(&mut self, framework: Arc<Framework>, tasks: Arc<OfFramework>) {
        self.completed.push_back(Completed { framework, tasks });
        self.forget_oldest();
    }

    /// A mirror is told that this one, which has ended, is forgotten.
    pub(crate) fn mirror_forgotten(&mut self, id: &FrameworkId) {
        let place = self
            .completed
            .iter()
            .position(|one| one.framework.id == *id);
        place.map(|place| self.completed.remove(place));
    }

    /// The tasks of the one that has ended and has this id.
    pub(crate) fn completed_tasks(&mut self, id: &FrameworkId) -> Option<&mut Arc<OfFramework>> {
        let mut newest = self.completed.iter_mut().rev();
        let one = newest.find(|one| one.framework.id == *id);
        one.map(|one| &mut one.tasks)
    }

    fn forget_oldest(&mut self) {
        let bytes = |one: &Completed| one.tasks.remembered_bytes();
        let mut sum: usize = self.completed.iter().map(bytes).sum();
        while self.completed.len() > self.completed_max
            || (sum > COMPLETED_BYTES_MAX && self.completed.len() > 1)
        {
            let Some(oldest) = self.completed.pop_front() else {
                break;
            };
            sum = sum.saturating_sub(bytes(&oldest));
        }
    }

    fn remember_removed(&mut self, id: FrameworkId) {
        if self.removed.insert(id.clone()) {
            self.removed_order.push_back(id);
        }
        while self.removed_order.len() > REMOVED_MAX {
            if let Some(oldest) = self.removed_order.pop_front() {
                self.removed.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::message::scheduler::{Subscribe, SubscriptionRefused, UpdateFramework};
    use protocol::{AgentId, TaskId, TaskInfo};
    use resources::Resources;
    use runtime::NodeId;

    use super::*;
    use crate::mirror::tests::laws::books;
    use crate::tasks::{Limits, Tasks};

    fn framework(id: FrameworkId, label: usize) -> Framework {
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(id.clone());
        info.labels = BTreeMap::from([("k".to_owned(), "x".repeat(label))]);
        Framework {
            id,
            info,
            scheduler: None,
            session: 0,
            registered: Timestamp::from_nanos(0),
            reregistered: None,
            unregistered: None,
            wants: Wants::default(),
            recovered: false,
        }
    }

    /// Frameworks without schedulers are remembered for as long as they have said, so not only the bytes of each are bounded.
    #[test]
    fn frameworks_that_have_not_ended_have_a_bound_in_bytes() {
        let id = |number| FrameworkId::new(format!("f{number}")).unwrap();
        let mut frameworks = Frameworks::new(50);
        let large = framework(id(0), 1 << 20);
        let fits = |frameworks: &Frameworks, number, info| {
            frameworks.check_room(&id(number), info, &Wants::default())
        };
        let room = (0..200).take_while(|number| {
            let has_room = fits(&frameworks, *number, &large.info).is_ok();
            if has_room {
                frameworks.insert(framework(id(*number), 1 << 20));
            }
            has_room
        });
        assert_eq!(room.count(), 127);
        let refused = fits(&frameworks, 127, &large.info).unwrap_err();
        assert!(
            refused
                .expected
                .starts_with("at most 134217728 bytes in all")
        );
        // Those that are known come back, and become smaller.
        assert!(fits(&frameworks, 5, &large.info).is_ok());
        let small = framework(id(5), 1);
        frameworks.disconnect(&id(6));
        frameworks.update(&id(5), &small.info, &small.wants);
        assert!(fits(&frameworks, 127, &large.info).is_ok());
        frameworks.update(&id(5), &large.info, &large.wants);
        assert!(fits(&frameworks, 127, &large.info).is_err());
        let limits = Limits {
            completed: 1,
            unreachable: 1,
        };
        let (tasks, ..) = Tasks::new(limits).remove_framework(&id(0), |_| ());
        frameworks.complete(&id(0), tasks, Timestamp::from_nanos(1));
        assert!(fits(&frameworks, 127, &large.info).is_ok());
    }

    /// The newcomer, and a framework that would grow, get the reason; one that is as it was comes back.
    #[test]
    fn only_frameworks_that_add_bytes_are_refused() {
        let id = |text| FrameworkId::new(text).unwrap();
        let mut books = books();
        books
            .frameworks
            .insert(framework(id("large"), KNOWN_BYTES_MAX));
        books.frameworks.insert(framework(id("small"), 1));
        let subscribe = |id: Option<FrameworkId>| Subscribe {
            framework: FrameworkInfo {
                id,
                ..framework(FrameworkId::new("small").unwrap(), 1).info
            },
            scheduler: Pid::new("scheduler", NodeId::new("s", 1), 1),
            wants: Wants::default(),
        };
        let is_full = |refused: SubscriptionRefused| {
            assert!(
                refused.to_string().contains("at most 134217728 bytes"),
                "{refused}"
            );
        };
        is_full(books.prepare_framework(&subscribe(None)).unwrap_err());
        let back = books.prepare_framework(&subscribe(Some(id("small"))));
        assert!(back.is_ok(), "{back:?}");
        let update = |label| UpdateFramework {
            framework_id: id("small"),
            framework: framework(id("small"), label).info,
            wants: Wants::default(),
        };
        is_full(books.prepare_update(&update(1000)).unwrap_err());
        assert!(books.prepare_update(&update(1)).is_ok());
    }

    /// One framework after the other, each with tasks of many bytes, fills no memory.
    #[test]
    fn completed_frameworks_are_remembered_up_to_so_many_bytes() {
        let now = Timestamp::from_nanos(0);
        let mut frameworks = Frameworks::new(50);
        for number in 0..20 {
            let id = FrameworkId::new(format!("f{number}")).unwrap();
            frameworks.insert(framework(id.clone(), 0));
            let mut tasks = Tasks::new(Limits {
                completed: 100,
                unreachable: 100,
            });
            for task in 0..15 {
                let info = TaskInfo {
                    name: String::new(),
                    task_id: TaskId::new(format!("t{task}")).unwrap(),
                    agent_id: AgentId::new("a").unwrap(),
                    resources: Resources::new(),
                    command: None,
                    executor: None,
                    data: Vec::new(),
                    kill_policy: None,
                    labels: BTreeMap::from([("k".to_owned(), "x".repeat(1 << 20))]),
                };
                let state = TaskState::Finished;
                tasks.refuse(Task::placed(id.clone(), &info, Resources::new(), state));
            }
            let (tasks, ..) = tasks.remove_framework(&id, |_| ());
            frameworks.complete(&id, tasks, now);
        }
        let completed: Vec<_> = frameworks.completed().collect();
        assert_eq!(completed.len(), 4);
        assert_eq!(completed[3].framework.id.as_str(), "f19");
    }
}
