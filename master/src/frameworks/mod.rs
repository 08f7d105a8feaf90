//! The frameworks that the master knows, connected or not, and the ones that have ended.
//!
//! Plain data with pure transitions. Tasks are in [`crate::tasks`],
//! offers in [`crate::offers`]. Pure decisions are in the submodules.
//!
//! | module | contents |
//! |---|---|
//! | `subscription` | frameworks register and return |
//! | `ending` | a lost scheduler, the failover timeout, the removal |
//! | `updating` | a framework changes its description |
//! | `standby` | several schedulers of one framework |
//! | `over_http` | calls that only HTTP schedulers have |
//! | `counters` | the metrics of each framework |

pub mod counters;
pub mod ending;
pub mod over_http;
pub mod standby;
pub mod subscription;
pub mod updating;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use protocol::{Capability, FrameworkId, FrameworkInfo, TaskState, Wants};
use resources::Invalid;
use runtime::{Pid, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::agents::keep;
use crate::frameworks::counters::{FrameworkCounter, FrameworkCounters};
use crate::state::size::wire_bytes;
use crate::tasks::{FrameworkTasks, Task};

/// Maximum ids of removed frameworks that are remembered in order to be refused.
const REMOVED_MAX: usize = 10_000;

/// Maximum bytes of the tasks of ended frameworks, unless a single framework exceeds it.
const COMPLETED_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of all frameworks that have not ended. A framework without a scheduler is
/// remembered for its `failover_timeout`, which it chooses itself.
const KNOWN_BYTES_MAX: usize = 128 << 20;

/// Approximate bytes of a framework without its texts.
const PLAIN_BYTES: usize = 1 << 10;

/// Approximate bytes of a framework with this description.
fn known_bytes(info: &FrameworkInfo, wants: &Wants) -> usize {
    PLAIN_BYTES + wire_bytes(info) + wire_bytes(&wants.demands)
}

/// A framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Framework {
    /// Its own description; the id is set.
    pub id: FrameworkId,
    /// The address of its scheduler; `None` while none is connected.
    pub info: FrameworkInfo,
    /// The address of its scheduler; `None` while none is connected.
    pub scheduler: Option<Pid>,
    /// Counts connections and disconnections, so that a timer of an earlier one has no effect.
    pub session: u64,
    /// When it was registered.
    pub registered: Timestamp,
    /// When its scheduler last reconnected.
    pub reregistered: Option<Timestamp>,
    /// When it ended.
    pub unregistered: Option<Timestamp>,
    /// The offers that it wants at present.
    pub wants: Wants,
    /// Known only from the registry or an agent: no scheduler has reconnected yet.
    pub recovered: bool,
}

impl Framework {
    /// Whether its scheduler is connected.
    pub fn is_connected(&self) -> bool {
        self.scheduler.is_some()
    }

    /// The state as it is reported to this framework.
    pub fn report_state(&self, state: TaskState) -> TaskState {
        state.for_framework(self.info.can(Capability::PartitionAware))
    }
}

/// An ended framework with its newest tasks.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The framework.
    pub framework: Arc<Framework>,
    /// Its tasks.
    pub tasks: Arc<FrameworkTasks>,
}

/// All frameworks.
#[derive(Clone, Debug)]
pub struct Frameworks {
    known: BTreeMap<FrameworkId, Arc<Framework>>,
    /// Bytes of the known frameworks; not maintained by a mirror.
    known_bytes: usize,
    /// Never iterated.
    by_scheduler: FxHashMap<Pid, FrameworkId>,
    /// Of frameworks that have not ended. Never iterated.
    counters: FxHashMap<FrameworkId, Arc<FrameworkCounters>>,
    completed: VecDeque<Completed>,
    completed_max: usize,
    removed: BTreeSet<FrameworkId>,
    removed_order: VecDeque<FrameworkId>,
    sessions: u64,
    /// Frameworks that have not ended and were changed under this master: an agent that was
    /// disconnected may have the old description.
    changed: FxHashSet<FrameworkId>,
}

impl Frameworks {
    /// An empty table that keeps at most this many completed frameworks.
    pub fn new(completed_max: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            known_bytes: 0,
            by_scheduler: FxHashMap::default(),
            counters: FxHashMap::default(),
            completed: VecDeque::new(),
            completed_max,
            removed: BTreeSet::new(),
            removed_order: VecDeque::new(),
            sessions: 0,
            changed: FxHashSet::default(),
        }
    }

    /// The framework with that id, unless it has ended.
    pub fn get(&self, id: &FrameworkId) -> Option<&Framework> {
        self.known.get(id).map(Arc::as_ref)
    }

    /// The framework with that scheduler.
    pub fn at(&self, scheduler: &Pid) -> Option<&Framework> {
        self.get(self.by_scheduler.get(scheduler)?)
    }

    /// The connected scheduler of that framework.
    pub fn scheduler(&self, id: &FrameworkId) -> Option<&Pid> {
        self.get(id)?.scheduler.as_ref()
    }

    /// All frameworks that have not ended.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Framework>> {
        self.known.values()
    }

    /// The newest ended frameworks, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Completed> {
        self.completed.iter()
    }

    /// Whether a framework with that id has ended.
    pub fn is_removed(&self, id: &FrameworkId) -> bool {
        self.removed.contains(id)
    }

    /// Sets the ended frameworks that the registry knew at this master's start.
    pub fn recover_removed(&mut self, ids: impl IntoIterator<Item = FrameworkId>) {
        for id in ids {
            self.remember_removed(id);
        }
    }

    /// Adds to a counter of this framework; unknown frameworks are ignored.
    pub fn count(&mut self, id: &FrameworkId, counter: FrameworkCounter, more: usize) {
        if let Some(counters) = self.counters.get_mut(id) {
            Arc::make_mut(counters).add(counter, more);
        }
    }

    /// The same for the framework with that scheduler.
    pub fn count_at(&mut self, scheduler: &Pid, counter: FrameworkCounter, more: usize) {
        if let Some(id) = self.by_scheduler.get(scheduler)
            && let Some(counters) = self.counters.get_mut(id)
        {
            Arc::make_mut(counters).add(counter, more);
        }
    }

    /// Counts one event for the framework's scheduler, if it is connected.
    pub fn count_if_connected(&mut self, id: &FrameworkId, counter: FrameworkCounter) {
        if self.scheduler(id).is_some() {
            self.count(id, counter, 1);
        }
    }

    /// The counters of this framework, unless it has ended.
    pub fn counters(&self, id: &FrameworkId) -> Option<&Arc<FrameworkCounters>> {
        self.counters.get(id)
    }

    /// Adds a framework; returns its session, which replaces the given one.
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
        self.counters.entry(framework.id.clone()).or_default();
        self.known.insert(framework.id.clone(), Arc::new(framework));
        self.sessions
    }

    /// Checks the bound on the bytes of all frameworks. A framework that does not grow always
    /// passes.
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

    /// Disconnects its scheduler; returns the new session.
    pub fn disconnect(&mut self, id: &FrameworkId) -> Option<u64> {
        let framework = self.known.get(id).filter(|f| f.is_connected())?;
        let framework = Framework {
            scheduler: None,
            ..Framework::clone(framework)
        };
        Some(self.insert(framework))
    }

    /// Sets its description; returns whether it is connected.
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

    /// Records that its description has changed.
    pub(crate) fn note_change(&mut self, id: &FrameworkId) {
        self.changed.insert(id.clone());
    }

    /// Those of these frameworks whose description has changed under this master.
    pub(crate) fn changed<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a FrameworkId>,
    ) -> impl Iterator<Item = &'a FrameworkId> {
        // Usually none has, and then the ids are not iterated.
        let ids = ids.take(if self.changed.is_empty() {
            0
        } else {
            usize::MAX
        });
        ids.filter(|id| self.changed.contains(*id))
    }

    /// Suppresses or revives offers for these roles; an empty set means all its roles.
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

    /// Ends a framework.
    pub fn complete(&mut self, id: &FrameworkId, tasks: Arc<FrameworkTasks>, now: Timestamp) {
        let Some(framework) = self.known.remove(id) else {
            return;
        };
        self.subtract_bytes(&framework);
        let mut framework = Arc::unwrap_or_clone(framework);
        if let Some(scheduler) = framework.scheduler.take() {
            self.by_scheduler.remove(&scheduler);
        }
        self.counters.remove(id);
        self.changed.remove(id);
        framework.unregistered = Some(now);
        self.remember_removed(id.clone());
        self.completed.push_back(Completed {
            framework: Arc::new(framework),
            tasks,
        });
        self.forget_oldest();
    }

    /// Keeps the visible frameworks, ended ones too, and their visible tasks.
    pub(crate) fn keep_visible(
        &mut self,
        is_seen: impl Fn(&FrameworkInfo) -> bool,
        task: &impl Fn(&Task) -> bool,
    ) {
        self.known.retain(|_, framework| is_seen(&framework.info));
        let known = &self.known;
        self.by_scheduler.retain(|_, id| known.contains_key(id));
        self.counters.retain(|id, _| known.contains_key(id));
        self.completed.retain(|one| is_seen(&one.framework.info));
        for one in &mut self.completed {
            Arc::make_mut(&mut one.tasks).keep_visible(task);
        }
    }

    /// Sets a framework in a mirror, or removes it.
    pub(crate) fn mirror(&mut self, id: FrameworkId, framework: Option<Arc<Framework>>) {
        if framework.is_none() {
            self.counters.remove(&id);
        }
        keep(&mut self.known, id, framework);
    }

    /// Sets a framework's counters in a mirror.
    pub(crate) fn mirror_dealings(&mut self, id: FrameworkId, counts: &[u64]) {
        if self.known.contains_key(&id) {
            let counters = Arc::new(FrameworkCounters::mirrored(counts));
            self.counters.insert(id, counters);
        }
    }

    /// Adds the newest ended framework to a mirror, with its tasks.
    pub(crate) fn mirror_completed(
        &mut self,
        framework: Arc<Framework>,
        tasks: Arc<FrameworkTasks>,
    ) {
        self.completed.push_back(Completed { framework, tasks });
        self.forget_oldest();
    }

    /// Removes an ended framework from a mirror.
    pub(crate) fn mirror_forgotten(&mut self, id: &FrameworkId) {
        let place = self
            .completed
            .iter()
            .position(|one| one.framework.id == *id);
        place.map(|place| self.completed.remove(place));
    }

    /// The tasks of the newest ended framework with this id.
    pub(crate) fn completed_tasks(&mut self, id: &FrameworkId) -> Option<&mut Arc<FrameworkTasks>> {
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
    use testkit::{assert_contains, assert_starts};

    use protocol::message::scheduler::{Subscribe, SubscriptionRefused, UpdateFramework};
    use protocol::{AgentId, TaskId, TaskInfo};
    use resources::Resources;
    use runtime::NodeId;

    use super::*;
    use crate::leadership::mirror::tests::properties::state;
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

    /// Frameworks without a scheduler are kept for as long as they ask, so their total bytes are
    /// bounded too.
    #[test]
    fn known_frameworks_are_bounded_in_bytes() {
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
        assert_starts!(refused.expected, "at most 134217728 bytes in all");
        // Known frameworks reconnect and shrink.
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

    /// A newcomer and a growing framework are refused with the reason; an unchanged one reconnects.
    #[test]
    fn only_frameworks_that_add_bytes_are_refused() {
        let id = |text| FrameworkId::new(text).unwrap();
        let mut state = state();
        state
            .frameworks
            .insert(framework(id("large"), KNOWN_BYTES_MAX));
        state.frameworks.insert(framework(id("small"), 1));
        let subscribe = |id: Option<FrameworkId>| Subscribe {
            framework: FrameworkInfo {
                id,
                ..framework(FrameworkId::new("small").unwrap(), 1).info
            },
            scheduler: Pid::new("scheduler", NodeId::new("s", 1), 1),
            wants: Wants::default(),
        };
        let is_full = |refused: SubscriptionRefused| {
            assert_contains!(refused.to_string(), "at most 134217728 bytes");
        };
        is_full(state.prepare_framework(&subscribe(None)).unwrap_err());
        let back = state.prepare_framework(&subscribe(Some(id("small"))));
        assert!(back.is_ok(), "{back:?}");
        let update = |label| UpdateFramework {
            framework_id: id("small"),
            framework: framework(id("small"), label).info,
            wants: Wants::default(),
        };
        is_full(state.prepare_update(&update(1000)).unwrap_err());
        assert!(state.prepare_update(&update(1)).is_ok());
    }

    /// A succession of frameworks with large tasks does not fill the memory.
    #[test]
    fn completed_frameworks_are_bounded_in_bytes() {
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
                    labels: BTreeMap::from([("k".to_owned(), "x".repeat(1 << 20))]),
                    ..TaskInfo::new(
                        TaskId::new(format!("t{task}")).unwrap(),
                        AgentId::new("a").unwrap(),
                        Resources::new(),
                    )
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
