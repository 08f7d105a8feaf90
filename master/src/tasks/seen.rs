//! Tasks and executors as they are shown to somebody who does not see all of them.
//!
//! Plain data: who sees what is decided in [`crate::sight`]. What is held stays, since it belongs to the agents' sums.

use std::sync::Arc;

use protocol::{ExecutorInfo, FrameworkId};

use super::{OfFramework, Task, Tasks};

impl OfFramework {
    /// Keeps the tasks that are seen.
    pub(crate) fn keep_seen(&mut self, task: &impl Fn(&Task) -> bool) {
        self.active.retain(|one| task(one));
        let ended = self.active.values().filter(|one| one.state.is_terminal());
        self.ended = ended.count();
        self.completed.retain(task);
        self.unreachable.retain(task);
    }
}

impl Tasks {
    /// Keeps the tasks and executors that are seen.
    pub(crate) fn keep_seen(
        &mut self,
        task: &impl Fn(&Task) -> bool,
        executor: impl Fn(&FrameworkId, &ExecutorInfo) -> bool,
    ) {
        for of in self.by_framework.values_mut() {
            let all = of.active().chain(of.completed()).chain(of.unreachable());
            let is_whole = { all }.all(|one| task(one));
            // What is seen as a whole stays where it is.
            if !is_whole {
                OfFramework::changed(of).keep_seen(task);
            }
        }
        let by_framework = &self.by_framework;
        let is_kept = |owner: &FrameworkId, id: &protocol::TaskId| {
            let of = by_framework.get(owner);
            of.is_some_and(|of| of.active.contains_key(id))
        };
        for on in self.by_agent.values_mut() {
            let on = Arc::make_mut(on);
            on.keep_seen(is_kept, &executor);
        }
    }
}
