//! Planted faults of agents' containers.

use simulator::checkers::ContainerIsolation;
use simulator::{Bug, Checker, ContainerBug, Scenario};

use crate::{calm, check_bug};

/// Isolators that fail, and containers that are killed, with task groups.
fn disturbed() -> Scenario {
    let faults = [
        "15secs+100secs isolation agent-1",
        "15secs+100secs isolation agent-2",
        "40secs+40secs kill_executor agent-2",
        "60secs+40secs kill_executor agent-3",
        "70secs+3secs crash_process agent-1",
    ];
    Scenario {
        frameworks: 3,
        faults: Some(faults.map(|fault| fault.parse().unwrap()).to_vec()),
        ..calm()
    }
}

/// Isolators never clean up.
#[test]
fn missed_clean_up_is_found() {
    let checker = ContainerIsolation::default();
    let bug = Bug::of_containers(checker.name(), ContainerBug::MissedCleanUp);
    check_bug(&disturbed(), checker, "has not cleaned up after", bug);
}
