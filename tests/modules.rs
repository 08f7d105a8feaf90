//! Module parameters of the real binary: each has its effect, and invalid ones stop the start.

use protocol::{Reason, TaskState};
use serde_json::{Value, json};
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task, text};
use crate::support::{Cluster, eventually, meros, signal, sleepers, stderr, stdout};

/// `--modules` that gives these parameters to a module that is linked in.
fn given(module: &str, parameters: &[(&str, &str)]) -> String {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect();
    json!({ "libraries": { "modules": { "name": module, "parameters": parameters } } }).to_string()
}

// Covers S97.
#[test]
fn allocator_parameter_sets_the_minimum_offer() {
    let modules = given(
        "HierarchicalDRF",
        &[("min_allocatable_resources", "cpus:2|disk:64")],
    );
    let cluster = Cluster::with(
        1,
        &[
            "--allocator=HierarchicalDRF",
            "--resources=cpus:1;mem:512;disk:0;ports:[]",
            "--modules",
            &modules,
        ],
    );
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("web", "*"));
    let why = eventually("an explanation of one agent", || {
        let output = cluster.output(["explain", "web"]);
        let text = stdout(&output);
        text.contains("1 agent").then_some(text)
    });
    assert_contains!(why, "1 agent: below the minimum of an offer");
    let _big = cluster.agent("big", "cpus:2;mem:1;disk:0;ports:[]");
    assert_eq!(text(&scripted.offer()), "cpus:2;mem:1");
    let _disk = cluster.agent("disk", "cpus:1;mem:1;disk:64;ports:[]");
    assert_eq!(text(&scripted.offer()), "cpus:1;mem:1;disk:64");
}

// Covers S97.
#[test]
fn invalid_module_parameter_stops_the_start() {
    let refused = |verb: &str, modules: &str, flags: &[&str]| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = meros([verb, "--ip=127.0.0.1", "--modules", modules]);
        if verb == "local" {
            command = meros([verb, "--modules", modules]);
        }
        command.args(["--port=0"].iter().filter(|_| verb == "master"));
        command.arg("--work_dir").arg(directory.path()).args(flags);
        let made = meros(["certs", "--dir"]).arg(directory.path()).output();
        assert!(made.expect("meros runs").status.success());
        command.env("MEROS_CERTS", directory.path());
        let output = command.output_in_time().expect("meros runs");
        assert!(!output.status.success(), "{}", stdout(&output));
        stderr(&output)
    };
    for (module, parameter, flags, expected) in [
        (
            "hierarchical",
            ("agent_order", "sideways"),
            &[][..],
            "module `hierarchical`, parameter `agent_order` is `sideways`: expected random or tightest_first",
        ),
        (
            "hierarchical",
            ("min_allocatable", "cpus:1"),
            &[],
            "module `hierarchical`, parameter `min_allocatable` is given: expected only min_allocatable_resources",
        ),
        (
            "random",
            ("seed", "-1"),
            &["--sorter=random"],
            "module `random`, parameter `seed` is `-1`: expected a whole number from 0 on",
        ),
        (
            "drf",
            ("fair_sharing_excluded_resource_names", "gpus,;"),
            &[],
            "module `drf`, parameter `fair_sharing_excluded_resource_names` is `gpus,;`: expected names of resources",
        ),
    ] {
        for verb in ["master", "local"] {
            let error = refused(verb, &given(module, &[parameter]), flags);
            assert!(error.contains(expected), "{verb}: {error}");
        }
    }
}

/// A real agent kills an executor that ignores a kill, and with it the revoked task.
// Covers S122.
#[test]
fn executor_ignoring_a_revocation_kill_is_killed() {
    let modules = given(
        "hierarchical",
        &[
            ("revoke_after", "1secs"),
            ("revocation_grace_period", "1secs"),
        ],
    );
    let cluster = Cluster::with(
        1,
        &[
            "--resources=cpus:2;mem:256;disk:0;ports:[]",
            "--executor_shutdown_grace_period=1secs",
            "--modules",
            &modules,
        ],
    );
    let mut borrower = ScriptedFramework::subscribe(&cluster, framework("borrower", "b"));
    let offer = borrower.offer();
    let launched = task("t", &offer, "cpus:2;mem:256", "exec sleep 86122");
    borrower.launch(&offer, vec![launched]);
    borrower.state("t", TaskState::Running);
    let sleeper = eventually("the task's process", || sleepers(86122).first().copied());
    let executor = parent(sleeper);
    // It receives no more messages and does not exit by itself.
    signal(executor, "STOP");

    let guarantee = ["quota", "set", "a", "--guarantee", "cpus:2;mem:256"];
    let set = cluster.output(guarantee);
    assert!(set.status.success(), "{}", stderr(&set));
    let mut owner = ScriptedFramework::subscribe(&cluster, framework("owner", "a"));
    let offer = owner.offer();
    assert_eq!(text(&offer), "cpus:2;mem:256");

    let warned = borrower.wait_for("a warning", |callback| match callback {
        Callback::Revoked(revoked) => Some(revoked.clone()),
        _ => None,
    });
    assert_eq!(warned.role.as_deref(), Some("a"), "{warned:?}");
    let ended = borrower.wait_for("its end", |callback| match callback {
        Callback::Status(status) if status.state.is_terminal() => Some((**status).clone()),
        _ => None,
    });
    assert_eq!(ended.task_id.as_str(), "t");
    assert_eq!(ended.reason, Some(Reason::ContainerPreempted), "{ended:?}");
    for process in [sleeper, executor] {
        eventually("both processes to be gone", || {
            (!exists(process)).then_some(())
        });
    }
}

/// The parent of a process.
fn parent(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|id| id.trim().parse().ok())
        .expect("a parent")
}

fn exists(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}
