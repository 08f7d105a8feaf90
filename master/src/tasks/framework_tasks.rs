//! The tasks of one framework: active, completed and unreachable ones, and the resources that
//! running tasks use.
//!
//! Plain data. The resources are summed on demand and kept until a task changes. A running total
//! would be wrong: equal ports of several agents would be subtracted together.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use protocol::{FrameworkId, TaskId};
use resources::Resources;

use super::{ById, Limits, Recent, Task};
use crate::state::sum;

/// The tasks of one framework.
#[derive(Clone, Debug)]
pub struct FrameworkTasks {
    pub(super) active: ById<Arc<Task>>,
    pub(super) completed: Recent,
    pub(super) unreachable: Recent,
    /// Number of active tasks that have ended.
    pub(super) ended: usize,
    /// Resources of the running tasks, computed on demand after a change. Most pages show most
    /// frameworks unchanged.
    used: OnceLock<Resources>,
}

impl FrameworkTasks {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            active: ById::default(),
            completed: Recent::new(limits.completed),
            unreachable: Recent::new(limits.unreachable),
            ended: 0,
            used: OnceLock::new(),
        }
    }

    /// Mutable access that invalidates the sum. Snapshots keep the old value.
    pub(super) fn changed(this: &mut Arc<Self>) -> &mut Self {
        let this = Arc::make_mut(this);
        this.invalidate_used();
        this
    }

    /// Invalidates the sum of used resources.
    pub(super) fn invalidate_used(&mut self) {
        self.used.take();
    }

    /// Running tasks, and tasks with an unacknowledged end.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.active.values()
    }

    /// Active tasks with ids after this one, in the order of their ids.
    pub fn active_after(&self, id: Option<&TaskId>) -> impl Iterator<Item = &Arc<Task>> {
        self.active.after(id)
    }

    /// Active tasks that have not ended.
    pub fn running(&self) -> impl Iterator<Item = &Arc<Task>> {
        // Avoids an iteration if none has ended.
        let all = self.ended == 0;
        self.active()
            .filter(move |task| all || !task.state.is_terminal())
    }

    /// Active tasks that have ended.
    pub fn ended(&self) -> impl Iterator<Item = &Arc<Task>> {
        let some = self
            .active()
            .take(if self.ended == 0 { 0 } else { usize::MAX });
        some.filter(|task| task.state.is_terminal())
    }

    /// Resources of the running tasks.
    pub fn used(&self) -> &Resources {
        let sum = || sum(self.running().map(|task| &task.resources));
        self.used.get_or_init(sum)
    }

    /// Tasks with an acknowledged end, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.completed.iter()
    }

    /// Approximate bytes of the completed and unreachable tasks.
    pub fn remembered_bytes(&self) -> usize {
        self.completed.bytes() + self.unreachable.bytes()
    }

    /// Tasks on unreachable agents, oldest first.
    pub fn unreachable(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.unreachable.iter()
    }
}

/// The tasks of a framework, created if there are none.
pub(super) fn of_framework<'a>(
    by_framework: &'a mut BTreeMap<FrameworkId, Arc<FrameworkTasks>>,
    framework: &FrameworkId,
    limits: Limits,
) -> &'a mut FrameworkTasks {
    let of = by_framework
        .entry(framework.clone())
        .or_insert_with(|| Arc::new(FrameworkTasks::new(limits)));
    FrameworkTasks::changed(of)
}
