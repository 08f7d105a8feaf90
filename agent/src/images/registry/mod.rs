//! A client of registries: Docker's distribution API, version 2. Part of the puller.
//!
//! Asks the servers of an image in order until one has it. Reads manifests and blobs up to their
//! stated size and checks their digests. A broken download is resumed; a server that stalls, or
//! that needs too long for one part, fails the pull.

pub mod challenge;
pub mod credentials;
pub mod endpoints;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::StatusCode;
use runtime::Clock;
use serde::{Deserialize, Serialize};

use self::challenge::Challenge;
use self::endpoints::Endpoint;
use super::blobs::{BlobWriter, Blobs};
use super::manifest::{DOCUMENT_MAX, Descriptor, Document, Manifest, choose, own_architecture};
use super::puller::{PullOrder, Pulled, check_sizes};
use crate::fetcher::digest::Digest;
use crate::fetcher::download::uri::{WebUri, basic};
use crate::fetcher::download::{DownloadError, Downloader, Sink, WebFile};

/// Most bytes of a token server's answer.
const TOKEN_MAX: usize = 64 << 10;
/// Parts that are downloaded at once.
const AT_ONCE: usize = 3;
/// Most indexes within each other.
const INDEXES_MAX: usize = 4;

const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// The servers of an image, and how they are spoken to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegistryOrder {
    /// In the order in which they are asked.
    pub endpoints: Vec<Endpoint>,
    /// A pull fails if a server sends nothing for this time.
    pub stall_timeout: Duration,
    /// Likewise if one part needs more than this.
    pub part_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub authorities: Option<PathBuf>,
    /// A directory with more of them for each registry: `HOST[:PORT]/*.crt`.
    pub certificates: Option<PathBuf>,
}

/// The server of one pull.
struct Session<'a> {
    endpoint: &'a Endpoint,
    part_timeout: Duration,
    downloader: Downloader,
    /// The header that the server has accepted, or will.
    authorization: RefCell<Option<String>>,
}

/// A document in memory.
struct Memory {
    content: Vec<u8>,
    size_max: usize,
}

impl Sink for Memory {
    fn add(&mut self, content: &[u8]) -> io::Result<()> {
        let size_max = self.size_max;
        if self.content.len() + content.len() > size_max {
            return Err(io::Error::other(format!(
                "it is larger than {size_max} bytes"
            )));
        }
        self.content.extend_from_slice(content);
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.content.clear();
        Ok(())
    }
}

impl Sink for BlobWriter {
    fn add(&mut self, content: &[u8]) -> io::Result<()> {
        self.write(content)
    }

    fn restart(&mut self) -> io::Result<()> {
        BlobWriter::restart(self)
    }
}

/// Downloads the parts of an image.
pub async fn pull(
    order: &PullOrder,
    registry: &RegistryOrder,
    blobs: &Blobs,
) -> Result<Pulled, String> {
    let mut problems = Vec::new();
    for endpoint in &registry.endpoints {
        let pulled = match Session::new(endpoint, registry) {
            Ok(session) => session.pull(order, blobs).await,
            Err(problem) => Err(problem),
        };
        match pulled {
            Ok(pulled) => return Ok(pulled),
            Err(problem) => problems.push(format!("registry `{}`: {problem}", endpoint.host)),
        }
    }
    Err(problems.join("; "))
}

impl<'a> Session<'a> {
    fn new(endpoint: &'a Endpoint, order: &RegistryOrder) -> Result<Self, String> {
        let directory = order
            .certificates
            .as_ref()
            .map(|all| all.join(&endpoint.host));
        let more_authorities = match directory {
            Some(directory) => certificates(&directory)?,
            None => Vec::new(),
        };
        Ok(Self {
            endpoint,
            part_timeout: order.part_timeout,
            downloader: Downloader {
                stall_timeout: order.stall_timeout,
                authorities: order.authorities.clone(),
                more_authorities,
                clock: Clock::real(),
                log: |_| {},
                tls: OnceCell::new(),
            },
            authorization: RefCell::default(),
        })
    }

    async fn pull(&self, order: &PullOrder, blobs: &Blobs) -> Result<Pulled, String> {
        let (digest, manifest) = self.manifest(order).await?;
        check_sizes(&manifest, order, blobs)?;
        let config = manifest.config.digest.clone();
        let mut pulled = Pulled {
            manifest: Some(digest),
            config,
            layers: Vec::new(),
        };
        if order.known.contains(&pulled.config) {
            return Ok(pulled);
        }
        let parts = std::iter::once(&manifest.config).chain(&manifest.layers);
        // An image may have one layer twice.
        let parts: BTreeMap<&Digest, &Descriptor> =
            parts.map(|part| (&part.digest, part)).collect();
        stream::iter(parts.into_values())
            .map(|part| self.part(part, blobs))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        pulled.layers = manifest
            .layers
            .into_iter()
            .map(|layer| layer.digest)
            .collect();
        Ok(pulled)
    }

    /// The manifest for this platform, and its digest.
    async fn manifest(&self, order: &PullOrder) -> Result<(Digest, Manifest), String> {
        let wanted = &order.reference;
        let mut expected = wanted.digest().cloned();
        let by_tag = wanted.tag().unwrap_or_default().to_owned();
        for _ in 0..INDEXES_MAX {
            let name = expected.as_ref().map_or(by_tag.clone(), Digest::to_string);
            let of_manifest = |problem: String| format!("manifest `{name}`: {problem}");
            let json = self.document(&format!("manifests/{name}")).await;
            let json = json.map_err(of_manifest)?;
            let found = Digest::of(&json);
            if expected.is_some_and(|expected| expected != found) {
                return Err(of_manifest(format!("its content has the digest {found}")));
            }
            match Document::read(&json).map_err(of_manifest)? {
                Document::Manifest(manifest) => return Ok((found, manifest)),
                Document::Index(platforms) => {
                    let chosen = choose(&platforms, own_architecture())?;
                    expected = Some(chosen.digest.clone());
                }
            }
        }
        Err("too many indexes within each other".to_owned())
    }

    async fn document(&self, path: &str) -> Result<Vec<u8>, String> {
        let mut sink = Memory {
            content: Vec::new(),
            size_max: DOCUMENT_MAX as usize,
        };
        self.get(path, Some(MANIFESTS), &mut sink).await?;
        Ok(sink.content)
    }

    async fn part(&self, part: &Descriptor, blobs: &Blobs) -> Result<(), String> {
        let digest = &part.digest;
        let of_part = |problem: String| format!("part {digest}: {problem}");
        let created = blobs.create(&digest.file_name(), part.size);
        let mut writer = created.map_err(|error| of_part(error.to_string()))?;
        let got = self
            .get(&format!("blobs/{digest}"), None, &mut writer)
            .await;
        got.map_err(of_part)?;
        writer.finish(Some(digest)).map_err(of_part)?;
        Ok(())
    }

    /// Gets a file of the repository; authenticates if the server wants it.
    async fn get(
        &self,
        path: &str,
        accept: Option<&'static str>,
        sink: &mut impl Sink,
    ) -> Result<(), String> {
        let Endpoint {
            base, repository, ..
        } = self.endpoint;
        let mut uri = WebUri::read(&format!("{base}/v2/{repository}/{path}"))?;
        uri.is_foreign = !self.endpoint.is_trusted;
        let mut has_authenticated = false;
        // Terminates: it authenticates once.
        loop {
            uri.authorization.clone_from(&self.authorization.borrow());
            let file = WebFile {
                uri: uri.clone(),
                accept,
                is_immutable: path.starts_with("blobs/"),
            };
            match self.download(&file, sink).await {
                Err(DownloadError::Status {
                    status: StatusCode::UNAUTHORIZED,
                    challenges,
                }) if !has_authenticated => {
                    self.authenticate(&challenges).await?;
                    has_authenticated = true;
                    sink.restart().map_err(|error| error.to_string())?;
                }
                done => return done.map_err(|error| error.to_string()),
            }
        }
    }

    async fn download(&self, file: &WebFile, sink: &mut impl Sink) -> Result<(), DownloadError> {
        let downloading = self.downloader.download(file, sink);
        let limit = self.part_timeout;
        match self.downloader.clock.timeout(limit, downloading).await {
            Ok(done) => done,
            Err(_) => {
                let limit = protocol::text::duration::format(limit);
                Err(format!("its download took longer than {limit}").into())
            }
        }
    }

    async fn authenticate(&self, challenges: &[String]) -> Result<(), String> {
        let credentials = self.endpoint.credentials.as_ref();
        let authorization = match challenge::choose(challenges) {
            Some(Challenge::Basic) => {
                let credentials = credentials.ok_or("it wants a user and a password")?;
                basic(&credentials.0)
            }
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let token = self.token(&realm, service, scope).await;
                let token = token.map_err(|problem| format!("token server: {problem}"))?;
                format!("Bearer {token}")
            }
            None => return Err("status 401 without a known way to authenticate".to_owned()),
        };
        self.authorization.replace(Some(authorization));
        Ok(())
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<String, String> {
        let separator = if realm.contains('?') { '&' } else { '?' };
        let own_scope = || format!("repository:{}:pull", self.endpoint.repository);
        let mut uri = format!(
            "{realm}{separator}scope={}",
            encoded(&scope.unwrap_or_else(own_scope))
        );
        if let Some(service) = service {
            uri.push_str(&format!("&service={}", encoded(&service)));
        }
        let mut uri = WebUri::read(&uri)?;
        if self.endpoint.base.starts_with("https:") && !uri.is_secure {
            return Err("a token over http for a registry over https is refused".to_owned());
        }
        uri.is_foreign = true;
        uri.authorization = self.endpoint.credentials.as_ref().map(|own| basic(&own.0));
        let file = WebFile {
            uri,
            accept: None,
            is_immutable: false,
        };
        let mut sink = Memory {
            content: Vec::new(),
            size_max: TOKEN_MAX,
        };
        let downloaded = self.download(&file, &mut sink).await;
        downloaded.map_err(|error| error.to_string())?;
        let answer: Result<TokenAnswer, _> = serde_json::from_slice(&sink.content);
        let answer = answer.map_err(|_| "no JSON with a token")?;
        answer
            .token
            .or(answer.access_token)
            .ok_or_else(|| "no token".to_owned())
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// A value in a query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte);
    let escape = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// The authorities of one registry.
fn certificates(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("`{}`: {error}", directory.display())),
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "crt"))
        .collect())
}
