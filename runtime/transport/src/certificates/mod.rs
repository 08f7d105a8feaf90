//! Certificates: a cluster's authority, and the identities that it issues to nodes.
//!
//! A node's certificate contains its role twice. The DNS name `<role>.meros` lets ordinary TLS
//! verification protect a dialler that wants a master from an agent. The URI
//! `meros://<role>/<name>` verifies the name in a node's hello. Certificates of this authority are
//! valid from 1975 to 4096, because an expiry that is missed causes an outage; after the leak of a
//! key the authority is replaced. Another authority may also issue nodes' certificates, with
//! intermediates and validity of its choice, and revoke them ([`Revocations`]).
//!
//! Files are read and written where the caller asks, and the calls block (start-up only). An
//! existing authority is never overwritten, and a key is never readable by other users.
//!
//! | module | contents |
//! |---|---|
//! | `files` | files of keys and certificates, created or replaced atomically |
//! | `revocations` | revocation lists of one or several authorities |
//! | `seeded` | keys derived from a seed, for simulations |
//! | `subject` | the subject of a certificate |
//! | `validity` | the lifetime of certificates |

mod files;
mod revocations;
mod seeded;
mod subject;
mod validity;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use runtime::{Clock, Role, Timestamp};
use rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::ring::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

pub use revocations::Revocations;
pub use subject::{Principal, Subject};
pub(crate) use validity::{Validity, validity_of};

/// The authority's certificate, stored beside every identity and in the authority's directory.
const CA_CERTIFICATE: &str = "ca.pem";
const NO_CERTIFICATE: &str = "is not a PEM certificate: there is none in it";
/// The authority's key, stored in the authority's directory only.
const CA_KEY: &str = "ca.key";

/// The cluster's certificate authority. Its key can admit nodes of every role.
pub struct Authority {
    certificate: String,
    key: KeyPair,
    /// The seed of nodes' keys; `None` uses the system's randomness.
    seed: Option<u64>,
}

impl Authority {
    /// Creates an authority in memory; [`Authority::save`] stores it.
    pub fn create() -> Result<Self, CertificateError> {
        let key = KeyPair::generate().map_err(CertificateError::crypto)?;
        Self::with(key, None)
    }

    /// The authority of this seed, for simulations: keys, certificates and the length of every
    /// handshake are the same in each run. The seed reveals every key.
    pub fn seeded(seed: u64) -> Result<Self, CertificateError> {
        Self::with(seeded::key(seed, "authority")?, Some(seed))
    }

    fn with(key: KeyPair, seed: Option<u64>) -> Result<Self, CertificateError> {
        let certificate = authority_params(&key)
            .self_signed(&key)
            .map_err(CertificateError::crypto)?;
        Ok(Self {
            certificate: certificate.pem(),
            key,
            seed,
        })
    }

    /// Reads the authority from `ca.pem` and `ca.key` in `directory`.
    pub fn load(directory: &Path) -> Result<Self, CertificateError> {
        let certificate = files::read(&directory.join(CA_CERTIFICATE))?;
        let key_file = directory.join(CA_KEY);
        let key = KeyPair::from_pem(&files::read(&key_file)?)
            .map_err(|error| unusable(&key_file, error))?;
        let authority = Self {
            certificate,
            key,
            seed: None,
        };
        // Issues and verifies one certificate. A key that does not match, or an authority whose
        // name another tool chose, is found here and not at the first handshake.
        let probe = authority.issue(Role::Operator, "probe")?;
        probe
            .verify()
            .map_err(|reason| CertificateError::Unusable {
                file: directory.join(CA_CERTIFICATE),
                reason: format!(
                    "does not belong to {CA_KEY}, or was not made by this program: {reason}"
                ),
            })?;
        Ok(authority)
    }

    /// Stores the authority in `directory`, which is created if missing. An existing authority is
    /// an error.
    pub fn save(&self, directory: &Path) -> Result<(), CertificateError> {
        files::make_directory(directory)?;
        files::write_new(
            &directory.join(CA_KEY),
            &self.key.serialize_pem(),
            files::PRIVATE,
        )?;
        files::write_new(
            &directory.join(CA_CERTIFICATE),
            &self.certificate,
            files::PUBLIC,
        )
    }

    /// Loads the authority from `directory`, or creates and stores one there.
    pub fn load_or_create(directory: &Path) -> Result<Self, CertificateError> {
        if directory.join(CA_KEY).exists() || directory.join(CA_CERTIFICATE).exists() {
            return Self::load(directory);
        }
        let authority = Self::create()?;
        match authority.save(directory) {
            Ok(()) => Ok(authority),
            // another process was faster
            Err(CertificateError::Exists { .. }) => Self::load(directory),
            Err(error) => Err(error),
        }
    }

    /// Issues a certificate and a new key to the node `name` of `role`.
    ///
    /// A name has 1 to 128 letters, digits, dots, dashes and underscores.
    pub fn issue(&self, role: Role, name: &str) -> Result<Identity, CertificateError> {
        let subject =
            Subject::new(role, name).map_err(|reason| CertificateError::Name { reason })?;
        let key = match self.seed {
            None => KeyPair::generate().map_err(CertificateError::crypto)?,
            Some(seed) => seeded::key(seed, &subject.to_string())?,
        };
        let issuer = Issuer::new(authority_params(&self.key), &self.key);
        let certificate = node_params(&subject)?
            .signed_by(&key, &issuer)
            .map_err(CertificateError::crypto)?;
        Ok(Identity {
            subject,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: self.certificate.clone(),
            lasting: Some(lasting(&self.key, role, name)?),
            revocations: Revocations::default(),
        })
    }

    /// The authority's certificate as PEM text, which every node trusts.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authority")
    }
}

/// A node's certificate and key, and its authority's certificate.
#[derive(Clone)]
pub struct Identity {
    subject: Subject,
    certificate: String,
    key: String,
    authority: String,
    /// Derived by the authority that issued the identity in this process; the same for each issue
    /// to this node.
    lasting: Option<[u8; 32]>,
    /// Certificates of its authority that it rejects.
    revocations: Revocations,
}

impl Identity {
    /// Reads the identity of `role` from `ca.pem`, `<role>.pem` and `<role>.key` in `directory`.
    pub fn load(directory: &Path, role: Role) -> Result<Self, CertificateError> {
        let (certificate_file, key_file) = Self::files(directory, role);
        let authority_file = directory.join(CA_CERTIFICATE);
        let authority = files::read(&authority_file)?;
        let certificate = files::read(&certificate_file)?;
        let key = files::read(&key_file)?;
        parse_certificates(&authority).map_err(|reason| unusable(&authority_file, reason))?;
        parse_key(&key).map_err(|reason| unusable(&key_file, reason))?;
        let parsed = parse_certificates(&certificate)
            .map_err(|reason| unusable(&certificate_file, reason))?;
        let own = parsed.first().map_or(&[][..], |own| own.as_ref());
        let subject = Subject::of(own).map_err(|reason| unusable(&certificate_file, reason))?;
        if subject.role != role {
            let reason = format!(
                "holds the certificate of a node with role {}, expected {role}",
                subject.role
            );
            return Err(unusable(&certificate_file, reason));
        }
        let identity = Self {
            subject,
            certificate,
            key,
            authority,
            lasting: None,
            revocations: Revocations::default(),
        };
        identity
            .verify()
            .map_err(|reason| unusable(&certificate_file, reason))?;
        Ok(identity)
    }

    /// Stores the identity in `directory`, which is created if missing, with a key that only its
    /// owner can read.
    ///
    /// Replaces an older identity of the same role from the same authority. A `ca.pem` of another
    /// authority is an error.
    pub fn save(&self, directory: &Path) -> Result<(), CertificateError> {
        let (certificate_file, key_file) = Self::files(directory, self.subject.role);
        let authority_file = directory.join(CA_CERTIFICATE);
        files::make_directory(directory)?;
        match files::write_new(&authority_file, &self.authority, files::PUBLIC) {
            Err(CertificateError::Exists { file }) if files::read(&file)? != self.authority => {
                return Err(CertificateError::Exists { file });
            }
            Err(CertificateError::Exists { .. }) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        files::replace(&key_file, &self.key, files::PRIVATE)?;
        files::replace(&certificate_file, &self.certificate, files::PUBLIC)
    }

    /// The role and name of the identity.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The same identity with these revocation lists.
    #[must_use]
    pub fn revoking(self, revocations: Revocations) -> Self {
        Self {
            revocations,
            ..self
        }
    }

    /// The revocation lists.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// The first expiry in its certificate chain, since the Unix epoch; `None` if it cannot be
    /// read.
    #[must_use]
    pub fn expires(&self) -> Option<Duration> {
        let chain = self.chain().ok()?;
        validity_of(&chain).map(|validity| validity.not_after)
    }

    /// The chain to show: the node's certificate and the intermediates, in the order of its file.
    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        parse_certificates(&self.certificate)
    }

    /// The certificate's key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        parse_key(&self.key)
    }

    /// A secret of this node that its next process has too, whether the key is kept or issued anew
    /// each time.
    pub(crate) fn lasting_secret(&self) -> Result<Vec<u8>, String> {
        match &self.lasting {
            Some(secret) => Ok(secret.to_vec()),
            None => Ok(self.key()?.secret_der().to_vec()),
        }
    }

    /// The authorities in `ca.pem`, the only ones that this node trusts.
    pub(crate) fn roots(&self) -> Result<rustls::RootCertStore, String> {
        let mut roots = rustls::RootCertStore::empty();
        for authority in parse_certificates(&self.authority)? {
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        Ok(roots)
    }

    /// Checks that the key matches the certificate, and that the authority issued it and it is
    /// valid now.
    fn verify(&self) -> Result<(), String> {
        // Files are read by real processes, in real time.
        self.verify_at(Clock::real().wall())
    }

    /// Like [`Identity::verify`], at a given time.
    pub(crate) fn verify_at(&self, at: Timestamp) -> Result<(), String> {
        // Checks the own certificate only: the verifier checks those on its path.
        if let Some(validity) = validity_of(self.chain()?.get(..1).unwrap_or_default()) {
            let checked = validity.check(at);
            checked.map_err(|problem| format!("is not valid now: it {problem}"))?;
        }
        self.verify_when(UnixTime::since_unix_epoch(Duration::from_nanos(
            at.as_nanos(),
        )))
    }

    fn verify_when(&self, at: UnixTime) -> Result<(), String> {
        let provider = default_provider();
        CertifiedKey::from_der(self.chain()?, self.key()?, &provider)
            .and_then(|pair| pair.keys_match())
            .map_err(|error| format!("does not belong to its key: {error}"))?;
        let chain = self.chain()?;
        let (certificate, intermediate) = chain.split_first().ok_or(NO_CERTIFICATE)?;
        let authorities = parse_certificates(&self.authority)?;
        let anchors: Result<Vec<_>, _> = authorities
            .iter()
            .map(|authority| webpki::anchor_from_trusted_cert(authority))
            .collect();
        let anchors = anchors.map_err(|error| error.to_string())?;
        let algorithms = provider.signature_verification_algorithms.all;
        // A node accepts and dials.
        for usage in [
            webpki::KeyUsage::server_auth(),
            webpki::KeyUsage::client_auth(),
        ] {
            webpki::EndEntityCert::try_from(certificate)
                .and_then(|certificate| {
                    certificate
                        .verify_for_usage(algorithms, &anchors, intermediate, at, usage, None, None)
                        .map(drop)
                })
                .map_err(|error| match error {
                    webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => {
                        format!("is not valid now: {error}")
                    }
                    webpki::Error::RequiredEkuNotFoundContext(_) => {
                        format!("cannot be used by a node, which needs serverAuth and clientAuth: {error}")
                    }
                    error => format!("was not issued by {CA_CERTIFICATE}: {error}"),
                })?;
        }
        Ok(())
    }

    fn files(directory: &Path, role: Role) -> (PathBuf, PathBuf) {
        (
            directory.join(format!("{role}.pem")),
            directory.join(format!("{role}.key")),
        )
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity({})", self.subject)
    }
}

/// A secret of this node, derived from the authority's key, which it does not reveal.
fn lasting(key: &KeyPair, role: Role, name: &str) -> Result<[u8; 32], CertificateError> {
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13();
    let suite = suite.ok_or_else(|| CertificateError::crypto("no TLS 1.3"))?;
    let salt = b"meros lasting secret";
    let expander = suite
        .hkdf_provider
        .extract_from_secret(Some(salt), key.serialized_der());
    let mut secret = [0; 32];
    expander
        .expand_slice(
            &[role.as_str().as_bytes(), b"/", name.as_bytes()],
            &mut secret,
        )
        .map_err(|_| CertificateError::crypto("no key of this length"))?;
    Ok(secret)
}

/// The content of an authority's certificate. It depends on the key alone, so that a stored
/// authority can be used again. Names are unique, so that another authority's certificate is
/// recognised as such and not reported as a forgery.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let number: String = params
        .key_identifier(key)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(
        DnType::CommonName,
        format!("meros cluster authority {number}"),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = rcgen::date_time_ymd(1975, 1, 1);
    params.not_after = rcgen::date_time_ymd(4096, 1, 1);
    params
}

fn node_params(subject: &Subject) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, subject.name.clone());
    let dns = subject::server_name(subject.role)
        .try_into()
        .map_err(CertificateError::crypto)?;
    let uri = subject
        .to_string()
        .try_into()
        .map_err(CertificateError::crypto)?;
    params.subject_alt_names = vec![SanType::DnsName(dns), SanType::URI(uri)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    params.not_before = rcgen::date_time_ymd(1975, 1, 1);
    params.not_after = rcgen::date_time_ymd(4096, 1, 1);
    Ok(params)
}

/// The DNS name in the certificate of every node of `role`.
pub fn server_name(role: Role) -> String {
    subject::server_name(role)
}

/// All certificates of a PEM text; at least one is required.
pub(crate) fn parse_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err(NO_CERTIFICATE.to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not a PEM certificate: {error}")),
    }
}

fn parse_key(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("is not a PEM private key: {error}"))
}

fn unusable(file: &Path, reason: impl fmt::Display) -> CertificateError {
    CertificateError::Unusable {
        file: file.to_owned(),
        reason: reason.to_string(),
    }
}

/// An error in making, storing or reading a certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file does not exist: create it first.
    #[error("{} does not exist", file.display())]
    Missing {
        /// The missing file.
        file: PathBuf,
    },
    /// An authority exists there: load it, or choose another directory.
    #[error("{} exists and belongs to another authority; it is never overwritten", file.display())]
    Exists {
        /// The existing file.
        file: PathBuf,
    },
    /// The file exists, and its content is invalid.
    #[error("{} {reason}", file.display())]
    Unusable {
        /// The file that was read.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// An I/O error.
    #[error("cannot {action} {}", file.display())]
    Io {
        /// The failed operation: "read", "write" or "make".
        action: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A certificate cannot contain this name.
    #[error("node name {reason}")]
    Name {
        /// The problem, and the expected value.
        reason: String,
    },
    /// A key or certificate could not be made.
    #[error("cannot make a certificate: {reason}")]
    Crypto {
        /// The library's error.
        reason: String,
    },
}

impl CertificateError {
    fn crypto(error: impl fmt::Display) -> Self {
        Self::Crypto {
            reason: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
