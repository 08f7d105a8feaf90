//! Frames without actors: writes encoded bodies into a link like an actor's tells, and counts them
//! at the other end.
//!
//! Only for the benchmark of the transport alone: it includes everything between (frame buffer,
//! outbox, wire, inbox) and excludes the codec, the mailbox and the handler. Bodies are never
//! decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::actor::ask::TellError;
use crate::actor::mailbox::MailboxError;
use crate::actor::mailbox::batch::{Added, BatchBuilder, add_each};
use crate::actor::process::{AnyIncarnation, Process, incarnation};
use crate::identity::Pid;
use crate::link::outbox::{BULK, Need};
use crate::link::{Connection, Sender, tell_error};
use crate::node::Node;
use crate::wire::codec::Garbled;
use crate::wire::frame::{Head, MessageFrame, Target};
use crate::wire::frame_reader::Reading;
use crate::wire::frame_writer::{BUFFER_CAPACITY, BUFFER_FULL, FrameBuffer};
use crate::wire::message::{Lane, Remote};

/// Writes frames for one actor of another node. They are sent after [`Pen::flush`].
pub struct Pen {
    connection: Arc<Connection>,
    to: Pid,
    id: u32,
    version: u16,
    frames: FrameBuffer,
    grant: usize,
}

impl Pen {
    /// A writer of messages of this type, if there is a link.
    pub fn new<M: Remote>(node: &Node, to: &Pid) -> Result<Self, TellError> {
        Ok(Self {
            connection: node.connection(to.node()).ok_or(TellError::Gone)?,
            to: to.clone(),
            id: M::ID,
            version: M::VERSION,
            frames: FrameBuffer::default(),
            grant: 0,
        })
    }

    /// Writes one frame with this body. Errors are those of a tell.
    #[inline]
    pub fn write(&mut self, body: &Bytes) -> Result<(), TellError> {
        let outbox = &self.connection.outbox;
        let header = MessageFrame {
            lane: Lane::Ordinary,
            id: self.id,
            version: self.version,
            to: Target::of(&self.to),
            from: None,
            correlation: None,
            body: &[],
        };
        let head = Head::Message(&header);
        if body.len() <= BULK {
            if self.grant == 0 {
                self.grant = outbox.grant(BUFFER_CAPACITY);
                self.frames.make_room(BUFFER_CAPACITY.min(self.grant));
            }
            let draft = self.frames.draft(head, outbox.short, |buffer| {
                buffer.extend_from_slice(body);
                Ok(())
            });
            let draft = draft.map_err(|garbled| tell_error(garbled.into(), "frame"))?;
            if self.frames.len() + draft.written <= self.grant
                || outbox.grant_more(&mut self.grant, &self.frames, draft)
            {
                self.frames.keep(draft, head);
                return match self.frames.len() >= BUFFER_FULL {
                    true => self.flush(),
                    false => Ok(()),
                };
            }
        }
        if !outbox.append(&mut self.frames, std::mem::take(&mut self.grant)) {
            return Err(TellError::Gone);
        }
        let written = outbox.write_encoded(Lane::Ordinary, Need::Refusable, head, body.clone());
        written.map_err(|unwritten| tell_error(unwritten, "frame"))
    }

    /// Passes the written frames to the link, as at the end of an actor's turn.
    pub fn flush(&mut self) -> Result<(), TellError> {
        let grant = std::mem::take(&mut self.grant);
        if self.connection.outbox.append(&mut self.frames, grant) {
            Ok(())
        } else {
            Err(TellError::Gone)
        }
    }
}

/// Bodies that came off links, and their bytes.
#[derive(Debug, Default)]
pub struct Count {
    bodies: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Both counts since the start.
    pub fn now(&self) -> (u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (read(&self.bodies), read(&self.bytes))
    }

    pub(crate) fn add(&self, bodies: u64, bytes: u64) {
        self.bodies.fetch_add(bodies, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// An actor; its links count the bodies in its place.
pub trait Counting: Process {
    /// The counter.
    fn count() -> &'static Count;
}

/// Counts the bodies of a batch.
pub(crate) struct Counted {
    count: &'static Count,
    check: fn(&AnyIncarnation) -> bool,
    bodies: u64,
    bytes: u64,
}

impl BatchBuilder for Counted {
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

    fn send(&mut self, to: &AnyIncarnation, _: &Arc<Sender>) -> Result<(), (u64, MailboxError)> {
        let (bodies, bytes) = (
            std::mem::take(&mut self.bodies),
            std::mem::take(&mut self.bytes),
        );
        if !(self.check)(to) {
            return Err((bodies, MailboxError::Gone));
        }
        self.count.add(bodies, bytes);
        Ok(())
    }
}

pub(crate) fn new_batch<A: Counting>() -> Box<dyn BatchBuilder> {
    Box::new(Counted {
        count: A::count(),
        check: |to| incarnation::<A>(to).is_ok(),
        bodies: 0,
        bytes: 0,
    })
}
