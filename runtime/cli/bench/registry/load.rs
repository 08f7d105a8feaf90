//! The load under which a replicated service is measured: so many proposers, each with one proposal under way at a time.
//!
//! What is proposed, and to whom, is one closure. A first while is not counted. Remembers the times of a bounded number of proposals, evenly
//! spread over all of them. Never tries again: a proposal that fails ends the measurement.

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use futures_util::future::try_join_all;
use runtime::{Clock, Statistics};

use crate::failure::{Failure, Outcome};

/// How many times are kept at most.
const TIMES_MAX: usize = 1 << 20;

/// How long, and with how many.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many propose side by side.
    pub proposers: u32,
    /// How long they do so before anything counts.
    pub warm_up: Duration,
    /// How long is counted.
    pub lasts: Duration,
    /// How long one proposal may take.
    pub patience: Duration,
}

/// Which proposal is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose, from 0.
    pub proposer: u32,
    /// Which of its own, from 0.
    pub number: u64,
}

/// What the proposers saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commits {
    /// How many proposers there were.
    pub proposers: u32,
    /// Proposals that were answered, a second.
    pub per_second: f64,
    /// The median time of one, in milliseconds.
    pub p50_ms: f64,
    /// The time that 99 of a hundred do not exceed, in milliseconds.
    pub p99_ms: f64,
}

/// Every so many-th of the times seen.
#[derive(Debug)]
struct Times {
    seen: u64,
    every: u64,
    kept: Vec<f64>,
}

impl Times {
    fn new() -> Self {
        Self {
            seen: 0,
            every: 1,
            kept: Vec::new(),
        }
    }

    fn take(&mut self, time: Duration, kept_max: usize) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() >= kept_max {
                let mut number = 0;
                self.kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.every *= 2;
            }
            if self.seen.is_multiple_of(self.every) {
                self.kept.push(time.as_secs_f64() * 1000.0);
            }
        }
        self.seen += 1;
    }
}

/// Lets the proposers propose for as long as `load` says, and gives what they saw.
pub async fn drive<F>(clock: &Clock, load: Load, propose: impl Fn(Turn) -> F) -> Outcome<Commits>
where
    F: Future<Output = Outcome>,
{
    let counts = clock.now() + load.warm_up;
    let ends = counts + load.lasts;
    let times = RefCell::new(Times::new());
    let work = |proposer| {
        let (propose, times) = (&propose, &times);
        async move {
            for number in 0.. {
                let begun = clock.now();
                if begun >= ends {
                    break;
                }
                let turn = Turn { proposer, number };
                let answered = clock.timeout(load.patience, propose(turn)).await;
                answered.map_err(|late| {
                    Failure::because(format!("proposer {proposer} was not answered"), &late)
                })??;
                let now = clock.now();
                if now >= counts && now <= ends {
                    times.borrow_mut().take(now - begun, TIMES_MAX);
                }
            }
            Ok::<(), Failure>(())
        }
    };
    try_join_all((0..load.proposers).map(work)).await?;
    let times = times.into_inner();
    let statistics = Statistics::of(times.kept);
    let statistics = statistics.ok_or_else(|| {
        Failure::new(format!(
            "{} proposals were answered within {:?}: too few to measure",
            times.seen, load.lasts
        ))
    })?;
    Ok(Commits {
        proposers: load.proposers,
        per_second: times.seen as f64 / load.lasts.as_secs_f64().max(f64::EPSILON),
        p50_ms: statistics.p50,
        p99_ms: statistics.p99,
    })
}

#[cfg(test)]
mod tests {
    use runtime::rehearsal::stage;

    use super::*;

    const LOAD: Load = Load {
        proposers: 4,
        warm_up: Duration::from_secs(1),
        lasts: Duration::from_secs(10),
        patience: Duration::from_secs(5),
    };

    fn driven<F: Future<Output = Outcome>>(propose: impl Fn(Clock, Turn) -> F) -> Outcome<Commits> {
        stage(async {
            let clock = Clock::paused();
            drive(&clock, LOAD, |turn| propose(clock.clone(), turn)).await
        })
    }

    #[test]
    fn proposals_are_counted_and_timed_once_the_proposers_are_warm() {
        // The first second is slow, and counts for nothing.
        let commits = driven(|clock, turn| async move {
            let slow = turn.number == 0;
            let millis = if slow { 1000 } else { 10 };
            clock.sleep(Duration::from_millis(millis)).await;
            Ok(())
        });
        let commits = commits.unwrap();
        assert!((400.0..=401.0).contains(&commits.per_second), "{commits:?}");
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
    }

    #[test]
    fn a_hundredth_that_is_slow_is_seen_in_the_99th_percentile_and_not_in_the_median() {
        let commits = driven(|clock, turn| async move {
            let slow = turn.number % 50 == 49;
            let millis = if slow { 200 } else { 10 };
            clock.sleep(Duration::from_millis(millis)).await;
            Ok(())
        });
        let commits = commits.unwrap();
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
        assert!((199.0..201.5).contains(&commits.p99_ms), "{commits:?}");
    }

    #[test]
    fn a_proposal_that_fails_or_is_not_answered_ends_the_measurement() {
        let failed = driven(|_, turn| async move {
            assert!(turn.proposer < 4);
            Err(Failure::new("no leader"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no leader");
        let late = driven(|clock, _| async move {
            clock.sleep(Duration::from_secs(6)).await;
            Ok(())
        });
        let late = late.unwrap_err().to_string();
        assert!(late.contains("was not answered"), "{late}");
        let idle = driven(|clock, _| async move {
            clock.sleep(Duration::from_millis(4999)).await;
            clock.sleep(Duration::ZERO).await;
            Ok(())
        });
        assert!(idle.is_ok(), "four proposers have two answers each");
    }

    #[test]
    fn times_that_are_too_many_are_thinned_evenly() {
        let mut times = Times::new();
        for millis in 0..1000 {
            times.take(Duration::from_millis(millis), 100);
        }
        assert_eq!((times.seen, times.every), (1000, 16));
        assert!(times.kept.len() <= 100 && times.kept.len() > 50);
        let even = (0..1000).step_by(16).map(f64::from);
        assert_eq!(times.kept, even.collect::<Vec<_>>());
    }
}
