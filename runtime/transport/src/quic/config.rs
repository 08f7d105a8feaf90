//! What an endpoint is set up with: limits and times of its connections, TLS on both sides, and its socket.
//!
//! Hears nothing and remembers nothing: plain functions of the options and the identity.
//! Never weakens verification: both sides show a certificate, and both sides check it against the cluster's authority.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use runtime::Clock;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls_pki_types::UnixTime;
use socket2::{Domain, Protocol, Socket, Type};

use super::BindError;
use super::reset::{ConnectionIds, ResetKey};
use crate::certificates::Identity;

/// What both sides must speak. A change that an older node cannot follow gets a new number.
const ALPN: &[u8] = b"meros/1";
/// Two lanes and the bulk transfers under way, as seen by the side that receives them. Each stream a peer might open
/// costs memory on every idle connection.
pub(super) const STREAMS_MAX: u32 = 16;
/// Connections begun by others that are held at least, before anybody has looked at them.
const INCOMING_MIN: usize = 256;
/// What may come of one after its first packet while it waits: that packet again, a few times.
const INCOMING_BYTES: u64 = 8 << 10;

/// How an endpoint treats its connections. [`Options::default`] suits a data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a connection may be silent before it counts as lost. Default 30 s; at least 100 ms. Shorter finds dead
    /// nodes sooner and takes a busy machine for a dead one.
    pub idle_timeout: Duration,
    /// How long the side that dialled bears silence before it breaks it. Default 10 s, always at most half of `idle_timeout`: one that
    /// is lost is sent again several times in the other half. Each keep-alive costs either side about 20 us of CPU; where the pings of
    /// a master come as often there are none.
    pub keep_alive: Duration,
    /// How long a dial may take, hello included, and how long an accepted one may stay unfinished. Default 10 s.
    pub handshake_timeout: Duration,
    /// How many handshakes may be under way on the accepting side; more wait for their turn. Default 256, at
    /// least 1: about 0.4 ms of CPU each.
    pub handshakes_max: usize,
    /// How many may wait for their turn on the accepting side, at most half of `handshake_timeout` and one from each
    /// address, which it has proven first; more are refused and come back. Default 2,048, with a few KiB each.
    pub handshakes_waiting_max: usize,
    /// How many unread bytes one connection may hold here. Default 4 MiB. Every slow reader can cost this much.
    pub receive_window: u32,
    /// How many bytes one connection may have sent and not acknowledged. Default 1 MiB: a ping waits behind as much as
    /// this, and a higher one gains throughput only over a long distance.
    pub send_window: u32,
    /// How many unread bytes one stream may hold here. Default 2 MiB; the price of a lower one is throughput over a
    /// long distance.
    pub stream_receive_window: u32,
    /// How many bytes of bulks one connection may be reading or decoding. Default 64 MiB, at least 1 MiB; a longer bulk comes alone.
    /// Those that have to wait for it cost up to `stream_receive_window` each.
    pub bulk_room: u32,
    /// Size asked for the socket's buffers. Default 8 MiB; the system may give less. Small ones lose packets in bursts.
    pub socket_buffer: usize,
    /// How long a closing connection may take to hand over what was written before. Default 2 s.
    pub farewell_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 256,
            handshakes_waiting_max: 2048,
            receive_window: 4 << 20,
            send_window: 1 << 20,
            stream_receive_window: 2 << 20,
            bulk_room: 64 << 20,
            socket_buffer: 8 << 20,
            farewell_timeout: Duration::from_secs(2),
        }
    }
}

impl Options {
    /// Replaces values that would do harm by the nearest one that does not.
    pub(super) fn checked(mut self) -> Self {
        let idle = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
        self.idle_timeout = self.idle_timeout.clamp(*idle.start(), *idle.end());
        self.keep_alive = self
            .keep_alive
            .clamp(Duration::from_millis(10), self.idle_timeout / 2);
        self.handshakes_max = self.handshakes_max.clamp(1, 65_536);
        self.handshakes_waiting_max = self.handshakes_waiting_max.min(65_536);
        self.receive_window = self.receive_window.max(64 << 10);
        self.bulk_room = self.bulk_room.max(1 << 20);
        self.send_window = self.send_window.max(64 << 10);
        self.stream_receive_window = self
            .stream_receive_window
            .clamp(64 << 10, self.receive_window);
        self
    }

    /// A keep-alive after so much silence, and the end of a connection after three times as much.
    #[must_use]
    pub fn with_keep_alive(self, keep_alive: Duration) -> Self {
        Self {
            keep_alive,
            idle_timeout: keep_alive.saturating_mul(3),
            ..self
        }
    }

    /// How long one may wait for its turn: its dialler must still be there when it comes.
    pub(super) fn wait_max(&self) -> Duration {
        self.handshake_timeout / 2
    }

    fn transport(&self, dialling: bool) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let idle =
            VarInt::from_u32(u32::try_from(self.idle_timeout.as_millis()).unwrap_or(u32::MAX));
        transport
            .max_idle_timeout(Some(IdleTimeout::from(idle)))
            .keep_alive_interval(dialling.then_some(self.keep_alive))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX))
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            // Bulks go one after the other: all at once, each would be there as late as the last, and wait half read in the peer's memory.
            .send_fairness(false)
            .receive_window(VarInt::from_u32(self.receive_window))
            .stream_receive_window(VarInt::from_u32(self.stream_receive_window))
            .send_window(u64::from(self.send_window));
        transport
    }
}

/// The side that accepts: asks for a certificate and refuses one that is not from the cluster's authority.
pub(crate) fn server(
    identity: &Identity,
    options: &Options,
    clock: &Clock,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerConfig, BindError> {
    let roots = Arc::new(identity.roots().map_err(BindError::identity)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(identity.revocations().lists())
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| BindError::identity(error.to_string()))?;
    let mut tls = rustls::ServerConfig::builder_with_details(
        provider.clone(),
        Arc::new(NodeTime(clock.clone())),
    )
    .with_protocol_versions(&[&TLS13])
    .map_err(|error| BindError::identity(error.to_string()))?
    .with_client_cert_verifier(verifier)
    .with_single_cert(
        identity.chain().map_err(BindError::identity)?,
        identity.key().map_err(BindError::identity)?,
    )
    .map_err(|error| BindError::identity(error.to_string()))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0; // resuming would save a sixth of a handshake, and is one more state to be wrong about
    let crypto =
        QuicServerConfig::try_from(tls).map_err(|error| BindError::identity(error.to_string()))?;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    let waiting = options.handshakes_waiting_max;
    server
        .transport_config(Arc::new(options.transport(false)))
        // What comes faster than it can even be refused is dropped without a word.
        .max_incoming(2 * waiting + INCOMING_MIN)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES * waiting.max(INCOMING_MIN) as u64)
        .migration(false)
        .time_source(Arc::new(NodeTime(clock.clone()))); // of tokens that show whose an address is
    Ok(server)
}

/// The side that dials: shows its certificate, and takes only a server with the wanted role from the same authority.
pub(crate) fn client(
    identity: &Identity,
    options: &Options,
    clock: &Clock,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, BindError> {
    let roots = Arc::new(identity.roots().map_err(BindError::identity)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(identity.revocations().lists())
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| BindError::identity(error.to_string()))?;
    let mut tls = rustls::ClientConfig::builder_with_details(
        provider.clone(),
        Arc::new(NodeTime(clock.clone())),
    )
    .with_protocol_versions(&[&TLS13])
    .map_err(|error| BindError::identity(error.to_string()))?
    .with_webpki_verifier(verifier)
    .with_client_auth_cert(
        identity.chain().map_err(BindError::identity)?,
        identity.key().map_err(BindError::identity)?,
    )
    .map_err(|error| BindError::identity(error.to_string()))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    let crypto =
        QuicClientConfig::try_from(tls).map_err(|error| BindError::identity(error.to_string()))?;
    let mut client = ClientConfig::new(Arc::new(crypto));
    client.transport_config(Arc::new(options.transport(true)));
    Ok(client)
}

/// What the endpoint as a whole is set up with. `seed` is where its connection ids come from.
pub(crate) fn endpoint(identity: &Identity, seed: [u8; 32]) -> Result<EndpointConfig, BindError> {
    Ok(endpoint_with(reset_key(identity)?, seed))
}

/// The same, with a key for resets that the caller can renew.
pub(super) fn endpoint_with(reset_key: ResetKey, seed: [u8; 32]) -> EndpointConfig {
    let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
    // With quinn's 20 ms between two resets the peers of a node that has restarted learn of it fifty a second, and what they
    // say meanwhile is lost in silence. Each reset is shorter than the packet it answers, so that none makes more of another.
    endpoint.min_reset_interval(Duration::ZERO);
    endpoint.cid_generator(move || Box::new(ConnectionIds::new(seed)));
    endpoint
}

/// The key with which this identity signs resets.
pub(super) fn reset_key(identity: &Identity) -> Result<ResetKey, BindError> {
    let lasting = identity.lasting_secret().map_err(BindError::identity)?;
    ResetKey::new(&lasting).map_err(BindError::identity)
}

/// The cryptography of a machine's sockets.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Certificates are judged by the node's own wall clock.
#[derive(Debug)]
pub(crate) struct NodeTime(pub(crate) Clock);

impl TimeProvider for NodeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(
            self.0.wall().as_nanos(),
        )))
    }
}

impl quinn::TimeSource for NodeTime {
    #[allow(clippy::disallowed_types, reason = "quinn speaks of time in these")]
    fn now(&self) -> std::time::SystemTime {
        std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0.wall().as_nanos())
    }
}

/// Opens the one UDP socket of a node, with buffers that outlast a burst.
pub(crate) fn socket(address: SocketAddr, buffer: usize) -> Result<std::net::UdpSocket, BindError> {
    let failed = |source| BindError::Socket { address, source };
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
    .map_err(failed)?;
    if address.is_ipv6() {
        let _ = socket.set_only_v6(false); // a system without IPv4 mapping serves IPv6 only
    }
    // Root may exceed the system's limit; everybody else gets as much as the limit allows.
    if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
        socket.set_recv_buffer_size(buffer).map_err(failed)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &buffer).is_err() {
        socket.set_send_buffer_size(buffer).map_err(failed)?;
    }
    socket.set_nonblocking(true).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    Ok(socket.into())
}
