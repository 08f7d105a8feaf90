//! Deaths and full disks: each ends in a clear state and message, the cluster stays usable, no process is left behind.

use std::process::Stdio;

use crate::support::{Cluster, Running, eventually, signal, sleepers, stderr, stdout};

#[test]
fn killing_an_executor_fails_its_task_and_leaves_no_process() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--",
        "sh",
        "-c",
        "setsid sleep 98711 & sleep 98711",
    ]));
    let task = eventually("the task to run", || sleepers(98711).first().copied());
    signal(executor_of(task), "KILL");
    assert!(!run.wait().success());
    eventually("its processes to be gone", || {
        sleepers(98711).is_empty().then_some(())
    });
    assert!(
        cluster.output(["run", "--", "true"]).status.success(),
        "the cluster stays usable"
    );
}

/// The session that a process was born into is its executor's; a process that left it is looked up through its parents.
fn executor_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let after_name = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest)
        .expect("a stat line");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let (parent, session): (u32, u32) = (
        fields[1].parse().expect("a pid"),
        fields[3].parse().expect("a session"),
    );
    if session == pid {
        executor_of(parent)
    } else {
        session
    }
}

#[test]
fn killing_an_agent_leaves_no_task_process() {
    let (mut cluster, agent) = separate_agent("cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--",
        "sh",
        "-c",
        "setsid sleep 98712 & sleep 98712",
    ]));
    eventually("the task to run", || {
        (sleepers(98712).len() >= 2).then_some(())
    });
    agent.signal("KILL");
    eventually("the task's processes to be gone", || {
        sleepers(98712).is_empty().then_some(())
    });
    assert!(
        cluster.is_running() && run.is_running(),
        "the master waits for the ping timeout before it tells"
    );
    run.signal("KILL");
    run.wait();
}

#[test]
fn two_agents_cannot_share_a_work_directory() {
    let (cluster, _agent) = separate_agent("cpus:1;mem:64");
    let mut second = cluster.agent_command("separate", "cpus:1;mem:64");
    let output = second
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .expect("meros runs");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
}

#[test]
fn a_full_disk_at_the_sandbox_fails_the_task_and_nothing_else() {
    // /dev/full gives ENOSPC to whoever writes; a sandbox on a file system without room needs a mount of its own.
    let Some(small) = SmallDisk::mount() else {
        eprintln!("skipped: this machine does not let us mount a tmpfs");
        return;
    };
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let directory = small.path().join("agent");
    let directory = directory.to_str().expect("a plain path");
    let _agent = cluster.agent(directory, "cpus(full):1;mem(full):64");
    small.fill();
    let output = cluster.output([
        "run",
        "--role",
        "full",
        "--resources",
        "cpus:1;mem:64",
        "--",
        "true",
    ]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("No space left"),
        "{}",
        stderr(&output)
    );
    assert!(
        cluster.output(["run", "--", "true"]).status.success(),
        "the cluster stays usable"
    );
}

/// A cluster with one agent, in a process of its own.
fn separate_agent(resources: &str) -> (Cluster, Running) {
    let cluster = Cluster::with(0, &[]);
    let agent = cluster.agent("separate", resources);
    (cluster, agent)
}

/// A file system of two megabytes, unmounted at the end.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,nr_inodes=200", "none"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self { directory })
    }

    fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Leaves no byte and no inode free.
    fn fill(&self) {
        let _ = std::fs::write(self.path().join("filler"), vec![0; 4 << 20]);
        for number in 0..200 {
            let _ = std::fs::write(self.path().join(format!("filler-{number}")), b"");
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.directory.path())
            .status();
    }
}
