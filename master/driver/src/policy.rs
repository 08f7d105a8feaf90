//! The driver's decisions, as plain functions and values: how long to wait before the next try, and which updates were seen before.
//!
//! No mailbox, clock, chance or I/O: all of these come in as arguments.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::Uuid;

/// The wait before the second round of tries.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(250);
/// The longest wait between rounds (SPEC 2.2, retry discipline).
pub const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// How many of the newest updates are remembered, so that one sent again is not delivered again. About 3 MiB when full.
pub const UPDATES_REMEMBERED: usize = 65_536;

/// How long to wait after `rounds` rounds in which no master took us, at least one. `chance` is in `0..1`: the wait lies between half
/// and all of the doubling step, so that drivers which lost one master together do not come back together.
pub fn backoff(rounds: u32, chance: f64) -> Duration {
    let step = BACKOFF_FIRST
        .saturating_mul(1 << rounds.saturating_sub(1).min(16))
        .min(BACKOFF_MAX);
    step.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

/// What to do with a status update that has a uuid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is new.
    New,
    /// It was delivered, and its acknowledgement must have been lost: acknowledge it again.
    Acknowledged,
    /// It was delivered, and the scheduler has not acknowledged it yet.
    Waiting,
}

/// The newest updates that were delivered, each with whether it was acknowledged.
#[derive(Debug)]
pub struct SeenUpdates {
    acknowledged: BTreeMap<Uuid, bool>,
    order: VecDeque<Uuid>,
    capacity: usize,
}

impl SeenUpdates {
    /// Remembers the newest `capacity` updates, at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            acknowledged: BTreeMap::new(),
            order: VecDeque::new(),
            capacity: capacity.max(1),
        }
    }

    /// Notes that this update came; the oldest is forgotten if there is no room.
    pub fn hear(&mut self, uuid: Uuid) -> Heard {
        match self.acknowledged.get(&uuid) {
            Some(true) => return Heard::Acknowledged,
            Some(false) => return Heard::Waiting,
            None => {}
        }
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.acknowledged.remove(&oldest);
        }
        self.order.push_back(uuid);
        self.acknowledged.insert(uuid, false);
        Heard::New
    }

    /// Notes that this update was acknowledged.
    pub fn acknowledge(&mut self, uuid: Uuid) {
        if let Some(acknowledged) = self.acknowledged.get_mut(&uuid) {
            *acknowledged = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_a_quarter_of_a_second_to_fifteen_seconds() {
        let longest: Vec<_> = (1..=9)
            .map(|rounds| backoff(rounds, 1.0).as_millis())
            .collect();
        assert_eq!(
            longest,
            [250, 500, 1000, 2000, 4000, 8000, 15000, 15000, 15000]
        );
        assert_eq!(backoff(u32::MAX, 1.0), BACKOFF_MAX);
    }

    #[test]
    fn the_wait_is_never_below_half_of_its_step() {
        assert_eq!(backoff(1, 0.0), BACKOFF_FIRST / 2);
        assert_eq!(backoff(20, 0.0), BACKOFF_MAX / 2);
    }

    #[test]
    fn an_update_is_new_once_and_the_oldest_is_forgotten() {
        let mut seen = SeenUpdates::new(2);
        let [a, b, c] = [1, 2, 3].map(|byte| Uuid([byte; 16]));
        assert_eq!([seen.hear(a), seen.hear(a)], [Heard::New, Heard::Waiting]);
        seen.acknowledge(a);
        assert_eq!(
            [seen.hear(a), seen.hear(b)],
            [Heard::Acknowledged, Heard::New]
        );
        assert_eq!(
            [seen.hear(c), seen.hear(a)],
            [Heard::New, Heard::New],
            "room for two"
        );
        assert_eq!((seen.order.len(), seen.acknowledged.len()), (2, 2));
    }
}
