//! The incoming half of a link: from bytes to mailboxes.
//!
//! Remembers who has sent before (so that a sender costs one look-up), the header of the newest tell (those that follow
//! may leave it out), and what waits for a bulk or for room in a mailbox: the message, later ones to the same actor, and exits. Everything it keeps is
//! bounded, and whatever the bytes are it answers with [`Garbled`] and never panics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes, BytesMut};
use rustc_hash::FxHashMap;

use crate::again::Front;
use crate::ask::{AskError, TellError};
use crate::codec::{BODY_MAX, Garbled};
use crate::frame::{self, Frame, Letter};
use crate::identity::{Peer, Pid};
use crate::letter::weighing;
use crate::link::{Answer, Connection, Sender};
use crate::mailbox::{LARGE, Unwanted};
use crate::message::Lane;
use crate::node::Node;
use crate::process::{Ear, Overflow, Unheard};
use crate::registry::Entry;
use crate::run::Gathering;

mod bulk;
mod decoding;
mod room;

use bulk::Held;
use decoding::Decoded;

/// Senders remembered; when there are more, all are learned anew.
const SENDERS_MAX: usize = 4096;

pub(crate) struct Inbox {
    peer: Peer,
    nobody: Arc<Sender>,
    senders: FxHashMap<u64, Arc<Sender>>,
    /// The header of the newest tell in the ordinary lane; empty if none may be repeated.
    repeated: Vec<u8>,
    /// Announced bulks that have not arrived, by token: their headers and lengths.
    announced: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Bulks that arrived before their announcement.
    early: BTreeMap<u64, Bytes>,
    /// What waits, in order.
    held: BTreeMap<Queue, VecDeque<Held>>,
    /// The queues in `held` whose first message waits for room in the mailbox.
    full: BTreeSet<Queue>,
    /// Bulks that were announced and not heard: they have not arrived, wait for others, or are being decoded.
    unheard: BTreeSet<u64>,
    /// Exits that wait for messages received before them.
    exits: VecDeque<WaitingExit>,
    /// Exits that ever waited.
    exits_numbered: u64,
    held_bytes: usize,
    /// Those of them that are being decoded.
    decoding_bytes: usize,
}

/// Where messages wait for one incarnation of an actor.
type Queue = (Lane, u64);

/// An exit that waits for messages received before it, so that it is handled after them.
struct WaitingExit {
    number: u64,
    /// The newest bulk announced before it; 0 if none was open.
    newest_bulk: u64,
    /// Queues that wait for room and have not come to this exit yet.
    queues: usize,
    frame: Vec<u8>,
}

/// What happened to a letter.
enum Opened {
    Done,
    /// The mailbox of this actor has no room for so many bytes now.
    NoRoom(Arc<Entry>, usize),
}

/// What one call of `deliver` works with.
struct Delivery<'a> {
    connection: &'a Arc<Connection>,
    node: Node,
    inbox: &'a mut Inbox,
    /// The actor the last letter was for: letters come in runs.
    last: Option<Arc<Entry>>,
}

impl Inbox {
    pub(crate) fn new(peer: &Peer) -> Self {
        Self {
            nobody: Arc::new(Sender {
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
            unheard: BTreeSet::new(),
            exits: VecDeque::new(),
            exits_numbered: 0,
            held_bytes: 0,
            decoding_bytes: 0,
        }
    }

    /// Handles every whole frame at the front of the bytes.
    pub(crate) fn deliver(
        connection: &Arc<Connection>,
        bytes: &mut BytesMut,
    ) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut visit) = connection.enter() else {
            bytes.clear();
            return Ok(());
        };
        let inbox = &mut *visit.inbox;
        let mut remembered = std::mem::take(&mut inbox.repeated);
        let mut delivery = Delivery {
            connection,
            node,
            inbox,
            last: None,
        };
        let mut row = Row {
            header: &remembered,
            is_new: false,
            run: None,
        };
        let (mut at, mut frames) = (0, 0);
        let result = loop {
            if let Some(run) = &mut row.run {
                let (read, gathered) = delivery.gather(run, &bytes[at..]);
                at += read;
                match gathered {
                    Ok(count) => frames += count,
                    Err(garbled) => break Err(garbled),
                }
            }
            match connection.reading.front(&bytes[at..]) {
                Ok(Some((front, behind))) => {
                    at = bytes.len() - behind.len();
                    if let Err(garbled) = delivery.next(&mut row, front, behind) {
                        break Err(garbled);
                    }
                    frames += 1;
                }
                Ok(None) => break Ok(()),
                Err(garbled) => break Err(garbled),
            }
        };
        delivery.send(row.run.take());
        if row.is_new {
            remembered = row.header.to_owned();
        }
        delivery.inbox.repeated = remembered;
        delivery.note_crowding();
        connection.delivered.fetch_add(frames, Ordering::Relaxed);
        bytes.advance(at);
        result
    }

    /// Handles a bulk, and what waited for it.
    pub(crate) fn deliver_bulk(
        connection: &Arc<Connection>,
        token: u64,
        body: Bytes,
    ) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut visit) = connection.enter() else {
            return Ok(());
        };
        let mut delivery = Delivery {
            connection,
            node,
            inbox: &mut visit.inbox,
            last: None,
        };
        delivery.bulk(token, body)?;
        delivery.note_crowding();
        Ok(())
    }

    /// Handles a bulk that has been decoded, and what waited for it.
    fn deliver_decoded(connection: &Arc<Connection>, bulk: Decoded) -> Result<(), Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(());
        };
        let Some(mut visit) = connection.enter() else {
            return Ok(());
        };
        Delivery {
            connection,
            node,
            inbox: &mut visit.inbox,
            last: None,
        }
        .decoded(bulk)
    }

    fn sender(&mut self, from: Option<frame::From<'_>>) -> Result<Arc<Sender>, Garbled> {
        let Some(from) = from else {
            return Ok(self.nobody.clone());
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

/// Frames of one lane that follow each other.
struct Row<'a> {
    /// The header of the newest tell; empty if it may not be repeated.
    header: &'a [u8],
    /// It came with these frames.
    is_new: bool,
    run: Option<Alike>,
}

/// Tells with one and the same header, being gathered.
struct Alike {
    entry: Arc<Entry>,
    name: &'static str,
    version: u16,
    overflow: Overflow,
    sender: Arc<Sender>,
    /// Messages that the actor's mailbox had room for when the run began, or was last sent.
    room: u64,
    gathering: Box<dyn Gathering>,
}

impl Alike {
    fn garbled(&self, Garbled { reason }: Garbled) -> Garbled {
        Garbled::new(format!("{} v{} {reason}", self.name, self.version))
    }
}

impl Delivery<'_> {
    /// Handles one frame that is not like those gathered before it, or begins to gather with it.
    #[inline]
    fn next<'a>(
        &mut self,
        row: &mut Row<'a>,
        front: Front<'a>,
        following: &[u8],
    ) -> Result<(), Garbled> {
        // What is not gathered by now ends the run, or there is none. Large ones are weighed one by one.
        self.send(row.run.take());
        let bytes = match front {
            Front::Frame(bytes) => bytes,
            Front::Again(body) => {
                let following = if body.len() < LARGE { following } else { &[] };
                return self.again(row, body, following);
            }
        };
        let frame = Frame::read(bytes)?;
        if let Frame::Letter(letter) = &frame
            && letter.is_tell()
        {
            row.header = &bytes[..bytes.len() - letter.body.len()];
            row.is_new = true;
        }
        self.frame(frame, bytes)
    }

    /// Handles a tell whose header was left out, or begins a run with it if more of them follow.
    fn again(&mut self, row: &mut Row<'_>, body: &[u8], following: &[u8]) -> Result<(), Garbled> {
        if row.header.is_empty() {
            return Err(Garbled::new(
                "a tell without a header, and none before it to be repeated",
            ));
        }
        let Frame::Letter(letter) = Frame::read(row.header)? else {
            return Err(Garbled::new("a header that is none"));
        };
        let reading = self.connection.reading;
        if reading.is_next(following) {
            row.run = self.begin_run(&letter)?;
            if let Some(run) = &mut row.run {
                let added = run.gathering.add_first(body, following, reading);
                return added.map_err(|garbled| run.garbled(garbled));
            }
        }
        let letter = Letter { body, ..letter };
        self.letter(&letter, || [row.header, body].concat())
    }

    /// Gathers what follows and is like it: how many bytes that was, and how many frames.
    fn gather(&self, run: &mut Alike, bytes: &[u8]) -> (usize, Result<u64, Garbled>) {
        let (mut read, mut frames) = (0, 0);
        loop {
            let reading = self.connection.reading;
            let added = run.gathering.add(&bytes[read..], reading, run.room);
            read += added.bytes;
            frames += added.frames;
            if let Some(garbled) = added.garbled {
                return (read, Err(run.garbled(garbled)));
            }
            if !added.is_full {
                return (read, Ok(frames));
            }
            self.send_gathered(run);
            run.room = run.entry.meter.room();
            if run.room == 0 {
                return (read, Ok(frames)); // The next message ends the run, and waits for room.
            }
        }
    }

    fn send(&self, run: Option<Alike>) {
        if let Some(mut run) = run {
            self.send_gathered(&mut run);
        }
    }

    fn send_gathered(&self, run: &mut Alike) {
        if let Err((count, unwanted)) = run.gathering.send(&*run.entry.body, &run.sender) {
            tracing::debug!(peer = %self.connection.peer.node, to = %run.entry.pid, count, ?unwanted, "messages not taken");
            if unwanted == Unwanted::Full {
                (0..count).for_each(|_| self.node.counts().mailbox_full());
                self.mailbox_is_full(&run.entry, run.overflow);
            }
        }
    }

    /// Begins a run of tells like this one, if its actor takes them as they are.
    fn begin_run(&mut self, letter: &Letter<'_>) -> Result<Option<Alike>, Garbled> {
        if letter.to.incarnation == 0 || !self.inbox.held.is_empty() {
            return Ok(None);
        }
        let Some(entry) = self.find(letter).cloned() else {
            return Ok(None);
        };
        let role = self.connection.peer.role;
        let ear = entry.ears.ear(letter.id, letter.version);
        let Some((ear, gather)) = ear
            .filter(|ear| ear.roles.contains(role))
            .and_then(|ear| Some((ear, ear.gather?)))
        else {
            return Ok(None);
        };
        let (name, version, overflow) = (ear.name, ear.version, ear.overflow);
        let room = entry.meter.room();
        if room < 2 {
            return Ok(None);
        }
        Ok(Some(Alike {
            sender: self.inbox.sender(letter.from)?,
            entry,
            name,
            version,
            overflow,
            room,
            gathering: gather(),
        }))
    }

    fn frame(&mut self, frame: Frame<'_>, bytes: &[u8]) -> Result<(), Garbled> {
        match frame {
            Frame::Letter(letter) => self.letter(&letter, || bytes.to_vec()),
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
                if !self.inbox.unheard.is_empty() || !self.inbox.full.is_empty() {
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
    fn find(&mut self, letter: &Letter<'_>) -> Option<&Arc<Entry>> {
        let wanted = letter.to.incarnation;
        let same = wanted != 0
            && self
                .last
                .as_ref()
                .is_some_and(|last| last.pid.incarnation() == wanted);
        if !same {
            self.last = self.node.registry().find(wanted, letter.to.name);
        }
        self.last.as_ref()
    }

    #[inline]
    fn letter(
        &mut self,
        letter: &Letter<'_>,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Garbled> {
        if !self.inbox.held.is_empty() {
            let incarnation = self.find(letter).map_or(0, |entry| entry.pid.incarnation());
            let queue = (letter.lane, incarnation);
            let waits = match letter.lane {
                Lane::Ordinary => self.inbox.held.contains_key(&queue),
                Lane::Ping => self.inbox.full.contains(&queue), // pings overtake large ones
            };
            if waits {
                return self.inbox.hold(queue, Held::Frame(bytes()));
            }
        }
        // A question that finds the mailbox full is refused: its sender learns it, and nothing waits before it.
        match self.open(letter, letter.correlation.is_none())? {
            Opened::Done => Ok(()),
            Opened::NoRoom(entry, size) => {
                let queue = (letter.lane, entry.pid.incarnation());
                self.inbox.hold(queue, Held::Frame(bytes()))?;
                self.wait_for_room(queue, entry, size);
                Ok(())
            }
        }
    }

    /// Puts a letter into its actor's mailbox, or says why not. One that may wait stays with the caller if there is no room.
    #[inline]
    fn open(&mut self, letter: &Letter<'_>, may_wait: bool) -> Result<Opened, Garbled> {
        let sender = self.inbox.sender(letter.from)?;
        if letter.correlation.is_some() && !self.connection.may_answer() {
            self.refuse(letter, AskError::Full);
            return Ok(Opened::Done);
        }
        let answer = letter.correlation.map(|correlation| Answer {
            connection: self.connection.clone(),
            lane: letter.lane,
            correlation,
            tapped: None,
        });
        // Taken out for the time being: letters come in runs, and a count per letter adds up.
        let Some(entry) = self
            .find(letter)
            .is_some()
            .then(|| self.last.take())
            .flatten()
        else {
            self.node.counts().unknown_process();
            self.refuse(letter, AskError::Gone);
            return Ok(Opened::Done);
        };
        let opened = self.open_for(&entry, letter, sender, answer, may_wait);
        self.last = Some(entry);
        opened
    }

    /// The same, where the actor is known.
    #[inline]
    fn open_for(
        &self,
        entry: &Arc<Entry>,
        letter: &Letter<'_>,
        sender: Arc<Sender>,
        answer: Option<Answer>,
        may_wait: bool,
    ) -> Result<Opened, Garbled> {
        let ear = match self.ear(entry, letter) {
            Ok(ear) => ear,
            Err(error) => {
                self.refuse(letter, error);
                return Ok(Opened::Done);
            }
        };
        let heard = match entry.meter.weigh(letter.body.len()) {
            Ok(weight) => weighing(weight, || {
                ear.hear(&*entry.body, letter.body, sender, answer)
            }),
            Err(unwanted) => Err(Unheard::Told(unwanted.into())),
        };
        match heard {
            Ok(()) => Ok(Opened::Done),
            Err(Unheard::Told(TellError::Full)) if may_wait && ear.overflow == Overflow::Wait => {
                Ok(Opened::NoRoom(entry.clone(), letter.body.len()))
            }
            Err(Unheard::Told(error)) => {
                self.note_untold(entry, ear, &error);
                self.refuse(letter, error.into());
                Ok(Opened::Done)
            }
            Err(Unheard::Garbled(garbled)) => Err(ear.blame(garbled)),
        }
    }

    /// The ear that this letter is for, if the actor hears it from this peer.
    #[inline]
    fn ear<'e>(&self, entry: &'e Entry, letter: &Letter<'_>) -> Result<&'e Ear, AskError> {
        let Some(ear) = entry.ears.ear(letter.id, letter.version) else {
            self.node.counts().unknown_message();
            let reason = format!(
                "{} does not hear message {:08x} v{}",
                entry.pid, letter.id, letter.version
            );
            return Err(AskError::Refused { reason });
        };
        if !ear.roles.contains(self.connection.peer.role) {
            self.node.counts().wrong_role();
            let reason = format!(
                "{} does not hear {} from role {}",
                entry.pid, ear.name, self.connection.peer.role
            );
            return Err(AskError::Refused { reason });
        }
        Ok(ear)
    }

    #[cold]
    fn note_untold(&self, entry: &Entry, ear: &Ear, error: &TellError) {
        if *error == TellError::Full {
            self.node.counts().mailbox_full();
            self.mailbox_is_full(entry, ear.overflow);
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
    fn refuse(&self, letter: &Letter<'_>, error: AskError) {
        tracing::debug!(peer = %self.connection.peer.node, to = ?letter.to, %error, "message not taken");
        self.fail(letter.correlation, error);
    }

    /// Tells the asker, if there is one.
    fn fail(&self, correlation: Option<u64>, error: AskError) {
        if let Some(correlation) = correlation {
            self.connection.fail(correlation, error);
        }
    }
}
