//! A session: the tasks that move bytes between one link and its connection.
//!
//! In each direction the first stream carries ordinary frames, the second the ping lane, and every bulk has one of
//! its own: its token, its length, its bytes. One task per lane writes, in writes as large as what has
//! gathered; one reads ordinary frames; another serves the rest and the end. Hears the link and the connection, remembers the
//! reason it ends for. Never looks into a frame: that is the link's business.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, Either, join_all, ready, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, select_biased};
use quinn::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, WriteError,
};
use runtime::codec::BODY_MAX;
use runtime::{Lane, Link, Outgoing};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::handshake::{self, Failure};
use super::room::Room;
use super::spares::SPARE_MAX;
use super::{Closing, Shared};
use crate::lanes::{BATCH_MAX, Trouble, shrink};

/// Bulks sent at once on one connection. With both lanes this stays below what the peer lets us open.
const BULKS_MAX: u32 = 8;
/// Bulks written at once. More would share quinn's window turn by turn, and all be there as late as the last, half read in the
/// peer's memory; with one alone, a large one would keep every smaller one waiting.
const WRITING_MAX: usize = 2;
/// Pieces of a stream taken at once: one is what came in one packet.
const PIECES: usize = 32;
/// Bytes of the token and the length before a bulk.
const BULK_HEADER: usize = 16;

/// Pings overtake everything, and bulks wait for everything.
const PING_PRIORITY: i32 = 2;
const ORDINARY_PRIORITY: i32 = 1;

/// One link and the connection under it.
pub(super) struct Session {
    wire: Arc<Wire>,
    incoming: RecvStream,
    outgoing: Option<SendStream>,
}

/// What the tasks of one session share.
struct Wire {
    shared: Arc<Shared>,
    link: Link,
    connection: Connection,
    address: SocketAddr,
    sending: Arc<Semaphore>,
    room: Room,
    writing: Semaphore,
    /// Why we have closed the connection, if we have.
    verdict: Mutex<Option<String>>,
}

impl Session {
    /// The session of a link whose hello came on `incoming`.
    pub(super) fn new(
        shared: Arc<Shared>,
        link: Link,
        connection: Connection,
        address: SocketAddr,
        incoming: RecvStream,
    ) -> Self {
        let room = Room::new(&shared.options, connection.clone());
        let wire = Wire {
            shared,
            link,
            connection,
            address,
            sending: Arc::new(Semaphore::new(BULKS_MAX as usize)),
            room,
            writing: Semaphore::new(WRITING_MAX),
            verdict: Mutex::default(),
        };
        Self {
            wire: Arc::new(wire),
            incoming,
            outgoing: None,
        }
    }

    /// Our hello was sent on `outgoing` already.
    pub(super) fn with(mut self, outgoing: SendStream) -> Self {
        self.outgoing = Some(outgoing);
        self
    }

    /// Answers the peer's hello with ours.
    pub(super) async fn answer(self) -> Result<Self, Failure> {
        let wire = self.wire.clone();
        let said = async {
            let mut outgoing = wire.connection.open_uni().await?;
            handshake::say_hello(&wire.shared.node, &mut outgoing).await?;
            Ok(outgoing)
        };
        match said.await {
            Ok(outgoing) => Ok(self.with(outgoing)),
            Err(failure) => {
                wire.link.close("the connection was lost during the hello");
                wire.shared.parted(wire.address, &wire.connection);
                Err(failure)
            }
        }
    }

    /// Serves the link until it or the connection has ended.
    pub(super) async fn run(self) {
        let Self {
            wire,
            incoming,
            outgoing,
        } = self;
        let Some(outgoing) = outgoing else { return };
        let reader = tokio::spawn(wire.clone().read_ordinary(incoming));
        let writers = [
            tokio::spawn(wire.clone().write_ordinary(outgoing)),
            tokio::spawn(wire.clone().write_ping()),
        ];
        // What was received before the end is still delivered, and decoded if that does not take too long.
        let rest = pin!(wire.read_rest());
        let end = pin!(wire.serve_end(writers));
        let (lost, rest) = match select(end, rest).await {
            Either::Left((lost, rest)) => (lost, Either::Left(rest)),
            Either::Right(((), end)) => (end.await, Either::Right(ready(()))),
        };
        let _ = reader.await;
        let decoded = async {
            rest.await;
            wire.link.decoded().await;
        };
        wire.farewell(1, decoded).await; // lost if late
        let reason = wire.verdict().take().unwrap_or_else(|| ended(lost, &wire));
        wire.link.close(&reason);
        wire.shared.parted(wire.address, &wire.connection);
    }
}

impl Wire {
    fn verdict(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session for what the peer did, and says so once; a lost connection ends it by itself.
    fn judge(&self, served: Result<(), Trouble>) {
        let (reason, logged) = match served {
            Ok(()) | Err(Trouble::Lost) => return,
            Err(Trouble::Unread(reason)) => (reason, true),
            Err(Trouble::Garbled(reason)) => (reason, false),
        };
        let mut verdict = self.verdict();
        if verdict.is_some() || self.connection.close_reason().is_some() {
            return;
        }
        if !logged {
            tracing::warn!(peer = %self.link.peer().node, address = %self.address, reason, "closing the connection");
        }
        self.connection
            .close(Closing::Garbled.code(), reason.as_bytes());
        *verdict = Some(reason);
    }

    /// Waits for the end: the connection's, or the link's, whose last words are then given time to reach the peer.
    async fn serve_end(&self, writers: [JoinHandle<()>; 2]) -> ConnectionError {
        let (lost, closed) = (pin!(self.connection.closed()), pin!(self.link.closed()));
        match select(lost, closed).await {
            Either::Left((lost, _)) => lost,
            Either::Right((reason, _)) => {
                let last_words = async {
                    join_all(writers).await;
                    let _ = self.sending.acquire_many(BULKS_MAX).await; // never closed
                };
                self.farewell(1, last_words).await; // cut off if late
                self.connection
                    .close(Closing::Farewell.code(), reason.as_bytes());
                self.connection.closed().await
            }
        }
    }

    /// Waits until this is done, or as many times the farewell's patience have passed; whether it is done. Boxed, so that no
    /// connection keeps room for its end.
    fn farewell<'a>(
        &'a self,
        times: u32,
        last: impl Future<Output: Send> + Send + 'a,
    ) -> BoxFuture<'a, bool> {
        let patience = self.shared.options.farewell_timeout * times;
        let clock = self.shared.node.clock();
        async move { clock.timeout(patience, last).await.is_ok() }.boxed()
    }

    /// Ends a stream, and waits until the peer has all of it.
    async fn finish(&self, mut stream: SendStream) {
        if stream.finish().is_ok() {
            self.farewell(1, stream.stopped()).await; // cut off if late
        }
    }

    async fn write_ordinary(self: Arc<Self>, mut stream: SendStream) {
        let _ = stream.set_priority(ORDINARY_PRIORITY); // fails only on a stream that has ended
        let mut buffer = BytesMut::new();
        loop {
            match self
                .link
                .outgoing(Lane::Ordinary, &mut buffer, BATCH_MAX)
                .await
            {
                Outgoing::Batch => {
                    let piece = std::mem::take(&mut buffer).freeze(); // quinn keeps it: no copy
                    if let Err(error) = stream.write_chunk(piece).await {
                        return self.judge(Err(error.into()));
                    }
                }
                Outgoing::Bulk { token, bytes } => {
                    let Ok(permit) = self.sending.clone().acquire_owned().await else {
                        return;
                    };
                    let wire = self.clone();
                    tokio::spawn(async move {
                        let sent = wire.write_bulk(token, bytes).await;
                        wire.judge(sent);
                        drop(permit);
                    });
                }
                Outgoing::Closed => return self.finish(stream).await,
            }
        }
    }

    async fn write_ping(self: Arc<Self>) {
        let Ok(mut stream) = self.connection.open_uni().await else {
            return;
        };
        let _ = stream.set_priority(PING_PRIORITY); // fails only on a stream that has ended
        let mut buffer = BytesMut::new();
        while self.link.outgoing(Lane::Ping, &mut buffer, BATCH_MAX).await == Outgoing::Batch {
            let piece = std::mem::take(&mut buffer).freeze();
            if let Err(error) = stream.write_chunk(piece).await {
                return self.judge(Err(error.into()));
            }
        }
        self.finish(stream).await;
    }

    async fn write_bulk(&self, token: u64, bytes: Bytes) -> Result<(), Trouble> {
        let writing = self.writing.acquire().await.map_err(|_| Trouble::Lost)?;
        let mut stream = self
            .connection
            .open_uni()
            .await
            .map_err(|_| Trouble::Lost)?;
        let mut header = BytesMut::with_capacity(BULK_HEADER);
        header.extend_from_slice(&token.to_be_bytes());
        header.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        let kept = bytes.clone();
        let sent = stream.write_all_chunks(&mut [header.freeze(), bytes]).await;
        drop(writing); // the next need not wait until the peer has all of this one
        if sent.is_ok() {
            self.finish(stream).await;
        }
        // The stream has let go of it. To give back so much memory takes a while, and pings wait for this thread.
        let _ = self.shared.node.blocking(move || drop(kept)).await; // it is dropped either way
        Ok(sent?)
    }

    async fn read_ordinary(self: Arc<Self>, stream: RecvStream) {
        let served = self.read_lane(stream, Lane::Ordinary).await;
        let farewell = served.is_ok();
        self.judge(served);
        if farewell {
            // The peer has said all it will say, and closes when it has our acknowledgement; should it not, we do.
            let closed = self.farewell(2, self.connection.closed()).await;
            if !closed {
                let reason = "the peer ended its stream, and was not heard again";
                self.verdict().get_or_insert_with(|| reason.to_owned());
                self.connection
                    .close(Closing::Farewell.code(), reason.as_bytes());
            }
        }
    }

    async fn read_lane(&self, mut stream: RecvStream, lane: Lane) -> Result<(), Trouble> {
        let mut buffer = BytesMut::new();
        while read_pieces(&mut stream, |piece| buffer.extend_from_slice(piece)).await? {
            let used = buffer.len();
            self.link.deliver(&mut buffer)?;
            shrink(&mut buffer, used);
            if self.link.room(lane).now_or_never().is_none() {
                self.wait_for_room(lane).await;
            }
        }
        if buffer.is_empty() {
            return Ok(());
        }
        Err(Trouble::Garbled(format!(
            "a frame was cut off: the stream ended after {} bytes of it",
            buffer.len()
        )))
    }

    /// Waits until the link takes more, and so does the peer, whose window is full before long. What has arrived when the connection
    /// ends is delivered all the same. Boxed, since it seldom happens.
    fn wait_for_room(&self, lane: Lane) -> BoxFuture<'_, ()> {
        async move {
            let (room, closed) = (pin!(self.link.room(lane)), pin!(self.connection.closed()));
            select(room, closed).await;
        }
        .boxed()
    }

    /// Takes every stream after the first: one ping lane, then bulks.
    async fn read_rest(&self) {
        let mut under_way = FuturesUnordered::new();
        let mut ping = true;
        loop {
            let mut accepting = pin!(self.connection.accept_uni().fuse());
            select_biased! {
                served = under_way.select_next_some() => self.judge(served),
                stream = accepting => match stream {
                    Ok(stream) => {
                        let serving = self.read_other(stream, std::mem::take(&mut ping));
                        under_way.push(serving);
                    }
                    Err(_) => break,
                },
            }
        }
        while let Some(served) = under_way.next().await {
            self.judge(served);
        }
    }

    async fn read_other(&self, stream: RecvStream, ping: bool) -> Result<(), Trouble> {
        if ping {
            self.read_lane(stream, Lane::Ping).await
        } else {
            self.read_bulk(stream).await
        }
    }

    async fn read_bulk(&self, mut stream: RecvStream) -> Result<(), Trouble> {
        let mut header = [0; BULK_HEADER];
        stream.read_exact(&mut header).await?;
        let (token, length) = header.split_at(8);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |number, byte| (number << 8) | u64::from(*byte))
        };
        let (token, length) = (number(token), number(length));
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= BODY_MAX)
            .ok_or_else(|| {
                Trouble::Garbled(format!(
                    "bulk {token} of {length} bytes, expected at most {BODY_MAX}"
                ))
            })?;
        // What is announced is not believed with memory: room is counted here, and all but the first is taken as bytes come.
        let _room = self.room.take(length).await.ok_or(Trouble::Lost)?;
        let (mut body, mut rested) = (self.shared.spares.take(length), 0);
        let mut is_longer = false;
        while read_pieces(&mut stream, |piece| {
            is_longer |= body.len() + piece.len() > length;
            if !is_longer {
                body.extend_from_slice(piece);
            }
        })
        .await?
        {
            if is_longer {
                return Err(Trouble::Garbled(format!(
                    "bulk {token} is longer than the {length} bytes announced"
                )));
            }
            if body.len() - rested >= BATCH_MAX {
                rested = body.len();
                tokio::task::yield_now().await; // to the lanes: fresh memory takes its time
            }
        }
        if body.len() < length {
            let reason = format!(
                "bulk {token} was cut off after {} bytes of {length}",
                body.len()
            );
            return Err(Trouble::Garbled(reason));
        }
        let body = body.freeze();
        // A very large one is given back where it is decoded, not on this thread.
        let spare = (body.len() <= SPARE_MAX).then(|| body.clone());
        self.link.deliver_bulk(token, body)?;
        // Its room is free, and its memory used again, once it is decoded.
        self.link.decoded().await;
        if let Some(spare) = spare {
            self.shared.spares.give(spare);
        }
        Ok(())
    }
}

/// Hands what has come of a stream to `keep`, and tells whether there may be more. The pieces are on the stack of each poll:
/// in the future of a lane, which hardly does anything but wait, they would be a KiB of every connection.
async fn read_pieces(
    stream: &mut RecvStream,
    mut keep: impl FnMut(&[u8]),
) -> Result<bool, ReadError> {
    poll_fn(|cx| {
        let mut pieces: [Bytes; PIECES] = Default::default();
        let read = pin!(stream.read_chunks(&mut pieces)).poll(cx);
        read.map_ok(|count| {
            for piece in &pieces[..count.unwrap_or(0)] {
                keep(piece);
            }
            count.is_some()
        })
    })
    .await
}

/// The end of a connection in words for those who watched the peer.
fn ended(lost: ConnectionError, wire: &Wire) -> String {
    match lost {
        ConnectionError::ApplicationClosed(close) => {
            format!(
                "closed by the peer: {}",
                String::from_utf8_lossy(&close.reason)
            )
        }
        ConnectionError::TimedOut => {
            format!("no sign of life for {:?}", wire.shared.options.idle_timeout)
        }
        ConnectionError::Reset => "the peer has restarted".to_owned(),
        ConnectionError::LocallyClosed
            if wire.shared.is_refused(wire.address, &wire.connection) =>
        {
            runtime::PROCESS_ENDED.to_owned()
        }
        ConnectionError::LocallyClosed => "the connection was closed here".to_owned(),
        lost => lost.to_string(),
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => {
                Self::Garbled(format!("the peer stopped a stream with code {code}"))
            }
            _ => Self::Lost,
        }
    }
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => {
                Self::Garbled(format!("the peer reset a stream with code {code}"))
            }
            _ => Self::Lost,
        }
    }
}

impl From<ReadExactError> for Trouble {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::FinishedEarly(bytes) => Self::Garbled(format!(
                "a bulk's header was cut off after {bytes} bytes of {BULK_HEADER}"
            )),
            ReadExactError::ReadError(error) => error.into(),
        }
    }
}
