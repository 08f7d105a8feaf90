//! TLS without chance, for endpoints on an ether: the same handshake gives the same bytes.
//!
//! Whether a packet passes for another connection's depends on its bytes: one that was sealed for the life before is, in one case of four, taken for
//! the beginning of a connection. With keys by chance one seed would give several runs. Here nothing is secret: never for a machine's sockets.

use std::sync::{Arc, Mutex, PoisonError};

use quinn::ConnectionId;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup};

/// What stands where a key would be agreed upon. Connections differ all the same: by their ids, which their secrets are derived from as well.
const BYTES: [u8; 32] = [0x5A; 32];

/// How long they are: as long as any may be.
const FIRST_ID: usize = 20;

/// As the machine's own, but that nothing in it is chosen by chance.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![&Constant],
        secure_random: &Constant,
        ..ring::default_provider()
    })
}

/// The ids that who dials gives to the other side at first, from which the first keys are derived: quinn takes them from the system.
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

    /// By its length.
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

    /// The bytes with which a handshake begins.
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
    fn a_handshake_begins_with_the_same_bytes_and_on_a_machine_never() {
        assert_eq!(hello(provider()), hello(provider()));
        assert_ne!(hello(config::provider()), hello(config::provider()));
    }

    #[test]
    fn one_seed_gives_one_row_of_ids_which_are_all_different() {
        let row = |seed| {
            let ids = first_ids([seed; 32]);
            [ids(), ids()]
        };
        assert_eq!(row(1), row(1));
        let [first, second] = row(1);
        assert!(first != second && first != row(2)[0]);
    }
}
