//! The outgoing half of a link: frames are written into the pieces that the transport takes.
//!
//! Remembers two lanes of pieces, the bulks on their way, what it has granted to the [desks](crate::desk), and nothing of
//! what was taken. Bounded in bytes: what a full outbox is told is refused, and what must not be lost (replies, exits) may
//! go to twice the bound before the link is given up. Pings have a little room of their own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;

use crate::codec::{BODY_MAX, Garbled};
use crate::frame::Head;
use crate::message::Lane;
use crate::piece::{Draft, PIECE, PIECE_ROOM, Piece};
use crate::{desk, lock};

/// A body above this many bytes gets a stream of its own.
pub(crate) const BULK: usize = 256 << 10;
/// Pieces from a desk that are shorter than this are copied behind what is there.
const COPIED: usize = 16 << 10;

/// Room that pings have for themselves: an outbox that is full of all else must not make a node look dead.
const PINGS: usize = 64 << 10;

/// What a transport takes from a link.
#[derive(Debug, PartialEq)]
pub enum Outgoing {
    /// Bytes were put into the buffer: a piece of the ordered stream.
    Batch,
    /// A bulk, to be sent in a stream of its own together with its token.
    Bulk {
        /// The number under which it was announced in the ordered stream.
        token: u64,
        /// All of it.
        bytes: Bytes,
    },
    /// Nothing more will come.
    Closed,
}

/// Why nothing was written.
#[derive(Debug, PartialEq)]
pub(crate) enum Unwritten {
    Full,
    Closed,
    Refused(String),
    /// Not even what must not be lost has room: the link cannot go on.
    Overrun,
}

impl From<Garbled> for Unwritten {
    fn from(Garbled { reason }: Garbled) -> Self {
        Self::Refused(reason)
    }
}

/// Whether a frame may be refused when the outbox is full.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Need {
    Refusable,
    MustNotBeLost,
}

/// What waits in one lane, in pieces that end between frames.
#[derive(Default)]
struct Pieces {
    /// Before the open one, and not changed any more.
    closed: VecDeque<BytesMut>,
    closed_bytes: usize,
    /// Where frames are written.
    open: Piece,
    /// The room an empty piece is given: what the last one needed.
    room: usize,
}

impl Pieces {
    fn len(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    /// Closes the open piece if it is large.
    #[inline]
    fn close_if_large(&mut self) {
        if self.open.len() >= PIECE {
            self.close();
            self.open.make_room(PIECE_ROOM);
        }
    }

    #[cold]
    fn close(&mut self) {
        let closed = self.open.take();
        self.push(closed);
    }

    fn push(&mut self, piece: BytesMut) {
        self.closed_bytes += piece.len();
        self.closed.push_back(piece);
    }

    /// Takes a piece from a desk.
    fn add(&mut self, piece: &mut Piece) {
        if piece.len() < COPIED {
            self.open.make_room(self.room);
            self.open.append(piece);
            return self.close_if_large();
        }
        if self.open.len() > 0 {
            self.close();
        }
        self.push(piece.take());
    }

    /// Gives `buffer` the oldest bytes, at most `max`: without a copy if it is empty and the piece fits.
    fn take(&mut self, buffer: &mut BytesMut, max: usize) {
        let Some(front) = self.closed.front_mut() else {
            if self.open.len() > max {
                give(self.open.split_to(max), buffer);
            } else {
                self.room = self.open.len().min(PIECE_ROOM);
                give(self.open.take(), buffer);
            }
            return;
        };
        if front.len() > max {
            give(front.split_to(max), buffer);
            self.closed_bytes -= max;
        } else if let Some(front) = self.closed.pop_front() {
            self.closed_bytes -= front.len();
            give(front, buffer);
        }
    }
}

fn give(piece: BytesMut, buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = piece;
    } else {
        buffer.extend_from_slice(&piece);
    }
}

#[derive(Default)]
struct State {
    lanes: [Pieces; 2],
    bulks: VecDeque<(u64, Bytes)>,
    bulk_bytes: usize,
    tokens: u64,
    /// Bytes that desks may still hand in.
    granted: usize,
    /// Frames ever written.
    written: u64,
    /// No more is written, but what is here may still be taken.
    ending: bool,
    /// Something was taken already.
    begun: bool,
}

impl State {
    #[inline]
    fn waiting(&self) -> usize {
        self.lanes[0].len() + self.lanes[1].len() + self.bulk_bytes
    }

    /// Says in the lane that a body comes in a stream of its own.
    fn announce(&mut self, lane: Lane, head: Head<'_>, bulk: Bytes) -> Result<(), Unwritten> {
        let (token, length) = (self.tokens + 1, bulk.len() as u64);
        let head = Head::Bulk {
            token,
            length,
            of: &head,
        };
        let pieces = &mut self.lanes[lane as usize];
        let draft = pieces.open.draft(head, false, |_| Ok(()))?;
        pieces.open.keep(draft, head);
        pieces.close_if_large();
        self.tokens = token;
        self.bulk_bytes += bulk.len();
        self.bulks.push_back((token, bulk));
        Ok(())
    }
}

#[inline]
fn check_length(body: usize) -> Result<(), Unwritten> {
    if body > BODY_MAX {
        let reason = format!("message has {body} bytes, expected at most {BODY_MAX}");
        return Err(Unwritten::Refused(reason));
    }
    Ok(())
}

pub(crate) struct Outbox {
    state: Mutex<State>,
    ready: [AtomicWaker; 2],
    limit: usize,
    /// The peer reads the short form.
    pub(crate) short: bool,
}

thread_local! {
    /// Where a thread encodes a body before it takes the lock.
    static SCRATCH: Cell<BytesMut> = Cell::default();
}

impl Outbox {
    /// An empty one that holds up to this many bytes.
    pub(crate) fn new(limit: usize, short: bool) -> Self {
        Self {
            state: Mutex::default(),
            ready: Default::default(),
            limit,
            short,
        }
    }

    /// Writes one frame, behind what this thread has on its desk.
    #[inline]
    pub(crate) fn write(
        &self,
        lane: Lane,
        need: Need,
        head: Head<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) -> Result<(), Unwritten> {
        if lane == Lane::Ordinary {
            desk::hand_in();
        }
        self.write_now(lane, need, head, body)
    }

    /// Writes one frame. Nothing that comes before it may be on a desk.
    ///
    /// Its body is encoded before the lock is taken: a large one takes its time, and no ping may wait for that.
    pub(crate) fn write_now(
        &self,
        lane: Lane,
        need: Need,
        head: Head<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) -> Result<(), Unwritten> {
        let mut scratch = SCRATCH.take();
        scratch.clear();
        body(&mut scratch)?;
        if scratch.len() > BULK {
            return self.write_encoded(lane, need, head, scratch.freeze());
        }
        let written = self.write_short(lane, need, head, &scratch);
        if scratch.capacity() <= PIECE_ROOM {
            SCRATCH.set(scratch);
        }
        written
    }

    fn write_short(
        &self,
        lane: Lane,
        need: Need,
        head: Head<'_>,
        body: &[u8],
    ) -> Result<(), Unwritten> {
        let mut state = lock(&self.state);
        if state.ending {
            return Err(Unwritten::Closed);
        }
        let (waiting, granted) = (state.waiting(), state.granted);
        let pieces = &mut state.lanes[lane as usize];
        let (lane_bytes, idle) = (pieces.len(), pieces.len() == 0);
        pieces.open.make_room(pieces.room);
        let draft = pieces.open.draft(head, self.short, |buffer| {
            buffer.extend_from_slice(body);
            Ok(())
        })?;
        let has_own_room = lane == Lane::Ping && lane_bytes + draft.written <= PINGS;
        if !has_own_room {
            self.has_room(waiting, granted, draft.written, need)?;
        }
        pieces.open.keep(draft, head);
        pieces.close_if_large();
        state.written += 1;
        drop(state);
        if idle {
            self.ready[lane as usize].wake();
        }
        Ok(())
    }

    /// Writes one frame whose body has been encoded. Nothing that comes before it may be on a desk.
    pub(crate) fn write_encoded(
        &self,
        lane: Lane,
        need: Need,
        head: Head<'_>,
        body: Bytes,
    ) -> Result<(), Unwritten> {
        if body.len() <= BULK {
            return self.write_short(lane, need, head, &body);
        }
        check_length(body.len())?;
        let mut state = lock(&self.state);
        if state.ending {
            return Err(Unwritten::Closed);
        }
        self.has_room(state.waiting(), state.granted, body.len(), need)?;
        let idle = state.lanes[lane as usize].len() == 0;
        state.announce(lane, head, body)?;
        state.written += 1;
        drop(state);
        if idle {
            self.ready[lane as usize].wake();
        }
        Ok(())
    }

    /// A message alone always fits; with others it may not pass the bound.
    #[inline]
    fn has_room(
        &self,
        waiting: usize,
        granted: usize,
        written: usize,
        need: Need,
    ) -> Result<(), Unwritten> {
        let all = waiting + granted + written;
        if waiting == 0 || all <= self.limit {
            return Ok(());
        }
        match need {
            Need::Refusable => Err(Unwritten::Full),
            Need::MustNotBeLost if all <= 2 * self.limit => Ok(()),
            Need::MustNotBeLost => Err(Unwritten::Overrun),
        }
    }

    /// Lets a desk hand in so many bytes later, or fewer if there is no room for more.
    pub(crate) fn grant(&self, most: usize) -> usize {
        let mut state = lock(&self.state);
        if state.ending {
            return 0;
        }
        let room = self.limit.saturating_sub(state.waiting() + state.granted);
        let grant = room.min(most);
        state.granted += grant;
        grant
    }

    /// Lets a desk hand in this frame as well, if there is room for it and it needs no stream of its own.
    #[cold]
    pub(crate) fn grant_more(&self, grant: &mut usize, piece: &Piece, draft: Draft) -> bool {
        if draft.body > BULK {
            return false;
        }
        let lacking = (piece.len() + draft.written).saturating_sub(*grant);
        let more = self.grant(lacking);
        *grant += more;
        more == lacking
    }

    /// Takes what a desk was granted, and leaves its piece empty; false, and the piece as it was, if no more is written.
    pub(crate) fn hand_in(&self, piece: &mut Piece, grant: usize) -> bool {
        let mut state = lock(&self.state);
        if state.ending {
            return piece.len() == 0;
        }
        state.granted = state.granted.saturating_sub(grant);
        if piece.len() == 0 {
            return true;
        }
        state.written += piece.frames();
        let pieces = &mut state.lanes[Lane::Ordinary as usize];
        let idle = pieces.len() == 0;
        pieces.add(piece);
        drop(state);
        if idle {
            self.ready[Lane::Ordinary as usize].wake();
        }
        true
    }

    /// Takes what is there. `buffer` gets at most `max` bytes, by exchange and without a copy where possible.
    pub(crate) fn poll_take(
        &self,
        lane: Lane,
        buffer: &mut BytesMut,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Outgoing> {
        self.ready[lane as usize].register(cx.waker());
        let mut state = lock(&self.state);
        let queued = state.lanes[lane as usize].len();
        if queued > 0 {
            state.begun = true;
            state.lanes[lane as usize].take(buffer, max.max(1));
            return Poll::Ready(Outgoing::Batch);
        }
        if lane == Lane::Ordinary
            && let Some((token, bytes)) = state.bulks.pop_front()
        {
            state.begun = true;
            state.bulk_bytes -= bytes.len();
            return Poll::Ready(Outgoing::Bulk { token, bytes });
        }
        if state.ending {
            Poll::Ready(Outgoing::Closed)
        } else {
            Poll::Pending
        }
    }

    /// No more is written. What is here is thrown away, or left for the transport to take.
    pub(crate) fn end(&self, throw_away: bool) {
        let mut state = lock(&self.state);
        state.ending = true;
        if throw_away {
            state.lanes = Default::default();
            state.bulks.clear();
            state.bulk_bytes = 0;
        }
        drop(state);
        self.ready.iter().for_each(AtomicWaker::wake);
    }

    /// Moves everything from an outbox of which nothing was taken yet; false, and nothing moved, otherwise.
    pub(crate) fn inherit(&self, from: &Outbox) -> bool {
        let mut old = lock(&from.state);
        if old.begun {
            return false;
        }
        let inherited = std::mem::take(&mut *old);
        old.ending = true;
        drop(old);
        *lock(&self.state) = State {
            granted: 0, // who was granted something learns that the old one takes no more
            ending: false,
            ..inherited
        };
        self.ready
            .iter()
            .chain(&from.ready)
            .for_each(AtomicWaker::wake);
        true
    }

    /// Frames written so far.
    pub(crate) fn written(&self) -> u64 {
        lock(&self.state).written
    }

    /// Bytes waiting.
    pub(crate) fn queued(&self) -> usize {
        lock(&self.state).waiting()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use futures_util::task::noop_waker;

    use super::*;
    use crate::frame::{self, PREFIX};

    /// The head of a reply to the first question.
    const HEAD: &[u8] = b"\x03\0\0\0\0\0\0\0\x01\0";

    fn say(outbox: &Outbox, need: Need, bytes: &[u8]) -> Result<(), Unwritten> {
        let body = |buffer: &mut BytesMut| {
            buffer.put_slice(bytes);
            Ok(())
        };
        outbox.write(Lane::Ordinary, need, Head::Answer { correlation: 1 }, body)
    }

    fn take(outbox: &Outbox, buffer: &mut BytesMut, max: usize) -> Poll<Outgoing> {
        let waker = noop_waker();
        outbox.poll_take(
            Lane::Ordinary,
            buffer,
            max,
            &mut Context::from_waker(&waker),
        )
    }

    #[test]
    fn frames_come_out_in_order_each_with_its_length() {
        let outbox = Outbox::new(1000, false);
        say(&outbox, Need::Refusable, b"one").unwrap();
        say(&outbox, Need::Refusable, b"").unwrap();
        let mut buffer = BytesMut::new();
        assert_eq!(
            take(&outbox, &mut buffer, 1000),
            Poll::Ready(Outgoing::Batch)
        );
        let expected = [b"\0\0\0\x0d", HEAD, b"one", b"\0\0\0\x0a", HEAD].concat();
        assert_eq!(buffer, expected);
        assert_eq!(take(&outbox, &mut buffer, 1000), Poll::Pending);
    }

    #[test]
    fn a_full_outbox_refuses_tells_before_replies_and_gives_up_at_twice_its_bound() {
        let outbox = Outbox::new(40, false);
        say(&outbox, Need::Refusable, &[0; 20]).unwrap();
        assert_eq!(
            say(&outbox, Need::Refusable, &[0; 20]),
            Err(Unwritten::Full)
        );
        assert_eq!(say(&outbox, Need::MustNotBeLost, &[0; 20]), Ok(()));
        assert_eq!(
            say(&outbox, Need::MustNotBeLost, &[0; 20]),
            Err(Unwritten::Overrun)
        );
        assert_eq!(outbox.queued(), 2 * (HEAD.len() + PREFIX + 20));
    }

    #[test]
    fn a_full_outbox_still_takes_pings_and_of_those_no_more_than_their_own_room_holds() {
        let outbox = Outbox::new(40, false);
        say(&outbox, Need::Refusable, &[0; 20]).unwrap();
        let ping = || {
            let body = |buffer: &mut BytesMut| {
                buffer.put_slice(&[0; 1000]);
                Ok(())
            };
            let head = Head::Answer { correlation: 1 };
            outbox.write(Lane::Ping, Need::Refusable, head, body)
        };
        let taken = (0..100).take_while(|_| ping().is_ok()).count();
        assert_eq!(taken, PINGS / (PREFIX + HEAD.len() + 1000));
        assert_eq!(ping(), Err(Unwritten::Full));
    }

    #[test]
    fn a_body_that_cannot_be_written_leaves_nothing_behind() {
        let outbox = Outbox::new(1000, false);
        let result = outbox.write(
            Lane::Ordinary,
            Need::Refusable,
            Head::Answer { correlation: 1 },
            |buffer| {
                buffer.put_slice(b"half");
                Err(Garbled::new("no"))
            },
        );
        assert_eq!(
            (result, outbox.queued()),
            (Err(Unwritten::Refused("no".into())), 0)
        );
    }

    #[test]
    fn a_large_body_is_announced_in_the_stream_and_travels_by_itself() {
        let outbox = Outbox::new(10 << 20, false);
        say(&outbox, Need::Refusable, &vec![7; BULK + 1]).unwrap();
        let mut buffer = BytesMut::new();
        assert_eq!(
            take(&outbox, &mut buffer, 1000),
            Poll::Ready(Outgoing::Batch)
        );
        let announced = frame::Frame::read(&buffer[PREFIX..]).unwrap();
        let length = (BULK + 1) as u64;
        assert_eq!(
            announced,
            frame::Frame::BulkAnnounce {
                token: 1,
                length,
                header: HEAD
            }
        );
        let Poll::Ready(Outgoing::Bulk { token: 1, bytes }) = take(&outbox, &mut buffer, 1000)
        else {
            panic!("the bulk follows its announcement")
        };
        assert_eq!((bytes.len(), outbox.queued()), (BULK + 1, 0));
    }

    #[test]
    fn what_was_written_before_the_end_can_still_be_taken() {
        let outbox = Outbox::new(1000, false);
        say(&outbox, Need::Refusable, b"last").unwrap();
        outbox.end(false);
        assert_eq!(
            say(&outbox, Need::Refusable, b"late"),
            Err(Unwritten::Closed)
        );
        let mut buffer = BytesMut::new();
        assert_eq!(take(&outbox, &mut buffer, 9), Poll::Ready(Outgoing::Batch));
        assert_eq!(take(&outbox, &mut buffer, 9), Poll::Ready(Outgoing::Batch));
        assert_eq!(buffer, [b"\0\0\0\x0e", HEAD, b"last"].concat());
        assert_eq!(take(&outbox, &mut buffer, 5), Poll::Ready(Outgoing::Closed));
    }
}
