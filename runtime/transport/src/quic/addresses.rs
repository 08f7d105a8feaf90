//! Addresses that are attended to: of those who have shown that an address is their own, one at a time for each.
//!
//! Remembers the addresses of those who wait at the door or whose handshake is under way. A dialler that hears nothing
//! knocks again, and in a storm there would be more that have come twice than links to be made. Never takes an address that was not proven:
//! somebody else could keep its owner out with it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<Mutex<BTreeSet<SocketAddr>>>);

/// An address, attended to until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    addresses: Addresses,
    address: SocketAddr,
}

impl Addresses {
    /// Takes this address, unless it is attended to already.
    pub(super) fn hold(&self, address: SocketAddr) -> Option<Held> {
        self.all().insert(address).then(|| Held {
            addresses: self.clone(),
            address,
        })
    }

    /// Whether somebody is attended to who has shown that this address is its own.
    pub(super) fn is_held(&self, address: SocketAddr) -> bool {
        self.all().contains(&address)
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.addresses.all().remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_held_once_and_free_again_when_it_is_let_go() {
        let (addresses, one) = (Addresses::default(), SocketAddr::from(([10, 0, 0, 1], 1)));
        let held = addresses.hold(one).unwrap();
        assert!(addresses.hold(one).is_none() && addresses.is_held(one));
        let other = SocketAddr::from(([10, 0, 0, 1], 2));
        assert!(!addresses.is_held(other), "another port is another");
        assert!(addresses.hold(other).is_some());
        drop(held);
        assert!(addresses.hold(one).is_some());
        assert!(addresses.all().is_empty());
    }
}
