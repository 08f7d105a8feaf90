//! TLS for those who do not speak our own protocol: what a service's pages are served over.
//!
//! A service shows a certificate, and may ask for one of whoever connects: what is verified names a principal. What is shown and trusted comes as
//! PEM text, is checked whole, and can be renewed; connections that stand go on, and it can be
//! heard when what their clients have shown may count no more. Never decides what anybody may do, reads no file, and never
//! falls back to less than TLS 1.2.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use runtime::Clock;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use crate::certificates::Principal;
use crate::certificates::{Revocations, Validity, parse_certificates, validity_of};
use crate::quic::config::NodeTime;

/// What is shown to whoever connects, and what is asked of it; all of it PEM text.
#[derive(Clone)]
pub struct Shown {
    /// The own certificate, and after it those of the authorities between it and one that clients trust.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The authorities whose certificates clients may show; `None` asks for none.
    pub clients: Option<String>,
    /// Whether clients must show one.
    pub required: bool,
    /// Revocation lists of these authorities.
    pub revocations: Option<String>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Shown") // There is a key in it.
    }
}

/// A connection that is read by nobody else.
pub type Private = TlsStream<TcpStream>;

/// The side of TLS that is connected to. Clones are the same one.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    config: ArcSwap<ServerConfig>,
    /// The authorities of clients and what they have revoked, of which each change is published.
    clients: watch::Sender<(Option<String>, Option<String>)>,
    /// When the own certificate, or one between it and its authority, expires.
    expires: Mutex<Option<Duration>>,
    clock: Clock,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

impl Tls {
    /// Shows this, and judges certificates by this clock.
    pub fn new(shown: &Shown, clock: &Clock) -> Result<Self, Unusable> {
        let (config, expires) = config(shown, clock)?;
        let config = ArcSwap::from_pointee(config);
        let clients = watch::Sender::new(trusted(shown));
        let clock = clock.clone();
        Ok(Self(Arc::new(Inner {
            config,
            clients,
            expires: Mutex::new(expires),
            clock,
        })))
    }

    /// Shows this in all handshakes from now on. What cannot be used changes nothing.
    pub fn renew(&self, shown: &Shown) -> Result<(), Unusable> {
        let (config, expires) = config(shown, &self.0.clock)?;
        self.0.config.store(Arc::new(config));
        *self.expiry() = expires;
        self.0.clients.send_if_modified(|clients| {
            let before = std::mem::replace(clients, trusted(shown));
            before != *clients
        });
        Ok(())
    }

    /// When the first certificate of the chain that is shown expires, since the Unix epoch; none if that cannot be read.
    pub fn expires(&self) -> Option<Duration> {
        *self.expiry()
    }

    fn expiry(&self) -> MutexGuard<'_, Option<Duration>> {
        self.0
            .expires
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when other authorities of clients are trusted than now: who has shown a certificate by then may be nobody any more.
    pub fn trusts_others(&self) -> impl Future<Output = ()> + use<> {
        let mut clients = self.0.clients.subscribe();
        async move {
            if clients.changed().await.is_err() {
                std::future::pending().await // Nobody is left who could renew it.
            }
        }
    }

    /// Shakes hands, and says who is on the other side, if it has shown a certificate with a name in it.
    pub async fn accept(&self, connection: TcpStream) -> io::Result<(Private, Option<Principal>)> {
        let acceptor = TlsAcceptor::from(self.0.config.load_full());
        let connection = acceptor.accept(connection).await?;
        let chain = connection.get_ref().1.peer_certificates();
        let principal = chain.and_then(|chain| Principal::of(chain.first()?));
        Ok((connection, principal))
    }
}

/// What decides whether a client's certificate counts.
fn trusted(shown: &Shown) -> (Option<String>, Option<String>) {
    (shown.clients.clone(), shown.revocations.clone())
}

/// The configuration, and when the certificate in it expires.
fn config(shown: &Shown, clock: &Clock) -> Result<(ServerConfig, Option<Duration>), Unusable> {
    let chain = parse_certificates(&shown.certificate).map_err(Unusable::Certificate)?;
    // Its own certificate only: of the others each client looks at those on its path.
    if let Some(own) = validity_of(chain.get(..1).unwrap_or_default()) {
        own.check(clock.wall()).map_err(Unusable::Certificate)?;
    }
    let revocations = shown.revocations.as_deref().map(Revocations::from_pem);
    let revocations = revocations.transpose().map_err(Unusable::Revocations)?;
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes())
        .map_err(|error| Unusable::Key(format!("is not a PEM private key: {error}")))?;
    let provider = Arc::new(default_provider());
    let time = Arc::new(NodeTime(clock.clone()));
    let builder = ServerConfig::builder_with_details(provider.clone(), time)
        .with_safe_default_protocol_versions()
        .map_err(|error| Unusable::Certificate(error.to_string()))?;
    let builder = match &shown.clients {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in parse_certificates(authorities).map_err(Unusable::Clients)? {
                let added = roots.add(authority);
                added.map_err(|error| Unusable::Clients(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .with_crls(revocations.unwrap_or_default().lists())
                .allow_unknown_revocation_status();
            let verifier = match shown.required {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| Unusable::Clients(error.to_string()))?,
            )
        }
    };
    let validity = validity_of(&chain);
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| Unusable::Key(format!("does not belong to the certificate: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let expires = validity.map(|Validity { not_after, .. }| not_after);
    Ok((config, expires))
}

/// What cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The own certificate.
    #[error("the certificate {0}")]
    Certificate(String),
    /// Its key.
    #[error("the key {0}")]
    Key(String),
    /// The authorities of clients.
    #[error("the clients' authorities: {0}")]
    Clients(String),
    /// The revocation lists.
    #[error("the revocation lists: {0}")]
    Revocations(String),
}

#[cfg(test)]
mod tests;
