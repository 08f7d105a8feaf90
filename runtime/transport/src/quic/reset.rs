//! Stateless resets, by which the peers of a restarted node learn of the restart at once.
//!
//! A peer that sends on a connection of the previous process gets a reset instead of a timeout.
//! Therefore the reset key must outlive the process: it is derived from the identity's lasting
//! secret. After a renewal of the identity, resets for new connections use the new secret, which
//! the next process will have. The secret never leaves this module.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::tls13::HkdfExpander;

/// Bytes of a signature: a hash of 256 bits.
const SIGNATURE: usize = 32;
/// Bytes of a connection id: too many to be guessed without seeing the packets.
const CONNECTION_ID: usize = 8;

/// The key that signs resets. Clones share it.
#[derive(Clone)]
pub(crate) struct ResetKey(Arc<ArcSwap<Expander>>);

type Expander = Box<dyn HkdfExpander>;

impl ResetKey {
    pub(super) fn new(secret: &[u8]) -> Result<Self, String> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(expander(secret)?))))
    }

    /// Signs with this secret from now on.
    pub(super) fn renew(&self, secret: &[u8]) -> Result<(), String> {
        self.0.store(Arc::new(expander(secret)?));
        Ok(())
    }
}

fn expander(secret: &[u8]) -> Result<Expander, String> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256
        .tls13()
        .ok_or("the cipher suite has no TLS 1.3 part")?;
    Ok(suite
        .hkdf_provider
        .extract_from_secret(Some(b"meros stateless reset"), secret))
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        if self.0.load().expand_slice(&[data], signature).is_err() {
            signature.fill(0); // only for lengths that are never requested
        }
    }

    fn signature_len(&self) -> usize {
        SIGNATURE
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; SIGNATURE];
        self.sign(data, &mut expected);
        if expected == signature {
            Ok(())
        } else {
            Err(CryptoError)
        }
    }
}

/// Connection ids, drawn from a seed. Ids of an earlier process are accepted as valid, which makes
/// a reset possible.
pub(super) struct ConnectionIds(StdRng);

impl ConnectionIds {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self(StdRng::from_seed(seed))
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; CONNECTION_ID];
        self.0.fill_bytes(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
