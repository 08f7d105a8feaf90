//! Exponential back-off with jitter, so that nodes that lost the same peer do not return at once.
//!
//! Computes waits and never sleeps. The caller passes a seeded random source, so that one seed
//! gives one sequence.

use std::time::Duration;

use rand::Rng;

/// Exponential back-off with full jitter: each wait is uniform between zero and a ceiling that
/// doubles.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// The first wait is at most `first`; no wait is longer than `max`.
    ///
    /// A `first` below one millisecond counts as one millisecond, so that a loop always waits.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        let first = first.max(Duration::from_millis(1));
        let max = max.max(first);
        Self {
            first,
            max,
            ceiling: first,
        }
    }

    /// The wait before the next attempt.
    pub fn next(&mut self, chance: &mut impl Rng) -> Duration {
        let ceiling = self.ceiling;
        self.ceiling = ceiling.saturating_mul(2).min(self.max);
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(chance.random_range(0..=nanos))
    }

    /// Resets the ceiling to the first wait, after a successful attempt.
    pub fn reset(&mut self) {
        self.ceiling = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(60);

    fn waits(seed: u64, count: usize) -> Vec<Duration> {
        let (mut backoff, mut chance) = (Backoff::new(FIRST, MAX), SmallRng::seed_from_u64(seed));
        (0..count).map(|_| backoff.next(&mut chance)).collect()
    }

    proptest! {
        #[test]
        fn waits_stay_below_doubling_ceilings(seed: u64) {
            for (attempt, wait) in waits(seed, 40).into_iter().enumerate() {
                let ceiling = FIRST.saturating_mul(1 << attempt.min(20)).min(MAX);
                prop_assert!(wait <= ceiling, "attempt {attempt} waits {wait:?}, ceiling {ceiling:?}");
            }
        }

        #[test]
        fn one_seed_gives_one_sequence(seed: u64) {
            prop_assert_eq!(waits(seed, 10), waits(seed, 10));
        }
    }

    #[test]
    fn simultaneous_failures_retry_at_spread_times() {
        let mut first: Vec<_> = (0..1000).map(|seed| waits(seed, 1)[0]).collect();
        first.sort_unstable();
        assert!(
            first[250] > FIRST / 8 && first[250] < FIRST / 2,
            "lower quarter at {:?}",
            first[250]
        );
        assert!(
            first[750] > FIRST / 2 && first[750] < FIRST * 7 / 8,
            "upper quarter at {:?}",
            first[750]
        );
    }

    #[test]
    fn success_starts_again_from_the_first_wait() {
        let (mut backoff, mut chance) = (Backoff::new(FIRST, MAX), SmallRng::seed_from_u64(1));
        for _ in 0..20 {
            let _ = backoff.next(&mut chance);
        }
        backoff.reset();
        assert!(backoff.next(&mut chance) <= FIRST);
    }

    #[test]
    fn a_first_wait_of_zero_cannot_be_built() {
        let (mut backoff, mut chance) = (
            Backoff::new(Duration::ZERO, Duration::ZERO),
            SmallRng::seed_from_u64(1),
        );
        assert!((0..100).any(|_| backoff.next(&mut chance) > Duration::ZERO));
    }
}
