//! Acknowledged delivery: messages that must reach the actor in charge, even if its predecessor has
//! failed.
//!
//! A plain tell is at most once: a message in transit when a link breaks or a master dies is lost
//! without notice. A [`ReliableSender`] numbers its messages, keeps each until the receiver has
//! acknowledged it as handled, and resends it after a reconnect or to a new receiver. A receiver
//! handles each message once per incarnation, and in order. A message that cannot be delivered
//! within the reliable sender's [`Bounds`] fails visibly: an error to the caller, a warning and a
//! counter.
//!
//! This file holds the wire types. The state machines are `send_window` and `dedup_receiver`;
//! `reliable_sender` and `receiver` connect them to actors. Nothing here connects or chooses a
//! receiver: the owner of the sender does, and calls [`ReliableSender::retarget`].
//!
//! | module | contents |
//! |---|---|
//! | `body` | the encoded bytes of a waiting message |
//! | `counts` | counts of the reliable senders and receivers of one node |
//! | `dedup_receiver` | the progress of each sender's stream |
//! | `laws` | only in tests: sender and receiver under any loss |
//! | `receiver` | unpacks sequenced messages for the actor's ordinary handlers |
//! | `reliable_sender` | the reliable sender: accepts, sends and resends messages |
//! | `send_window` | unacknowledged messages, the next to send, and the time of a resend |
//!
//! # When to use it
//!
//! For important messages that are sent once: a kill, a launch, an acknowledgement. Not for asks
//! (they have replies), for messages that are repeated anyway (pings, samples, complete states),
//! and not for streams of data: each message takes memory until it is acknowledged. Messages of one
//! reliable sender are ordered among themselves, not with plain tells, so all messages that must
//! stay in order go through one reliable sender.
//!
//! ```
//! use std::time::Duration;
//! use runtime::delivery::{self, Bounds, DedupReceiver, Sequenced};
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Note(u32);
//! remote! { Note = "example/note" v1 }
//!
//! /// The receiver keeps a `DedupReceiver`, and passes sequenced messages to it.
//! #[derive(Default)]
//! struct Notebook { incoming: DedupReceiver, notes: Vec<u32> }
//! impl Actor for Notebook { type Context = Context<Self>; }
//! impl Process for Notebook {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) {
//!         handlers.accept::<Sequenced>(&[Role::Agent]);
//!         handlers.accept::<Note>(&[Role::Agent]);
//!     }
//! }
//! impl Handler<Sequenced> for Notebook {
//!     type Result = MessageResult<Sequenced>;
//!     fn handle(&mut self, batch: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
//!         MessageResult(delivery::take(self, |notebook| &mut notebook.incoming, batch, ctx))
//!     }
//! }
//! /// An ordinary handler: delivery is transparent to it.
//! impl Handler<Note> for Notebook {
//!     type Result = ();
//!     fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) { self.notes.push(number); }
//! }
//!
//! simulate(|node| async move {
//!     let sender = node.reliable_sender(Bounds::default()).unwrap();
//!     let receipt = sender.send(Note(1)).unwrap(); // No receiver yet: it waits.
//!     let notebook = node.spawn("notebook", Notebook::default()).unwrap();
//!     sender.retarget(&notebook.pid());
//!     assert_eq!(receipt.await, Ok(()));
//! });
//! ```

mod body;
mod counts;
mod dedup_receiver;
#[cfg(test)]
mod laws;
mod receiver;
mod reliable_sender;
mod send_window;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{NodeId, Pid};
use crate::node::Node;
use crate::remote;
use crate::wire::codec::Garbled;
use crate::wire::message::{BytesMut, Remote};

pub(crate) use body::Body;
pub(crate) use counts::Counts;
pub use dedup_receiver::DedupReceiver;
pub use receiver::{HeldSequence, take};
pub use reliable_sender::{Receipt, ReliableSender};

/// Maximum age of a message in a reliable sender. Receivers remember a stream for twice as long, so
/// a forgotten stream can contain no message that was handled before.
pub const AGE_MAX: Duration = Duration::from_secs(3600);

/// Bounds on the messages that a reliable sender keeps for its receiver. A message beyond them
/// fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages that may wait for their acknowledgement. Default: 65,536; at least one.
    pub messages: usize,
    /// Bytes of their bodies, in all versions that are kept until the receiver is known. Default:
    /// 16 MiB. A larger single message is always refused.
    pub bytes: usize,
    /// How long a message may wait before it is given up. Default: 15 minutes, at most [`AGE_MAX`].
    pub age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            messages: 65_536,
            bytes: 16 << 20,
            age: Duration::from_secs(15 * 60),
        }
    }
}

/// Why a message was not delivered, or its delivery is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Refused, because too many messages wait already: send less, or wait until some are
    /// delivered.
    #[error("queue is full with {messages} messages of {bytes} bytes")]
    Full {
        /// The number of waiting messages.
        messages: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// It waited too long and was given up. It may have been handled, if only its acknowledgement
    /// was lost.
    #[error("not acknowledged within {after:?}")]
    Expired {
        /// The age at which it was given up.
        after: Duration,
    },
    /// The receiver does not accept it, or cannot decode it. It was not handled.
    #[error("refused: {reason}")]
    Refused {
        /// The message and the cause.
        reason: String,
    },
    /// A message of `send_once` was sent and not acknowledged. It may have been handled.
    #[error("sent once and not acknowledged")]
    Lost,
    /// The reliable sender has ended. It may have been handled, if only its acknowledgement was
    /// lost.
    #[error("the reliable sender has ended")]
    Ended,
}

/// Messages of one stream, to be handled in this order unless they already have been.
///
/// Each keeps its own id and version and the bytes of a plain tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sequenced {
    /// The sender; an actor of the sending node.
    from: Pid,
    /// The number of the sender's stream.
    stream: u64,
    /// The lowest unacknowledged number: all below are handled or given up.
    floor: u64,
    /// The number of the first of these messages.
    first: u64,
    /// `None` holds the number of a message that was sent once and must not be sent again.
    messages: Vec<Option<EncodedMessage>>,
}

impl Sequenced {
    /// The sender: [`Context::sender`](crate::Context::sender) of the messages in it.
    pub fn from(&self) -> &Pid {
        &self.from
    }
}

/// A message as in a frame of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EncodedMessage {
    id: u32,
    version: u16,
    body: Body,
    /// The older versions of the same message, newest first: the receiver decides which one is
    /// sent. Never crosses the wire.
    #[serde(skip)]
    older: Vec<EncodedMessage>,
}

impl EncodedMessage {
    fn new<M: Remote>(message: &M) -> Result<Self, Garbled> {
        let pack = |version| {
            let mut body = BytesMut::new();
            message.encode_as(version, &mut body)?;
            Ok(EncodedMessage {
                id: M::ID,
                version,
                body: Body(body.freeze()),
                older: Vec::new(),
            })
        };
        let older = (M::OLDEST..M::VERSION).rev().map(pack);
        Ok(EncodedMessage {
            older: older.collect::<Result<_, Garbled>>()?,
            ..pack(M::VERSION)?
        })
    }

    /// The bytes of its bodies, in all versions: its memory while it waits.
    fn weight(&self) -> usize {
        let older = self.older.iter().map(EncodedMessage::weight);
        self.body.0.len() + older.sum::<usize>()
    }

    /// The bytes of its largest version: the upper bound of its size on the wire.
    fn length_max(&self) -> usize {
        let older = self.older.iter().map(EncodedMessage::length_max);
        older.fold(self.body.0.len(), usize::max)
    }

    /// In the version that this node accepts.
    fn to(mut self, receiver: &NodeId, node: &Node) -> Self {
        if let Some(oldest) = self.older.last() {
            let version = node.version_for(receiver, self.id, oldest.version, self.version);
            let at = self.older.iter().position(|older| older.version == version);
            if let Some(at) = at {
                return self.older.swap_remove(at);
            }
        }
        self
    }
}

/// The acknowledgement: every message of this stream below `next` is done for this receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceAck {
    /// The next expected number.
    next: u64,
    /// The refused messages since the floor, with the reasons.
    refused: Vec<(u64, String)>,
}

/// No message of it was handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotAcknowledged {
    /// The receiver is not ready: retry after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// The receiver will never accept it as it is.
    #[error("{reason}")]
    Never {
        /// The expected and the actual content.
        reason: String,
    },
}

remote! { Sequenced = "delivery/numbered" v1 -> Result<SequenceAck, NotAcknowledged> }
