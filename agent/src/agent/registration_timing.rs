//! Timing of registration: backoff between attempts, and the heartbeat timeout of the master. Pure.

use std::time::Duration;

use runtime::Instant;

/// The longest pause between two attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Pauses between attempts: doubling from `factor` to a minute, each shortened by up to half at
/// random.
#[derive(Clone, Debug)]
pub struct Backoff {
    factor: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff without failures.
    pub fn new(factor: Duration) -> Self {
        Self {
            factor,
            failures: 0,
        }
    }

    /// The pause after a failed attempt. `chance` is a random number in 0..1.
    pub fn failed(&mut self, chance: f64) -> Duration {
        let doubled = self
            .factor
            .saturating_mul(1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX));
        self.failures += 1;
        doubled
            .min(BACKOFF_MAX)
            .mul_f64(1.0 - 0.5 * chance.clamp(0.0, 1.0))
    }

    /// The pause after a lost connection. All agents of that master reconnect at once, so it is
    /// random below `factor`.
    pub fn lost(&mut self, chance: f64) -> Duration {
        self.failures = 0;
        self.factor.mul_f64(chance.clamp(0.0, 1.0))
    }

    /// Resets after a registration.
    pub fn registered(&mut self) {
        self.failures = 0;
    }

    /// Failed attempts in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Detects a master that has stopped pinging.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatTimeout {
    last_ping: Instant,
    timeout: Duration,
}

impl HeartbeatTimeout {
    /// Starts with a master that pings within `timeout`.
    pub fn start(now: Instant, timeout: Duration) -> Self {
        Self {
            last_ping: now,
            timeout,
        }
    }

    /// A ping was received.
    pub fn pinged(&mut self, now: Instant) {
        self.last_ping = now;
    }

    /// The remaining time; `None` once the timeout has passed.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let due = self.last_ping + self.timeout;
        (due > now).then(|| due - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// SPEC 5.2: 1 s doubling to 60 s.
    #[test]
    fn pauses_double_to_a_minute_with_jitter() {
        let mut backoff = Backoff::new(seconds(1));
        let pauses: Vec<u64> = (0..8).map(|_| backoff.failed(0.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.failed(1.0), seconds(30));
        backoff.registered();
        assert_eq!(backoff.failed(0.0), seconds(1));
        assert_eq!(backoff.lost(0.25), Duration::from_millis(250));
        for _ in 0..100 {
            assert!(backoff.failed(0.0) <= BACKOFF_MAX);
        }
    }

    #[test]
    fn silent_master_times_out() {
        let start = Instant::default();
        let mut heartbeat = HeartbeatTimeout::start(start, seconds(75));
        assert_eq!(heartbeat.remaining(start + seconds(74)), Some(seconds(1)));
        heartbeat.pinged(start + seconds(60));
        assert_eq!(heartbeat.remaining(start + seconds(75)), Some(seconds(60)));
        assert_eq!(heartbeat.remaining(start + seconds(135)), None);
    }
}
