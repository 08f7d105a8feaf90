//! A session: the tasks that move bytes between one link and its connection.
//!
//! In each direction the first stream carries ordinary frames and the second one the ping lane.
//! Every bulk has its own stream with its token, its length and its bytes. One task per lane
//! writes, as many bytes at once as are queued; one task reads ordinary frames; one serves the
//! other streams and the end. Frames are opaque: the link decodes them.

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
use runtime::wire::codec::BODY_MAX;
use runtime::{Lane, Link, Outgoing};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::buffer_pool::BUFFER_MAX;
use super::bulk_permits::BulkPermits;
use super::handshake::{self, Failure};
use super::{Closing, Shared};
use crate::lanes::{BATCH_MAX, StreamError, shrink};

/// Maximum bulks sent at once on one connection. With both lanes it stays below the peer's limit of
/// streams.
const BULKS_MAX: u32 = 8;
/// Maximum bulks written at once. More would share quinn's window, all complete as late as the last
/// one, and wait half read in the peer's memory. With one, a large bulk would delay every smaller
/// one.
const WRITING_MAX: usize = 2;
/// Chunks of a stream read at once; one chunk is the content of one packet.
const PIECES: usize = 32;
/// Bytes of the token and the length before a bulk.
const BULK_HEADER: usize = 16;

/// Pings go first, bulks last.
const PING_PRIORITY: i32 = 2;
const ORDINARY_PRIORITY: i32 = 1;

/// One link and its connection.
pub(super) struct Session {
    state: Arc<SessionState>,
    incoming: RecvStream,
    outgoing: Option<SendStream>,
}

/// State shared by the tasks of one session.
struct SessionState {
    shared: Arc<Shared>,
    link: Link,
    connection: Connection,
    address: SocketAddr,
    sending: Arc<Semaphore>,
    bulk_permits: BulkPermits,
    writing: Semaphore,
    /// The reason for which this side closed the connection.
    verdict: Mutex<Option<String>>,
}

impl Session {
    /// The session of a link whose hello was received on `incoming`.
    pub(super) fn new(
        shared: Arc<Shared>,
        link: Link,
        connection: Connection,
        address: SocketAddr,
        incoming: RecvStream,
    ) -> Self {
        let bulk_permits = BulkPermits::new(&shared.options, connection.clone());
        let state = SessionState {
            shared,
            link,
            connection,
            address,
            sending: Arc::new(Semaphore::new(BULKS_MAX as usize)),
            bulk_permits,
            writing: Semaphore::new(WRITING_MAX),
            verdict: Mutex::default(),
        };
        Self {
            state: Arc::new(state),
            incoming,
            outgoing: None,
        }
    }

    /// Sets the stream on which the own hello was sent.
    pub(super) fn with(mut self, outgoing: SendStream) -> Self {
        self.outgoing = Some(outgoing);
        self
    }

    /// Sends the own hello in reply to the peer's.
    pub(super) async fn answer(self) -> Result<Self, Failure> {
        let state = self.state.clone();
        let sent = async {
            let mut outgoing = state.connection.open_uni().await?;
            handshake::send_hello(&state.shared.node, &mut outgoing).await?;
            Ok(outgoing)
        };
        match sent.await {
            Ok(outgoing) => Ok(self.with(outgoing)),
            Err(failure) => {
                state.link.close("the connection was lost during the hello");
                state.shared.remove_link(state.address, &state.connection);
                Err(failure)
            }
        }
    }

    /// Serves the link until it or the connection ends.
    pub(super) async fn run(self) {
        let Self {
            state,
            incoming,
            outgoing,
        } = self;
        let Some(outgoing) = outgoing else { return };
        let reader = tokio::spawn(state.clone().read_ordinary(incoming));
        let writers = [
            tokio::spawn(state.clone().write_ordinary(outgoing)),
            tokio::spawn(state.clone().write_ping()),
        ];
        // Data received before the end is still delivered, and decoded within the farewell timeout.
        let rest = pin!(state.read_rest());
        let end = pin!(state.serve_end(writers));
        let (lost, rest) = match select(end, rest).await {
            Either::Left((lost, rest)) => (lost, Either::Left(rest)),
            Either::Right(((), end)) => (end.await, Either::Right(ready(()))),
        };
        let _ = reader.await;
        let decoded = async {
            rest.await;
            state.link.decoded().await;
        };
        state.farewell(1, decoded).await; // lost if late
        let reason = state
            .verdict()
            .take()
            .unwrap_or_else(|| ended(lost, &state));
        state.link.close(&reason);
        state.shared.remove_link(state.address, &state.connection);
    }
}

impl SessionState {
    fn verdict(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the session after a violation by the peer, and logs it once; a lost connection ends
    /// by itself.
    fn fail_on_error(&self, served: Result<(), StreamError>) {
        let (reason, logged) = match served {
            Ok(()) | Err(StreamError::Lost) => return,
            Err(StreamError::Unread(reason)) => (reason, true),
            Err(StreamError::Garbled(reason)) => (reason, false),
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

    /// Waits for the end of the connection or of the link. After the latter, queued bytes are still
    /// sent.
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

    /// Waits for `last`, at most `times` the farewell timeout; returns whether it completed. Boxed,
    /// so that the futures of connections stay small.
    fn farewell<'a>(
        &'a self,
        times: u32,
        last: impl Future<Output: Send> + Send + 'a,
    ) -> BoxFuture<'a, bool> {
        let patience = self.shared.options.farewell_timeout * times;
        let clock = self.shared.node.clock();
        async move { clock.timeout(patience, last).await.is_ok() }.boxed()
    }

    /// Ends a stream, and waits until the peer has received all of it.
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
                    // quinn keeps it without a copy
                    let piece = std::mem::take(&mut buffer).freeze();
                    if let Err(error) = stream.write_chunk(piece).await {
                        return self.fail_on_error(Err(error.into()));
                    }
                }
                Outgoing::Bulk { token, bytes } => {
                    let Ok(permit) = self.sending.clone().acquire_owned().await else {
                        return;
                    };
                    let state = self.clone();
                    tokio::spawn(async move {
                        let sent = state.write_bulk(token, bytes).await;
                        state.fail_on_error(sent);
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
                return self.fail_on_error(Err(error.into()));
            }
        }
        self.finish(stream).await;
    }

    async fn write_bulk(&self, token: u64, bytes: Bytes) -> Result<(), StreamError> {
        let writing = self
            .writing
            .acquire()
            .await
            .map_err(|_| StreamError::Lost)?;
        let mut stream = self
            .connection
            .open_uni()
            .await
            .map_err(|_| StreamError::Lost)?;
        let mut header = BytesMut::with_capacity(BULK_HEADER);
        header.extend_from_slice(&token.to_be_bytes());
        header.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        let kept = bytes.clone();
        let sent = stream.write_all_chunks(&mut [header.freeze(), bytes]).await;
        drop(writing); // the next bulk need not wait for this one's acknowledgement
        if sent.is_ok() {
            self.finish(stream).await;
        }
        // Quinn has released the bytes. Freeing a large buffer takes long, and pings need this
        // thread.
        let _ = self.shared.node.blocking(move || drop(kept)).await; // it is dropped either way
        Ok(sent?)
    }

    async fn read_ordinary(self: Arc<Self>, stream: RecvStream) {
        let served = self.read_lane(stream, Lane::Ordinary).await;
        let farewell = served.is_ok();
        self.fail_on_error(served);
        if farewell {
            // The peer sends nothing more, and closes after our acknowledgement; otherwise this
            // side closes.
            let closed = self.farewell(2, self.connection.closed()).await;
            if !closed {
                let reason = "the peer ended its stream, and was not heard again";
                self.verdict().get_or_insert_with(|| reason.to_owned());
                self.connection
                    .close(Closing::Farewell.code(), reason.as_bytes());
            }
        }
    }

    async fn read_lane(&self, mut stream: RecvStream, lane: Lane) -> Result<(), StreamError> {
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
        Err(StreamError::Garbled(format!(
            "a frame was cut off: the stream ended after {} bytes of it",
            buffer.len()
        )))
    }

    /// Waits until the link accepts more; the peer waits too, once its window is full. If the
    /// connection ends meanwhile, received data is still delivered. Boxed, since it is rare.
    fn wait_for_room(&self, lane: Lane) -> BoxFuture<'_, ()> {
        async move {
            let (room, closed) = (pin!(self.link.room(lane)), pin!(self.connection.closed()));
            select(room, closed).await;
        }
        .boxed()
    }

    /// Reads every stream after the first: one ping lane, then bulks.
    async fn read_rest(&self) {
        let mut under_way = FuturesUnordered::new();
        let mut ping = true;
        loop {
            let mut accepting = pin!(self.connection.accept_uni().fuse());
            select_biased! {
                served = under_way.select_next_some() => self.fail_on_error(served),
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
            self.fail_on_error(served);
        }
    }

    async fn read_other(&self, stream: RecvStream, ping: bool) -> Result<(), StreamError> {
        if ping {
            self.read_lane(stream, Lane::Ping).await
        } else {
            self.read_bulk(stream).await
        }
    }

    async fn read_bulk(&self, mut stream: RecvStream) -> Result<(), StreamError> {
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
                StreamError::Garbled(format!(
                    "bulk {token} of {length} bytes, expected at most {BODY_MAX}"
                ))
            })?;
        // An announced length reserves only permits. Memory is allocated as bytes arrive.
        let _permits = self
            .bulk_permits
            .acquire(length)
            .await
            .ok_or(StreamError::Lost)?;
        let (mut body, mut yielded_at) = (self.shared.buffer_pool.take(length), 0);
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
                return Err(StreamError::Garbled(format!(
                    "bulk {token} is longer than the {length} bytes announced"
                )));
            }
            if body.len() - yielded_at >= BATCH_MAX {
                yielded_at = body.len();
                tokio::task::yield_now().await; // gives the lanes a turn: fresh memory is slow
            }
        }
        if body.len() < length {
            let reason = format!(
                "bulk {token} was cut off after {} bytes of {length}",
                body.len()
            );
            return Err(StreamError::Garbled(reason));
        }
        let body = body.freeze();
        // A very large buffer is freed where it is decoded, not on this thread.
        let buffer = (body.len() <= BUFFER_MAX).then(|| body.clone());
        self.link.deliver_bulk(token, body)?;
        // Permits and memory are released after decoding.
        self.link.decoded().await;
        if let Some(buffer) = buffer {
            self.shared.buffer_pool.put(buffer);
        }
        Ok(())
    }
}

/// Passes received chunks of a stream to `keep`; returns whether the stream continues. The chunks
/// are on the stack of each poll: in the future they would cost a KiB per connection.
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

/// The end of a connection, as a reason for the peer's watchers.
fn ended(lost: ConnectionError, state: &SessionState) -> String {
    match lost {
        ConnectionError::ApplicationClosed(close) => {
            format!(
                "closed by the peer: {}",
                String::from_utf8_lossy(&close.reason)
            )
        }
        ConnectionError::TimedOut => {
            format!(
                "no sign of life for {:?}",
                state.shared.options.idle_timeout
            )
        }
        ConnectionError::Reset => "the peer has restarted".to_owned(),
        ConnectionError::LocallyClosed
            if state.shared.is_refused(state.address, &state.connection) =>
        {
            runtime::PROCESS_ENDED.to_owned()
        }
        ConnectionError::LocallyClosed => "the connection was closed here".to_owned(),
        lost => lost.to_string(),
    }
}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => {
                Self::Garbled(format!("the peer stopped a stream with code {code}"))
            }
            _ => Self::Lost,
        }
    }
}

impl From<ReadError> for StreamError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => {
                Self::Garbled(format!("the peer reset a stream with code {code}"))
            }
            _ => Self::Lost,
        }
    }
}

impl From<ReadExactError> for StreamError {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::FinishedEarly(bytes) => Self::Garbled(format!(
                "a bulk's header was cut off after {bytes} bytes of {BULK_HEADER}"
            )),
            ReadExactError::ReadError(error) => error.into(),
        }
    }
}
