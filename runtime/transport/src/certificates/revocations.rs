//! Revocation lists of one or several authorities.

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

/// Revocation lists. An authority without a list revokes nothing. An outdated list stays in force,
/// since a missing update must not cause an outage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(Vec<CertificateRevocationListDer<'static>>);

impl Revocations {
    /// Reads and validates the lists of a PEM text; at least one is required.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let read: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(pem.as_bytes()).collect();
        let lists = read.map_err(|error| format!("is not PEM revocation lists: {error}"))?;
        if lists.is_empty() {
            return Err("has no PEM revocation list (X509 CRL)".to_owned());
        }
        for list in &lists {
            webpki::OwnedCertRevocationList::from_der(list)
                .map_err(|error| format!("has a revocation list that cannot be used: {error}"))?;
        }
        Ok(Self(lists))
    }

    /// The lists, for a verifier.
    pub(crate) fn lists(&self) -> Vec<CertificateRevocationListDer<'static>> {
        self.0.clone()
    }
}
