//! A mailbox: its bound, and the meter that says what is known of its actor from outside.
//!
//! actix's queue below is unbounded and first in, first out; the bound is ours, counted here by whoever
//! sends. Tells and asks are enqueued the same way, so they keep their order. The meter remembers numbers
//! only, never messages: senders write what they sent, the actor what it handled, the watchdog what it saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::ages::{self, Ages};
use crate::clock::{Clock, Instant};
use crate::message::Lane;
use crate::tally::{MessageInfo, Tallies};

/// No more messages are taken; those in the queue are still handled.
const DRAINING: u64 = 1 << 63;
/// The actor has ended.
const CLOSED: u64 = 1 << 62;
/// A tap wants to see what is sent: whoever sends must take the slow way.
const TAPPED: u64 = 1 << 61;
const COUNT: u64 = TAPPED - 1;

/// The actor must stop before its next message.
const STOP_NOW: u32 = 1;
/// Something waits ahead of the mailbox.
const AHEAD: u32 = 2;
/// The actor must end as after a panic.
const FALLEN: u32 = 4;
/// A link waits for room in the mailbox, or ahead of it.
const ROOM_REQUESTED: u32 = 8;
const ROOM_AHEAD_REQUESTED: u32 = 16;

/// In place of a message type: the actor is at an errand.
const ERRAND: u32 = u32::MAX;

/// Why the mailbox takes no message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwanted {
    Full,
    Gone,
}

/// A cache line of its own, so that senders and the actor do not slow each other down.
#[repr(align(64))]
#[derive(Default)]
struct Line<T = ()>(AtomicU64, T);

/// What is known of one mailbox and its actor from outside.
pub(crate) struct Meter {
    /// Messages ever sent, and the three flags. Written by every sender, as are the stamps.
    sent: Line<Ages>,
    /// Messages ever handled. Written by the actor alone.
    handled: Line,
    bound: u64,
    /// What the actor looks at between two messages or turns: [`STOP_NOW`], [`AHEAD`], [`FALLEN`] and the requests for room.
    attention: AtomicU32,
    /// Messages waiting beside the mailbox, and the millisecond at which the oldest of them was sent.
    beside: AtomicU32,
    beside_since: AtomicU32,
    /// Encoded bytes of the large messages from links that wait, and how many may.
    large: AtomicU64,
    large_max: u64,
    /// Wakes the links that wait for room.
    room_freed: Notify,
    /// Encoded bytes of the largest message that waits at a link for room.
    requested: AtomicU64,
    /// Messages thrown away to make room for newer ones.
    dropped: AtomicU64,
    /// Messages that found no room.
    refused: AtomicU64,
    /// The actor's task, to be woken when a flag was set.
    pub(crate) task: AtomicWaker,
    clock: Clock,
    born: Instant,
    /// When the actor's first life began.
    first_born: Instant,
    pub(crate) tallies: Tallies,
    /// The type being handled, as one more than its number in the tallies; [`ERRAND`]; or nothing yet.
    doing: AtomicU32,
    /// Errands under way, and those that came back.
    errands: AtomicU32,
    returned: AtomicU64,
    blocked: Blocked,
}

/// What the watchdog saw of an actor.
#[derive(Default)]
struct Blocked {
    count: AtomicU32,
    longest_millis: AtomicU32,
    /// As in [`Meter::doing`], of the last time.
    doing: AtomicU32,
}

impl Blocked {
    /// The same, for the actor's next life.
    fn go_on(&self) -> Self {
        let copy = |from: &AtomicU32| AtomicU32::new(from.load(Ordering::Relaxed));
        Self {
            count: copy(&self.count),
            longest_millis: copy(&self.longest_millis),
            doing: copy(&self.doing),
        }
    }
}

/// What a message must have come over a link with, encoded, to be weighed; those below are bounded by their number.
pub(crate) const LARGE: usize = 4 << 10;

/// The bytes of one large message in a mailbox, given back when this is dropped.
pub(crate) struct Weight {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.meter.large.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where an actor is: if two looks find the same, it has not moved between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Step {
    doing: u32,
    count: u64,
    returned: u64,
}

impl Meter {
    pub(crate) fn new(bound: u32, large_max: u64, clock: &Clock) -> Self {
        Self {
            sent: Line::default(),
            handled: Line::default(),
            bound: u64::from(bound),
            attention: AtomicU32::new(0),
            beside: AtomicU32::new(0),
            beside_since: AtomicU32::new(0),
            large: AtomicU64::new(0),
            large_max,
            room_freed: Notify::new(),
            requested: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            task: AtomicWaker::new(),
            clock: clock.clone(),
            born: clock.now(),
            first_born: clock.now(),
            tallies: Tallies::default(),
            doing: AtomicU32::new(0),
            errands: AtomicU32::new(0),
            returned: AtomicU64::new(0),
            blocked: Blocked::default(),
        }
    }

    /// Counts on where the meter of the actor's last life has ended. Nobody writes to that one any more.
    pub(crate) fn go_on_from(&mut self, last: &Self) {
        let copy = |to: &AtomicU64, from: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.refused, &last.refused);
        copy(&self.dropped, &last.dropped);
        self.tallies = last.tallies.go_on();
        self.first_born = last.first_born;
        self.blocked = last.blocked.go_on();
    }

    #[cfg(test)]
    pub(crate) fn for_tests(bound: u32) -> Self {
        Self::new(bound, u64::MAX, &Clock::real())
    }

    /// How many were handled, read before a place is taken: so it is never more than the number of those sent before.
    #[inline]
    fn handled_before(&self) -> u64 {
        self.handled.0.load(Ordering::Acquire)
    }

    /// How many wait before a place that was taken when so many had been sent, as things are now. A sender that lost its processor
    /// between its look at those handled and its place has seen too many; by now even later ones may have been handled.
    #[cold]
    fn depth_now(&self, before: u64) -> u64 {
        before.saturating_sub(self.handled.0.load(Ordering::Acquire))
    }

    /// Takes a place in the queue.
    #[inline]
    pub(crate) fn reserve(&self) -> Result<(), Unwanted> {
        let handled = self.handled_before();
        self.judge(self.sent.0.fetch_add(1, Ordering::AcqRel), handled)
    }

    /// Takes a place in the queue of a tapped mailbox.
    pub(crate) fn reserve_past_tap(&self) -> Result<(), Unwanted> {
        let handled = self.handled_before();
        let before = self.sent.0.fetch_add(1, Ordering::AcqRel);
        self.judge(before & !TAPPED, handled)
    }

    /// Whether a place may be kept that was taken when so many had been sent and handled; if not, it is given back.
    #[inline]
    fn judge(&self, before: u64, handled: u64) -> Result<(), Unwanted> {
        let mut depth = before.wrapping_sub(handled);
        if depth >= self.bound {
            depth = self.depth_now(before);
        }
        // Flags make the number larger than any bound, so one comparison serves all four questions.
        if depth < self.bound {
            if ages::is_stamped(before, depth) {
                self.sent.1.stamp(before, depth, self.clock.coarse_millis());
            }
            return Ok(());
        }
        let unwanted = self.give_back(before);
        if unwanted == Unwanted::Full && before & TAPPED == 0 {
            self.note_refused();
        }
        Err(unwanted)
    }

    /// Marks the mailbox as one whose messages a tap sees, or takes the mark away.
    pub(crate) fn set_tapped(&self, tapped: bool) {
        match tapped {
            true => self.sent.0.fetch_or(TAPPED, Ordering::AcqRel),
            false => self.sent.0.fetch_and(!TAPPED, Ordering::AcqRel),
        };
    }

    pub(crate) fn is_tapped(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & TAPPED != 0
    }

    /// Takes room for so many encoded bytes from a link, if they are many. One message always fits when nothing large waits.
    pub(crate) fn weigh(self: &Arc<Self>, bytes: usize) -> Result<Option<Weight>, Unwanted> {
        if bytes < LARGE {
            return Ok(None);
        }
        let bytes = bytes as u64;
        let before = self.large.fetch_add(bytes, Ordering::Relaxed);
        let weight = Weight {
            meter: self.clone(),
            bytes,
        };
        if before == 0 || before.saturating_add(bytes) <= self.large_max {
            return Ok(Some(weight));
        }
        self.note_refused();
        Err(Unwanted::Full)
    }

    /// Takes this many places for messages that found room when they began to arrive: other senders may have filled the mailbox since,
    /// and then it holds that many more than its bound. `Full` only if a tap must see each of them.
    pub(crate) fn reserve_admitted(&self, count: u64) -> Result<(), Unwanted> {
        let handled = self.handled_before();
        let before = self.sent.0.fetch_add(count, Ordering::AcqRel);
        if before & !COUNT == 0 {
            let millis = self.clock.coarse_millis();
            let depth = before.saturating_sub(handled);
            self.sent.1.stamp_run(before, count, depth, millis);
            return Ok(());
        }
        self.sent.0.fetch_sub(count - 1, Ordering::AcqRel);
        Err(self.give_back(before))
    }

    /// Messages that the mailbox still takes without showing them to a tap.
    pub(crate) fn room(&self) -> u64 {
        let sent = self.sent.0.load(Ordering::Acquire);
        match sent & !COUNT {
            0 => {
                let handled = self.handled.0.load(Ordering::Acquire);
                self.bound.saturating_sub(sent.saturating_sub(handled))
            }
            _ => 0,
        }
    }

    /// Whether a message must wait for room. Not while the actor is ending: then it is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & (DRAINING | CLOSED) == 0
            && self.queued() >= self.bound
    }

    /// Ready once there is room after [`request_room`](Self::request_room), or when the actor has ended. To be created before the request.
    pub(crate) fn room_freed(&self) -> Notified<'_> {
        self.room_freed.notified()
    }

    /// Requests a notification when a message of so many encoded bytes in this lane finds room.
    pub(crate) fn request_room(&self, lane: Lane, bytes: usize) {
        if bytes >= LARGE {
            self.requested.fetch_max(bytes as u64, Ordering::AcqRel);
        }
        let request = match lane {
            Lane::Ordinary => ROOM_REQUESTED,
            Lane::Ping => ROOM_AHEAD_REQUESTED,
        };
        self.attention.fetch_or(request, Ordering::AcqRel);
        self.task.wake(); // There may be room already.
        if self.is_closed() {
            self.room_freed.notify_waiters(); // The actor ended before the request.
        }
    }

    /// Wakes the links that wait for room, if there is some. Called at the end of each of the actor's turns.
    #[inline]
    pub(crate) fn end_turn(&self) {
        let requests = ROOM_REQUESTED | ROOM_AHEAD_REQUESTED;
        if self.attention.load(Ordering::Relaxed) & requests != 0 {
            self.grant_room();
        }
    }

    #[cold]
    fn grant_room(&self) {
        let large = self.large.load(Ordering::Relaxed);
        let with_requested = large.saturating_add(self.requested.load(Ordering::Acquire));
        if large > 0 && with_requested > self.large_max {
            return;
        }
        let granted = match (self.is_full(), self.has_ahead()) {
            (false, false) => ROOM_REQUESTED | ROOM_AHEAD_REQUESTED,
            (false, true) => ROOM_REQUESTED,
            (true, false) => ROOM_AHEAD_REQUESTED,
            (true, true) => return,
        };
        if self.attention.fetch_and(!granted, Ordering::AcqRel) & granted != 0 {
            self.requested.store(0, Ordering::Release);
            self.room_freed.notify_waiters();
        }
    }

    #[cold]
    fn give_back(&self, before: u64) -> Unwanted {
        self.sent.0.fetch_sub(1, Ordering::AcqRel);
        if before & (DRAINING | CLOSED) == 0 {
            return Unwanted::Full;
        }
        self.task.wake(); // It may have seen our place taken and waited for a message.
        Unwanted::Gone
    }

    /// Takes a place that the bound does not apply to.
    pub(crate) fn reserve_always(&self) {
        self.sent.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives back places for which no message came, because the queue was closed.
    pub(crate) fn unreserve(&self, count: u64) {
        self.sent.0.fetch_sub(count, Ordering::AcqRel);
    }

    /// Messages waiting now, those beside the mailbox included.
    pub(crate) fn depth(&self) -> u64 {
        self.queued() + u64::from(self.beside.load(Ordering::Acquire))
    }

    /// Messages waiting in the mailbox itself.
    fn queued(&self) -> u64 {
        (self.sent.0.load(Ordering::Acquire) & COUNT)
            .saturating_sub(self.handled.0.load(Ordering::Relaxed))
    }

    /// How long the oldest message has waited, as exactly as [`ages`](crate::ages) says; zero if none waits.
    pub(crate) fn oldest(&self) -> Duration {
        let now = self.clock.coarse_millis();
        let queued = self.queued();
        let handled = self.handled.0.load(Ordering::Relaxed);
        let in_queue = self.sent.1.oldest(handled, queued, now);
        if self.beside.load(Ordering::Acquire) == 0 {
            return in_queue;
        }
        let since = self.beside_since.load(Ordering::Relaxed);
        in_queue.max(Duration::from_millis(now.wrapping_sub(since).into()))
    }

    /// So many wait beside the mailbox now, the oldest since then. Written under the lock of what they wait in.
    pub(crate) fn set_beside(&self, count: usize, since: Option<u32>) {
        if let Some(since) = since {
            self.beside_since.store(since, Ordering::Relaxed);
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.beside.store(count, Ordering::Release);
    }

    /// Whether something waits ahead of the mailbox. Written under the lock of what it waits in.
    pub(crate) fn set_ahead(&self, ahead: bool) {
        match ahead {
            true => self.attention.fetch_or(AHEAD, Ordering::AcqRel),
            false => self.attention.fetch_and(!AHEAD, Ordering::AcqRel),
        };
    }

    #[inline]
    pub(crate) fn has_ahead(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// The coarse time, for what waits beside the mailbox.
    pub(crate) fn millis(&self) -> u32 {
        self.clock.coarse_millis()
    }

    /// One was thrown away to make room.
    pub(crate) fn note_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// One found no room.
    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that found no room, and those that had to make room, so far.
    pub(crate) fn refused_and_dropped(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.refused), read(&self.dropped))
    }

    /// A message left the queue. Only the actor's own thread calls this.
    #[inline]
    pub(crate) fn taken(&self) {
        self.handled.0.store(
            self.handled.0.load(Ordering::Relaxed) + 1,
            Ordering::Release,
        );
    }

    /// Stop once the queue is empty.
    pub(crate) fn drain(&self) {
        self.sent.0.fetch_or(DRAINING, Ordering::AcqRel);
        self.task.wake();
    }

    /// Stop before the next message.
    pub(crate) fn stop_now(&self) {
        self.attention.fetch_or(STOP_NOW, Ordering::AcqRel);
        self.drain();
    }

    /// End before the next message, as after a panic.
    pub(crate) fn fall(&self) {
        self.attention.fetch_or(FALLEN, Ordering::AcqRel);
        self.drain();
    }

    pub(crate) fn has_fallen(&self) -> bool {
        self.attention.load(Ordering::Acquire) & FALLEN != 0
    }

    pub(crate) fn close(&self) {
        self.sent.0.fetch_or(CLOSED, Ordering::AcqRel);
        self.room_freed.notify_waiters();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & DRAINING != 0
    }

    #[inline]
    pub(crate) fn is_stopping_now(&self) -> bool {
        self.attention.load(Ordering::Acquire) & STOP_NOW != 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// The actor handles messages of the type of this number from now on.
    pub(crate) fn is_handling(&self, number: usize) {
        self.doing.store(number as u32 + 1, Ordering::Relaxed);
    }

    /// The actor attends to its errands.
    pub(crate) fn is_at_errands(&self) {
        self.doing.store(ERRAND, Ordering::Relaxed);
    }

    /// A future of the actor's is looked at beside its turns; gives what to end with.
    pub(crate) fn begin_errand(&self) -> u32 {
        self.doing.swap(ERRAND, Ordering::Relaxed)
    }

    /// The actor does again what it did.
    pub(crate) fn end_errand(&self, before: u32) {
        self.doing.store(before, Ordering::Relaxed);
    }

    /// One errand came back, and so many are under way.
    pub(crate) fn returned(&self) {
        let before = self.returned.load(Ordering::Relaxed);
        self.returned.store(before + 1, Ordering::Relaxed);
    }

    /// So many errands are under way.
    pub(crate) fn set_errands(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.errands.store(count, Ordering::Relaxed);
    }

    /// Errands under way.
    pub(crate) fn errands(&self) -> u64 {
        u64::from(self.errands.load(Ordering::Relaxed))
    }

    /// Where the actor is now. For the watchdog: takes a lock.
    pub(crate) fn step(&self) -> Step {
        let doing = self.doing.load(Ordering::Relaxed);
        let tally = self.tallies.at((doing as usize).wrapping_sub(1));
        Step {
            doing,
            count: tally.map_or(0, |(_, count)| count),
            returned: self.returned.load(Ordering::Relaxed),
        }
    }

    fn name_of(&self, doing: u32) -> Option<&'static str> {
        match doing {
            0 => Some("its start"),
            ERRAND => Some("a timer or future"),
            number => self.tallies.at(number as usize - 1).map(|(name, _)| name),
        }
    }

    /// The actor blocks its thread at this step, so long by now; gives what it is doing.
    pub(crate) fn note_blocked(&self, step: Step, lasted: Duration, first: bool) -> &'static str {
        if first {
            self.blocked.count.fetch_add(1, Ordering::Relaxed);
        }
        self.blocked.doing.store(step.doing, Ordering::Relaxed);
        let millis = u32::try_from(lasted.as_millis()).unwrap_or(u32::MAX);
        let longest = &self.blocked.longest_millis;
        longest.fetch_max(millis, Ordering::Relaxed);
        self.name_of(step.doing).unwrap_or("unknown")
    }

    /// How often the actor blocked its thread, how long at the longest, and at what the last time.
    pub(crate) fn blocked(&self) -> (u32, Duration, Option<&'static str>) {
        let count = self.blocked.count.load(Ordering::Relaxed);
        let longest = self.blocked.longest_millis.load(Ordering::Relaxed);
        let doing = self.blocked.doing.load(Ordering::Relaxed);
        let what = (count > 0).then(|| self.name_of(doing)).flatten();
        (count, Duration::from_millis(longest.into()), what)
    }

    /// The types it has handled, looked at now.
    pub(crate) fn messages(&self) -> Vec<MessageInfo> {
        self.tallies.look(self.first_born, self.clock.now())
    }

    /// How long this life has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now() - self.born
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_beyond_the_bound_is_refused_until_one_is_taken() {
        let meter = Meter::for_tests(2);
        assert_eq!(
            [meter.reserve(), meter.reserve(), meter.reserve()],
            [Ok(()), Ok(()), Err(Unwanted::Full)]
        );
        assert_eq!(meter.depth(), 2);
        meter.taken();
        assert_eq!((meter.reserve(), meter.depth()), (Ok(()), 2));
    }

    #[test]
    fn a_sender_that_is_overtaken_by_others_does_not_find_a_mailbox_full_that_is_not() {
        const SENDERS: usize = 4;
        const EACH: usize = 50_000;
        let meter = Meter::for_tests(1000);
        let (put, take) = std::sync::mpsc::sync_channel::<()>(64);
        let refused = std::thread::scope(|threads| {
            let sender = |put: std::sync::mpsc::SyncSender<()>| {
                let meter = &meter;
                move || {
                    let send = || {
                        let refused = meter.reserve().is_err();
                        put.send(()).unwrap();
                        refused
                    };
                    (0..EACH).filter(|_| send()).count()
                }
            };
            let senders: Vec<_> = (0..SENDERS)
                .map(|_| threads.spawn(sender(put.clone())))
                .collect();
            drop(put);
            take.into_iter().for_each(|()| meter.taken());
            senders
                .into_iter()
                .map(|sender| sender.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(
            refused,
            0,
            "there were never more than {} of 1000",
            64 + SENDERS
        );
    }

    #[test]
    fn a_draining_mailbox_takes_nothing_more_and_keeps_its_depth() {
        let meter = Meter::for_tests(2);
        meter.reserve().unwrap();
        meter.drain();
        assert_eq!((meter.reserve(), meter.depth()), (Err(Unwanted::Gone), 1));
    }
}
