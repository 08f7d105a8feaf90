//! Timeouts of one connection, decided from the bytes read and written.
//!
//! Pure: times are passed in. Only the peer is timed. There is no limit while an answer is being
//! made, since its handler has its own timeout, nor for the length of an event stream, nor for
//! silence: clients on Mesos' own library keep a second connection for calls, may be silent on it
//! for half an hour, and take its end for the end of the service.

use std::time::Duration;

use runtime::Instant;

use super::source::Activity;

/// Minimum bytes that a reader must take in each `stalled` period.
pub(crate) const TAKEN_MIN: u64 = 64 << 10;

/// Extends the time for taking a complete answer by one second for each of these bytes.
pub(crate) const TAKEN_PER_SECOND: u64 = 256 << 10;

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// From a request's first byte until its head is complete; also for a TLS handshake. Default 30
    /// s.
    pub head: Duration,
    /// The connection is closed if its reader takes less than 64 KiB of the pending bytes in this
    /// time. Default 90 s: longer than an event stream waits for its subscriber, so that a slow
    /// subscriber still receives the reason.
    pub stalled: Duration,
    /// Time in which a complete answer must be taken, since it stays in memory until then, plus one
    /// second for each 256 KiB. Does not apply to event streams, which have their own bounds.
    /// Default 75 s.
    pub taken: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            stalled: Duration::from_secs(90),
            taken: Duration::from_secs(75),
        }
    }
}

impl ConnectionTimeouts {
    /// Nothing that begins now is late before this.
    fn shortest(&self) -> Duration {
        self.head.min(self.stalled).min(self.taken)
    }
}

/// Which timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The head of a request was too slow.
    Head,
    /// The reader was too slow.
    Stalled,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// A request is arriving, since then.
    Head(Instant),
    /// A request is being answered.
    Answer,
    /// There is no request, since then.
    Idle(Instant),
    /// There is no request, and the connection is to close.
    Ending,
}

/// Bytes that wait for the reader.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    /// Bytes taken since then.
    taken: u64,
}

/// The timeouts of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    timeouts: ConnectionTimeouts,
    phase: Phase,
    waiting: Option<Waiting>,
    /// When the complete answer must be taken.
    due: Option<Instant>,
}

impl Watch {
    /// A connection begins.
    pub fn new(timeouts: ConnectionTimeouts, now: Instant) -> Self {
        Self {
            timeouts,
            phase: Phase::Idle(now),
            waiting: None,
            due: None,
        }
    }

    /// Bytes arrived. They do not extend the time of a head that has begun.
    pub fn has_read(&mut self, now: Instant) {
        if let Phase::Idle(_) | Phase::Ending = self.phase {
            self.phase = Phase::Head(now);
        }
    }

    /// The head of a request is complete.
    pub fn request_complete(&mut self) {
        self.phase = Phase::Answer;
    }

    /// An answer is made, of this length; `None` is a stream, which is made as it is taken.
    pub fn answer_made(&mut self, bytes: Option<u64>, now: Instant) {
        let taken = self.timeouts.taken;
        self.due = bytes.map(|bytes| now + taken + Duration::from_secs(bytes / TAKEN_PER_SECOND));
    }

    /// An answer is complete, whether or not all of it has been taken.
    pub fn answer_complete(&mut self, now: Instant) {
        self.phase = Phase::Idle(now);
    }

    /// Bytes are pending, and the socket takes no more.
    pub fn waits(&mut self, now: Instant) {
        self.waiting.get_or_insert(Waiting {
            since: now,
            taken: 0,
        });
    }

    /// The socket took these bytes.
    pub fn bytes_taken(&mut self, bytes: usize, now: Instant) {
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

    /// No bytes are pending any more.
    pub fn is_flushed(&mut self) {
        self.waiting = None;
    }

    /// Whether bytes wait for the reader.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Since when the connection is idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle(since) if self.waiting.is_none() => Some(since),
            _ => None,
        }
    }

    /// The current activity; `None` if the connection is already to close.
    pub fn activity(&self) -> Option<Activity> {
        match (self.phase, self.waiting) {
            (Phase::Ending, _) => None,
            (Phase::Idle(since), None) => Some(Activity::Idle(since)),
            (Phase::Head(since), None) => Some(Activity::Receiving(since)),
            _ => Some(Activity::Answering),
        }
    }

    /// Marks an idle connection to be closed; returns whether it was idle. A request that arrives
    /// nevertheless is answered.
    pub fn end(&mut self) -> bool {
        let is_idle = self.idle_since().is_some();
        if is_idle {
            self.phase = Phase::Ending;
        }
        is_idle
    }

    /// Whether the connection is to close, and no request has arrived since.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    /// Checks the timeouts; returns the latest time of the next check.
    pub fn look(&self, now: Instant) -> Result<Instant, Late> {
        let timeouts = &self.timeouts;
        let of_phase = match self.phase {
            Phase::Head(since) => Some((since + timeouts.head, Late::Head)),
            Phase::Answer | Phase::Idle(_) | Phase::Ending => None,
        };
        let of_reader = self
            .waiting
            .map(|waiting| (waiting.since + timeouts.stalled, Late::Stalled));
        let of_answer = self.waiting.and(self.due).map(|due| (due, Late::Stalled));
        let mut next = now + timeouts.shortest();
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

    /// The timeout that passes first, and when, if nothing happens from `from` on.
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
    fn the_head_timeout_starts_at_the_first_byte() {
        let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
        assert!(watch.look(at(100_000)).is_ok(), "nothing has begun");
        for second in 0..29 {
            watch.has_read(at(1000 + second));
        }
        assert_eq!(late(&watch, 1029), (Late::Head, 1030));
    }

    #[test]
    fn only_idle_connections_are_closed_for_others() {
        let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
        watch.has_read(at(1));
        assert!(!watch.end() && !watch.is_ending());
        watch.request_complete();
        watch.waits(at(2));
        assert!(!watch.end());
        watch.answer_complete(at(3));
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
    fn making_an_answer_has_no_timeout() {
        let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
        watch.has_read(at(1));
        watch.request_complete();
        watch.has_read(at(500));
        assert!(watch.look(at(100_000)).is_ok());
        watch.answer_complete(at(1000));
        assert!(watch.look(at(100_000)).is_ok());
        watch.has_read(at(200_000));
        assert_eq!(late(&watch, 200_000), (Late::Head, 200_030));
    }

    #[test]
    fn the_time_to_take_an_answer_grows_with_its_size() {
        for (mebibytes, due) in [(0, 85), (1, 89), (60, 325)] {
            let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
            watch.request_complete();
            watch.answer_made(Some(mebibytes << 20), at(10));
            assert!(watch.look(at(100_000)).is_ok(), "nothing waits");
            // It takes enough not to be stalled, and too little to finish in time.
            let mut now = 10;
            while watch.look(at(now)).is_ok() {
                watch.waits(at(now));
                watch.bytes_taken(TAKEN_MIN as usize, at(now));
                now += 1;
            }
            assert_eq!(now, due);
            // A stream has no such limit.
            watch.is_flushed();
            watch.answer_complete(at(now));
            watch.request_complete();
            watch.answer_made(None, at(now));
            watch.waits(at(now));
            assert_eq!(late(&watch, now), (Late::Stalled, now + 90));
        }
    }

    #[test]
    fn a_reader_must_take_a_minimum_per_period() {
        let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
        watch.request_complete();
        watch.waits(at(10));
        // A byte a minute does not count.
        for minute in 0..100 {
            watch.waits(at(10 + 60 * minute));
            watch.bytes_taken(1, at(10 + 60 * minute));
        }
        assert_eq!(late(&watch, 10), (Late::Stalled, 100));
        // Half of it twice is enough; then counting restarts.
        let mut watch = Watch::new(ConnectionTimeouts::default(), at(0));
        watch.request_complete();
        watch.waits(at(10));
        watch.bytes_taken(TAKEN_MIN as usize / 2, at(50));
        watch.bytes_taken(TAKEN_MIN as usize / 2, at(99));
        assert_eq!(late(&watch, 99), (Late::Stalled, 189));
        // Also when the answer is complete; once all is taken the connection is idle.
        watch.answer_complete(at(100));
        assert_eq!(late(&watch, 100), (Late::Stalled, 189));
        watch.is_flushed();
        assert_eq!(watch.idle_since(), Some(at(100)));
        assert!(watch.look(at(100_000)).is_ok());
    }
}
