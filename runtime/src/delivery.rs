//! Acknowledged delivery: messages that must reach whoever holds an office, also when the one who held it has failed (S132).
//!
//! A plain tell is at most once: what was on its way when a link broke, or when a master died, is lost and nobody is told.
//! A [`Courier`] numbers what it is given, keeps it until the receiver has said that it handled it, and sends it again
//! after a reconnect or to a new receiver. The receiver hears each message once in its life, and in order. What cannot be
//! delivered within the courier's [`Bounds`] fails loudly: an error to the caller, a warning and a counter.
//!
//! This file holds what crosses the wire. Decisions are in `outgoing` (the sender's ledger) and `incoming` (the
//! receiver's); `courier` and `receiver` carry them out. It never makes a connection and never chooses a receiver:
//! its owner does, and says so with [`Courier::retarget`].
//!
//! # When to use it
//!
//! For what is said once and matters: a kill, a launch, an acknowledgement. Not for questions (an ask has its answer), for
//! what is said again anyway (pings, samples, a state that is told whole), and not for streams of data: each message
//! costs a place in memory until it is acknowledged. Messages of one courier are ordered among themselves, not with plain
//! tells, so all that must keep its order goes through one courier.
//!
//! ```
//! use std::time::Duration;
//! use runtime::delivery::{self, Bounds, Incoming, Numbered};
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Note(u32);
//! remote! { Note = "example/note" v1 }
//!
//! /// The receiver keeps the other half of the book, and lets it open what is numbered.
//! #[derive(Default)]
//! struct Desk { incoming: Incoming, notes: Vec<u32> }
//! impl Actor for Desk { type Context = Context<Self>; }
//! impl Process for Desk {
//!     fn hears(ears: &mut Ears<Self>) {
//!         ears.hear::<Numbered>(&[Role::Agent]);
//!         ears.hear::<Note>(&[Role::Agent]);
//!     }
//! }
//! impl Handler<Numbered> for Desk {
//!     type Result = MessageResult<Numbered>;
//!     fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
//!         MessageResult(delivery::take(self, |desk| &mut desk.incoming, numbered, ctx))
//!     }
//! }
//! /// An ordinary handler: it cannot tell how the message came.
//! impl Handler<Note> for Desk {
//!     type Result = ();
//!     fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) { self.notes.push(number); }
//! }
//!
//! rehearse(|node| async move {
//!     let courier = node.courier(Bounds::default()).unwrap();
//!     let receipt = courier.send(Note(1)).unwrap(); // Nobody to send it to yet: it waits.
//!     let desk = node.spawn("desk", Desk::default()).unwrap();
//!     courier.retarget(&desk.pid());
//!     assert_eq!(receipt.await, Ok(()));
//! });
//! ```

mod body;
mod counts;
mod courier;
mod incoming;
#[cfg(test)]
mod laws;
mod outgoing;
mod receiver;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::codec::Garbled;
use crate::identity::{NodeId, Pid};
use crate::message::{BytesMut, Remote};
use crate::node::Node;
use crate::remote;

pub(crate) use body::Body;
pub(crate) use counts::Counts;
pub use courier::{Courier, Receipt};
pub use incoming::Incoming;
pub use receiver::{Held, take};

/// The longest that a courier keeps a message. Receivers remember a stream for twice as long, so that one that was
/// forgotten can hold nothing that was handled before.
pub const AGE_MAX: Duration = Duration::from_secs(3600);

/// How much a courier keeps for its receiver, and for how long. Whatever is above fails at once, and loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages that may wait for their acknowledgement. Default 65,536; at least one.
    pub messages: usize,
    /// Bytes of their bodies, in each shape that is kept until it is known who receives it. Default 16 MiB. A message that is larger by
    /// itself is never taken.
    pub bytes: usize,
    /// How long a message may wait before it is given up. Default 15 minutes, at most [`AGE_MAX`].
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

/// Why a message is not, or not known to be, delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// It was not taken, because too much waits already: say less, or wait until some of it is delivered.
    #[error("{messages} messages of {bytes} bytes wait already, and there is no room for more")]
    Full {
        /// How many messages wait.
        messages: usize,
        /// How many bytes they have.
        bytes: usize,
    },
    /// It has waited for too long and is given up. It may have been handled, if only its acknowledgement was lost.
    #[error("not acknowledged within {after:?}")]
    Expired {
        /// The age at which it was given up.
        after: Duration,
    },
    /// The receiver does not hear it, or cannot read it. It was not handled.
    #[error("refused: {reason}")]
    Refused {
        /// Which message, and why not.
        reason: String,
    },
    /// It was sent once, as it was to be, and not acknowledged. It may have been handled.
    #[error("sent once and not acknowledged")]
    Lost,
    /// The courier has ended. It may have been handled, if only its acknowledgement was lost.
    #[error("the courier has ended")]
    Ended,
}

/// These messages of one stream are to be handled, in this order, unless they have been.
///
/// Each keeps its own id and version and the bytes that it would have had as a plain tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbered {
    /// Who says it; an actor of the sending node.
    from: Pid,
    /// Which of its streams.
    stream: u64,
    /// The lowest number that is not acknowledged: all below are over, handled or given up.
    floor: u64,
    /// The number of the first of these.
    first: u64,
    /// `None` keeps the place of one that was sent before and is not to be sent again.
    messages: Vec<Option<Packed>>,
}

impl Numbered {
    /// Who says it: what [`Context::sender`](crate::Context::sender) will name as the sender of the messages in it.
    pub fn from(&self) -> &Pid {
        &self.from
    }
}

/// A message as it would stand in a frame of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Packed {
    id: u32,
    version: u16,
    body: Body,
    /// The same in older shapes, the newest of them first: which one is sent depends on who receives it. Never crosses the wire.
    #[serde(skip)]
    older: Vec<Packed>,
}

impl Packed {
    fn new<M: Remote>(message: &M) -> Result<Self, Garbled> {
        let pack = |version| {
            let mut body = BytesMut::new();
            message.encode_as(version, &mut body)?;
            Ok(Packed {
                id: M::ID,
                version,
                body: Body(body.freeze()),
                older: Vec::new(),
            })
        };
        let older = (M::OLDEST..M::VERSION).rev().map(pack);
        Ok(Packed {
            older: older.collect::<Result<_, Garbled>>()?,
            ..pack(M::VERSION)?
        })
    }

    /// The bytes of its bodies, in all shapes: what it costs while it waits.
    fn weight(&self) -> usize {
        let older = self.older.iter().map(Packed::weight);
        self.body.0.len() + older.sum::<usize>()
    }

    /// The bytes of its largest shape: what it may cost when it travels.
    fn length_max(&self) -> usize {
        let older = self.older.iter().map(Packed::length_max);
        older.fold(self.body.0.len(), usize::max)
    }

    /// In the shape that this node understands.
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

/// Everything of this stream below `next` is over for this receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The number wanted next.
    next: u64,
    /// Which of those since the floor were not handled, and why.
    refused: Vec<(u64, String)>,
}

/// Nothing of it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotTaken {
    /// The receiver cannot take it just now: send it again after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// It will never be taken as it is.
    #[error("{reason}")]
    Never {
        /// Names what was found and what was expected.
        reason: String,
    },
}

remote! { Numbered = "delivery/numbered" v1 -> Result<Taken, NotTaken> }
