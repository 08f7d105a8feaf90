//! Decisions of the driver as pure functions and values: back-off, and detection of duplicate
//! updates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::Uuid;

/// Wait before the second round of attempts.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(250);
/// Longest wait between rounds.
pub const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// Number of updates to remember, so that a repeated one is not delivered again. About 3 MiB when
/// full.
pub const UPDATES_REMEMBERED: usize = 65_536;

/// Wait after `rounds` (at least one) unsuccessful rounds. `chance` in `0..1` selects a wait
/// between half and all of the doubling step, so that drivers that lost the same master do not
/// reconnect together.
pub fn backoff(rounds: u32, chance: f64) -> Duration {
    let step = BACKOFF_FIRST
        .saturating_mul(1 << rounds.saturating_sub(1).min(16))
        .min(BACKOFF_MAX);
    step.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

/// State of an update with a uuid when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// New.
    New,
    /// Delivered and acknowledged; its acknowledgement was lost, so repeat it.
    Acknowledged,
    /// Delivered, but not acknowledged by the scheduler yet.
    Waiting,
}

/// The newest delivered updates, each with a flag for its acknowledgement.
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

    /// Records an update, and forgets the oldest if there is no room.
    pub fn record(&mut self, uuid: Uuid) -> DeliveryState {
        match self.acknowledged.get(&uuid) {
            Some(true) => return DeliveryState::Acknowledged,
            Some(false) => return DeliveryState::Waiting,
            None => {}
        }
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.acknowledged.remove(&oldest);
        }
        self.order.push_back(uuid);
        self.acknowledged.insert(uuid, false);
        DeliveryState::New
    }

    /// Records an acknowledgement.
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
    fn backoff_doubles_up_to_15_seconds() {
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
    fn jitter_is_at_most_half() {
        assert_eq!(backoff(1, 0.0), BACKOFF_FIRST / 2);
        assert_eq!(backoff(20, 0.0), BACKOFF_MAX / 2);
    }

    #[test]
    fn updates_are_new_once_until_forgotten() {
        let mut seen = SeenUpdates::new(2);
        let [a, b, c] = [1, 2, 3].map(|byte| Uuid([byte; 16]));
        assert_eq!(
            [seen.record(a), seen.record(a)],
            [DeliveryState::New, DeliveryState::Waiting]
        );
        seen.acknowledge(a);
        assert_eq!(
            [seen.record(a), seen.record(b)],
            [DeliveryState::Acknowledged, DeliveryState::New]
        );
        assert_eq!(
            [seen.record(c), seen.record(a)],
            [DeliveryState::New, DeliveryState::New],
            "room for two"
        );
        assert_eq!((seen.order.len(), seen.acknowledged.len()), (2, 2));
    }
}
