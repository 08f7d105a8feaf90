//! Containers with control groups and namespaces of their own, on a real agent. Needs root and
//! control groups; skipped elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::task::container::{
    MemoryVolume, RLimit, RLimitKind, SecretData, SoftHard, Volume, VolumeSource,
};
use protocol::task::{ContainerInfo, Limit, TaskLimits};
use protocol::{ContainerId, Reason, TaskId, TaskState, TaskStatus};
use serde_json::Value;

use crate::in_time::InTime;
use crate::machine::{inside, skip};
use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, get_over, meros, stderr, stdout};

const ISOLATORS: &str = "cgroups/cpu,cgroups/mem,cgroups/pids,namespaces/pid,namespaces/ipc";

/// A command that listens on the port which follows, in the background.
pub const LISTEN: &str = "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Listen => 5, \
    LocalPort => $ARGV[0], ReuseAddr => 1) or die $!; print \"listens\\n\"; close STDOUT; \
    while (my $c = $s->accept) { print $c \"here\\n\"; close $c }' --";

/// A cluster of one agent with isolators.
pub struct Isolated {
    pub cluster: Cluster,
    pub command: Command,
    pub agent: Running,
    pub framework: ScriptedFramework,
    /// Its group in each hierarchy, below the mount.
    root: String,
}

/// Whether this host can run all of [`ISOLATORS`], by its own report.
fn is_possible() -> bool {
    let report = meros(["agent", "--check"]).output_in_time();
    let report = String::from_utf8(report.expect("meros runs").stdout).expect("UTF-8");
    let is_possible = |name: &str| {
        let mut lines = report.lines();
        let line = lines.find_map(|line| line.strip_prefix(name));
        line.is_some_and(|line| line.trim() == "yes")
    };
    let possible = ISOLATORS.split(',').all(is_possible);
    if !possible {
        skip(&format!("this host cannot isolate containers: {report}"));
    }
    possible
}

impl Isolated {
    /// Also with the isolators `more`.
    pub fn begin(name: &str, more: &str, flags: &[&str]) -> Option<Self> {
        is_possible().then(|| Self::start(name, more, flags))
    }

    /// The groups of the containers of the agent `name` in the unified tree, if there is one.
    pub fn unified_group(name: &str) -> Option<PathBuf> {
        let mut trees = mounts().into_iter();
        let unified = trees.find(|mount| mount.join("cgroup.controllers").exists());
        Some(unified?.join(root(name)))
    }

    fn start(name: &str, more: &str, flags: &[&str]) -> Self {
        let root = root(name);
        let cluster = Cluster::master_alone(|_, _| ());
        let mut command = cluster.agent_command("agent", "cpus:4;mem:1024;disk:1024");
        let isolation = format!("{ISOLATORS},{more}");
        let isolation = isolation.trim_end_matches(',');
        command.args(["--isolation", isolation, "--cgroups_root", &root]);
        command.args(flags);
        let agent = cluster.agent_of(&mut command);
        let mut info = framework("isolated", "ads");
        info.checkpoint = true;
        let framework = ScriptedFramework::subscribe(&cluster, info);
        Self {
            cluster,
            command,
            agent,
            framework,
            root,
        }
    }

    /// Launches a task with these limits and waits until it runs.
    pub fn run(
        &mut self,
        name: &str,
        resources: &str,
        limits: TaskLimits,
        line: &str,
    ) -> TaskStatus {
        let offer = self.framework.standing_offer();
        let mut info = task(name, &offer, resources, line);
        info.limits = limits;
        self.framework.launch(&offer, vec![info]);
        self.framework.state(name, TaskState::Running)
    }

    pub fn kill(&mut self, name: &str) {
        let id = TaskId::new(name).expect("an id");
        self.framework.kill(id);
        self.framework.state(name, TaskState::Killed);
    }

    /// The port of the agent.
    pub fn port(&self) -> u16 {
        let mut arguments = self.command.get_args();
        let port = arguments
            .find(|argument| *argument == "--port")
            .and(arguments.next());
        let port = port.and_then(|port| port.to_str()?.parse().ok());
        port.expect("a port")
    }

    /// A page of the agent.
    pub fn page(&self, path: &str) -> Option<Value> {
        let stream = std::net::TcpStream::connect(("127.0.0.1", self.port())).ok()?;
        let page = get_over(stream, path, "Accept: application/json").ok()?;
        serde_json::from_str(&page.1).ok()
    }

    /// Waits until the agent process states that it is registered.
    pub fn until_registered(&self) {
        eventually("the agent to be registered", || {
            let figures = self.page("/metrics/snapshot")?;
            (figures["slave/registered"] == 1.0).then_some(())
        });
    }

    /// What `/monitor/statistics` has of a task.
    pub fn statistics(&self, name: &str) -> Option<Value> {
        let all = self.page("/monitor/statistics")?;
        let own = all
            .as_array()?
            .iter()
            .find(|one| one["executor_id"] == name)?;
        Some(own["statistics"].clone())
    }

    /// The groups of a container, in all hierarchies.
    fn groups(&self, container: &ContainerId) -> Vec<PathBuf> {
        let own = |mount: PathBuf| mount.join(&self.root).join(container.as_str());
        mounts()
            .into_iter()
            .map(own)
            .filter(|group| group.is_dir())
            .collect()
    }

    /// The value of this file in a group of the container.
    pub fn setting(&self, container: &ContainerId, file: &str) -> Option<String> {
        let groups = self.groups(container);
        let mut values = groups.iter().filter_map(|group| {
            let value = std::fs::read_to_string(group.join(file)).ok()?;
            Some(value.trim().to_owned())
        });
        values.next()
    }

    /// All groups that are left of this test.
    pub fn left(&self) -> Vec<PathBuf> {
        let roots = mounts().into_iter().map(|mount| mount.join(&self.root));
        let folders = |root: PathBuf| std::fs::read_dir(root).into_iter().flatten().flatten();
        let folders = roots.flat_map(folders).map(|entry| entry.path());
        folders.filter(|path| path.is_dir()).collect()
    }

    /// Waits for the removal of all groups, which goes on after the end of a task.
    pub fn leaves_nothing(&self) {
        eventually("the groups to be gone", || {
            self.left().is_empty().then_some(())
        });
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        self.agent.signal("USR1");
        self.agent.wait();
        for mount in mounts() {
            let _ = std::fs::remove_dir(mount.join(&self.root));
        }
    }
}

/// The group of the agent `name` in each hierarchy, below the mount.
fn root(name: &str) -> String {
    format!("meros-test-{}-{name}", std::process::id())
}

/// Where control groups are mounted.
fn mounts() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/mounts").expect("it is there");
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let groups = lines.filter(|fields| fields[2] == "cgroup" || fields[2] == "cgroup2");
    groups
        .map(|fields| Path::new(fields[1]).to_owned())
        .collect()
}

pub fn container(status: &TaskStatus) -> ContainerId {
    status.container_id.clone().expect("it runs in one")
}

// Covers 5.5 in part: cgroups/cpu, cgroups/mem, namespaces/pid; 5.12 Isolation; S74; S125.
#[test]
fn task_has_the_limits_of_its_resources_and_its_own_processes() {
    let Some(mut isolated) = Isolated::begin("limits", "", &["--cgroups_enable_cfs"]) else {
        return;
    };
    let limits = TaskLimits {
        cpus: Some(Limit::Amount(2.0)),
        mem: Some(Limit::Infinite),
    };
    let script = "ls /proc | grep -c '^[0-9]'; exec sleep 98731";
    let limited = isolated.run("limited", "cpus:0.5;mem:64", limits, script);
    let plain = isolated.run("plain", "cpus:0.5;mem:64", TaskLimits::default(), script);
    let of = |status, file| isolated.setting(&container(status), file);
    let (cpu, mem) = ("cpu.cfs_quota_us", "memory.limit_in_bytes");
    if let Some(quota) = of(&limited, cpu) {
        // With 0.1 cpus and 32 MB for the command's executor, as in Mesos.
        assert_eq!(quota, "210000");
        assert_eq!(of(&plain, cpu).as_deref(), Some("60000"));
        assert_eq!(of(&limited, "cpu.shares").as_deref(), Some("614"));
        assert_eq!(of(&plain, mem), Some((96 << 20).to_string()));
        let soft = of(&limited, "memory.soft_limit_in_bytes");
        assert_eq!(soft, Some((96 << 20).to_string()));
    } else {
        assert_eq!(of(&limited, "cpu.max").as_deref(), Some("210000 100000"));
        assert_eq!(of(&plain, "memory.max"), Some((96 << 20).to_string()));
    }
    let output = eventually("its output", || {
        let output = isolated.cluster.output(["logs", "plain"]);
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (!text.is_empty()).then_some(text)
    });
    let seen: u32 = output.parse().expect("a number");
    assert!(
        seen <= 4,
        "the container init, its shell, ls and grep: {seen}"
    );
    for name in ["limited", "plain"] {
        isolated.kill(name);
    }
    isolated.leaves_nothing();
}

// Covers 5.5 in part: cgroups/mem; 5.12; S74.
#[test]
fn task_beyond_its_memory_fails_with_the_reason() {
    let Some(mut isolated) = Isolated::begin("memory", "", &[]) else {
        return;
    };
    // The child is killed by the kernel, its shell would go on.
    let script = "sh -c 'a=x; while :; do a=$a$a; done'; echo on; exec sleep 98732";
    isolated.run("big", "cpus:0.1;mem:32", TaskLimits::default(), script);
    let status = isolated.framework.state("big", TaskState::Failed);
    let expected = Some(Reason::ContainerLimitationMemory);
    assert_eq!(status.reason, expected, "{status:?}");
    assert!(status.message.contains("64MB"), "{}", status.message);
    isolated.leaves_nothing();
}

// Covers 5.5 in part: cgroups/pids.
#[test]
fn fork_bomb_ends_at_its_limit_and_with_its_task() {
    let flags = ["--cgroups_pids_limit=60"];
    let Some(mut isolated) = Isolated::begin("bomb", "", &flags) else {
        return;
    };
    let none = TaskLimits::default();
    // Each process forks as often as it can, and ignores the polite end.
    let script = "exec perl -e '$SIG{TERM} = \"IGNORE\"; \
        while (1) { select(undef, undef, undef, 0.02) unless defined fork }'";
    let bomb = isolated.run("bomb", "cpus:0.1;mem:256", none, script);
    let bomb = container(&bomb);
    eventually("the bomb to be at its limit", || {
        let threads = isolated.setting(&bomb, "pids.current")?;
        (threads == "60").then_some(())
    });
    assert_eq!(isolated.setting(&bomb, "pids.max").as_deref(), Some("60"));
    let quiet = isolated.run("quiet", "cpus:0.1;mem:32", none, "exec sleep 98740");
    let quiet = isolated.setting(&container(&quiet), "pids.max");
    assert_eq!(quiet.as_deref(), Some("60"));
    isolated.kill("bomb");
    isolated.kill("quiet");
    isolated.leaves_nothing();
}

// Covers 5.5 in part: rights that are missing.
#[test]
fn read_only_control_groups_are_named_and_left_out() {
    if !inside("isolation::read_only_control_groups_are_named_and_left_out") || !is_possible() {
        return;
    }
    let all = mounts();
    let mut locked = all.clone();
    // With version 1 the others go on.
    locked.retain(|mount| mount.ends_with("memory"));
    let is_v1 = !locked.is_empty();
    for mount in if is_v1 { &locked } else { &all } {
        let mut lock = Command::new("mount");
        lock.args(["-o", "remount,bind,ro"]).arg(mount);
        assert!(lock.status_in_time().expect("mount runs").success());
    }
    let report = stdout(
        &meros(["agent", "--check"])
            .output_in_time()
            .expect("meros runs"),
    );
    let line = |name: &str| {
        let mut lines = report.lines();
        let line = lines.find_map(|line| line.strip_prefix(name));
        line.expect("a line for each isolator").trim().to_owned()
    };
    let reason = line("cgroups/mem");
    let is_named =
        reason.starts_with("no: ") && reason.ends_with("mounted read-only: mount it writable");
    assert!(is_named, "{report}");
    assert_eq!(line("cgroups/cpu") == "yes", is_v1, "{report}");
    assert_eq!(line("namespaces/pid"), "yes");

    let mut isolated = Isolated::start("locked", "", &[]);
    let script = "ls /proc | grep -c '^[0-9]'; exec sleep 98741";
    let status = isolated.run("t", "cpus:0.5;mem:32", TaskLimits::default(), script);
    let shares = isolated.setting(&container(&status), "cpu.shares");
    assert_eq!(shares.as_deref(), is_v1.then_some("614"));
    let memory = isolated.setting(&container(&status), "memory.limit_in_bytes");
    assert_eq!(memory, None);
    let output = eventually("its output", || {
        let output = isolated.cluster.output(["logs", "t"]);
        stdout(&output).trim().parse::<u32>().ok()
    });
    assert!(output <= 4, "processes of its own: {output}");
    isolated.kill("t");
    isolated.leaves_nothing();
}

// Covers 5.3; 5.5 in part: recovery and orphans.
#[test]
fn isolated_task_outlives_its_agent_and_leaves_nothing() {
    let Some(mut isolated) = Isolated::begin("recovery", "", &[]) else {
        return;
    };
    let none = TaskLimits::default();
    let status = isolated.run("long", "cpus:0.1;mem:32", none, "exec sleep 98733");
    let long = container(&status);
    isolated.agent.signal("KILL");
    isolated.agent.wait();
    assert!(!isolated.groups(&long).is_empty());
    // A group that nobody knows.
    let orphan = "00000000-0000-4000-8000-000000000001";
    let orphan = isolated.groups(&long)[0].with_file_name(orphan);
    std::fs::create_dir(&orphan).expect("a group");
    isolated.agent = Running::start(&mut isolated.command);
    eventually("the orphan to be gone", || (!orphan.exists()).then_some(()));
    assert!(!isolated.groups(&long).is_empty());
    let statistics = isolated.cluster.output(["agents", "--json"]);
    assert!(statistics.status.success(), "{}", stderr(&statistics));
    isolated.kill("long");
    isolated.leaves_nothing();
}

// Covers 5.5 in part: filesystem/linux, posix/rlimits; 5.12 Isolation.
#[test]
fn task_has_the_volumes_and_limits_of_its_container() {
    let more = "filesystem/linux,posix/rlimits";
    let Some(mut isolated) = Isolated::begin("volumes", more, &[]) else {
        return;
    };
    let host = tempfile::tempdir().expect("a directory");
    std::fs::write(host.path().join("there"), "from the host\n").expect("a file");
    let container = ContainerInfo {
        volumes: vec![Volume {
            container_path: "data".into(),
            is_read_only: true,
            source: VolumeSource::Path(host.path().display().to_string()),
        }],
        hostname: Some("box".into()),
        rlimits: vec![RLimit {
            kind: RLimitKind::Nofile,
            limits: Some(SoftHard {
                soft: 77,
                hard: 100,
            }),
        }],
        ..ContainerInfo::default()
    };
    let offer = isolated.framework.standing_offer();
    let script =
        "cat data/there; ulimit -n; cat /proc/sys/kernel/hostname; touch data/x || echo no";
    let mut info = task("t", &offer, "cpus:0.1;mem:32", script);
    info.container = Some(Box::new(container.clone()));
    // A secret needs an isolator of its own.
    let mut refused = task("refused", &offer, "cpus:0.1;mem:32", "true");
    let secret = Volume {
        container_path: "key".into(),
        is_read_only: false,
        source: VolumeSource::Secret(SecretData(b"secret".to_vec())),
    };
    refused.container = Some(Box::new(ContainerInfo {
        volumes: vec![secret],
        ..ContainerInfo::default()
    }));
    let driver = &isolated.framework.driver;
    let launched = driver.launch(vec![offer.id], vec![info, refused]);
    launched.expect("the driver hears");
    isolated.framework.state("t", TaskState::Finished);
    let output = isolated.cluster.output(["logs", "t"]);
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output, "from the host\n77\nbox\nno\n");
    let status = isolated.framework.state("refused", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLaunchFailed));
    let expected = "expected an agent with `filesystem/linux,volume/secret` in --isolation";
    assert!(status.message.contains(expected), "{}", status.message);
    isolated.leaves_nothing();
}

// Covers 5.5 in part: volumes in memory.
#[test]
fn files_in_memory_count_as_memory_of_their_task() {
    let Some(mut isolated) = Isolated::begin("memory", "filesystem/linux", &[]) else {
        return;
    };
    let in_memory = |bytes| ContainerInfo {
        volumes: vec![Volume {
            container_path: "fast".into(),
            is_read_only: false,
            source: VolumeSource::Memory(MemoryVolume {
                bytes,
                mode: MemoryVolume::MODE,
            }),
        }],
        ..ContainerInfo::default()
    };
    let offer = isolated.framework.standing_offer();
    let write = |name: &str, bytes, line: &str| {
        let mut info = task(name, &offer, "cpus:0.1;mem:32", line);
        info.container = Some(Box::new(in_memory(bytes)));
        info
    };
    let small = "head -c 2000000 /dev/zero > fast/a || stat -c %s fast/a";
    // Its default size is the memory of the container, which has more than files in it.
    let large = "exec head -c 100000000 /dev/zero > fast/a";
    let tasks = vec![
        write("small", Some(1 << 20), small),
        write("large", None, large),
    ];
    let launched = isolated.framework.driver.launch(vec![offer.id], tasks);
    launched.expect("the driver hears");
    isolated.framework.state("small", TaskState::Finished);
    let output = isolated.cluster.output(["logs", "small"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1048576\n");
    let status = isolated.framework.state("large", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLimitationMemory));
    isolated.leaves_nothing();
}

// Covers 5.5 in part: network/ports; 5.12 Isolation.
#[test]
fn task_that_listens_on_another_port_fails_with_the_reason() {
    let flags = [
        "--enforce_container_ports",
        "--check_agent_port_range_only",
        "--container_ports_watch_interval=100ms",
    ];
    let Some(mut isolated) = Isolated::begin("ports", "network/ports", &flags) else {
        return;
    };
    let none = TaskLimits::default();
    let script = |port: u16| format!("{LISTEN} {port} & exec sleep 98736");
    let own = "cpus:0.1;mem:32;ports:[31555-31555]";
    isolated.run("own", own, none, &script(31555));
    isolated.run("other", "cpus:0.1;mem:32", none, &script(31556));
    let status = isolated.framework.state("other", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLimitation));
    let message = format!(
        "Container {} is listening on unallocated port(s): [31556-31556]",
        container(&status)
    );
    assert_eq!(status.message, message);
    isolated.run("outside", "cpus:0.1;mem:32", none, &script(23556));
    isolated.kill("own");
    isolated.kill("outside");
    isolated.leaves_nothing();
}

// Covers 5.5 in part: disk/du; 5.12 Isolation; S75.
#[test]
fn task_beyond_its_disk_fails_with_the_reason() {
    let flags = [
        "--enforce_container_disk_quota",
        "--container_disk_watch_interval=100ms",
    ];
    let Some(mut isolated) = Isolated::begin("disk", "disk/du", &flags) else {
        return;
    };
    let script = "head -c 3145728 /dev/zero > big; exec sleep 98734";
    let none = TaskLimits::default();
    isolated.run("big", "cpus:0.1;mem:32;disk:1", none, script);
    let status = isolated.framework.state("big", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLimitationDisk));
    let message = "exceeds quota (1MB)";
    assert!(status.message.contains(message), "{}", status.message);
    isolated.leaves_nothing();
}

/// Unmounts what is mounted below a directory, so that it can be removed.
struct Unmounted(PathBuf);

impl Unmounted {
    fn mounts(&self) -> Vec<String> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        let targets = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let below = targets.filter(|target| Path::new(target).starts_with(&self.0));
        below.map(str::to_owned).collect()
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        for target in self.mounts() {
            let _ = Command::new("umount").args(["-l", &target]).output(); // Perhaps gone.
        }
    }
}

// Covers 5.5 in part: a hard limit of disk.
#[test]
fn full_file_system_of_a_sandbox_hurts_its_task_only() {
    let report = meros(["agent", "--check"]).output_in_time();
    let report = stdout(&report.expect("meros runs"));
    let mut lines = report.lines();
    let line = lines.find_map(|line| line.strip_prefix("disk/loop"));
    let free = Command::new("losetup").arg("--find").output();
    if line.is_none_or(|line| line.trim() != "yes") || !free.is_ok_and(|one| one.status.success()) {
        return skip("this host has no loop devices for sandboxes");
    }
    let flags = ["--max_completed_sandboxes=1"];
    let Some(mut isolated) = Isolated::begin("loop", "disk/loop", &flags) else {
        return;
    };
    let mounted = Unmounted(isolated.cluster.directory().join("agent"));
    let none = TaskLimits::default();
    let script = "head -c 33554432 /dev/zero > big && echo room; rm big; echo freed; \
        exec sleep 98761";
    isolated.run("full", "cpus:0.1;mem:32;disk:16", none, script);
    let output = |isolated: &Isolated| stdout(&isolated.cluster.output(["logs", "full"]));
    eventually("the full disk", || {
        (output(&isolated) == "freed\n").then_some(())
    });
    isolated.run("beside", "cpus:0.1;mem:32", none, "exec sleep 98762");
    let statistics = eventually("its statistics", || {
        let statistics = isolated.statistics("full")?;
        statistics["disk_used_bytes"].as_u64()?;
        Some(statistics)
    });
    assert_eq!(statistics["disk_limit_bytes"], 16 << 20, "{statistics}");

    isolated.agent.signal("KILL");
    isolated.agent.wait();
    isolated.agent = Running::start(&mut isolated.command);
    isolated.until_registered();
    assert_eq!(mounted.mounts().len(), 1);
    isolated.kill("full");
    assert_eq!(output(&isolated), "freed\n", "it is kept");
    let sandbox = PathBuf::from(mounted.mounts().remove(0));
    let image = |sandbox: &Path| {
        let name = sandbox.file_name().expect("a name").to_string_lossy();
        sandbox.with_file_name(format!(".{name}.disk"))
    };
    assert!(image(&sandbox).exists());
    // Another sandbox takes its place.
    isolated.kill("beside");
    eventually("the removal", || (!sandbox.exists()).then_some(()));
    assert!(!image(&sandbox).exists());
    assert_eq!(mounted.mounts(), [""; 0]);
    isolated.leaves_nothing();
}

#[test]
fn unknown_isolator_is_refused_by_name() {
    let cluster = Cluster::master_alone(|_, _| ());
    let mut command = cluster.agent_command("agent", "cpus:1");
    command.args(["--isolation", "posix/cpu,cgroups/cpus"]);
    let output = command.output_in_time().expect("meros runs");
    let told = stderr(&output);
    assert!(!output.status.success());
    let expected = "there is no isolator called `cgroups/cpus`";
    assert!(told.contains(expected), "{told}");
}

// Covers 5.11 in part: /monitor/statistics.
#[test]
fn statistics_of_a_container_come_from_its_groups() {
    let Some(mut isolated) = Isolated::begin("statistics", "", &[]) else {
        return;
    };
    let none = TaskLimits::default();
    isolated.run("busy", "cpus:0.1;mem:32", none, "while :; do :; done");
    let measured = eventually("some use", || {
        let statistics = isolated.statistics("busy")?;
        (statistics["cpus_user_time_secs"].as_f64()? > 0.1).then_some(statistics)
    });
    assert_eq!(measured["cpus_limit"], 0.2, "{measured}");
    assert_eq!(measured["mem_limit_bytes"], 64 << 20, "{measured}");
    assert!(measured["mem_total_bytes"].as_u64() > Some(0), "{measured}");
}

#[test]
fn agent_that_leaves_takes_its_groups_with_it() {
    let Some(mut isolated) = Isolated::begin("leaving", "", &[]) else {
        return;
    };
    let none = TaskLimits::default();
    let status = isolated.run("left", "cpus:0.1;mem:32", none, "exec sleep 98741");
    let id = container(&status);
    let mut groups = mounts().into_iter();
    let group = groups.find_map(|mount| {
        let group = mount.join(&isolated.root).join(id.as_str());
        group.is_dir().then_some(group)
    });
    let group = group.expect("a group");
    isolated.agent.signal("USR1");
    isolated.agent.wait();
    assert!(!group.exists(), "{group:?}");
    // Its end needs one that runs.
    isolated.agent = Running::start(&mut isolated.command);
}
