//! Configuration of an endpoint: limits and times of its connections, TLS on both sides, and its
//! socket.
//!
//! Plain functions of the options and the identity. Both sides always show a certificate and verify
//! the peer's against the cluster's authority.

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

/// The protocol of both sides. A change that an older node cannot follow gets a new number.
const ALPN: &[u8] = b"meros/1";
/// Streams that a peer may open: two lanes and its bulks. Each possible stream costs memory on
/// every idle connection.
pub(super) const STREAMS_MAX: u32 = 16;
/// Minimum of incoming connections that quinn holds before the endpoint has seen them.
const INCOMING_MIN: usize = 256;
/// Bytes that quinn keeps of one waiting connection: its first packet, repeated a few times.
const INCOMING_BYTES: u64 = 8 << 10;

/// Limits and times of connections. [`Options::default`] suits a data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// A connection is lost after this silence. Default 30 s; at least 100 ms. A shorter one finds
    /// dead nodes sooner, and takes a busy machine for a dead one.
    pub idle_timeout: Duration,
    /// The dialling side sends a keep-alive after this silence. Default 10 s, at most half of
    /// `idle_timeout`, so that a lost one is repeated several times. Each costs either side about
    /// 20 us of CPU; a master's pings replace it where they are as frequent.
    pub keep_alive: Duration,
    /// Maximum time of a dial, hello included, and of an unfinished accepted handshake. Default 10
    /// s.
    pub handshake_timeout: Duration,
    /// Maximum handshakes in progress on the accepting side; further ones wait. Default 256, at
    /// least 1; each costs about 0.4 ms of CPU.
    pub handshakes_max: usize,
    /// Maximum waiting connections on the accepting side, one for each validated address, for at
    /// most half of `handshake_timeout`. Further ones are refused and retry. Default 2,048, of a
    /// few KiB each.
    pub handshakes_waiting_max: usize,
    /// Maximum unread bytes of one connection. Default 4 MiB. Every slow reader can cost this much.
    pub receive_window: u32,
    /// Maximum unacknowledged bytes that one connection has sent. Default 1 MiB. A ping waits
    /// behind this many bytes; more helps throughput over long distances only.
    pub send_window: u32,
    /// Maximum unread bytes of one stream. Default 2 MiB; fewer cost throughput over long
    /// distances.
    pub stream_receive_window: u32,
    /// Maximum bytes of bulks that one connection reads or decodes at once. Default 64 MiB, at
    /// least 1 MiB; a longer bulk is read alone. Each bulk that waits costs up to
    /// `stream_receive_window`.
    pub bulk_room: u32,
    /// Requested size of the socket's buffers. Default 8 MiB; the system may grant less. Small ones
    /// lose packets in bursts.
    pub socket_buffer: usize,
    /// Maximum time in which a closing connection sends its queued bytes. Default 2 s.
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
    /// Replaces harmful values by the nearest harmless ones.
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

    /// Sets the keep-alive, and an idle timeout of three times as much.
    #[must_use]
    pub fn with_keep_alive(self, keep_alive: Duration) -> Self {
        Self {
            keep_alive,
            idle_timeout: keep_alive.saturating_mul(3),
            ..self
        }
    }

    /// Maximum wait of a connection for its handshake: its dialler must not have given up.
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
            // Bulks are sent one after the other. In parallel all would complete as late as the
            // last one, and wait half read in the peer's memory.
            .send_fairness(false)
            .receive_window(VarInt::from_u32(self.receive_window))
            .stream_receive_window(VarInt::from_u32(self.stream_receive_window))
            .send_window(u64::from(self.send_window));
        transport
    }
}

/// The accepting side: requires a certificate of the cluster's authority.
pub fn server(
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
    // resumption would save a sixth of a handshake, at the price of more state
    tls.send_tls13_tickets = 0;
    let crypto =
        QuicServerConfig::try_from(tls).map_err(|error| BindError::identity(error.to_string()))?;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    let waiting = options.handshakes_waiting_max;
    server
        .transport_config(Arc::new(options.transport(false)))
        // Connections beyond this are dropped without a refusal.
        .max_incoming(2 * waiting + INCOMING_MIN)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES * waiting.max(INCOMING_MIN) as u64)
        .migration(false)
        .time_source(Arc::new(NodeTime(clock.clone()))); // for the tokens that validate addresses
    Ok(server)
}

/// The dialling side: shows its certificate, and accepts only a server of the wanted role from the
/// same authority.
pub fn client(
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

/// Configuration of the endpoint as a whole. Connection ids are drawn from `seed`.
pub fn endpoint(identity: &Identity, seed: [u8; 32]) -> Result<EndpointConfig, BindError> {
    Ok(endpoint_with(reset_key(identity)?, seed))
}

/// Like [`endpoint`], with a reset key that the caller can renew.
pub(super) fn endpoint_with(reset_key: ResetKey, seed: [u8; 32]) -> EndpointConfig {
    let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
    // By default quinn sends a reset at most every 20 ms: peers of a restarted node would learn of
    // it at 50 per second, and lose messages until then. No loop can arise, because each reset is
    // shorter than the packet that it answers.
    endpoint.min_reset_interval(Duration::ZERO);
    endpoint.cid_generator(move || Box::new(ConnectionIds::new(seed)));
    endpoint
}

/// The key by which this identity signs resets.
pub(super) fn reset_key(identity: &Identity) -> Result<ResetKey, BindError> {
    let lasting = identity.lasting_secret().map_err(BindError::identity)?;
    ResetKey::new(&lasting).map_err(BindError::identity)
}

/// The cryptography for real sockets.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Validates certificates by the node's wall clock.
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

/// Opens the node's UDP socket with buffers for bursts.
pub fn socket(address: SocketAddr, buffer: usize) -> Result<std::net::UdpSocket, BindError> {
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
    // Root may exceed the system's limit; other users get at most the limit.
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
