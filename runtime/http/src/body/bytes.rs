//! Bounds the bytes of request bodies in memory: in total, and per address by the bytes that remain
//! free.
//!
//! The rule needs no list of addresses. A single address may hold half of the total; a newcomer
//! always finds as much free as the greediest address could still take. Bytes count until their
//! request is answered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::Source;

/// Overhead per chunk. Without it, single-byte chunks would use forty times the counted memory.
const PIECE_COST: usize = 64;

/// All bodies in memory.
#[derive(Debug)]
pub(crate) struct BodyBytes {
    /// Name of the bodies for errors.
    kind: &'static str,
    most: usize,
    totals: Mutex<HeldTotals>,
}

/// Held bytes. A request without a connection, as in tests, has no address.
#[derive(Debug, Default)]
struct HeldTotals {
    all: usize,
    of: BTreeMap<Option<Source>, usize>,
}

/// The memory bound would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many unanswered {kind} bytes from this address ({own}); {free} of {most} bytes free; retry later"
)]
pub(crate) struct NoBodySpace {
    kind: &'static str,
    own: usize,
    free: usize,
    most: usize,
}

impl BodyBytes {
    /// Bounds the bodies of this name to `most` bytes.
    pub fn new(kind: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            kind,
            most,
            totals: Mutex::default(),
        })
    }

    fn totals(&self) -> MutexGuard<'_, HeldTotals> {
        // Only numbers, which change together, so a poisoned lock is safe.
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes held now.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let totals = self.totals();
        assert_eq!(totals.all, totals.of.values().sum::<usize>());
        totals.all
    }
}

impl HeldTotals {
    /// Whether an address that holds `own` bytes may hold `more` in addition.
    fn has_room(&self, most: usize, own: usize, more: usize) -> bool {
        let free = most.saturating_sub(self.all.saturating_add(more));
        own.saturating_add(more) <= free
    }
}

/// Bytes held for one body, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    bodies: Arc<BodyBytes>,
    source: Option<Source>,
    bytes: AtomicUsize,
}

impl HeldBytes {
    /// Holds no bytes yet.
    pub fn new(bodies: Arc<BodyBytes>, source: Option<Source>) -> Self {
        Self {
            bodies,
            source,
            bytes: AtomicUsize::new(0),
        }
    }

    /// Adds one chunk.
    pub fn add(&self, bytes: usize) -> Result<(), NoBodySpace> {
        let bodies = &self.bodies;
        let (more, mut totals) = (bytes.saturating_add(PIECE_COST), bodies.totals());
        let own = totals.of.get(&self.source).copied().unwrap_or(0);
        if !totals.has_room(bodies.most, own, more) {
            return Err(NoBodySpace {
                kind: bodies.kind,
                own,
                free: bodies.most.saturating_sub(totals.all),
                most: bodies.most,
            });
        }
        totals.all += more;
        totals.of.insert(self.source, own + more);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let mut totals = self.bodies.totals();
        totals.all -= bytes;
        if let Entry::Occupied(mut of) = totals.of.entry(self.source) {
            *of.get_mut() -= bytes;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MOST: usize = 1 << 20;

    fn source(host: u8) -> Option<Source> {
        Some(IpAddr::from([10, 0, 0, host]).into())
    }

    /// Takes as much as it gets, in chunks of 1 KiB.
    fn greedy(bodies: &Arc<BodyBytes>, host: u8) -> (HeldBytes, usize) {
        let held = HeldBytes::new(bodies.clone(), source(host));
        while held.add(1024).is_ok() {}
        let bytes = held.bytes.load(Ordering::Relaxed);
        (held, bytes)
    }

    #[test]
    fn an_address_holds_at_most_as_much_as_is_free() {
        let bodies = BodyBytes::new("bodies", MOST);
        let mut all = Vec::new();
        for (host, share) in [(1, MOST / 2), (2, MOST / 4), (3, MOST / 8), (4, MOST / 16)] {
            let (held, bytes) = greedy(&bodies, host);
            assert!(bytes.abs_diff(share) < 4096, "{host}: {bytes}");
            all.push(held);
        }
        let again = greedy(&bodies, 1);
        assert_eq!(again.1, 0, "it is the address that counts, not the body");
        assert!(bodies.bytes() < MOST);
        // A dropped body makes room for all.
        all.remove(0);
        let (_held, bytes) = greedy(&bodies, 4);
        assert!(bytes > MOST / 8, "{bytes}");
        drop((all, again, _held));
        assert_eq!(bodies.bytes(), 0);
        assert!(bodies.totals().of.is_empty());
    }

    #[test]
    fn single_bytes_count_with_their_overhead() {
        let bodies = BodyBytes::new("request", 1000);
        let held = HeldBytes::new(bodies.clone(), None);
        let taken = (0..1000).take_while(|_| held.add(1).is_ok()).count();
        assert_eq!(taken, 500 / (1 + PIECE_COST));
        let problem = held.add(usize::MAX).unwrap_err().to_string();
        let words =
            "too many unanswered request bytes from this address (455); 545 of 1000 bytes free";
        assert!(problem.starts_with(words), "{problem}");
    }
}
