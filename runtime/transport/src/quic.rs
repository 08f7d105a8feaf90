//! QUIC: one UDP socket and one endpoint per node, which dials and accepts for it.
//!
//! Hears addresses from the node (it installs itself as the node's dialer) and connections from outside. Each
//! connection passes mutual TLS, then the check of the peer's role, then the hello; only then it becomes a link.
//! Remembers who is linked at which address. Never reads a frame of a peer that was not accepted, and never decides
//! when to dial again: that is the actors' business.

mod accept;
pub(crate) mod address;
mod addresses;
mod chanceless;
pub(crate) mod config;
mod dial;
mod ground;
mod handshake;
mod liveness;
mod renewal;
mod reset;
mod room;
mod session;
mod socket;
mod spares;
mod tasks;
mod waiting;

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
use crate::wire::Ether;
pub use accept::Handshakes;
pub use config::Options;
use ground::Ground;
use liveness::Suspicion;
pub use renewal::{RenewError, Renewal};
use reset::ResetKey;
use socket::{TOKEN, UdpSocket};

/// Why a side closed a connection, for the other side's program; the reason beside it is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The node goes down, or no longer wants this link.
    Farewell = 0,
    /// The peer's role or name is not wanted here.
    Refused = 1,
    /// The two nodes have another link already.
    Duplicate = 2,
    /// What came cannot be read.
    Garbled = 3,
    /// Another start of the peer has taken its place.
    Superseded = 4,
}

impl Closing {
    pub(crate) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// A node's place in the network. Dropping it closes every connection at once; [`Endpoint::close`] says farewell.
pub struct Endpoint {
    shared: Arc<Shared>,
}

/// Bytes of datagrams, without the headers of UDP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From here to the peer.
    pub sent: u64,
    /// From the peer to here.
    pub received: u64,
}

/// What the endpoint's tasks share.
pub(crate) struct Shared {
    node: Node,
    ground: Ground,
    /// The machine's socket, unless the endpoint is in memory. The endpoint keeps it open.
    socket: Weak<UdpSocket>,
    options: Options,
    endpoint: quinn::Endpoint,
    client: ArcSwap<ClientConfig>,
    reset_key: ResetKey,
    home: tokio::runtime::Handle,
    tasks: Arc<Tasks>,
    state: Mutex<State>,
    handshakes: accept::Tally,
    spares: spares::Spares,
    /// A connection was removed from the state.
    parted: Notify,
}

#[derive(Default)]
struct State {
    /// No connection is taken any more.
    closing: bool,
    /// Who is linked, by the address of its one socket.
    linked: BTreeMap<SocketAddr, Linked>,
    /// Who is being dialled: held until the dial has ended, so that nobody dials the same address beside it.
    turns: BTreeMap<SocketAddr, Arc<tokio::sync::Mutex<()>>>,
}

struct Linked {
    peer: Peer,
    connection: Connection,
    dialled: Dialled,
    /// What probes of this link bear, known to its two ends alone.
    probe_token: [u8; TOKEN],
    /// The peer's machine has said that nothing has its port.
    suspicion: Option<Suspicion>,
    /// The connection was closed for that.
    is_refused: bool,
}

impl Endpoint {
    /// Opens the node's socket at `address` (port 0 takes any free one), accepts on it, and dials from it.
    ///
    /// Call it on the thread where the node's links shall be served: its tasks stay there. The identity's name must
    /// be the node's name and its role the node's role.
    pub fn bind(
        node: Node,
        identity: &Identity,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, BindError> {
        Self::stand(Ground::machine(), node, identity, address, options)
    }

    /// The same endpoint with a socket in memory, for rehearsals: its datagrams fare as the ether's wire says, and one
    /// seed of the node gives one run.
    ///
    /// The address names the one machine that it stands for. Addresses that begin with `unix:` cannot be dialled until
    /// [`Endpoint::set_local_dialer`] has said how.
    pub fn bind_on(
        ether: &Ether,
        node: Node,
        identity: &Identity,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, BindError> {
        Self::stand(Ground::ether(ether), node, identity, address, options)
    }

    fn stand(
        ground: Ground,
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
        let (server, client) = renewal::both(&node, identity, &options, &ground)?;
        let mut seed = [0; 32];
        node.rng().fill_bytes(&mut seed);
        let reset_key = config::reset_key(identity)?;
        let mut setup = config::endpoint_with(reset_key.clone(), seed);
        setup.rng_seed(ground.seed(&node));
        let (socket, of_machine) = ground.socket(address, &options, node.clock())?;
        let tasks = Arc::new(Tasks::on(home.clone()));
        let endpoint =
            quinn::Endpoint::new_with_abstract_socket(setup, Some(server), socket, tasks.clone())
                .map_err(|source| BindError::Socket { address, source })?;
        let shared = Arc::new(Shared {
            node: node.clone(),
            ground,
            socket: of_machine.clone(),
            options,
            endpoint,
            client: ArcSwap::from_pointee(client),
            reset_key,
            home,
            tasks,
            state: Mutex::default(),
            handshakes: accept::Tally::default(),
            spares: spares::Spares::default(),
            parted: Notify::new(),
        });
        node.set_dialer(Arc::new(QuicDialer(Arc::downgrade(&shared))));
        shared.home.spawn(accept::accept(shared.clone()));
        if of_machine.strong_count() > 0 {
            let watch = liveness::watch(Arc::downgrade(&shared), of_machine);
            shared.home.spawn(watch);
        }
        Ok(Self { shared })
    }

    /// Where the node can be reached: the address bound, with the port the system chose.
    pub fn address(&self) -> Result<SocketAddr, BindError> {
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        self.shared
            .endpoint
            .local_addr()
            .map_err(|source| BindError::Socket { address, source })
    }

    /// Lets `dialer` serve the addresses that begin with `unix:`, in place of this machine's Unix sockets.
    pub fn set_local_dialer(&self, dialer: Arc<dyn Dialer>) {
        self.shared.ground.set_local(dialer);
    }

    /// How many links stand.
    #[must_use]
    pub fn links(&self) -> usize {
        self.shared.state().linked.len()
    }

    /// What the link to this node has carried since it was dialled, handshake and acknowledgements included; `None` without one.
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

    /// What has become of the connections that others began.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.shared.handshakes.read()
    }

    /// Takes no new connection, and waits until the links that the node has closed have handed over what was written before, at most the
    /// options' `farewell_timeout`; then ends whatever is left, and gives the port back. To be called after the node's
    /// shutdown.
    pub async fn close(self) {
        let shared = &self.shared;
        shared.state().closing = true;
        let clock = shared.node.clock().clone();
        let farewell = shared.options.farewell_timeout;
        let _ = clock.timeout(farewell, shared.all_parted()).await; // late ones are cut off
        shared
            .endpoint
            .close(Closing::Farewell.code(), b"the node shut down");
        let _ = clock.timeout(farewell, shared.endpoint.wait_idle()).await; // peers time out instead
        let driver = shared.tasks.driver();
        drop(self);
        if let Some(driver) = driver {
            let _ = clock.timeout(farewell, driver).await; // the port is given back later
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

    /// Who is linked at this address now.
    fn linked_at(&self, address: SocketAddr) -> Option<Peer> {
        let state = self.state();
        let linked = state.linked.get(&address)?;
        linked
            .connection
            .close_reason()
            .is_none()
            .then(|| linked.peer.clone())
    }

    /// Who is linked under this name and role, wherever; the peer's certificate has shown both.
    fn linked_as(&self, wanted: impl Fn(&Peer) -> bool) -> Option<Peer> {
        let state = self.state();
        let mut open = state
            .linked
            .values()
            .filter(|linked| linked.connection.close_reason().is_none());
        open.find(|linked| wanted(&linked.peer))
            .map(|linked| linked.peer.clone())
    }

    /// A connection became a link. If an earlier start of that node was linked at the same address, that one is dead:
    /// two nodes cannot have the same socket.
    fn joined(&self, address: SocketAddr, peer: &Peer, connection: &Connection, dialled: Dialled) {
        let mut probe_token = [0; TOKEN];
        // Fails only for outputs that are too long. Without it links would be closed by the idle timeout alone.
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

    /// A connection has ended.
    fn parted(&self, address: SocketAddr, connection: &Connection) {
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
        self.parted.notify_waiters();
    }

    async fn all_parted(&self) {
        loop {
            let parted = self.parted.notified();
            if self.state().linked.is_empty() {
                return;
            }
            parted.await;
        }
    }

    /// The turn for this address: who holds its lock is the only one dialling there.
    fn turn(&self, address: SocketAddr) -> Arc<tokio::sync::Mutex<()>> {
        self.state().turns.entry(address).or_default().clone()
    }

    /// Forgets the turn if nobody else has it.
    fn turn_over(&self, address: SocketAddr, turn: Arc<tokio::sync::Mutex<()>>) {
        let mut state = self.state();
        drop(turn);
        if state
            .turns
            .get(&address)
            .is_some_and(|turn| Arc::strong_count(turn) == 1)
        {
            state.turns.remove(&address);
        }
    }

    /// The turn of a dial to this address that is under way now.
    fn turn_taken(&self, address: SocketAddr) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.state().turns.get(&address).cloned()
    }

    fn is_before(&self, peer: &NodeId) -> bool {
        self.node.id() < peer
    }
}

/// The address as the tables know it: an IPv4 peer of an IPv6 socket is still an IPv4 peer.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What the node dials with. Outlives the endpoint without keeping it open.
struct QuicDialer(Weak<Shared>);

impl Dialer for QuicDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let Some(shared) = self.0.upgrade() else {
            return std::future::ready(Err(ConnectError::ShuttingDown)).boxed();
        };
        if address.starts_with(unix::SCHEME) {
            return shared
                .ground
                .dial_local(&shared.node, &shared.home, address);
        }
        // Whoever asks, the connection's tasks live where the endpoint lives.
        let home = shared.home.clone();
        let dialling = home.spawn(dial::dial(shared, address));
        async move { dialling.await.unwrap_or(Err(ConnectError::ShuttingDown)) }.boxed()
    }
}

/// Why a node has no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket could not be opened: mostly the port is taken.
    #[error("cannot open UDP socket {address}")]
    Socket {
        /// The address asked for.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The identity cannot be used by this node.
    #[error("identity {reason}")]
    Identity {
        /// What is wrong with it, and what was expected.
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
