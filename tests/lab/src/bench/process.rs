//! Processes of a measurement with their usage, parts in processes of their own, and a bare loop of
//! process launches for comparison.
//!
//! A part is one side of a measurement: a hidden verb of this command. It prints one line on
//! standard output when it is ready, then answers each line of standard input with one line of
//! JSON. It ends when its input ends, so also when its parent has ended. Linux only, from /proc.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use agent::host::procfs;
use meros::service::agent::own_program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::Clock;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::Result;

/// Timeout of a part's reply.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of a MiB.
pub const MIB: f64 = (1 << 20) as f64;

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

impl Usage {
    /// Present usage of process `pid` and its descendants.
    fn of(pid: u32) -> Result<Self> {
        let (processes, root) = (procfs::processes()?, i32::try_from(pid)?);
        let mut family = procfs::descendants(&processes, &[root]);
        family.insert(root);
        let (page, tick) = (procfs::page_size() as f64, procfs::ticks_per_second());
        let members = processes.iter().filter(|one| family.contains(&one.pid));
        Ok(members.fold(Self::default(), |sum, one| Self {
            resident: sum.resident + one.resident_pages as f64 * page / MIB,
            // A process that has just ended has none.
            anonymous: sum.anonymous + memory(one.pid, "RssAnon").unwrap_or_default(),
            cpu: sum.cpu + (one.user_ticks + one.system_ticks) as f64 / tick,
        }))
    }
}

/// MiB, from the line `name` of /proc/PID/status.
fn memory(pid: i32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    memory_in(&status, name).ok_or_else(|| format!("process {pid} has no line {name}").into())
}

fn memory_in(status: &str, name: &str) -> Option<f64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Resident bytes of this process; 0 without /proc.
pub fn own_resident() -> f64 {
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    memory(pid, "VmRSS").unwrap_or_default() * MIB
}

/// The `meros` binary, which is built into the same folder as this one.
fn meros() -> Result<PathBuf> {
    let program = own_program()?.with_file_name("meros");
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{}: build it with `-p meros`", program.display()).into()),
    }
}

/// A service of `meros` in its own process. Dropping it ends the process.
pub struct ServiceProcess(Child);

impl ServiceProcess {
    /// Starts `meros` with the certificates in `directory/certs`, and its files in
    /// `directory/name`.
    pub fn start(name: &str, address: &str, directory: &Path, arguments: &[&str]) -> Result<Self> {
        let port = address.rsplit(':').next().unwrap_or_default();
        let verb = name.split('-').next().unwrap_or_default();
        let mut command = Command::new(meros()?);
        command.args(["--log", "warn", verb, "--ip=127.0.0.1", "--port", port]);
        command.arg("--work_dir").arg(directory.join(name));
        command.args(arguments);
        command.env("MEROS_CERTS", directory.join("certs"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// Present usage of the process and its descendants.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.0.id())
    }

    /// Its CPU time, without its descendants, in seconds.
    pub fn own_cpu(&self) -> Result<f64> {
        let line = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let process = procfs::parse_stat(&line).ok_or("no line of a process")?;
        let ticks = process.user_ticks + process.system_ticks;
        Ok(ticks as f64 / procfs::ticks_per_second())
    }

    /// Its resident memory, without its descendants, in MiB.
    pub fn resident(&self) -> Result<f64> {
        memory(i32::try_from(self.0.id())?, "VmRSS")
    }

    /// Its highest resident memory, without its descendants, in MiB.
    pub fn peak(&self) -> Result<f64> {
        memory(i32::try_from(self.0.id())?, "VmHWM")
    }

    /// Orders an agent to end its tasks and to leave, and waits for it.
    pub fn leave(mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGUSR1); // It may have ended before.
        }
        let _ = self.0.wait();
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(mut self) {
        let _ = self.0.kill(); // It may have ended before.
        let _ = self.0.wait();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // After a wait, another process may have the pid.
        if matches!(self.0.try_wait(), Ok(None))
            && let Ok(pid) = i32::try_from(self.0.id())
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM); // It may just have ended.
            let _ = self.0.wait();
        }
    }
}

/// A part. Dropping it ends the process.
pub struct Part {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    answers: UnboundedReceiver<String>,
    /// Its first line.
    pub first: Value,
}

impl Part {
    /// Starts the hidden verb `meros-lab bench VERB ARGUMENTS` with the certificates of this
    /// directory, and waits until it is ready.
    pub async fn start(
        verb: &'static str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Result<Self> {
        Self::spawn(Command::new(own_program()?), verb, arguments, certs).await
    }

    /// The same at the lowest priority, for a part that stands for other machines: it gets the CPU
    /// time that the measured processes leave.
    pub async fn start_behind(
        verb: &'static str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Result<Self> {
        let mut program = Command::new("nice");
        program.args(["-n", "19"]).arg(own_program()?);
        Self::spawn(program, verb, arguments, certs).await
    }

    async fn spawn(
        mut command: Command,
        name: &'static str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Result<Self> {
        command.args(["--log", "warn", "bench", name]);
        for (flag, value) in arguments {
            command.arg(flag).arg(value);
        }
        command.env("MEROS_CERTS", certs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("no standard output")?;
        let mut part = Self {
            name,
            input: child.stdin.take(),
            child,
            answers: lines(BufReader::new(output)),
            first: Value::Null,
        };
        part.first = part.reply().await?;
        Ok(part)
    }

    /// Requests the part's action and returns its reply.
    pub async fn ask(&mut self) -> Result<Value> {
        let input = self.input.as_mut().ok_or("no standard input")?;
        input.write_all(b"\n")?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Value> {
        let line = Clock::real().timeout(PATIENCE, self.answers.recv()).await?;
        let line = line.ok_or_else(|| format!("the part {} has ended", self.name))?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Its present usage.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill(); // It may have ended before.
        let _ = self.child.wait();
    }
}

/// Lines, read by a separate thread until the receiver is dropped.
fn lines(from: impl BufRead + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        let mut lines = from.lines().map_while(std::result::Result::ok);
        lines.all(|line| sender.send(line).is_ok());
    });
    receiver
}

/// For the part itself: the lines of standard input.
pub fn input() -> UnboundedReceiver<String> {
    lines(BufReader::new(std::io::stdin()))
}

/// Sequential launches of `/bin/true` per second in a plain loop on this machine.
pub fn bare_launches(count: u32) -> Result<f64> {
    let clock = Clock::real();
    let begun = clock.now();
    for _ in 0..count.max(1) {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status()?;
        if !status.success() {
            return Err(format!("/bin/true ended with {status}").into());
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
        assert!(Usage::of(std::process::id()).unwrap().anonymous > 0.0);
        assert!(own_resident() > 0.0);
    }
}
