//! Downloads over HTTP and HTTPS.
//!
//! Follows a bounded number of redirects. A server that sends nothing for the stall timeout fails
//! the download. A broken connection is resumed a bounded number of times, if the server names a
//! validator by which it recognizes the same content.

use std::fs::File;
use std::io::{Seek, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HOST, HeaderMap, IF_RANGE, LAST_MODIFIED,
    LOCATION, RANGE, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use runtime::Clock;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::program::log;
use super::redirect::{REDIRECTS_MAX, WebUri, is_link_local};

/// How often a broken connection is resumed.
const RESUMPTIONS_MAX: usize = 5;

/// The files in which distributions keep the certificates of authorities.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Downloads files.
pub(super) struct Downloader {
    /// A download fails if its server sends nothing for this time.
    pub(super) stall_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub(super) authorities: Option<PathBuf>,
    pub(super) clock: Clock,
}

/// A part of a file, as the server has sent it.
struct Part {
    /// Its first byte.
    start: u64,
    /// The length of the whole file, if stated.
    total: Option<u64>,
    /// Recognizes the same content later.
    validator: Option<String>,
    body: Incoming,
}

impl Downloader {
    /// Downloads a URI to a file.
    pub(super) async fn download(&self, uri: &str, file: &mut File) -> Result<(), String> {
        let uri = WebUri::read(uri)?;
        let (mut position, mut validator) = (0, None);
        for _ in 0..=RESUMPTIONS_MAX {
            let mut part = self.request(&uri, position, validator.as_deref()).await?;
            if part.start != position {
                file.set_len(part.start)
                    .map_err(|error| error.to_string())?;
                file.rewind().map_err(|error| error.to_string())?;
                position = part.start;
            }
            let received = self.receive(&mut part.body, file, &mut position).await?;
            let is_whole = part.total.is_none_or(|total| total == position);
            let broken = match received {
                Ok(()) if is_whole => return Ok(()),
                Ok(()) => "the server sent only a part".to_owned(),
                Err(broken) => broken,
            };
            if part.validator.is_none() {
                return Err(broken);
            }
            validator = part.validator;
            log(format_args!("{broken} after {position} bytes; resuming"));
        }
        Err(format!(
            "the connection broke {} times",
            RESUMPTIONS_MAX + 1
        ))
    }

    /// Writes a body. The inner error is a broken connection.
    async fn receive(
        &self,
        body: &mut Incoming,
        file: &mut File,
        position: &mut u64,
    ) -> Result<Result<(), String>, String> {
        while let Some(frame) = self.unless_stalled(body.frame()).await? {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(format!("the connection broke ({error})"))),
            };
            if let Some(data) = frame.data_ref() {
                file.write_all(data).map_err(|error| error.to_string())?;
                *position += data.len() as u64;
            }
        }
        Ok(Ok(()))
    }

    /// Requests a URI from this position on, and follows redirects.
    async fn request(
        &self,
        uri: &WebUri,
        position: u64,
        validator: Option<&str>,
    ) -> Result<Part, String> {
        let mut uri = uri.clone();
        for redirects in 0..=REDIRECTS_MAX {
            let range = validator.filter(|_| position > 0);
            let range = range.map(|validator| (position, validator));
            let response = self.send(&uri, redirects > 0, range).await?;
            let status = response.status();
            match status {
                StatusCode::OK => {}
                StatusCode::PARTIAL_CONTENT if range.is_some() => {
                    let start = start_of_range(response.headers());
                    if start != Some(position) {
                        return Err("the server sent another range than requested".to_owned());
                    }
                    if validator_of(response.headers()).is_some_and(|now| Some(&*now) != validator)
                    {
                        return Err("the file has changed during its download".to_owned());
                    }
                }
                _ if status.is_redirection() => {
                    let location = response.headers().get(LOCATION);
                    let location = location.and_then(|location| location.to_str().ok());
                    let location = location.ok_or_else(|| format!("status {status}"))?;
                    uri = uri.follow(location)?;
                    continue;
                }
                _ => return Err(format!("status {status}")),
            }
            return Ok(Part {
                start: if status == StatusCode::OK {
                    0
                } else {
                    position
                },
                total: total_of(response.headers()),
                validator: validator_of(response.headers()),
                body: response.into_body(),
            });
        }
        Err(format!("more than {REDIRECTS_MAX} redirects"))
    }

    async fn send(
        &self,
        uri: &WebUri,
        is_redirected: bool,
        range: Option<(u64, &str)>,
    ) -> Result<Response<Incoming>, String> {
        let stream = self.connect(uri, is_redirected).await?;
        if !uri.is_secure {
            return self.exchange(stream, uri, range).await;
        }
        let name = ServerName::try_from(uri.host.clone()).map_err(|error| error.to_string())?;
        let connecting = self.tls()?.connect(name, stream);
        let stream = self.unless_stalled(connecting).await?;
        let stream = stream.map_err(|error| format!("TLS: {error}"))?;
        self.exchange(stream, uri, range).await
    }

    async fn connect(&self, uri: &WebUri, is_redirected: bool) -> Result<TcpStream, String> {
        let host = (uri.host.as_str(), uri.port);
        let found = self.unless_stalled(tokio::net::lookup_host(host)).await?;
        let found = found.map_err(|error| format!("host `{}`: {error}", uri.host))?;
        let found: Vec<SocketAddr> = found.collect();
        // Checked here, since the name could have another address later.
        if is_redirected && found.iter().any(|address| is_link_local(address.ip())) {
            let host = &uri.host;
            return Err(format!(
                "a redirect to a link-local address (`{host}`) is refused"
            ));
        }
        let connecting = TcpStream::connect(found.as_slice());
        let connected = self.unless_stalled(connecting).await?;
        connected.map_err(|error| format!("cannot connect to `{}`: {error}", uri.authority))
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        uri: &WebUri,
        range: Option<(u64, &str)>,
    ) -> Result<Response<Incoming>, String> {
        let failed = |error: hyper::Error| format!("`{}`: {error}", uri.authority);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(failed)?;
        // Ends with the sender and the body; its error reaches them.
        tokio::spawn(connection);
        let mut request = Request::get(&uri.path)
            .header(HOST, &uri.authority)
            .header(USER_AGENT, "meros-fetcher");
        if let Some(user) = &uri.user {
            let basic = format!("Basic {}", BASE64_STANDARD.encode(user));
            request = request.header(AUTHORIZATION, basic);
        }
        if let Some((position, validator)) = range {
            let range = format!("bytes={position}-");
            request = request.header(RANGE, range).header(IF_RANGE, validator);
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.unless_stalled(sender.send_request(request)).await?;
        response.map_err(failed)
    }

    fn tls(&self) -> Result<TlsConnector, String> {
        let usual = || { AUTHORITIES.iter().map(PathBuf::from) }.find(|path| path.exists());
        let path = self.authorities.clone().or_else(usual);
        let path = path.ok_or("this host has no file with certificates of authorities")?;
        let unusable = |error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_file_iter(&path).map_err(|error| unusable(&error))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| unusable(&error))?;
            // Some hosts list certificates that rustls does not accept.
            let _ = roots.add(certificate);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn unless_stalled<F: Future>(&self, future: F) -> Result<F::Output, String> {
        let done = self.clock.timeout(self.stall_timeout, future).await;
        done.map_err(|late| {
            let after = protocol::text::duration::format(late.after);
            format!("the server sent nothing for {after}")
        })
    }
}

/// A strong entity tag, or the time of the last change.
fn validator_of(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let tag = text(ETAG).filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| text(LAST_MODIFIED)).map(str::to_owned)
}

/// The length of the whole file: the end of `bytes 5-9/10`, or that of a body without a range.
fn total_of(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let range = text(CONTENT_RANGE).and_then(|range| range.rsplit_once('/'));
    let total = range.map_or_else(|| text(CONTENT_LENGTH), |(_, total)| Some(total));
    total?.parse().ok()
}

/// The first byte of `bytes 5-9/10`.
fn start_of_range(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let range = range.strip_prefix("bytes ")?;
    range.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
