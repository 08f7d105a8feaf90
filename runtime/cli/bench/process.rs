//! Processes of a measurement: started and ended with it, and what the system says of them; and the bare loop that launching is held
//! against.
//!
//! Linux only, from /proc.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::Clock;

use crate::failure::{Failure, Outcome};

/// What a process and all its descendants use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory in MiB, shared pages counted once a process.
    pub resident: f64,
    /// Of it, in MiB, what no file backs: what the system cannot take back by reading it again.
    pub anonymous: f64,
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
        // One that has just ended has none.
        anonymous: sum.anonymous + memory(process.pid, "RssAnon").unwrap_or_default(),
        cpu: sum.cpu + (process.user_ticks + process.system_ticks) as f64 / tick,
    }))
}

/// The most memory in MiB that process `pid`, without its descendants, has had resident at once.
pub fn peak(pid: u32) -> Outcome<f64> {
    let pid = i32::try_from(pid).map_err(|error| Failure::because("not a process", &error))?;
    memory(pid, "VmHWM")
}

/// MiB, from the line `name` of /proc/PID/status.
fn memory(pid: i32, name: &str) -> Outcome<f64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::because(&path, &error))?;
    memory_in(&text, name).ok_or_else(|| Failure::new(format!("{path} has no line {name}")))
}

fn memory_in(status: &str, name: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// A process that ends when this is dropped.
pub struct Process(Child);

impl Process {
    /// Starts `program`, which finds its certificates in `directory`.
    pub fn start(program: &Path, arguments: &[&str], directory: &Path) -> Outcome<Self> {
        let mut command = Command::new(program);
        command
            .args(["--log", "warn"])
            .args(arguments)
            .env("MEROS_CERTS", directory.join("certs"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| {
            Failure::because(format!("cannot start {}", program.display()), &error)
        })?;
        Ok(Self(child))
    }

    /// What it and its descendants use now.
    pub fn usage(&self) -> Outcome<Usage> {
        usage(self.0.id())
    }

    /// The most memory it has had, in MiB.
    pub fn peak(&self) -> Outcome<f64> {
        peak(self.0.id())
    }

    /// Ends it without a word, as a lost machine would.
    pub fn kill(mut self) {
        let _ = self.0.kill(); // It may have ended before.
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Of one that was waited for nothing is left, and its number may be another's.
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM); // It may just have ended.
        }
        let _ = self.0.wait();
    }
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
