//! The tap on links: what goes out to other nodes, and the replies that cross in either direction.
//!
//! What comes in besides replies is seen where it goes into a mailbox. What is held back is kept encoded and goes out over
//! the connection it was meant for; if that has closed meanwhile it is lost, as on any network.

use std::any::Any;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::ask::{AskError, Asking, Patience, TellError};
use crate::codec::{self, Garbled};
use crate::frame::{self, Head, Letter, Target};
use crate::identity::{NodeId, Pid};
use crate::link::{Connection, OnReply, untold};
use crate::message::{Lane, Remote};
use crate::node::Node;
use crate::outbox::Need;
use crate::supervise;
use crate::tap::post::{HELD_AT_LONGEST, Post, Slot};
use crate::tap::{Fate, Freight, Kind, Passing, Way, conduct, encode_any, slot_of};

impl Node {
    /// Tells an actor elsewhere what the tap lets pass.
    #[cold]
    pub(crate) fn tell_tapped<M: Remote>(&self, to: &Pid, message: M) -> Result<(), TellError> {
        let connection = self.connection(to.node()).ok_or(TellError::Gone)?;
        let (slot, fate) = self.show_outgoing(Kind::Tell, to, &message);
        if matches!(fate, Fate::Pass) {
            let told = connection.tell(to, &message);
            self.post().release(&slot);
            return told;
        }
        let outward = Outward::new(&connection, to, &message, None)?;
        conduct(self.post(), slot, fate, outward).unwrap_or(Ok(()))
    }

    /// Asks an actor elsewhere what the tap lets pass.
    #[cold]
    pub(crate) fn ask_tapped<M: Remote>(
        &self,
        connection: &Arc<Connection>,
        to: &Pid,
        message: &M,
        patience: Patience,
    ) -> Asking<M::Result> {
        let (reply, waiting) = oneshot::channel();
        let on_reply = self.on_reply_tapped::<M>(to, reply);
        connection.ask_with(self, patience, on_reply, waiting, |correlation| {
            let (slot, fate) = self.show_outgoing(Kind::Ask, to, message);
            if matches!(fate, Fate::Pass) {
                let asked = connection.write_letter(to, message, Some(correlation));
                self.post().release(&slot);
                return asked;
            }
            let outward = Outward::new(connection, to, message, Some(correlation))?;
            conduct(self.post(), slot, fate, outward).unwrap_or(Ok(()))
        })
    }

    /// Shows a message that a courier has taken.
    #[cold]
    pub(crate) fn show_numbered<M: Remote>(
        &self,
        from: Option<&Pid>,
        to: Option<&Pid>,
        message: &M,
    ) {
        let elsewhere = to.is_none_or(|pid| pid.node() != self.id());
        if !self.0.taps.sees(elsewhere) {
            return;
        }
        self.0.taps.fate(&Passing {
            at: self.clock().now(),
            node: self.id(),
            way: if elsewhere { Way::Outgoing } else { Way::Local },
            kind: Kind::Numbered,
            from,
            to,
            peer: to.map(Pid::node).filter(|_| elsewhere),
            name: M::NAME,
            body: message,
            encode: Some(encode_any::<M>),
        });
    }

    fn show_outgoing<M: Remote>(&self, kind: Kind, to: &Pid, message: &M) -> (Slot, Fate) {
        supervise::with_current(|current| {
            let passing = Passing {
                at: self.clock().now(),
                node: self.id(),
                way: Way::Outgoing,
                kind,
                from: current,
                to: Some(to),
                peer: Some(to.node()),
                name: M::NAME,
                body: message,
                encode: Some(encode_any::<M>),
            };
            (slot_of(&passing), self.0.taps.fate(&passing))
        })
    }

    /// What is done with the reply to a question that was asked while there was a tap.
    fn on_reply_tapped<M: Remote>(
        &self,
        from: &Pid,
        reply: oneshot::Sender<Result<M::Result, AskError>>,
    ) -> OnReply {
        let (node, from) = (self.downgrade(), from.clone());
        let asker = supervise::with_current(|current| current.cloned());
        Box::new(move |answer| {
            match (node.upgrade(), answer.read::<M::Result>()) {
                (Some(node), Ok(answer)) => {
                    let route = ReplyRoute {
                        lane: M::LANE,
                        from,
                        to: asker,
                        name: M::NAME,
                    };
                    let (slot, fate) = route.show(&node, route.from.node(), Way::Incoming, &answer);
                    conduct(node.post(), slot, fate, ReplyInward { answer, reply });
                }
                (_, answer) => drop(reply.send(answer)), // The asker may have lost patience.
            }
        })
    }
}

/// All of a letter but its body.
#[derive(Clone)]
struct Envelope {
    lane: Lane,
    id: u32,
    version: u16,
    to: Pid,
    from: Option<Pid>,
    correlation: Option<u64>,
}

impl Connection {
    /// Sends a message that was encoded before.
    fn write_encoded(
        &self,
        envelope: &Envelope,
        name: &'static str,
        body: &[u8],
    ) -> Result<(), TellError> {
        let letter = Letter {
            lane: envelope.lane,
            id: envelope.id,
            version: envelope.version,
            to: Target::of(&envelope.to),
            from: envelope.from.as_ref().map(|pid| frame::From {
                epoch: pid.node().epoch(),
                actor: Target::of(pid),
            }),
            correlation: envelope.correlation,
            body: &[],
        };
        let written = self.outbox.write(
            envelope.lane,
            Need::Refusable,
            Head::Letter(&letter),
            |buffer| {
                buffer.extend_from_slice(body);
                Ok(())
            },
        );
        written.map_err(|unwritten| untold(unwritten, name))
    }

    /// Answers with what was encoded before.
    fn answer_encoded(self: &Arc<Self>, lane: Lane, correlation: u64, body: &[u8]) {
        self.answer_with(lane, correlation, |buffer| {
            buffer.extend_from_slice(body);
            Ok(())
        });
    }
}

/// An encoded message on its way out.
#[derive(Clone)]
struct Outward {
    connection: Arc<Connection>,
    envelope: Envelope,
    name: &'static str,
    body: Bytes,
}

impl Outward {
    fn new<M: Remote>(
        connection: &Arc<Connection>,
        to: &Pid,
        message: &M,
        correlation: Option<u64>,
    ) -> Result<Self, TellError> {
        let (version, mut body) = (connection.version_of::<M>(), BytesMut::new());
        let encoded = message.encode_as(version, &mut body);
        encoded.map_err(|Garbled { reason }| TellError::Refused {
            reason: format!("{} {reason}", M::NAME),
        })?;
        Ok(Self {
            connection: connection.clone(),
            envelope: Envelope {
                lane: M::LANE,
                id: M::ID,
                version,
                to: to.clone(),
                from: supervise::with_current(|current| current.cloned()),
                correlation,
            },
            name: M::NAME,
            body: body.freeze(),
        })
    }
}

impl Freight for Outward {
    type Told = Result<(), TellError>;

    fn deliver(self) -> Self::Told {
        let Self {
            connection,
            envelope,
            name,
            body,
        } = self;
        let told = connection.write_encoded(&envelope, name, &body);
        if let (Err(error), Some(correlation)) = (&told, envelope.correlation) {
            connection.replied(correlation, Err(error.clone().into()));
        }
        told
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        Some(self.clone())
    }

    fn lose(self, post: &Arc<Post>) {
        if let Some(correlation) = self.envelope.correlation {
            let connection = self.connection;
            post.later(HELD_AT_LONGEST, move || {
                connection.replied(correlation, Err(AskError::Gone));
            });
        }
    }
}

/// Between whom a reply passes, and to which question.
pub(crate) struct ReplyRoute {
    pub(crate) lane: Lane,
    pub(crate) from: Pid,
    pub(crate) to: Option<Pid>,
    pub(crate) name: &'static str,
}

impl ReplyRoute {
    fn show<R: Serialize + 'static>(
        &self,
        node: &Node,
        peer: &NodeId,
        way: Way,
        answer: &R,
    ) -> (Slot, Fate) {
        let passing = Passing {
            at: node.clock().now(),
            node: node.id(),
            way,
            kind: Kind::Reply,
            from: Some(&self.from),
            to: self.to.as_ref(),
            peer: Some(peer),
            name: self.name,
            body: answer,
            encode: Some(encode_any::<R>),
        };
        (slot_of(&passing), node.0.taps.fate(&passing))
    }

    /// Shows a reply of this node to its tap, and sends it if it lets it.
    pub(crate) fn answer<R>(self, connection: Arc<Connection>, correlation: u64, answer: R)
    where
        R: Serialize + Send + 'static,
    {
        let Some(node) = connection.node.upgrade() else {
            return;
        };
        let (slot, fate) = self.show(&node, &connection.peer.node, Way::Outgoing, &answer);
        let freight = ReplyOutward {
            connection,
            lane: self.lane,
            correlation,
            answer: Answered::Plain(answer),
        };
        conduct(node.post(), slot, fate, freight);
    }
}

enum Answered<R> {
    Plain(R),
    Encoded(Bytes),
}

/// A reply to another node's question.
struct ReplyOutward<R> {
    connection: Arc<Connection>,
    lane: Lane,
    correlation: u64,
    answer: Answered<R>,
}

impl<R: Serialize + Send + 'static> Freight for ReplyOutward<R> {
    type Told = ();

    fn deliver(self) {
        match &self.answer {
            Answered::Plain(answer) => self.connection.answer(self.lane, self.correlation, answer),
            Answered::Encoded(bytes) => {
                self.connection
                    .answer_encoded(self.lane, self.correlation, bytes);
            }
        }
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        let bytes = match &self.answer {
            Answered::Plain(answer) => codec::encode(answer).ok()?.into(),
            Answered::Encoded(bytes) => bytes.clone(),
        };
        Some(Self {
            connection: self.connection.clone(),
            lane: self.lane,
            correlation: self.correlation,
            answer: Answered::Encoded(bytes),
        })
    }

    fn lose(self, post: &Arc<Post>) {
        post.later(HELD_AT_LONGEST, move || {
            self.connection.fail(self.correlation, AskError::Gone);
        });
    }
}

/// A reply to a question of this node.
struct ReplyInward<R> {
    answer: R,
    reply: oneshot::Sender<Result<R, AskError>>,
}

impl<R: Send + 'static> Freight for ReplyInward<R> {
    type Told = ();

    fn deliver(self) {
        let _ = self.reply.send(Ok(self.answer)); // The asker may have lost patience.
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        None // A question takes one reply.
    }

    fn lose(self, post: &Arc<Post>) {
        post.later(HELD_AT_LONGEST, move || drop(self.reply));
    }
}
