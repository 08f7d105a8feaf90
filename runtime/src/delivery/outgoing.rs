//! The sender's ledger: what waits for its acknowledgement, what is to be sent next, and when to send it again (S132).
//!
//! Pure: no mailbox, clock, chance or I/O; times and chances come in as arguments. It remembers the messages of one stream,
//! from the lowest that is not acknowledged, under [`Bounds`]. Lost envelopes are mended by going back: whatever
//! is not acknowledged in good time, or comes back as missing, is sent again from the first such number. It never reorders.

use std::collections::VecDeque;
use std::time::Duration;

use super::{AGE_MAX, Bounds, DeliveryError, Packed, Taken};
use crate::clock::Instant;

/// Envelopes that may be without an answer; what comes meanwhile travels together in the next.
const UNDER_WAY_MAX: usize = 8;
/// Messages in one envelope.
const ENVELOPE_MESSAGES: usize = 256;
/// Bytes of bodies after which an envelope is closed; a larger message has one of its own.
const ENVELOPE_BYTES: usize = 128 << 10;
/// The first wait before something is sent again; doubled with each that follows without progress.
pub(super) const RESEND_FIRST: Duration = Duration::from_millis(100);
/// The longest such wait.
pub(super) const RESEND_MAX: Duration = Duration::from_secs(10);

/// A message that waits, and what its sender is told in the end goes to `T`.
struct Waiting<T> {
    message: Packed,
    repeat: Repeat,
    since: Instant,
    token: T,
}

/// What becomes of a message that must be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is, until it is acknowledged.
    Always,
    /// It is not: only its place is kept, so that the order stays.
    Never,
    /// It was not: only its place was sent again.
    Lost,
}

/// One stream's messages from the first that is not over. `T` stands for whoever wants to know how each ends.
pub(super) struct Outgoing<T> {
    bounds: Bounds,
    /// Numbered from `floor` on, without gaps.
    waiting: VecDeque<Waiting<T>>,
    floor: u64,
    bytes: usize,
    /// The next number to send.
    cursor: u64,
    /// One more than the highest number that was ever sent.
    furthest: u64,
    /// Whether there is a receiver to send to.
    open: bool,
    /// Counts receivers, so that an answer of an earlier one is recognised.
    receiver: u64,
    /// Counts goings back, so that an envelope of before is recognised.
    round: u64,
    under_way: usize,
    /// Goings back since the last progress.
    failures: u32,
    /// Not before this.
    pause_until: Option<Instant>,
}

/// What to send now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Envelope {
    pub(super) floor: u64,
    pub(super) messages: Vec<Option<Packed>>,
    pub(super) mark: Mark,
    /// How many of them were sent before.
    pub(super) resent: usize,
}

/// Which envelope an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) first: u64,
    count: u64,
    receiver: u64,
    round: u64,
}

/// How messages have ended, in order.
pub(super) type Ends<T> = Vec<(T, Result<(), DeliveryError>)>;

impl<T> Outgoing<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds: Bounds {
                messages: bounds.messages.max(1),
                bytes: bounds.bytes,
                age: bounds.age.min(AGE_MAX),
            },
            waiting: VecDeque::new(),
            floor: 1,
            bytes: 0,
            cursor: 1,
            furthest: 1,
            open: false,
            receiver: 0,
            round: 0,
            under_way: 0,
            failures: 0,
            pause_until: None,
        }
    }

    /// Takes a message, or says that the bound is hit.
    pub(super) fn accept(
        &mut self,
        message: Packed,
        repeat: Repeat,
        token: T,
        now: Instant,
    ) -> Result<(), DeliveryError> {
        let bytes = self.bytes.saturating_add(message.weight());
        if self.waiting.len() >= self.bounds.messages || bytes > self.bounds.bytes {
            return Err(DeliveryError::Full {
                messages: self.waiting.len(),
                bytes: self.bytes,
            });
        }
        self.bytes = bytes;
        self.waiting.push_back(Waiting {
            message,
            repeat,
            since: now,
            token,
        });
        Ok(())
    }

    /// Sends from the first that is not over, at once: to the same receiver again, or to another.
    pub(super) fn retarget(&mut self, another: bool) {
        self.receiver += u64::from(another);
        self.open = true;
        self.failures = 0;
        self.go_back(self.floor);
    }

    /// Sends nothing more until there is a receiver again. What is under way may still be acknowledged.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.go_back(self.floor);
    }

    fn go_back(&mut self, to: u64) {
        self.cursor = to.clamp(self.floor, self.end());
        self.round += 1;
        self.under_way = 0;
        self.pause_until = None;
    }

    /// One more than the highest number there is.
    fn end(&self) -> u64 {
        self.floor + self.waiting.len() as u64
    }

    /// The next envelope, if one may be sent now.
    pub(super) fn envelope(&mut self, now: Instant) -> Option<Envelope> {
        let paused = self.pause_until.is_some_and(|until| now < until);
        if !self.open || paused || self.under_way >= UNDER_WAY_MAX || self.cursor >= self.end() {
            return None;
        }
        self.pause_until = None;
        let skip = (self.cursor - self.floor) as usize;
        let mut messages = Vec::new();
        let mut bytes = 0;
        let before = self.furthest.saturating_sub(self.cursor) as usize;
        let next = self.waiting.iter_mut().skip(skip).take(ENVELOPE_MESSAGES);
        for (at, waiting) in next.enumerate() {
            if at < before && waiting.repeat != Repeat::Always {
                waiting.repeat = Repeat::Lost;
                messages.push(None);
                continue;
            }
            bytes += waiting.message.length_max();
            if bytes > ENVELOPE_BYTES && !messages.is_empty() {
                break;
            }
            messages.push(Some(waiting.message.clone()));
        }
        let mark = Mark {
            first: self.cursor,
            count: messages.len() as u64,
            receiver: self.receiver,
            round: self.round,
        };
        self.cursor += mark.count;
        self.under_way += 1;
        let resent = before.min(messages.len());
        self.furthest = self.furthest.max(self.cursor);
        Some(Envelope {
            floor: self.floor,
            messages,
            mark,
            resent,
        })
    }

    /// The receiver has answered an envelope. `chance` is in `0..1`.
    pub(super) fn answered(
        &mut self,
        mark: Mark,
        taken: &Taken,
        now: Instant,
        chance: f64,
    ) -> Ends<T> {
        if mark.receiver != self.receiver {
            return Vec::new(); // Another life's word is nothing to this one.
        }
        let refused = |number: u64| {
            let found = taken.refused.iter().find(|(refused, _)| *refused == number);
            found.map_or(Ok(()), |(_, reason)| {
                let reason = reason.clone();
                Err(DeliveryError::Refused { reason })
            })
        };
        // No receiver can have taken what was never sent.
        let ends = self.settle(taken.next.min(self.furthest), refused);
        if !ends.is_empty() {
            self.failures = 0;
        }
        if mark.round == self.round {
            self.under_way = self.under_way.saturating_sub(1);
            if taken.next < mark.first + mark.count {
                self.go_back(taken.next);
                if ends.is_empty() {
                    self.wait(now, chance);
                }
            }
        }
        ends
    }

    /// An envelope was not answered, or not taken: it and all after it are sent again after a wait.
    pub(super) fn failed(&mut self, mark: Mark, now: Instant, chance: f64) {
        if mark.receiver == self.receiver && mark.round == self.round {
            self.go_back(self.floor);
            self.wait(now, chance);
        }
    }

    /// The receiver will never take such an envelope: what is in it, and before it, has failed.
    pub(super) fn refused(&mut self, mark: Mark, reason: &str) -> Ends<T> {
        if mark.receiver != self.receiver {
            return Vec::new();
        }
        if mark.round == self.round {
            self.under_way = self.under_way.saturating_sub(1);
        }
        self.settle(mark.first + mark.count, |_| {
            let reason = reason.to_owned();
            Err(DeliveryError::Refused { reason })
        })
    }

    /// Gives up what has waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Ends<T> {
        let after = self.bounds.age;
        let old = |waiting: &&Waiting<T>| now - waiting.since >= after;
        let count = self.waiting.iter().take_while(old).count() as u64;
        self.settle(self.floor + count, |_| {
            Err(DeliveryError::Expired { after })
        })
    }

    /// Gives up everything.
    pub(super) fn end_all(&mut self) -> Ends<T> {
        self.open = false;
        self.settle(self.end(), |_| Err(DeliveryError::Ended))
    }

    /// Everything below this number is over.
    fn settle(&mut self, below: u64, how: impl Fn(u64) -> Result<(), DeliveryError>) -> Ends<T> {
        let count = below.min(self.end()).saturating_sub(self.floor);
        let mut ends = Vec::with_capacity(count as usize);
        for waiting in self.waiting.drain(..count as usize) {
            self.bytes -= waiting.message.weight();
            let end = match (how(self.floor), waiting.repeat) {
                (Ok(()), Repeat::Lost) => Err(DeliveryError::Lost),
                (end, _) => end,
            };
            ends.push((waiting.token, end));
            self.floor += 1;
        }
        self.cursor = self.cursor.max(self.floor);
        ends
    }

    fn wait(&mut self, now: Instant, chance: f64) {
        self.pause_until = Some(now + pause(self.failures, chance));
        self.failures = self.failures.saturating_add(1);
    }

    /// When to look again, if nothing happens before.
    pub(super) fn wake(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?.since + self.bounds.age;
        let send = self.pause_until.filter(|_| self.open);
        Some(send.map_or(oldest, |send| send.min(oldest)))
    }

    /// One mark for all that was accepted so far: they are over once [`passed`](Self::passed) says so.
    pub(super) fn mark(&self) -> u64 {
        self.end()
    }

    /// Whether all that was accepted before this mark is over.
    pub(super) fn passed(&self, mark: u64) -> bool {
        self.floor >= mark
    }

    /// Messages that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of their bodies, in all shapes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The wait after so many goings back without progress: between half and all of the doubling step, so that senders who
/// lost one receiver together do not come back together.
fn pause(failures: u32, chance: f64) -> Duration {
    let step = RESEND_FIRST
        .saturating_mul(1 << failures.min(16))
        .min(RESEND_MAX);
    step.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Body;
    use super::*;

    /// A message that has so many bytes as it is, and so many in its older shape.
    fn packed(newest: usize, older: usize) -> Packed {
        let shape = |version, length| Packed {
            id: 1,
            version,
            body: Body(Bytes::from(vec![0; length])),
            older: Vec::new(),
        };
        Packed {
            older: vec![shape(1, older)],
            ..shape(2, newest)
        }
    }

    fn ledger(bytes: usize) -> Outgoing<()> {
        Outgoing::new(Bounds {
            bytes,
            ..Bounds::default()
        })
    }

    #[test]
    fn the_bound_of_bytes_holds_for_every_shape_that_waits() {
        let mut ledger = ledger(1000);
        let mut accept = |newest, older| {
            ledger.accept(
                packed(newest, older),
                Repeat::Always,
                (),
                Instant::default(),
            )
        };
        assert_eq!(accept(100, 800), Ok(()));
        let full = DeliveryError::Full {
            messages: 1,
            bytes: 900,
        };
        assert_eq!(accept(10, 91), Err(full));
        assert_eq!(accept(10, 90), Ok(()));
        assert_eq!(ledger.end_all().len(), 2);
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn an_envelope_is_closed_by_the_bytes_that_an_older_receiver_gets() {
        let mut ledger = ledger(usize::MAX);
        for _ in 0..4 {
            let message = packed(10, ENVELOPE_BYTES / 2);
            let accepted = ledger.accept(message, Repeat::Always, (), Instant::default());
            assert_eq!(accepted, Ok(()));
        }
        ledger.retarget(true);
        let envelope = ledger.envelope(Instant::default()).unwrap();
        assert_eq!(envelope.messages.len(), 2);
    }
}
