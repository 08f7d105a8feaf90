//! Processes of a measurement, with their usage, and a bare loop of process launches for
//! comparison.
//!
//! Linux only, from /proc.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::Clock;

use meros::output::error::{CliError, Outcome};

/// Usage of a process and all its descendants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory in MiB. Shared pages count once for each process.
    pub resident: f64,
    /// The part of it without a file behind it, in MiB: the system cannot drop these pages.
    pub anonymous: f64,
    /// CPU time since the start of each process, in seconds.
    pub cpu: f64,
}

/// Present usage of process `pid` and its descendants.
pub fn usage(pid: u32) -> Outcome<Usage> {
    let processes = agent::host::procfs::processes()
        .map_err(|error| CliError::because("cannot read /proc", &error))?;
    let root = i32::try_from(pid).map_err(|error| CliError::because("not a process", &error))?;
    let mut family = agent::host::procfs::descendants(&processes, &[root]);
    family.insert(root);
    let (page, tick) = (
        agent::host::procfs::page_size() as f64,
        agent::host::procfs::ticks_per_second(),
    );
    let members = processes
        .iter()
        .filter(|process| family.contains(&process.pid));
    Ok(members.fold(Usage::default(), |sum, process| Usage {
        resident: sum.resident + process.resident_pages as f64 * page / (1 << 20) as f64,
        // A process that has just ended has none.
        anonymous: sum.anonymous + memory(process.pid, "RssAnon").unwrap_or_default(),
        cpu: sum.cpu + (process.user_ticks + process.system_ticks) as f64 / tick,
    }))
}

/// Resident bytes of this process; 0 without /proc.
pub fn own_resident() -> f64 {
    let mebibytes = i32::try_from(std::process::id())
        .ok()
        .and_then(|pid| memory(pid, "VmRSS").ok());
    mebibytes.unwrap_or(0.0) * (1 << 20) as f64
}

/// Highest resident memory of process `pid`, without its descendants, in MiB.
pub fn peak(pid: u32) -> Outcome<f64> {
    let pid = i32::try_from(pid).map_err(|error| CliError::because("not a process", &error))?;
    memory(pid, "VmHWM")
}

/// MiB, from the line `name` of /proc/PID/status.
fn memory(pid: i32, name: &str) -> Outcome<f64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| CliError::because(&path, &error))?;
    memory_in(&text, name).ok_or_else(|| CliError::new(format!("{path} has no line {name}")))
}

fn memory_in(status: &str, name: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// A process. Dropping it ends the process.
pub struct Process(Child);

impl Process {
    /// Starts `program` with the certificates in `directory`.
    pub fn start(program: &Path, arguments: &[&str], directory: &Path) -> Outcome<Self> {
        let mut command = Command::new(program);
        command
            .args(["--log", "warn"])
            .args(arguments)
            .env("MEROS_CERTS", directory.join("certs"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| {
            CliError::because(format!("cannot start {}", program.display()), &error)
        })?;
        Ok(Self(child))
    }

    /// Present usage of the process and its descendants.
    pub fn usage(&self) -> Outcome<Usage> {
        usage(self.0.id())
    }

    /// Its highest resident memory, in MiB.
    pub fn peak(&self) -> Outcome<f64> {
        peak(self.0.id())
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(mut self) {
        let _ = self.0.kill(); // It may have ended before.
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After a wait, another process may have the pid.
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM); // It may just have ended.
        }
        let _ = self.0.wait();
    }
}

/// Sequential launches of `/bin/true` per second in a plain loop on this machine.
pub fn bare_launches(count: u32) -> Outcome<f64> {
    let clock = Clock::real();
    let begun = clock.now();
    for _ in 0..count.max(1) {
        let status = Command::new("/bin/true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status =
            status.map_err(|error| CliError::because("/bin/true cannot be run", &error))?;
        if !status.success() {
            return Err(CliError::new(format!("/bin/true ended with {status}")));
        }
    }
    Ok(f64::from(count.max(1)) / (clock.now() - begun).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_mib() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(memory_in(status, "VmHWM"), Some(2.0));
        assert_eq!(memory_in(status, "Vm"), None);
        assert_eq!(memory_in(status, "RssAnon"), None);
        assert!(peak(std::process::id()).unwrap() > 0.0);
        assert!(usage(std::process::id()).unwrap().anonymous > 0.0);
    }
}
