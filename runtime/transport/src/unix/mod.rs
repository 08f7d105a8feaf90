//! Unix sockets: links between an agent and the executors on its machine, without a TLS handshake.
//!
//! The kernel identifies the peer's user: only this process's user and root are accepted, with the
//! roles that the listener allows. Hello and frames are the same as on any link. A socket with a
//! live listener is never taken over.

pub mod chunk;
mod session;

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use runtime::{AttachError, ConnectError, Dialer, Dialled, Hello, Link, Node, Peer, Role};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use chunk::{Chunks, Kind, Writer};
use session::Session;

pub use session::Bulks;

/// Prefix of the addresses of socket files.
pub const SCHEME: &str = "unix:";
/// Maximum path of a socket file, in bytes. The kernel's limit is 107, and a file name must fit
/// behind the directory.
pub const PATH_MAX: usize = 100;

/// Maximum time of a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum connections in the hello; further ones wait in the socket's queue.
const HELLOS_MAX: usize = 64;

/// A socket file on which a node accepts links. Dropping it stops accepting and removes the file.
pub struct Listener {
    path: PathBuf,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Listens at `path` for peers of these roles. Its tasks stay on the calling thread.
    ///
    /// A file of a dead process is replaced; any other existing file is an error.
    pub fn bind(node: Node, path: impl Into<PathBuf>, roles: &[Role]) -> Result<Self, UnixError> {
        let path = path.into();
        check_length(&path)?;
        remove_stale_socket(&path)?;
        let failed = |source| UnixError::Io {
            path: path.clone(),
            source,
        };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let accepting = tokio::spawn(accept(node, listener, roles.to_vec()));
        Ok(Self { path, accepting })
    }

    /// The address to dial: `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{SCHEME}{}", self.path.display())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.path); // the next listener removes a leftover file
    }
}

/// Lets a node without another transport dial `unix:PATH`, until it is dropped. Links continue.
pub struct Dialling {
    _inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    home: tokio::runtime::Handle,
}

impl Dialling {
    /// Installs itself as the node's dialer. Call it on the thread that shall serve the node's
    /// links.
    #[must_use = "dropping it ends the dialling"]
    pub fn install(node: &Node) -> Self {
        let inner = Arc::new(Inner {
            node: node.clone(),
            home: tokio::runtime::Handle::current(),
        });
        node.set_dialer(Arc::new(UnixDialer(Arc::downgrade(&inner))));
        Self { _inner: inner }
    }
}

struct UnixDialer(Weak<Inner>);

impl Dialer for UnixDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let Some(inner) = self.0.upgrade() else {
            return std::future::ready(Err(ConnectError::ShuttingDown)).boxed();
        };
        let Some(path) = address.strip_prefix(SCHEME) else {
            let reason = format!("expected {SCHEME}PATH: this node dials nothing else");
            return std::future::ready(Err(ConnectError::Refused { address, reason })).boxed();
        };
        let dialling = inner.home.spawn(dial(inner.node.clone(), path.into()));
        async move { dialling.await.unwrap_or(Err(ConnectError::ShuttingDown)) }.boxed()
    }
}

/// Connects to the node that listens at `path`.
pub(crate) async fn dial(node: Node, path: PathBuf) -> Result<Peer, ConnectError> {
    let address = format!("{SCHEME}{}", path.display());
    let refused = |reason: String| ConnectError::Refused {
        address: address.clone(),
        reason,
    };
    let unreachable = |reason: String| ConnectError::Unreachable {
        address: address.clone(),
        reason,
    };
    check_length(&path).map_err(|error| refused(error.to_string()))?;
    let stream = UnixStream::connect(&path)
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let greeting = greet_listener(&node, stream, &address);
    match node.clock().timeout(HELLO_TIMEOUT, greeting).await {
        Err(late) => Err(unreachable(late.to_string())),
        Ok(Err(Unlinked::Lost(reason))) => Err(unreachable(reason)),
        Ok(Err(Unlinked::Refused(reason))) => Err(refused(reason)),
        Ok(Ok(session)) => {
            let peer = session.peer().clone();
            tokio::spawn(session.run());
            Ok(peer)
        }
    }
}

/// The reason why a connection did not become a link.
enum Unlinked {
    Lost(String),
    Refused(String),
}

impl From<io::Error> for Unlinked {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

async fn greet_listener(
    node: &Node,
    stream: UnixStream,
    address: &str,
) -> Result<Session, Unlinked> {
    check_user(&stream).map_err(Unlinked::Refused)?;
    let (mut chunks, writer) = chunk::split(stream);
    writer.write(Kind::Hello, &[], &node.hello()).await?;
    let hello = receive_hello(&mut chunks).await?;
    let peer = Peer {
        node: hello.node.clone(),
        role: hello.role,
        address: address.to_owned(),
    };
    match node.attach(peer, hello, Dialled::ByUs) {
        Ok(link) => Ok(Session::new(node.clone(), link, chunks, writer)),
        Err(error) => refuse(&writer, error.to_string()).await,
    }
}

async fn accept(node: Node, listener: UnixListener, roles: Vec<Role>) {
    let (roles, greeting) = (
        Arc::<[Role]>::from(roles),
        Arc::new(Semaphore::new(HELLOS_MAX)),
    );
    loop {
        let Ok(permit) = greeting.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Usually out of file descriptors: retry after a pause.
                tracing::warn!(%error, "cannot accept on the Unix socket, retrying");
                node.clock().sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (node, roles) = (node.clone(), roles.clone());
        tokio::spawn(async move {
            let greeted = greet_dialler(&node, stream, &roles);
            match node.clock().timeout(HELLO_TIMEOUT, greeted).await {
                Ok(Ok(session)) => drop(tokio::spawn(session.run())),
                Ok(Err(Unlinked::Lost(reason))) => {
                    tracing::debug!(reason, "Unix connection lost during the hello")
                }
                Ok(Err(Unlinked::Refused(reason))) => {
                    tracing::warn!(reason, "refused a Unix connection")
                }
                Err(late) => tracing::debug!(%late, "hello on the Unix socket timed out"),
            }
            drop(permit);
        });
    }
}

async fn greet_dialler(
    node: &Node,
    stream: UnixStream,
    roles: &[Role],
) -> Result<Session, Unlinked> {
    let known = check_user(&stream);
    let (mut chunks, writer) = chunk::split(stream);
    if let Err(reason) = known {
        return refuse(&writer, reason).await;
    }
    let hello = match receive_hello(&mut chunks).await {
        Ok(hello) => hello,
        Err(Unlinked::Refused(reason)) => return refuse(&writer, reason).await,
        Err(lost) => return Err(lost),
    };
    if !roles.contains(&hello.role) {
        return refuse(
            &writer,
            AttachError::WrongRole { role: hello.role }.to_string(),
        )
        .await;
    }
    let peer = Peer {
        node: hello.node.clone(),
        role: hello.role,
        address: String::new(),
    };
    let link: Link = match node.attach(peer, hello, Dialled::ByThem) {
        Ok(link) => link,
        Err(error) => return refuse(&writer, error.to_string()).await,
    };
    if let Err(error) = writer.write(Kind::Hello, &[], &node.hello()).await {
        link.close(&error.to_string());
        return Err(error.into());
    }
    Ok(Session::new(node.clone(), link, chunks, writer))
}

/// Receives the peer's hello, which must be its first chunk.
async fn receive_hello(chunks: &mut Chunks) -> Result<Hello, Unlinked> {
    let garbled = |reason: String| Unlinked::Refused(format!("hello cannot be read: {reason}"));
    match chunks.next().await {
        Ok(Some((Kind::Hello, hello))) => {
            Hello::decode(&hello).map_err(|error| garbled(error.reason))
        }
        Ok(Some((Kind::Farewell, reason))) => Err(Unlinked::Refused(
            String::from_utf8_lossy(&reason).into_owned(),
        )),
        Ok(Some((kind, _))) => Err(garbled(format!(
            "the first chunk is {kind:?}, expected a hello"
        ))),
        Ok(None) => Err(Unlinked::Lost("closed before the hello".into())),
        Err(chunk::ChunkError::Garbled(reason)) => Err(garbled(reason)),
        Err(chunk::ChunkError::Lost(error)) => Err(error.into()),
    }
}

async fn refuse(writer: &Writer, reason: String) -> Result<Session, Unlinked> {
    let _ = writer.write(Kind::Farewell, &[], reason.as_bytes()).await; // it is closed either way
    Err(Unlinked::Refused(reason))
}

/// Checks that the peer runs as this process's user or as root.
fn check_user(stream: &UnixStream) -> Result<(), String> {
    let theirs = stream
        .peer_cred()
        .map_err(|error| format!("the peer's user is unknown: {error}"))?
        .uid();
    let ours = nix::unistd::geteuid().as_raw();
    if theirs == ours || theirs == 0 {
        return Ok(());
    }
    Err(format!(
        "the peer is run by user {theirs}, expected {ours} or root"
    ))
}

fn check_length(path: &Path) -> Result<(), UnixError> {
    match path.as_os_str().len() {
        0..=PATH_MAX => Ok(()),
        _ => Err(UnixError::PathTooLong {
            path: path.to_owned(),
        }),
    }
}

/// Removes a socket file without a listener.
fn remove_stale_socket(path: &Path) -> Result<(), UnixError> {
    let failed = |source| UnixError::Io {
        path: path.to_owned(),
        source,
    };
    let taken = || UnixError::Taken {
        path: path.to_owned(),
    };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(taken()),
        Ok(_) => {}
    }
    match BlockingStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
        Ok(_) => Err(taken()),
    }
}

/// An error that prevents a listener.
#[derive(Debug, thiserror::Error)]
pub enum UnixError {
    /// The path is too long for the kernel: choose a shorter directory.
    #[error("socket path {} has {} bytes, expected at most {PATH_MAX}", path.display(), path.as_os_str().len())]
    PathTooLong {
        /// The requested path.
        path: PathBuf,
    },
    /// Another process listens there, or it is no socket.
    #[error("{} is in use, or is no socket", path.display())]
    Taken {
        /// The requested path.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("cannot listen at {}", path.display())]
    Io {
        /// The requested path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
