//! The desk: where a thread writes what its actors tell, and the link it has spoken over last.
//!
//! Hears every tell to another node. Remembers one link for each thread, with the version of its node's links at which
//! that was right, and the piece that the actor at work is writing for it: what an actor tells in one turn is handed in
//! at the turn's end, under one lock for all of it. Never decides who is linked: a link that is no longer right is found
//! out by the version or by its end. Never keeps anything beyond a turn, nor more than the outbox has granted, and hands
//! in before anything else is written to a link from the same thread, so that nothing changes its place.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::ask::TellError;
use crate::frame::Head;
use crate::identity::Pid;
use crate::link::{Connection, untold};
use crate::message::{Lane, Remote};
use crate::outbox::{Need, Unwritten};
use crate::piece::{PIECE, PIECE_ROOM, Piece};
use crate::supervise;

/// The newest version of any node's links, so that no two of them are ever the same.
static NEWEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

/// Which links a node has, as a number that is another one after each change.
pub(crate) struct Version(AtomicU64);

impl Default for Version {
    fn default() -> Self {
        Self(AtomicU64::new(NEWEST.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

impl Version {
    /// The links are about to change. Whoever calls this holds the lock on them.
    pub(crate) fn change(&self) {
        let newest = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.store(newest, Ordering::Release);
    }

    /// Tells over the link that this thread has at hand.
    #[inline]
    pub(crate) fn tell<M: Remote>(&self, to: &Pid, message: &M, error: &mut TellError) -> Told {
        let version = self.0.load(Ordering::Acquire);
        let tell = |desk: &RefCell<Desk>| {
            // Already borrowed if a body that is being written tells something itself.
            let Ok(mut desk) = desk.try_borrow_mut() else {
                return Told::NoLink;
            };
            match &desk.route {
                Some(route)
                    if route.version == version && route.connection.peer.node == *to.node() =>
                {
                    desk.tell(to, message, error)
                }
                _ => Told::NoLink,
            }
        };
        DESK.try_with(tell).unwrap_or(Told::NoLink)
    }

    /// Has this link at hand from now on if it was wanted before. Whoever calls this holds the lock on the links, has
    /// found it there, and has handed in before that.
    pub(crate) fn keep(&self, connection: &Arc<Connection>) {
        let version = self.0.load(Ordering::Relaxed);
        let _ = DESK.try_with(|desk| {
            let Ok(mut desk) = desk.try_borrow_mut() else {
                return; // as above
            };
            let wanted = connection.peer.node.epoch();
            if desk.grant == 0 && desk.wanted == wanted {
                desk.route = Some(Route {
                    version,
                    connection: connection.clone(),
                });
            }
            desk.wanted = wanted; // who tells many nodes one thing each is spared the counting
        });
    }
}

/// Hands in what is on this thread's desk.
#[inline]
pub(crate) fn hand_in() {
    let _ = DESK.try_with(|desk| {
        if let Ok(mut desk) = desk.try_borrow_mut()
            && desk.grant > 0
        {
            desk.hand_in();
        }
    });
}

/// What has become of a message. Nothing but a number, since it is given back for each one that is sent: the error is
/// put where the caller wants it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    /// There is no link at hand, or it leads elsewhere or has closed. Nothing was told.
    NoLink,
    Failed,
}

impl Told {
    #[inline]
    fn of<M: Remote>(written: Result<(), Unwritten>, error: &mut TellError) -> Self {
        match written {
            Ok(()) => Told::Done,
            Err(Unwritten::Closed) => Told::NoLink,
            Err(unwritten) => {
                *error = untold(unwritten, M::NAME);
                Told::Failed
            }
        }
    }
}

struct Route {
    version: u64,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct Desk {
    route: Option<Route>,
    /// The epoch of the node that was last told something over no route.
    wanted: u64,
    piece: Piece,
    /// How long the piece may become; 0 if there is none.
    grant: usize,
}

impl Desk {
    #[inline]
    fn tell<M: Remote>(&mut self, to: &Pid, message: &M, error: &mut TellError) -> Told {
        let Some(Route { connection, .. }) = &self.route else {
            return Told::NoLink;
        };
        let (mut over_limit, mut is_full) = (None, false);
        let told = supervise::with_current(|current| {
            let letter = connection.letter::<M>(to, current);
            let head = Head::Letter(&letter);
            let in_turn = current.is_some() && M::LANE == Lane::Ordinary;
            if in_turn && self.grant == 0 {
                self.grant = connection.outbox.grant(PIECE_ROOM);
                self.piece.make_room(PIECE_ROOM.min(self.grant));
            }
            let version = letter.version;
            let encode = |buffer: &mut _| message.encode_as(version, buffer);
            if !in_turn || self.grant == 0 {
                let outbox = &connection.outbox;
                let written = outbox.write_now(M::LANE, Need::Refusable, head, encode);
                return Told::of::<M>(written, error);
            }
            match self.piece.draft(head, connection.outbox.short, encode) {
                Ok(draft)
                    if self.piece.len() + draft.written <= self.grant
                        || connection
                            .outbox
                            .grant_more(&mut self.grant, &self.piece, draft) =>
                {
                    self.piece.keep(draft, head);
                    is_full = self.piece.len() >= PIECE;
                }
                Ok(draft) => over_limit = Some(self.piece.take_body(draft)),
                Err(garbled) => return Told::of::<M>(Err(garbled.into()), error),
            }
            Told::Done
        });
        if is_full {
            self.hand_in();
        }
        match over_limit {
            None => told,
            Some(body) => self.tell_encoded::<M>(to, body, error),
        }
    }

    /// Tells what does not fit on the desk, behind what is there.
    #[cold]
    fn tell_encoded<M: Remote>(&mut self, to: &Pid, body: Bytes, error: &mut TellError) -> Told {
        self.hand_in();
        let Some(Route { connection, .. }) = &self.route else {
            return Told::NoLink;
        };
        let written = supervise::with_current(|current| {
            let letter = connection.letter::<M>(to, current);
            let (head, outbox) = (Head::Letter(&letter), &connection.outbox);
            outbox.write_encoded(M::LANE, Need::Refusable, head, body)
        });
        Told::of::<M>(written, error)
    }

    #[cold]
    fn hand_in(&mut self) {
        let grant = std::mem::take(&mut self.grant);
        let Some(Route { connection, .. }) = &self.route else {
            return;
        };
        if connection.outbox.hand_in(&mut self.piece, grant) {
            return;
        }
        // Closed during the turn. Should another link have taken over, what was told goes there, as all that was not sent.
        let successor = connection
            .node
            .upgrade()
            .and_then(|node| node.connection(&connection.peer.node))
            .filter(|other| !Arc::ptr_eq(other, connection));
        if let Some(successor) = successor {
            // Also beyond its bound, by this one piece: the sender was not refused.
            successor.outbox.hand_in(&mut self.piece, 0);
        }
        self.piece = Piece::default(); // with its link, what was on its way is lost
        self.route = None;
    }
}
