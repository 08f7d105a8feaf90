//! The bound of a mailbox, and the meter that shows an actor's state to other threads.
//!
//! actix's queue below is unbounded and first in, first out; the runtime counts the messages here,
//! at the sender. Tells and asks are enqueued the same way, so they keep their order. The meter
//! holds numbers only, never messages: senders count sent messages, the actor counts handled ones,
//! and the watchdog notes blocked steps. `envelope` and `batch` are the queued values, `priority`
//! the queues in front of actix's, and `ages` the age of the oldest message.

pub(crate) mod ages;
pub(crate) mod batch;
pub(crate) mod envelope;
pub(crate) mod priority;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::actor::mailbox::ages::Ages;
use crate::clock::{Clock, Instant};
use crate::observe::tally::{MessageInfo, Tallies};
use crate::wire::message::Lane;

/// No more messages are accepted; queued ones are still handled.
const DRAINING: u64 = 1 << 63;
/// The actor has ended.
const CLOSED: u64 = 1 << 62;
/// A tap observes the messages: senders must take the slow path.
const TAPPED: u64 = 1 << 61;
const COUNT: u64 = TAPPED - 1;

/// The actor must stop before its next message.
const STOP_NOW: u32 = 1;
/// An urgent message is waiting.
const URGENT: u32 = 2;
/// The actor must end as after a panic.
const CRASHED: u32 = 4;
/// A link waits for room in the mailbox, or in the urgent queue.
const ROOM_REQUESTED: u32 = 8;
const URGENT_ROOM_REQUESTED: u32 = 16;

/// In place of a message type: the actor runs a timer or future.
const FUTURE: u32 = u32::MAX;

/// Why the mailbox accepts no message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailboxError {
    Full,
    Gone,
}

/// A separate cache line, to avoid false sharing between the senders and the actor.
#[repr(align(64))]
#[derive(Default)]
struct CacheLine<T = ()>(AtomicU64, T);

/// The state of one mailbox and its actor, as other threads see it.
pub(crate) struct Meter {
    /// Messages ever sent, and the three flags. Written by every sender, as are the stamps.
    sent: CacheLine<Ages>,
    /// Messages ever handled. Written by the actor alone.
    handled: CacheLine,
    bound: u64,
    /// The flags that the actor checks between two messages or turns: [`STOP_NOW`], [`URGENT`],
    /// [`CRASHED`] and the requests for room.
    attention: AtomicU32,
    /// Messages in the priority queues, and the millisecond at which the oldest of them was sent.
    priority: AtomicU32,
    priority_since: AtomicU32,
    /// Encoded bytes of the large messages from links that wait, and their maximum.
    large: AtomicU64,
    large_max: u64,
    /// Wakes the links that wait for room.
    room_freed: Notify,
    /// Encoded bytes of the largest message that waits at a link for room.
    requested: AtomicU64,
    /// Messages dropped to make room for newer ones.
    dropped: AtomicU64,
    /// Messages refused for lack of room.
    refused: AtomicU64,
    /// The actor's task, to be woken when a flag was set.
    pub(crate) task: AtomicWaker,
    clock: Clock,
    born: Instant,
    /// When the actor's first incarnation began.
    first_born: Instant,
    pub(crate) tallies: Tallies,
    /// The type being handled, as its number in the tallies plus one; [`FUTURE`]; or 0 at the
    /// start.
    doing: AtomicU32,
    /// Pending timers and futures, and completed ones.
    pending: AtomicU32,
    returned: AtomicU64,
    blocked: Blocked,
}

/// The watchdog's notes on an actor.
#[derive(Default)]
struct Blocked {
    count: AtomicU32,
    longest_millis: AtomicU32,
    /// The value of [`Meter::doing`] at the last block.
    doing: AtomicU32,
}

impl Blocked {
    /// A copy, for the actor's next incarnation.
    fn carry_over(&self) -> Self {
        let copy = |from: &AtomicU32| AtomicU32::new(from.load(Ordering::Relaxed));
        Self {
            count: copy(&self.count),
            longest_millis: copy(&self.longest_millis),
            doing: copy(&self.doing),
        }
    }
}

/// Minimum encoded size of a message from a link that is weighed; smaller ones are bounded by their
/// number.
pub(crate) const LARGE: usize = 4 << 10;

/// The bytes of one large message in a mailbox, released on drop.
pub(crate) struct Weight {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.meter.large.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An actor's progress: two equal values mean that it has not moved between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Step {
    doing: u32,
    count: u64,
    returned: u64,
}

impl Meter {
    pub(crate) fn new(bound: u32, large_max: u64, clock: &Clock) -> Self {
        Self {
            sent: CacheLine::default(),
            handled: CacheLine::default(),
            bound: u64::from(bound),
            attention: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            priority_since: AtomicU32::new(0),
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
            pending: AtomicU32::new(0),
            returned: AtomicU64::new(0),
            blocked: Blocked::default(),
        }
    }

    /// Takes over the counts of the actor's last incarnation, whose meter is no longer written.
    pub(crate) fn carry_over_from(&mut self, last: &Self) {
        let copy = |to: &AtomicU64, from: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.refused, &last.refused);
        copy(&self.dropped, &last.dropped);
        self.tallies = last.tallies.carry_over();
        self.first_born = last.first_born;
        self.blocked = last.blocked.carry_over();
    }

    #[cfg(test)]
    pub(crate) fn for_tests(bound: u32) -> Self {
        Self::new(bound, u64::MAX, &Clock::real())
    }

    /// The number of handled messages, read before a place is taken, so it never exceeds the number
    /// sent before.
    #[inline]
    fn handled_before(&self) -> u64 {
        self.handled.0.load(Ordering::Acquire)
    }

    /// The current number of messages before a place. A sender that was preempted between its read
    /// of `handled` and its reservation has counted too many; by now even later messages may have
    /// been handled.
    #[cold]
    fn depth_now(&self, before: u64) -> u64 {
        before.saturating_sub(self.handled.0.load(Ordering::Acquire))
    }

    /// Takes a place in the queue.
    #[inline]
    pub(crate) fn reserve(&self) -> Result<(), MailboxError> {
        let handled = self.handled_before();
        self.judge(self.sent.0.fetch_add(1, Ordering::AcqRel), handled)
    }

    /// Takes a place in the queue of a tapped mailbox.
    pub(crate) fn reserve_past_tap(&self) -> Result<(), MailboxError> {
        let handled = self.handled_before();
        let before = self.sent.0.fetch_add(1, Ordering::AcqRel);
        self.judge(before & !TAPPED, handled)
    }

    /// Decides whether a place may be kept, given the counts of sent and handled messages before
    /// it; if not, gives it back.
    #[inline]
    fn judge(&self, before: u64, handled: u64) -> Result<(), MailboxError> {
        let mut depth = before.wrapping_sub(handled);
        if depth >= self.bound {
            depth = self.depth_now(before);
        }
        // Flags make the number larger than any bound, so one comparison tests all four conditions.
        if depth < self.bound {
            if ages::is_stamped(before, depth) {
                self.sent.1.stamp(before, depth, self.clock.coarse_millis());
            }
            return Ok(());
        }
        let error = self.give_back(before);
        if error == MailboxError::Full && before & TAPPED == 0 {
            self.note_refused();
        }
        Err(error)
    }

    /// Marks the mailbox as observed by a tap, or removes the mark.
    pub(crate) fn set_tapped(&self, tapped: bool) {
        match tapped {
            true => self.sent.0.fetch_or(TAPPED, Ordering::AcqRel),
            false => self.sent.0.fetch_and(!TAPPED, Ordering::AcqRel),
        };
    }

    pub(crate) fn is_tapped(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & TAPPED != 0
    }

    /// Takes room for a message of this encoded size from a link, if it is large. One always fits
    /// when no large message waits.
    pub(crate) fn weigh(self: &Arc<Self>, bytes: usize) -> Result<Option<Weight>, MailboxError> {
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
        Err(MailboxError::Full)
    }

    /// Takes this many places for messages that found room when they began to arrive. If other
    /// senders have filled the mailbox since, it exceeds its bound by this many. `Full` only if a
    /// tap must see each of them.
    pub(crate) fn reserve_admitted(&self, count: u64) -> Result<(), MailboxError> {
        let handled = self.handled_before();
        let before = self.sent.0.fetch_add(count, Ordering::AcqRel);
        if before & !COUNT == 0 {
            let millis = self.clock.coarse_millis();
            let depth = before.saturating_sub(handled);
            self.sent.1.stamp_batch(before, count, depth, millis);
            return Ok(());
        }
        self.sent.0.fetch_sub(count - 1, Ordering::AcqRel);
        Err(self.give_back(before))
    }

    /// Messages that the mailbox still accepts without showing them to a tap.
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

    /// Whether a message must wait for room. False while the actor is ending: then it is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & (DRAINING | CLOSED) == 0
            && self.queued() >= self.bound
    }

    /// Resolves once there is room after [`request_room`](Self::request_room), or when the actor
    /// has ended. Create it before the request.
    pub(crate) fn room_freed(&self) -> Notified<'_> {
        self.room_freed.notified()
    }

    /// Requests a notification when a message of this encoded size in this lane finds room.
    pub(crate) fn request_room(&self, lane: Lane, bytes: usize) {
        if bytes >= LARGE {
            self.requested.fetch_max(bytes as u64, Ordering::AcqRel);
        }
        let request = match lane {
            Lane::Ordinary => ROOM_REQUESTED,
            Lane::Ping => URGENT_ROOM_REQUESTED,
        };
        self.attention.fetch_or(request, Ordering::AcqRel);
        self.task.wake(); // There may be room already.
        if self.is_closed() {
            self.room_freed.notify_waiters(); // The actor ended before the request.
        }
    }

    /// Wakes the links that wait for room, if there is some. Called at the end of each turn of the
    /// actor.
    #[inline]
    pub(crate) fn end_turn(&self) {
        let requests = ROOM_REQUESTED | URGENT_ROOM_REQUESTED;
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
        let granted = match (self.is_full(), self.has_urgent()) {
            (false, false) => ROOM_REQUESTED | URGENT_ROOM_REQUESTED,
            (false, true) => ROOM_REQUESTED,
            (true, false) => URGENT_ROOM_REQUESTED,
            (true, true) => return,
        };
        if self.attention.fetch_and(!granted, Ordering::AcqRel) & granted != 0 {
            self.requested.store(0, Ordering::Release);
            self.room_freed.notify_waiters();
        }
    }

    #[cold]
    fn give_back(&self, before: u64) -> MailboxError {
        self.sent.0.fetch_sub(1, Ordering::AcqRel);
        if before & (DRAINING | CLOSED) == 0 {
            return MailboxError::Full;
        }
        self.task.wake(); // The actor may have seen our place and waited for its message.
        MailboxError::Gone
    }

    /// Takes a place regardless of the bound.
    pub(crate) fn reserve_always(&self) {
        self.sent.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives back places of messages that were not enqueued, because the queue was closed.
    pub(crate) fn unreserve(&self, count: u64) {
        self.sent.0.fetch_sub(count, Ordering::AcqRel);
    }

    /// Messages waiting now, including the priority queues.
    pub(crate) fn depth(&self) -> u64 {
        self.queued() + u64::from(self.priority.load(Ordering::Acquire))
    }

    /// Messages waiting in the mailbox itself.
    fn queued(&self) -> u64 {
        (self.sent.0.load(Ordering::Acquire) & COUNT)
            .saturating_sub(self.handled.0.load(Ordering::Relaxed))
    }

    /// How long the oldest message has waited, with the precision of
    /// [`ages`](crate::actor::mailbox::ages); zero if none waits.
    pub(crate) fn oldest(&self) -> Duration {
        let now = self.clock.coarse_millis();
        let queued = self.queued();
        let handled = self.handled.0.load(Ordering::Relaxed);
        let in_queue = self.sent.1.oldest(handled, queued, now);
        if self.priority.load(Ordering::Acquire) == 0 {
            return in_queue;
        }
        let since = self.priority_since.load(Ordering::Relaxed);
        in_queue.max(Duration::from_millis(now.wrapping_sub(since).into()))
    }

    /// Sets the number of messages in the priority queues and the age of the oldest. Call it under
    /// the lock of the queues.
    pub(crate) fn set_priority(&self, count: usize, since: Option<u32>) {
        if let Some(since) = since {
            self.priority_since.store(since, Ordering::Relaxed);
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.priority.store(count, Ordering::Release);
    }

    /// Sets whether an urgent message waits. Call it under the lock of its queue.
    pub(crate) fn set_urgent(&self, urgent: bool) {
        match urgent {
            true => self.attention.fetch_or(URGENT, Ordering::AcqRel),
            false => self.attention.fetch_and(!URGENT, Ordering::AcqRel),
        };
    }

    #[inline]
    pub(crate) fn has_urgent(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & URGENT != 0
    }

    /// The coarse time, for messages in the priority queues.
    pub(crate) fn millis(&self) -> u32 {
        self.clock.coarse_millis()
    }

    /// Counts a message dropped to make room.
    pub(crate) fn note_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message refused for lack of room.
    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages refused for lack of room, and messages dropped to make room.
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
    pub(crate) fn crash(&self) {
        self.attention.fetch_or(CRASHED, Ordering::AcqRel);
        self.drain();
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.attention.load(Ordering::Acquire) & CRASHED != 0
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

    /// The actor handles messages of the type with this number from now on.
    pub(crate) fn is_handling(&self, number: usize) {
        self.doing.store(number as u32 + 1, Ordering::Relaxed);
    }

    /// The actor polls its timers and futures.
    pub(crate) fn is_polling_futures(&self) {
        self.doing.store(FUTURE, Ordering::Relaxed);
    }

    /// A future of the actor is polled outside its turns; returns the argument for `end_future`.
    pub(crate) fn begin_future(&self) -> u32 {
        self.doing.swap(FUTURE, Ordering::Relaxed)
    }

    /// The actor continues its work from before `begin_future`.
    pub(crate) fn end_future(&self, before: u32) {
        self.doing.store(before, Ordering::Relaxed);
    }

    /// Counts a completed timer or future.
    pub(crate) fn returned(&self) {
        let before = self.returned.load(Ordering::Relaxed);
        self.returned.store(before + 1, Ordering::Relaxed);
    }

    /// Sets the number of pending timers and futures.
    pub(crate) fn set_pending(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.pending.store(count, Ordering::Relaxed);
    }

    /// Pending timers and futures.
    pub(crate) fn pending(&self) -> u64 {
        u64::from(self.pending.load(Ordering::Relaxed))
    }

    /// The actor's progress now. For the watchdog: takes a lock.
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
            FUTURE => Some("a timer or future"),
            number => self.tallies.at(number as usize - 1).map(|(name, _)| name),
        }
    }

    /// Notes that the actor has blocked its thread at this step for this long; returns the name of
    /// its work.
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

    /// How often the actor blocked its thread, the longest time, and its work the last time.
    pub(crate) fn blocked(&self) -> (u32, Duration, Option<&'static str>) {
        let count = self.blocked.count.load(Ordering::Relaxed);
        let longest = self.blocked.longest_millis.load(Ordering::Relaxed);
        let doing = self.blocked.doing.load(Ordering::Relaxed);
        let what = (count > 0).then(|| self.name_of(doing)).flatten();
        (count, Duration::from_millis(longest.into()), what)
    }

    /// The message types it has handled, as of now.
    pub(crate) fn messages(&self) -> Vec<MessageInfo> {
        self.tallies.look(self.first_born, self.clock.now())
    }

    /// The age of this incarnation.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now() - self.born
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservation_beyond_the_bound_is_refused() {
        let meter = Meter::for_tests(2);
        assert_eq!(
            [meter.reserve(), meter.reserve(), meter.reserve()],
            [Ok(()), Ok(()), Err(MailboxError::Full)]
        );
        assert_eq!(meter.depth(), 2);
        meter.taken();
        assert_eq!((meter.reserve(), meter.depth()), (Ok(()), 2));
    }

    #[test]
    fn preempted_sender_sees_no_false_full_mailbox() {
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
    fn draining_mailbox_refuses_and_keeps_its_depth() {
        let meter = Meter::for_tests(2);
        meter.reserve().unwrap();
        meter.drain();
        assert_eq!(
            (meter.reserve(), meter.depth()),
            (Err(MailboxError::Gone), 1)
        );
    }
}
