//! What is to happen to containers at which time. Pure.
//!
//! All deadlines of the containerizer share one timer: an actor looks at each of its timers whenever it wakes, and there may be
//! tens of thousands of containers in the minute that one deadline lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::ContainerId;
use runtime::Instant;

use super::machine::{Container, Effect};

/// What happens to a container when its time has come, given how long that was. One that has moved on meanwhile takes no notice.
pub type Event = fn(&mut Container, Duration) -> Vec<Effect>;

/// An event of one container.
#[derive(Debug)]
pub struct Deadline {
    /// Whose.
    pub id: ContainerId,
    /// What happens.
    pub event: Event,
    /// How long it was waited for.
    pub delay: Duration,
}

/// The deadlines, soonest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    due: BTreeMap<(Instant, u64), Deadline>,
    number: u64,
}

impl Deadlines {
    /// Adds one. `true` if it is the soonest now.
    pub fn add(&mut self, at: Instant, deadline: Deadline) -> bool {
        self.number += 1;
        let key = (at, self.number);
        self.due.insert(key, deadline);
        self.due
            .first_key_value()
            .is_some_and(|(first, _)| *first == key)
    }

    /// Takes the soonest that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Deadline> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the soonest is due.
    pub fn soonest(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_the_order_of_their_times() {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let deadline = |name| Deadline {
            id: ContainerId::new(name).unwrap(),
            event: Container::grace_over,
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
