//! QUIC: one UDP socket and one endpoint per node, which dials and accepts for it.
//!
//! The endpoint installs itself as the node's dialer. A connection becomes a link after mutual TLS,
//! the check of the peer's role, and the hello; no frame is read before. The endpoint keeps one
//! link per peer address. It never redials: actors do.
//!
//! | module | contents |
//! |---|---|
//! | `accept` | incoming connections: from the first packet to a link |
//! | `buffer_pool` | a pool of buffers for bulks |
//! | `bulk_permits` | limit of the bulks of one connection that are sent at a time |
//! | `config` | configuration of an endpoint |
//! | `deterministic_tls` | TLS without randomness, for virtual networks |
//! | `dial` | outgoing connections: from an address to a link |
//! | `handshake` | the hello, and the check of the peer's role |
//! | `liveness` | finds peers whose process has ended while their machine still answers |
//! | `renewal` | a new certificate for all later handshakes, without closing a link |
//! | `reset` | stateless resets |
//! | `session` | the tasks that move bytes between one link and its connection |
//! | `socket` | the system's UDP socket for quinn |
//! | `socket_provider` | the trait that provides an endpoint's socket and resolver |
//! | `tasks` | runs the endpoint's own tasks on the node's home thread |

mod accept;
mod buffer_pool;
mod bulk_permits;
pub mod config;
mod deterministic_tls;
mod dial;
mod handshake;
mod liveness;
mod renewal;
mod reset;
mod session;
pub(crate) mod socket;
mod socket_provider;
mod tasks;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quinn::{ClientConfig, Connection, VarInt};
use rand::RngCore;
use runtime::{ConnectError, Dialer, Dialled, Node, NodeId, Peer};
use tasks::Tasks;
use tokio::sync::Notify;

use crate::certificates::Identity;
use crate::unix;
pub use accept::Handshakes;
pub use config::Options;
use liveness::Suspicion;
pub use renewal::{RenewError, Renewal};
use reset::ResetKey;
pub use socket::address::Address;
use socket::{TOKEN, UdpSocket};
pub use socket_provider::SimulatedSockets;
use socket_provider::SocketProvider;

/// The close code, for the other side's program; the reason text beside it is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The node shuts down, or no longer wants this link.
    Farewell = 0,
    /// The peer's role or name is not accepted.
    Refused = 1,
    /// The two nodes are linked already.
    Duplicate = 2,
    /// The received bytes are invalid.
    Garbled = 3,
    /// A later incarnation of the peer has taken its place.
    Superseded = 4,
}

impl Closing {
    pub(crate) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// A node's network endpoint. Dropping it closes every connection at once; [`Endpoint::close`]
/// flushes them first.
pub struct Endpoint {
    shared: Arc<Shared>,
}

/// Bytes of datagrams, without the headers of UDP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From this node to the peer.
    pub sent: u64,
    /// From the peer to this node.
    pub received: u64,
}

/// State shared by the endpoint's tasks.
pub(crate) struct Shared {
    node: Node,
    sockets: SocketProvider,
    /// The system's socket, unless the endpoint is in memory. The endpoint keeps it open.
    socket: Weak<UdpSocket>,
    options: Options,
    endpoint: quinn::Endpoint,
    client: ArcSwap<ClientConfig>,
    reset_key: ResetKey,
    home: tokio::runtime::Handle,
    tasks: Arc<Tasks>,
    state: Mutex<State>,
    handshakes: accept::HandshakeCounters,
    buffer_pool: buffer_pool::BufferPool,
    /// Notified when a connection is removed from the state.
    link_removed: Notify,
}

#[derive(Default)]
struct State {
    /// No new connection is accepted.
    closing: bool,
    /// Links, by the peer's socket address.
    linked: BTreeMap<SocketAddr, Linked>,
    /// Locks of the dials in progress, so that each address is dialled once at a time.
    dial_locks: BTreeMap<SocketAddr, Arc<tokio::sync::Mutex<()>>>,
}

struct Linked {
    peer: Peer,
    connection: Connection,
    dialled: Dialled,
    /// The token in this link's probes, known to its two ends only.
    probe_token: [u8; TOKEN],
    /// Set when the peer's machine reported that its port is closed.
    suspicion: Option<Suspicion>,
    /// The connection was closed because the peer's port is closed.
    is_refused: bool,
}

impl Endpoint {
    /// Opens the node's socket at `address` (port 0 takes any free one), accepts on it, and dials
    /// from it.
    ///
    /// Call it on the thread that shall serve the node's links: the tasks stay there. The
    /// identity's name and role must be the node's.
    pub fn bind(
        node: Node,
        identity: &Identity,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, BindError> {
        Self::bind_with(SocketProvider::system(), node, identity, address, options)
    }

    /// An endpoint for simulations: its socket is one of these, and one seed of the node gives one
    /// run.
    ///
    /// `address` names the simulated machine. Addresses that begin with `unix:` cannot be dialled
    /// before [`Endpoint::set_local_dialer`].
    pub fn bind_on(
        sockets: impl SimulatedSockets + 'static,
        node: Node,
        identity: &Identity,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, BindError> {
        Self::bind_with(
            SocketProvider::simulated(Arc::new(sockets)),
            node,
            identity,
            address,
            options,
        )
    }

    fn bind_with(
        sockets: SocketProvider,
        node: Node,
        identity: &Identity,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, BindError> {
        let home = tokio::runtime::Handle::try_current().map_err(|error| BindError::Socket {
            address,
            source: io::Error::other(error),
        })?;
        renewal::check(&node, identity)?;
        let options = options.checked();
        let (server, client) = renewal::both(&node, identity, &options, &sockets)?;
        let mut seed = [0; 32];
        node.rng().fill_bytes(&mut seed);
        let reset_key = config::reset_key(identity)?;
        let mut setup = config::endpoint_with(reset_key.clone(), seed);
        setup.rng_seed(sockets.seed(&node));
        let (socket, of_system) = sockets.socket(address, &options, node.clock())?;
        let tasks = Arc::new(Tasks::on(home.clone()));
        let endpoint =
            quinn::Endpoint::new_with_abstract_socket(setup, Some(server), socket, tasks.clone())
                .map_err(|source| BindError::Socket { address, source })?;
        let shared = Arc::new(Shared {
            node: node.clone(),
            sockets,
            socket: of_system.clone(),
            options,
            endpoint,
            client: ArcSwap::from_pointee(client),
            reset_key,
            home,
            tasks,
            state: Mutex::default(),
            handshakes: accept::HandshakeCounters::default(),
            buffer_pool: buffer_pool::BufferPool::default(),
            link_removed: Notify::new(),
        });
        node.set_dialer(Arc::new(QuicDialer(Arc::downgrade(&shared))));
        shared.home.spawn(accept::accept(shared.clone()));
        if of_system.strong_count() > 0 {
            let watch = liveness::watch(Arc::downgrade(&shared), of_system);
            shared.home.spawn(watch);
        }
        Ok(Self { shared })
    }

    /// The bound address, with the port that the system chose.
    pub fn address(&self) -> Result<SocketAddr, BindError> {
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        self.shared
            .endpoint
            .local_addr()
            .map_err(|source| BindError::Socket { address, source })
    }

    /// Makes `dialer` dial the addresses that begin with `unix:`, in place of this machine's Unix
    /// sockets.
    pub fn set_local_dialer(&self, dialer: Arc<dyn Dialer>) {
        self.shared.sockets.set_local(dialer);
    }

    /// The number of links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.shared.state().linked.len()
    }

    /// Bytes on the link to this node since it was dialled, handshake and acknowledgements
    /// included; `None` without a link.
    #[must_use]
    pub fn traffic(&self, peer: &NodeId) -> Option<Traffic> {
        let state = self.shared.state();
        let linked = state.linked.values().find(|one| one.peer.node == *peer)?;
        let carried = linked.connection.stats();
        Some(Traffic {
            sent: carried.udp_tx.bytes,
            received: carried.udp_rx.bytes,
        })
    }

    /// Counters of the accepted connections.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.shared.handshakes.read()
    }

    /// Stops accepting and waits until closed links have sent their queued bytes, at most
    /// `farewell_timeout`; then closes the remaining connections and frees the port. Call it after
    /// the node's shutdown.
    pub async fn close(self) {
        let shared = &self.shared;
        shared.state().closing = true;
        let clock = shared.node.clock().clone();
        let farewell = shared.options.farewell_timeout;
        let _ = clock.timeout(farewell, shared.all_links_closed()).await; // late ones are cut off
        shared
            .endpoint
            .close(Closing::Farewell.code(), b"the node shut down");
        // peers time out instead
        let _ = clock.timeout(farewell, shared.endpoint.wait_idle()).await;
        let driver = shared.tasks.driver();
        drop(self);
        if let Some(driver) = driver {
            let _ = clock.timeout(farewell, driver).await; // the port is freed later
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared
            .endpoint
            .close(Closing::Farewell.code(), b"the node shut down");
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer that is linked at this address.
    fn linked_at(&self, address: SocketAddr) -> Option<Peer> {
        let state = self.state();
        let linked = state.linked.get(&address)?;
        linked
            .connection
            .close_reason()
            .is_none()
            .then(|| linked.peer.clone())
    }

    /// The linked peer that matches, at any address. Its name and role are those of its
    /// certificate.
    fn linked_as(&self, wanted: impl Fn(&Peer) -> bool) -> Option<Peer> {
        let state = self.state();
        let mut open = state
            .linked
            .values()
            .filter(|linked| linked.connection.close_reason().is_none());
        open.find(|linked| wanted(&linked.peer))
            .map(|linked| linked.peer.clone())
    }

    /// Registers a link. An earlier link at the same address is closed: its node is dead, because
    /// two nodes cannot have the same socket.
    fn register_link(
        &self,
        address: SocketAddr,
        peer: &Peer,
        connection: &Connection,
        dialled: Dialled,
    ) {
        let mut probe_token = [0; TOKEN];
        // Fails only for outputs that are too long. Then only the idle timeout would close the
        // link.
        let _ = connection.export_keying_material(&mut probe_token, b"meros liveness probe", b"");
        let linked = Linked {
            peer: peer.clone(),
            connection: connection.clone(),
            dialled,
            probe_token,
            suspicion: None,
            is_refused: false,
        };
        if let (Dialled::ByUs, Some(socket)) = (dialled, self.socket.upgrade()) {
            socket.watch(address);
        }
        let before = self.state().linked.insert(address, linked);
        if let Some(before) =
            before.filter(|before| before.connection.stable_id() != connection.stable_id())
        {
            let reason = format!("{} has taken its place", peer.node);
            before
                .connection
                .close(Closing::Superseded.code(), reason.as_bytes());
        }
    }

    /// Removes a connection that has ended.
    fn remove_link(&self, address: SocketAddr, connection: &Connection) {
        let mut state = self.state();
        if state
            .linked
            .get(&address)
            .is_some_and(|linked| linked.connection.stable_id() == connection.stable_id())
        {
            state.linked.remove(&address);
            if let Some(socket) = self.socket.upgrade() {
                socket.unwatch(address);
            }
        }
        drop(state);
        self.link_removed.notify_waiters();
    }

    async fn all_links_closed(&self) {
        loop {
            let removed = self.link_removed.notified();
            if self.state().linked.is_empty() {
                return;
            }
            removed.await;
        }
    }

    /// The lock of this address: its holder is the only one that dials there.
    fn dial_lock(&self, address: SocketAddr) -> Arc<tokio::sync::Mutex<()>> {
        self.state().dial_locks.entry(address).or_default().clone()
    }

    /// Removes the lock unless another dial waits for it.
    fn release_dial_lock(&self, address: SocketAddr, lock: Arc<tokio::sync::Mutex<()>>) {
        let mut state = self.state();
        drop(lock);
        if state
            .dial_locks
            .get(&address)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            state.dial_locks.remove(&address);
        }
    }

    /// The lock of a dial to this address, if one is in progress.
    fn active_dial_lock(&self, address: SocketAddr) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.state().dial_locks.get(&address).cloned()
    }

    fn precedes(&self, peer: &NodeId) -> bool {
        self.node.id() < peer
    }
}

/// The address as a key: an IPv4 peer of an IPv6 socket counts as an IPv4 peer.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The node's dialer. It does not keep the endpoint open.
struct QuicDialer(Weak<Shared>);

impl Dialer for QuicDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let Some(shared) = self.0.upgrade() else {
            return std::future::ready(Err(ConnectError::ShuttingDown)).boxed();
        };
        if address.starts_with(unix::SCHEME) {
            return shared
                .sockets
                .dial_local(&shared.node, &shared.home, address);
        }
        // The connection's tasks run on the endpoint's runtime, not on the caller's.
        let home = shared.home.clone();
        let dialling = home.spawn(dial::dial(shared, address));
        async move { dialling.await.unwrap_or(Err(ConnectError::ShuttingDown)) }.boxed()
    }
}

/// An error that prevents an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket could not be opened: usually the port is taken.
    #[error("cannot open UDP socket {address}")]
    Socket {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The identity cannot be used by this node.
    #[error("identity {reason}")]
    Identity {
        /// The problem, and the expected value.
        reason: String,
    },
}

impl BindError {
    fn identity(reason: impl Into<String>) -> Self {
        Self::Identity {
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests;
