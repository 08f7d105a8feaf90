//! The queues of an inbox. A large message is announced in order and comes on a stream of its own;
//! later messages to the same actor wait for it here. So do messages behind one that waits for room
//! in its mailbox.
//!
//! A later message never overtakes an announced one. The inbox's bounds apply.

use super::*;

/// Maximum bytes that wait for bulks or room, including the overhead of each message.
const HELD_MAX: usize = 2 * BODY_MAX;
/// The overhead of a waiting message: its place in a queue that doubles when it is full, and the
/// heap's own. Without it, a million tiny tells would take many times the counted memory.
const HELD_OVERHEAD: usize = 2 * size_of::<Held>() + 16;
/// Maximum number of bulks in transit, waiting or being decoded.
const BULKS_MAX: usize = 2048;

pub(super) enum Held {
    /// The place of a bulk that has not arrived.
    Awaited(u64),
    /// A bulk that has arrived while an earlier one is not delivered.
    Arrived {
        token: u64,
        header: Vec<u8>,
        body: Bytes,
    },
    /// The place of a bulk of this size that is being decoded. It is always the first.
    Decoding(usize),
    /// An ordinary frame.
    Frame(Vec<u8>),
    /// The position of the exit with this number.
    Exit(u64),
}

impl Held {
    fn size(&self) -> usize {
        match self {
            Held::Awaited(_) | Held::Exit(_) => 0,
            Held::Arrived { header, body, .. } => kept(header.len() + body.len()),
            Held::Decoding(size) => *size,
            Held::Frame(frame) => kept(frame.len()),
        }
    }
}

/// The memory of a waiting message of this many bytes.
pub(super) fn kept(bytes: usize) -> usize {
    bytes + HELD_OVERHEAD
}

impl Inbox {
    pub(super) fn hold(&mut self, queue: Queue, held: Held) -> Result<(), Garbled> {
        self.grow(held.size())?;
        self.held.entry(queue).or_default().push_back(held);
        Ok(())
    }

    /// Puts it into its place in a queue; without one at the end.
    fn put(&mut self, queue: Queue, place: Option<usize>, held: Held) -> Result<(), Garbled> {
        let Some(place) = place else {
            return self.hold(queue, held);
        };
        self.grow(held.size())?;
        if let Some(awaited) = self.held.get_mut(&queue).and_then(|it| it.get_mut(place)) {
            *awaited = held;
        }
        Ok(())
    }

    /// Counts additional bytes. Bulks being decoded have some room of their own: before, they were
    /// in the room of the transport's reader.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Garbled> {
        self.held_bytes += bytes;
        if self.held_bytes > HELD_MAX + self.decoding_bytes.min(BODY_MAX) {
            return Err(Garbled::new(format!(
                "more than {HELD_MAX} bytes wait for a bulk or for room in a mailbox"
            )));
        }
        Ok(())
    }

    /// Keeps an exit until all messages received before it have been delivered.
    pub(super) fn hold_exit(&mut self, frame: &[u8]) -> Result<(), Garbled> {
        self.grow(kept(frame.len()))?;
        self.exits_numbered += 1;
        let mut queues = 0;
        for queue in &self.full {
            if let Some(waiting) = self.held.get_mut(queue) {
                waiting.push_back(Held::Exit(self.exits_numbered));
                queues += 1;
            }
        }
        self.exits.push_back(WaitingExit {
            number: self.exits_numbered,
            newest_bulk: self.undelivered.last().copied().unwrap_or(0),
            queues,
            frame: frame.to_vec(),
        });
        Ok(())
    }

    /// A queue has reached this exit.
    fn passed_exit(&mut self, number: u64) {
        if let Ok(place) = self.exits.binary_search_by_key(&number, |exit| exit.number) {
            let exit = &mut self.exits[place];
            exit.queues = exit.queues.saturating_sub(1);
        }
    }
}

/// How many messages of a queue were delivered, and the actor without room for the next, with its
/// size in bytes.
pub(super) type Released = (usize, Option<(Arc<Entry>, usize)>);

impl Delivery<'_> {
    pub(super) fn announced(
        &mut self,
        token: u64,
        length: u64,
        header: &[u8],
    ) -> Result<(), Garbled> {
        if length > BODY_MAX as u64 {
            return Err(Garbled::new(format!(
                "bulk of {length} bytes, expected at most {BODY_MAX}"
            )));
        }
        if self.inbox.undelivered.len() >= BULKS_MAX || self.inbox.undelivered.contains(&token) {
            return Err(Garbled::new(format!(
                "bulk {token} is announced twice or is one of too many"
            )));
        }
        match Frame::read(header)? {
            Frame::Message(message) => {
                // A bulk to an unknown actor is read and dropped on arrival; no message waits for
                // it.
                if let Some(entry) = self.find(&message) {
                    let queue = (message.lane, entry.pid.incarnation());
                    self.inbox.hold(queue, Held::Awaited(token))?;
                }
            }
            Frame::Reply { outcome: Ok(_), .. } => {}
            other => return Err(Garbled::new(format!("bulk announced for {other:?}"))),
        }
        self.inbox.grow(header.len())?;
        self.inbox.undelivered.insert(token);
        self.inbox
            .announced
            .insert(token, (header.to_vec(), length));
        match self.inbox.early.remove(&token) {
            Some(body) => {
                self.inbox.held_bytes -= body.len();
                self.bulk(token, body)
            }
            None => Ok(()),
        }
    }

    pub(super) fn bulk(&mut self, token: u64, body: Bytes) -> Result<(), Garbled> {
        let Some((header, length)) = self.inbox.announced.remove(&token) else {
            if self.inbox.early.len() >= BULKS_MAX || self.inbox.early.contains_key(&token) {
                return Err(Garbled::new(format!(
                    "bulk {token} came twice or is one of too many"
                )));
            }
            self.inbox.grow(body.len())?;
            self.inbox.early.insert(token, body);
            return Ok(());
        };
        self.inbox.held_bytes -= header.len();
        if body.len() as u64 != length {
            let reason = format!(
                "bulk {token} has {} bytes, announced were {length}",
                body.len()
            );
            return Err(Garbled { reason });
        }
        match Frame::read(&header)? {
            Frame::Reply { correlation, .. } => self.reply(token, correlation, body)?,
            Frame::Message(message) => {
                let place = self.place_of(token);
                let to = self.find(&message).map(|entry| entry.pid.incarnation());
                match (place, to) {
                    (None, None) => {
                        self.inbox.undelivered.remove(&token);
                        let body = &body[..];
                        // Its actor has ended; the sender is notified.
                        self.deliver(&MessageFrame { body, ..message }, false)?;
                    }
                    (place, to) => {
                        let queue = place
                            .map_or((message.lane, to.unwrap_or_default()), |(queue, _)| queue);
                        let arrived = Held::Arrived {
                            token,
                            header,
                            body,
                        };
                        self.inbox.put(queue, place.map(|(_, at)| at), arrived)?;
                        self.release(queue)?;
                    }
                }
            }
            _ => {}
        }
        self.release_exits()
    }

    /// The queue and the position of the bulk.
    pub(super) fn place_of(&self, token: u64) -> Option<(Queue, usize)> {
        self.inbox.held.iter().find_map(|(queue, waiting)| {
            let place = waiting
                .iter()
                .position(|held| matches!(held, Held::Awaited(other) if *other == token));
            place.map(|place| (*queue, place))
        })
    }

    /// Delivers the waiting messages of this actor, up to the next bulk that has not arrived or
    /// must be decoded first, or to the next message without room.
    pub(super) fn release(&mut self, queue: Queue) -> Result<(), Garbled> {
        if let (_, Some((entry, size))) = self.release_until_full(queue)? {
            self.wait_for_room(queue, entry, size);
        }
        Ok(())
    }

    /// As `release`, and returns how many messages were delivered, and the actor without room for
    /// the next, with its size in bytes.
    pub(super) fn release_until_full(&mut self, queue: Queue) -> Result<Released, Garbled> {
        let mut count = 0;
        loop {
            let Some(waiting) = self.inbox.held.get_mut(&queue) else {
                return Ok((count, None));
            };
            if let Some(Held::Awaited(_) | Held::Decoding(_)) = waiting.front() {
                return Ok((count, None));
            }
            let Some(held) = waiting.pop_front() else {
                self.inbox.held.remove(&queue);
                return Ok((count, None));
            };
            self.inbox.held_bytes -= held.size();
            match self.deliver_held(queue, &held)? {
                Delivered::Done => count += 1,
                Delivered::NoRoom(entry, size) => {
                    self.inbox.held_bytes += held.size();
                    if let Some(waiting) = self.inbox.held.get_mut(&queue) {
                        waiting.push_front(held);
                    }
                    return Ok((count, Some((entry, size))));
                }
            }
        }
    }

    fn deliver_held(&mut self, queue: Queue, held: &Held) -> Result<Delivered, Garbled> {
        match held {
            Held::Frame(frame) => match Frame::read(frame)? {
                // Asks wait here too: a refusal now would be due to the messages before it.
                Frame::Message(message) => self.deliver(&message, true),
                _ => Ok(Delivered::Done),
            },
            Held::Arrived {
                token,
                header,
                body,
            } => self.decode(queue, *token, header, body.clone()),
            Held::Exit(number) => {
                self.inbox.passed_exit(*number);
                Ok(Delivered::Done)
            }
            Held::Awaited(_) | Held::Decoding(_) => Ok(Delivered::Done),
        }
    }

    /// Handles the exits before which every message has been delivered.
    pub(super) fn release_exits(&mut self) -> Result<(), Garbled> {
        while let Some(exit) = self.inbox.exits.front() {
            let oldest_bulk = self.inbox.undelivered.first();
            if exit.queues > 0 || oldest_bulk.is_some_and(|oldest| *oldest <= exit.newest_bulk) {
                return Ok(());
            }
            let Some(WaitingExit { frame, .. }) = self.inbox.exits.pop_front() else {
                return Ok(());
            };
            self.inbox.held_bytes -= kept(frame.len());
            if let Frame::Exited { of, reason } = Frame::read(&frame)? {
                let pid = Pid::new(of.name, self.connection.peer.node.clone(), of.incarnation);
                self.node.ended_elsewhere(&pid, &reason);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{NodeId, Role};

    /// The memory of the queue itself for this many messages, plus their own bytes.
    #[test]
    fn waiting_messages_are_counted_with_overhead() {
        let mut inbox = Inbox::new(&Peer {
            node: NodeId::new("peer", 1),
            role: Role::Agent,
            address: String::new(),
        });
        for count in 1..=1000 {
            let queue = (Lane::Ordinary, 1);
            inbox.hold(queue, Held::Frame(vec![0; 8])).unwrap();
            let places = inbox.held[&queue].capacity() * size_of::<Held>();
            assert!(
                inbox.held_bytes >= places.min(2 * count * size_of::<Held>()) + count * 8,
                "{count} messages take {places} bytes of places, counted are {}",
                inbox.held_bytes
            );
        }
    }
}
