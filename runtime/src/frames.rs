//! Frames without actors: encoded bodies are written into a link as an actor's tells are, and counted where they come off it.
//!
//! Hears bodies on one side and counts them on the other; remembers two numbers for each [`Count`]. For the benchmark of the transport by
//! itself, and for nobody else: what lies between is what every message takes (piece, outbox, wire, inbox), what is left out
//! is the codec, the mailbox and the handler. Never makes a value of a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::again::Reading;
use crate::ask::TellError;
use crate::codec::Garbled;
use crate::frame::{Head, Letter, Target};
use crate::identity::Pid;
use crate::link::{Connection, Sender, untold};
use crate::mailbox::Unwanted;
use crate::message::{Lane, Remote};
use crate::node::Node;
use crate::outbox::{BULK, Need};
use crate::piece::{PIECE, PIECE_ROOM, Piece};
use crate::process::{AnyIncarnation, Process, incarnation};
use crate::run::{Added, Gathering, add_each};

/// Writes frames for one actor of another node. What was written is on its way after [`Pen::hand_in`].
pub struct Pen {
    connection: Arc<Connection>,
    to: Pid,
    id: u32,
    version: u16,
    piece: Piece,
    grant: usize,
}

impl Pen {
    /// One that writes messages of this type, if there is a link.
    pub fn new<M: Remote>(node: &Node, to: &Pid) -> Result<Self, TellError> {
        Ok(Self {
            connection: node.connection(to.node()).ok_or(TellError::Gone)?,
            to: to.clone(),
            id: M::ID,
            version: M::VERSION,
            piece: Piece::default(),
            grant: 0,
        })
    }

    /// Writes one frame with this body; an error is what a tell would have had.
    #[inline]
    pub fn write(&mut self, body: &Bytes) -> Result<(), TellError> {
        let outbox = &self.connection.outbox;
        let letter = Letter {
            lane: Lane::Ordinary,
            id: self.id,
            version: self.version,
            to: Target::of(&self.to),
            from: None,
            correlation: None,
            body: &[],
        };
        let head = Head::Letter(&letter);
        if body.len() <= BULK {
            if self.grant == 0 {
                self.grant = outbox.grant(PIECE_ROOM);
                self.piece.make_room(PIECE_ROOM.min(self.grant));
            }
            let draft = self.piece.draft(head, outbox.short, |buffer| {
                buffer.extend_from_slice(body);
                Ok(())
            });
            let draft = draft.map_err(|garbled| untold(garbled.into(), "frame"))?;
            if self.piece.len() + draft.written <= self.grant
                || outbox.grant_more(&mut self.grant, &self.piece, draft)
            {
                self.piece.keep(draft, head);
                return match self.piece.len() >= PIECE {
                    true => self.hand_in(),
                    false => Ok(()),
                };
            }
        }
        if !outbox.hand_in(&mut self.piece, std::mem::take(&mut self.grant)) {
            return Err(TellError::Gone);
        }
        let written = outbox.write_encoded(Lane::Ordinary, Need::Refusable, head, body.clone());
        written.map_err(|unwritten| untold(unwritten, "frame"))
    }

    /// Gives what was written to the link, as happens at the end of an actor's turn.
    pub fn hand_in(&mut self) -> Result<(), TellError> {
        let grant = std::mem::take(&mut self.grant);
        if self.connection.outbox.hand_in(&mut self.piece, grant) {
            Ok(())
        } else {
            Err(TellError::Gone)
        }
    }
}

/// How many bodies came off links, and their bytes.
#[derive(Debug, Default)]
pub struct Count {
    bodies: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Both, since the beginning.
    pub fn now(&self) -> (u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (read(&self.bodies), read(&self.bytes))
    }

    pub(crate) fn add(&self, bodies: u64, bytes: u64) {
        self.bodies.fetch_add(bodies, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// An actor whose link counts bodies in its place.
pub trait Counting: Process {
    /// Where they are counted.
    fn count() -> &'static Count;
}

/// Counts what would have been gathered.
pub(crate) struct Counted {
    count: &'static Count,
    check: fn(&AnyIncarnation) -> bool,
    bodies: u64,
    bytes: u64,
}

impl Gathering for Counted {
    fn add_first(&mut self, body: &[u8], _: &[u8], _: Reading) -> Result<(), Garbled> {
        self.bodies += 1;
        self.bytes += body.len() as u64;
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], reading: Reading, _: u64) -> Added {
        let mut taken = 0;
        let added = add_each(bytes, reading, usize::MAX, |body| {
            taken += body.len() as u64;
            Ok(())
        });
        self.bodies += added.frames;
        self.bytes += taken;
        added
    }

    fn send(&mut self, to: &AnyIncarnation, _: &Arc<Sender>) -> Result<(), (u64, Unwanted)> {
        let (bodies, bytes) = (
            std::mem::take(&mut self.bodies),
            std::mem::take(&mut self.bytes),
        );
        if !(self.check)(to) {
            return Err((bodies, Unwanted::Gone));
        }
        self.count.add(bodies, bytes);
        Ok(())
    }
}

pub(crate) fn gather<A: Counting>() -> Box<dyn Gathering> {
    Box::new(Counted {
        count: A::count(),
        check: |to| incarnation::<A>(to).is_ok(),
        bodies: 0,
        bytes: 0,
    })
}
