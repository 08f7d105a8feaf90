//! The right to answer one ask of a peer: carried with the ask to its actor, and back as the reply.
//!
//! The rights are counted, so that a peer cannot exceed the link's bound of open asks. An ask
//! without a reply is answered with an error. One task per link waits for all replies, so an actor
//! that answers many asks wakes one task; it ends when no reply is pending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::actor::ask::AskError;
use crate::actor::supervise::panic_message;
use crate::identity::Pid;
use crate::link::{ASKS_MAX, Connection, Sender};
use crate::observe::tap::wire::ReplyRoute;
use crate::wire::message::Lane;
use crate::{clock, lock};

/// The right to answer one ask of the peer.
pub(crate) struct Answer {
    pub(crate) connection: Arc<Connection>,
    /// The lane of the ask, and of its reply.
    pub(crate) lane: Lane,
    pub(crate) correlation: u64,
    /// Set if a tap observes the reply.
    pub(crate) tapped: Option<Box<ReplyRoute>>,
}

impl Answer {
    /// Shows the reply to the node's tap.
    #[cold]
    pub(crate) fn show_to_tap(&mut self, from: &Pid, caller: &Sender, name: &'static str) {
        self.tapped = Some(Box::new(ReplyRoute {
            lane: self.lane,
            from: from.clone(),
            to: caller.pid.clone(),
            name,
        }));
    }

    /// Sends the reply once the actor gives it, or an error if it never will.
    pub(crate) fn when_ready<R, W>(self, reply: oneshot::Receiver<R>)
    where
        R: Send + 'static,
        W: From<R> + Serialize + Send + 'static,
    {
        let Answer {
            connection,
            lane,
            correlation,
            tapped,
        } = self;
        if connection.answering.fetch_add(1, Ordering::Relaxed) >= ASKS_MAX {
            connection.answering.fetch_sub(1, Ordering::Relaxed);
            return connection.fail(correlation, AskError::Full);
        }
        let answerer = connection.answerer.clone();
        let counted = CountedAsk(connection);
        answerer.await_reply(Box::pin(async move {
            let connection = &counted.0;
            match reply.await {
                Ok(value) => match tapped {
                    None => connection.answer(lane, correlation, &W::from(value)),
                    Some(route) => route.answer(connection.clone(), correlation, W::from(value)),
                },
                Err(_) => connection.fail(correlation, AskError::Gone),
            }
            clock::moved();
        }));
    }
}

/// One counted ask of the peer.
struct CountedAsk(Arc<Connection>);

impl Drop for CountedAsk {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for one reply, and sends it.
type PendingReply = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The pending replies of one link.
#[derive(Default)]
pub(super) struct Answerer(Mutex<Awaited>);

#[derive(Default)]
struct Awaited {
    /// Replies that the task has not taken over yet.
    new: Vec<PendingReply>,
    /// Whether there is a task. It takes over the new replies before it ends.
    has_task: bool,
    /// The waker of the task.
    waker: Option<Waker>,
}

impl Answerer {
    /// Waits for this reply too. Needs a tokio runtime.
    fn await_reply(self: Arc<Self>, replying: PendingReply) {
        let mut awaited = lock(&self.0);
        awaited.new.push(replying);
        if let Some(waker) = awaited.waker.take() {
            drop(awaited);
            return waker.wake();
        }
        if !std::mem::replace(&mut awaited.has_task, true) {
            drop(awaited);
            tokio::spawn(ReplyTask {
                answerer: self,
                replies: FuturesUnordered::new(),
                is_over: false,
            });
        }
    }
}

/// The task of one link that waits for replies.
struct ReplyTask {
    answerer: Arc<Answerer>,
    replies: FuturesUnordered<PendingReply>,
    /// The task has ended normally.
    is_over: bool,
}

impl ReplyTask {
    /// Sends the ready replies; true if some are pending.
    fn send_replies(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            // A panic in the encoding of one reply must not block the others.
            let polled = catch_unwind(AssertUnwindSafe(|| self.replies.poll_next_unpin(cx)));
            match polled {
                Ok(Poll::Ready(Some(()))) => {}
                Ok(Poll::Ready(None)) => return false,
                Ok(Poll::Pending) => return true,
                Err(panic) => {
                    let words = panic_message(panic);
                    tracing::error!(words, "failed to send a reply");
                }
            }
        }
    }
}

impl Future for ReplyTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let new = std::mem::take(&mut lock(&this.answerer.0).new);
            this.replies.extend(new);
            let waits = this.send_replies(cx);
            let mut awaited = lock(&this.answerer.0);
            if !awaited.new.is_empty() {
                continue;
            }
            if waits {
                awaited.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            (awaited.has_task, awaited.waker) = (false, None);
            this.is_over = true;
            return Poll::Ready(());
        }
    }
}

impl Drop for ReplyTask {
    /// Its thread ends early: the pending asks stay unanswered, and later ones get a new task.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut awaited = lock(&self.answerer.0);
        let left = std::mem::take(&mut *awaited);
        drop(awaited);
        drop(left);
    }
}

impl Connection {
    /// Whether the peer may have another open ask.
    pub(crate) fn may_answer(&self) -> bool {
        self.answering.load(Ordering::Relaxed) < ASKS_MAX
    }
}
