//! The incoming half of a link: from bytes to mailboxes.
//!
//! It caches the peer's senders (one look-up per sender) and the header of the newest tell (which
//! later tells may omit). It holds messages that wait for a bulk or for room in a mailbox, later
//! messages to the same actor, and exits. All its state is bounded, and invalid bytes are a
//! [`Garbled`] error, never a panic. `bulk` and `room` have the waiting messages, `decoding`
//! decodes bulks on another thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes, BytesMut};
use rustc_hash::FxHashMap;

use crate::actor::ask::{AskError, TellError};
use crate::actor::mailbox::batch::BatchBuilder;
use crate::actor::mailbox::envelope::with_weight;
use crate::actor::mailbox::{LARGE, MailboxError};
use crate::actor::process::{EnqueueError, Overflow, RemoteHandler};
use crate::actor::registry::Entry;
use crate::identity::{Peer, Pid};
use crate::link::{Answer, Connection, Sender};
use crate::node::Node;
use crate::wire::codec::{BODY_MAX, Garbled};
use crate::wire::frame::{self, Frame, MessageFrame};
use crate::wire::frame_reader::{Front, Reading};
use crate::wire::message::Lane;

mod bulk;
mod decoding;
mod room;

use bulk::Held;
use decoding::Decoded;

/// Maximum number of cached senders; beyond it the cache is cleared.
const SENDERS_MAX: usize = 4096;

pub(crate) struct Inbox {
    peer: Peer,
    anonymous: Arc<Sender>,
    senders: FxHashMap<u64, Arc<Sender>>,
    /// The header of the newest tell in the ordinary lane; empty if none may be repeated.
    repeated: Vec<u8>,
    /// Announced bulks that have not arrived, by token: their headers and lengths.
    announced: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Bulks that arrived before their announcement.
    early: BTreeMap<u64, Bytes>,
    /// Waiting messages, in order.
    held: BTreeMap<Queue, VecDeque<Held>>,
    /// The queues in `held` whose first message waits for room in the mailbox.
    full: BTreeSet<Queue>,
    /// Announced bulks that are not delivered: they have not arrived, wait for others, or are being
    /// decoded.
    undelivered: BTreeSet<u64>,
    /// Exits that wait for messages received before them.
    exits: VecDeque<WaitingExit>,
    /// The number of exits that ever waited.
    exits_numbered: u64,
    held_bytes: usize,
    /// The part of `held_bytes` that is being decoded.
    decoding_bytes: usize,
}

/// The queue of messages for one incarnation of an actor.
type Queue = (Lane, u64);

/// An exit that waits for messages received before it, so that it is handled after them.
struct WaitingExit {
    number: u64,
    /// The newest bulk announced before it; 0 if none was deliver.
    newest_bulk: u64,
    /// Queues that wait for room and have not reached this exit yet.
    queues: usize,
    frame: Vec<u8>,
}

/// The outcome of an attempt to deliver a message.
enum Delivered {
    Done,
    /// The mailbox of this actor has no room for this many bytes now.
    NoRoom(Arc<Entry>, usize),
}

/// The state of one call of `deliver`.
struct Delivery<'a> {
    connection: &'a Arc<Connection>,
    node: Node,
    inbox: &'a mut Inbox,
    /// The receiver of the last message: consecutive messages often have the same one.
    last: Option<Arc<Entry>>,
}

impl Inbox {
    pub(crate) fn new(peer: &Peer) -> Self {
        Self {
            anonymous: Arc::new(Sender {
                peer: peer.clone(),
                pid: None,
            }),
            peer: peer.clone(),
            senders: FxHashMap::default(),
            repeated: Vec::new(),
            announced: BTreeMap::new(),
            early: BTreeMap::new(),
            held: BTreeMap::new(),
            full: BTreeSet::new(),
            undelivered: BTreeSet::new(),
            exits: VecDeque::new(),
            exits_numbered: 0,
            held_bytes: 0,
            decoding_bytes: 0,
        }
    }

    /// Handles every complete frame at the front of the bytes.
    pub(crate) fn deliver(
        connection: &Arc<Connection>,
        bytes: &mut BytesMut,
    ) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut guard) = connection.enter() else {
            bytes.clear();
            return Ok(());
        };
        let inbox = &mut *guard.inbox;
        let mut remembered = std::mem::take(&mut inbox.repeated);
        let mut delivery = Delivery {
            connection,
            node,
            inbox,
            last: None,
        };
        let mut lane = LaneState {
            header: &remembered,
            is_new: false,
            batch: None,
        };
        let (mut at, mut frames) = (0, 0);
        let result = loop {
            if let Some(batch) = &mut lane.batch {
                let (read, added_frames) = delivery.add_to_batch(batch, &bytes[at..]);
                at += read;
                match added_frames {
                    Ok(count) => frames += count,
                    Err(garbled) => break Err(garbled),
                }
            }
            match connection.reading.front(&bytes[at..]) {
                Ok(Some((front, behind))) => {
                    at = bytes.len() - behind.len();
                    if let Err(garbled) = delivery.next(&mut lane, front, behind) {
                        break Err(garbled);
                    }
                    frames += 1;
                }
                Ok(None) => break Ok(()),
                Err(garbled) => break Err(garbled),
            }
        };
        delivery.send(lane.batch.take());
        if lane.is_new {
            remembered = lane.header.to_owned();
        }
        delivery.inbox.repeated = remembered;
        delivery.note_crowding();
        connection.delivered.fetch_add(frames, Ordering::Relaxed);
        bytes.advance(at);
        result
    }

    /// Handles a bulk, and the messages that waited for it.
    pub(crate) fn deliver_bulk(
        connection: &Arc<Connection>,
        token: u64,
        body: Bytes,
    ) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut guard) = connection.enter() else {
            return Ok(());
        };
        let mut delivery = Delivery {
            connection,
            node,
            inbox: &mut guard.inbox,
            last: None,
        };
        delivery.bulk(token, body)?;
        delivery.note_crowding();
        Ok(())
    }

    /// Handles a decoded bulk, and the messages that waited for it.
    fn deliver_decoded(connection: &Arc<Connection>, bulk: Decoded) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut guard) = connection.enter() else {
            return Ok(());
        };
        Delivery {
            connection,
            node,
            inbox: &mut guard.inbox,
            last: None,
        }
        .decoded(bulk)
    }

    fn sender(&mut self, from: Option<frame::Origin<'_>>) -> Result<Arc<Sender>, Garbled> {
        let Some(from) = from else {
            return Ok(self.anonymous.clone());
        };
        if from.epoch != self.peer.node.epoch() {
            let reason = format!(
                "sender's node has epoch {:016x}, the link's peer is {}",
                from.epoch, self.peer.node
            );
            return Err(Garbled { reason });
        }
        let known = self.senders.get(&from.actor.incarnation);
        if let Some(known) = known
            && known
                .pid
                .as_ref()
                .is_some_and(|pid| pid.name() == from.actor.name)
        {
            return Ok(known.clone());
        }
        if self.senders.len() >= SENDERS_MAX {
            self.senders.clear();
        }
        let pid = Pid::new(
            from.actor.name,
            self.peer.node.clone(),
            from.actor.incarnation,
        );
        let sender = Arc::new(Sender {
            peer: self.peer.clone(),
            pid: Some(pid),
        });
        self.senders.insert(from.actor.incarnation, sender.clone());
        Ok(sender)
    }
}

/// Consecutive frames of one lane.
struct LaneState<'a> {
    /// The header of the newest tell; empty if it may not be repeated.
    header: &'a [u8],
    /// Whether the header came with these frames.
    is_new: bool,
    batch: Option<OpenBatch>,
}

/// A batch under construction of tells with equal headers.
struct OpenBatch {
    entry: Arc<Entry>,
    name: &'static str,
    version: u16,
    overflow: Overflow,
    sender: Arc<Sender>,
    /// Room in the actor's mailbox when the batch began, or was last sent.
    room: u64,
    builder: Box<dyn BatchBuilder>,
}

impl OpenBatch {
    fn garbled(&self, Garbled { reason }: Garbled) -> Garbled {
        Garbled::new(format!("{} v{} {reason}", self.name, self.version))
    }
}

impl Delivery<'_> {
    /// Handles one frame that does not continue the current batch, or begins a batch with it.
    #[inline]
    fn next<'a>(
        &mut self,
        lane: &mut LaneState<'a>,
        front: Front<'a>,
        following: &[u8],
    ) -> Result<(), Garbled> {
        // This frame ends the current batch, if there is one. Large messages are weighed one by
        // one.
        self.send(lane.batch.take());
        let bytes = match front {
            Front::Frame(bytes) => bytes,
            Front::Elided(body) => {
                let following = if body.len() < LARGE { following } else { &[] };
                return self.elided(lane, body, following);
            }
        };
        let frame = Frame::read(bytes)?;
        if let Frame::Message(message) = &frame
            && message.is_tell()
        {
            lane.header = &bytes[..bytes.len() - message.body.len()];
            lane.is_new = true;
        }
        self.frame(frame, bytes)
    }

    /// Handles a tell without a header, or begins a batch with it if more of them follow.
    fn elided(
        &mut self,
        lane: &mut LaneState<'_>,
        body: &[u8],
        following: &[u8],
    ) -> Result<(), Garbled> {
        if lane.header.is_empty() {
            return Err(Garbled::new(
                "a tell without a header, but no earlier header to repeat",
            ));
        }
        let Frame::Message(message) = Frame::read(lane.header)? else {
            return Err(Garbled::new("invalid repeated header"));
        };
        let reading = self.connection.reading;
        if Reading::is_next(following) {
            lane.batch = self.begin_batch(&message)?;
            if let Some(batch) = &mut lane.batch {
                let added = batch.builder.add_first(body, following, reading);
                return added.map_err(|garbled| batch.garbled(garbled));
            }
        }
        let message = MessageFrame { body, ..message };
        self.message(&message, || [lane.header, body].concat())
    }

    /// Adds the following frames of the same kind to the batch; returns their bytes and their
    /// number.
    fn add_to_batch(&self, batch: &mut OpenBatch, bytes: &[u8]) -> (usize, Result<u64, Garbled>) {
        let (mut read, mut frames) = (0, 0);
        loop {
            let reading = self.connection.reading;
            let added = batch.builder.add(&bytes[read..], reading, batch.room);
            read += added.bytes;
            frames += added.frames;
            if let Some(garbled) = added.garbled {
                return (read, Err(batch.garbled(garbled)));
            }
            if !added.is_full {
                return (read, Ok(frames));
            }
            self.send_batch(batch);
            batch.room = batch.entry.meter.room();
            if batch.room == 0 {
                return (read, Ok(frames)); // The next message ends the batch, and waits for room.
            }
        }
    }

    fn send(&self, batch: Option<OpenBatch>) {
        if let Some(mut batch) = batch {
            self.send_batch(&mut batch);
        }
    }

    fn send_batch(&self, batch: &mut OpenBatch) {
        if let Err((count, error)) = batch.builder.send(&*batch.entry.body, &batch.sender) {
            tracing::debug!(peer = %self.connection.peer.node, to = %batch.entry.pid, count, ?error, "messages refused");
            if error == MailboxError::Full {
                (0..count).for_each(|_| self.node.counts().mailbox_full());
                self.mailbox_is_full(&batch.entry, batch.overflow);
            }
        }
    }

    /// Begins a batch of tells like this one, if its actor accepts batches of them.
    fn begin_batch(&mut self, message: &MessageFrame<'_>) -> Result<Option<OpenBatch>, Garbled> {
        if message.to.incarnation == 0 || !self.inbox.held.is_empty() {
            return Ok(None);
        }
        let Some(entry) = self.find(message).cloned() else {
            return Ok(None);
        };
        let role = self.connection.peer.role;
        let handler = entry.handlers.handler(message.id, message.version);
        let Some((handler, new_batch)) = handler
            .filter(|handler| handler.roles.contains(role))
            .and_then(|handler| Some((handler, handler.new_batch?)))
        else {
            return Ok(None);
        };
        let (name, version, overflow) = (handler.name, handler.version, handler.overflow);
        let room = entry.meter.room();
        if room < 2 {
            return Ok(None);
        }
        Ok(Some(OpenBatch {
            sender: self.inbox.sender(message.from)?,
            entry,
            name,
            version,
            overflow,
            room,
            builder: new_batch(),
        }))
    }

    fn frame(&mut self, frame: Frame<'_>, bytes: &[u8]) -> Result<(), Garbled> {
        match frame {
            Frame::Message(message) => self.message(&message, || bytes.to_vec()),
            Frame::Reply {
                correlation,
                outcome,
            } => {
                self.connection.replied(correlation, outcome);
                Ok(())
            }
            Frame::Link(target) => {
                self.node
                    .watch_for_peer(self.connection, target.incarnation, target.name);
                Ok(())
            }
            Frame::Unlink(target) => {
                self.node
                    .unwatch_for_peer(self.connection, target.incarnation, target.name);
                Ok(())
            }
            Frame::Exited { of, reason } => {
                if !self.inbox.undelivered.is_empty() || !self.inbox.full.is_empty() {
                    return self.inbox.hold_exit(bytes);
                }
                let pid = Pid::new(of.name, self.connection.peer.node.clone(), of.incarnation);
                self.node.ended_elsewhere(&pid, &reason);
                Ok(())
            }
            Frame::Find { correlation, name } => {
                let incarnation = self.node.whereis(name).map_or(0, |pid| pid.incarnation());
                self.connection.write_plain(&Frame::Found {
                    correlation,
                    incarnation,
                });
                Ok(())
            }
            Frame::Found {
                correlation,
                incarnation,
            } => {
                self.connection
                    .replied(correlation, Ok(&incarnation.to_be_bytes()));
                Ok(())
            }
            Frame::BulkAnnounce {
                token,
                length,
                header,
            } => self.announced(token, length, header),
            Frame::Ping => Ok(()),
        }
    }

    #[inline]
    fn find(&mut self, message: &MessageFrame<'_>) -> Option<&Arc<Entry>> {
        let wanted = message.to.incarnation;
        let same = wanted != 0
            && self
                .last
                .as_ref()
                .is_some_and(|last| last.pid.incarnation() == wanted);
        if !same {
            self.last = self.node.registry().find(wanted, message.to.name);
        }
        self.last.as_ref()
    }

    #[inline]
    fn message(
        &mut self,
        message: &MessageFrame<'_>,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Garbled> {
        if !self.inbox.held.is_empty() {
            let incarnation = self
                .find(message)
                .map_or(0, |entry| entry.pid.incarnation());
            let queue = (message.lane, incarnation);
            let waits = match message.lane {
                Lane::Ordinary => self.inbox.held.contains_key(&queue),
                Lane::Ping => self.inbox.full.contains(&queue), // pings overtake large ones
            };
            if waits {
                return self.inbox.hold(queue, Held::Frame(bytes()));
            }
        }
        // An ask that finds the mailbox full is refused: its caller is notified, and no message
        // waits before it.
        match self.deliver(message, message.correlation.is_none())? {
            Delivered::Done => Ok(()),
            Delivered::NoRoom(entry, size) => {
                let queue = (message.lane, entry.pid.incarnation());
                self.inbox.hold(queue, Held::Frame(bytes()))?;
                self.wait_for_room(queue, entry, size);
                Ok(())
            }
        }
    }

    /// Puts a message into its actor's mailbox, or refuses it. If there is no room and it may wait,
    /// the caller keeps it.
    #[inline]
    fn deliver(
        &mut self,
        message: &MessageFrame<'_>,
        may_wait: bool,
    ) -> Result<Delivered, Garbled> {
        let sender = self.inbox.sender(message.from)?;
        if message.correlation.is_some() && !self.connection.may_answer() {
            self.refuse(message, AskError::Full);
            return Ok(Delivered::Done);
        }
        let answer = message.correlation.map(|correlation| Answer {
            connection: self.connection.clone(),
            lane: message.lane,
            correlation,
            tapped: None,
        });
        // Taken out meanwhile, to save the reference count: consecutive messages often have the
        // same receiver.
        let Some(entry) = self
            .find(message)
            .is_some()
            .then(|| self.last.take())
            .flatten()
        else {
            self.node.counts().unknown_process();
            self.refuse(message, AskError::Gone);
            return Ok(Delivered::Done);
        };
        let opened = self.deliver_to(&entry, message, sender, answer, may_wait);
        self.last = Some(entry);
        opened
    }

    /// As `deliver`, for a known actor.
    #[inline]
    fn deliver_to(
        &self,
        entry: &Arc<Entry>,
        message: &MessageFrame<'_>,
        sender: Arc<Sender>,
        answer: Option<Answer>,
        may_wait: bool,
    ) -> Result<Delivered, Garbled> {
        let handler = match self.handler(entry, message) {
            Ok(handler) => handler,
            Err(error) => {
                self.refuse(message, error);
                return Ok(Delivered::Done);
            }
        };
        let result = match entry.meter.weigh(message.body.len()) {
            Ok(weight) => with_weight(weight, || {
                handler.enqueue(&*entry.body, message.body, sender, answer)
            }),
            Err(error) => Err(EnqueueError::Rejected(error.into())),
        };
        match result {
            Ok(()) => Ok(Delivered::Done),
            Err(EnqueueError::Rejected(TellError::Full))
                if may_wait && handler.overflow == Overflow::Wait =>
            {
                Ok(Delivered::NoRoom(entry.clone(), message.body.len()))
            }
            Err(EnqueueError::Rejected(error)) => {
                self.note_rejected(entry, handler, &error);
                self.refuse(message, error.into());
                Ok(Delivered::Done)
            }
            Err(EnqueueError::Garbled(garbled)) => Err(handler.with_name(garbled)),
        }
    }

    /// The handler for this message, if the actor accepts it from this peer.
    #[inline]
    fn handler<'e>(
        &self,
        entry: &'e Entry,
        message: &MessageFrame<'_>,
    ) -> Result<&'e RemoteHandler, AskError> {
        let Some(handler) = entry.handlers.handler(message.id, message.version) else {
            self.node.counts().unknown_message();
            let reason = format!(
                "{} does not accept message {:08x} v{}",
                entry.pid, message.id, message.version
            );
            return Err(AskError::Refused { reason });
        };
        if !handler.roles.contains(self.connection.peer.role) {
            self.node.counts().wrong_role();
            let reason = format!(
                "{} does not accept {} from role {}",
                entry.pid, handler.name, self.connection.peer.role
            );
            return Err(AskError::Refused { reason });
        }
        Ok(handler)
    }

    #[cold]
    fn note_rejected(&self, entry: &Entry, handler: &RemoteHandler, error: &TellError) {
        if *error == TellError::Full {
            self.node.counts().mailbox_full();
            self.mailbox_is_full(entry, handler.overflow);
        }
    }

    #[cold]
    fn mailbox_is_full(&self, entry: &Entry, overflow: Overflow) {
        if overflow == Overflow::CloseLink {
            let reason = format!("the mailbox of {} is full", entry.pid.name());
            self.connection.close(&reason);
        }
    }

    #[cold]
    fn refuse(&self, message: &MessageFrame<'_>, error: AskError) {
        tracing::debug!(peer = %self.connection.peer.node, to = ?message.to, %error, "message refused");
        self.fail(message.correlation, error);
    }

    /// Sends the error to the caller, if it is an ask.
    fn fail(&self, correlation: Option<u64>, error: AskError) {
        if let Some(correlation) = correlation {
            self.connection.fail(correlation, error);
        }
    }
}
