//! Asking: one message, one reply, and a stated patience.
//!
//! The message is sent before [`Asking`] is first polled, in order with earlier tells, and dropping
//! the future never takes it back. A handler that answers later returns a [`Reply`] and keeps the
//! [`Promise`].

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};
use tokio::sync::oneshot;

use crate::clock::{Clock, Deadline, Sleep};
use crate::link::AskRegistration;
use crate::lock;

/// How long the caller waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// At most this duration.
    For(Duration),
    /// Until the reply arrives, or the actor, its node or the connection ends.
    WhileLinked,
}

impl From<Duration> for Patience {
    fn from(duration: Duration) -> Self {
        Patience::For(duration)
    }
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no such actor, it ended, or it dropped the promise. Ask its successor.
    #[error("the actor is gone")]
    Gone,
    /// No reply within the patience. The message may have been handled: repeat only idempotent
    /// ones.
    #[error("no reply within {after:?}")]
    Late {
        /// The patience spent.
        after: Duration,
    },
    /// The mailbox or the link is full. Retry later, at a lower rate.
    #[error("the mailbox or link is full")]
    Full,
    /// The actor does not accept this message from this node. A retry fails in the same way.
    #[error("refused: {reason}")]
    Refused {
        /// The message and the role of its sender.
        reason: String,
    },
    /// The reply cannot be decoded.
    #[error("garbled reply: {reason}")]
    Garbled {
        /// The expected and the actual content.
        reason: String,
    },
}

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
    /// There is no such actor any more, or no link to its node.
    #[error("the actor is gone")]
    Gone,
    /// The mailbox or the link is full.
    #[error("the mailbox or link is full")]
    Full,
    /// The actor does not accept this message, or it cannot be encoded.
    #[error("refused: {reason}")]
    Refused {
        /// The message and the cause.
        reason: String,
    },
}

impl From<TellError> for AskError {
    fn from(error: TellError) -> Self {
        match error {
            TellError::Gone => AskError::Gone,
            TellError::Full => AskError::Full,
            TellError::Refused { reason } => AskError::Refused { reason },
        }
    }
}

/// A pending reply. Dropping it gives up the reply; the message is handled all the same.
#[must_use = "the message is sent, but its reply is lost unless awaited"]
pub struct Asking<R> {
    source: Source<R>,
    /// The patience and its deadline.
    patience: Option<(Duration, Deadline)>,
    sleep: Option<Sleep>,
    /// The request, if it crossed a link and has no reply yet. Dropping this future cancels it.
    asked: Option<AskRegistration>,
}

enum Source<R> {
    Failed(AskError),
    Local(oneshot::Receiver<R>),
    Remote(oneshot::Receiver<Result<R, AskError>>),
}

impl<R> Asking<R> {
    pub(crate) fn failed(error: AskError) -> Self {
        Self {
            source: Source::Failed(error),
            patience: None,
            sleep: None,
            asked: None,
        }
    }

    pub(crate) fn local(clock: &Clock, patience: Patience, reply: oneshot::Receiver<R>) -> Self {
        Self::with(clock, patience, Source::Local(reply), None)
    }

    pub(crate) fn remote(
        clock: &Clock,
        patience: Patience,
        reply: oneshot::Receiver<Result<R, AskError>>,
        asked: AskRegistration,
    ) -> Self {
        Self::with(clock, patience, Source::Remote(reply), Some(asked))
    }

    /// Why the message was not even sent, if it was not: then it has certainly not been handled.
    pub fn unsent(&self) -> Option<&AskError> {
        match &self.source {
            Source::Failed(error) => Some(error),
            Source::Local(_) | Source::Remote(_) => None,
        }
    }

    fn with(
        clock: &Clock,
        patience: Patience,
        source: Source<R>,
        asked: Option<AskRegistration>,
    ) -> Self {
        let patience = match patience {
            Patience::For(after) => Some((after, clock.deadline(after))),
            Patience::WhileLinked => None,
        };
        Self {
            source,
            patience,
            sleep: None,
            asked,
        }
    }
}

impl<R> Future for Asking<R> {
    type Output = Result<R, AskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answer = match &mut this.source {
            Source::Failed(error) => return Poll::Ready(Err(error.clone())),
            Source::Local(reply) => Pin::new(reply)
                .poll(cx)
                .map(|reply| reply.map_err(|_| AskError::Gone)),
            Source::Remote(reply) => Pin::new(reply)
                .poll(cx)
                .map(|reply| reply.unwrap_or(Err(AskError::Gone))),
        };
        if answer.is_ready() {
            this.asked = None;
            return answer;
        }
        let Some((after, deadline)) = this.patience else {
            return Poll::Pending;
        };
        let sleep = this.sleep.get_or_insert_with(|| deadline.sleep());
        match Pin::new(sleep).poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(AskError::Late { after })),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<R> Drop for Asking<R> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.forget();
        }
    }
}

/// A promise to answer later, and the reply that a handler returns in its place.
///
/// ```
/// use runtime::prelude::*;
/// # #[derive(Message)]
/// # #[rtype(result = "u32")]
/// # struct WhenReady;
/// struct Gate { waiting: Vec<Promise<u32>> }
/// # impl Actor for Gate { type Context = Context<Self>; }
/// impl Handler<WhenReady> for Gate {
///     type Result = Reply<u32>;
///     fn handle(&mut self, _: WhenReady, _: &mut Context<Self>) -> Reply<u32> {
///         let (promise, reply) = promise();
///         self.waiting.push(promise);
///         reply
///     }
/// }
/// ```
pub fn promise<T: 'static>() -> (Promise<T>, Reply<T>) {
    let shared = Arc::new(Mutex::new(Promised::Open));
    (Promise(Some(shared.clone())), Reply(shared))
}

enum Promised<T> {
    /// Neither answered nor awaited yet.
    Open,
    /// Answered before the handler returned.
    Answered(T),
    /// The caller waits here.
    AskRegistration(OneshotSender<T>),
    /// Nothing more will happen.
    Over,
}

/// The right to answer one ask. Dropping it makes the ask fail with [`AskError::Gone`].
pub struct Promise<T>(Option<Arc<Mutex<Promised<T>>>>);

impl<T> Promise<T> {
    /// Answers. Has no effect if the caller no longer waits.
    pub fn answer(mut self, value: T) {
        let Some(shared) = self.0.take() else { return };
        let mut state = lock(&shared);
        match std::mem::replace(&mut *state, Promised::Over) {
            Promised::Open => *state = Promised::Answered(value),
            Promised::AskRegistration(reply_to) => {
                drop(state);
                let _ = reply_to.send(value); // The caller may have gone.
            }
            Promised::Answered(_) | Promised::Over => {}
        }
    }

    /// Whether the caller may still be waiting for the answer.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| match &*lock(shared) {
            Promised::Open => true,
            Promised::AskRegistration(reply_to) => !reply_to.is_closed(),
            Promised::Answered(_) | Promised::Over => false,
        })
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            let broken = std::mem::replace(&mut *lock(&shared), Promised::Over);
            drop(broken);
        }
    }
}

/// The return value of a handler that answers later.
pub struct Reply<T>(Arc<Mutex<Promised<T>>>);

impl<A, M, T> MessageResponse<A, M> for Reply<T>
where
    A: Actor,
    M: Message<Result = T>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, reply_to: Option<OneshotSender<T>>) {
        let mut state = lock(&self.0);
        match (std::mem::replace(&mut *state, Promised::Over), reply_to) {
            (Promised::Open, Some(reply_to)) => *state = Promised::AskRegistration(reply_to),
            (Promised::Answered(value), Some(reply_to)) => {
                drop(state);
                let _ = reply_to.send(value); // The caller may have gone.
            }
            _ => {}
        }
    }
}
