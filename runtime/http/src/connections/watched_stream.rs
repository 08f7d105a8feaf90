//! Connection and body wrappers that report reads and writes to a [`Watch`]. They change no bytes.
//! Pipelined requests are answered one at a time: the next answer is made when the previous one has
//! been taken, which bounds the memory of pending answers.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use runtime::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::source::Activity;
use super::watch::{ConnectionTimeouts, Late, Watch};

/// Maximum buffers in one vectored write, as many as the kernel takes.
const GATHERED_MAX: usize = 64;

/// The watch of one connection, shared by its wrappers.
#[derive(Clone)]
pub(super) struct SharedWatch {
    watch: Arc<Mutex<Watch>>,
    closing: Arc<Notify>,
    evicted: Arc<Notify>,
    taken: Arc<Notify>,
    clock: Clock,
}

impl SharedWatch {
    pub fn new(timeouts: ConnectionTimeouts, clock: &Clock) -> Self {
        let watch = Watch::new(timeouts, clock.now());
        Self {
            watch: Arc::new(Mutex::new(watch)),
            closing: Arc::default(),
            evicted: Arc::default(),
            taken: Arc::default(),
            clock: clock.clone(),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        // Only times and numbers, which are valid after a panic too.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes arrived.
    pub fn begins(&self) {
        self.watch().has_read(self.clock.now());
    }

    /// A handshake or an answer is complete.
    pub fn rests(&self) {
        self.watch().answer_complete(self.clock.now());
    }

    /// The current activity; `None` if the connection is already to close.
    pub fn activity(&self) -> Option<Activity> {
        self.watch().activity()
    }

    /// Closes the connection, even if it is busy.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Closes the connection if it is idle; returns whether it was.
    pub fn end(&self) -> bool {
        let is_idle = self.watch().end();
        if is_idle {
            self.closing.notify_one();
        }
        is_idle
    }

    /// Waits until the connection is to close and is idle.
    pub async fn closing(&self) {
        loop {
            self.closing.notified().await;
            if self.watch().is_ending() {
                return;
            }
        }
    }

    /// The head of a request is complete; the answer is complete when the returned guard is
    /// dropped.
    pub fn asked(&self) -> Answering {
        self.watch().request_complete();
        Answering(self.clone())
    }

    /// An answer is made.
    pub fn made(&self, body: &impl HttpBody) {
        let bytes = body.size_hint().exact();
        self.watch().answer_made(bytes, self.clock.now());
    }

    /// Waits until no bytes wait for the reader.
    pub async fn taken(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.watch().is_waiting() {
                return;
            }
            taken.await;
        }
    }

    /// Waits until a timeout passes.
    pub async fn late(&self) -> Late {
        loop {
            let look = self.watch().look(self.clock.now());
            match look {
                Ok(next) => self.clock.sleep_until(next).await,
                Err(late) => return late,
            }
        }
    }

    /// Records the result of a write.
    fn sent(&self, sent: &Poll<io::Result<usize>>) {
        match sent {
            Poll::Ready(Ok(bytes)) => self.watch().bytes_taken(*bytes, self.clock.now()),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.watch().waits(self.clock.now()),
        }
    }
}

/// A request is being answered until this is dropped.
pub(super) struct Answering(SharedWatch);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.rests();
    }
}

/// A response body that keeps its [`Answering`] guard. The available chunks of a body of known
/// length are sent in one write.
pub(super) struct Answer {
    body: Body,
    is_whole: bool,
    _answering: Answering,
}

impl Answer {
    pub fn new(body: Body, answering: Answering) -> Self {
        Self {
            is_whole: body.size_hint().exact().is_some(),
            body,
            _answering: answering,
        }
    }
}

impl HttpBody for Answer {
    type Data = Gathered;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Gathered>, axum::Error>>> {
        let most = if self.is_whole { GATHERED_MAX } else { 1 };
        let mut gathered = Gathered::default();
        while gathered.0.len() < most {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => gathered.0.push_back(bytes),
                    // HTTP/1.1 sends trailers only after chunked bodies, and no page of ours has
                    // any.
                    Err(_trailers) => {}
                },
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                Poll::Ready(None) => break,
                Poll::Pending if gathered.0.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        let frame = (!gathered.0.is_empty()).then(|| Ok(Frame::data(gathered)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Buffers that are sent in one write.
#[derive(Default)]
pub(super) struct Gathered(VecDeque<Bytes>);

impl Buf for Gathered {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        let mut some = self.0.iter().filter(|bytes| !bytes.is_empty());
        some.next().map_or(&[], AsRef::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [io::IoSlice<'a>]) -> usize {
        let some = slices.iter_mut().zip(&self.0);
        some.map(|(slice, bytes)| *slice = io::IoSlice::new(bytes))
            .count()
    }

    fn advance(&mut self, mut taken: usize) {
        while let Some(bytes) = self.0.front_mut() {
            if taken < bytes.len() {
                return bytes.advance(taken);
            }
            taken -= bytes.len();
            self.0.pop_front();
        }
    }
}

/// A watched connection.
pub(super) struct WatchedStream<C> {
    connection: C,
    watching: SharedWatch,
}

impl<C> WatchedStream<C> {
    pub fn new(connection: C, watching: SharedWatch) -> Self {
        Self {
            connection,
            watching,
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for WatchedStream<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.connection).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watching.begins();
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for WatchedStream<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.watching.sent(&sent);
        sent
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.connection).poll_write_vectored(cx, pieces);
        self.watching.sent(&sent);
        sent
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.connection).poll_flush(cx);
        match flushed {
            Poll::Ready(_) => {
                self.watching.watch().is_flushed();
                self.watching.taken.notify_waiters();
            }
            Poll::Pending => {
                let now = self.watching.clock.now();
                self.watching.watch().waits(now);
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::{FutureExt, stream};
    use v1::body_parts::{BodyPart, BodyParts};

    use super::*;
    use crate::body::shared::SharedBody;

    const PARTS: [&str; 4] = ["ab", "", "cde", "f"];

    #[test]
    fn gathered_buffers_advance_by_bytes() {
        for step in 1..=6 {
            let mut gathered = Gathered(PARTS.map(Bytes::from).into());
            let mut sent = Vec::new();
            while gathered.has_remaining() {
                let mut slices = [io::IoSlice::new(&[]); 3];
                let many = gathered.chunks_vectored(&mut slices);
                let there = slices[..many].iter().map(|slice| &slice[..]);
                let there = there.collect::<Vec<_>>().concat();
                assert!(!gathered.chunk().is_empty() && there.starts_with(gathered.chunk()));
                let taken = step.min(there.len());
                sent.extend_from_slice(&there[..taken]);
                gathered.advance(taken);
            }
            assert_eq!(sent, b"abcdef");
        }
    }

    /// The bytes of each write.
    fn goes(body: Body) -> Vec<usize> {
        let watching = SharedWatch::new(ConnectionTimeouts::default(), &Clock::paused());
        let mut answer = Answer::new(body, watching.asked());
        let mut goes = Vec::new();
        loop {
            let next = poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx));
            let Some(frame) = next.now_or_never().unwrap() else {
                return goes;
            };
            goes.push(frame.unwrap().into_data().ok().unwrap().remaining());
        }
    }

    #[test]
    fn complete_answers_are_gathered_and_streams_are_not() {
        let parts: BodyParts = PARTS.map(BodyPart::new).into_iter().collect();
        assert_eq!(goes(SharedBody::from(parts).body()), [6]);
        let many: BodyParts = ["x"; 100].map(BodyPart::new).into_iter().collect();
        assert_eq!(goes(SharedBody::from(many).body()), [GATHERED_MAX, 36]);
        let pieces = PARTS.map(Ok::<_, io::Error>);
        assert_eq!(goes(Body::from_stream(stream::iter(pieces))), [2, 0, 3, 1]);
    }
}
