//! What couriers and receivers of one node have met, for [`Node::counters`](crate::Node::counters).
//!
//! Numbers only; nothing is decided by them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One number that only grows, or one that says how much there is now.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, less: usize) {
        self.0.fetch_sub(less as u64, Ordering::Relaxed);
    }
}

/// All of one node.
#[derive(Default)]
pub(crate) struct Counts {
    /// Messages that couriers took.
    pub(crate) accepted: Count,
    /// Messages whose handling was acknowledged.
    pub(crate) delivered: Count,
    /// Messages that were sent another time.
    pub(crate) resent: Count,
    /// Messages that were given up: expired, refused by the receiver, or left when their courier ended.
    pub(crate) failed: Count,
    /// Messages that were not taken because the bound was hit.
    pub(crate) full: Count,
    /// Messages that wait now.
    pub(crate) waiting: Count,
    /// Bytes of those.
    pub(crate) waiting_bytes: Count,
    /// Messages handled here.
    pub(crate) handled: Count,
    /// Messages that came again after they had been handled here.
    pub(crate) duplicates: Count,
    /// Messages that came before one that was missing, and were asked for again.
    pub(crate) early: Count,
    /// Messages refused here.
    pub(crate) refused: Count,
}

impl Counts {
    /// Adds all of them, under `delivery/`.
    pub(crate) fn put(&self, flat: &mut BTreeMap<String, f64>) {
        for (name, count) in [
            ("accepted", &self.accepted),
            ("delivered", &self.delivered),
            ("resent", &self.resent),
            ("failed", &self.failed),
            ("full", &self.full),
            ("waiting", &self.waiting),
            ("waiting_bytes", &self.waiting_bytes),
            ("handled", &self.handled),
            ("duplicates", &self.duplicates),
            ("early", &self.early),
            ("refused", &self.refused),
        ] {
            let count = count.0.load(Ordering::Relaxed);
            flat.insert(format!("delivery/{name}"), count as f64);
        }
    }
}
