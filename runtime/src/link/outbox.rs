//! The outgoing half of a link: frames are written into buffers that the transport takes.
//!
//! It holds two lanes of frame buffers, the bulks, and the bytes granted to the threads' [send
//! buffers](crate::link::send_buffer). Bounded in bytes: a full outbox refuses tells; frames that
//! must not be lost (replies, exits) may use twice the bound before the link is closed. Pings have
//! a small reserve of their own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;

use crate::link::send_buffer;
use crate::lock;
use crate::wire::codec::{BODY_MAX, Garbled};
use crate::wire::frame::Head;
use crate::wire::frame_writer::{BUFFER_CAPACITY, BUFFER_FULL, Draft, FrameBuffer};
use crate::wire::message::Lane;

/// A body above this many bytes gets a stream of its own.
pub(crate) const BULK: usize = 256 << 10;
/// Buffers shorter than this are copied to the end of the open one.
const COPIED: usize = 16 << 10;

/// Reserve for pings: an outbox full of other messages must not make a node look dead.
const PINGS: usize = 64 << 10;

/// An item that a transport takes from a link.
#[derive(Debug, PartialEq)]
pub enum Outgoing {
    /// Bytes of the ordered stream were put into the buffer.
    Batch,
    /// A bulk, to be sent in a stream of its own together with its token.
    Bulk {
        /// The number under which it was announced in the ordered stream.
        token: u64,
        /// Its complete body.
        bytes: Bytes,
    },
    /// The link has ended.
    Closed,
}

/// Why a frame was not written.
#[derive(Debug, PartialEq)]
pub(crate) enum Unwritten {
    Full,
    Closed,
    Refused(String),
    /// No room even for a frame that must not be lost: the link must be closed.
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

/// The waiting frames of one lane, in buffers that end between frames.
#[derive(Default)]
struct LaneBuffers {
    /// Complete buffers, before the open one.
    closed: VecDeque<BytesMut>,
    closed_bytes: usize,
    /// The buffer for new frames.
    open: FrameBuffer,
    /// The initial capacity of an empty buffer: the length of the last one.
    room: usize,
}

impl LaneBuffers {
    fn len(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    /// Closes the open buffer if it is large.
    #[inline]
    fn close_if_large(&mut self) {
        if self.open.len() >= BUFFER_FULL {
            self.close();
            self.open.make_room(BUFFER_CAPACITY);
        }
    }

    #[cold]
    fn close(&mut self) {
        let closed = self.open.take();
        self.push(closed);
    }

    fn push(&mut self, frames: BytesMut) {
        self.closed_bytes += frames.len();
        self.closed.push_back(frames);
    }

    /// Adds the frames of a send buffer.
    fn add(&mut self, frames: &mut FrameBuffer) {
        if frames.len() < COPIED {
            self.open.make_room(self.room);
            self.open.append(frames);
            return self.close_if_large();
        }
        if self.open.len() > 0 {
            self.close();
        }
        self.push(frames.take());
    }

    /// Moves the oldest bytes, at most `max`, to `buffer`: without a copy if it is empty and the
    /// bytes fit.
    fn take(&mut self, buffer: &mut BytesMut, max: usize) {
        let Some(front) = self.closed.front_mut() else {
            if self.open.len() > max {
                give(self.open.split_to(max), buffer);
            } else {
                self.room = self.open.len().min(BUFFER_CAPACITY);
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

fn give(frames: BytesMut, buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = frames;
    } else {
        buffer.extend_from_slice(&frames);
    }
}

#[derive(Default)]
struct State {
    lanes: [LaneBuffers; 2],
    bulks: VecDeque<(u64, Bytes)>,
    bulk_bytes: usize,
    tokens: u64,
    /// Bytes that send buffers may still flush.
    granted: usize,
    /// Frames ever written.
    written: u64,
    /// Accepts no more frames; existing ones may still be taken.
    ending: bool,
    /// Whether any bytes were taken yet.
    begun: bool,
}

impl State {
    #[inline]
    fn waiting(&self) -> usize {
        self.lanes[0].len() + self.lanes[1].len() + self.bulk_bytes
    }

    /// Announces in the lane that a body comes in a stream of its own.
    fn announce(&mut self, lane: Lane, head: Head<'_>, bulk: Bytes) -> Result<(), Unwritten> {
        let (token, length) = (self.tokens + 1, bulk.len() as u64);
        let head = Head::Bulk {
            token,
            length,
            of: &head,
        };
        let lane_buffers = &mut self.lanes[lane as usize];
        let draft = lane_buffers.open.draft(head, |_| Ok(()))?;
        lane_buffers.open.keep(draft, head);
        lane_buffers.close_if_large();
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
}

thread_local! {
    /// The buffer in which a thread encodes a body before it takes the lock.
    static SCRATCH: Cell<BytesMut> = Cell::default();
}

impl Outbox {
    /// An empty outbox with this bound in bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            ready: Default::default(),
            limit,
        }
    }

    /// Writes one frame, after flushing this thread's send buffer.
    #[inline]
    pub(crate) fn write(
        &self,
        lane: Lane,
        need: Need,
        head: Head<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) -> Result<(), Unwritten> {
        if lane == Lane::Ordinary {
            send_buffer::flush();
        }
        self.write_now(lane, need, head, body)
    }

    /// Writes one frame. The thread's send buffer must hold no earlier frame.
    ///
    /// The body is encoded before the lock is taken: a large one takes time, and pings must not
    /// wait for it.
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
        if scratch.capacity() <= BUFFER_CAPACITY {
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
        let lane_buffers = &mut state.lanes[lane as usize];
        let (lane_bytes, idle) = (lane_buffers.len(), lane_buffers.len() == 0);
        lane_buffers.open.make_room(lane_buffers.room);
        let draft = lane_buffers.open.draft(head, |buffer| {
            buffer.extend_from_slice(body);
            Ok(())
        })?;
        let has_own_room = lane == Lane::Ping && lane_bytes + draft.written <= PINGS;
        if !has_own_room {
            self.has_room(waiting, granted, draft.written, need)?;
        }
        lane_buffers.open.keep(draft, head);
        lane_buffers.close_if_large();
        state.written += 1;
        drop(state);
        if idle {
            self.ready[lane as usize].wake();
        }
        Ok(())
    }

    /// Writes one frame with an encoded body. The thread's send buffer must hold no earlier frame.
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

    /// A single message always fits; several must not exceed the bound.
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

    /// Grants a send buffer up to `most` bytes, to be flushed later.
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

    /// Extends a grant by this frame, if there is room and it needs no stream of its own.
    #[cold]
    pub(crate) fn grant_more(&self, grant: &mut usize, frames: &FrameBuffer, draft: Draft) -> bool {
        if draft.body > BULK {
            return false;
        }
        let lacking = (frames.len() + draft.written).saturating_sub(*grant);
        let more = self.grant(lacking);
        *grant += more;
        more == lacking
    }

    /// Takes the frames of a send buffer and returns its grant; false, with the buffer unchanged,
    /// if the outbox has ended.
    pub(crate) fn append(&self, frames: &mut FrameBuffer, grant: usize) -> bool {
        let mut state = lock(&self.state);
        if state.ending {
            return frames.len() == 0;
        }
        state.granted = state.granted.saturating_sub(grant);
        if frames.len() == 0 {
            return true;
        }
        state.written += frames.count();
        let lane_buffers = &mut state.lanes[Lane::Ordinary as usize];
        let idle = lane_buffers.len() == 0;
        lane_buffers.add(frames);
        drop(state);
        if idle {
            self.ready[Lane::Ordinary as usize].wake();
        }
        true
    }

    /// Takes waiting bytes. `buffer` gets at most `max`, by a swap instead of a copy where
    /// possible.
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

    /// Accepts no more frames. Waiting ones are dropped, or left for the transport to take.
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

    /// Moves everything from an outbox of which nothing was taken yet; otherwise moves nothing and
    /// returns false.
    pub(crate) fn inherit(&self, from: &Outbox) -> bool {
        let mut old = lock(&from.state);
        if old.begun {
            return false;
        }
        let inherited = std::mem::take(&mut *old);
        old.ending = true;
        drop(old);
        *lock(&self.state) = State {
            granted: 0, // holders of a grant find the old outbox ended
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
    use crate::wire::frame::{self, PREFIX};

    /// The head of a reply to the first ask.
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
        let outbox = Outbox::new(1000);
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
    fn full_outbox_refuses_tells_first_and_overruns_at_double() {
        let outbox = Outbox::new(40);
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
    fn full_outbox_accepts_pings_up_to_their_reserve() {
        let outbox = Outbox::new(40);
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
    fn unencodable_body_leaves_no_bytes() {
        let outbox = Outbox::new(1000);
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
    fn large_body_is_announced_and_sent_separately() {
        let outbox = Outbox::new(10 << 20);
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
    fn frames_written_before_the_end_can_be_taken() {
        let outbox = Outbox::new(1000);
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
