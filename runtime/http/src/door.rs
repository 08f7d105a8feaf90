//! The door of a service's pages: takes connections, so many at once, over TLS where that is chosen, and lets nobody keep one without doing
//! something with it.
//!
//! A connection that comes beyond the bound takes the place of one of an address beyond its share, busy or not, or of one that is idle; if there is
//! none it may ask for `/health`, and gets 503 to all else. One whose handshake or request does not come to an end, or whose reader takes too little of its answer, is
//! ended after a [`Patience`]; each is counted ([`Figures`]). One that is silent is let be: whether there is still somebody is for TCP to find
//! out. Where it comes from and the name in a client's certificate go along with each of its requests; when other authorities of clients are
//! trusted one with a certificate ends after its answer. What is asked and answered is not known here, and nothing here blocks the thread.

mod room;
mod source;
mod watch;
mod watched;

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
use tokio::sync::watch as told;
use transport::tls::{Private, Tls};

use room::{Open, Room};
pub use source::Source;
use watch::Late;
pub use watch::Patience;
use watched::{Answer, Watched};

use crate::api::Refusal;
use crate::metrics::{Counters, CountersSource};
use crate::realm::{Verified, is_health};
use crate::{methods, path};

/// No more than this is handed to the kernel before it can be sent. So it is soon seen what a reader takes, and little memory is held for those
/// who take nothing; more would save a few wake-ups.
const UNSENT_MAX: u32 = 512 << 10;
/// The longest head of a request, and the most that is read before somebody wants it: a connection over which something large has come keeps a buffer of so much.
const READ_MAX: usize = 16 << 10;
/// A peer that has said nothing for so long is asked whether it is there,
const ALIVE_ASKED_AFTER: Duration = Duration::from_secs(30);
/// and so often until it answers, or is given up.
const ALIVE_ASKED_EACH: Duration = Duration::from_secs(15);
/// How long to wait when no connection can be taken, since the process has no more files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The most bytes that are dropped of a request that was answered before it was whole.
const LINGER_MAX: usize = 64 << 20;
/// How long that may take,
const LINGER_PATIENCE: Duration = Duration::from_secs(30);
/// and how long nothing may come meanwhile.
const LINGER_QUIET: Duration = Duration::from_secs(5);
/// The answer where there is no room.
const FULL: &str = "the limit of connections is reached (--http_connections_max): try again later";
/// What is said to who speaks plainly where that is not answered.
const PRIVATE: (&str, &str) = (
    "400 Bad Request",
    "this port speaks HTTPS: ask for https://...",
);
/// The first byte of a TLS handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Over which connection a request comes: the same for all that come over one. It is among the extensions of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(u64);

impl Connection {
    /// The connection of this number.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// What has become of connections, counted. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Counted>);

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

impl Figures {
    /// The figures under their names.
    pub fn counters(&self) -> Counters {
        let counted = &self.0;
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let figures = [
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
        let named = figures.map(|(name, value)| (format!("http/connections_{name}"), value));
        named.into()
    }

    /// A source that tells these too.
    pub fn beside(&self, own: CountersSource) -> CountersSource {
        let figures = self.clone();
        own.and(CountersSource::at_hand(move || figures.counters()))
    }

    /// The answer to a request for which there is no room.
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

/// What every connection is served with.
#[derive(Clone)]
pub(crate) struct Door {
    pub node: Node,
    pub routes: Router,
    pub connections_max: usize,
    pub patience: Patience,
    /// TLS, if pages are served over that.
    pub tls: Option<Tls>,
    /// Whether who speaks plainly is answered beside it.
    pub plain: bool,
    pub figures: Figures,
}

/// How a connection begins.
enum Begun {
    Plainly(TcpStream),
    /// With who it is, and when that may count no more.
    Privately(Box<Private>, Option<Verified>, BoxFuture<'static, ()>),
}

impl Door {
    /// Takes connections until `until` completes; those that are open then end with what they are doing.
    pub async fn open(
        self,
        listener: TcpListener,
        until: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (leave, leaving) = told::channel(());
        let (all, each) = told::channel(());
        let mut until = pin!(until.fuse());
        let clock = self.node.clock();
        let room = Room::new(self.connections_max, self.patience, clock, &self.figures);
        loop {
            let accepted = select_biased! {
                () = until => break,
                accepted = listener.accept().fuse() => accepted,
            };
            match accepted {
                Ok((connection, from)) => {
                    let source = from.ip().into();
                    let open = room.enter(source);
                    let open = open.unwrap_or_else(|| room.enter_for_check(source));
                    bound(&connection, self.patience);
                    let (door, mut leaving, each) = (self.clone(), leaving.clone(), each.clone());
                    tokio::spawn(async move {
                        let leaving = async move {
                            let _ = leaving.changed().await; // It never says more than that it is gone.
                        };
                        door.welcome(connection, &open, leaving).await;
                        drop((open, each));
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection for pages can be taken");
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

    /// Serves one connection to its end, after a handshake where there is one.
    async fn welcome(self, connection: TcpStream, open: &Open, leaving: impl Future<Output = ()>) {
        let Some(tls) = self.tls.clone() else {
            return self.serve(connection, None, open, leaving).await;
        };
        let watching = &open.watching;
        let clock = self.node.clock().clone();
        let begin = async {
            let is_private = begins_privately(&connection).await;
            watching.begins();
            let shake_hands = async {
                if !is_private? {
                    return Ok(Begun::Plainly(connection));
                }
                // From before the handshake on, so that no change is missed.
                let trusts_others = tls.trusts_others().boxed();
                let (connection, principal) = tls.accept(connection).await?;
                watching.rests();
                let verified = principal.map(Verified::from);
                let counts_no_more = match verified.is_some() {
                    true => trusts_others,
                    false => pending().boxed(),
                };
                let connection = Box::new(connection);
                io::Result::Ok(Begun::Privately(connection, verified, counts_no_more))
            };
            clock.timeout(self.patience.head, shake_hands).await
        };
        let mut leaving = pin!(leaving.fuse());
        let begun = select_biased! {
            begun = begin.fuse() => begun,
            () = watching.told_to_end().fuse() => return self.count_idle(),
            () = watching.evicted().fuse() => return self.count_evicted(),
            () = leaving => return,
        };
        match begun {
            Ok(Ok(Begun::Privately(connection, verified, counts_no_more))) => {
                let leaving = select(counts_no_more, leaving).map(drop);
                self.serve(connection, verified, open, leaving).await;
            }
            Ok(Ok(Begun::Plainly(connection))) if self.plain => {
                self.serve(connection, None, open, leaving).await;
            }
            Ok(Ok(Begun::Plainly(connection))) => {
                self.figures.0.plain_refused.fetch_add(1, Ordering::Relaxed);
                refuse_plain(&connection);
            }
            Ok(Err(error)) => {
                let failed = &self.figures.0.handshakes_failed;
                failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "a handshake for pages has failed");
            }
            Err(_) => self.figures.late(Late::Head),
        }
    }

    /// Serves what is said over one connection to its end.
    async fn serve<C>(
        self,
        connection: C,
        verified: Option<Verified>,
        open: &Open,
        leaving: impl Future<Output = ()>,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Open {
            watching,
            source,
            number,
            is_check,
            ..
        } = open;
        let is_check = *is_check;
        let (pages, source) = (TowerToHyperService::new(self.routes.clone()), *source);
        let number = Connection::numbered(*number);
        let (of_answers, figures) = (watching.clone(), self.figures.clone());
        // Whether the newest request has a body, which may not have been read to its end when the connection ends.
        let had_body = Arc::new(AtomicBool::new(false));
        let has_body = had_body.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let watching = of_answers.clone();
            let answering = watching.asked();
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
                true => Either::Left(ready(Ok(figures.refuse()))),
                false => Either::Right(pages.call(request)),
            };
            async move {
                // It begins when what was asked before this is taken.
                watching.taken().await;
                let response = methods::explain(&method, answered.await?);
                watching.made(response.body());
                Ok::<_, Infallible>(response.map(|body| Answer::new(body, answering)))
            }
        });
        let connection = TokioIo::new(Watched::new(connection, watching.clone()));
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_MAX).keep_alive(!is_check);
        let mut connection = http.serve_connection(connection, service);
        let (mut lateness, mut leaving) = (pin!(watching.late().fuse()), pin!(leaving.fuse()));
        let mut told_to_end = pin!(watching.told_to_end().fuse());
        let mut evicted = pin!(watching.evicted().fuse());
        let mut may_linger = true;
        let is_unread = loop {
            // The connection first: what has come is read before it is ended for being idle.
            select_biased! {
                served = (&mut connection).fuse() => {
                    if let Err(error) = &served {
                        tracing::debug!(%error, "a connection for pages has ended");
                    }
                    break served.is_err() || had_body.load(Ordering::Relaxed);
                }
                late = lateness => {
                    self.figures.late(late);
                    tracing::debug!(?late, "a connection for pages is ended");
                    return;
                }
                () = evicted => return self.count_evicted(),
                () = told_to_end => {
                    self.count_idle();
                    // Nothing is under way, so this is sent at once, or never.
                    Pin::new(&mut connection).graceful_shutdown();
                    let patience = pin!(self.node.clock().sleep(self.patience.head));
                    if let Either::Left((Err(error), _)) = select(connection, patience).await {
                        tracing::debug!(%error, "a connection for pages has ended");
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

    /// One that was busy makes room, since its address has more than its share.
    fn count_evicted(&self) {
        self.figures.0.evicted.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("a busy connection of an address beyond its share makes room for another");
    }

    /// One that was idle makes room.
    fn count_idle(&self) {
        self.figures.0.idle.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("an idle connection for pages makes room for another");
    }
}

/// Reads and drops what still comes of a request that was answered before it was whole, until its sender is done with it: with unread bytes the kernel
/// would reset the connection, and the answer would be lost with it.
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
    let _ = clock.timeout(LINGER_PATIENCE, drain).await; // A sender that goes on is cut off then.
}

/// Sends this status and reason, if that can be sent at once.
fn refuse(connection: &TcpStream, (status, why): (&str, &str)) {
    let length = why.len();
    let text =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{why}");
    let _ = SockRef::from(connection).send(text.as_bytes()); // Whoever does not hear it sees that the connection ends.
}

/// Whether the first that is said is the begin of a handshake. What was said is still there to be read.
async fn begins_privately(connection: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match connection.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0] == HANDSHAKE),
    }
}

/// Says that this is not answered plainly, if that can be said at once. What has come is read, or the answer would be lost with it.
fn refuse_plain(connection: &TcpStream) {
    let mut asked = [0; 16 << 10];
    let _ = connection.try_read(&mut asked);
    refuse(connection, PRIVATE);
}

/// Sees to it that a reader that takes nothing is noticed, and a peer that is no longer there, however long it may be silent.
fn bound(connection: &TcpStream, patience: Patience) {
    let socket = SockRef::from(connection);
    let alive = TcpKeepalive::new()
        .with_time(ALIVE_ASKED_AFTER)
        .with_interval(ALIVE_ASKED_EACH);
    // Later than the watch, which counts what it ends. A peer that does not say that it is there is given up then, too.
    let given_up = patience.stalled + patience.head;
    let bounded = socket
        .set_tcp_user_timeout(Some(given_up))
        .and_then(|()| socket.set_tcp_keepalive(&alive))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT_MAX));
    if let Err(error) = bounded {
        tracing::debug!(%error, "a connection may stall for longer than it should");
    }
}

/// Whether only the connection that was to be taken is meant: accept(2) tells what became of it in the network, too.
fn is_of_one_connection(error: &io::Error) -> bool {
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
