//! TLS for those who do not speak our own protocol: what a service's pages are served over.
//!
//! A service shows a certificate, and may ask for one of whoever connects: what is verified names a principal. What is shown and trusted comes as
//! PEM text, is checked whole, and can be renewed; connections that stand go on, and it can be
//! heard when what their clients have shown may count no more. Never decides what anybody may do, reads no file, and never
//! falls back to less than TLS 1.2.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use runtime::Clock;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use crate::certificates::Principal;
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
    /// The authorities of clients, of which each change is heard.
    clients: watch::Sender<Option<String>>,
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
        let config = ArcSwap::from_pointee(config(shown, clock)?);
        let clients = watch::Sender::new(shown.clients.clone());
        let clock = clock.clone();
        Ok(Self(Arc::new(Inner {
            config,
            clients,
            clock,
        })))
    }

    /// Shows this in all handshakes from now on. What cannot be used changes nothing.
    pub fn renew(&self, shown: &Shown) -> Result<(), Unusable> {
        let config = config(shown, &self.0.clock)?;
        self.0.config.store(Arc::new(config));
        self.0.clients.send_if_modified(|clients| {
            let is_other = *clients != shown.clients;
            clients.clone_from(&shown.clients);
            is_other
        });
        Ok(())
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

fn config(shown: &Shown, clock: &Clock) -> Result<ServerConfig, Unusable> {
    let chain = certificates(&shown.certificate).map_err(Unusable::Certificate)?;
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
            for authority in certificates(authorities).map_err(Unusable::Clients)? {
                let added = roots.add(authority);
                added.map_err(|error| Unusable::Clients(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
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
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| Unusable::Key(format!("does not belong to the certificate: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err("has no PEM certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not PEM certificates: {error}")),
    }
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
}

#[cfg(test)]
mod tests;
