//! Downloads over HTTP and HTTPS.
//!
//! Follows a bounded number of redirects. A server that sends nothing for the stall timeout fails
//! the download. A broken connection is resumed a bounded number of times, if the server names a
//! validator by which it recognizes the same content, or if the content cannot change.

pub(crate) mod uri;

use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HOST, HeaderMap, IF_RANGE,
    LAST_MODIFIED, LOCATION, RANGE, USER_AGENT, WWW_AUTHENTICATE,
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

use self::uri::{REDIRECTS_MAX, WebUri, is_link_local};

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
pub(crate) struct Downloader {
    /// A download fails if its server sends nothing for this time.
    pub(crate) stall_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub(crate) authorities: Option<PathBuf>,
    /// More of them.
    pub(crate) more_authorities: Vec<PathBuf>,
    pub(crate) clock: Clock,
    /// Writes a line to the log.
    pub(crate) log: fn(fmt::Arguments<'_>),
    /// Made at first use: hosts have more than a hundred authorities.
    pub(crate) tls: OnceCell<TlsConnector>,
}

/// A file to download.
#[derive(Clone, Debug)]
pub(crate) struct WebFile {
    pub(crate) uri: WebUri,
    /// The formats that the client reads.
    pub(crate) accept: Option<&'static str>,
    /// Whether its content follows from its URI, so that it needs no validator.
    pub(crate) is_immutable: bool,
}

/// Where a download goes.
pub(crate) trait Sink {
    /// Adds content. An error ends the download.
    fn add(&mut self, content: &[u8]) -> io::Result<()>;
    /// Begins from the start again.
    fn restart(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn add(&mut self, content: &[u8]) -> io::Result<()> {
        self.write_all(content)
    }

    fn restart(&mut self) -> io::Result<()> {
        self.set_len(0)?;
        self.rewind()
    }
}

/// Why a download has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    /// The server has answered with another status than success.
    #[error("status {status}")]
    Status {
        status: StatusCode,
        /// How it wants clients to authenticate.
        challenges: Vec<String>,
    },
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

impl From<String> for DownloadError {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

impl DownloadError {
    fn status(status: StatusCode, headers: &HeaderMap) -> Self {
        let all = headers.get_all(WWW_AUTHENTICATE).into_iter();
        let challenges = all.filter_map(|value| value.to_str().ok());
        Self::Status {
            status,
            challenges: challenges.map(str::to_owned).collect(),
        }
    }
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

/// The rest of a file: its first byte, and a validator of the part before.
type Rest<'a> = (u64, Option<&'a str>);

impl Downloader {
    /// Downloads a file.
    pub(crate) async fn download(
        &self,
        file: &WebFile,
        sink: &mut impl Sink,
    ) -> Result<(), DownloadError> {
        let (mut position, mut validator) = (0, None);
        for _ in 0..=RESUMPTIONS_MAX {
            let is_resumed = position > 0 && (file.is_immutable || validator.is_some());
            let rest = is_resumed.then_some((position, validator.as_deref()));
            let mut part = self.request(file, rest).await?;
            if part.start != position {
                sink.restart().map_err(|error| error.to_string())?;
                position = part.start;
            }
            let received = self.receive(&mut part.body, sink, &mut position).await?;
            let is_whole = part.total.is_none_or(|total| total == position);
            let broken = match received {
                Ok(()) if is_whole => return Ok(()),
                Ok(()) => "the server sent only a part".to_owned(),
                Err(broken) => broken,
            };
            if part.validator.is_none() && !file.is_immutable {
                return Err(broken.into());
            }
            validator = part.validator;
            (self.log)(format_args!("{broken} after {position} bytes; resuming"));
        }
        let times = RESUMPTIONS_MAX + 1;
        Err(format!("the connection broke {times} times").into())
    }

    /// Writes a body. The inner error is a broken connection.
    async fn receive(
        &self,
        body: &mut Incoming,
        sink: &mut impl Sink,
        position: &mut u64,
    ) -> Result<Result<(), String>, String> {
        while let Some(frame) = self.unless_stalled(body.frame()).await? {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(format!("the connection broke ({error})"))),
            };
            if let Some(data) = frame.data_ref() {
                sink.add(data).map_err(|error| error.to_string())?;
                *position += data.len() as u64;
            }
        }
        Ok(Ok(()))
    }

    /// Requests a file or the rest of it, and follows redirects.
    async fn request(&self, file: &WebFile, rest: Option<Rest<'_>>) -> Result<Part, DownloadError> {
        let mut uri = file.uri.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&uri, file.accept, rest).await?;
            let (status, headers) = (response.status(), response.headers());
            let start = match (status, rest) {
                (StatusCode::OK, _) => 0,
                (StatusCode::PARTIAL_CONTENT, Some((position, validator))) => {
                    if start_of_range(headers) != Some(position) {
                        let other = "the server sent another range than requested";
                        return Err(other.to_owned().into());
                    }
                    let now = validator_of(headers);
                    if validator.is_some() && now.is_some_and(|now| Some(&*now) != validator) {
                        let changed = "the file has changed during its download";
                        return Err(changed.to_owned().into());
                    }
                    position
                }
                _ if status.is_redirection() => {
                    let location = headers.get(LOCATION);
                    let location = location.and_then(|location| location.to_str().ok());
                    let location = location.ok_or(DownloadError::status(status, headers))?;
                    uri = uri.follow(location)?;
                    continue;
                }
                // The target of a redirect must not ask for what is meant for another server.
                _ if !uri.is_same_server(&file.uri) => {
                    return Err(DownloadError::status(status, &HeaderMap::new()));
                }
                _ => return Err(DownloadError::status(status, headers)),
            };
            return Ok(Part {
                start,
                total: total_of(headers),
                validator: validator_of(headers),
                body: response.into_body(),
            });
        }
        Err(format!("more than {REDIRECTS_MAX} redirects").into())
    }

    async fn send(
        &self,
        uri: &WebUri,
        accept: Option<&'static str>,
        rest: Option<Rest<'_>>,
    ) -> Result<Response<Incoming>, String> {
        let stream = self.connect(uri).await?;
        if !uri.is_secure {
            return self.exchange(stream, uri, accept, rest).await;
        }
        let name = ServerName::try_from(uri.host.clone()).map_err(|error| error.to_string())?;
        let connecting = self.tls()?.connect(name, stream);
        let stream = self.unless_stalled(connecting).await?;
        let stream = stream.map_err(|error| format!("TLS: {error}"))?;
        self.exchange(stream, uri, accept, rest).await
    }

    async fn connect(&self, uri: &WebUri) -> Result<TcpStream, String> {
        let host = (uri.host.as_str(), uri.port);
        let found = self.unless_stalled(tokio::net::lookup_host(host)).await?;
        let found = found.map_err(|error| format!("host `{}`: {error}", uri.host))?;
        let found: Vec<SocketAddr> = found.collect();
        // Checked here, since the name could have another address later.
        if uri.is_foreign && found.iter().any(|address| is_link_local(address.ip())) {
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
        accept: Option<&'static str>,
        rest: Option<Rest<'_>>,
    ) -> Result<Response<Incoming>, String> {
        let failed = |error: hyper::Error| format!("`{}`: {error}", uri.authority);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(failed)?;
        // Ends with the sender and the body; its error reaches them.
        tokio::spawn(connection);
        let mut request = Request::get(&uri.path)
            .header(HOST, &uri.authority)
            .header(USER_AGENT, "meros-fetcher");
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(authorization) = &uri.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some((position, validator)) = rest {
            request = request.header(RANGE, format!("bytes={position}-"));
            if let Some(validator) = validator {
                request = request.header(IF_RANGE, validator);
            }
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.unless_stalled(sender.send_request(request)).await?;
        response.map_err(failed)
    }

    fn tls(&self) -> Result<&TlsConnector, String> {
        if let Some(made) = self.tls.get() {
            return Ok(made);
        }
        let usual = || { AUTHORITIES.iter().map(PathBuf::from) }.find(|path| path.exists());
        let paths = self.authorities.clone().or_else(usual).into_iter();
        let paths: Vec<PathBuf> = paths.chain(self.more_authorities.iter().cloned()).collect();
        if paths.is_empty() {
            return Err("this host has no file with certificates of authorities".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for path in paths {
            let unusable = |error: &dyn fmt::Display| format!("`{}`: {error}", path.display());
            let found = CertificateDer::pem_file_iter(&path).map_err(|error| unusable(&error))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                // Some hosts list certificates that rustls does not accept.
                let _ = roots.add(certificate);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self
            .tls
            .get_or_init(|| TlsConnector::from(Arc::new(config))))
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
