//! Keys derived from a seed, for simulations.
//!
//! They are Ed25519 keys, whose signatures are deterministic and of constant length; ECDSA
//! signatures differ each time. Never use them outside a simulation: the seed reveals every key.

use rcgen::{KeyPair, PKCS_ED25519};
use rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls_pki_types::PrivatePkcs8KeyDer;

use super::CertificateError;

/// The PKCS #8 prefix of the 32 bytes of an Ed25519 key (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The key of `owner` for this seed.
pub(super) fn key(seed: u64, owner: &str) -> Result<KeyPair, CertificateError> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13();
    let suite = suite.ok_or_else(|| CertificateError::crypto("no TLS 1.3"))?;
    let expander = suite
        .hkdf_provider
        .extract_from_secret(Some(b"meros rehearsal keys"), &seed.to_be_bytes());
    let mut key = [0; 48];
    let (prefix, secret) = key.split_at_mut(PKCS8_PREFIX.len());
    prefix.copy_from_slice(&PKCS8_PREFIX);
    expander
        .expand_slice(&[owner.as_bytes()], secret)
        .map_err(|_| CertificateError::crypto("no key of this length"))?;
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key.as_slice()), &PKCS_ED25519)
        .map_err(CertificateError::crypto)
}
