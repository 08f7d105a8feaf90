//! Limits concurrent launches of commands, so that a burst of a thousand tasks does not start a
//! thousand processes that compete for the CPU. Pure.
//!
//! Counts only commands, which start at once. A custom executor may be slow and must not delay
//! others. `checking` starts the checks of a command, `fetching` has the files that a launch waits
//! for, `provisioning` its root file system, `settings` what a container's settings need,
//! `times` the duration of each phase, `unplaced` remembers tasks that never got a container.

pub(in crate::container) mod checking;
pub(in crate::container) mod checks;
pub(in crate::container) mod fetching;
pub(in crate::container) mod provisioning;
pub(in crate::container) mod settings;
pub mod times;
pub(in crate::container) mod unplaced;

use std::collections::{BTreeSet, VecDeque};

use protocol::ContainerId;

use super::machine::Phase;

/// Maximum commands between launch and start.
pub const AT_ONCE: usize = 32;

/// Launches in progress and queued ones.
#[derive(Debug, Default)]
pub struct LaunchQueue {
    starting: BTreeSet<ContainerId>,
    waiting: VecDeque<ContainerId>,
    /// Set while a queued launch is being started.
    busy: bool,
}

impl LaunchQueue {
    /// Starts a launch, or queues it and returns `false`.
    pub fn begin(&mut self, id: &ContainerId) -> bool {
        if self.starting.len() >= AT_ONCE {
            self.waiting.push_back(id.clone());
            return false;
        }
        self.starting.insert(id.clone());
        true
    }

    /// Removes a queued launch. `false` if it was not queued.
    pub fn withdraw(&mut self, id: &ContainerId) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting == id) else {
            return false;
        };
        self.waiting.remove(at);
        true
    }

    /// Frees the slot of a container that has left the launch phases.
    pub fn phase_changed(&mut self, id: &ContainerId, phase: Option<Phase>) {
        if phase != Some(Phase::Launching) {
            self.starting.remove(id);
        }
    }

    /// The next queued launch if there is a slot. Each must be followed by [`done`](Self::done).
    pub fn take_next(&mut self) -> Option<ContainerId> {
        if self.busy || self.starting.len() >= AT_ONCE {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.busy = true;
        Some(next)
    }

    /// The launch returned by [`take_next`](Self::take_next) was started.
    pub fn done(&mut self) {
        self.busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_limited_and_queued_in_order() {
        let id = |number: usize| ContainerId::new(format!("c{number}")).unwrap();
        let mut launches = LaunchQueue::default();
        let begun = (0..AT_ONCE + 3)
            .filter(|&number| launches.begin(&id(number)))
            .count();
        assert_eq!(begun, AT_ONCE);
        assert_eq!(launches.take_next(), None);
        launches.phase_changed(&id(0), Some(Phase::Launching));
        assert_eq!(launches.take_next(), None, "it has not started");
        assert!(launches.withdraw(&id(AT_ONCE)) && !launches.withdraw(&id(1)));
        launches.phase_changed(&id(0), Some(Phase::Running));
        launches.phase_changed(&id(1), None);
        assert_eq!(launches.take_next(), Some(id(AT_ONCE + 1)));
        assert_eq!(launches.take_next(), None, "one at a time");
        launches.done();
        assert_eq!(launches.take_next(), Some(id(AT_ONCE + 2)));
    }
}
