//! The tasks of one framework: those that are active, the newest that are over, those that are out of reach, and what the ones that run use.
//!
//! Plain data.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use protocol::{FrameworkId, TaskId};
use resources::Resources;

use super::{ById, Limits, Recent, Task};
use crate::books::sum;

/// The tasks of one framework.
#[derive(Clone, Debug)]
pub struct OfFramework {
    pub(super) active: ById<Arc<Task>>,
    pub(super) completed: Recent,
    pub(super) unreachable: Recent,
    /// How many of the active ones have ended.
    pub(super) ended: usize,
    /// What those that run use, once somebody has asked for it since they changed. Most pages show most frameworks as the page before did.
    used: OnceLock<Resources>,
}

impl OfFramework {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            active: ById::default(),
            completed: Recent::new(limits.completed),
            unreachable: Recent::new(limits.unreachable),
            ended: 0,
            used: OnceLock::new(),
        }
    }

    /// To be changed, whoever else still shows how it was.
    pub(super) fn changed(this: &mut Arc<Self>) -> &mut Self {
        let this = Arc::make_mut(this);
        this.uses_anew();
        this
    }

    /// Other tasks run, or what they use is other.
    pub(super) fn uses_anew(&mut self) {
        self.used.take();
    }

    /// Those that run, and those whose end is not acknowledged yet.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.active.values()
    }

    /// Of these, those with ids after this one, in the order of their ids.
    pub fn active_after(&self, id: Option<&TaskId>) -> impl Iterator<Item = &Arc<Task>> {
        self.active.after(id)
    }

    /// Of these, those that have not ended.
    pub fn running(&self) -> impl Iterator<Item = &Arc<Task>> {
        // Where none has, none is looked at.
        let all = self.ended == 0;
        self.active()
            .filter(move |task| all || !task.state.is_terminal())
    }

    /// And those that have.
    pub fn ended(&self) -> impl Iterator<Item = &Arc<Task>> {
        let some = self
            .active()
            .take(if self.ended == 0 { 0 } else { usize::MAX });
        some.filter(|task| task.state.is_terminal())
    }

    /// What those that run use.
    pub fn used(&self) -> &Resources {
        let sum = || sum(self.running().map(|task| &task.resources));
        self.used.get_or_init(sum)
    }

    /// Those whose end is acknowledged, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.completed.iter()
    }

    /// About how many bytes those take that are over or out of reach.
    pub fn remembered_bytes(&self) -> usize {
        self.completed.bytes() + self.unreachable.bytes()
    }

    /// Those whose agents cannot be reached, oldest first.
    pub fn unreachable(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.unreachable.iter()
    }
}

/// The tasks of a framework, made if there are none.
pub(super) fn of_framework<'a>(
    by_framework: &'a mut BTreeMap<FrameworkId, Arc<OfFramework>>,
    framework: &FrameworkId,
    limits: Limits,
) -> &'a mut OfFramework {
    let of = by_framework
        .entry(framework.clone())
        .or_insert_with(|| Arc::new(OfFramework::new(limits)));
    OfFramework::changed(of)
}
