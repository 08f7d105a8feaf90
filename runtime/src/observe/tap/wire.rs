//! The tap on links: outgoing messages, and the replies that cross in either direction.
//!
//! Other incoming messages are seen at the mailbox. Delayed messages are kept encoded and sent over
//! their original connection; if that has closed meanwhile they are lost, as on any network.

use std::any::Any;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::actor::ask::{AskError, Asking, Patience, TellError};
use crate::actor::supervise;
use crate::identity::{NodeId, Pid};
use crate::link::outbox::Need;
use crate::link::{Connection, OnReply, tell_error};
use crate::node::Node;
use crate::observe::tap::delay_queue::{DelayQueue, HOLD_MAX, SwapSlot};
use crate::observe::tap::{
    Fate, Intercepted, Kind, Passing, Way, apply_fate, encode_any, swap_slot_of,
};
use crate::wire::codec::{self, Garbled};
use crate::wire::frame::{self, Head, MessageFrame, Target};
use crate::wire::message::{Lane, Remote};

impl Node {
    /// Tells an actor of another node, by way of the tap.
    #[cold]
    pub(crate) fn tell_tapped<M: Remote>(&self, to: &Pid, message: M) -> Result<(), TellError> {
        let connection = self.connection(to.node()).ok_or(TellError::Gone)?;
        let (slot, fate) = self.show_outgoing(Kind::Tell, to, &message);
        if matches!(fate, Fate::Pass) {
            let result = connection.tell(to, &message);
            self.delay_queue().release(&slot);
            return result;
        }
        let outbound = OutboundMessage::new(&connection, to, &message, None)?;
        apply_fate(self.delay_queue(), slot, fate, outbound).unwrap_or(Ok(()))
    }

    /// Asks an actor of another node, by way of the tap.
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
                let asked = connection.write_message(to, message, Some(correlation));
                self.delay_queue().release(&slot);
                return asked;
            }
            let outbound = OutboundMessage::new(connection, to, message, Some(correlation))?;
            apply_fate(self.delay_queue(), slot, fate, outbound).unwrap_or(Ok(()))
        })
    }

    /// Shows a message that a reliable sender has accepted.
    #[cold]
    pub(crate) fn show_sequenced<M: Remote>(
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
            kind: Kind::Sequenced,
            from,
            to,
            peer: to.map(Pid::node).filter(|_| elsewhere),
            name: M::NAME,
            body: message,
            encode: Some(encode_any::<M>),
        });
    }

    fn show_outgoing<M: Remote>(&self, kind: Kind, to: &Pid, message: &M) -> (SwapSlot, Fate) {
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
            (swap_slot_of(&passing), self.0.taps.fate(&passing))
        })
    }

    /// The continuation of an ask that was sent while there was a tap.
    fn on_reply_tapped<M: Remote>(
        &self,
        from: &Pid,
        reply: oneshot::Sender<Result<M::Result, AskError>>,
    ) -> OnReply {
        let (node, from) = (self.downgrade(), from.clone());
        let caller = supervise::with_current(|current| current.cloned());
        Box::new(move |answer| {
            match (node.upgrade(), answer.read::<M::Result>()) {
                (Some(node), Ok(answer)) => {
                    let route = ReplyRoute {
                        lane: M::LANE,
                        from,
                        to: caller,
                        name: M::NAME,
                    };
                    let (slot, fate) = route.show(&node, route.from.node(), Way::Incoming, &answer);
                    apply_fate(
                        node.delay_queue(),
                        slot,
                        fate,
                        InboundReply { answer, reply },
                    );
                }
                (_, answer) => drop(reply.send(answer)), // The caller may have stopped waiting.
            }
        })
    }
}

/// The header of a message.
#[derive(Clone)]
struct MessageHeader {
    lane: Lane,
    id: u32,
    version: u16,
    to: Pid,
    from: Option<Pid>,
    correlation: Option<u64>,
}

impl Connection {
    /// Sends an encoded message.
    fn write_encoded(
        &self,
        addressing: &MessageHeader,
        name: &'static str,
        body: &[u8],
    ) -> Result<(), TellError> {
        let header = MessageFrame {
            lane: addressing.lane,
            id: addressing.id,
            version: addressing.version,
            to: Target::of(&addressing.to),
            from: addressing.from.as_ref().map(|pid| frame::Origin {
                epoch: pid.node().epoch(),
                actor: Target::of(pid),
            }),
            correlation: addressing.correlation,
            body: &[],
        };
        let written = self.outbox.write(
            addressing.lane,
            Need::Refusable,
            Head::Message(&header),
            |buffer| {
                buffer.extend_from_slice(body);
                Ok(())
            },
        );
        written.map_err(|unwritten| tell_error(unwritten, name))
    }

    /// Sends an encoded reply.
    fn answer_encoded(self: &Arc<Self>, lane: Lane, correlation: u64, body: &[u8]) {
        self.answer_with(lane, correlation, |buffer| {
            buffer.extend_from_slice(body);
            Ok(())
        });
    }
}

/// An encoded message on its way out.
#[derive(Clone)]
struct OutboundMessage {
    connection: Arc<Connection>,
    addressing: MessageHeader,
    name: &'static str,
    body: Bytes,
}

impl OutboundMessage {
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
            addressing: MessageHeader {
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

impl Intercepted for OutboundMessage {
    type Output = Result<(), TellError>;

    fn deliver(self) -> Self::Output {
        let Self {
            connection,
            addressing,
            name,
            body,
        } = self;
        let result = connection.write_encoded(&addressing, name, &body);
        if let (Err(error), Some(correlation)) = (&result, addressing.correlation) {
            connection.replied(correlation, Err(error.clone().into()));
        }
        result
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        Some(self.clone())
    }

    fn lose(self, delay_queue: &Arc<DelayQueue>) {
        if let Some(correlation) = self.addressing.correlation {
            let connection = self.connection;
            delay_queue.later(HOLD_MAX, move || {
                connection.replied(correlation, Err(AskError::Gone));
            });
        }
    }
}

/// The two ends of a reply, and the name of its ask.
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
    ) -> (SwapSlot, Fate) {
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
        (swap_slot_of(&passing), node.0.taps.fate(&passing))
    }

    /// Shows a reply of this node to its tap, and applies its fate.
    pub(crate) fn answer<R>(self, connection: Arc<Connection>, correlation: u64, answer: R)
    where
        R: Serialize + Send + 'static,
    {
        let Some(node) = connection.node.upgrade() else {
            return;
        };
        let (slot, fate) = self.show(&node, &connection.peer.node, Way::Outgoing, &answer);
        let message = OutboundReply {
            connection,
            lane: self.lane,
            correlation,
            answer: ReplyBody::Plain(answer),
        };
        apply_fate(node.delay_queue(), slot, fate, message);
    }
}

enum ReplyBody<R> {
    Plain(R),
    Encoded(Bytes),
}

/// A reply to another node's ask.
struct OutboundReply<R> {
    connection: Arc<Connection>,
    lane: Lane,
    correlation: u64,
    answer: ReplyBody<R>,
}

impl<R: Serialize + Send + 'static> Intercepted for OutboundReply<R> {
    type Output = ();

    fn deliver(self) {
        match &self.answer {
            ReplyBody::Plain(answer) => self.connection.answer(self.lane, self.correlation, answer),
            ReplyBody::Encoded(bytes) => {
                self.connection
                    .answer_encoded(self.lane, self.correlation, bytes);
            }
        }
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        let bytes = match &self.answer {
            ReplyBody::Plain(answer) => codec::encode(answer).ok()?.into(),
            ReplyBody::Encoded(bytes) => bytes.clone(),
        };
        Some(Self {
            connection: self.connection.clone(),
            lane: self.lane,
            correlation: self.correlation,
            answer: ReplyBody::Encoded(bytes),
        })
    }

    fn lose(self, delay_queue: &Arc<DelayQueue>) {
        delay_queue.later(HOLD_MAX, move || {
            self.connection.fail(self.correlation, AskError::Gone);
        });
    }
}

/// A reply to an ask of this node.
struct InboundReply<R> {
    answer: R,
    reply: oneshot::Sender<Result<R, AskError>>,
}

impl<R: Send + 'static> Intercepted for InboundReply<R> {
    type Output = ();

    fn deliver(self) {
        let _ = self.reply.send(Ok(self.answer)); // The caller may have stopped waiting.
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        None // An ask takes one reply.
    }

    fn lose(self, delay_queue: &Arc<DelayQueue>) {
        delay_queue.later(HOLD_MAX, move || drop(self.reply));
    }
}
