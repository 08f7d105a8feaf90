//! The delayed deliveries of a tap.
//!
//! They are ordered by due time; some wait in a slot behind another message. They run on the node's
//! home thread in the order of their times, and of insertion at equal times. Bounded: without room
//! a message is not delayed. Nothing is lost while the node lives.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::actor::placement::Arbiter;
use crate::clock::{self, Clock, Instant};
use crate::identity::Pid;
use crate::lock;
use crate::observe::tap::{Kind, Way};

/// Maximum number of delayed deliveries.
const HELD_MAX: usize = 65_536;
/// Maximum wait of a message for one to swap with, and of the caller of a lost ask.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(60);

type Delivery = Box<dyn FnOnce() + Send>;
/// The due time of a delivery, and its number.
type Due = (Instant, u64);

/// Messages with the same slot can be swapped with one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SwapSlot {
    pub(crate) way: Way,
    pub(crate) kind: Kind,
    pub(crate) to: Option<Pid>,
    pub(crate) body: TypeId,
}

#[derive(Default)]
struct Held {
    by_time: BTreeMap<Due, (Option<SwapSlot>, Delivery)>,
    behind: BTreeMap<SwapSlot, Due>,
    numbers: u64,
}

pub(crate) struct DelayQueue {
    clock: Clock,
    home: Arbiter,
    held: Mutex<Held>,
}

impl DelayQueue {
    pub(crate) fn new(clock: &Clock, home: &Arbiter) -> Self {
        Self {
            clock: clock.clone(),
            home: home.clone(),
            held: Mutex::default(),
        }
    }

    /// Runs the delivery after this delay, or at once if there is no room.
    pub(crate) fn later(
        self: &Arc<Self>,
        delay: Duration,
        delivery: impl FnOnce() + Send + 'static,
    ) {
        self.hold(delay, None, Box::new(delivery));
    }

    /// Runs the delivery when the slot is released, after a minute at the latest.
    pub(crate) fn behind(
        self: &Arc<Self>,
        slot: SwapSlot,
        delivery: impl FnOnce() + Send + 'static,
    ) {
        self.hold(HOLD_MAX, Some(slot), Box::new(delivery));
    }

    /// Whether a delivery waits in this slot.
    pub(crate) fn has_behind(&self, slot: &SwapSlot) -> bool {
        lock(&self.held).behind.contains_key(slot)
    }

    /// Runs the delivery in this slot.
    pub(crate) fn release(&self, slot: &SwapSlot) {
        let released = {
            let mut held = lock(&self.held);
            let due = held.behind.remove(slot);
            due.and_then(|due| held.by_time.remove(&due))
        };
        if let Some((_, delivery)) = released {
            delivery();
        }
    }

    /// Runs a future on the home thread.
    pub(crate) fn run(&self, future: impl Future<Output = ()> + Send + 'static) {
        // If the home thread has ended, there is nothing left to deliver to.
        let _ = self.home.run(Box::new(move || {
            tokio::task::spawn_local(future);
        }));
    }

    fn hold(self: &Arc<Self>, delay: Duration, slot: Option<SwapSlot>, delivery: Delivery) {
        let at = self.clock.now() + delay;
        {
            let mut held = lock(&self.held);
            if held.by_time.len() >= HELD_MAX {
                drop(held);
                tracing::warn!(
                    held = HELD_MAX,
                    "delay queue of the tap is full: delivering at once"
                );
                return delivery();
            }
            held.numbers += 1;
            let due = (at, held.numbers);
            if let Some(slot) = &slot {
                held.behind.insert(slot.clone(), due);
            }
            held.by_time.insert(due, (slot, delivery));
        }
        let delay_queue = self.clone();
        self.run(async move {
            delay_queue.clock.sleep_until(at).await;
            clock::moved();
            delay_queue.deliver_until(at);
        });
    }

    fn deliver_until(&self, at: Instant) {
        loop {
            let next = {
                let mut held = lock(&self.held);
                match held.by_time.first_entry() {
                    Some(first) if first.key().0 <= at => {
                        let (slot, delivery) = first.remove();
                        if let Some(slot) = slot {
                            held.behind.remove(&slot);
                        }
                        delivery
                    }
                    _ => return,
                }
            };
            next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::simulate;

    #[test]
    fn deliveries_keep_due_order_and_overflow_runs_at_once() {
        simulate(|node| async move {
            let delay_queue = node.delay_queue().clone();
            let delivered: Arc<Mutex<Vec<usize>>> = Arc::default();
            let note = |number: usize| {
                let delivered = delivered.clone();
                move || lock(&delivered).push(number)
            };
            let second = Duration::from_secs(1);
            delay_queue.later(3 * second, note(3));
            delay_queue.later(second, note(1));
            delay_queue.later(second, note(2));
            for number in 4..=HELD_MAX {
                delay_queue.later(4 * second, note(number));
            }
            delay_queue.later(4 * second, note(0));
            assert_eq!(*lock(&delivered), [0]);
            node.clock().advance(3 * second).await;
            assert_eq!(*lock(&delivered), [0, 1, 2, 3]);
            node.clock().advance(second).await;
            assert!(lock(&delivered).is_sorted());
            assert_eq!(lock(&delivered).len(), HELD_MAX + 1);
        });
    }
}
