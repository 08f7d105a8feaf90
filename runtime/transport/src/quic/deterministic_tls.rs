//! Deterministic TLS for endpoints on a virtual network: the same handshake gives the same bytes.
//!
//! With random keys one seed would give different runs, because the bytes of a packet decide how it
//! is handled: one in four packets that were sealed for a previous incarnation looks like the
//! beginning of a connection. Nothing here is secret: never use it on a real socket.

use std::sync::{Arc, Mutex, PoisonError};

use quinn::ConnectionId;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup};

/// Stands for the agreed key. The secrets of connections still differ, since they are also derived
/// from the connection ids.
const BYTES: [u8; 32] = [0x5A; 32];

/// Bytes of a connection id: the maximum.
const FIRST_ID: usize = 20;

/// The ring provider without randomness.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![&Constant],
        secure_random: &Constant,
        ..ring::default_provider()
    })
}

/// The dialler's initial destination ids, from which the first keys are derived. By default quinn
/// draws them from the system.
pub(super) fn first_ids(seed: [u8; 32]) -> Arc<dyn Fn() -> ConnectionId + Send + Sync> {
    let rng = Mutex::new(StdRng::from_seed(seed));
    Arc::new(move || {
        let mut id = [0; FIRST_ID];
        let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.fill_bytes(&mut id);
        ConnectionId::new(&id)
    })
}

#[derive(Debug)]
struct Constant;

impl SecureRandom for Constant {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        bytes.fill(BYTES[0]);
        Ok(())
    }
}

impl SupportedKxGroup for Constant {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    /// The group with a key of this length.
    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Constant {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(BYTES.as_slice()))
    }

    fn pub_key(&self) -> &[u8] {
        &BYTES
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[cfg(test)]
mod tests {
    use runtime::Role;
    use rustls::ClientConfig;
    use rustls::quic::{ClientConnection, Version};
    use rustls::version::TLS13;

    use super::*;
    use crate::Authority;
    use crate::quic::config;

    /// The first bytes of a handshake.
    fn hello(provider: Arc<CryptoProvider>) -> Vec<u8> {
        let identity = Authority::seeded(1).unwrap().issue(Role::Agent, "a");
        let tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(identity.unwrap().roots().unwrap())
            .with_no_client_auth();
        let name = "a".try_into().unwrap();
        let mut connection =
            ClientConnection::new(Arc::new(tls), Version::V1, name, vec![1, 2, 3]).unwrap();
        let mut bytes = Vec::new();
        connection.write_hs(&mut bytes);
        bytes
    }

    #[test]
    fn only_deterministic_handshakes_repeat_their_bytes() {
        assert_eq!(hello(provider()), hello(provider()));
        assert_ne!(hello(config::provider()), hello(config::provider()));
    }

    #[test]
    fn seeded_ids_are_reproducible_and_distinct() {
        let row = |seed| {
            let ids = first_ids([seed; 32]);
            [ids(), ids()]
        };
        assert_eq!(row(1), row(1));
        let [first, second] = row(1);
        assert!(first != second && first != row(2)[0]);
    }
}
