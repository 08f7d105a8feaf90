//! `meros-lab bench containers`: isolated containers, compared with container runtimes.
//!
//! A lone container runs `true` of busybox in a root file system of its own, with its own process
//! and IPC namespaces, mounts, and control groups for CPU, memory and processes. The peers run the
//! same root file system with the same separation; they have neither scheduler nor master in front
//! of them. Many containers of `sleep` share the host's file system. Their agent is killed, and
//! started again. Master and agent are real processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::images::digest::Digest;
use clap::Args;
use meros::certs::save_client_identities;
use meros::operator::Operator;
use meros::service::free_port;
use protocol::{TaskId, TaskState};
use runtime::{Clock, Role};
use serde_json::{Value, json};
use transport::Authority;

use super::client::Connection;
use super::launch::{Launches, TaskTimes, begin};
use super::process::ServiceProcess;
use super::{Figure, OutputFlags, Result, cores, median, ms_since, temporary};

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

/// Timeout for registrations.
const UP_PATIENCE: Duration = Duration::from_secs(120);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often the page of usage is read.
const PASSES: usize = 5;
/// Goals for 1,000 containers on 2 cores.
const START_MAX: f64 = 6000.0;
const DESTROY_MAX: f64 = 4000.0;
const MEMORY_MAX: f64 = 60.0;
const PASS_MAX: f64 = 40.0;
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
    let output = args.output;
    let directory = temporary()?;
    make_bundle(directory.path())?;
    let mut peers = Vec::new();
    for program in PEERS {
        output.say(format_args!("{} containers of {program}", args.lone));
        match peer(program, directory.path(), args.lone) {
            Ok(time) => peers.push((program, time)),
            Err(reason) => output.say(format_args!("skipped: {program}: {reason}")),
        }
    }
    let mut cluster = Cluster::start(directory.path(), args.many).await?;
    let lone = cluster.lone(args, &peers).await;
    let many = cluster.many(args).await;
    let root = cluster.root.clone();
    drop(cluster);
    remove_groups(&root);
    output.report(&[lone?, many?].concat());
    Ok(())
}

/// A master and an agent in processes of their own.
struct Cluster {
    clock: Clock,
    authority: Authority,
    directory: PathBuf,
    master_at: String,
    agent_at: String,
    agent_flags: Vec<String>,
    /// The control group of the agent's containers.
    root: String,
    operator: Operator,
    /// `None` only between two processes.
    agent: Option<ServiceProcess>,
    _master: ServiceProcess,
}

impl Cluster {
    async fn start(directory: &Path, width: u32) -> Result<Self> {
        let certs = directory.join("certs");
        let authority = Authority::load_or_create(&certs)?;
        save_client_identities(&authority, &certs)?;
        let address = || free_port().map(|port| format!("127.0.0.1:{port}"));
        let (master_at, agent_at) = (address()?, address()?);
        let interval = "--allocation_interval=5ms";
        let master = ServiceProcess::start("master", &master_at, directory, &[interval])?;
        let root = format!("meros-bench-{}", std::process::id());
        // One task more than needed, so that the rounding of resources does not matter.
        let (cpus, mem) = (f64::from(width + 1) * 0.01, width + 1);
        let flags = [
            ("master", master_at.clone()),
            ("isolation", ISOLATORS.to_owned()),
            ("cgroups_root", root.clone()),
            ("image_providers", "docker".to_owned()),
            (
                "docker_registry",
                directory.join("registry").display().to_string(),
            ),
            (
                "resources",
                format!("cpus:{cpus};mem:{mem};disk:1000;ports:[31000-32000]"),
            ),
            // Containers of a failed measurement end.
            ("recovery_timeout", "1mins".to_owned()),
        ];
        let operator = authority.issue(Role::Operator, "bench")?;
        let mut cluster = Self {
            clock: Clock::real(),
            operator: Operator::with(&operator, &master_at).await?,
            authority,
            directory: directory.to_owned(),
            master_at,
            agent_at,
            agent_flags: flags
                .map(|(name, value)| format!("--{name}={value}"))
                .into(),
            root,
            agent: None,
            _master: master,
        };
        cluster.start_agent()?;
        cluster.agent_is(true).await?;
        Ok(cluster)
    }

    fn start_agent(&mut self) -> Result {
        let flags: Vec<&str> = self.agent_flags.iter().map(String::as_str).collect();
        let agent = ServiceProcess::start("agent", &self.agent_at, &self.directory, &flags)?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Waits until the agent is registered and connected, or not.
    async fn agent_is(&self, active: bool) -> Result {
        let waiting = async {
            while self
                .operator
                .view()
                .await?
                .agents
                .iter()
                .any(|one| one.active)
                != active
            {
                self.clock.sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        self.clock.timeout(UP_PATIENCE, waiting).await?
    }

    /// One container after the other.
    async fn lone(
        &self,
        args: &ContainersArgs,
        peers: &[(&'static str, f64)],
    ) -> Result<Vec<Figure>> {
        // The first container waits for its image.
        self.lone_times("first", 1).await?;
        args.output
            .say(format_args!("{} lone containers", args.lone));
        let times = self.lone_times("lone", args.lone).await?;
        let whole = |times: &TaskTimes| Some((times.ended? - times.accepted()).as_secs_f64() * 1e3);
        let middle = |of: &dyn Fn(&TaskTimes) -> Option<f64>| {
            median(&times.iter().filter_map(of).collect::<Vec<_>>())
        };
        let all: serde_json::Map<String, Value> = { peers.iter() }
            .map(|(program, time)| (format!("{program}_ms"), json!(time)))
            .collect();
        let conditions = json!({ "isolators": ISOLATORS, "command": "/bin/true", "peers": all, "cores": cores() });
        let (limit, limit_is) = match peers.first() {
            Some(("crun", time)) => (*time, "crun run, p50"),
            Some((_, time)) => (*time, "runc run, p50"),
            None => (0.0, "none: no peer runs here"),
        };
        let figure = |name, value| {
            let figure = Figure::new(name, value, "ms").beside(limit, limit_is);
            figure.with(conditions.clone())
        };
        Ok(vec![
            figure("container", middle(&whole)),
            figure("container_running", middle(&TaskTimes::start)),
        ])
    }

    async fn lone_times(&self, name: &'static str, count: u32) -> Result<Vec<TaskTimes>> {
        let mut launches = Launches::new(name, count, 1, false)?.in_image(IMAGE);
        let following = launches.follow();
        let identity = self.authority.issue(Role::Framework, name)?;
        let driver = begin(&self.master_at, &identity, launches, &self.clock)?;
        let times = following.end(&self.clock).await;
        let _ = driver.tear_down(); // It may have ended already.
        driver.ended().await;
        times
    }

    /// Containers of `sleep`, all at once.
    async fn many(&mut self, args: &ContainersArgs) -> Result<Vec<Figure>> {
        let (many, output) = (args.many, args.output);
        output.say(format_args!("{many} containers at once"));
        let mut launches = Launches::new("sleep", many, many, false)?.sleeping();
        let mut following = launches.follow();
        let identity = self.authority.issue(Role::Framework, "sleep")?;
        let driver = begin(&self.master_at, &identity, launches, &self.clock)?;
        let started = following.all(TaskState::Running, &self.clock).await?;

        output.say("the usage of all");
        let mut page = Connection::open(&self.agent_at).await?;
        let mut passes = Vec::new();
        for _ in 0..PASSES {
            let begun = self.clock.now();
            let usage: Value = serde_json::from_slice(&page.get("/monitor/statistics").await?)?;
            passes.push(ms_since(&self.clock, begun));
            let measured = usage.as_array().map_or(0, Vec::len);
            if measured != many as usize {
                return Err(format!("the usage of {measured} of {many} containers").into());
            }
        }
        let agent = self.agent.take().ok_or("no agent")?;
        let resident = agent.resident()?;

        output.say("another agent process");
        agent.kill();
        self.agent_is(false).await?;
        let begun = self.clock.now();
        self.start_agent()?;
        self.agent_is(true).await?;
        let restart = ms_since(&self.clock, begun);

        output.say("the end of all");
        let begun = self.clock.now();
        for number in 1..=many {
            driver.kill(TaskId::new(format!("sleep.{number}"))?, None)?;
        }
        following.all(TaskState::Killed, &self.clock).await?;
        let destroyed = ms_since(&self.clock, begun);
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
            figure("containers_restart", restart, "ms", RESTART_MAX),
        ])
    }
}

/// Makes a root file system of busybox, as the bundle of a runtime in this directory, and as an
/// image in its `registry`.
fn make_bundle(directory: &Path) -> Result {
    let rootfs = directory.join("rootfs");
    std::fs::create_dir_all(rootfs.join("bin"))?;
    std::fs::create_dir(rootfs.join("proc"))?;
    std::fs::copy("/bin/busybox", rootfs.join("bin/busybox"))?;
    std::os::unix::fs::symlink("busybox", rootfs.join("bin/true"))?;
    std::fs::write(directory.join("config.json"), BUNDLE)?;
    let image = directory.join("image");
    std::fs::create_dir(&image)?;
    tar(&image.join("layer.tar"), &rootfs, &["."])?;
    let digest = Digest::of(&std::fs::read(image.join("layer.tar"))?);
    let config = json!({
        "architecture": "any", "os": "linux", "config": { "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [digest.to_string()] },
    });
    std::fs::write(image.join("config.json"), config.to_string())?;
    let manifest = json!([{
        "Config": "config.json", "RepoTags": [format!("{IMAGE}:latest")], "Layers": ["layer.tar"],
    }]);
    std::fs::write(image.join("manifest.json"), manifest.to_string())?;
    let registry = directory.join("registry");
    std::fs::create_dir(&registry)?;
    let parts = ["manifest.json", "config.json", "layer.tar"];
    tar(&registry.join(format!("{IMAGE}.tar")), &image, &parts)
}

fn tar(archive: &Path, directory: &Path, names: &[&str]) -> Result {
    let mut command = Command::new("tar");
    command.arg("-C").arg(directory).arg("-cf").arg(archive);
    let status = command.args(names).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("tar: {status}").into()),
    }
}

/// The median time of a peer's container in milliseconds.
fn peer(program: &str, bundle: &Path, count: u32) -> Result<f64> {
    let clock = Clock::real();
    let run = |number: u32| {
        let begun = clock.now();
        let mut command = Command::new(program);
        command.args(["run", "-b"]).arg(bundle);
        command.arg(format!("meros-bench-{}-{number}", std::process::id()));
        let ran = command.stdin(Stdio::null()).output()?;
        match ran.status.success() {
            true => Ok(ms_since(&clock, begun)),
            // It may not know this host's control groups.
            false => Err(String::from_utf8_lossy(&ran.stderr)
                .trim()
                .to_owned()
                .into()),
        }
    };
    let times: Result<Vec<f64>> = (0..=count).map(run).collect();
    // The first one may load the program.
    Ok(median(times?.split_first().map_or(&[], |(_, times)| times)))
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
