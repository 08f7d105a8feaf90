//! Unix sockets: links between an agent and the executors on its own machine, without a TLS handshake per task.
//!
//! Hears connections on a socket file, and addresses `unix:PATH` from nodes that dial. The kernel says which user is on
//! the other end: only our own and root are let in, and only with the roles that the listener was given. What follows
//! is the same hello and the same frames as on any link. Remembers nothing of its peers: the sessions do.
//! Never leaves the machine, and never takes over a socket that somebody else listens on.

pub(crate) mod chunk;
pub(crate) mod session;

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

/// How addresses of socket files begin.
pub const SCHEME: &str = "unix:";
/// The longest path of a socket file, in bytes: the kernel takes 107, and a name must fit behind the directory.
pub const PATH_MAX: usize = 100;

/// How long the hello may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections may be saying hello at once; further ones wait in the socket's queue.
const HELLOS_MAX: usize = 64;

/// A socket file on which a node takes links. Dropping it takes no more, and removes the file.
pub struct Listener {
    path: PathBuf,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Listens at `path` for peers of these roles. Its tasks stay on the calling thread.
    ///
    /// A file left there by a process that died is replaced; anything else in the way is an error.
    pub fn bind(node: Node, path: impl Into<PathBuf>, roles: &[Role]) -> Result<Self, UnixError> {
        let path = path.into();
        check_length(&path)?;
        clear_the_way(&path)?;
        let failed = |source| UnixError::Io {
            path: path.clone(),
            source,
        };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let accepting = tokio::spawn(accept(node, listener, roles.to_vec()));
        Ok(Self { path, accepting })
    }

    /// The address that others dial: `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{SCHEME}{}", self.path.display())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.path); // a file that is left is cleared by whoever comes next
    }
}

/// Lets a node that has no other transport dial `unix:PATH`. Dropping it ends that, but no link.
pub struct Dialling {
    _inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    home: tokio::runtime::Handle,
}

impl Dialling {
    /// Installs itself as the node's dialer. Call it on the thread where the node's links shall be served.
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

/// Why a connection did not become a link.
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
    let hello = hear_hello(&mut chunks).await?;
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
                // Out of file descriptors, mostly: wait until there may be some again.
                tracing::warn!(%error, "cannot accept on the Unix socket");
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
                    tracing::debug!(reason, "a Unix connection ended unfinished")
                }
                Ok(Err(Unlinked::Refused(reason))) => {
                    tracing::warn!(reason, "refused a Unix connection")
                }
                Err(late) => tracing::debug!(%late, "gave up on a Unix connection"),
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
    let hello = match hear_hello(&mut chunks).await {
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

/// The peer's hello, which comes before everything else.
async fn hear_hello(chunks: &mut Chunks) -> Result<Hello, Unlinked> {
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
        Err(chunk::Unread::Garbled(reason)) => Err(garbled(reason)),
        Err(chunk::Unread::Lost(error)) => Err(error.into()),
    }
}

async fn refuse(writer: &Writer, reason: String) -> Result<Session, Unlinked> {
    let _ = writer.write(Kind::Farewell, &[], reason.as_bytes()).await; // it is let go either way
    Err(Unlinked::Refused(reason))
}

/// Is the other end run by our own user, or by root?
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

/// Removes a socket file that nobody listens on any more.
fn clear_the_way(path: &Path) -> Result<(), UnixError> {
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

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum UnixError {
    /// The kernel would not take it: choose a shorter directory.
    #[error("socket path {} has {} bytes, expected at most {PATH_MAX}", path.display(), path.as_os_str().len())]
    PathTooLong {
        /// The path asked for.
        path: PathBuf,
    },
    /// Somebody listens there, or it is no socket.
    #[error("{} is in use, or is no socket", path.display())]
    Taken {
        /// The path asked for.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen at {}", path.display())]
    Io {
        /// The path asked for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
