//! Filters tasks and executors for a viewer that may not see all of them.
//!
//! Plain data: visibility is decided in [`crate::api::visibility`]. Held resources stay, since they
//! belong to the sums of the agents.

use std::sync::Arc;

use protocol::{ExecutorInfo, FrameworkId};

use super::{FrameworkTasks, Task, Tasks};

impl FrameworkTasks {
    /// Keeps the visible tasks.
    pub(crate) fn keep_visible(&mut self, task: &impl Fn(&Task) -> bool) {
        self.active.retain(|one| task(one));
        let ended = self.active.values().filter(|one| one.state.is_terminal());
        self.ended = ended.count();
        self.completed.retain(task);
        self.unreachable.retain(task);
    }
}

impl Tasks {
    /// Keeps the visible tasks and executors.
    pub(crate) fn keep_visible(
        &mut self,
        task: &impl Fn(&Task) -> bool,
        executor: impl Fn(&FrameworkId, &ExecutorInfo) -> bool,
    ) {
        for of in self.by_framework.values_mut() {
            let all = of.active().chain(of.completed()).chain(of.unreachable());
            let is_whole = { all }.all(|one| task(one));
            // Unfiltered parts stay shared.
            if !is_whole {
                FrameworkTasks::changed(of).keep_visible(task);
            }
        }
        let by_framework = &self.by_framework;
        let is_kept = |owner: &FrameworkId, id: &protocol::TaskId| {
            let of = by_framework.get(owner);
            of.is_some_and(|of| of.active.contains_key(id))
        };
        for on in self.by_agent.values_mut() {
            let on = Arc::make_mut(on);
            on.keep_visible(is_kept, &executor);
        }
    }
}
