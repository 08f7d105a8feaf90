//! The queues of an inbox. A large message is announced in order, comes on a stream of its own, and whatever follows it to the same actor
//! waits for it here; so does what follows a message that waits for room in its mailbox.
//!
//! Never lets a later message overtake an announced one; bounded by the inbox's own bounds.

use super::*;

/// Bytes that may wait for bulks or room, the book-keeping of each message included.
const HELD_MAX: usize = 2 * BODY_MAX;
/// What a message that waits takes beside its bytes: its place in a queue that doubles when it is full, and what the heap adds to it. Without
/// this a million tells of some bytes would cost many times what is counted.
const HELD_BESIDE: usize = 2 * size_of::<Held>() + 16;
/// Bulks that may be under way at once, or wait, or be decoded.
const BULKS_MAX: usize = 2048;

pub(super) enum Held {
    /// The place of a bulk that has not arrived.
    Awaited(u64),
    /// A bulk that has arrived while one before it has not been heard.
    Arrived {
        token: u64,
        header: Vec<u8>,
        body: Bytes,
    },
    /// The place of a bulk of this size that is being decoded. It is always the first.
    Decoding(usize),
    /// An ordinary frame.
    Frame(Vec<u8>),
    /// The exit of this number came here.
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

/// What so many bytes take that wait.
pub(super) fn kept(bytes: usize) -> usize {
    bytes + HELD_BESIDE
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

    /// Counts so many bytes more. What is being decoded has some room of its own: before it was, it had that of what a transport reads.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Garbled> {
        self.held_bytes += bytes;
        if self.held_bytes > HELD_MAX + self.decoding_bytes.min(BODY_MAX) {
            return Err(Garbled::new(format!(
                "more than {HELD_MAX} bytes wait for a bulk or for room in a mailbox"
            )));
        }
        Ok(())
    }

    /// Keeps an exit until all messages received before it have been handed to their actors.
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
            newest_bulk: self.unheard.last().copied().unwrap_or(0),
            queues,
            frame: frame.to_vec(),
        });
        Ok(())
    }

    /// A queue has come to this exit.
    fn passed_exit(&mut self, number: u64) {
        if let Ok(place) = self.exits.binary_search_by_key(&number, |exit| exit.number) {
            let exit = &mut self.exits[place];
            exit.queues = exit.queues.saturating_sub(1);
        }
    }
}

/// How many messages of a queue were opened, and the actor that has no room for so many bytes of the next.
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
        if self.inbox.unheard.len() >= BULKS_MAX || self.inbox.unheard.contains(&token) {
            return Err(Garbled::new(format!(
                "bulk {token} is announced twice or is one of too many"
            )));
        }
        match Frame::read(header)? {
            Frame::Letter(letter) => {
                // A bulk to nobody is read and dropped when it comes, but nothing waits for it.
                if let Some(entry) = self.find(&letter) {
                    let queue = (letter.lane, entry.pid.incarnation());
                    self.inbox.hold(queue, Held::Awaited(token))?;
                }
            }
            Frame::Reply { outcome: Ok(_), .. } => {}
            other => return Err(Garbled::new(format!("bulk announced for {other:?}"))),
        }
        self.inbox.grow(header.len())?;
        self.inbox.unheard.insert(token);
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
            Frame::Letter(letter) => {
                let place = self.place_of(token);
                let to = self.find(&letter).map(|entry| entry.pid.incarnation());
                match (place, to) {
                    (None, None) => {
                        self.inbox.unheard.remove(&token);
                        let body = &body[..];
                        self.open(&Letter { body, ..letter }, false)?; // Its actor has ended, and the sender learns it.
                    }
                    (place, to) => {
                        let queue =
                            place.map_or((letter.lane, to.unwrap_or_default()), |(queue, _)| queue);
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

    /// Where in which queue the bulk's place is.
    pub(super) fn place_of(&self, token: u64) -> Option<(Queue, usize)> {
        self.inbox.held.iter().find_map(|(queue, waiting)| {
            let place = waiting
                .iter()
                .position(|held| matches!(held, Held::Awaited(other) if *other == token));
            place.map(|place| (*queue, place))
        })
    }

    /// Opens what waited for this actor, up to the next bulk that has not arrived or must be decoded first, or to the next message for
    /// which there is no room.
    pub(super) fn release(&mut self, queue: Queue) -> Result<(), Garbled> {
        if let (_, Some((entry, size))) = self.release_until_full(queue)? {
            self.wait_for_room(queue, entry, size);
        }
        Ok(())
    }

    /// The same: how many were opened, and the actor that has no room for so many bytes of the next.
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
            match self.open_held(queue, &held)? {
                Opened::Done => count += 1,
                Opened::NoRoom(entry, size) => {
                    self.inbox.held_bytes += held.size();
                    if let Some(waiting) = self.inbox.held.get_mut(&queue) {
                        waiting.push_front(held);
                    }
                    return Ok((count, Some((entry, size))));
                }
            }
        }
    }

    fn open_held(&mut self, queue: Queue, held: &Held) -> Result<Opened, Garbled> {
        match held {
            Held::Frame(frame) => match Frame::read(frame)? {
                // Also a question waits: one that was refused now would be refused for what came before it.
                Frame::Letter(letter) => self.open(&letter, true),
                _ => Ok(Opened::Done),
            },
            Held::Arrived {
                token,
                header,
                body,
            } => self.decode(queue, *token, header, body.clone()),
            Held::Exit(number) => {
                self.inbox.passed_exit(*number);
                Ok(Opened::Done)
            }
            Held::Awaited(_) | Held::Decoding(_) => Ok(Opened::Done),
        }
    }

    /// Handles the exits before which every message has been handed to its actor.
    pub(super) fn release_exits(&mut self) -> Result<(), Garbled> {
        while let Some(exit) = self.inbox.exits.front() {
            let oldest_bulk = self.inbox.unheard.first();
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

    /// What the queue itself takes for so many messages, and their own bytes with it.
    #[test]
    fn what_waits_for_a_bulk_is_counted_with_what_keeping_it_costs() {
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
