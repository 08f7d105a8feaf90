//! The right to answer one question of a peer: carried with the question to its actor, and back as the reply.
//!
//! Counted, so that a peer cannot have more under way than a link allows. Never keeps a reply: a question without one
//! is answered with why there is none. All replies of a link are waited for by one task, which an actor that answers many at once wakes
//! once; it ends when none is left to wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::ask::AskError;
use crate::identity::Pid;
use crate::link::{Connection, QUESTIONS_MAX, Sender};
use crate::message::Lane;
use crate::supervise::words_of;
use crate::tap::wire::ReplyRoute;
use crate::{clock, lock};

/// The right to answer one question of the peer.
pub(crate) struct Answer {
    pub(crate) connection: Arc<Connection>,
    /// The lane that the question came in, and the reply goes in.
    pub(crate) lane: Lane,
    pub(crate) correlation: u64,
    /// A tap wants to see the reply.
    pub(crate) tapped: Option<Box<ReplyRoute>>,
}

impl Answer {
    /// Lets the node's tap see the reply.
    #[cold]
    pub(crate) fn show_to_tap(&mut self, from: &Pid, asker: &Sender, name: &'static str) {
        self.tapped = Some(Box::new(ReplyRoute {
            lane: self.lane,
            from: from.clone(),
            to: asker.pid.clone(),
            name,
        }));
    }

    /// Sends the reply once the actor gives it; if it never will, says so.
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
        if connection.answering.fetch_add(1, Ordering::Relaxed) >= QUESTIONS_MAX {
            connection.answering.fetch_sub(1, Ordering::Relaxed);
            return connection.fail(correlation, AskError::Full);
        }
        let answerer = connection.answerer.clone();
        let under_way = UnderWay(connection);
        answerer.await_reply(Box::pin(async move {
            let connection = &under_way.0;
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

/// One of the peer's questions that are counted.
struct UnderWay(Arc<Connection>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for one reply, and sends it.
type Replying = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The questions of one link whose replies are waited for.
#[derive(Default)]
pub(super) struct Answerer(Mutex<Awaited>);

#[derive(Default)]
struct Awaited {
    /// Those that the task has not taken up yet.
    new: Vec<Replying>,
    /// Whether there is a task, which takes them up before it ends.
    is_attended: bool,
    /// What wakes it.
    waker: Option<Waker>,
}

impl Answerer {
    /// Waits for this reply too. Needs a tokio runtime.
    fn await_reply(self: Arc<Self>, replying: Replying) {
        let mut awaited = lock(&self.0);
        awaited.new.push(replying);
        if let Some(waker) = awaited.waker.take() {
            drop(awaited);
            return waker.wake();
        }
        if !std::mem::replace(&mut awaited.is_attended, true) {
            drop(awaited);
            tokio::spawn(Attending {
                answerer: self,
                replies: FuturesUnordered::new(),
                is_over: false,
            });
        }
    }
}

/// The task of one link that waits for replies.
struct Attending {
    answerer: Arc<Answerer>,
    replies: FuturesUnordered<Replying>,
    /// Another task attends, or none is needed.
    is_over: bool,
}

impl Attending {
    /// Sends what is there; whether something is still waited for.
    fn send_replies(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            // A reply that cannot even be encoded is no reason to keep back the others.
            let polled = catch_unwind(AssertUnwindSafe(|| self.replies.poll_next_unpin(cx)));
            match polled {
                Ok(Poll::Ready(Some(()))) => {}
                Ok(Poll::Ready(None)) => return false,
                Ok(Poll::Pending) => return true,
                Err(panic) => {
                    let words = words_of(panic);
                    tracing::error!(words, "a reply could not be sent");
                }
            }
        }
    }
}

impl Future for Attending {
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
            (awaited.is_attended, awaited.waker) = (false, None);
            this.is_over = true;
            return Poll::Ready(());
        }
    }
}

impl Drop for Attending {
    /// Its thread goes before its time: nobody answers, and what comes later has a task of its own.
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
    /// Whether one more question of the peer may be under way.
    pub(crate) fn may_answer(&self) -> bool {
        self.answering.load(Ordering::Relaxed) < QUESTIONS_MAX
    }
}
