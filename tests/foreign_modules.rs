//! Modules that are programs of their own, started by real agents.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::usage::{ExecutorUsage, ResourceStatistics, ResourceUsage, Throttle};
use protocol::{
    Capability, ContainerId, ExecutorId, FrameworkId, FrameworkInfo, Reason, TaskState,
};
use runtime::Timestamp;
use serde_json::{Value, json};
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, example, get, sleepers, stderr};

/// A master, and an agent with modules whose programs are scripts of its own.
struct Lending {
    cluster: Cluster,
    agent: Running,
    agent_port: u16,
}

impl Lending {
    /// The agent has the estimator `spare`, which is this program, with these parameters.
    fn with_estimator(program: &str, parameters: &[(&str, &str)]) -> Self {
        Self::start(program, "spare", parameters, &[])
    }

    fn start(
        program: &str,
        name: &str,
        parameters: &[(&str, &str)],
        more: &[(&str, &str)],
    ) -> Self {
        let cluster = Cluster::master_alone(|_, _| {});
        let file = script(&cluster, program);
        let mut modules = vec![json!({ "name": name, "parameters": pairs(parameters) })];
        let mut flags = vec!["--resource_estimator", name];
        if !more.is_empty() {
            modules.push(json!({ "name": "evict", "parameters": pairs(more) }));
            flags.extend(["--qos_controller", "evict"]);
        }
        let modules = json!({ "libraries": { "file": file, "modules": modules } }).to_string();
        let mut command = cluster.agent_command("agent", "cpus:2;mem:256;disk:0;ports:[]");
        let log = File::create(cluster.directory().join("agent.log")).expect("a file");
        command
            .args(["--log=info,meros_modules=debug", "--modules", &modules])
            .args(["--oversubscribed_resources_interval", "100ms"])
            .args(flags)
            .stderr(log);
        let port = command
            .get_args()
            .skip_while(|flag| *flag != "--port")
            .nth(1);
        let agent_port = port.and_then(|port| port.to_str()?.parse().ok());
        let agent = cluster.agent_of(&mut command);
        Self {
            cluster,
            agent,
            agent_port: agent_port.expect("a port"),
        }
    }

    fn figure(&self, name: &str) -> f64 {
        let (_, text) = get(self.agent_port, "/metrics/snapshot");
        let all: Value = serde_json::from_str(&text).unwrap_or_default();
        all[name].as_f64().unwrap_or(f64::NAN)
    }

    /// Waits until this many CPUs are lent.
    fn lends(&self, cpus: f64) {
        eventually(&format!("{cpus} CPUs to be lent"), || {
            (self.figure("slave/cpus_revocable_total") == cpus).then_some(())
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.cluster.directory().join("agent.log")).expect("a log")
    }

    /// Waits for these words in the log.
    fn logs(&self, words: &str) {
        eventually(words, || self.log().contains(words).then_some(()));
    }

    /// The module's process.
    fn module(&self) -> u32 {
        let ours = |process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            let socket = b"MEROS_MODULE_SOCKET=";
            status.contains(&format!("\nPPid:\t{}\n", self.agent.id()))
                && environment.windows(socket.len()).any(|one| one == socket)
        };
        eventually("the module's process", || processes().find(ours))
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn pairs(parameters: &[(&str, &str)]) -> Vec<Value> {
    let pair = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
    parameters.iter().map(pair).collect()
}

/// An executable script in the cluster's directory that becomes this program. Replaces an earlier
/// one at once.
fn script(cluster: &Cluster, program: &str) -> PathBuf {
    let path = cluster.directory().join("module");
    let new = cluster.directory().join("module.new");
    fs::write(&new, format!("#!/bin/sh\nexec {program}\n")).expect("a script");
    fs::set_permissions(&new, Permissions::from_mode(0o755)).expect("its mode");
    fs::rename(&new, &path).expect("it is moved");
    path
}

fn program() -> String {
    example("foreign_module").display().to_string()
}

fn batch() -> FrameworkInfo {
    let mut info = framework("batch", "*");
    info.capabilities = [Capability::RevocableResources].into();
    info
}

// Covers S39.
#[test]
fn foreign_estimator_and_controller_lend_and_take_back() {
    let parameters = [("cpus", "3")];
    let lending = Lending::start(&program(), "spare", &parameters, &[("prefix", "bad")]);
    lending.lends(3.0);
    let mut batch = ScriptedFramework::subscribe(&lending.cluster, batch());
    let mut launch = |name: &str, seconds: u32| {
        let offer = loop {
            let offer = batch.offer();
            if offer.resources.iter().any(|one| one.is_revocable()) {
                break offer;
            }
        };
        let mut lent = task(name, &offer, "cpus:0", &format!("exec sleep {seconds}"));
        lent.resources = offer.resources.revocable();
        assert_eq!(lent.resources.cpus().as_f64(), 3.0);
        batch.launch(&offer, vec![lent]);
        batch.wait_for(name, |callback| match callback {
            Callback::Status(status) if status.task_id.as_str() == name => {
                let is_over = status.state.is_terminal();
                (is_over == (name == "bad")).then(|| (**status).clone())
            }
            _ => None,
        })
    };
    let killed = launch("bad", 98_761);
    assert_eq!(
        killed.reason,
        Some(Reason::ContainerPreempted),
        "{killed:?}"
    );
    // What it had is lent again, to a task that may stay.
    launch("good", 98_762);
    eventually("the good task to run", || sleepers(98_762).first().copied());
    assert!(sleepers(98_761).is_empty());
}

#[test]
fn failing_modules_lend_nothing_and_are_restarted() {
    let program = program();
    for (what, arguments, behave, reason) in [
        ("crash", "", "crash", "exited with status 3"),
        ("garbage", "--garbage", "none", "reason="),
        ("missing", "", "none", "exited with status 127"),
    ] {
        let parameters = [("cpus", "3"), ("behave", behave)];
        let command = match what {
            "missing" => "/nowhere/at/all".to_owned(),
            _ => format!("{program} {arguments}"),
        };
        let mut lending = Lending::with_estimator(&command, &parameters);
        eventually("a second restart", || {
            (lending.figure("modules/resource_estimator/spare/restarts") >= 2.0).then_some(())
        });
        lending.logs("the module is down; restarting it");
        lending.logs(reason);
        if what != "crash" {
            lending.lends(0.0);
            let log = lending.log();
            let reported = log.matches("the module is down; restarting it").count();
            assert_eq!(reported, 1, "{what}: each change is logged once");
        }
        let mut framework = ScriptedFramework::subscribe(&lending.cluster, framework("web", "*"));
        let offer = framework.offer();
        let regular = task("regular", &offer, "cpus:1;mem:32", "true");
        framework.launch(&offer, vec![regular]);
        framework.state("regular", TaskState::Finished);
        assert!(lending.agent.is_running(), "{what}");
    }
}

/// The first estimate is lent; from the second on the module hangs, and is killed for it.
#[test]
fn hanging_module_is_killed_and_started_again() {
    let parameters = [("cpus", "3"), ("behave", "hang")];
    let lending = Lending::with_estimator(&program(), &parameters);
    let first = lending.module();
    lending.logs("it gave no answer within 5s");
    let second = eventually("another process", || {
        let now = lending.module();
        (now != first).then_some(now)
    });
    assert!(!Path::new(&format!("/proc/{first}")).exists());
    assert!(lending.figure("modules/resource_estimator/spare/restarts") >= 1.0);
    drop(lending);
    eventually("the module to end with its agent", || {
        (!Path::new(&format!("/proc/{second}")).exists()).then_some(())
    });
}

/// The descriptors of a process, each with the name of its file.
fn descriptors(process: u32) -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let target = fs::read_link(&path).ok()?.display().to_string();
        Some((path.file_name()?.to_str()?.parse().ok()?, target))
    })
}

/// It sees neither the agent's descriptors nor its environment.
#[test]
fn module_inherits_only_its_standard_streams() {
    let lending = Lending::with_estimator(&program(), &[("cpus", "1")]);
    lending.lends(1.0);
    let module = lending.module();
    let agents: Vec<String> = descriptors(lending.agent.id())
        .map(|(_, target)| target)
        .collect();
    let mut anonymous = 0;
    for (number, target) in descriptors(module).filter(|(number, _)| *number > 2) {
        let is_anonymous = target.starts_with("anon_inode:");
        anonymous += u32::from(is_anonymous);
        let is_own = target.starts_with("socket:") && !agents.contains(&target);
        assert!(is_own || is_anonymous, "{number} is {target}");
    }
    // Those of its runtime: each has no name of its own.
    assert!(anonymous <= 3, "{anonymous}");
    let environment = fs::read_to_string(format!("/proc/{module}/environ")).expect("it runs");
    for variable in environment.split_terminator('\0') {
        let (name, _) = variable.split_once('=').expect("a variable");
        let known = ["PATH", "MEROS_MODULE_SOCKET", "PWD", "OLDPWD", "SHLVL", "_"];
        assert!(known.contains(&name), "{variable}");
    }
}

#[test]
fn replaced_executable_is_started_in_its_place() {
    let lending = Lending::with_estimator(&program(), &[("cpus", "3")]);
    lending.lends(3.0);
    script(&lending.cluster, &format!("{} --bonus 2", program()));
    lending.lends(5.0);
    lending.logs("the module's executable was replaced; restarting it");
    assert_eq!(lending.figure("modules/resource_estimator/spare/up"), 1.0);
    assert_eq!(
        lending.figure("modules/resource_estimator/spare/restarts"),
        1.0
    );
}

#[test]
fn refused_parameters_and_estimates_are_named() {
    let lending = Lending::with_estimator(&program(), &[("cpus", "many")]);
    lending.logs("module `spare`, parameter `cpus` is `many`: expected a number");
    assert_eq!(lending.figure("modules/resource_estimator/spare/up"), 0.0);
    drop(lending);
    let lending = Lending::with_estimator(&program(), &[("cpus", "3"), ("behave", "regular")]);
    lending.logs("is not revocable");
    eventually("the count of rejected estimates", || {
        (lending.figure("slave/oversubscription_estimates_rejected") > 0.0).then_some(())
    });
    assert_eq!(lending.figure("slave/cpus_revocable_total"), 0.0);
}

#[allow(dead_code, reason = "its main function is for a program")]
#[rustfmt::skip]
#[path = "fixtures/modules/unused.rs"]
mod unused;

/// The one in `modules/README.md`.
#[test]
fn worked_estimator_lends_a_share_of_unused_cpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("modules/README.md")).expect("it is there");
    assert!(readme.contains(include_str!("fixtures/modules/unused.rs")));
    let mut last = None;
    let mut lent_at = |hours: u64, cpu_seconds: f64| {
        let statistics = ResourceStatistics {
            timestamp: Timestamp::from_nanos(hours * 3_600_000_000_000),
            cpus_user_time_secs: cpu_seconds,
            ..ResourceStatistics::default()
        };
        let executor = ExecutorUsage {
            framework_id: FrameworkId::new("f").expect("an id"),
            executor_id: ExecutorId::new("e").expect("an id"),
            executor_name: String::new(),
            is_command: false,
            container_id: ContainerId::new("c").expect("an id"),
            allocated: "cpus:4".parse().expect("resources"),
            tasks: Vec::new(),
            statistics: Some(statistics),
            throttle: Throttle::default(),
            objectives: Vec::new(),
        };
        let usage = ResourceUsage {
            total: "cpus:4".parse().expect("resources"),
            executors: vec![executor],
        };
        let lent = unused::estimate(0.5, &mut last, &usage);
        lent.revocable().cpus().as_f64()
    };
    assert_eq!(lent_at(1, 0.0), 0.0, "the first question has no history");
    assert_eq!(lent_at(2, 3600.0), 1.5, "one of four CPUs was used");
    assert_eq!(lent_at(3, 3600.0 + 4.0 * 3600.0), 0.0, "all of them");
}

/// Needs the packages grpcio and protobuf of Python, and protoc.
#[test]
fn worked_estimator_in_python_lends_unused_cpus() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new("protoc")
        .arg("-I")
        .arg(source.join("modules/api/proto"))
        .arg("--python_out")
        .arg(directory.path())
        .arg("module.proto")
        .status_in_time();
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let imported = Command::new(python)
            .args(["-c", "import google.protobuf, grpc"])
            .output_in_time();
        imported.is_ok_and(|output| output.status.success())
    });
    let (true, Some(python)) = (made.is_ok_and(|status| status.success()), python) else {
        println!("skipped: no protoc, or no python3 with grpcio and protobuf");
        return;
    };
    let file = directory.path().join("estimator.py");
    fs::copy(source.join("tests/fixtures/modules/estimator.py"), &file).expect("it is copied");
    let program = format!("{python} {}", file.display());
    let lending = Lending::start(&program, "half", &[("share", "0.5")], &[]);
    let mut framework = ScriptedFramework::subscribe(&lending.cluster, framework("web", "*"));
    let offer = framework.offer();
    let idle = task("idle", &offer, "cpus:2;mem:32", "exec sleep 98763");
    framework.launch(&offer, vec![idle]);
    framework.state("idle", TaskState::Running);
    lending.lends(1.0);
    assert_eq!(lending.figure("modules/resource_estimator/half/up"), 1.0);
}

#[test]
fn invalid_modules_stop_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |flags: &[&str]| {
        let mut command = crate::support::meros(["local", "--agents=1"]);
        command.arg("--work_dir").arg(directory.path()).args(flags);
        let output = command.output_in_time().expect("meros runs");
        assert!(!output.status.success());
        stderr(&output)
    };
    let named = |name: &str, file: &str| {
        json!({ "libraries": { "file": file, "modules": { "name": name } } }).to_string()
    };
    for (flags, expected) in [
        (
            ["--modules", &named("fixd", "/nowhere/libfixed.so")],
            "module `fixd` is not linked in (did you mean `fixed`?), and its library /nowhere/libfixed.so does not exist",
        ),
        (
            ["--modules", &named("mine", "/etc/passwd")],
            "its library /etc/passwd is a file without execute permission: expected an executable file",
        ),
        (
            ["--modules_dir", "/nowhere"],
            "--modules_dir: /nowhere cannot be read: No such file or directory",
        ),
        (
            ["--resource_estimator", "usage_slak"],
            "there is no resource estimator called `usage_slak` (did you mean `usage_slack`?): expected one of",
        ),
        (
            ["--resource_estimator", "load"],
            "`load` is a module of the kind QoS controller, not resource estimator: expected one of",
        ),
        (
            ["--sorter", "fixed"],
            "`fixed` is a module of the kind resource estimator, not sorter: expected one of drf",
        ),
    ] {
        assert_contains!(refused(&flags), expected);
    }
    let modules = named("mine", "/bin/true");
    let both = refused(&["--modules", &modules, "--modules_dir", "/etc"]);
    assert_contains!(both, "cannot be used with");
}
