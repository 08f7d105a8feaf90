//! The post: what a tap holds back until its time comes.
//!
//! Remembers deliveries by when they are due, and which of them wait to go behind another. Runs them on the node's
//! home thread in the order of their times; those due at one time in the order they were given. Bounded: what has no
//! room is not held back. It never loses anything while its node lives.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{self, Clock, Instant};
use crate::identity::Pid;
use crate::lock;
use crate::placement::Arbiter;
use crate::tap::{Kind, Way};

/// Deliveries held back at once.
const HELD_MAX: usize = 65_536;
/// How long a message waits for another to go behind, and a lost question for its asker to give up.
pub(crate) const HELD_AT_LONGEST: Duration = Duration::from_secs(60);

type Delivery = Box<dyn FnOnce() + Send>;
/// When a delivery is due, and its number.
type Due = (Instant, u64);

/// Messages that can be swapped with one another have the same slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) way: Way,
    pub(crate) kind: Kind,
    pub(crate) to: Option<Pid>,
    pub(crate) body: TypeId,
}

#[derive(Default)]
struct Held {
    by_time: BTreeMap<Due, (Option<Slot>, Delivery)>,
    behind: BTreeMap<Slot, Due>,
    numbers: u64,
}

pub(crate) struct Post {
    clock: Clock,
    home: Arbiter,
    held: Mutex<Held>,
}

impl Post {
    pub(crate) fn new(clock: &Clock, home: &Arbiter) -> Self {
        Self {
            clock: clock.clone(),
            home: home.clone(),
            held: Mutex::default(),
        }
    }

    /// Does this so much later; at once if there is no room to keep it.
    pub(crate) fn later(
        self: &Arc<Self>,
        delay: Duration,
        delivery: impl FnOnce() + Send + 'static,
    ) {
        self.hold(delay, None, Box::new(delivery));
    }

    /// Does this when the slot is released, at the latest in a minute.
    pub(crate) fn behind(self: &Arc<Self>, slot: Slot, delivery: impl FnOnce() + Send + 'static) {
        self.hold(HELD_AT_LONGEST, Some(slot), Box::new(delivery));
    }

    /// Whether something waits in this slot.
    pub(crate) fn has_behind(&self, slot: &Slot) -> bool {
        lock(&self.held).behind.contains_key(slot)
    }

    /// Does what waits in this slot.
    pub(crate) fn release(&self, slot: &Slot) {
        let released = {
            let mut held = lock(&self.held);
            let due = held.behind.remove(slot);
            due.and_then(|due| held.by_time.remove(&due))
        };
        if let Some((_, delivery)) = released {
            delivery();
        }
    }

    fn hold(self: &Arc<Self>, delay: Duration, slot: Option<Slot>, delivery: Delivery) {
        let at = self.clock.now() + delay;
        {
            let mut held = lock(&self.held);
            if held.by_time.len() >= HELD_MAX {
                drop(held);
                tracing::warn!(held = HELD_MAX, "a tap holds back no more than this");
                return delivery();
            }
            held.numbers += 1;
            let due = (at, held.numbers);
            if let Some(slot) = &slot {
                held.behind.insert(slot.clone(), due);
            }
            held.by_time.insert(due, (slot, delivery));
        }
        let post = self.clone();
        // Should the home thread be gone there is nobody left to deliver to.
        let _ = self.home.run(Box::new(move || {
            tokio::task::spawn_local(async move {
                post.clock.sleep_until(at).await;
                clock::moved();
                post.deliver_until(at);
            });
        }));
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
