//! TLS for a service's HTTP pages.
//!
//! A service shows a certificate, and may ask clients for one, whose verified name is a
//! [`Principal`]. Certificates, keys and authorities are PEM texts. They are validated as a whole
//! and can be renewed; open connections continue, and [`Tls::client_trust_changed`] reports when
//! their certificates may no longer be valid. Authorization is not decided here. The minimum is TLS
//! 1.2.

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

/// The certificates of a service, and its demands on clients. All texts are PEM.
#[derive(Clone)]
pub struct TlsSettings {
    /// The service's certificate, followed by its intermediates.
    pub certificate: String,
    /// The certificate's key.
    pub key: String,
    /// The authorities of client certificates; `None` asks for no certificate.
    pub clients: Option<String>,
    /// Whether clients must show a certificate.
    pub required: bool,
    /// Revocation lists of these authorities.
    pub revocations: Option<String>,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsSettings") // contains a key
    }
}

/// An encrypted connection.
pub type TlsConnection = TlsStream<TcpStream>;

/// The server side of TLS. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    config: ArcSwap<ServerConfig>,
    /// The authorities and revocation lists for clients. Each change is published.
    clients: watch::Sender<(Option<String>, Option<String>)>,
    /// The first expiry in the service's certificate chain.
    expires: Mutex<Option<Duration>>,
    clock: Clock,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

impl Tls {
    /// Creates the server side; certificates are validated by this clock.
    pub fn new(settings: &TlsSettings, clock: &Clock) -> Result<Self, TlsSettingsError> {
        let (config, expires) = config(settings, clock)?;
        let config = ArcSwap::from_pointee(config);
        let clients = watch::Sender::new(client_trust(settings));
        let clock = clock.clone();
        Ok(Self(Arc::new(Inner {
            config,
            clients,
            expires: Mutex::new(expires),
            clock,
        })))
    }

    /// Uses these settings in all later handshakes. Invalid settings change nothing.
    pub fn renew(&self, settings: &TlsSettings) -> Result<(), TlsSettingsError> {
        let (config, expires) = config(settings, &self.0.clock)?;
        self.0.config.store(Arc::new(config));
        *self.expiry() = expires;
        self.0.clients.send_if_modified(|clients| {
            let before = std::mem::replace(clients, client_trust(settings));
            before != *clients
        });
        Ok(())
    }

    /// The first expiry in the certificate chain, since the Unix epoch; `None` if it cannot be
    /// read.
    pub fn expires(&self) -> Option<Duration> {
        *self.expiry()
    }

    fn expiry(&self) -> MutexGuard<'_, Option<Duration>> {
        self.0
            .expires
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when the authorities or revocation lists for clients change. Certificates shown
    /// before may then be invalid.
    pub fn client_trust_changed(&self) -> impl Future<Output = ()> + use<> {
        let mut clients = self.0.clients.subscribe();
        async move {
            if clients.changed().await.is_err() {
                std::future::pending().await // no owner is left that could renew it
            }
        }
    }

    /// Performs the handshake. Returns the client's principal if its certificate contains a name.
    pub async fn accept(
        &self,
        connection: TcpStream,
    ) -> io::Result<(TlsConnection, Option<Principal>)> {
        let acceptor = TlsAcceptor::from(self.0.config.load_full());
        let connection = acceptor.accept(connection).await?;
        let chain = connection.get_ref().1.peer_certificates();
        let principal = chain.and_then(|chain| Principal::of(chain.first()?));
        Ok((connection, principal))
    }
}

/// The settings that decide whether a client's certificate is valid.
fn client_trust(settings: &TlsSettings) -> (Option<String>, Option<String>) {
    (settings.clients.clone(), settings.revocations.clone())
}

/// The configuration, and the expiry of its certificate chain.
fn config(
    settings: &TlsSettings,
    clock: &Clock,
) -> Result<(ServerConfig, Option<Duration>), TlsSettingsError> {
    let chain = parse_certificates(&settings.certificate).map_err(TlsSettingsError::Certificate)?;
    // Checks the own certificate only: clients check those on their path.
    if let Some(own) = validity_of(chain.get(..1).unwrap_or_default()) {
        own.check(clock.wall())
            .map_err(TlsSettingsError::Certificate)?;
    }
    let revocations = settings.revocations.as_deref().map(Revocations::from_pem);
    let revocations = revocations
        .transpose()
        .map_err(TlsSettingsError::Revocations)?;
    let key = PrivateKeyDer::from_pem_slice(settings.key.as_bytes())
        .map_err(|error| TlsSettingsError::Key(format!("is not a PEM private key: {error}")))?;
    let provider = Arc::new(default_provider());
    let time = Arc::new(NodeTime(clock.clone()));
    let builder = ServerConfig::builder_with_details(provider.clone(), time)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsSettingsError::Certificate(error.to_string()))?;
    let builder = match &settings.clients {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in parse_certificates(authorities).map_err(TlsSettingsError::Clients)? {
                let added = roots.add(authority);
                added.map_err(|error| TlsSettingsError::Clients(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .with_crls(revocations.unwrap_or_default().lists())
                .allow_unknown_revocation_status();
            let verifier = match settings.required {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| TlsSettingsError::Clients(error.to_string()))?,
            )
        }
    };
    let validity = validity_of(&chain);
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        TlsSettingsError::Key(format!("does not belong to the certificate: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let expires = validity.map(|Validity { not_after, .. }| not_after);
    Ok((config, expires))
}

/// The invalid setting, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSettingsError {
    /// The service's certificate.
    #[error("the certificate {0}")]
    Certificate(String),
    /// The certificate's key.
    #[error("the key {0}")]
    Key(String),
    /// The authorities for clients.
    #[error("the clients' authorities: {0}")]
    Clients(String),
    /// The revocation lists.
    #[error("the revocation lists: {0}")]
    Revocations(String),
}

#[cfg(test)]
mod tests;
