//! Features of the machine that a test may lack: own network and mounts, full disks, system call
//! tracing.
//!
//! A test without them prints one line and skips. All of it ends with the last process that uses
//! it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::in_time::InTime;
use crate::support::{Running, eventually};

/// Set in the process that runs a test in its own namespaces.
const INSIDE: &str = "MEROS_TEST_INSIDE";

/// Prints the reason why a test is skipped.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// Runs this test, by its path, in a process with its own network, mounts and process ids; returns
/// true inside of it.
///
/// Outside it returns false after the test was run or skipped. The kernel kills all processes that
/// it started.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        must("ip link set lo up");
        return true;
    }
    let apart = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    // Without root, a user namespace permits them on some machines.
    let ways: [&[&str]; 2] = [&[], &["--map-root-user"]];
    let may = |way: &&&[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(apart)
            .args(**way)
            .args(["ip", "link", "set", "lo", "up"]);
        succeeds(&mut command)
    };
    let Some(way) = ways.iter().find(may) else {
        skip("this machine does not let us have a network and mounts of our own");
        return false;
    };
    let status = Command::new("unshare")
        .args(apart)
        .args(*way)
        .arg(std::env::current_exe().expect("a test knows its program"))
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status_in_time();
    let status = status.expect("unshare runs");
    assert!(status.success(), "in a place of its own: {status}");
    false
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status_in_time().is_ok_and(|status| status.success())
}

/// Runs a command line without quoting; panics if it fails.
fn must(line: &str) {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output_in_time();
    let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
}

/// Machines on one bridge, each a network namespace: `10.77.0.1` and so on; the test has
/// `10.77.0.254`. Only for use [`inside`].
pub struct Net {
    /// Each keeps a namespace open.
    machines: Vec<Running>,
}

impl Net {
    /// Creates `count` machines.
    pub fn of(count: usize) -> Self {
        must("ip link add hub type bridge");
        must("ip addr add 10.77.0.254/24 dev hub");
        must("ip link set hub up");
        let machines = (1..=count).map(|number| {
            let holder =
                Running::start(Command::new("unshare").args(["--net", "sleep", "infinity"]));
            let pid = holder.id();
            let ours = std::fs::read_link("/proc/self/ns/net").ok();
            eventually("a network namespace", || {
                let its = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
                (its.is_some() && its != ours).then_some(())
            });
            must(&format!(
                "ip link add port{number} type veth peer name eth0 netns {pid}"
            ));
            must(&format!("ip link set port{number} master hub up"));
            let there = format!("nsenter --target {pid} --net ip");
            must(&format!("{there} link set lo up"));
            must(&format!("{there} addr add 10.77.0.{number}/24 dev eth0"));
            must(&format!("{there} link set eth0 up"));
            holder
        });
        Self {
            machines: machines.collect(),
        }
    }

    /// The address of a machine.
    pub fn ip(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    /// Processes in the machines' namespaces, see [`on`].
    pub fn holders(&self) -> Vec<u32> {
        self.machines.iter().map(Running::id).collect()
    }

    /// Starts or stops dropping packets from `from` to `to`; the other direction is not affected.
    pub fn drop_packets(&self, from: usize, to: usize, lost: bool) {
        let verb = if lost { "add" } else { "del" };
        let (pid, to) = (self.machines[from].id(), Self::ip(to));
        must(&format!(
            "nsenter --target {pid} --net ip route {verb} blackhole {to}/32"
        ));
    }

    /// Disconnects or reconnects a machine.
    pub fn unplug(&self, index: usize, pulled: bool) {
        let state = if pulled { "down" } else { "up" };
        must(&format!("ip link set port{} {state}", index + 1));
    }
}

/// The same command in the network namespace of this process.
pub fn on(holder: u32, command: &Command) -> Command {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &holder.to_string(), "--net"]);
    prefixed(nsenter, command)
}

/// `first`, with this command as its last arguments.
fn prefixed(mut first: Command, command: &Command) -> Command {
    first.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first.stdin(Stdio::null());
    first
}

/// A file system of a few megabytes, unmounted at the end.
pub struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts `megabytes` MB on a temporary directory; `None` where the machine does not permit it.
    pub fn mount(megabytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = format!("size={megabytes}m,nr_inodes=200");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "none"]);
        let mounted = succeeds(command.arg(directory.path()));
        mounted.then_some(Self { directory })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves no byte and no inode free.
    pub fn fill(&self) {
        if let Ok(mut filler) = std::fs::File::create(self.path().join("filler")) {
            // Each loop ends when the disk is full.
            while filler.write_all(&[0; 64 << 10]).is_ok() {}
            while filler.write_all(&[0]).is_ok() {}
        }
        for number in 0..200 {
            let _ = std::fs::write(self.path().join(format!("filler-{number}")), b"");
        }
    }

    /// Deletes the filler files.
    pub fn clear(&self) {
        let entries = std::fs::read_dir(self.path()).into_iter().flatten();
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.directory.path())
            .status_in_time();
    }
}

/// Whether this machine permits tracing our processes.
pub fn can_trace() -> bool {
    succeeds(&mut traced(
        &Command::new("true"),
        "fsync",
        Path::new("/dev/null"),
    ))
}

/// The same command, with these system calls and their times written to `file`.
pub fn traced(command: &Command, calls: &str, file: &Path) -> Command {
    // strace runs as a grandchild (`-D`), so signals and exit codes are the command's own.
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "--seccomp-bpf", "-qq", "-ttt", "-e"]);
    strace.arg(format!("trace={calls}")).arg("-o").arg(file);
    prefixed(strace, command)
}

/// Makes every sync of a running process hang until this is dropped.
pub struct HungDisk(#[expect(dead_code, reason = "it lets go when it is dropped")] Running);

impl HungDisk {
    /// Attaches to this process; `None` if this machine does not permit tracing it.
    pub fn of(pid: u32) -> Option<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()]);
        strace.args(["-e", "trace=fsync,fdatasync"]);
        // Longer than any test.
        strace.args(["-e", "inject=fsync,fdatasync:delay_enter=3600s"]);
        let mut strace = Running::start(&mut strace);
        let is_looked_at = eventually("each of its threads to be looked at", || {
            if !strace.is_running() {
                return Some(false);
            }
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let mut status = threads
                .flatten()
                .map(|thread| std::fs::read_to_string(thread.path().join("status")));
            let looked_at = |status: std::io::Result<String>| {
                status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
            };
            status.all(looked_at).then_some(true)
        });
        is_looked_at.then_some(Self(strace))
    }
}

/// The times of successful calls in this trace, in seconds since 1970.
pub fn times(file: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let done = text.lines().filter(|line| line.trim_end().ends_with("= 0"));
    let time = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
    done.filter_map(time).collect()
}
