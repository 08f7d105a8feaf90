//! The send buffer of a thread: tells of the running actor to one link, flushed at the end of its
//! turn.
//!
//! Each thread caches one link, with the version of its node's link table at which it was valid,
//! and the frames that the running actor writes for it. All frames of one turn are flushed under
//! one lock of the outbox. A stale link is detected by the version or by its closing. Nothing stays
//! in the buffer beyond a turn, its size never exceeds the outbox's grant, and it is flushed before
//! anything else is written to a link from the same thread, so that the order is kept.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::actor::ask::TellError;
use crate::actor::supervise;
use crate::identity::Pid;
use crate::link::outbox::{Need, Unwritten};
use crate::link::{Connection, tell_error};
use crate::wire::frame::Head;
use crate::wire::frame_writer::{BUFFER_CAPACITY, BUFFER_FULL, FrameBuffer};
use crate::wire::message::{Lane, Remote};

/// The newest version over all nodes, so that no two versions are equal.
static NEWEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SEND_BUFFER: RefCell<SendBuffer> = RefCell::default();
}

/// The version of a node's link table, different after each change.
pub(crate) struct LinksVersion(AtomicU64);

impl Default for LinksVersion {
    fn default() -> Self {
        Self(AtomicU64::new(NEWEST.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

impl LinksVersion {
    /// The link table is about to change. The caller holds its lock.
    pub(crate) fn change(&self) {
        let newest = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.store(newest, Ordering::Release);
    }

    /// Tells over the cached link of this thread.
    #[inline]
    pub(crate) fn tell<M: Remote>(&self, to: &Pid, message: &M, error: &mut TellError) -> Outcome {
        let version = self.0.load(Ordering::Acquire);
        let tell = |buffer: &RefCell<SendBuffer>| {
            // Already borrowed if the encoding of a body sends a tell itself.
            let Ok(mut buffer) = buffer.try_borrow_mut() else {
                return Outcome::NoLink;
            };
            match &buffer.route {
                Some(route)
                    if route.version == version && route.connection.peer.node == *to.node() =>
                {
                    buffer.tell(to, message, error)
                }
                _ => Outcome::NoLink,
            }
        };
        SEND_BUFFER.try_with(tell).unwrap_or(Outcome::NoLink)
    }

    /// Caches this link if it was also the last one used. The caller holds the lock of the link
    /// table, has found the link there, and has flushed the buffer before that.
    pub(crate) fn keep(&self, connection: &Arc<Connection>) {
        let version = self.0.load(Ordering::Relaxed);
        let _ = SEND_BUFFER.try_with(|buffer| {
            let Ok(mut buffer) = buffer.try_borrow_mut() else {
                return; // as above
            };
            let wanted = connection.peer.node.epoch();
            if buffer.grant == 0 && buffer.wanted == wanted {
                buffer.route = Some(Route {
                    version,
                    connection: connection.clone(),
                });
            }
            // avoids reference counting for senders that alternate between nodes
            buffer.wanted = wanted;
        });
    }
}

/// Flushes the send buffer of this thread.
#[inline]
pub(crate) fn flush() {
    let _ = SEND_BUFFER.try_with(|buffer| {
        if let Ok(mut buffer) = buffer.try_borrow_mut()
            && buffer.grant > 0
        {
            buffer.flush();
        }
    });
}

/// The outcome of a tell. A plain number, since it is returned for every message; the error is
/// written to a place of the caller's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    /// No cached link, or it leads elsewhere or has closed. Nothing was sent.
    NoLink,
    Failed,
}

impl Outcome {
    #[inline]
    fn of<M: Remote>(written: Result<(), Unwritten>, error: &mut TellError) -> Self {
        match written {
            Ok(()) => Outcome::Sent,
            Err(Unwritten::Closed) => Outcome::NoLink,
            Err(unwritten) => {
                *error = tell_error(unwritten, M::NAME);
                Outcome::Failed
            }
        }
    }
}

struct Route {
    version: u64,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct SendBuffer {
    route: Option<Route>,
    /// The epoch of the last node that was addressed without a cached link.
    wanted: u64,
    frames: FrameBuffer,
    /// Maximum length of the buffer; 0 if there is no grant.
    grant: usize,
}

impl SendBuffer {
    #[inline]
    fn tell<M: Remote>(&mut self, to: &Pid, message: &M, error: &mut TellError) -> Outcome {
        let Some(Route { connection, .. }) = &self.route else {
            return Outcome::NoLink;
        };
        let (mut over_limit, mut is_full) = (None, false);
        let outcome = supervise::with_current(|current| {
            let header = connection.header::<M>(to, current);
            let head = Head::Message(&header);
            let in_turn = current.is_some() && M::LANE == Lane::Ordinary;
            if in_turn && self.grant == 0 {
                self.grant = connection.outbox.grant(BUFFER_CAPACITY);
                self.frames.make_room(BUFFER_CAPACITY.min(self.grant));
            }
            let version = header.version;
            let encode = |buffer: &mut _| message.encode_as(version, buffer);
            if !in_turn || self.grant == 0 {
                let outbox = &connection.outbox;
                let written = outbox.write_now(M::LANE, Need::Refusable, head, encode);
                return Outcome::of::<M>(written, error);
            }
            match self.frames.draft(head, encode) {
                Ok(draft)
                    if self.frames.len() + draft.written <= self.grant
                        || connection
                            .outbox
                            .grant_more(&mut self.grant, &self.frames, draft) =>
                {
                    self.frames.keep(draft, head);
                    is_full = self.frames.len() >= BUFFER_FULL;
                }
                Ok(draft) => over_limit = Some(self.frames.take_body(draft)),
                Err(garbled) => return Outcome::of::<M>(Err(garbled.into()), error),
            }
            Outcome::Sent
        });
        if is_full {
            self.flush();
        }
        match over_limit {
            None => outcome,
            Some(body) => self.tell_encoded::<M>(to, body, error),
        }
    }

    /// Sends a message that exceeds the grant, after the buffered ones.
    #[cold]
    fn tell_encoded<M: Remote>(&mut self, to: &Pid, body: Bytes, error: &mut TellError) -> Outcome {
        self.flush();
        let Some(Route { connection, .. }) = &self.route else {
            return Outcome::NoLink;
        };
        let written = supervise::with_current(|current| {
            let header = connection.header::<M>(to, current);
            let (head, outbox) = (Head::Message(&header), &connection.outbox);
            outbox.write_encoded(M::LANE, Need::Refusable, head, body)
        });
        Outcome::of::<M>(written, error)
    }

    #[cold]
    fn flush(&mut self) {
        let grant = std::mem::take(&mut self.grant);
        let Some(Route { connection, .. }) = &self.route else {
            return;
        };
        if connection.outbox.append(&mut self.frames, grant) {
            return;
        }
        // Closed during the turn. If another link has replaced it, the frames go there, like all
        // unsent frames.
        let successor = connection
            .node
            .upgrade()
            .and_then(|node| node.connection(&connection.peer.node))
            .filter(|other| !Arc::ptr_eq(other, connection));
        if let Some(successor) = successor {
            // May exceed its bound by this one buffer: the sender was not refused.
            successor.outbox.append(&mut self.frames, 0);
        }
        self.frames = FrameBuffer::default(); // lost with its link
        self.route = None;
    }
}
