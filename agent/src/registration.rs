//! When the agent tries to register, and what it makes of the answer (SPEC 5.2). Pure.

use std::time::Duration;

use runtime::Instant;

/// The longest pause between two attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// The pauses between attempts: doubling from the factor to a minute, each shortened by up to half at random.
#[derive(Clone, Debug)]
pub struct Backoff {
    factor: Duration,
    failures: u32,
}

impl Backoff {
    /// No attempt has failed yet.
    pub fn new(factor: Duration) -> Self {
        Self {
            factor,
            failures: 0,
        }
    }

    /// An attempt has failed: how long to wait. `chance` is a random number in 0..1.
    pub fn failed(&mut self, chance: f64) -> Duration {
        let doubled = self
            .factor
            .saturating_mul(1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX));
        self.failures += 1;
        doubled
            .min(BACKOFF_MAX)
            .mul_f64(1.0 - 0.5 * chance.clamp(0.0, 1.0))
    }

    /// A connection that held is lost: all agents of that master come back now, so each waits at random below the factor.
    pub fn lost(&mut self, chance: f64) -> Duration {
        self.failures = 0;
        self.factor.mul_f64(chance.clamp(0.0, 1.0))
    }

    /// The agent is registered.
    pub fn registered(&mut self) {
        self.failures = 0;
    }

    /// How many attempts have failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Whether the master has been silent for too long.
#[derive(Clone, Copy, Debug)]
pub struct Vigil {
    heard: Instant,
    timeout: Duration,
}

impl Vigil {
    /// The master has just been heard, and will ping at least so often.
    pub fn begin(now: Instant, timeout: Duration) -> Self {
        Self {
            heard: now,
            timeout,
        }
    }

    /// It has pinged.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// How much longer to wait for it; `None` when it has been silent for too long.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let due = self.heard + self.timeout;
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
    fn pauses_double_to_a_minute_and_chance_shortens_them_by_up_to_half() {
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
    fn a_silent_master_is_given_up_after_its_timeout() {
        let start = Instant::default();
        let mut vigil = Vigil::begin(start, seconds(75));
        assert_eq!(vigil.left(start + seconds(74)), Some(seconds(1)));
        vigil.heard(start + seconds(60));
        assert_eq!(vigil.left(start + seconds(75)), Some(seconds(60)));
        assert_eq!(vigil.left(start + seconds(135)), None);
    }
}
