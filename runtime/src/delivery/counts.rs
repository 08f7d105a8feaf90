//! Counts of the reliable senders and receivers of one node, for
//! [`Node::counters`](crate::Node::counters).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter, or a gauge.
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

/// All counts of one node.
#[derive(Default)]
pub(crate) struct Counts {
    /// Messages accepted by reliable senders.
    pub(crate) accepted: Count,
    /// Messages acknowledged as handled.
    pub(crate) delivered: Count,
    /// Messages sent again.
    pub(crate) resent: Count,
    /// Messages given up: expired, refused by the receiver, or left when their reliable sender
    /// ended.
    pub(crate) failed: Count,
    /// Messages refused because the bound was reached.
    pub(crate) full: Count,
    /// Messages waiting now.
    pub(crate) waiting: Count,
    /// Their bytes.
    pub(crate) waiting_bytes: Count,
    /// Messages handled here.
    pub(crate) handled: Count,
    /// Messages that arrived again after they had been handled here.
    pub(crate) duplicates: Count,
    /// Messages that arrived before a missing one, and must be resent.
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
