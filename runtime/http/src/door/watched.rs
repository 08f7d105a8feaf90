//! A connection and an answer that tell a [`Watch`] what comes and goes. They change nothing of it. Whoever asks for several pages at once has the
//! next one made when it has taken the one before: what is made for it is in memory until then.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use runtime::{Clock, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::watch::{Late, Patience, Watch};

/// The watch of one connection, for all who see something of it.
#[derive(Clone)]
pub(super) struct Watching {
    watch: Arc<Mutex<Watch>>,
    told_to_end: Arc<Notify>,
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

    /// Since when nothing has been asked, if nothing is under way.
    pub fn idle_since(&self) -> Option<Instant> {
        self.watch().idle_since()
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

/// A body that is an answer for as long as it is there.
pub(super) struct Answer {
    body: Body,
    _answering: Answering,
}

impl Answer {
    /// This body, of what is answered.
    pub fn new(body: Body, answering: Answering) -> Self {
        Self {
            body,
            _answering: answering,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
