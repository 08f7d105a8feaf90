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
    refused(prepare(&["a b", ""]), "windows[1].machine_ids is `empty`");
    refused(prepare(&["b", "a B"]), "windows[1].machine_ids is `b`");
    refused(prepare(&["a", "c"]), "without b");
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
    refused(start(&planned, ""), "one machine or more");
    refused(start(&planned, "a a"), "each machine once");
    refused(start(&planned, "a x"), "machines is `x`");
    refused(stop(&planned, "a"), "machines that are down");
    assert!(start(&planned, "a b").is_ok());
    planned.start(&machines("a"));
    refused(start(&planned, "a"), "not down yet");
    assert!(stop(&planned, "a").is_ok());
    refused(stop(&planned, "a b"), "machines is `b`");
}
