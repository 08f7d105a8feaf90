//! Accepts connections, over TLS if configured, and bounds their number and their timeouts.
//!
//! Beyond the bound a new connection evicts an idle one, or any one of an address above its share.
//! If there is none, it is answered `/health`, and 503 for all else. A connection whose handshake,
//! request or reader is too slow is closed after its [`ConnectionTimeouts`] and counted in
//! [`ConnectionMetrics`]. A silent connection stays open: TCP keepalive detects dead peers. Each
//! request carries the source address and the name in the client's certificate. When the trusted
//! client authorities change, a connection with a certificate closes after its current answer. A
//! head that is no HTTP or is too long is answered by hyper itself, with an empty body (400, 414,
//! 431). Does not interpret requests, and never blocks the thread.

mod source;
mod table;
mod watch;
mod watched_stream;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use futures_util::future::{BoxFuture, Either, ready, select};
use futures_util::{FutureExt, select_biased};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use nix::errno::Errno;
use runtime::{Clock, Node};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as tokio_watch;
use transport::tls::{Tls, TlsConnection};

pub use source::Source;
use table::{ConnectionTable, OpenConnection};
pub use watch::ConnectionTimeouts;
use watch::Late;
use watched_stream::{Answer, WatchedStream};

use crate::api::Refusal;
use crate::realm::{VerifiedPeer, is_health};
use crate::request::{methods, path};
use crate::system::metrics::{Counters, CountersSource};

/// Maximum unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`). A low value shows early how much a
/// reader takes and bounds the memory of stalled readers; a higher one saves only a few wake-ups.
const UNSENT_MAX: u32 = 512 << 10;
/// Maximum bytes of a request's head, and of a connection's read buffer, which keeps that size
/// after a large request.
const READ_MAX: usize = 16 << 10;
/// TCP keepalive: idle time before the first probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// TCP keepalive: time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Pause after a failed accept, as when the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Maximum bytes that are drained of a request that was answered early.
const LINGER_MAX: usize = 64 << 20;
/// Maximum time for draining.
const LINGER_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum silence while draining.
const LINGER_QUIET: Duration = Duration::from_secs(5);
/// The refusal when no connection is free.
const FULL: &str = "connection limit reached (--http_connections_max); retry later";
/// The answer to plain HTTP on a port that serves only TLS.
const TLS_ONLY: (&str, &str) = (
    "400 Bad Request",
    "this port serves HTTPS only; use https://",
);
/// The first byte of a TLS handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Number of the connection of a request. It is an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionNumber(u64);

impl ConnectionNumber {
    /// The connection of this number.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// Counters of connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    open: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    plain_refused: AtomicU64,
    handshakes_failed: AtomicU64,
    late_heads: AtomicU64,
    idle: AtomicU64,
    evicted: AtomicU64,
    stalled: AtomicU64,
}

impl ConnectionMetrics {
    /// The counters by their metric names.
    pub fn counters(&self) -> Counters {
        let counted = &self.0;
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let metrics = [
            ("open", counted.open.load(Ordering::Relaxed) as f64),
            ("accepted", of(&counted.accepted)),
            ("refused", of(&counted.refused)),
            ("plain_refused", of(&counted.plain_refused)),
            ("handshakes_failed", of(&counted.handshakes_failed)),
            ("late_heads", of(&counted.late_heads)),
            ("closed_idle", of(&counted.idle)),
            ("evicted", of(&counted.evicted)),
            ("stalled", of(&counted.stalled)),
        ];
        let named = metrics.map(|(name, value)| (format!("http/connections_{name}"), value));
        named.into()
    }

    /// Adds these counters to `own`.
    pub fn merged_with(&self, own: CountersSource) -> CountersSource {
        let metrics = self.clone();
        own.and(CountersSource::immediate(move || metrics.counters()))
    }

    /// The answer to a request when no connection is free.
    fn refuse(&self) -> Response {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        Refusal::not_now(FULL).into_response()
    }

    fn late(&self, late: Late) {
        let number = match late {
            Late::Head => &self.0.late_heads,
            Late::Stalled => &self.0.stalled,
        };
        number.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that a connection is served with.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub node: Node,
    pub routes: Router,
    pub connections_max: usize,
    pub timeouts: ConnectionTimeouts,
    /// TLS, if enabled.
    pub tls: Option<Tls>,
    /// Whether plain HTTP is also served.
    pub plain: bool,
    pub metrics: ConnectionMetrics,
}

/// How a connection begins.
enum Handshake {
    Plain(TcpStream),
    /// With the verified peer, and a future that completes when its certificate may no longer
    /// count.
    Tls(
        Box<TlsConnection>,
        Option<VerifiedPeer>,
        BoxFuture<'static, ()>,
    ),
}

impl Acceptor {
    /// Accepts connections until `until` completes; open ones then finish their current request.
    pub async fn run(
        self,
        listener: TcpListener,
        until: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (leave, leaving) = tokio_watch::channel(());
        let (all, each) = tokio_watch::channel(());
        let mut until = pin!(until.fuse());
        let clock = self.node.clock();
        let table = ConnectionTable::new(self.connections_max, self.timeouts, clock, &self.metrics);
        loop {
            let accepted = select_biased! {
                () = until => break,
                accepted = listener.accept().fuse() => accepted,
            };
            match accepted {
                Ok((connection, from)) => {
                    let source = from.ip().into();
                    let open = table.enter(source);
                    let open = open.unwrap_or_else(|| table.enter_for_check(source));
                    set_socket_options(&connection, self.timeouts);
                    let (acceptor, mut leaving, each) =
                        (self.clone(), leaving.clone(), each.clone());
                    tokio::spawn(async move {
                        let leaving = async move {
                            let _ = leaving.changed().await; // Completes when the sender is dropped.
                        };
                        acceptor.handle(connection, &open, leaving).await;
                        drop((open, each));
                    });
                }
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept HTTP connections");
                    select_biased! {
                        () = until => break,
                        () = self.node.clock().sleep(ACCEPT_PAUSE).fuse() => {}
                    }
                }
            }
        }
        drop((listener, leave, each));
        all.closed().await;
        Ok(())
    }

    /// Serves one connection to its end, after the TLS handshake if any.
    async fn handle(
        self,
        connection: TcpStream,
        open: &OpenConnection,
        leaving: impl Future<Output = ()>,
    ) {
        let Some(tls) = self.tls.clone() else {
            return self.serve(connection, None, open, leaving).await;
        };
        let watch = &open.watch;
        let clock = self.node.clock().clone();
        let begin = async {
            let is_tls = begins_tls(&connection).await;
            watch.begins();
            let shake = async {
                if !is_tls? {
                    return Ok(Handshake::Plain(connection));
                }
                // Watched from before the handshake, so that no change is missed.
                let client_trust_changed = tls.client_trust_changed().boxed();
                let (connection, principal) = tls.accept(connection).await?;
                watch.rests();
                let verified = principal.map(VerifiedPeer::from);
                let trust_changed = match verified.is_some() {
                    true => client_trust_changed,
                    false => pending().boxed(),
                };
                let connection = Box::new(connection);
                io::Result::Ok(Handshake::Tls(connection, verified, trust_changed))
            };
            clock.timeout(self.timeouts.head, shake).await
        };
        let mut leaving = pin!(leaving.fuse());
        let handshake = select_biased! {
            handshake = begin.fuse() => handshake,
            () = watch.closing().fuse() => return self.count_idle(),
            () = watch.evicted().fuse() => return self.count_evicted(),
            () = leaving => return,
        };
        match handshake {
            Ok(Ok(Handshake::Tls(connection, verified, trust_changed))) => {
                let leaving = select(trust_changed, leaving).map(drop);
                self.serve(connection, verified, open, leaving).await;
            }
            Ok(Ok(Handshake::Plain(connection))) if self.plain => {
                self.serve(connection, None, open, leaving).await;
            }
            Ok(Ok(Handshake::Plain(connection))) => {
                self.metrics.0.plain_refused.fetch_add(1, Ordering::Relaxed);
                refuse_plain(&connection);
            }
            Ok(Err(error)) => {
                let failed = &self.metrics.0.handshakes_failed;
                failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "TLS handshake failed");
            }
            Err(_) => self.metrics.late(Late::Head),
        }
    }

    /// Serves HTTP on one connection to its end.
    async fn serve<C>(
        self,
        connection: C,
        verified: Option<VerifiedPeer>,
        open: &OpenConnection,
        leaving: impl Future<Output = ()>,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let OpenConnection {
            watch,
            source,
            number,
            is_check,
            ..
        } = open;
        let is_check = *is_check;
        let (pages, source) = (TowerToHyperService::new(self.routes.clone()), *source);
        let number = ConnectionNumber::numbered(*number);
        let (of_answers, metrics) = (watch.clone(), self.metrics.clone());
        // Whether the newest request has a body, which may be partly unread when the connection
        // ends.
        let had_body = Arc::new(AtomicBool::new(false));
        let has_body = had_body.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let watch = of_answers.clone();
            let answering = watch.asked();
            has_body.store(!request.body().is_end_stream(), Ordering::Relaxed);
            request.extensions_mut().insert(source);
            request.extensions_mut().insert(number);
            if let Some(verified) = &verified {
                request.extensions_mut().insert(verified.clone());
            }
            let method = request.method().clone();
            path::normalize(&mut request);
            let is_refused = is_check && !is_health(request.uri().path());
            let answered = match is_refused {
                true => Either::Left(ready(Ok(metrics.refuse()))),
                false => Either::Right(pages.call(request)),
            };
            async move {
                // Pipelined: starts when the previous answer has been taken.
                watch.taken().await;
                let response = methods::explain(&method, answered.await?);
                watch.made(response.body());
                Ok::<_, Infallible>(response.map(|body| Answer::new(body, answering)))
            }
        });
        let connection = TokioIo::new(WatchedStream::new(connection, watch.clone()));
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_MAX).keep_alive(!is_check);
        let mut connection = http.serve_connection(connection, service);
        let (mut lateness, mut leaving) = (pin!(watch.late().fuse()), pin!(leaving.fuse()));
        let mut closing = pin!(watch.closing().fuse());
        let mut evicted = pin!(watch.evicted().fuse());
        let mut may_linger = true;
        let is_unread = loop {
            // The connection first: received bytes are read before an idle connection is closed.
            select_biased! {
                served = (&mut connection).fuse() => {
                    if let Err(error) = &served {
                        tracing::debug!(%error, "HTTP connection ended with an error");
                    }
                    break served.is_err() || had_body.load(Ordering::Relaxed);
                }
                late = lateness => {
                    self.metrics.late(late);
                    tracing::debug!(?late, "closing slow HTTP connection");
                    return;
                }
                () = evicted => return self.count_evicted(),
                () = closing => {
                    self.count_idle();
                    // Nothing is in progress, so this is sent at once or never.
                    Pin::new(&mut connection).graceful_shutdown();
                    let timeouts = pin!(self.node.clock().sleep(self.timeouts.head));
                    if let Either::Left((Err(error), _)) = select(connection, timeouts).await {
                        tracing::debug!(%error, "HTTP connection ended with an error");
                    }
                    return;
                }
                () = leaving => {
                    may_linger = false;
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        if is_unread && may_linger {
            let rest = linger(connection.into_parts().io.into_inner(), self.node.clock());
            select_biased! {
                () = rest.fuse() => {}
                () = evicted => self.count_evicted(),
                () = leaving => {}
            }
        }
    }

    /// Counts a busy connection that was evicted.
    fn count_evicted(&self) {
        self.metrics.0.evicted.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("evicting a busy HTTP connection of an address above its share");
    }

    /// Counts an idle connection that was closed to make room.
    fn count_idle(&self) {
        self.metrics.0.idle.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("evicting an idle HTTP connection");
    }
}

/// Drains the rest of a request that was answered early: with unread bytes the kernel would reset
/// the connection, and the answer would be lost.
async fn linger(mut connection: impl AsyncRead + AsyncWrite + Unpin, clock: &Clock) {
    let drain = async {
        connection.shutdown().await?;
        let (mut piece, mut left) = (vec![0; READ_MAX], LINGER_MAX);
        while left > 0 {
            let read = clock.timeout(LINGER_QUIET, connection.read(&mut piece));
            match read.await {
                Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
                _ => break,
            }
        }
        io::Result::Ok(())
    };
    let _ = clock.timeout(LINGER_PATIENCE, drain).await; // A sender that continues is cut off then.
}

/// Sends this status and reason, if possible without waiting.
fn refuse(connection: &TcpStream, (status, why): (&str, &str)) {
    let length = why.len();
    let text =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{why}");
    let _ = SockRef::from(connection).send(text.as_bytes()); // Best effort: the connection is closed next.
}

/// Whether the connection begins with a TLS handshake. Peeks, so the bytes stay readable.
async fn begins_tls(connection: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match connection.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0] == HANDSHAKE),
    }
}

/// Refuses plain HTTP, without waiting. Reads the received bytes first, or a reset would lose the
/// answer.
fn refuse_plain(connection: &TcpStream) {
    let mut request = [0; 16 << 10];
    let _ = connection.try_read(&mut request);
    refuse(connection, TLS_ONLY);
}

/// Sets the socket options that detect stalled readers and dead peers.
fn set_socket_options(connection: &TcpStream, timeouts: ConnectionTimeouts) {
    let socket = SockRef::from(connection);
    let alive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    // Later than the watch, which counts the connections that it closes. It also applies to
    // keepalive probes.
    let given_up = timeouts.stalled + timeouts.head;
    let bounded = socket
        .set_tcp_user_timeout(Some(given_up))
        .and_then(|()| socket.set_tcp_keepalive(&alive))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT_MAX));
    if let Err(error) = bounded {
        tracing::debug!(%error, "cannot set the socket options of an HTTP connection");
    }
}

/// Whether an accept error concerns only the one connection: accept(2) also reports its network
/// errors.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
    ) || matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EPROTO | Errno::ENOPROTOOPT | Errno::EHOSTDOWN | Errno::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests;
