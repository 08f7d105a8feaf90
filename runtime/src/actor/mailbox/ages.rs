//! Ages: how long the oldest message of a mailbox has waited, without a clock read per message.
//!
//! Senders stamp a message that finds the queue empty, and each 64th one. Seven stamps are kept,
//! spaced further apart the older they are.
//!
//! Precision: a message that found the queue empty has its own stamp, so the age after a stall of
//! an idle actor is exact to the clock's coarse step (25 ms in real time). In a queue that has not
//! been empty since, the age is that of a stamped message further back: at least a quarter of the
//! waiting messages are younger than it. Fewer than 64 waiting messages may have no stamp at all;
//! then the age is that of a message handled just before, and so too high.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One message in this many is stamped.
const STRIDE: u64 = 64;
/// Number of stamps; each covers four times as many messages as the one before it.
const MARKS: usize = 6;

/// A stamp is the message's number in its upper half and the millisecond in its lower; both wrap
/// around.
#[derive(Default)]
pub(crate) struct Ages {
    /// The newest message that found the queue empty.
    first: AtomicU64,
    marks: [AtomicU64; MARKS],
}

/// Whether this message must be stamped.
#[inline]
pub(crate) fn is_stamped(number: u64, depth: u64) -> bool {
    depth == 0 || number.is_multiple_of(STRIDE)
}

impl Ages {
    /// Records when the message of this number was sent.
    pub(crate) fn stamp(&self, number: u64, depth: u64, millis: u32) {
        let stamp = u64::from(number as u32) << 32 | u64::from(millis);
        if depth == 0 {
            self.first.store(stamp, Ordering::Relaxed);
        }
        if number.is_multiple_of(STRIDE) {
            let mark = (number / STRIDE).trailing_zeros() as usize / 2;
            self.marks[mark.min(MARKS - 1)].store(stamp, Ordering::Relaxed);
        }
    }

    /// As `stamp`, for messages that were sent together.
    pub(crate) fn stamp_batch(&self, number: u64, count: u64, depth: u64, millis: u32) {
        if depth == 0 {
            self.stamp(number, 0, millis);
        }
        let next = number.next_multiple_of(STRIDE);
        if next < number + count {
            self.stamp(next, 1, millis);
        }
    }

    /// How long the next message has waited, as far as the stamps show.
    pub(crate) fn oldest(&self, handled: u64, depth: u64, millis: u32) -> Duration {
        if depth == 0 {
            return Duration::ZERO;
        }
        let next = handled as u32;
        let stamps = std::iter::once(&self.first).chain(&self.marks);
        let stamps = stamps.map(|stamp| {
            let stamp = stamp.load(Ordering::Relaxed);
            ((stamp >> 32) as u32, stamp as u32)
        });
        let waiting = stamps
            .clone()
            .filter(|(number, _)| u64::from(number.wrapping_sub(next)) < depth)
            .min_by_key(|(number, _)| number.wrapping_sub(next));
        let handled_last = || stamps.min_by_key(|(number, _)| next.wrapping_sub(*number));
        let age = |sent: u32| Duration::from_millis(millis.wrapping_sub(sent).into());
        waiting
            .or_else(handled_last)
            .map_or(Duration::ZERO, |(_, sent)| age(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages sent one each millisecond, this many of them handled.
    fn sent(count: u64, handled_when: impl Fn(u64) -> u64) -> Ages {
        let ages = Ages::default();
        for number in 0..count {
            let depth = number - handled_when(number);
            if is_stamped(number, depth) {
                ages.stamp(number, depth, number as u32);
            }
        }
        ages
    }

    #[test]
    fn age_after_a_stall_of_an_idle_actor_is_exact() {
        // Each message is handled before the next is sent, until number 1000.
        let ages = sent(70_000, |number| number.min(1000));
        let millis = |age: Duration| age.as_millis();
        assert_eq!(millis(ages.oldest(1000, 69_000, 70_000)), 69_000);
        assert_eq!(ages.oldest(70_000, 0, 90_000), Duration::ZERO);
    }

    #[test]
    fn age_in_a_busy_queue_is_at_least_an_eighth() {
        for depth in [100, 1000, 10_000, 50_000] {
            let ages = sent(100_000, |number| number.saturating_sub(depth));
            let told = ages.oldest(100_000 - depth, depth, 100_000).as_millis() as u64;
            assert!(
                told <= depth && told >= depth / 8,
                "{told} ms of {depth} ms"
            );
        }
    }

    #[test]
    fn unstamped_short_queue_overestimates_its_age() {
        let ages = sent(1000, |number| number.saturating_sub(10));
        let told = ages.oldest(990, 10, 1000).as_millis();
        assert!((10..=10 + 64).contains(&told), "{told} ms of 10 ms");
    }

    #[test]
    fn batch_is_stamped_like_its_messages() {
        let (batch, single) = (Ages::default(), Ages::default());
        batch.stamp_batch(0, 100, 0, 7);
        for number in 0..100 {
            if is_stamped(number, number) {
                single.stamp(number, number, 7);
            }
        }
        for handled in [0, 1, 70] {
            let of = |ages: &Ages| ages.oldest(handled, 100 - handled, 50);
            assert_eq!(of(&batch), of(&single));
        }
    }
}
