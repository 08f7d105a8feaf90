//! The host and the fleet without nodes: quinn endpoints with the same certificates and settings,
//! and one stream in each direction on which a short greeting is sent.
//!
//! Keeps connections and streams open. The host refuses no handshake: the fleet itself begins no
//! more at once than a host allows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use quinn::{Connecting, Connection, RecvStream, SendStream, TokioRuntime, VarInt};
use runtime::{Clock, Role};

use super::{ANY, Failure, ReconnectReport, small_buffers};
use transport::{Authority, server_name};
use transport::{Options, config};

/// A greeting of about the length of a hello.
const GREETING: [u8; 200] = [0x5a; 200];

/// An endpoint that accepts connections. Dropping it ends them.
pub struct Host {
    endpoint: quinn::Endpoint,
    links: Arc<AtomicUsize>,
}

impl Host {
    /// Starts on the calling thread.
    pub fn start(authority: &Authority) -> Result<Self, Failure> {
        let options = Options::default();
        let identity = authority.issue(Role::Master, "host")?;
        let server = config::server(&identity, &options, &Clock::real(), &config::provider())?;
        let socket = config::socket(ANY, options.socket_buffer)?;
        let setup = config::endpoint(&identity, [0; 32])?;
        let endpoint = quinn::Endpoint::new(setup, Some(server), socket, Arc::new(TokioRuntime))?;
        let (accepting, links) = (endpoint.clone(), Arc::new(AtomicUsize::new(0)));
        let count = links.clone();
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                let Ok(connecting) = incoming.accept() else {
                    continue;
                };
                tokio::spawn(serve(connecting, count.clone()));
            }
        });
        Ok(Self { endpoint, links })
    }

    /// The bound address.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.endpoint.local_addr()?)
    }

    /// The number of open connections that have exchanged greetings.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.load(Ordering::Relaxed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(0), b"measured");
    }
}

async fn serve(connecting: Connecting, links: Arc<AtomicUsize>) -> Result<(), Failure> {
    let connection = connecting.await?;
    let mut received = connection.accept_uni().await?;
    received.read_exact(&mut [0; GREETING.len()]).await?;
    let mut sent = connection.open_uni().await?;
    sent.write_all(&GREETING).await?;
    links.fetch_add(1, Ordering::Relaxed);
    connection.closed().await;
    links.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Connections of one endpoint to one host. Dropping it ends them.
pub struct PeerFleet {
    endpoint: quinn::Endpoint,
    client: quinn::ClientConfig,
    host: SocketAddr,
    count: usize,
    _open: Vec<(Connection, SendStream, RecvStream)>,
}

impl PeerFleet {
    /// Creates the endpoint without dialling.
    pub fn new(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self, Failure> {
        let identity = authority.issue(Role::Agent, "crowd")?;
        let options = Options {
            socket_buffer: Options::default().socket_buffer,
            ..small_buffers()
        };
        let client = config::client(&identity, &options, &Clock::real(), &config::provider())?;
        let socket = config::socket(ANY, options.socket_buffer)?;
        let setup = config::endpoint(&identity, [1; 32])?;
        let endpoint = quinn::Endpoint::new(setup, None, socket, Arc::new(TokioRuntime))?;
        Ok(Self {
            endpoint,
            client,
            host,
            count,
            _open: Vec::new(),
        })
    }

    /// Makes all connections, at most the default of [`Options::handshakes_max`] at once.
    pub async fn reconnect_all(&mut self) -> Result<ReconnectReport, Failure> {
        self._open = Vec::new();
        let clock = Clock::real();
        let begun = clock.now();
        let half = self.count.div_ceil(2);
        let (linked, took_half) = (AtomicUsize::new(0), std::cell::Cell::new(Duration::ZERO));
        let connecting = (0..self.count).map(|_| async {
            let opened = self.connect().await?;
            if linked.fetch_add(1, Ordering::Relaxed) + 1 == half {
                took_half.set(clock.now() - begun);
            }
            Ok::<_, Failure>(opened)
        });
        let opened = futures_util::stream::iter(connecting)
            .buffer_unordered(Options::default().handshakes_max)
            .try_collect::<Vec<_>>();
        self._open = opened.await?;
        Ok(ReconnectReport {
            nodes: self.count,
            took: clock.now() - begun,
            took_half: took_half.get(),
            dials: self.count as u64,
            failures: 0,
        })
    }

    async fn connect(&self) -> Result<(Connection, SendStream, RecvStream), Failure> {
        let name = server_name(Role::Master);
        let dialled = self
            .endpoint
            .connect_with(self.client.clone(), self.host, &name)?;
        let connection = dialled.await?;
        let mut sent = connection.open_uni().await?;
        sent.write_all(&GREETING).await?;
        let mut received = connection.accept_uni().await?;
        received.read_exact(&mut [0; GREETING.len()]).await?;
        Ok((connection, sent, received))
    }
}
