//! The ground an endpoint stands on: the machine's sockets and resolver, or an ether in memory.
//!
//! Hears addresses and host names. Remembers who dials on the node's own machine, if not Unix sockets do.
//! Never mixes the two: an endpoint on an ether opens no socket and asks no resolver of the machine.

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
use super::{BindError, Options, chanceless, config};
use crate::unix;
use crate::wire::{Ether, Socket};

/// What dials the addresses of this machine, which begin with `unix:`.
type Local = Mutex<Option<Arc<dyn Dialer>>>;

pub(super) enum Ground {
    Machine { local: Local },
    Ether { ether: Ether, local: Local },
}

impl Ground {
    pub(super) fn machine() -> Self {
        let local = Local::default();
        Self::Machine { local }
    }

    pub(super) fn ether(ether: &Ether) -> Self {
        let (ether, local) = (ether.clone(), Local::default());
        Self::Ether { ether, local }
    }

    /// Opens the endpoint's one socket, which may be one of the machine. Needs a runtime.
    pub(super) fn socket(
        &self,
        address: SocketAddr,
        options: &Options,
        clock: &Clock,
    ) -> Result<(Arc<dyn AsyncUdpSocket>, Weak<UdpSocket>), BindError> {
        let failed = |source| BindError::Socket { address, source };
        match self {
            Self::Machine { .. } => {
                let socket = config::socket(address, options.socket_buffer)?;
                let socket = Arc::new(UdpSocket::new(socket, clock).map_err(failed)?);
                let of_machine = Arc::downgrade(&socket);
                Ok((socket, of_machine))
            }
            Self::Ether { ether, .. } => {
                let socket = Socket::bind(ether, address, options.socket_buffer).map_err(failed)?;
                Ok((Arc::new(socket), Weak::new()))
            }
        }
    }

    /// What connections are secured with.
    pub(super) fn cryptography(&self) -> Arc<CryptoProvider> {
        match self {
            Self::Machine { .. } => config::provider(),
            Self::Ether { .. } => chanceless::provider(),
        }
    }

    /// What the rest of quinn's chance comes from: the system, except where the same seed must give the same run.
    pub(super) fn seed(&self, node: &Node) -> Option<[u8; 32]> {
        match self {
            Self::Machine { .. } => None,
            Self::Ether { .. } => {
                let mut seed = [0; 32];
                node.rng().fill_bytes(&mut seed);
                Some(seed)
            }
        }
    }

    /// The addresses that a text `HOST:PORT` stands for.
    pub(super) async fn lookup(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Machine { .. } => Ok(tokio::net::lookup_host(host).await?.collect()),
            Self::Ether { ether, .. } => Ok(vec![ether.lookup(host)?]),
        }
    }

    /// Lets this one dial on the node's own machine.
    pub(super) fn set_local(&self, dialer: Arc<dyn Dialer>) {
        let (Self::Machine { local } | Self::Ether { local, .. }) = self;
        *local.lock().unwrap_or_else(PoisonError::into_inner) = Some(dialer);
    }

    /// Dials an address that begins with `unix:`.
    pub(super) fn dial_local(
        &self,
        node: &Node,
        home: &tokio::runtime::Handle,
        address: String,
    ) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let (Self::Machine { local } | Self::Ether { local, .. }) = self;
        let local = local.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (local, self) {
            (Some(local), _) => local.dial(address),
            (None, Self::Machine { .. }) => {
                let path = address.strip_prefix(unix::SCHEME).unwrap_or(&address);
                let dialling = home.spawn(unix::dial(node.clone(), path.into()));
                async { dialling.await.unwrap_or(Err(ConnectError::ShuttingDown)) }.boxed()
            }
            (None, Self::Ether { .. }) => {
                let reason = "no dialer was given for the machine's own addresses".to_owned();
                std::future::ready(Err(ConnectError::Refused { address, reason })).boxed()
            }
        }
    }
}
