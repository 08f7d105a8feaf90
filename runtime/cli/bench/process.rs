//! What the system says of a process and its children: memory and time; and the bare loop that launching is held against.
//!
//! Linux only, from /proc. Remembers nothing.

use std::process::{Command, Stdio};

use runtime::Clock;

use crate::failure::{Failure, Outcome};

/// What a process and all its descendants use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory in MiB, shared pages counted once a process.
    pub resident: f64,
    /// CPU time since each began, in seconds.
    pub cpu: f64,
}

/// What process `pid` and its descendants use now.
pub fn usage(pid: u32) -> Outcome<Usage> {
    let processes = agent::procfs::processes()
        .map_err(|error| Failure::because("cannot read /proc", &error))?;
    let root = i32::try_from(pid).map_err(|error| Failure::because("not a process", &error))?;
    let mut family = agent::procfs::descendants(&processes, &[root]);
    family.insert(root);
    let (page, tick) = (
        agent::procfs::page_size() as f64,
        agent::procfs::ticks_per_second(),
    );
    let members = processes
        .iter()
        .filter(|process| family.contains(&process.pid));
    Ok(members.fold(Usage::default(), |sum, process| Usage {
        resident: sum.resident + process.resident_pages as f64 * page / (1 << 20) as f64,
        cpu: sum.cpu + (process.user_ticks + process.system_ticks) as f64 / tick,
    }))
}

/// How many times a second one loop that does nothing else forks, executes and reaps `/bin/true` on this machine, one after the other.
pub fn bare_launches(count: u32) -> Outcome<f64> {
    let clock = Clock::real();
    let begun = clock.now();
    for _ in 0..count.max(1) {
        let status = Command::new("/bin/true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = status.map_err(|error| Failure::because("/bin/true cannot be run", &error))?;
        if !status.success() {
            return Err(Failure::new(format!("/bin/true ended with {status}")));
        }
    }
    Ok(f64::from(count.max(1)) / (clock.now() - begun).as_secs_f64())
}
