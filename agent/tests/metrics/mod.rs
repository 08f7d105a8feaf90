//! The metrics of an agent: their names, and their values after an executor has ended.

use super::*;

/// The metrics of SPEC 5.11 that an agent has; the others are listed in
/// `runtime/v1/docs/pages-and-metrics.md`.
fn names() -> Vec<String> {
    let own = "uptime_secs registered recovery_errors frameworks_active valid_status_updates invalid_status_updates \
        valid_framework_messages invalid_framework_messages container_launch_errors";
    let tasks = "staging starting running killing finished failed killed lost gone";
    let executors = "registering running terminating terminated preempted";
    let machine = "cpus_total load_1min load_5min load_15min mem_total_bytes mem_free_bytes";
    let words = |words: &'static str, before: &'static str| {
        let words = words.split_whitespace();
        words.map(move |word| format!("{before}{word}"))
    };
    let mut all: Vec<String> = words(own, "slave/")
        .chain(words(tasks, "slave/tasks_"))
        .chain(words(executors, "slave/executors_"))
        .chain(words(machine, "system/"))
        .collect();
    for kind in ["cpus", "gpus", "mem", "disk"] {
        for lent in ["", "_revocable"] {
            let figures = ["total", "used", "percent"];
            all.extend(figures.map(|figure| format!("slave/{kind}{lent}_{figure}")));
        }
    }
    all
}

/// SPEC 5.11.
// Covers 5.11 Metrics of agents.
#[test]
fn metrics_have_mesos_names_and_skip_ended_executors() {
    let behavior = MasterBehavior {
        acknowledges: false,
        ..MasterBehavior::default()
    };
    let options = FixtureOptions {
        behavior,
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        let (_executor, _) = world.executor(0).await;
        let routes = routes(&world);
        let metrics = async || {
            let (status, text) =
                fetch(&routes, request("GET", "/metrics/snapshot", JSON, "")).await;
            assert_eq!(status, 200, "{text}");
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let busy = metrics().await;
        let missing: Vec<String> = names()
            .into_iter()
            .filter(|name| !busy[name].is_number())
            .collect();
        assert!(missing.is_empty(), "{missing:?} in {busy}");
        let coverage = |metrics: &Value| {
            [
                "tasks_running",
                "executors_running",
                "cpus_used",
                "cpus_percent",
                "mem_used",
            ]
            .map(|name| metrics[format!("slave/{name}")].as_f64().unwrap())
        };
        assert_eq!(coverage(&busy), [1.0, 1.0, 0.2, 0.05, 64.0]);
        world
            .launcher
            .exit(world.launcher.container(0), Termination::Exited(0));
        world.settle().await;
        let after = metrics().await;
        assert_eq!(after["slave/tasks_failed"], 1.0);
        assert_eq!(after["slave/executors_terminated"], 1.0);
        // Its task's end is unacknowledged, so the container is still there.
        assert!(!world.agent.survey().await.unwrap().containers.is_empty());
        assert_eq!(coverage(&after), [0.0; 5]);
    });
}
