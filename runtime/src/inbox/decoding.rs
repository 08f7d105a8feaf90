//! Decoding bulks: away from the thread that serves their connection, and outside the inbox's lock, so that pings go by meanwhile.
//!
//! The place of a bulk stays at the front of its queue while it is decoded, and with it all that came later for the same actor. Whoever has
//! decoded it comes back with it, and if the link is still there it is heard as if it had just come. In rehearsals it is decoded on the
//! spot. Remembers nothing: what is being decoded is counted in the inbox, where its place is.

use std::any::Any;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock;
use crate::link::{Answered, Decode};
use crate::mailbox::Weight;

/// A bulk that has been decoded, or could not be.
pub(super) struct Decoded {
    token: u64,
    size: usize,
    purpose: Purpose,
    product: Result<Box<dyn Any + Send>, Garbled>,
}

/// What is done with it then.
enum Purpose {
    Letter(Opening),
    Reply { correlation: u64 },
}

/// A letter for whose body an actor has room.
struct Opening {
    queue: Queue,
    entry: Arc<Entry>,
    id: u32,
    version: u16,
    sender: Arc<Sender>,
    lane: Lane,
    correlation: Option<u64>,
    weight: Option<Weight>,
}

/// Whether an actor has room for a letter.
enum Admission {
    Room {
        entry: Arc<Entry>,
        decode: Decode,
        weight: Option<Weight>,
    },
    NoRoom(Arc<Entry>),
}

impl Delivery<'_> {
    /// Begins to decode the body of the letter that is next in this queue, unless its actor does not take it anyway, or not now.
    pub(super) fn decode(
        &mut self,
        queue: Queue,
        token: u64,
        header: &[u8],
        body: Bytes,
    ) -> Result<Opened, Garbled> {
        let Frame::Letter(letter) = Frame::read(header)? else {
            return Ok(Opened::Done);
        };
        let sender = self.inbox.sender(letter.from)?;
        // A question waits only behind what waits already.
        let may_wait = letter.correlation.is_none() || self.inbox.full.contains(&queue);
        let (entry, decode, weight) = match self.admit(&letter, body.len(), may_wait) {
            Ok(Admission::Room {
                entry,
                decode,
                weight,
            }) => (entry, decode, weight),
            Ok(Admission::NoRoom(entry)) => return Ok(Opened::NoRoom(entry, body.len())),
            Err(error) => {
                self.inbox.unheard.remove(&token);
                self.refuse(&letter, error);
                return Ok(Opened::Done);
            }
        };
        let size = header.len() + body.len();
        if let Some(waiting) = self.inbox.held.get_mut(&queue) {
            waiting.push_front(Held::Decoding(size));
        }
        self.inbox.held_bytes += size;
        self.inbox.decoding_bytes += size;
        let opening = Opening {
            queue,
            entry,
            id: letter.id,
            version: letter.version,
            sender,
            lane: letter.lane,
            correlation: letter.correlation,
            weight,
        };
        if let Some(decoded) = self.begin(token, size, Purpose::Letter(opening), decode, body) {
            self.hear(decoded)?;
        }
        Ok(Opened::Done)
    }

    /// Begins to decode a reply, if anybody waits for it.
    pub(super) fn reply(
        &mut self,
        token: u64,
        correlation: u64,
        body: Bytes,
    ) -> Result<(), Garbled> {
        let Some(decode) = self.connection.decoder(correlation) else {
            self.inbox.unheard.remove(&token);
            self.connection.replied(correlation, Ok(&body));
            return Ok(());
        };
        let size = body.len();
        self.inbox.decoding_bytes += size;
        self.inbox.grow(size)?;
        let purpose = Purpose::Reply { correlation };
        match self.begin(token, size, purpose, decode, body) {
            Some(decoded) => self.hear(decoded),
            None => Ok(()),
        }
    }

    /// What is needed to open this letter later, with room taken for its body; or why it will not be opened.
    fn admit(
        &mut self,
        letter: &Letter<'_>,
        bytes: usize,
        may_wait: bool,
    ) -> Result<Admission, AskError> {
        if letter.correlation.is_some() && !self.connection.may_answer() {
            return Err(AskError::Full);
        }
        let Some(entry) = self.find(letter).cloned() else {
            self.node.counts().unknown_process();
            return Err(AskError::Gone);
        };
        let ear = self.ear(&entry, letter)?;
        let decode = ear.decode;
        let waits = may_wait && ear.overflow == Overflow::Wait;
        if waits && letter.lane == Lane::Ordinary && entry.meter.is_full() {
            return Ok(Admission::NoRoom(entry));
        }
        match entry.meter.weigh(bytes) {
            Ok(weight) => Ok(Admission::Room {
                entry,
                decode,
                weight,
            }),
            Err(Unwanted::Full) if waits => Ok(Admission::NoRoom(entry)),
            Err(unwanted) => {
                let error = unwanted.into();
                self.note_untold(&entry, ear, &error);
                Err(error.into())
            }
        }
    }

    /// Has it decoded; gives it back if that was done on the spot.
    fn begin(
        &self,
        token: u64,
        size: usize,
        purpose: Purpose,
        decode: Decode,
        body: Bytes,
    ) -> Option<Decoded> {
        // The body is let go where it was decoded: giving back so much memory takes its time as well.
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

    /// Hears a bulk that was decoded elsewhere, and then what waited for it.
    pub(super) fn decoded(&mut self, decoded: Decoded) -> Result<(), Garbled> {
        let queue = match &decoded.purpose {
            Purpose::Letter(opening) => Some(opening.queue),
            Purpose::Reply { .. } => None,
        };
        self.hear(decoded)?;
        if let Some(queue) = queue {
            self.release(queue)?;
        }
        self.release_exits()
    }

    fn hear(&mut self, decoded: Decoded) -> Result<(), Garbled> {
        let Decoded {
            token,
            size,
            purpose,
            product,
        } = decoded;
        self.inbox.unheard.remove(&token);
        self.inbox.held_bytes -= size;
        self.inbox.decoding_bytes -= size;
        match purpose {
            Purpose::Letter(opening) => {
                if let Some(waiting) = self.inbox.held.get_mut(&opening.queue) {
                    waiting.pop_front(); // its own place
                }
                self.hear_letter(opening, product)
            }
            Purpose::Reply { correlation } => {
                let answer = match product {
                    Ok(reply) => Answered::Decoded(reply),
                    Err(Garbled { reason }) => Answered::Failed(AskError::Garbled { reason }),
                };
                self.connection.answered(correlation, answer);
                Ok(())
            }
        }
    }

    fn hear_letter(
        &mut self,
        opening: Opening,
        product: Result<Box<dyn Any + Send>, Garbled>,
    ) -> Result<(), Garbled> {
        let Opening {
            entry,
            id,
            version,
            sender,
            lane,
            correlation,
            weight,
            ..
        } = opening;
        let Some(ear) = entry.ears.ear(id, version) else {
            return Ok(()); // it was there when the letter was admitted
        };
        let message = product.map_err(|garbled| ear.blame(garbled))?;
        let answer = correlation.map(|correlation| Answer {
            connection: self.connection.clone(),
            lane,
            correlation,
            tapped: None,
        });
        let heard = weighing(weight, || {
            ear.hear_decoded(&*entry.body, message, sender, answer)
        });
        match heard {
            Ok(()) => Ok(()),
            Err(Unheard::Garbled(garbled)) => Err(ear.blame(garbled)),
            Err(Unheard::Told(error)) => {
                tracing::debug!(peer = %self.connection.peer.node, to = %entry.pid, %error, "message not taken");
                self.note_untold(&entry, ear, &error);
                if error == TellError::Full
                    && correlation.is_none()
                    && ear.overflow == Overflow::Wait
                {
                    // It was admitted, and cannot wait any more: a large ping, or a tap lost it.
                    self.mailbox_is_full(&entry, Overflow::CloseLink);
                }
                self.fail(correlation, error.into());
                Ok(())
            }
        }
    }
}
