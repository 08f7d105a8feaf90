//! Tests of the actor: on folders of plain files, where the test plays the kernel, and on the
//! control groups of this machine.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use module_api::isolator::{ContainerConfig, ContainerResources, Limit, RootFilesystem};
use protocol::Reason;
use protocol::task::container::{ContainerInfo, DockerOptions};
use protocol::usage::{BlockStatistics, Pressure, Throttle};
use resources::Resources;
use runtime::testing::{inject_panic, simulate};
use tokio::sync::mpsc;

use super::controllers::{Controller, Version};
use super::hierarchy::Tree;
use super::*;
use crate::isolator::disk::xfs::tests::Mounted;

/// Ids as agents make them: a restart and a recovery know containers by them.
const ID: &str = "00000000-0000-4000-8000-000000000001";
const OTHER_ID: &str = "00000000-0000-4000-8000-000000000002";

fn id(name: &str) -> ContainerId {
    ContainerId::new(name).unwrap()
}

fn resources(requests: &str) -> ContainerResources {
    ContainerResources {
        requests: Resources::parse(requests).unwrap(),
        ..ContainerResources::default()
    }
}

fn config(name: &str, requests: &str) -> ContainerConfig {
    ContainerConfig {
        container_id: id(name),
        sandbox: "/sandbox".into(),
        user: None,
        shares_limits: false,
        is_command: true,
        resources: resources(requests),
        container: None,
        root: None,
    }
}

/// Stands for the containerizer: passes the limitations on.
struct Containerizer(mpsc::UnboundedSender<ContainerLimited>);

impl Actor for Containerizer {
    type Context = Context<Self>;
}

impl Process for Containerizer {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<ContainerLimited>(&[Role::Module]);
    }
}

impl Handler<ContainerLimited> for Containerizer {
    type Result = ();
    fn handle(&mut self, limited: ContainerLimited, _: &mut Context<Self>) {
        self.0.send(limited).unwrap();
    }
}

/// Sends the isolator the running containers, and returns the later limitations.
async fn recover(
    node: &Node,
    isolator: &IsolatorRef,
    containers: Vec<ContainerConfig>,
) -> mpsc::UnboundedReceiver<ContainerLimited> {
    let (sender, limited) = mpsc::unbounded_channel();
    let containerizer = node.spawn("containerizer", Containerizer(sender)).unwrap();
    let containerizer = containerizer.pid();
    let recover = RecoverContainers {
        containers,
        containerizer,
    };
    isolator.recover(recover).await.unwrap();
    limited
}

// On plain files.

/// Trees in a temporary folder.
struct Fake(tempfile::TempDir);

impl Fake {
    /// cpu and cpuacct together, memory, and a unified tree without controllers.
    fn hybrid() -> (Self, Vec<Tree>) {
        let fake = Self(tempfile::tempdir().unwrap());
        let cpu = vec![Controller::Cpu, Controller::Cpuacct];
        let trees = vec![
            fake.tree("cpu", Version::V1, cpu),
            fake.tree("memory", Version::V1, vec![Controller::Memory]),
            fake.tree("unified", Version::V2, Vec::new()),
        ];
        (fake, trees)
    }

    fn unified() -> (Self, Vec<Tree>) {
        let fake = Self(tempfile::tempdir().unwrap());
        let controllers = vec![
            Controller::Cpu,
            Controller::Cpuacct,
            Controller::Memory,
            Controller::Pids,
        ];
        let trees = vec![fake.tree("unified", Version::V2, controllers)];
        (fake, trees)
    }

    fn tree(&self, name: &str, version: Version, controllers: Vec<Controller>) -> Tree {
        let mount = self.0.path().join(name);
        fs::create_dir(&mount).unwrap();
        Tree {
            mount,
            version,
            controllers,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    fn has_groups(&self, name: &str) -> bool {
        let mut trees = ["cpu", "memory", "unified"].iter();
        trees.any(|tree| self.path(&format!("{tree}/mesos/{name}")).exists())
    }

    /// Removes the plain files of a container's groups, which are no obstacle in real ones.
    fn clear_all(&self, name: &str) {
        for tree in ["cpu", "memory"] {
            self.clear(&format!("{tree}/mesos/{name}"));
        }
    }

    fn clear(&self, path: &str) {
        for entry in fs::read_dir(self.path(path)).unwrap().flatten() {
            if entry.path().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

const HOST_MEMORY: u64 = 1000 << 20;

fn start(node: &Node, trees: Vec<Tree>) -> IsolatorRef {
    let groups = Groups::open(trees, Options::default(), HOST_MEMORY).unwrap();
    start_with(node, groups).unwrap()
}

// Covers S125 in part: CPU and memory.
#[test]
fn limits_are_written_and_follow_the_tasks() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        let mut asked = config("c", "cpus:0.6;mem:100");
        asked.resources.cpus_limit = Some(Limit::Amount(2.1));
        asked.resources.mem_limit = Some(Limit::Amount(200.0));
        let plan = isolator.prepare(asked).await.unwrap();
        let dirs = ["cpu/mesos/c", "memory/mesos/c", "unified/mesos/c"];
        assert_eq!(plan.cgroups, dirs.map(|dir| fake.path(dir)));
        let processes = fake.path("unified/mesos/c/processes");
        assert_eq!(plan.process_cgroup, Some(processes));
        assert_eq!(plan.oom_score_adj, Some(900));
        assert!(fake.path("unified/mesos/c/processes").is_dir());
        assert_eq!(fake.read("cpu/mesos/c/cpu.shares"), "614");
        assert_eq!(fake.read("cpu/mesos/c/cpu.cfs_quota_us"), "210000");
        let limit = || fake.read("memory/mesos/c/memory.limit_in_bytes");
        assert_eq!(limit(), (200 << 20).to_string());

        let update = |mem: u32| {
            isolator.update(UpdateContainer {
                container_id: id("c"),
                resources: resources(&format!("cpus:1;mem:{mem}")),
            })
        };
        fake.write(
            "memory/mesos/c/memory.usage_in_bytes",
            &(150 << 20).to_string(),
        );
        update(120).await.unwrap();
        assert_eq!(limit(), (200 << 20).to_string(), "it is in use");
        update(160).await.unwrap();
        assert_eq!(limit(), (160 << 20).to_string());
        assert_eq!(fake.read("cpu/mesos/c/cpu.shares"), "1024");
        assert_eq!(fake.read("cpu/mesos/c/cpu.cfs_quota_us"), "-1");
        let unknown = UpdateContainer {
            container_id: id("older"),
            resources: resources("cpus:1"),
        };
        isolator.update(unknown).await.unwrap();
        assert!(!fake.path("cpu/mesos/older").exists());
    });
}

#[test]
fn containers_are_measured_together() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        for name in ["a", "b"] {
            let asked = config(name, "cpus:1;mem:64");
            isolator.prepare(asked).await.unwrap();
        }
        fake.write("cpu/mesos/a/cpuacct.usage", "4000000\n");
        fake.write("cpu/mesos/a/cpuacct.stat", "user 3\nsystem 1\n");
        fake.write("memory/mesos/b/memory.stat", "total_rss 4096\n");
        let asked = ["a", "b", "unknown"].map(id).to_vec();
        let measured = isolator.measure(asked).await.unwrap();
        assert_eq!(measured.len(), 2);
        assert_eq!(
            (
                measured[&id("a")].cpus_user_time_secs,
                measured[&id("a")].cpus_system_time_secs
            ),
            (0.003, 0.001)
        );
        assert_eq!(measured[&id("b")].mem_rss_bytes, 4096);
        // The files stay open, and are read from their start.
        fake.write("memory/mesos/b/memory.stat", "total_rss 8192\n");
        let measured = isolator.measure(vec![id("b")]).await.unwrap();
        assert_eq!(measured[&id("b")].mem_rss_bytes, 8192);
        fs::remove_dir_all(fake.path("memory/mesos/b")).unwrap();
        isolator.clean_up(id("b")).await.unwrap();
        fs::create_dir_all(fake.path("memory/mesos/b")).unwrap();
        fake.write("memory/mesos/b/memory.stat", "total_rss 1\n");
        let measured = isolator.measure(vec![id("b")]).await.unwrap();
        assert_eq!(measured[&id("b")].mem_rss_bytes, 1, "a new group");
    });
}

#[test]
fn statistics_are_read_again_after_a_container_has_run() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        // The kernel makes it with the group.
        fs::create_dir(fake.path("unified/mesos")).unwrap();
        fake.write("unified/mesos/cpu.pressure", "");
        let isolator = start(&node, trees);
        isolator.prepare(config("c", "cpus:1")).await.unwrap();
        let now = |ticks: u32, micros: u32| {
            fake.write("cpu/mesos/c/cpuacct.usage", &format!("{ticks}\n"));
            let text = format!("some avg10=0.00 total={micros}\n");
            fake.write("unified/mesos/c/memory.pressure", &text);
            fake.write("memory/mesos/c/memory.usage_in_bytes", &micros.to_string());
            isolator.measure(vec![id("c")])
        };
        let some = |some_secs| {
            let full_secs = 0.0;
            Some(Pressure {
                some_secs,
                full_secs,
            })
        };
        let expected = [(0, 1, 1), (0, 2, 2), (7, 3, 3), (7, 4, 3), (8, 5, 5)];
        for (ticks, micros, found) in expected {
            let measured = now(ticks, micros * 1_000_000).await.unwrap();
            let statistics = &measured[&id("c")];
            let bytes = Some(found * 1_000_000);
            assert_eq!(statistics.mem_total_bytes, bytes, "{ticks} {micros}");
            let found = some(found as f64);
            assert_eq!(statistics.mem_pressure, found, "{ticks} {micros}");
            assert_eq!(statistics.timestamp, node.clock().wall());
        }
        node.clock().sleep(Duration::from_secs(8)).await;
        let measured = now(8, 6_000_000).await.unwrap();
        assert_eq!(measured[&id("c")].mem_pressure, some(6.0), "it only waits");
    });
}

#[test]
fn v2_controllers_are_enabled_down_to_the_root() {
    simulate(|node| async move {
        let (fake, trees) = Fake::unified();
        fake.write("unified/cgroup.subtree_control", "cpu io");
        let isolator = start(&node, trees);
        // A plain file keeps the last write: here those that were missing.
        assert_eq!(fake.read("unified/cgroup.subtree_control"), "+memory +pids");
        assert_eq!(
            fake.read("unified/mesos/cgroup.subtree_control"),
            "+cpu +memory +pids"
        );
        let plan = isolator.prepare(config("c", "cpus:1;mem:64")).await;
        let group = fake.path("unified/mesos/c");
        assert_eq!(plan.unwrap().cgroups, std::slice::from_ref(&group));
        assert!(!group.join("cgroup.subtree_control").exists());
        assert_eq!(fake.read("unified/mesos/c/cpu.weight"), "100");
        assert_eq!(
            fake.read("unified/mesos/c/memory.max"),
            (64 << 20).to_string()
        );
        fake.write("unified/mesos/c/cgroup.procs", "12\n");
        fake.write("unified/mesos/c/processes/cgroup.procs", "13\n14\n");
        fake.write("unified/mesos/c/pids.current", "7\n");
        let measured = isolator.measure(vec![id("c")]).await.unwrap();
        let found = &measured[&id("c")];
        assert_eq!((found.processes, found.threads), (3, 7));
    });
}

#[test]
fn recovery_removes_groups_of_unknown_containers() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        for dir in [
            format!("cpu/mesos/{ID}"),
            format!("cpu/mesos/{OTHER_ID}"),
            format!("unified/mesos/{OTHER_ID}/processes"),
            // No container, but perhaps the root of another agent.
            "cpu/mesos/other/container".to_owned(),
        ] {
            fs::create_dir_all(fake.path(&dir)).unwrap();
        }
        let isolator = start(&node, trees);
        recover(&node, &isolator, vec![config(ID, "cpus:1")]).await;
        until(&node, || !fake.has_groups(OTHER_ID)).await;
        assert!(fake.has_groups(ID));
        assert!(fake.path("cpu/mesos/other/container").exists());
    });
}

#[test]
fn clean_up_reports_the_limit_before_the_group_is_removed() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        isolator.prepare(config("c", "mem:96")).await.unwrap();
        fake.write("memory/mesos/c/memory.oom_control", "oom_kill 1\n");
        fake.write("memory/mesos/c/memory.failcnt", "9\n");
        // Its plain files keep the directory.
        let limitation = isolator.clean_up(id("c")).await.unwrap().unwrap();
        assert_eq!(limitation.resources, Resources::parse("mem:96").unwrap());
        assert_eq!(limitation.reason, Reason::ContainerLimitationMemory);
        assert!(fake.path("memory/mesos/c").exists());

        node.clock().sleep(Duration::from_secs(1)).await;
        fake.clear_all("c");
        until(&node, || !fake.has_groups("c")).await;
        assert_eq!(isolator.clean_up(id("c")).await, Ok(None), "it is gone");
    });
}

#[test]
fn removal_goes_on_after_a_restart() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        recover(&node, &isolator, Vec::new()).await;
        for name in [ID, OTHER_ID] {
            isolator.prepare(config(name, "mem:64")).await.unwrap();
        }
        assert_eq!(isolator.clean_up(id(ID)).await, Ok(None));
        assert!(inject_panic(&node, "cgroups", "bug"));
        assert!(isolator.measure(Vec::new()).await.is_err());
        for name in [ID, OTHER_ID] {
            fake.clear_all(name);
        }
        until(&node, || !fake.has_groups(ID)).await;
        assert!(fake.has_groups(OTHER_ID), "it is live");
    });
}

#[test]
fn one_failed_setting_does_not_stop_the_others() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        isolator
            .prepare(config("c", "cpus:1;mem:64"))
            .await
            .unwrap();
        let shares = fake.path("cpu/mesos/c/cpu.shares");
        fs::remove_file(&shares).unwrap();
        fs::create_dir(&shares).unwrap();
        let mut resources = resources("cpus:1;mem:96");
        resources.cpus_limit = Some(Limit::Amount(1.0));
        let update = UpdateContainer {
            container_id: id("c"),
            resources,
        };
        let error = isolator.update(update).await.unwrap_err().to_string();
        assert!(
            error.starts_with("the isolator failed: cannot write"),
            "{error}"
        );
        assert!(error.contains("cpu.shares"), "{error}");
        assert_eq!(fake.read("cpu/mesos/c/cpu.cfs_quota_us"), "100000");
        let limit = fake.read("memory/mesos/c/memory.limit_in_bytes");
        assert_eq!(limit, (96 << 20).to_string());
    });
}

#[test]
fn only_a_quota_needs_cfs_bandwidth() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        isolator.prepare(config("c", "cpus:1")).await.unwrap();
        assert_eq!(fake.read("cpu/mesos/c/cpu.shares"), "1024");
        assert!(!fake.path("cpu/mesos/c/cpu.cfs_quota_us").exists());
        assert!(!fake.path("cpu/mesos/c/cpu.cfs_period_us").exists());
    });
}

#[test]
fn executors_keep_the_score_of_the_agent() {
    simulate(|node| async move {
        let (_fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        let mut asked = config("c", "mem:100");
        asked.resources.mem_limit = Some(Limit::Infinite);
        asked.is_command = false;
        let plan = isolator.prepare(asked).await.unwrap();
        assert_eq!(plan.oom_score_adj, None);
    });
}

#[test]
fn failed_preparation_names_the_file_and_leaves_nothing() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        fs::remove_dir(fake.path("memory/mesos")).unwrap();
        let error = isolator.prepare(config("c", "mem:64")).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("cannot create"), "{error}");
        assert!(error.contains("memory/mesos/c"), "{error}");
    });
}

#[test]
fn second_agent_with_the_same_root_is_refused() {
    let (_fake, trees) = Fake::hybrid();
    let open = |root: &str| {
        let options = Options {
            root: root.into(),
            ..Options::default()
        };
        Groups::open(trees.clone(), options, 0)
    };
    let first = open("mesos").unwrap();
    let error = open("mesos").unwrap_err();
    assert!(error.contains("--cgroups_root"), "{error}");
    open("other").unwrap();
    drop(first);
    open("mesos").unwrap();
}

#[test]
fn root_of_another_program_is_refused_while_it_has_processes() {
    let (fake, trees) = Fake::hybrid();
    let open = || Groups::open(trees.clone(), Options::default(), 0);
    let other = format!("memory/mesos/{ID}");
    fs::create_dir_all(fake.path(&other)).unwrap();
    fake.write(&format!("{other}/cgroup.procs"), "12\n");
    let error = open().unwrap_err();
    assert!(error.contains("--cgroups_root"), "{error}");
    assert!(error.contains("memory/mesos"), "{error}");
    assert!(!fake.path("cpu/mesos").exists(), "nothing is changed");

    fake.write(&format!("{other}/cgroup.procs"), "");
    drop(open().unwrap());
    if !files::is_marked(&fake.path("memory/mesos")) {
        _ = writeln!(std::io::stderr(), "skipped: no extended attributes here");
        return;
    }
    fake.write(&format!("{other}/cgroup.procs"), "12\n");
    open().expect("it is marked");
}

#[test]
fn a_restart_keeps_the_groups_and_the_lock() {
    simulate(|node| async move {
        let (fake, trees) = Fake::hybrid();
        let isolator = start(&node, trees);
        let mut limited = recover(&node, &isolator, Vec::new()).await;
        isolator.prepare(config(ID, "mem:96")).await.unwrap();
        // Killed while the actor is down.
        let group = format!("memory/mesos/{ID}");
        fake.write(&format!("{group}/memory.oom_control"), "oom_kill 1\n");
        fake.write(&format!("{group}/memory.failcnt"), "9\n");
        fake.write(&format!("{group}/memory.stat"), "total_rss 1\n");
        assert!(inject_panic(&node, "cgroups", "bug"));
        assert!(isolator.measure(vec![id(ID)]).await.is_err());
        let found = limited.recv().await.unwrap();
        assert_eq!(found.container_id, id(ID));
        let measured = isolator.measure(vec![id(ID)]).await.unwrap();
        assert!(measured.contains_key(&id(ID)));
    });
}

// On this machine.

/// Runs a test with an isolator that has a root of its own, and removes the root after it. Prints
/// a line where the machine cannot.
fn on_this_machine<F: Future>(names: &[&str], test: impl FnOnce(Node, IsolatorRef, Machine) -> F) {
    on_this_machine_with(names, Options::default(), test);
}

fn on_this_machine_with<F: Future>(
    names: &[&str],
    options: Options,
    test: impl FnOnce(Node, IsolatorRef, Machine) -> F,
) {
    let root = format!("meros-test-{}-{}", std::process::id(), names.len());
    let thread = std::thread::current();
    let root = format!("{root}-{}", thread.name().unwrap_or("x").replace("::", "-"));
    let options = Options {
        root: root.into(),
        ..options
    };
    let machine = Machine::new(options.clone());
    let groups = match open(names, options) {
        Ok(groups) => groups,
        Err(reason) => {
            _ = writeln!(std::io::stderr(), "skipped: {reason}");
            return;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let node = Node::builder("node").accepts(&Role::ALL).build();
        let isolator = start_with(&node, groups).unwrap();
        test(node, isolator, machine).await;
    }));
}

/// The trees of this machine; removes the root when dropped.
struct Machine {
    root: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Machine {
    fn new(options: Options) -> Self {
        let found = groups::hierarchies(&options.hierarchy).unwrap_or_default();
        Self {
            root: options.root,
            mounts: found.into_iter().map(|one| one.mount).collect(),
        }
    }

    /// All directories of a container, and the file of that name in one of them.
    fn dirs(&self, name: &str) -> Vec<PathBuf> {
        let mounts = self.mounts.iter();
        let dirs = mounts.map(|mount| mount.join(&self.root).join(name));
        dirs.filter(|dir| dir.exists()).collect()
    }

    fn read(&self, name: &str, files: &[&str]) -> String {
        let dirs = self.dirs(name);
        let mut paths = dirs
            .iter()
            .flat_map(|dir| files.iter().map(move |file| dir.join(file)));
        let path = paths.find(|path| path.exists()).unwrap();
        fs::read_to_string(path).unwrap().trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let root = mount.join(&self.root);
            // After a failed test, whose processes take a moment to end.
            files::kill_all(&root);
            let mut tries = 0..10_000;
            while files::remove(&root).is_err() && tries.next().is_some() {
                std::thread::yield_now();
            }
        }
    }
}

/// Starts a shell script whose process joins these groups first.
fn run_in(dirs: &[PathBuf], script: &str) -> Child {
    let join = r#"for dir; do echo $$ > "$dir/cgroup.procs" || exit 99; done; "#;
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{join}{script}"), "sh"]);
    command.args(dirs).stdin(Stdio::null());
    command.spawn().unwrap()
}

/// Bound of each wait: only a failure takes as long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Lets other actors and the kernel work until the condition holds.
async fn until(node: &Node, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            node.clock().sleep(Duration::from_millis(2)).await;
        }
    };
    node.clock().timeout(PATIENCE, waiting).await.unwrap();
}

/// The groups that a process of the container joins, one after the other.
fn groups_of(plan: &LaunchPlan) -> Vec<PathBuf> {
    let groups = plan.cgroups.iter().chain(&plan.process_cgroup);
    groups.cloned().collect()
}

fn is_in(dir: &Path, process: &Child) -> bool {
    let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    listed.lines().any(|line| line == process.id().to_string())
}

#[test]
fn limits_of_this_machine_are_read_back() {
    on_this_machine(&["cgroups/all"], |node, isolator, machine| async move {
        let mut asked = config("c", "cpus:0.6;mem:96");
        asked.resources.cpus_limit = Some(Limit::Amount(2.1));
        let plan = isolator.prepare(asked).await.unwrap();
        let weight = machine.read("c", &["cpu.shares", "cpu.weight"]);
        assert!(["614", "60"].contains(&weight.as_str()), "{weight}");
        let quota = machine.read("c", &["cpu.cfs_quota_us", "cpu.max"]);
        assert!(quota.starts_with("210000"), "{quota}");
        let limit = machine.read("c", &["memory.limit_in_bytes", "memory.max"]);
        assert_eq!(limit, (96 << 20).to_string());
        let limit: u64 = machine.read("c", &["pids.max"]).parse().unwrap();
        assert!(limit > 100, "a share of the host: {limit}");

        let groups = groups_of(&plan);
        let mut process = run_in(&groups, "exec sleep 600");
        until(&node, || is_in(groups.last().unwrap(), &process)).await;
        let measured = isolator.measure(vec![id("c")]).await.unwrap();
        let found = &measured[&id("c")];
        assert!(found.processes >= 1, "{found:?}");
        assert!(found.mem_total_bytes.unwrap() > 0, "{found:?}");
        let mut dirs = machine.dirs("c").into_iter();
        let has_pressure = dirs.any(|dir| dir.join("cpu.pressure").exists());
        assert_eq!(found.cpu_pressure.is_some(), has_pressure, "{found:?}");
        // The mark says that the process is one of Meros; only the lock refuses a second agent.
        let options = Options {
            root: machine.root.clone(),
            ..Options::default()
        };
        let again = open(&["cgroups/all"], options).unwrap_err();
        assert!(again.contains("another agent uses"), "{again}");
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(isolator.clean_up(id("c")).await, Ok(None));
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}

#[test]
fn throttling_on_this_machine_is_set_and_lifted() {
    on_this_machine(&["cgroups/all"], |node, isolator, machine| async move {
        let plan = isolator
            .prepare(config("c", "cpus:1;mem:96"))
            .await
            .unwrap();
        let throttle = |cpu, memory| {
            let mut resources = resources("cpus:1;mem:96");
            resources.throttle = Some(Throttle {
                cpu,
                memory,
                io: cpu,
            });
            isolator.update(UpdateContainer {
                container_id: id("c"),
                resources,
            })
        };
        throttle(Some(100), Some(500)).await.unwrap();
        let quota = || machine.read("c", &["cpu.cfs_quota_us", "cpu.max"]);
        assert!(quota().starts_with("10000"), "{}", quota());
        let groups = groups_of(&plan);
        let mut process = run_in(&groups, "while :; do :; done");
        let throttled = async {
            let count = || async {
                let measured = isolator.measure(vec![id("c")]).await.unwrap();
                measured[&id("c")].cpus_nr_throttled
            };
            while count().await < Some(3) {
                node.clock().sleep(Duration::from_millis(2)).await;
            }
        };
        node.clock().timeout(PATIENCE, throttled).await.unwrap();
        throttle(None, None).await.unwrap();
        assert!(
            quota().starts_with("-1") || quota().starts_with("max"),
            "{}",
            quota()
        );
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(isolator.clean_up(id("c")).await, Ok(None));
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}

#[test]
fn memory_with_swap_of_this_machine_is_raised_and_lowered() {
    let options = Options {
        limit_swap: true,
        ..Options::default()
    };
    on_this_machine_with(
        &["cgroups/mem"],
        options,
        |_, isolator, machine| async move {
            isolator.prepare(config("c", "mem:64")).await.unwrap();
            for mem in [64, 128, 48] {
                let update = UpdateContainer {
                    container_id: id("c"),
                    resources: resources(&format!("mem:{mem}")),
                };
                isolator.update(update).await.unwrap();
                let limit = machine.read("c", &["memory.limit_in_bytes", "memory.max"]);
                assert_eq!(limit, (mem << 20).to_string());
                let files = ["memory.memsw.limit_in_bytes", "memory.swap.max"];
                let swap = machine.read("c", &files);
                assert!(swap == limit || swap == "0", "{swap}");
            }
            isolator.clean_up(id("c")).await.unwrap();
        },
    );
}

#[test]
fn devices_of_this_machine_are_denied_but_for_a_few() {
    on_this_machine(&["cgroups/devices"], |node, isolator, machine| async move {
        let plan = isolator.prepare(config("c", "mem:32")).await.unwrap();
        let script = "test -c /dev/kmsg && true < /dev/null && true < /dev/zero || exit 1; \
            (true < /dev/kmsg) 2> /dev/null && exit 2; exit 0";
        let mut process = run_in(&groups_of(&plan), script);
        let ended = node.blocking(move || process.wait().unwrap()).await;
        assert_eq!(ended.unwrap().code(), Some(0));
        let plan = isolator.prepare(privileged("p")).await.unwrap();
        let mut process = run_in(&groups_of(&plan), "true < /dev/kmsg");
        let ended = node.blocking(move || process.wait().unwrap()).await;
        assert_eq!(ended.unwrap().code(), Some(0));
        for container in ["c", "p"] {
            assert_eq!(isolator.clean_up(id(container)).await, Ok(None));
            until(&node, || machine.dirs(container).is_empty()).await;
        }
    });
}

/// A container that wants all devices.
fn privileged(name: &str) -> ContainerConfig {
    let docker = DockerOptions {
        is_privileged: true,
        ..DockerOptions::default()
    };
    ContainerConfig {
        root: Some(RootFilesystem {
            image: "/images/1".into(),
            scratch: "/scratch/p".into(),
            sandbox: "/mnt/mesos/sandbox".into(),
        }),
        container: Some(Box::new(ContainerInfo {
            docker: Some(docker),
            ..ContainerInfo::default()
        })),
        ..config(name, "mem:32")
    }
}

#[test]
fn written_blocks_of_this_machine_are_counted() {
    on_this_machine(&["cgroups/blkio"], |node, isolator, machine| async move {
        let Some(mounted) = Mounted::xfs() else {
            return drop(machine);
        };
        let plan = isolator.prepare(config("c", "mem:32")).await.unwrap();
        let file = mounted.path().join("file").display().to_string();
        let script = format!("exec dd if=/dev/zero of={file} bs=4096 count=4 oflag=direct");
        let mut process = run_in(&groups_of(&plan), &script);
        let ended = node.blocking(move || process.wait().unwrap()).await;
        assert!(ended.unwrap().success());
        let measured = isolator.measure(vec![id("c")]).await.unwrap();
        let found = &measured[&id("c")].blkio;
        let has_it = |one: &BlockStatistics| one.bytes.write >= 4 * 4096 && one.requests.write > 0;
        // Newer kernels count in v1 only what has a limit.
        let is_v1 = machine
            .dirs("c")
            .iter()
            .all(|dir| !dir.join("io.stat").exists());
        assert!(is_v1 || found.iter().any(has_it), "{found:?}");
        isolator.clean_up(id("c")).await.unwrap();
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}

// Covers S74.
#[test]
fn exceeded_memory_of_this_machine_is_reported() {
    on_this_machine(&["cgroups/mem"], |node, isolator, machine| async move {
        let mut limited = recover(&node, &isolator, Vec::new()).await;
        let plan = isolator.prepare(config("c", "mem:32")).await.unwrap();
        // Reads ever more into one variable.
        let mut process = run_in(&groups_of(&plan), "a=x; while :; do a=$a$a; done");
        let found = node.clock().timeout(PATIENCE, limited.recv()).await;
        let found = found.unwrap().unwrap();
        assert_eq!(found.container_id, id("c"));
        let limitation = found.limitation;
        assert_eq!(limitation.resources, Resources::parse("mem:32").unwrap());
        let begin = "Memory limit exceeded: Requested: 32MB Maximum Used: ";
        assert!(limitation.message.starts_with(begin), "{limitation:?}");
        // The event precedes the kill, which the kernel counts.
        let ended = node.blocking(move || process.wait().unwrap()).await;
        assert_eq!(ended.unwrap().code(), None, "killed by a signal");
        let ended = isolator.clean_up(id("c")).await.unwrap();
        assert_eq!(ended.unwrap().resources, limitation.resources);
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}

#[test]
fn orphans_of_this_machine_are_killed_and_removed() {
    let names = ["cgroups/cpu", "cgroups/mem"];
    on_this_machine(&names, |node, isolator, machine| async move {
        let plan = isolator.prepare(config(ID, "mem:32")).await.unwrap();
        let groups = groups_of(&plan);
        let mut process = run_in(&groups, "trap '' TERM; while :; do sleep 600; done");
        until(&node, || is_in(groups.last().unwrap(), &process)).await;
        recover(&node, &isolator, Vec::new()).await;
        // Reaped here, for the group is busy until then on some kernels.
        let reaped = node.blocking(move || process.wait().unwrap()).await;
        assert!(!reaped.unwrap().success());
        until(&node, || machine.dirs(ID).is_empty()).await;
    });
}

#[test]
fn clean_up_on_this_machine_kills_the_remaining_processes() {
    let names = ["cgroups/cpu", "cgroups/mem"];
    on_this_machine(&names, |node, isolator, machine| async move {
        let plan = isolator.prepare(config("c", "mem:32")).await.unwrap();
        let groups = groups_of(&plan);
        let mut process = run_in(&groups, "trap '' TERM; while :; do sleep 600; done");
        until(&node, || is_in(groups.last().unwrap(), &process)).await;
        assert_eq!(isolator.clean_up(id("c")).await, Ok(None));
        let reaped = node.blocking(move || process.wait().unwrap()).await;
        assert_eq!(reaped.unwrap().code(), None, "killed by a signal");
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}

#[test]
fn processes_of_this_machine_are_killed_without_their_init() {
    on_this_machine(&["cgroups/cpu"], |node, isolator, machine| async move {
        let plan = isolator.prepare(config("c", "cpus:1")).await.unwrap();
        let processes = plan.process_cgroup.clone();
        let processes = processes.filter(|dir| dir.join("cgroup.kill").exists());
        let Some(processes) = processes else {
            _ = writeln!(std::io::stderr(), "skipped: the kernel has no cgroup.kill");
            return drop(machine);
        };
        let mut init = run_in(&plan.cgroups, "exec sleep 600");
        let mut process = run_in(&groups_of(&plan), "exec sleep 600");
        let own = plan.cgroups.last().unwrap();
        until(&node, || is_in(own, &init) && is_in(&processes, &process)).await;
        fs::write(processes.join("cgroup.kill"), "1").unwrap();
        let ended = node.blocking(move || process.wait().unwrap()).await;
        assert_eq!(ended.unwrap().code(), None, "killed by a signal");
        assert_eq!(init.try_wait().unwrap(), None);
        init.kill().unwrap();
        init.wait().unwrap();
        assert_eq!(isolator.clean_up(id("c")).await, Ok(None));
        until(&node, || machine.dirs("c").is_empty()).await;
    });
}
