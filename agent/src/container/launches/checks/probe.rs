//! GETs and connections to a task's loopback address, without a program of the host.
//!
//! As in Mesos, the certificate of an `https` check is not verified, redirects are followed and the
//! body does not matter; a header may state the value of the task's objective. Unlike there, only
//! redirects to the same host and port are followed: these requests come from the agent, and a task
//! must not send it to other addresses. Another redirect is the result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{Either, select};
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use hyper_util::rt::TokioIo;
use protocol::task::check::{CheckKind, HttpCheck, IpProtocol, TcpCheck};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::fetcher::download::uri::{REDIRECTS_MAX, WebUri};
use crate::host::network;

/// The header of an answer with the value of the task's objective (`meros.sla`), in its unit.
pub(super) const MEASURED: &str = "meros-sla";

/// The result of a check over the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probed {
    /// The result, as reported.
    pub(super) result: i32,
    /// The value that the task states.
    pub(super) stated: Option<f64>,
}

/// The result of a check over the network: a status code, or whether it could connect (1) or not
/// (0). `None` if there is none. Not bounded in time. `namespace` is the container's network,
/// unless it is the host's.
pub(super) async fn probe(kind: &CheckKind, namespace: Option<&Path>) -> Option<Probed> {
    match kind {
        CheckKind::Command(_) => None,
        CheckKind::Tcp(TcpCheck { port, protocol }) => {
            let connected = connect(namespace, loopback(*protocol), *port).await;
            Some(Probed {
                result: i32::from(connected.is_some()),
                stated: None,
            })
        }
        CheckKind::Http(check) => get(check, namespace).await,
    }
}

fn loopback(protocol: IpProtocol) -> IpAddr {
    match protocol {
        IpProtocol::V4 => Ipv4Addr::LOCALHOST.into(),
        IpProtocol::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

async fn connect(namespace: Option<&Path>, address: IpAddr, port: u32) -> Option<TcpStream> {
    let port = u16::try_from(port).ok()?;
    let address = SocketAddr::new(address, port);
    network::connect(namespace, address).await.ok()
}

async fn get(check: &HttpCheck, namespace: Option<&Path>) -> Option<Probed> {
    let address = loopback(check.protocol);
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let scheme = check.scheme.as_deref().unwrap_or("http");
    let path = check.path.as_deref().unwrap_or("/");
    let first = WebUri::read(&format!("{scheme}://{host}:{}{path}", check.port)).ok()?;
    let mut uri = first.clone();
    for _ in 0..=REDIRECTS_MAX {
        let stream = connect(namespace, address, uri.port.into()).await?;
        let (probed, location) = match uri.is_secure {
            true => exchange(encrypted(stream, address).await?, &uri).await?,
            false => exchange(stream, &uri).await?,
        };
        let next = location.and_then(|location| uri.follow(&location).ok());
        let is_here = |next: &WebUri| next.authority == first.authority;
        match next.filter(is_here) {
            Some(next) if (300..400).contains(&probed.result) => uri = next,
            _ => return Some(probed),
        }
    }
    None
}

/// The status and the stated value, and the location of the answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    uri: &WebUri,
) -> Option<(Probed, Option<String>)> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.ok()?;
    let request = Request::get(&uri.path)
        .header(HOST, &uri.authority)
        .header(USER_AGENT, "meros-agent")
        .header(ACCEPT, "*/*");
    let request = request.body(Empty::<Bytes>::new()).ok()?;
    let sending = Box::pin(sender.send_request(request));
    let response = match select(sending, Box::pin(connection)).await {
        Either::Left((response, _)) => response.ok()?,
        // The connection has ended; an answer may have arrived before.
        Either::Right((_, sending)) => sending.await.ok()?,
    };
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    let stated = response.headers().get(MEASURED);
    let stated = stated.and_then(|stated| stated.to_str().ok()?.trim().parse().ok());
    let probed = Probed {
        result: i32::from(response.status().as_u16()),
        stated: stated.filter(|stated: &f64| stated.is_finite() && *stated >= 0.0),
    };
    Some((probed, location.map(str::to_owned)))
}

async fn encrypted(
    stream: TcpStream,
    address: IpAddr,
) -> Option<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::IpAddress(address.into());
    connector.connect(name, stream).await.ok()
}

/// Accepts each certificate: a task's is rarely issued for a loopback address.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
