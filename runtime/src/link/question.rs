//! Questions to actors of the peer: each waits for its reply, and for nothing else.
//!
//! Remembers what is done with each reply, and how a large one is decoded away from the connection. A question stays here until it is
//! answered: also while its reply is being decoded, so that it ends with the link, or with its asker's patience, as any other.

use std::any::Any;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::{Connection, QUESTIONS_MAX};
use crate::ask::{AskError, Asking, Patience, TellError};
use crate::codec::{self, Garbled};
use crate::frame::Frame;
use crate::identity::Pid;
use crate::lock;
use crate::message::Remote;
use crate::node::Node;

/// What came for a question.
pub(crate) enum Answered<'a> {
    /// A reply, as it came.
    Encoded(&'a [u8]),
    /// A reply, made by the question's [`Decode`].
    Decoded(Box<dyn Any + Send>),
    /// None will come.
    Failed(AskError),
}

impl Answered<'_> {
    /// The reply.
    pub(crate) fn read<R: DeserializeOwned + 'static>(self) -> Result<R, AskError> {
        match self {
            Answered::Encoded(bytes) => {
                codec::decode(bytes).map_err(|Garbled { reason }| AskError::Garbled { reason })
            }
            // Of another type it cannot be: the question brought the decoder.
            Answered::Decoded(reply) => reply.downcast().map_or(Err(AskError::Gone), |it| Ok(*it)),
            Answered::Failed(error) => Err(error),
        }
    }
}

/// What happens with the reply to a question that crossed the link.
pub(crate) type OnReply = Box<dyn FnOnce(Answered<'_>) + Send>;

/// Decodes the reply to a question.
pub(crate) type Decode = fn(&[u8]) -> Result<Box<dyn Any + Send>, Garbled>;

/// The [`Decode`] of such replies.
pub(crate) fn decode_reply<R>(bytes: &[u8]) -> Result<Box<dyn Any + Send>, Garbled>
where
    R: DeserializeOwned + Send + 'static,
{
    Ok(Box::new(codec::decode::<R>(bytes)?))
}

/// Where a question waits for its reply.
pub(crate) struct Asked {
    connection: Arc<Connection>,
    correlation: u64,
}

impl Asked {
    /// Nobody waits for the reply any more.
    pub(crate) fn forget(self) {
        self.connection.forget(self.correlation);
    }
}

/// A question that waits for its reply.
pub(crate) struct Question {
    on_reply: OnReply,
    /// `None` if no reply to it is large.
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
            let _ = reply.send(answer.read::<M::Result>()); // The asker may have lost patience.
        });
        self.ask_with(node, patience, on_reply, waiting, |correlation| {
            self.write_letter(to, message, Some(correlation))
        })
    }

    /// Asks what `write` writes.
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
                Answered::Encoded(bytes) => bytes
                    .try_into()
                    .map(u64::from_be_bytes)
                    .map_err(|_| AskError::Gone),
                Answered::Decoded(_) => Err(AskError::Gone),
                Answered::Failed(error) => Err(error),
            };
            let _ = reply.send(answer); // The asker may have lost patience.
        });
        let correlation = node.next_correlation();
        if let Err(error) = self.expect(correlation, on_reply, None) {
            return Asking::failed(error);
        }
        self.write_plain(&Frame::Find { correlation, name });
        Asking::remote(node.clock(), patience, waiting, self.asked(correlation))
    }

    fn asked(self: &Arc<Self>, correlation: u64) -> Asked {
        Asked {
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
        if questions.len() >= QUESTIONS_MAX {
            return Err(AskError::Full);
        }
        questions.insert(correlation, Question { on_reply, decode });
        Ok(())
    }

    /// How many questions wait for a reply.
    pub(crate) fn questions(&self) -> usize {
        lock(&self.questions).len()
    }

    fn forget(&self, correlation: u64) {
        lock(&self.questions).remove(&correlation);
    }

    /// How the reply to this question is decoded; `None` if nobody waits for it, or if it needs no decoding.
    pub(crate) fn decoder(&self, correlation: u64) -> Option<Decode> {
        lock(&self.questions).get(&correlation)?.decode
    }

    /// The reply to a question has come; one that nobody waits for is dropped.
    pub(crate) fn replied(&self, correlation: u64, outcome: Result<&[u8], AskError>) {
        self.answered(
            correlation,
            outcome.map_or_else(Answered::Failed, Answered::Encoded),
        );
    }

    /// As [`replied`](Self::replied), with a reply that may have been decoded already.
    pub(crate) fn answered(&self, correlation: u64, answer: Answered<'_>) {
        let question = lock(&self.questions).remove(&correlation);
        if let Some(question) = question {
            (question.on_reply)(answer);
        }
    }

    /// None of them is answered any more.
    pub(super) fn leave_unanswered(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.questions));
        unanswered
            .into_values()
            .for_each(|question| (question.on_reply)(Answered::Failed(AskError::Gone)));
    }
}
