//! `meros-lab bench containers`: isolated containers, compared with container runtimes.
//!
//! A lone container runs `true` of busybox in a root file system of its own, with its own process
//! and IPC namespaces, mounts, and control groups for CPU, memory and processes. The peers run the
//! same root file system with the same separation; they have neither scheduler nor master in front
//! of them. Many containers of `sleep` share the host's file system. Their agent is killed, and
//! started again. Master and agent are real processes.
//!
//! | module | contents |
//! |---|---|
//! | `bundle` | root file systems with busybox, and images of them |
//! | `cluster` | a master and an agent in processes of their own |
//! | `corrections` | `bench corrections`: the time until a QoS controller acts |
//! | `images` | `bench images`: the pull of an image, beside `skopeo` and `umoci` |
//! | `isolation` | `bench isolation`: a server beside best-effort work |
//! | `oversubscription` | `bench oversubscription`: the use of idle CPUs, and its price |
//! | `server` | a server in a container, whose latency is measured |

mod bundle;
mod cluster;
pub mod corrections;
pub mod images;
pub mod isolation;
pub mod oversubscription;
pub mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use protocol::{TaskId, TaskState};
use serde_json::{Value, json};

use self::cluster::Cluster;
use super::client::Connection;
use super::launch::{Launches, TaskTimes};
use super::{Figure, OutputFlags, Result, cores, median, ms_since, quantile, temporary};

/// The isolators of each container.
const ISOLATORS: &str =
    "cgroups/cpu,cgroups/mem,cgroups/pids,namespaces/pid,namespaces/ipc,filesystem/linux";
/// The image of the lone containers.
const IMAGE: &str = "busybox";
/// The same for a peer.
const BUNDLE: &str = r#"{"ociVersion":"1.0.0",
"process":{"user":{"uid":0,"gid":0},"args":["/bin/true"],"env":["PATH=/bin"],"cwd":"/"},
"root":{"path":"rootfs"},"mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
"linux":{"resources":{"memory":{"limit":67108864},"cpu":{"shares":204}},
"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"mount"}]}}"#;
const PEERS: [&str; 2] = ["crun", "runc"];
/// Prints the begin and the end in seconds of each of `$2` containers of `$1`. Their bundle is `$3`.
const PEER_LOOP: &str = r#"
umount /sys/fs/cgroup/unified 2>/dev/null
for number in $(seq "$2"); do
    begin=$EPOCHREALTIME
    "$1" run -b "$3" "meros-bench-$$-$number" </dev/null >"$3/said" 2>&1 ||
        { cat "$3/said" >&2; exit 1; }
    echo "$begin $EPOCHREALTIME"
done"#;

/// Turns of the lone containers and their peers.
const ROUNDS: u32 = 5;
/// How often the page of usage is read, at once and then once a second.
const PASSES: usize = 5;
const IDLE_SECONDS: u32 = 10;
/// Goals for 1,000 containers on 2 cores.
const START_MAX: f64 = 6000.0;
const DESTROY_MAX: f64 = 4000.0;
const MEMORY_MAX: f64 = 60.0;
const PASS_MAX: f64 = 40.0;
const IDLE_MAX: f64 = 2.0;
const RESTART_MAX: f64 = 1000.0;

/// Cost of isolated containers
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ContainersArgs {
    /// How many containers one after the other, and of each peer
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lone: u32,
    /// How many containers at once
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    many: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench containers`. Needs root, and `/bin/busybox` without libraries.
pub async fn run(args: &ContainersArgs) -> Result {
    let directory = temporary()?;
    let rootfs = directory.path().join("rootfs");
    bundle::make_root(&rootfs)?;
    std::fs::write(directory.path().join("config.json"), BUNDLE)?;
    let registry = directory.path().join("registry");
    std::fs::create_dir(&registry)?;
    let layers = [rootfs.as_path()];
    bundle::make_archive(&layers, IMAGE, &registry.join(format!("{IMAGE}.tar")))?;
    // One task more than needed, so that the rounding of resources does not matter.
    let (cpus, mem) = (f64::from(args.many + 1) * 0.01, args.many + 1);
    let flags = [
        ("isolation", ISOLATORS.to_owned()),
        ("image_providers", "docker".to_owned()),
        (
            "docker_registry",
            directory.path().join("registry").display().to_string(),
        ),
        (
            "resources",
            format!("cpus:{cpus};mem:{mem};disk:1000;ports:[31000-32000]"),
        ),
    ];
    let mut cluster = Cluster::start(directory.path(), &flags).await?;
    let lone = lone(&cluster, args, directory.path()).await?;
    let many = many(&mut cluster, args).await?;
    args.output.report(&[lone, many].concat());
    Ok(())
}

/// One container after the other, in turns with the peers.
async fn lone(cluster: &Cluster, args: &ContainersArgs, bundle: &Path) -> Result<Vec<Figure>> {
    let mut peers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for program in PEERS {
        match peer(program, bundle, 1) {
            Ok(_) => _ = peers.insert(program, Vec::new()),
            Err(reason) => args
                .output
                .say(format_args!("skipped: {program}: {reason}")),
        }
    }
    // The first container waits for its image.
    lone_times(cluster, "first", 1).await?;
    let each = args.lone.div_ceil(ROUNDS);
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let output = args.output;
        output.say(format_args!("lone containers: round {round} of {ROUNDS}"));
        times.extend(lone_times(cluster, "lone", each).await?);
        for (program, times) in &mut peers {
            times.extend(peer(program, bundle, each)?);
        }
    }
    let whole = |times: &TaskTimes| Some((times.ended? - times.accepted()).as_secs_f64() * 1e3);
    let milliseconds = |of: &dyn Fn(&TaskTimes) -> Option<f64>| -> Vec<f64> {
        times.iter().filter_map(of).collect()
    };
    let (whole, running) = (milliseconds(&whole), milliseconds(&TaskTimes::start));
    let limit = peers.first_key_value();
    let (limit, limit_is) = match limit {
        Some((&"crun", times)) => (median(times), "crun run, p50"),
        Some((_, times)) => (median(times), "runc run, p50"),
        None => (0.0, "none: no peer runs here"),
    };
    let peers: serde_json::Map<String, Value> = { peers.iter() }
        .map(|(program, times)| (format!("{program}_ms"), json!(median(times))))
        .collect();
    let phases = launch_phases(cluster).await?;
    let figure = |name, of: &[f64]| {
        let conditions = json!({
            "isolators": ISOLATORS, "command": "/bin/true", "peers": peers, "cores": cores(),
            "p99_ms": quantile(of, 0.99), "agent_phases": phases,
        });
        let figure = Figure::new(name, median(of), "ms").with(conditions);
        figure.beside(limit, limit_is)
    };
    Ok(vec![
        figure("container", &whole),
        figure("container_running", &running),
    ])
}

/// The agent's own times of the phases of launches, in milliseconds. What is left of a start are
/// messages between framework, master and agent.
async fn launch_phases(cluster: &Cluster) -> Result<serde_json::Map<String, Value>> {
    let mut page = Connection::open(&cluster.agent_at).await?;
    let all: serde_json::Map<String, Value> =
        serde_json::from_slice(&page.get("/metrics/snapshot").await?)?;
    let phase = |(name, value): (String, Value)| {
        let name = name.strip_prefix("containerizer/launch/")?;
        let is_wanted = name.ends_with("/p50") || name.ends_with("/p99");
        is_wanted.then(|| (name.to_owned(), value))
    };
    Ok(all.into_iter().filter_map(phase).collect())
}

async fn lone_times(cluster: &Cluster, name: &'static str, count: u32) -> Result<Vec<TaskTimes>> {
    let (driver, following) =
        cluster.begin(Launches::new(name, count, 1, false)?.in_image(IMAGE))?;
    let times = following.end(&cluster.clock).await;
    let _ = driver.tear_down(); // It may have ended already.
    driver.ended().await;
    times
}

/// Containers of `sleep`, all at once.
async fn many(cluster: &mut Cluster, args: &ContainersArgs) -> Result<Vec<Figure>> {
    let (many, output) = (args.many, args.output);
    output.say(format_args!("{many} containers at once"));
    let launches = Launches::new("sleep", many, many, false)?.sleeping();
    let (driver, mut following) = cluster.begin(launches)?;
    let started = following.all(TaskState::Running, &cluster.clock).await?;

    output.say("the usage of all");
    let mut page = Connection::open(&cluster.agent_at).await?;
    let mut passes = Vec::new();
    for _ in 0..PASSES {
        let begun = cluster.clock.now();
        let usage: Value = serde_json::from_slice(&page.get("/monitor/statistics").await?)?;
        passes.push(ms_since(&cluster.clock, begun));
        let measured = usage.as_array().map_or(0, Vec::len);
        if measured != many as usize {
            return Err(format!("the usage of {measured} of {many} containers").into());
        }
    }
    let resident = cluster.agent()?.resident()?;
    output.say("one usage pass each second");
    let (begun, before) = (cluster.clock.now(), cluster.agent()?.own_cpu()?);
    for _ in 0..IDLE_SECONDS {
        cluster.clock.sleep(Duration::from_secs(1)).await;
        page.get("/monitor/statistics").await?;
    }
    let cpu = cluster.agent()?.own_cpu()? - before;
    let busy = cpu / (cluster.clock.now() - begun).as_secs_f64();

    output.say("another agent process");
    cluster.kill_agent().await?;
    let begun = cluster.clock.now();
    cluster.start_agent().await?;
    let restart = ms_since(&cluster.clock, begun);

    output.say("the end of all");
    let begun = cluster.clock.now();
    for number in 1..=many {
        driver.kill(TaskId::new(format!("sleep.{number}"))?, None)?;
    }
    following.all(TaskState::Killed, &cluster.clock).await?;
    let destroyed = ms_since(&cluster.clock, begun);
    let _ = driver.tear_down(); // It may have ended already.
    driver.ended().await;

    let conditions = json!({ "containers": many, "isolators": ISOLATORS, "cores": cores() });
    let figure = |name, value, unit, most| {
        let figure = Figure::new(name, value, unit).with(conditions.clone());
        figure.beside(most, "the most it may be, with 1,000")
    };
    Ok(vec![
        figure(
            "containers_start",
            started.as_secs_f64() * 1e3,
            "ms",
            START_MAX,
        ),
        figure("containers_destroy", destroyed, "ms", DESTROY_MAX),
        figure("containers_memory", resident, "MiB", MEMORY_MAX),
        // With the page's own work.
        figure("containers_usage", median(&passes), "ms", PASS_MAX),
        figure("containers_idle", busy * 100.0, "% of a core", IDLE_MAX),
        figure("containers_restart", restart, "ms", RESTART_MAX),
    ])
}

/// Runs containers of a peer one after the other. Returns their times in milliseconds.
///
/// Crun refuses a host with control groups of both versions, so it does not see the unified ones.
fn peer(program: &str, bundle: &Path, count: u32) -> Result<Vec<f64>> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", PEER_LOOP, program]);
    command.args([program, &count.to_string()]).arg(bundle);
    let ran = command.output()?;
    let (said, failed) = (
        String::from_utf8(ran.stdout)?,
        String::from_utf8(ran.stderr)?,
    );
    if !ran.status.success() {
        return Err(failed.trim().into());
    }
    let milliseconds = |line: &str| {
        let (begin, end) = line.split_once(' ')?;
        Some((end.parse::<f64>().ok()? - begin.parse::<f64>().ok()?) * 1e3)
    };
    let each: Option<Vec<f64>> = said.lines().map(milliseconds).collect();
    Ok(each.ok_or_else(|| format!("{program}: no times: {said}"))?)
}
