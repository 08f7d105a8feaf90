//! Containers on request of the agent's API, and tasks of groups with limits of their own, on a
//! real agent (SPEC 5.5, 5.6).

use std::path::{Path, PathBuf};

use protocol::task::container::ContainerInfo;
use protocol::task::{Limit, TaskLimits};
use protocol::{ContainerId, ExecutorId, ExecutorInfo, Filters, Operation, TaskState};
use resources::{Resources, Role};
use serde_json::{Value, json};
use testkit::http::Endpoint;

use crate::isolation::{Isolated, container};
use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, eventually, page, sleepers};

/// Calls about the containers in one of a task.
struct Calls {
    endpoint: Endpoint,
    parent: ContainerId,
}

impl Calls {
    /// The id of a container, whose names are separated by dots.
    fn id(&self, name: &str) -> Value {
        let mut id = json!({ "value": self.parent.to_string() });
        for name in name.split('.') {
            id = json!({ "value": name, "parent": id });
        }
        id
    }

    /// The status and the text of the answer.
    fn call(&self, kind: &str, name: &str, mut body: Value) -> (u16, String) {
        body["container_id"] = self.id(name);
        let call = json!({ "type": kind, kind.to_lowercase(): body }).to_string();
        let answer = self.endpoint.post("application/json", call.as_bytes());
        (answer.status, answer.text())
    }

    fn launch(&self, kind: &str, name: &str, line: &str) -> (u16, String) {
        let command = json!({ "value": line, "shell": true });
        self.call(kind, name, json!({ "command": command }))
    }

    /// The exit status that a wait answers.
    fn wait(&self, kind: &str, name: &str) -> Option<i64> {
        let (status, text) = self.call(kind, name, json!({}));
        assert_eq!(status, 200, "{kind} {name}: {text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer[kind.to_lowercase()]["exit_status"].as_i64()
    }
}

// Covers 5.6 in part: LAUNCH, WAIT, KILL and REMOVE of nested containers.
#[test]
fn containers_on_request_run_wait_die_and_are_removed() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("nested", "ads"));
    let offer = scripted.standing_offer();
    let info = task("t", &offer, "cpus:0.1;mem:32", "exec sleep 98751");
    scripted.launch(&offer, vec![info]);
    let status = scripted.state("t", TaskState::Running);
    let port = cluster.port + 1;
    let calls = Calls {
        endpoint: Endpoint::new(port, "/api/v1"),
        parent: container(&status),
    };
    let state = page(port, "/state");
    let sandbox = state["frameworks"][0]["executors"][0]["directory"].as_str();
    let sandbox = PathBuf::from(sandbox.expect("its sandbox"));
    // Both generations of the calls; the second launches, too.
    for (name, suffix) in [("old", "NESTED_CONTAINER"), ("new", "CONTAINER")] {
        let [launch, wait, kill, remove] =
            ["LAUNCH", "WAIT", "KILL", "REMOVE"].map(|verb| format!("{verb}_{suffix}"));
        let ends = format!("{name}-ends");
        let inner = sandbox.join("containers").join(&ends);
        let line = "echo here; pwd; exit 3";
        assert_eq!(calls.launch(&launch, &ends, line).0, 200);
        assert_eq!(calls.wait(&wait, &ends), Some(3 << 8));
        let output = std::fs::read_to_string(inner.join("stdout")).expect("its output");
        assert_eq!(output, format!("here\n{}\n", inner.display()));
        assert_eq!(calls.call(&kill, &ends, json!({})).0, 404, "it has ended");

        let lives = format!("{name}-lives");
        assert_eq!(calls.launch(&launch, &lives, "exec sleep 98752").0, 200);
        assert_eq!(calls.launch(&launch, &lives, "true").0, 202, "it is known");
        let deeper = format!("{lives}.deeper");
        assert_eq!(calls.launch(&launch, &deeper, "exec sleep 98753").0, 200);
        let refused = calls.call(&remove, &lives, json!({}));
        assert!(refused.1.contains("has not terminated yet"), "{refused:?}");
        let term = json!({ "signal": 15 });
        assert_eq!(calls.call(&kill, &deeper, term).0, 200);
        assert_eq!(calls.wait(&wait, &deeper), Some(15));
        assert_eq!(calls.call(&kill, &lives, json!({})).0, 200);
        assert_eq!(calls.wait(&wait, &lives), Some(9));
        for gone in [&deeper, &lives, &ends] {
            let removed = calls.call(&remove, gone, json!({}));
            assert_eq!(removed.0, 200, "{removed:?}");
            assert_eq!(calls.call(&wait, gone, json!({})).0, 404, "it is removed");
        }
        for seconds in [98752, 98753] {
            assert_eq!(sleepers(seconds), [0_u32; 0], "{name}");
        }
        let missing = calls.launch(&launch, "gone.inner", "true");
        assert!(
            missing.0 == 400 && missing.1.contains("does not exist"),
            "{missing:?}"
        );
    }
    // They end with their task, and a wait is answered.
    assert_eq!(
        calls
            .launch("LAUNCH_CONTAINER", "last", "exec sleep 98754")
            .0,
        200
    );
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| calls.call("WAIT_CONTAINER", "last", json!({})));
        let task = protocol::TaskId::new("t").expect("an id");
        scripted.kill(task);
        scripted.state("t", TaskState::Killed);
        let (status, _) = waits.join().expect("an answer");
        // The wait may have come after the end of the task, with which its container is forgotten.
        assert!([200, 404].contains(&status), "{status}");
    });
    eventually("all to be gone", || {
        let left = [98751, 98754].map(sleepers);
        left.iter().all(Vec::is_empty).then_some(())
    });
}

/// A group of the tasks `first` and `second` with control groups of their own.
fn launch_group(isolated: &mut Isolated) {
    let offer = isolated.framework.standing_offer();
    let role = Role::new(&offer.role).expect("a role");
    let resources: Resources = "cpus:0.1;mem:32;disk:1".parse().expect("resources");
    let id = ExecutorId::new("pod").expect("an id");
    let mut executor = ExecutorInfo::default_kind(id, resources.allocate(&role));
    executor.container = Some(Box::default());
    let mut own = ContainerInfo::default();
    own.linux.shares_cgroups = Some(false);
    let tasks = [("first", "cpus:0.5;mem:64"), ("second", "cpus:0.2;mem:32")];
    let tasks = tasks.map(|(name, resources)| {
        // The memory is that of the shell.
        let grow = "while [ ! -e grow ]; do sleep 0.05; done; a=x; while :; do a=$a$a; done";
        let mut info = task(name, &offer, resources, grow);
        info.container = Some(Box::new(own.clone()));
        if name == "first" {
            info.limits = TaskLimits {
                cpus: Some(Limit::Amount(1.5)),
                mem: Some(Limit::Amount(96.0)),
            };
        }
        info
    });
    let operation = Operation::LaunchGroup {
        executor: Box::new(executor),
        tasks: tasks.into(),
    };
    let accepted = (vec![offer.id], vec![operation]);
    isolated
        .framework
        .accept(accepted.0, accepted.1, Filters::default());
}

// Covers 5.4 in part: task groups; 5.5 in part: cgroups/cpu, cgroups/mem.
#[test]
fn tasks_of_a_group_have_their_own_limits() {
    let Some(mut isolated) = Isolated::begin("own", "", &["--cgroups_enable_cfs"]) else {
        return;
    };
    launch_group(&mut isolated);
    let statuses = ["first", "second"].map(|name| {
        let status = isolated.framework.state(name, TaskState::Running);
        container(&status)
    });
    let of = |id: &ContainerId, v1: &str, v2: &str| {
        let found = isolated
            .setting(id, v1)
            .or_else(|| isolated.setting(id, v2));
        found.unwrap_or_else(|| panic!("{id} has neither {v1} nor {v2}"))
    };
    let outer = statuses[0].outermost();
    let memory = |id: &ContainerId| of(id, "memory.limit_in_bytes", "memory.max");
    assert_eq!(memory(&statuses[0]), (96 << 20).to_string());
    assert_eq!(memory(&statuses[1]), (32 << 20).to_string());
    assert_eq!(
        memory(&outer),
        (32 << 20).to_string(),
        "that of the executor"
    );
    let quota = |id: &ContainerId| of(id, "cpu.cfs_quota_us", "cpu.max");
    assert!(quota(&statuses[0]).starts_with("150000"));
    assert!(quota(&statuses[1]).starts_with("20000"));
    // The kernel ends the one that exceeds its own limit, and its group follows.
    let sandbox = isolated.sandbox(&outer);
    let second = sandbox.join("containers").join(statuses[1].name());
    std::fs::write(second.join("grow"), "").expect("a file");
    let failed = isolated.framework.state("second", TaskState::Failed);
    let reason = protocol::Reason::ContainerLimitationMemory;
    assert_eq!(failed.reason, Some(reason), "{failed:?}");
    assert!(failed.message.contains("32MB"), "{}", failed.message);
    let killed = isolated.framework.state("first", TaskState::Killed);
    assert_ne!(killed.reason, Some(reason), "{killed:?}");
    isolated.leaves_nothing();
}

impl Isolated {
    /// The sandbox of a container that is not nested.
    fn sandbox(&self, container: &ContainerId) -> PathBuf {
        let mut directories = vec![self.cluster.directory().join("agent/slaves")];
        while let Some(directory) = directories.pop() {
            if directory.ends_with(Path::new("runs").join(container.as_str())) {
                return directory;
            }
            let entries = std::fs::read_dir(directory).expect("a directory").flatten();
            let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            directories.extend(inner.map(|entry| entry.path()));
        }
        panic!("{container} has no sandbox")
    }
}
