//! How many command executors are started at once: a thousand tasks in one go must not become a thousand processes that fight for
//! the processor before the first has begun. Pure.
//!
//! Only our own command executors are counted: they subscribe at once. A framework's executor may take its time, and never makes
//! others wait.

use std::collections::{BTreeSet, VecDeque};

use protocol::ContainerId;

use super::machine::Phase;

/// Command executors that may be between their launch and their subscription.
pub const AT_ONCE: usize = 32;

/// What is being started and what waits.
#[derive(Debug, Default)]
pub struct Launches {
    under_way: BTreeSet<ContainerId>,
    waiting: VecDeque<ContainerId>,
    /// Whether somebody is starting what waits just now.
    busy: bool,
}

impl Launches {
    /// Whether this one may be launched now; if not, it waits for its turn.
    pub fn begin(&mut self, id: &ContainerId) -> bool {
        if self.under_way.len() >= AT_ONCE {
            self.waiting.push_back(id.clone());
            return false;
        }
        self.under_way.insert(id.clone());
        true
    }

    /// Takes one that waits out of the queue. `false` if it did not wait.
    pub fn withdraw(&mut self, id: &ContainerId) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting == id) else {
            return false;
        };
        self.waiting.remove(at);
        true
    }

    /// Something has happened to this one.
    pub fn look_again(&mut self, id: &ContainerId, phase: Option<Phase>) {
        if !matches!(phase, Some(Phase::Launching | Phase::Registering)) {
            self.under_way.remove(id);
        }
    }

    /// The next that may be launched, unless somebody is launching already. [`done`](Self::done) must follow.
    pub fn take_next(&mut self) -> Option<ContainerId> {
        if self.busy || self.under_way.len() >= AT_ONCE {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.busy = true;
        Some(next)
    }

    /// What [`take_next`](Self::take_next) gave has been launched.
    pub fn done(&mut self) {
        self.busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_start_at_once_and_the_rest_in_their_order() {
        let id = |number: usize| ContainerId::new(format!("c{number}")).unwrap();
        let mut launches = Launches::default();
        let begun = (0..AT_ONCE + 3)
            .filter(|&number| launches.begin(&id(number)))
            .count();
        assert_eq!(begun, AT_ONCE);
        assert_eq!(launches.take_next(), None);
        launches.look_again(&id(0), Some(Phase::Registering));
        assert_eq!(launches.take_next(), None, "it has not subscribed");
        assert!(launches.withdraw(&id(AT_ONCE)) && !launches.withdraw(&id(1)));
        launches.look_again(&id(0), Some(Phase::Running));
        launches.look_again(&id(1), None);
        assert_eq!(launches.take_next(), Some(id(AT_ONCE + 1)));
        assert_eq!(launches.take_next(), None, "one at a time");
        launches.done();
        assert_eq!(launches.take_next(), Some(id(AT_ONCE + 2)));
    }
}
