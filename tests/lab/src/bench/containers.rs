//! `meros-lab bench containers`: isolated containers on an embedded cluster, compared with a
//! container runtime.
//!
//! A container has its own process and IPC namespaces, mounts, and control groups for CPU, memory
//! and processes. It shares the host's file system, while that of the peer has a root of its own
//! with busybox. The peer has neither scheduler nor master in front of it.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use meros::flags::Threads;
use meros::service::isolation::Isolation;
use meros::service::local::LocalCluster;
use runtime::{Clock, Instant};
use serde_json::json;

use super::launch::{Launches, TaskTimes, cluster_for, measure, rate};
use super::{Figure, OutputFlags, Result, cores, median, ms_since, temporary};

/// The isolators of each container.
const ISOLATORS: [&str; 5] = [
    "cgroups/cpu",
    "cgroups/mem",
    "cgroups/pids",
    "namespaces/pid",
    "namespaces/ipc",
];
/// The configuration of the peer's bundle.
const BUNDLE: &str = r#"{"ociVersion":"1.0.0",
"process":{"user":{"uid":0,"gid":0},"args":["/bin/true"],"env":["PATH=/bin"],"cwd":"/"},
"root":{"path":"rootfs"},"mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
"linux":{"resources":{"memory":{"limit":67108864},"cpu":{"shares":204}},
"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"mount"}]}}"#;

/// Cost of isolated containers
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ContainersArgs {
    /// How many containers one after the other, and of the peer
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lone: u32,
    /// How many containers side by side
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    many: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench containers`. Needs root.
pub async fn run(args: &ContainersArgs) -> Result {
    let (output, clock) = (args.output, Clock::real());
    let peer = peer(args.lone, &clock)?;
    output.say("an embedded cluster starts");
    let width = args.many.min(256);
    let (directory, mut options) = cluster_for(width, Threads::default())?;
    let root = format!("meros-bench-{}", std::process::id());
    options.isolation = Isolation::of(&ISOLATORS, &root);
    let cluster = LocalCluster::start(options).await?;
    output.say(format_args!("{} lone containers", args.lone));
    let lone = Launches::new("lone", args.lone, 1, false)?;
    let lone = measure(&cluster, lone, &clock).await?;
    output.say(format_args!(
        "{} containers, {width} side by side",
        args.many
    ));
    let many = Launches::new("many", args.many, width, false)?;
    let many = measure(&cluster, many, &clock).await?;
    cluster.stop()?;
    drop(directory);
    remove_groups(&root);
    let whole = |times: &TaskTimes| Some((times.ended? - times.accepted()).as_secs_f64() * 1e3);
    let conditions = json!({ "isolators": ISOLATORS, "command": "/bin/true", "cores": cores() });
    let (limit, limit_is) = peer.unwrap_or((0.0, "none: neither crun nor runc runs here"));
    output.report(&[
        Figure::new("container", middle(&lone, whole), "ms")
            .beside(limit, limit_is)
            .with(conditions.clone()),
        Figure::new("container_running", middle(&lone, TaskTimes::start), "ms")
            .beside(limit, limit_is)
            .with(conditions.clone()),
        Figure::new("containers", rate(&many), "containers/s").with(conditions),
    ]);
    Ok(())
}

fn middle(times: &[TaskTimes], of: impl Fn(&TaskTimes) -> Option<f64>) -> f64 {
    median(&times.iter().filter_map(of).collect::<Vec<_>>())
}

/// The median time of a peer's container, in milliseconds, with its description.
fn peer(count: u32, clock: &Clock) -> Result<Option<(f64, &'static str)>> {
    let bundle = temporary()?;
    let bin = bundle.path().join("rootfs/bin");
    std::fs::create_dir_all(&bin)?;
    std::fs::create_dir(bundle.path().join("rootfs/proc"))?;
    if std::fs::copy("/bin/busybox", bin.join("busybox")).is_err() {
        return Ok(None);
    }
    std::os::unix::fs::symlink("busybox", bin.join("true"))?;
    std::fs::write(bundle.path().join("config.json"), BUNDLE)?;
    for (program, is) in [("crun", "crun run"), ("runc", "runc run")] {
        // It may be missing, or not know this host's control groups.
        if !run_peer(program, bundle.path(), "first") {
            continue;
        }
        let one = |number: u32| {
            let begun: Instant = clock.now();
            let ran = run_peer(program, bundle.path(), &number.to_string());
            ran.then(|| ms_since(clock, begun))
        };
        let times: Vec<f64> = (0..count).filter_map(one).collect();
        return Ok(Some((median(&times), is)));
    }
    Ok(None)
}

fn run_peer(program: &str, bundle: &Path, id: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["run", "-b"]).arg(bundle);
    command.arg(format!("meros-bench-{}-{id}", std::process::id()));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Removes the empty groups of this measurement.
fn remove_groups(root: &str) {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let groups = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (mount, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup")
            .then(|| Path::new(mount).join(root))
    });
    for group in groups {
        let _ = std::fs::remove_dir(group); // Not every hierarchy is used.
    }
}
