//! Validated addresses whose connection waits or is in its handshake: at most one connection each.
//!
//! A dialler without a reply dials again; after a mass reconnection the repeated attempts would
//! outnumber the links. An address that is not validated is never recorded: otherwise anybody could
//! block it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Default)]
pub(in crate::quic) struct ActiveAddresses(Arc<Mutex<BTreeSet<SocketAddr>>>);

/// An active address, until it is dropped.
#[derive(Debug)]
pub(in crate::quic) struct AddressGuard {
    addresses: ActiveAddresses,
    address: SocketAddr,
}

impl ActiveAddresses {
    /// Records this address, unless it is active already.
    pub(in crate::quic) fn acquire(&self, address: SocketAddr) -> Option<AddressGuard> {
        self.all().insert(address).then(|| AddressGuard {
            addresses: self.clone(),
            address,
        })
    }

    /// Whether this address is active.
    pub(in crate::quic) fn is_active(&self, address: SocketAddr) -> bool {
        self.all().contains(&address)
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        self.addresses.all().remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_active_until_its_guard_is_dropped() {
        let (addresses, one) = (
            ActiveAddresses::default(),
            SocketAddr::from(([10, 0, 0, 1], 1)),
        );
        let held = addresses.acquire(one).unwrap();
        assert!(addresses.acquire(one).is_none() && addresses.is_active(one));
        let other = SocketAddr::from(([10, 0, 0, 1], 2));
        assert!(!addresses.is_active(other), "another port is another");
        assert!(addresses.acquire(other).is_some());
        drop(held);
        assert!(addresses.acquire(one).is_some());
        assert!(addresses.all().is_empty());
    }
}
