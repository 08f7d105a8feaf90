//! The sender's state: unacknowledged messages, the next to send, and the time of a resend.
//!
//! Pure: no mailbox, clock, randomness or I/O; times and random numbers are arguments. It holds the
//! messages of one stream from the lowest unacknowledged one, within [`Bounds`]. Recovery is
//! go-back-n: if an acknowledgement is late or reports a gap, everything from the first missing
//! number is resent. It never reorders.

use std::collections::VecDeque;
use std::time::Duration;

use super::{AGE_MAX, Bounds, DeliveryError, EncodedMessage, SequenceAck};
use crate::clock::Instant;

/// Maximum number of unanswered envelopes; later messages wait for the next envelope.
const IN_FLIGHT_MAX: usize = 8;
/// Maximum number of messages in one envelope.
const ENVELOPE_MESSAGES: usize = 256;
/// Bytes of bodies after which an envelope is closed; a larger message has one of its own.
const ENVELOPE_BYTES: usize = 128 << 10;
/// The first delay before a resend; doubled after each one without progress.
pub(super) const RESEND_FIRST: Duration = Duration::from_millis(100);
/// The maximum of that delay.
pub(super) const RESEND_MAX: Duration = Duration::from_secs(10);

/// A waiting message; `token` identifies it in [`Ends`].
struct Waiting<T> {
    message: EncodedMessage,
    repeat: Repeat,
    since: Instant,
    token: T,
}

/// The treatment of a message that must be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is resent until it is acknowledged.
    Always,
    /// It is not resent: only its number is, to keep the order.
    Never,
    /// It was not resent: only its number was.
    Lost,
}

/// The messages of one stream from the first that is not done. `T` identifies a message to its
/// sender.
pub(super) struct SendWindow<T> {
    bounds: Bounds,
    /// Sequenced from `floor` on, without gaps.
    waiting: VecDeque<Waiting<T>>,
    floor: u64,
    bytes: usize,
    /// The next number to send.
    cursor: u64,
    /// One more than the highest number that was ever sent.
    furthest: u64,
    /// Whether there is a receiver.
    open: bool,
    /// Counts receivers, to recognise answers of an earlier one.
    receiver: u64,
    /// Counts restarts of the sending, to recognise answers to earlier envelopes.
    round: u64,
    in_flight: usize,
    /// Restarts since the last progress.
    failures: u32,
    /// No envelope is sent before this time.
    pause_until: Option<Instant>,
}

/// The next messages to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Envelope {
    pub(super) floor: u64,
    pub(super) messages: Vec<Option<EncodedMessage>>,
    pub(super) mark: Mark,
    /// How many of them were sent before.
    pub(super) resent: usize,
}

/// Identifies the envelope of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) first: u64,
    count: u64,
    receiver: u64,
    round: u64,
}

/// The outcomes of messages, in order.
pub(super) type Ends<T> = Vec<(T, Result<(), DeliveryError>)>;

impl<T> SendWindow<T> {
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
            in_flight: 0,
            failures: 0,
            pause_until: None,
        }
    }

    /// Accepts a message, or fails if the bound is reached.
    pub(super) fn accept(
        &mut self,
        message: EncodedMessage,
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

    /// Sends from the first unacknowledged message, at once: to the same receiver again, or to
    /// another.
    pub(super) fn retarget(&mut self, another: bool) {
        self.receiver += u64::from(another);
        self.open = true;
        self.failures = 0;
        self.go_back(self.floor);
    }

    /// Sends nothing until there is a receiver again. Envelopes in transit may still be
    /// acknowledged.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.go_back(self.floor);
    }

    fn go_back(&mut self, to: u64) {
        self.cursor = to.clamp(self.floor, self.end());
        self.round += 1;
        self.in_flight = 0;
        self.pause_until = None;
    }

    /// One more than the highest number in use.
    fn end(&self) -> u64 {
        self.floor + self.waiting.len() as u64
    }

    /// The next envelope, if one may be sent now.
    pub(super) fn envelope(&mut self, now: Instant) -> Option<Envelope> {
        let paused = self.pause_until.is_some_and(|until| now < until);
        if !self.open || paused || self.in_flight >= IN_FLIGHT_MAX || self.cursor >= self.end() {
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
        self.in_flight += 1;
        let resent = before.min(messages.len());
        self.furthest = self.furthest.max(self.cursor);
        Some(Envelope {
            floor: self.floor,
            messages,
            mark,
            resent,
        })
    }

    /// Handles the receiver's answer to an envelope. `chance` is in `0..1`.
    pub(super) fn answered(
        &mut self,
        mark: Mark,
        taken: &SequenceAck,
        now: Instant,
        chance: f64,
    ) -> Ends<T> {
        if mark.receiver != self.receiver {
            return Vec::new(); // The answer of an earlier receiver.
        }
        let refused = |number: u64| {
            let found = taken.refused.iter().find(|(refused, _)| *refused == number);
            found.map_or(Ok(()), |(_, reason)| {
                let reason = reason.clone();
                Err(DeliveryError::Refused { reason })
            })
        };
        // No receiver can have handled a message that was never sent.
        let ends = self.settle(taken.next.min(self.furthest), refused);
        if !ends.is_empty() {
            self.failures = 0;
        }
        if mark.round == self.round {
            self.in_flight = self.in_flight.saturating_sub(1);
            if taken.next < mark.first + mark.count {
                self.go_back(taken.next);
                if ends.is_empty() {
                    self.wait(now, chance);
                }
            }
        }
        ends
    }

    /// An envelope failed or was not answered: sends it and all after it again, after a delay.
    pub(super) fn failed(&mut self, mark: Mark, now: Instant, chance: f64) {
        if mark.receiver == self.receiver && mark.round == self.round {
            self.go_back(self.floor);
            self.wait(now, chance);
        }
    }

    /// The receiver will never accept this envelope: its messages, and all before it, have failed.
    pub(super) fn refused(&mut self, mark: Mark, reason: &str) -> Ends<T> {
        if mark.receiver != self.receiver {
            return Vec::new();
        }
        if mark.round == self.round {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        self.settle(mark.first + mark.count, |_| {
            let reason = reason.to_owned();
            Err(DeliveryError::Refused { reason })
        })
    }

    /// Gives up expired messages.
    pub(super) fn expire(&mut self, now: Instant) -> Ends<T> {
        let after = self.bounds.age;
        let old = |waiting: &&Waiting<T>| now - waiting.since >= after;
        let count = self.waiting.iter().take_while(old).count() as u64;
        self.settle(self.floor + count, |_| {
            Err(DeliveryError::Expired { after })
        })
    }

    /// Gives up all messages.
    pub(super) fn end_all(&mut self) -> Ends<T> {
        self.open = false;
        self.settle(self.end(), |_| Err(DeliveryError::Ended))
    }

    /// Ends every message below this number.
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

    /// The time of the next action without another event.
    pub(super) fn wake(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?.since + self.bounds.age;
        let send = self.pause_until.filter(|_| self.open);
        Some(send.map_or(oldest, |send| send.min(oldest)))
    }

    /// A mark for all messages accepted so far, for [`passed`](Self::passed).
    pub(super) fn mark(&self) -> u64 {
        self.end()
    }

    /// Whether all messages accepted before this mark are done.
    pub(super) fn passed(&self, mark: u64) -> bool {
        self.floor >= mark
    }

    /// The number of waiting messages.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of their bodies, in all versions.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The delay after this many failures in a row: random, between half and all of the exponential
/// backoff, so that senders that lost one receiver together do not retry together.
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

    /// A message with this many bytes in its newest version, and in its older one.
    fn packed(newest: usize, older: usize) -> EncodedMessage {
        let shape = |version, length| EncodedMessage {
            id: 1,
            version,
            body: Body(Bytes::from(vec![0; length])),
            older: Vec::new(),
        };
        EncodedMessage {
            older: vec![shape(1, older)],
            ..shape(2, newest)
        }
    }

    fn ledger(bytes: usize) -> SendWindow<()> {
        SendWindow::new(Bounds {
            bytes,
            ..Bounds::default()
        })
    }

    #[test]
    fn byte_bound_counts_all_waiting_versions() {
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
    fn envelope_size_counts_the_largest_version() {
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
