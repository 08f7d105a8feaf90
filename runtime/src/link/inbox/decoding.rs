//! Decoding of bulks on another thread and outside the inbox's lock, so that pings pass meanwhile.
//!
//! The place of a bulk stays at the front of its queue while it is decoded, so later messages for
//! the same actor wait behind it. When it is decoded and the link still exists, it is delivered as
//! if it had just arrived. In simulations it is decoded inline. Bulks being decoded are counted in
//! the inbox.

use std::any::Any;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::actor::mailbox::Weight;
use crate::clock;
use crate::link::{Decode, ReplyOutcome};

/// A bulk that has been decoded, or could not be.
pub(super) struct Decoded {
    token: u64,
    size: usize,
    purpose: Purpose,
    product: Result<Box<dyn Any + Send>, Garbled>,
}

/// The purpose of a bulk.
enum Purpose {
    Message(PendingDelivery),
    Reply { correlation: u64 },
}

/// A message with reserved room in its actor's mailbox.
struct PendingDelivery {
    queue: Queue,
    entry: Arc<Entry>,
    id: u32,
    version: u16,
    sender: Arc<Sender>,
    lane: Lane,
    correlation: Option<u64>,
    weight: Option<Weight>,
}

/// Whether an actor has room for a message.
enum Admission {
    Room {
        entry: Arc<Entry>,
        decode: Decode,
        weight: Option<Weight>,
    },
    NoRoom(Arc<Entry>),
}

impl Delivery<'_> {
    /// Starts to decode the body of the next message in this queue, unless its actor does not
    /// accept it, or not now.
    pub(super) fn decode(
        &mut self,
        queue: Queue,
        token: u64,
        header: &[u8],
        body: Bytes,
    ) -> Result<Delivered, Garbled> {
        let Frame::Message(message) = Frame::read(header)? else {
            return Ok(Delivered::Done);
        };
        let sender = self.inbox.sender(message.from)?;
        // An ask waits only behind messages that wait already.
        let may_wait = message.correlation.is_none() || self.inbox.full.contains(&queue);
        let (entry, decode, weight) = match self.admit(&message, body.len(), may_wait) {
            Ok(Admission::Room {
                entry,
                decode,
                weight,
            }) => (entry, decode, weight),
            Ok(Admission::NoRoom(entry)) => return Ok(Delivered::NoRoom(entry, body.len())),
            Err(error) => {
                self.inbox.undelivered.remove(&token);
                self.refuse(&message, error);
                return Ok(Delivered::Done);
            }
        };
        let size = header.len() + body.len();
        if let Some(waiting) = self.inbox.held.get_mut(&queue) {
            waiting.push_front(Held::Decoding(size));
        }
        self.inbox.held_bytes += size;
        self.inbox.decoding_bytes += size;
        let pending = PendingDelivery {
            queue,
            entry,
            id: message.id,
            version: message.version,
            sender,
            lane: message.lane,
            correlation: message.correlation,
            weight,
        };
        if let Some(decoded) = self.begin(token, size, Purpose::Message(pending), decode, body) {
            self.deliver_decoded(decoded)?;
        }
        Ok(Delivered::Done)
    }

    /// Starts to decode a reply, if a caller waits for it.
    pub(super) fn reply(
        &mut self,
        token: u64,
        correlation: u64,
        body: Bytes,
    ) -> Result<(), Garbled> {
        let Some(decode) = self.connection.decoder(correlation) else {
            self.inbox.undelivered.remove(&token);
            self.connection.replied(correlation, Ok(&body));
            return Ok(());
        };
        let size = body.len();
        self.inbox.decoding_bytes += size;
        self.inbox.grow(size)?;
        let purpose = Purpose::Reply { correlation };
        match self.begin(token, size, purpose, decode, body) {
            Some(decoded) => self.deliver_decoded(decoded),
            None => Ok(()),
        }
    }

    /// Reserves room for this message's body, and returns all that is needed to deliver it later,
    /// or the reason for its refusal.
    fn admit(
        &mut self,
        message: &MessageFrame<'_>,
        bytes: usize,
        may_wait: bool,
    ) -> Result<Admission, AskError> {
        if message.correlation.is_some() && !self.connection.may_answer() {
            return Err(AskError::Full);
        }
        let Some(entry) = self.find(message).cloned() else {
            self.node.counts().unknown_process();
            return Err(AskError::Gone);
        };
        let handler = self.handler(&entry, message)?;
        let decode = handler.decode;
        let waits = may_wait && handler.overflow == Overflow::Wait;
        if waits && message.lane == Lane::Ordinary && entry.meter.is_full() {
            return Ok(Admission::NoRoom(entry));
        }
        match entry.meter.weigh(bytes) {
            Ok(weight) => Ok(Admission::Room {
                entry,
                decode,
                weight,
            }),
            Err(MailboxError::Full) if waits => Ok(Admission::NoRoom(entry)),
            Err(error) => {
                let error = error.into();
                self.note_rejected(&entry, handler, &error);
                Err(error.into())
            }
        }
    }

    /// Starts to decode it; returns the result if that happened inline.
    fn begin(
        &self,
        token: u64,
        size: usize,
        purpose: Purpose,
        decode: Decode,
        body: Bytes,
    ) -> Option<Decoded> {
        // The body is dropped on the decoding thread: freeing much memory takes time as well.
        let work = self.node.blocking(move || decode(&body));
        let mut work = Box::pin(async move {
            let product = work
                .await
                .unwrap_or_else(|interrupted| Err(Garbled::new(interrupted.to_string())));
            Decoded {
                token,
                size,
                purpose,
                product,
            }
        });
        let now = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(decoded) = now {
            return Some(decoded);
        }
        let decoding = self.connection.begin_decoding();
        tokio::spawn(async move {
            let decoded = work.await;
            clock::moved();
            let connection = decoding.connection();
            if let Err(garbled) = Inbox::deliver_decoded(connection, decoded) {
                connection.note_garbled(&garbled);
                connection.close(&garbled.reason);
            }
        });
        None
    }

    /// Delivers a bulk that was decoded on another thread, and then the messages that waited for
    /// it.
    pub(super) fn decoded(&mut self, decoded: Decoded) -> Result<(), Garbled> {
        let queue = match &decoded.purpose {
            Purpose::Message(pending) => Some(pending.queue),
            Purpose::Reply { .. } => None,
        };
        self.deliver_decoded(decoded)?;
        if let Some(queue) = queue {
            self.release(queue)?;
        }
        self.release_exits()
    }

    fn deliver_decoded(&mut self, decoded: Decoded) -> Result<(), Garbled> {
        let Decoded {
            token,
            size,
            purpose,
            product,
        } = decoded;
        self.inbox.undelivered.remove(&token);
        self.inbox.held_bytes -= size;
        self.inbox.decoding_bytes -= size;
        match purpose {
            Purpose::Message(pending) => {
                if let Some(waiting) = self.inbox.held.get_mut(&pending.queue) {
                    waiting.pop_front(); // its own place
                }
                self.deliver_message(pending, product)
            }
            Purpose::Reply { correlation } => {
                let answer = match product {
                    Ok(reply) => ReplyOutcome::Decoded(reply),
                    Err(Garbled { reason }) => ReplyOutcome::Failed(AskError::Garbled { reason }),
                };
                self.connection.answered(correlation, answer);
                Ok(())
            }
        }
    }

    fn deliver_message(
        &mut self,
        pending: PendingDelivery,
        product: Result<Box<dyn Any + Send>, Garbled>,
    ) -> Result<(), Garbled> {
        let PendingDelivery {
            entry,
            id,
            version,
            sender,
            lane,
            correlation,
            weight,
            ..
        } = pending;
        let Some(handler) = entry.handlers.handler(id, version) else {
            return Ok(()); // it existed when the message was admitted
        };
        let message = product.map_err(|garbled| handler.with_name(garbled))?;
        let answer = correlation.map(|correlation| Answer {
            connection: self.connection.clone(),
            lane,
            correlation,
            tapped: None,
        });
        let result = with_weight(weight, || {
            handler.enqueue_decoded(&*entry.body, message, sender, answer)
        });
        match result {
            Ok(()) => Ok(()),
            Err(EnqueueError::Garbled(garbled)) => Err(handler.with_name(garbled)),
            Err(EnqueueError::Rejected(error)) => {
                tracing::debug!(peer = %self.connection.peer.node, to = %entry.pid, %error, "message refused");
                self.note_rejected(&entry, handler, &error);
                if error == TellError::Full
                    && correlation.is_none()
                    && handler.overflow == Overflow::Wait
                {
                    // It was admitted and cannot wait any more: a large ping, or a tap dropped it.
                    self.mailbox_is_full(&entry, Overflow::CloseLink);
                }
                self.fail(correlation, error.into());
                Ok(())
            }
        }
    }
}
