//! The load for replicated services: several proposers, each with one pending proposal at a time.
//!
//! A closure makes the proposals. A warm-up is not counted. Keeps the times of a bounded number of
//! proposals, evenly spread over all of them. Does not retry: a failed proposal ends the
//! measurement.

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use futures_util::future::try_join_all;
use runtime::{Clock, Statistics};

use meros::output::error::{CliError, Outcome};

/// Largest number of kept times.
const TIMES_MAX: usize = 1 << 20;

/// Duration and number of proposers.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of concurrent proposers.
    pub proposers: u32,
    /// Time before anything counts.
    pub warm_up: Duration,
    /// Time that counts.
    pub lasts: Duration,
    /// Timeout of one proposal.
    pub patience: Duration,
}

/// The requested proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalId {
    /// Number of the proposer, from 0.
    pub proposer: u32,
    /// Number of its proposal, from 0.
    pub number: u64,
}

/// The results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commits {
    /// Number of proposers.
    pub proposers: u32,
    /// Completed proposals per second.
    pub per_second: f64,
    /// The median time of one, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile, in milliseconds.
    pub p99_ms: f64,
}

/// A sample of the times, at even distances.
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

/// Runs the load and returns the results.
pub async fn drive<F>(
    clock: &Clock,
    load: Load,
    propose: impl Fn(ProposalId) -> F,
) -> Outcome<Commits>
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
                let proposal = ProposalId { proposer, number };
                let answered = clock.timeout(load.patience, propose(proposal)).await;
                answered.map_err(|late| {
                    CliError::because(format!("proposer {proposer} was not answered"), &late)
                })??;
                let now = clock.now();
                if now >= counts && now <= ends {
                    times.borrow_mut().take(now - begun, TIMES_MAX);
                }
            }
            Ok::<(), CliError>(())
        }
    };
    try_join_all((0..load.proposers).map(work)).await?;
    let times = times.into_inner();
    let statistics = Statistics::of(times.kept);
    let statistics = statistics.ok_or_else(|| {
        CliError::new(format!(
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
    use runtime::testing::run_simulated;

    use super::*;

    const LOAD: Load = Load {
        proposers: 4,
        warm_up: Duration::from_secs(1),
        lasts: Duration::from_secs(10),
        patience: Duration::from_secs(5),
    };

    fn driven<F: Future<Output = Outcome>>(
        propose: impl Fn(Clock, ProposalId) -> F,
    ) -> Outcome<Commits> {
        run_simulated(async {
            let clock = Clock::paused();
            drive(&clock, LOAD, |proposal| propose(clock.clone(), proposal)).await
        })
    }

    #[test]
    fn proposals_count_after_the_warm_up() {
        // The first second is slow and does not count.
        let commits = driven(|clock, proposal| async move {
            let slow = proposal.number == 0;
            let millis = if slow { 1000 } else { 10 };
            clock.sleep(Duration::from_millis(millis)).await;
            Ok(())
        });
        let commits = commits.unwrap();
        assert!((400.0..=401.0).contains(&commits.per_second), "{commits:?}");
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
    }

    #[test]
    fn slow_hundredth_shows_in_p99_only() {
        let commits = driven(|clock, proposal| async move {
            let slow = proposal.number % 50 == 49;
            let millis = if slow { 200 } else { 10 };
            clock.sleep(Duration::from_millis(millis)).await;
            Ok(())
        });
        let commits = commits.unwrap();
        assert!((10.0..11.5).contains(&commits.p50_ms), "{commits:?}");
        assert!((199.0..201.5).contains(&commits.p99_ms), "{commits:?}");
    }

    #[test]
    fn failed_proposal_ends_the_measurement() {
        let failed = driven(|_, proposal| async move {
            assert!(proposal.proposer < 4);
            Err(CliError::new("no leader"))
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
    fn excess_times_are_thinned_evenly() {
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
