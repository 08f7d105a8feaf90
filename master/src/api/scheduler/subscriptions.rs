//! The table of subscriptions over HTTP: each framework's stream, and the number of subscribers.
//!
//! A table behind a lock, held only for a lookup. The state decides which scheduler a framework
//! has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::StreamPrincipals;
use protocol::FrameworkId;
use runtime::{Handle, Pid};

use super::subscriber::Subscriber;
use crate::master::Master;

/// Maximum schedulers subscribed over HTTP; further ones are refused for now.
pub(super) const SUBSCRIBERS_MAX: usize = 10_000;

/// A framework's newest stream.
#[derive(Clone, Debug)]
pub(super) struct FrameworkStream {
    /// The stream id in its calls.
    pub stream_id: String,
    /// The framework's scheduler, as the master knows it.
    pub scheduler: Pid,
    /// The same actor.
    pub subscriber: Handle<Subscriber>,
    /// The master of the subscription.
    pub master: Handle<Master>,
    /// Its principal, if it has one.
    pub principal: Option<String>,
    /// Set by its TEARDOWN, after which nothing more is written to its stream.
    pub is_over: Arc<AtomicBool>,
}

/// All subscriptions.
#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionTable(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    streams: Mutex<BTreeMap<FrameworkId, FrameworkStream>>,
    places: AtomicUsize,
    declared: StreamPrincipals,
}

impl SubscriptionTable {
    /// An empty table that records the principal of each stream in `declared`.
    pub fn new(declared: &StreamPrincipals) -> Self {
        Self(Arc::new(Table {
            declared: declared.clone(),
            ..Table::default()
        }))
    }

    /// Reserves one slot until it is dropped; `None` above the bound.
    pub fn slot(&self) -> Option<SubscriberSlot> {
        let taken = self.0.places.fetch_add(1, Ordering::Relaxed);
        let slot = SubscriberSlot(self.clone());
        (taken < SUBSCRIBERS_MAX).then_some(slot)
    }

    /// Number of reserved slots.
    #[cfg(test)]
    pub fn slots_taken(&self) -> usize {
        self.0.places.load(Ordering::Relaxed)
    }

    /// The framework's newest stream.
    pub fn find(&self, id: &FrameworkId) -> Option<FrameworkStream> {
        self.change(|streams| streams.get(id).cloned())
    }

    /// Registers a framework's stream, until the returned guard is dropped or a newer one replaces
    /// it.
    pub fn open(&self, id: FrameworkId, stream: FrameworkStream) -> Subscription {
        let stream_id = stream.stream_id.clone();
        let is_over = stream.is_over.clone();
        if let Some(principal) = &stream.principal {
            self.0.declared.insert(&stream_id, principal);
        }
        self.change(|streams| streams.insert(id.clone(), stream));
        Subscription {
            subscriptions: self.clone(),
            id,
            stream_id,
            is_over,
        }
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<FrameworkId, FrameworkStream>) -> T,
    ) -> T {
        change(
            &mut self
                .0
                .streams
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// A reserved slot, released when dropped.
#[derive(Debug)]
pub(super) struct SubscriberSlot(SubscriptionTable);

impl Drop for SubscriberSlot {
    fn drop(&mut self) {
        self.0.0.places.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A registered stream, removed when dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    subscriptions: SubscriptionTable,
    id: FrameworkId,
    stream_id: String,
    is_over: Arc<AtomicBool>,
}

impl Subscription {
    /// Whether its framework was torn down on it.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscriptions.0.declared.remove(&self.stream_id);
        self.subscriptions.change(|streams| {
            if streams
                .get(&self.id)
                .is_some_and(|stream| stream.stream_id == self.stream_id)
            {
                streams.remove(&self.id);
            }
        });
    }
}
