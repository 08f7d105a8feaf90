//! The same host and crowd without nodes: quinn endpoints with the same certificates and settings, and one stream in each
//! direction on which a few words are said.
//!
//! Remembers connections and streams, so that they stay open. Never refuses a handshake: the crowd itself begins no more
//! at once than a host takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use quinn::{Connecting, Connection, RecvStream, SendStream, TokioRuntime, VarInt};
use runtime::{Clock, Role};

use super::{ANY, Failure, Linking, modest};
use crate::certificates::{Authority, server_name};
use crate::quic::{Options, config};

/// About as long as a hello.
const WORDS: [u8; 200] = [0x5a; 200];

/// An endpoint that takes connections. Dropping it ends them.
pub struct Host {
    endpoint: quinn::Endpoint,
    links: Arc<AtomicUsize>,
}

impl Host {
    /// Serves on the calling thread.
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

    /// Where it can be reached.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.endpoint.local_addr()?)
    }

    /// How many connections are open and have said their words.
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
    let mut heard = connection.accept_uni().await?;
    heard.read_exact(&mut [0; WORDS.len()]).await?;
    let mut said = connection.open_uni().await?;
    said.write_all(&WORDS).await?;
    links.fetch_add(1, Ordering::Relaxed);
    connection.closed().await;
    links.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Connections of one endpoint to one host. Dropping it ends them.
pub struct Crowd {
    endpoint: quinn::Endpoint,
    client: quinn::ClientConfig,
    host: SocketAddr,
    count: usize,
    _open: Vec<(Connection, SendStream, RecvStream)>,
}

impl Crowd {
    /// Makes the endpoint; nothing is dialled yet.
    pub fn gather(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self, Failure> {
        let identity = authority.issue(Role::Agent, "crowd")?;
        let options = Options {
            socket_buffer: Options::default().socket_buffer,
            ..modest()
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

    /// Makes all connections, as many at once as [`Options::handshakes_max`] is by default.
    pub async fn storm(&mut self) -> Result<Linking, Failure> {
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
        Ok(Linking {
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
        let mut said = connection.open_uni().await?;
        said.write_all(&WORDS).await?;
        let mut heard = connection.accept_uni().await?;
        heard.read_exact(&mut [0; WORDS.len()]).await?;
        Ok((connection, said, heard))
    }
}
