//! Deadlines of containers. Pure.
//!
//! All deadlines share one timer of the containerizer: an actor inspects all its timers at each
//! wakeup, and tens of thousands of containers may have a deadline at once.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::ContainerId;
use runtime::Instant;

use crate::container::machine::{Container, Effect};

/// Called with the container and the length of the wait. Has no effect on a container that has
/// moved on.
pub type DeadlineHandler = fn(&mut Container, Duration) -> Vec<Effect>;

/// A deadline of one container.
#[derive(Debug)]
pub struct Deadline {
    /// The container.
    pub id: ContainerId,
    /// Called when it expires.
    pub handler: DeadlineHandler,
    /// Length of the wait.
    pub delay: Duration,
}

/// Deadlines, earliest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    due: BTreeMap<(Instant, u64), Deadline>,
    number: u64,
}

impl Deadlines {
    /// Adds a deadline. `true` if it is the earliest now.
    pub fn add(&mut self, at: Instant, deadline: Deadline) -> bool {
        self.number += 1;
        let key = (at, self.number);
        self.due.insert(key, deadline);
        self.due
            .first_key_value()
            .is_some_and(|(first, _)| *first == key)
    }

    /// Removes the earliest deadline if it is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Deadline> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The earliest deadline.
    pub fn soonest(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_expire_in_order_of_time() {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let deadline = |name| Deadline {
            id: ContainerId::new(name).unwrap(),
            handler: Container::grace_over,
            delay: Duration::ZERO,
        };
        let mut deadlines = Deadlines::default();
        assert!(deadlines.add(at(60), deadline("late")));
        assert!(deadlines.add(at(5), deadline("soon")));
        assert!(!deadlines.add(at(5), deadline("soon too")));
        assert_eq!(deadlines.soonest(), Some(at(5)));
        assert!(deadlines.take_due(at(4)).is_none());
        let taken: Vec<_> = std::iter::from_fn(|| deadlines.take_due(at(59)))
            .map(|due| due.id.to_string())
            .collect();
        assert_eq!(taken, ["soon", "soon too"]);
        assert_eq!(deadlines.soonest(), Some(at(60)));
    }
}
