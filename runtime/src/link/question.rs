//! Asks to actors of the peer, each waiting for its reply.
//!
//! It keeps the continuation of each ask, and the decoder for a large reply, which runs on another
//! thread. An ask stays registered while its reply is being decoded, so that it ends with the link,
//! or with its caller's patience, like any other.

use std::any::Any;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::{ASKS_MAX, Connection};
use crate::actor::ask::{AskError, Asking, Patience, TellError};
use crate::identity::Pid;
use crate::lock;
use crate::node::Node;
use crate::wire::codec::{self, Garbled};
use crate::wire::frame::Frame;
use crate::wire::message::Remote;

/// The outcome of an ask.
pub(crate) enum ReplyOutcome<'a> {
    /// An encoded reply.
    Encoded(&'a [u8]),
    /// A reply, decoded by the ask's [`Decode`].
    Decoded(Box<dyn Any + Send>),
    /// There will be no reply.
    Failed(AskError),
}

impl ReplyOutcome<'_> {
    /// The reply.
    pub(crate) fn read<R: DeserializeOwned + 'static>(self) -> Result<R, AskError> {
        match self {
            ReplyOutcome::Encoded(bytes) => {
                codec::decode(bytes).map_err(|Garbled { reason }| AskError::Garbled { reason })
            }
            // It is of this type: the ask provided the decoder.
            ReplyOutcome::Decoded(reply) => {
                reply.downcast().map_or(Err(AskError::Gone), |it| Ok(*it))
            }
            ReplyOutcome::Failed(error) => Err(error),
        }
    }
}

/// The continuation of an ask that crossed the link.
pub(crate) type OnReply = Box<dyn FnOnce(ReplyOutcome<'_>) + Send>;

/// Decodes the reply to an ask.
pub(crate) type Decode = fn(&[u8]) -> Result<Box<dyn Any + Send>, Garbled>;

/// The [`Decode`] for replies of this type.
pub(crate) fn decode_reply<R>(bytes: &[u8]) -> Result<Box<dyn Any + Send>, Garbled>
where
    R: DeserializeOwned + Send + 'static,
{
    Ok(Box::new(codec::decode::<R>(bytes)?))
}

/// The registration of an ask that waits for its reply.
pub(crate) struct AskRegistration {
    connection: Arc<Connection>,
    correlation: u64,
}

impl AskRegistration {
    /// Removes the ask: its caller waits no more.
    pub(crate) fn forget(self) {
        self.connection.forget(self.correlation);
    }
}

/// An ask that waits for its reply.
pub(crate) struct PendingAsk {
    on_reply: OnReply,
    /// `None` if its reply is never large.
    decode: Option<Decode>,
}

impl Connection {
    /// Asks an actor of the peer.
    pub(crate) fn ask<M: Remote>(
        self: &Arc<Self>,
        node: &Node,
        to: &Pid,
        message: &M,
        patience: Patience,
    ) -> Asking<M::Result> {
        let (reply, waiting) = oneshot::channel();
        let on_reply: OnReply = Box::new(move |answer| {
            let _ = reply.send(answer.read::<M::Result>()); // The caller may have stopped waiting.
        });
        self.ask_with(node, patience, on_reply, waiting, |correlation| {
            self.write_message(to, message, Some(correlation))
        })
    }

    /// Sends the ask that `write` writes.
    #[inline]
    pub(crate) fn ask_with<R>(
        self: &Arc<Self>,
        node: &Node,
        patience: Patience,
        on_reply: OnReply,
        waiting: oneshot::Receiver<Result<R, AskError>>,
        write: impl FnOnce(u64) -> Result<(), TellError>,
    ) -> Asking<R>
    where
        R: DeserializeOwned + Send + 'static,
    {
        let correlation = node.next_correlation();
        let asked = self
            .expect(correlation, on_reply, Some(decode_reply::<R>))
            .and_then(|()| write(correlation).map_err(AskError::from));
        match asked {
            Ok(()) => Asking::remote(node.clock(), patience, waiting, self.asked(correlation)),
            Err(error) => {
                self.forget(correlation);
                Asking::failed(error)
            }
        }
    }

    /// Asks the peer for the incarnation that has this name; 0 if none.
    pub(crate) fn find(
        self: &Arc<Self>,
        node: &Node,
        name: &str,
        patience: Patience,
    ) -> Asking<u64> {
        let (reply, waiting) = oneshot::channel();
        let on_reply: OnReply = Box::new(move |answer| {
            let answer = match answer {
                ReplyOutcome::Encoded(bytes) => bytes
                    .try_into()
                    .map(u64::from_be_bytes)
                    .map_err(|_| AskError::Gone),
                ReplyOutcome::Decoded(_) => Err(AskError::Gone),
                ReplyOutcome::Failed(error) => Err(error),
            };
            let _ = reply.send(answer); // The caller may have stopped waiting.
        });
        let correlation = node.next_correlation();
        if let Err(error) = self.expect(correlation, on_reply, None) {
            return Asking::failed(error);
        }
        self.write_plain(&Frame::Find { correlation, name });
        Asking::remote(node.clock(), patience, waiting, self.asked(correlation))
    }

    fn asked(self: &Arc<Self>, correlation: u64) -> AskRegistration {
        AskRegistration {
            connection: self.clone(),
            correlation,
        }
    }

    fn expect(
        &self,
        correlation: u64,
        on_reply: OnReply,
        decode: Option<Decode>,
    ) -> Result<(), AskError> {
        let mut questions = lock(&self.questions);
        if self.is_closed() {
            return Err(AskError::Gone);
        }
        if questions.len() >= ASKS_MAX {
            return Err(AskError::Full);
        }
        questions.insert(correlation, PendingAsk { on_reply, decode });
        Ok(())
    }

    /// The number of asks that wait for a reply.
    pub(crate) fn questions(&self) -> usize {
        lock(&self.questions).len()
    }

    fn forget(&self, correlation: u64) {
        lock(&self.questions).remove(&correlation);
    }

    /// The decoder of the reply to this ask; `None` if no caller waits, or if it needs no decoding.
    pub(crate) fn decoder(&self, correlation: u64) -> Option<Decode> {
        lock(&self.questions).get(&correlation)?.decode
    }

    /// Handles a reply; without a waiting caller it is dropped.
    pub(crate) fn replied(&self, correlation: u64, outcome: Result<&[u8], AskError>) {
        self.answered(
            correlation,
            outcome.map_or_else(ReplyOutcome::Failed, ReplyOutcome::Encoded),
        );
    }

    /// As [`replied`](Self::replied), with a reply that may have been decoded already.
    pub(crate) fn answered(&self, correlation: u64, answer: ReplyOutcome<'_>) {
        let question = lock(&self.questions).remove(&correlation);
        if let Some(question) = question {
            (question.on_reply)(answer);
        }
    }

    /// Fails all waiting asks.
    pub(super) fn fail_asks(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.questions));
        unanswered
            .into_values()
            .for_each(|question| (question.on_reply)(ReplyOutcome::Failed(AskError::Gone)));
    }
}
