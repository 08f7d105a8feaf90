//! What is to happen to containers at which time. Pure.
//!
//! All deadlines of the containerizer share one timer: an actor looks at each of its timers whenever it wakes, and there may be
//! tens of thousands of containers in the minute that one deadline lasts.

use std::collections::BTreeMap;

use protocol::ContainerId;
use runtime::Instant;

use super::machine::{Container, Effect};

/// What happens to a container when its time has come. One that has moved on meanwhile takes no notice.
pub type Event = fn(&mut Container) -> Vec<Effect>;

/// The deadlines, soonest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    due: BTreeMap<(Instant, u64), (ContainerId, Event)>,
    number: u64,
}

impl Deadlines {
    /// Adds one. `true` if it is the soonest now.
    pub fn add(&mut self, at: Instant, id: ContainerId, event: Event) -> bool {
        self.number += 1;
        let key = (at, self.number);
        self.due.insert(key, (id, event));
        self.due
            .first_key_value()
            .is_some_and(|(first, _)| *first == key)
    }

    /// Takes the soonest that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<(ContainerId, Event)> {
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
    use std::time::Duration;

    #[test]
    fn deadlines_come_in_the_order_of_their_times() {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let id = |name| ContainerId::new(name).unwrap();
        let mut deadlines = Deadlines::default();
        assert!(deadlines.add(at(60), id("late"), Container::destroy));
        assert!(deadlines.add(at(5), id("soon"), Container::destroy));
        assert!(!deadlines.add(at(5), id("soon too"), Container::destroy));
        assert_eq!(deadlines.soonest(), Some(at(5)));
        assert!(deadlines.take_due(at(4)).is_none());
        let taken: Vec<_> = std::iter::from_fn(|| deadlines.take_due(at(59)))
            .map(|(id, _)| id.to_string())
            .collect();
        assert_eq!(taken, ["soon", "soon too"]);
        assert_eq!(deadlines.soonest(), Some(at(60)));
    }
}
