//! Validation and order of maintenance changes.

use std::time::Duration;

use runtime::Timestamp;

use super::*;

fn machine(hostname: &str) -> MachineId {
    MachineId::new(hostname, "").unwrap()
}

fn machines(hostnames: &str) -> Vec<MachineId> {
    hostnames.split_whitespace().map(machine).collect()
}

fn schedule(windows: &[&str]) -> UpdateMaintenanceSchedule {
    let window = |hostnames: &&str| Window {
        machines: machines(hostnames),
        unavailability: Unavailability {
            start: Timestamp::from_nanos(7),
            duration: Some(Duration::from_secs(60)),
        },
    };
    UpdateMaintenanceSchedule {
        windows: windows.iter().map(window).collect(),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(done: Result<T, UpdateRefused>, words: &str) {
    let reason = done.unwrap_err().to_string();
    assert!(reason.contains(words), "{reason}");
}

/// SPEC 3.6: each machine once, and those that are down stay listed.
#[test]
fn schedule_lists_machines_once_and_keeps_down_ones() {
    let mut planned = Machines::default();
    planned.schedule(&schedule(&["a b", "c"]).windows).unwrap();
    planned.start(&machines("b"));
    let prepare = |windows: &[&str]| prepare_schedule(&planned, &schedule(windows));
    refused(
        prepare(&["a b", ""]),
        "List of machines in the maintenance window is empty",
    );
    refused(
        prepare(&["b", "a B"]),
        r#"Machine '{"hostname":"b"}' appears more than once in the schedule"#,
    );
    refused(
        prepare(&["a", "c"]),
        r#"Machine '{"hostname":"b"}' is deactivated and cannot be removed from the schedule"#,
    );
    assert!(prepare(&["c", "b"]).is_ok());
    planned.stop(&machines("b"));
    assert!(prepare_schedule(&planned, &schedule(&[])).is_ok());
}

/// SPEC 3.6.
#[test]
fn machines_go_down_when_scheduled_and_up_when_down() {
    let mut planned = Machines::default();
    planned.schedule(&schedule(&["a b"]).windows).unwrap();
    let start = |planned: &Machines, names: &str| {
        let machines = machines(names);
        prepare_start(planned, &StartMaintenance { machines })
    };
    let stop = |planned: &Machines, names: &str| {
        let machines = machines(names);
        prepare_stop(planned, &StopMaintenance { machines })
    };
    refused(start(&planned, ""), "List of machines is empty");
    refused(
        start(&planned, "a a"),
        "appears more than once in the schedule",
    );
    refused(
        start(&planned, "a x"),
        r#"Machine '{"hostname":"x"}' is not part of a maintenance schedule"#,
    );
    refused(
        stop(&planned, "a"),
        "is not in DOWN mode and cannot be brought up",
    );
    assert!(start(&planned, "a b").is_ok());
    planned.start(&machines("a"));
    refused(
        start(&planned, "a"),
        "is not in DRAINING mode and cannot be brought down",
    );
    assert!(stop(&planned, "a").is_ok());
    refused(
        stop(&planned, "a b"),
        r#"Machine '{"hostname":"b"}' is not in DOWN mode"#,
    );
}
