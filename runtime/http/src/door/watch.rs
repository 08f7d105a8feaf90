//! How long a connection may take over what it does: decided from what has come and gone.
//!
//! Pure: times are passed in. Who waits for whom is all that counts. While an answer is made nobody is hurried here, since whoever makes it
//! has a patience of its own; and a stream of events has no end to be late for. Nor is anybody who says nothing: clients on Mesos' own library keep
//! a second connection for calls, may be silent on it for half an hour, and take its end for the end of the service.

use std::time::Duration;

use runtime::Instant;

use super::source::Activity;

/// So much at least must a reader take of what waits for it, each time its patience has passed.
pub(crate) const TAKEN_MIN: u64 = 64 << 10;

/// A reader has a second more for each so many bytes of an answer that is made.
pub(crate) const TAKEN_IN_A_SECOND: u64 = 256 << 10;

/// How long each thing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From a request's first byte until its head is whole; and from a handshake's. Default 30 s.
    pub head: Duration,
    /// What waits for its reader is given up if the reader takes less than 64 KiB of it in so long. Default 90 s, which is longer than a
    /// stream of events waits for its subscriber, so that a slow one hears why it is cut off.
    pub stalled: Duration,
    /// An answer that is made, and so held in memory until it is taken, must be taken in so long, and a second more for each 256 KiB of it. Default
    /// 75 s. It is not about streams of events: those hold what they choose to.
    pub taken: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            stalled: Duration::from_secs(90),
            taken: Duration::from_secs(75),
        }
    }
}

impl Patience {
    /// Nothing that begins now is late before this.
    fn shortest(&self) -> Duration {
        self.head.min(self.stalled).min(self.taken)
    }
}

/// What has taken too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The head of a request.
    Head,
    /// The reader.
    Stalled,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// A request is coming, since then.
    Head(Instant),
    /// A request is answered.
    Answer,
    /// There is no request, since then.
    Idle(Instant),
    /// There is no request, and the connection was told to end.
    Ending,
}

/// What waits for the reader.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    /// What the reader has taken since then.
    taken: u64,
}

/// Watches one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    patience: Patience,
    phase: Phase,
    waiting: Option<Waiting>,
    /// When the last of the answer must be taken.
    due: Option<Instant>,
}

impl Watch {
    /// A connection begins.
    pub fn new(patience: Patience, now: Instant) -> Self {
        Self {
            patience,
            phase: Phase::Idle(now),
            waiting: None,
            due: None,
        }
    }

    /// Some bytes came. Those of a head that has begun already give it no more time.
    pub fn has_read(&mut self, now: Instant) {
        if let Phase::Idle(_) | Phase::Ending = self.phase {
            self.phase = Phase::Head(now);
        }
    }

    /// The head of a request is whole.
    pub fn is_asked(&mut self) {
        self.phase = Phase::Answer;
    }

    /// An answer is made, of so many bytes; if nobody knows how many, it is made as it is taken.
    pub fn is_made(&mut self, bytes: Option<u64>, now: Instant) {
        let taken = self.patience.taken;
        self.due = bytes.map(|bytes| now + taken + Duration::from_secs(bytes / TAKEN_IN_A_SECOND));
    }

    /// An answer is whole, whether or not all of it has been taken yet.
    pub fn has_answered(&mut self, now: Instant) {
        self.phase = Phase::Idle(now);
    }

    /// There is something to be sent, and no room for it.
    pub fn waits(&mut self, now: Instant) {
        self.waiting.get_or_insert(Waiting {
            since: now,
            taken: 0,
        });
    }

    /// So many bytes were taken.
    pub fn is_taken(&mut self, bytes: usize, now: Instant) {
        if let Some(waiting) = &mut self.waiting {
            waiting.taken = waiting.taken.saturating_add(bytes as u64);
            if waiting.taken >= TAKEN_MIN {
                *waiting = Waiting {
                    since: now,
                    taken: 0,
                };
            }
        }
    }

    /// Nothing waits any more.
    pub fn is_flushed(&mut self) {
        self.waiting = None;
    }

    /// Whether something waits for the reader.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Since when nothing has been asked, if nothing is under way.
    pub fn idle_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle(since) if self.waiting.is_none() => Some(since),
            _ => None,
        }
    }

    /// What it is doing; `None` if it was told to end already.
    pub fn activity(&self) -> Option<Activity> {
        match (self.phase, self.waiting) {
            (Phase::Ending, _) => None,
            (Phase::Idle(since), None) => Some(Activity::Idle(since)),
            (Phase::Head(since), None) => Some(Activity::Receiving(since)),
            _ => Some(Activity::Answering),
        }
    }

    /// It is told to end, if nothing is under way; whether it was. A request that comes nevertheless is answered.
    pub fn end(&mut self) -> bool {
        let is_idle = self.idle_since().is_some();
        if is_idle {
            self.phase = Phase::Ending;
        }
        is_idle
    }

    /// Whether it was told to end, and nothing has come since.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    /// What is too late now; otherwise when to look again, at the latest.
    pub fn look(&self, now: Instant) -> Result<Instant, Late> {
        let patience = &self.patience;
        let of_phase = match self.phase {
            Phase::Head(since) => Some((since + patience.head, Late::Head)),
            Phase::Answer | Phase::Idle(_) | Phase::Ending => None,
        };
        let of_reader = self
            .waiting
            .map(|waiting| (waiting.since + patience.stalled, Late::Stalled));
        let of_answer = self.waiting.and(self.due).map(|due| (due, Late::Stalled));
        let mut next = now + patience.shortest();
        for (due, late) in of_reader.into_iter().chain(of_answer).chain(of_phase) {
            if due <= now {
                return Err(late);
            }
            next = next.min(due);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// Watched from the beginning on, as whoever looks when it is told to: what is late, and when.
    fn late(watch: &Watch, from: u64) -> (Late, u64) {
        let mut now = at(from);
        for _ in 0..100 {
            match watch.look(now) {
                Ok(next) => now = next,
                Err(late) => return (late, now.since_start().as_secs()),
            }
        }
        panic!("never late: {watch:?}")
    }

    #[test]
    fn a_head_has_its_time_from_its_first_byte_on_and_no_more_if_it_comes_byte_by_byte() {
        let mut watch = Watch::new(Patience::default(), at(0));
        assert!(watch.look(at(100_000)).is_ok(), "nothing has begun");
        for second in 0..29 {
            watch.has_read(at(1000 + second));
        }
        assert_eq!(late(&watch, 1029), (Late::Head, 1030));
    }

    #[test]
    fn only_what_is_idle_is_told_to_end_and_what_it_says_then_still_counts() {
        let mut watch = Watch::new(Patience::default(), at(0));
        watch.has_read(at(1));
        assert!(!watch.end() && !watch.is_ending());
        watch.is_asked();
        watch.waits(at(2));
        assert!(!watch.end());
        watch.has_answered(at(3));
        assert!(!watch.end(), "its reader has not taken all");
        watch.is_flushed();
        assert_eq!(watch.idle_since(), Some(at(3)));
        assert!(watch.end() && watch.is_ending());
        assert!(!watch.end(), "once is enough");
        watch.has_read(at(4));
        assert!(!watch.is_ending());
        assert_eq!(late(&watch, 4), (Late::Head, 34));
    }

    #[test]
    fn an_answer_takes_what_it_takes_and_so_does_the_next_request() {
        let mut watch = Watch::new(Patience::default(), at(0));
        watch.has_read(at(1));
        watch.is_asked();
        watch.has_read(at(500));
        assert!(watch.look(at(100_000)).is_ok());
        watch.has_answered(at(1000));
        assert!(watch.look(at(100_000)).is_ok());
        watch.has_read(at(200_000));
        assert_eq!(late(&watch, 200_000), (Late::Head, 200_030));
    }

    #[test]
    fn an_answer_that_is_made_must_be_taken_in_a_time_that_grows_with_its_size() {
        for (mebibytes, due) in [(0, 85), (1, 89), (60, 325)] {
            let mut watch = Watch::new(Patience::default(), at(0));
            watch.is_asked();
            watch.is_made(Some(mebibytes << 20), at(10));
            assert!(watch.look(at(100_000)).is_ok(), "nothing waits");
            // It takes enough to be there, and not enough to come to the end.
            let mut now = 10;
            while watch.look(at(now)).is_ok() {
                watch.waits(at(now));
                watch.is_taken(TAKEN_MIN as usize, at(now));
                now += 1;
            }
            assert_eq!(now, due);
            // A stream has no such time.
            watch.is_flushed();
            watch.has_answered(at(now));
            watch.is_asked();
            watch.is_made(None, at(now));
            watch.waits(at(now));
            assert_eq!(late(&watch, now), (Late::Stalled, now + 90));
        }
    }

    #[test]
    fn a_reader_must_take_a_least_amount_each_time_its_patience_has_passed() {
        let mut watch = Watch::new(Patience::default(), at(0));
        watch.is_asked();
        watch.waits(at(10));
        // A byte a minute is nothing.
        for minute in 0..100 {
            watch.waits(at(10 + 60 * minute));
            watch.is_taken(1, at(10 + 60 * minute));
        }
        assert_eq!(late(&watch, 10), (Late::Stalled, 100));
        // Half of it twice is enough, and then it counts anew.
        let mut watch = Watch::new(Patience::default(), at(0));
        watch.is_asked();
        watch.waits(at(10));
        watch.is_taken(TAKEN_MIN as usize / 2, at(50));
        watch.is_taken(TAKEN_MIN as usize / 2, at(99));
        assert_eq!(late(&watch, 99), (Late::Stalled, 189));
        // Also when the answer is whole, and with all of it gone it is idle.
        watch.has_answered(at(100));
        assert_eq!(late(&watch, 100), (Late::Stalled, 189));
        watch.is_flushed();
        assert_eq!(watch.idle_since(), Some(at(100)));
        assert!(watch.look(at(100_000)).is_ok());
    }
}
