//! Shrinks a failing scenario to a smaller one that fails in the same way.
//!
//! First it removes the faults that began after the violation, then as many others as possible
//! (delta debugging: halves, quarters and so on), then it reduces the duration and the numbers of
//! frameworks and agents. Each step is a run; their number is bounded. The caller executes the
//! runs.

use std::time::Duration;

use crate::run::Run;
use crate::scenario::{Fault, Scenario};

/// The result: a failing scenario and its run.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest scenario found, with explicit faults.
    pub scenario: Scenario,
    /// Its run.
    pub run: Run,
    /// The number of runs needed.
    pub runs: u32,
    /// Whether the budget ended before all reductions were tried.
    pub exhausted: bool,
}

struct Search<'a> {
    best: Scenario,
    run: Run,
    checker: &'static str,
    again: &'a mut dyn FnMut(&Scenario) -> Run,
    runs: u32,
    budget: u32,
}

/// Shrinks the scenario of the `failed` run, with at most `budget` further runs. `None` if that run
/// has no violation.
pub fn shrink(
    scenario: &Scenario,
    failed: Run,
    budget: u32,
    again: &mut dyn FnMut(&Scenario) -> Run,
) -> Option<Shrunk> {
    let checker = failed.violation.as_ref()?.checker;
    let mut search = Search {
        best: Scenario {
            faults: Some(failed.faults.clone()),
            ..scenario.clone()
        },
        run: failed,
        checker,
        again,
        runs: 0,
        budget,
    };
    search.drop_later();
    search.drop_faults();
    search.shorten();
    search.make_smaller();
    Some(Shrunk {
        exhausted: search.runs >= search.budget,
        scenario: search.best,
        run: search.run,
        runs: search.runs,
    })
}

impl Search<'_> {
    /// Runs the scenario; it becomes the best one if the same invariant is violated.
    fn try_this(&mut self, scenario: Scenario) -> bool {
        if self.runs >= self.budget {
            return false;
        }
        self.runs += 1;
        let run = (self.again)(&scenario);
        let violation = run.violation.as_ref();
        let same = violation.is_some_and(|violation| violation.checker == self.checker);
        if same {
            (self.best, self.run) = (scenario, run);
        }
        same
    }

    fn faults(&self) -> &[Fault] {
        self.best.faults.as_deref().unwrap_or_default()
    }

    fn with_faults(&self, faults: Vec<Fault>) -> Scenario {
        Scenario {
            faults: Some(faults),
            ..self.best.clone()
        }
    }

    fn broken_at(&self) -> Duration {
        let violation = self.run.violation.as_ref();
        violation.map_or(self.best.duration, |violation| violation.at)
    }

    /// Faults that began after the violation have not caused it, unless the end of the faults has.
    fn drop_later(&mut self) {
        let end = self.broken_at();
        let earlier = self.faults().iter().filter(|fault| fault.at <= end);
        let earlier: Vec<Fault> = earlier.cloned().collect();
        if earlier.len() < self.faults().len() {
            self.try_this(self.with_faults(earlier));
        }
    }

    /// Removes faults in ever smaller pieces. Ends: each round shortens either the list or the
    /// pieces.
    fn drop_faults(&mut self) {
        let mut pieces = 1;
        while !self.faults().is_empty() && self.runs < self.budget {
            let faults = self.faults().to_vec();
            let size = faults.len().div_ceil(pieces);
            let shorter = (0..faults.len()).step_by(size).find(|&from| {
                let rest = faults.iter().enumerate();
                let rest = rest.filter(|(at, _)| !(from..from + size).contains(at));
                let rest = rest.map(|(_, fault)| fault.clone()).collect();
                self.try_this(self.with_faults(rest))
            });
            match shorter {
                Some(_) => pieces = pieces.saturating_sub(1).max(1),
                None if size == 1 => return,
                None => pieces = (pieces * 2).min(faults.len()),
            }
        }
    }

    /// Tries to end the faults soon after the last of them and the violation, else after half of
    /// the time, and so on.
    fn shorten(&mut self) {
        let ends = self.faults().iter().map(|fault| fault.at + fault.lasts);
        let needed = ends.max().unwrap_or_default() + Duration::from_secs(1);
        let whole = |time: Duration| Duration::from_secs(time.as_secs() + 1);
        let until_broken = whole(self.broken_at());
        for duration in [whole(needed), until_broken] {
            if duration < self.best.duration {
                let shorter = Scenario {
                    duration,
                    ..self.best.clone()
                };
                if self.try_this(shorter) {
                    break;
                }
            }
        }
        loop {
            let half = whole(self.best.duration / 2);
            let shorter = Scenario {
                duration: half,
                ..self.best.clone()
            };
            if half >= self.best.duration || half < needed || !self.try_this(shorter) {
                return;
            }
        }
    }

    /// Tries fewer frameworks and agents: one, then half, then one less. Nodes in faults are kept.
    fn make_smaller(&mut self) {
        let named = |kind: &str, faults: &[Fault]| {
            let nodes = faults.iter().flat_map(|fault| fault.kind.nodes());
            let numbers = nodes.filter_map(|node| node.strip_prefix(kind)?.parse().ok());
            numbers.max().unwrap_or(0)
        };
        let frameworks: u32 = named("framework-", self.faults());
        let agents: u32 = named("agent-", self.faults());
        self.lower(frameworks, |scenario| &mut scenario.frameworks);
        self.lower(agents, |scenario| &mut scenario.agents);
    }

    fn lower(&mut self, least: u32, number: fn(&mut Scenario) -> &mut u32) {
        let least = least.max(1);
        loop {
            let now = *number(&mut self.best);
            let mut candidates = vec![least, least.max(now / 2), now.saturating_sub(1)];
            candidates.retain(|candidate| (least..now).contains(candidate));
            candidates.dedup();
            let smaller = candidates.into_iter().any(|candidate| {
                let mut scenario = self.best.clone();
                *number(&mut scenario) = candidate;
                self.try_this(scenario)
            });
            if !smaller {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::checker::Violation;
    use crate::report::tally::Tally;
    use crate::scenario::{FaultKind, Profile, Wiring};

    fn crash(second: u64, node: &str) -> Fault {
        Fault {
            at: Duration::from_secs(second),
            lasts: Duration::from_secs(10),
            kind: FaultKind::Crash {
                node: node.to_owned(),
            },
        }
    }

    fn run(scenario: &Scenario, broken: bool) -> Run {
        let at = Duration::from_secs(700);
        let violation = broken.then(|| Violation {
            checker: "offers",
            at,
            what: String::new(),
        });
        Run {
            hash: 0,
            tally: Tally::default(),
            faults: scenario.faults.clone().unwrap_or_default(),
            violation,
            recent: Vec::new(),
        }
    }

    /// A failure that needs these faults, this number of agents, and this time.
    fn check(needed: &[usize], agents: u32, budget: u32) -> Shrunk {
        let plan: Vec<Fault> = (0..40)
            .map(|second| crash(second * 20, &format!("agent-{}", second % 7 + 1)))
            .collect();
        let scenario = Scenario {
            seed: 1,
            masters: 1,
            agents: 50,
            frameworks: 9,
            duration: Duration::from_secs(3600),
            profile: Profile::All,
            wiring: Wiring::Memory,
            faults: Some(plan.clone()),
        };
        let needed: Vec<Fault> = needed.iter().map(|at| plan[*at].clone()).collect();
        let fails = |scenario: &Scenario| {
            let faults = scenario.faults.as_deref().unwrap_or_default();
            needed.iter().all(|fault| faults.contains(fault)) && scenario.agents >= agents
        };
        let failed = run(&scenario, true);
        shrink(&scenario, failed, budget, &mut |scenario| {
            run(scenario, fails(scenario))
        })
        .unwrap()
    }

    #[test]
    fn only_what_is_needed_is_left() {
        for needed in [&[][..], &[17], &[0, 34], &[3, 4, 20]] {
            let shrunk = check(needed, 1, 300);
            let faults = shrunk.scenario.faults.unwrap();
            let times: Vec<u64> = faults.iter().map(|fault| fault.at.as_secs() / 20).collect();
            let expected: Vec<u64> = needed.iter().map(|at| *at as u64).collect();
            assert_eq!(times, expected);
            assert!(!shrunk.exhausted);
            assert!(shrunk.runs < 120, "{} runs", shrunk.runs);
        }
    }

    #[test]
    fn cluster_and_time_shrink_to_the_needed_size() {
        let shrunk = check(&[17], 1, 300).scenario;
        assert_eq!(
            (shrunk.agents, shrunk.frameworks),
            (4, 1),
            "agent-4 is named"
        );
        assert_eq!(shrunk.duration, Duration::from_secs(17 * 20 + 10 + 2));
        assert_eq!(check(&[17], 23, 300).scenario.agents, 23);
    }

    #[test]
    fn runs_are_bounded_by_the_budget() {
        let shrunk = check(&[3, 4, 20], 1, 5);
        assert!(shrunk.exhausted);
        assert_eq!(shrunk.runs, 5);
        assert!(shrunk.run.violation.is_some());
    }

    #[test]
    fn clean_run_is_not_shrunk() {
        let scenario = check(&[], 1, 1).scenario;
        let clean = run(&scenario, false);
        assert!(shrink(&scenario, clean, 9, &mut |_| unreachable!()).is_none());
    }
}
