//! A connection and an answer that tell a [`Watch`] what comes and goes. They change nothing of it. Whoever asks for several pages at once has the
//! next one made when it has taken the one before: what is made for it is in memory until then.

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
use super::watch::{Late, Patience, Watch};

/// So many pieces are handed to the kernel at once, which takes as many.
const GATHERED_MAX: usize = 64;

/// The watch of one connection, for all who see something of it.
#[derive(Clone)]
pub(super) struct Watching {
    watch: Arc<Mutex<Watch>>,
    told_to_end: Arc<Notify>,
    evicted: Arc<Notify>,
    taken: Arc<Notify>,
    clock: Clock,
}

impl Watching {
    /// A connection begins.
    pub fn new(patience: Patience, clock: &Clock) -> Self {
        let watch = Watch::new(patience, clock.now());
        Self {
            watch: Arc::new(Mutex::new(watch)),
            told_to_end: Arc::default(),
            evicted: Arc::default(),
            taken: Arc::default(),
            clock: clock.clone(),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        // Times and numbers only: whatever fell while it held them, they are as good as before.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is said.
    pub fn begins(&self) {
        self.watch().has_read(self.clock.now());
    }

    /// What was said has been dealt with.
    pub fn rests(&self) {
        self.watch().has_answered(self.clock.now());
    }

    /// What the connection is doing; `None` if it was told to end already.
    pub fn activity(&self) -> Option<Activity> {
        self.watch().activity()
    }

    /// Has the connection end whatever is under way.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until the connection must end at once.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Tells the connection to end if nothing is under way; whether it was told.
    pub fn end(&self) -> bool {
        let is_told = self.watch().end();
        if is_told {
            self.told_to_end.notify_one();
        }
        is_told
    }

    /// Waits until the connection is told to end, and has nothing under way.
    pub async fn told_to_end(&self) {
        loop {
            self.told_to_end.notified().await;
            if self.watch().is_ending() {
                return;
            }
        }
    }

    /// The head of a request is whole; its answer is when what this gives is dropped.
    pub fn asked(&self) -> Answering {
        self.watch().is_asked();
        Answering(self.clone())
    }

    /// An answer is made.
    pub fn made(&self, body: &impl HttpBody) {
        let bytes = body.size_hint().exact();
        self.watch().is_made(bytes, self.clock.now());
    }

    /// Waits until nothing waits for the reader.
    pub async fn taken(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.watch().is_waiting() {
                return;
            }
            taken.await;
        }
    }

    /// Waits until something is late.
    pub async fn late(&self) -> Late {
        loop {
            let look = self.watch().look(self.clock.now());
            match look {
                Ok(next) => self.clock.sleep_until(next).await,
                Err(late) => return late,
            }
        }
    }

    /// What became of an attempt to send.
    fn sent(&self, sent: &Poll<io::Result<usize>>) {
        match sent {
            Poll::Ready(Ok(bytes)) => self.watch().is_taken(*bytes, self.clock.now()),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.watch().waits(self.clock.now()),
        }
    }
}

/// A request is answered until this is dropped.
pub(super) struct Answering(Watching);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.rests();
    }
}

/// A body that is an answer for as long as it is there. What is there of one that is whole is sent in one go.
pub(super) struct Answer {
    body: Body,
    is_whole: bool,
    _answering: Answering,
}

impl Answer {
    /// This body, of what is answered.
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
                    // HTTP/1.1 has them only behind bodies that come in pieces, and no page of ours does.
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

/// Bytes that are sent in one go.
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

/// A connection that is watched.
pub(super) struct Watched<C> {
    connection: C,
    watching: Watching,
}

impl<C> Watched<C> {
    /// This connection.
    pub fn new(connection: C, watching: Watching) -> Self {
        Self {
            connection,
            watching,
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Watched<C> {
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

impl<C: AsyncWrite + Unpin> AsyncWrite for Watched<C> {
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
    use v1::parts::{Part, Parts};

    use super::*;
    use crate::shared::Shared;

    const PARTS: [&str; 4] = ["ab", "", "cde", "f"];

    #[test]
    fn what_is_sent_in_one_go_is_taken_byte_by_byte() {
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

    /// How many bytes are sent in each go.
    fn goes(body: Body) -> Vec<usize> {
        let watching = Watching::new(Patience::default(), &Clock::paused());
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
    fn a_whole_answer_is_sent_in_one_go_and_a_stream_piece_by_piece() {
        let parts: Parts = PARTS.map(Part::new).into_iter().collect();
        assert_eq!(goes(Shared::from(parts).body()), [6]);
        let many: Parts = ["x"; 100].map(Part::new).into_iter().collect();
        assert_eq!(goes(Shared::from(many).body()), [GATHERED_MAX, 36]);
        let pieces = PARTS.map(Ok::<_, io::Error>);
        assert_eq!(goes(Body::from_stream(stream::iter(pieces))), [2, 0, 3, 1]);
    }
}
