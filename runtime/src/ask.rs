//! Asking: one question, one reply, and a stated patience.
//!
//! The question is on its way before [`Asking`] is first polled, in order with everything told before,
//! and dropping the future never takes it back. A handler that answers later returns a [`Reply`] and
//! keeps the [`Promise`].

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};
use tokio::sync::oneshot;

use crate::clock::{Clock, Deadline, Sleep};
use crate::link::Asked;
use crate::lock;

/// How long an asker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// This long.
    For(Duration),
    /// Until the reply comes or the actor, its node or the connection ends.
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
    /// There is no such actor, or it ended, or let go of the question. Ask whoever comes next.
    #[error("the actor is gone")]
    Gone,
    /// No reply within the patience. It may have been handled: ask again only what is harmless twice.
    #[error("no reply within {after:?}")]
    Late {
        /// The patience spent.
        after: Duration,
    },
    /// The mailbox or the link is full. Ask later, and less.
    #[error("the mailbox or link is full")]
    Full,
    /// The actor does not hear this message from this node. Asking again gives the same.
    #[error("refused: {reason}")]
    Refused {
        /// Which message, from whom.
        reason: String,
    },
    /// The reply cannot be read.
    #[error("garbled reply: {reason}")]
    Garbled {
        /// What was found and what was expected.
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
    /// The actor does not hear this message, or it cannot be encoded.
    #[error("refused: {reason}")]
    Refused {
        /// Which message, and why not.
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

/// A question under way. Dropping it gives up the reply, not the question.
#[must_use = "the question is sent, but its reply is lost unless awaited"]
pub struct Asking<R> {
    source: Source<R>,
    /// The patience and when it ends.
    patience: Option<(Duration, Deadline)>,
    sleep: Option<Sleep>,
    /// The question, if it crossed a link and is not answered: it is forgotten when nobody waits any more.
    asked: Option<Asked>,
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
        asked: Asked,
    ) -> Self {
        Self::with(clock, patience, Source::Remote(reply), Some(asked))
    }

    /// Why the question was not even sent, if it was not: it has certainly not been handled.
    pub fn unsent(&self) -> Option<&AskError> {
        match &self.source {
            Source::Failed(error) => Some(error),
            Source::Local(_) | Source::Remote(_) => None,
        }
    }

    fn with(clock: &Clock, patience: Patience, source: Source<R>, asked: Option<Asked>) -> Self {
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

/// A promise to answer later, and the reply a handler returns in its place.
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
    /// Neither answered nor handed to the asker yet.
    Open,
    /// Answered before the handler returned.
    Answered(T),
    /// The asker waits here.
    Asked(OneshotSender<T>),
    /// Nothing more will happen.
    Over,
}

/// The right to answer one question. Dropping it makes the ask fail with [`AskError::Gone`].
pub struct Promise<T>(Option<Arc<Mutex<Promised<T>>>>);

impl<T> Promise<T> {
    /// Answers. Lost without harm if the asker no longer waits.
    pub fn answer(mut self, value: T) {
        let Some(shared) = self.0.take() else { return };
        let mut state = lock(&shared);
        match std::mem::replace(&mut *state, Promised::Over) {
            Promised::Open => *state = Promised::Answered(value),
            Promised::Asked(asker) => {
                drop(state);
                let _ = asker.send(value); // The asker may have gone.
            }
            Promised::Answered(_) | Promised::Over => {}
        }
    }

    /// Whether somebody may still be waiting for the answer.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| match &*lock(shared) {
            Promised::Open => true,
            Promised::Asked(asker) => !asker.is_closed(),
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

/// What a handler returns when it answers later.
pub struct Reply<T>(Arc<Mutex<Promised<T>>>);

impl<A, M, T> MessageResponse<A, M> for Reply<T>
where
    A: Actor,
    M: Message<Result = T>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, asker: Option<OneshotSender<T>>) {
        let mut state = lock(&self.0);
        match (std::mem::replace(&mut *state, Promised::Over), asker) {
            (Promised::Open, Some(asker)) => *state = Promised::Asked(asker),
            (Promised::Answered(value), Some(asker)) => {
                drop(state);
                let _ = asker.send(value); // The asker may have gone.
            }
            _ => {}
        }
    }
}
