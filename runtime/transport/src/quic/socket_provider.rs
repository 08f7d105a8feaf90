//! The provider of an endpoint's socket and resolver: the system's, or those of a simulation.
//!
//! The two are never mixed: a simulated endpoint opens no real socket and uses no system resolver.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quinn::AsyncUdpSocket;
use rand::RngCore;
use runtime::{Clock, ConnectError, Dialer, Node, Peer};
use rustls::crypto::CryptoProvider;

use super::socket::UdpSocket;
use super::{BindError, Options, config, deterministic_tls};
use crate::unix;

/// The sockets and the resolver of a simulation, in place of the system's.
pub trait SimulatedSockets: fmt::Debug + Send + Sync {
    /// Opens a socket at this address (port 0 takes any free one) with a receive buffer of so many
    /// bytes.
    fn bind(&self, address: SocketAddr, buffer: usize) -> io::Result<Arc<dyn AsyncUdpSocket>>;

    /// Resolves `HOST:PORT`.
    fn lookup(&self, host: &str) -> io::Result<SocketAddr>;
}

/// The dialler of this machine's addresses, which begin with `unix:`; by default Unix sockets.
type LocalDialer = Mutex<Option<Arc<dyn Dialer>>>;

pub(super) enum SocketProvider {
    System {
        local: LocalDialer,
    },
    Simulated {
        sockets: Arc<dyn SimulatedSockets>,
        local: LocalDialer,
    },
}

impl SocketProvider {
    pub(super) fn system() -> Self {
        let local = LocalDialer::default();
        Self::System { local }
    }

    pub(super) fn simulated(sockets: Arc<dyn SimulatedSockets>) -> Self {
        let local = LocalDialer::default();
        Self::Simulated { sockets, local }
    }

    /// Opens the endpoint's socket; also returns it as the system's, if it is one. Needs a runtime.
    pub(super) fn socket(
        &self,
        address: SocketAddr,
        options: &Options,
        clock: &Clock,
    ) -> Result<(Arc<dyn AsyncUdpSocket>, Weak<UdpSocket>), BindError> {
        let failed = |source| BindError::Socket { address, source };
        match self {
            Self::System { .. } => {
                let socket = config::socket(address, options.socket_buffer)?;
                let socket = Arc::new(UdpSocket::new(socket, clock).map_err(failed)?);
                let of_system = Arc::downgrade(&socket);
                Ok((socket, of_system))
            }
            Self::Simulated { sockets, .. } => {
                let socket = sockets
                    .bind(address, options.socket_buffer)
                    .map_err(failed)?;
                Ok((socket, Weak::new()))
            }
        }
    }

    /// The cryptography of connections.
    pub(super) fn cryptography(&self) -> Arc<CryptoProvider> {
        match self {
            Self::System { .. } => config::provider(),
            Self::Simulated { .. } => deterministic_tls::provider(),
        }
    }

    /// The seed of quinn's randomness; `None` takes the system's.
    pub(super) fn seed(&self, node: &Node) -> Option<[u8; 32]> {
        match self {
            Self::System { .. } => None,
            Self::Simulated { .. } => {
                let mut seed = [0; 32];
                node.rng().fill_bytes(&mut seed);
                Some(seed)
            }
        }
    }

    /// Resolves `HOST:PORT`.
    pub(super) async fn lookup(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::System { .. } => Ok(tokio::net::lookup_host(host).await?.collect()),
            Self::Simulated { sockets, .. } => Ok(vec![sockets.lookup(host)?]),
        }
    }

    /// Sets the dialler for this machine's addresses.
    pub(super) fn set_local(&self, dialer: Arc<dyn Dialer>) {
        let (Self::System { local } | Self::Simulated { local, .. }) = self;
        *local.lock().unwrap_or_else(PoisonError::into_inner) = Some(dialer);
    }

    /// Dials an address that begins with `unix:`.
    pub(super) fn dial_local(
        &self,
        node: &Node,
        home: &tokio::runtime::Handle,
        address: String,
    ) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let (Self::System { local } | Self::Simulated { local, .. }) = self;
        let local = local.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (local, self) {
            (Some(local), _) => local.dial(address),
            (None, Self::System { .. }) => {
                let path = address.strip_prefix(unix::SCHEME).unwrap_or(&address);
                let dialling = home.spawn(unix::dial(node.clone(), path.into()));
                async { dialling.await.unwrap_or(Err(ConnectError::ShuttingDown)) }.boxed()
            }
            (None, Self::Simulated { .. }) => {
                let reason = "no dialer was given for the machine's own addresses".to_owned();
                std::future::ready(Err(ConnectError::Refused { address, reason })).boxed()
            }
        }
    }
}
