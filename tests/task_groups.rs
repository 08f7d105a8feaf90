//! Task groups (LAUNCH_GROUP) of a framework over HTTP, with real processes.

use serde_json::{Value, json};
use testkit::http::Endpoint;
use v1::Form;
use v1::schema::master::Call;

use crate::http_scheduler::{Offered, Scheduler, framework, value};
use crate::support::{Cluster, page};

fn executor(framework: &str) -> Value {
    let scalar = |name: &str, value: f64| json!({"name": name, "type": "SCALAR", "scalar": {"value": value}});
    json!({
        "type": "DEFAULT",
        "executor_id": {"value": "pod"},
        "framework_id": {"value": framework},
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0), scalar("disk", 1.0)],
    })
}

fn launch_group(offer: &Offered, executor: &Value, tasks: &[Value]) -> Value {
    json!({"type": "ACCEPT", "accept": {"offer_ids": [offer.0["id"]], "operations": [
        {"type": "LAUNCH_GROUP", "launch_group": {"executor": executor, "task_group": {"tasks": tasks}}},
    ]}})
}

/// The next status, acknowledged.
fn status(scheduler: &mut Scheduler) -> Value {
    let status = scheduler.events.wait("a status", |event| {
        let update = event.update.as_ref()?;
        Some(value(&update.status))
    });
    scheduler.acknowledge(&status);
    status
}

/// One that fails ends its group; all have the same executor, each a container of its own.
// Covers 2.2 ACCEPT; 5.12.
#[test]
fn a_group_runs_and_ends_together() {
    let cluster = Cluster::start(1, "cpus:2;mem:256;disk:100");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let tasks = [
        offer.task("server", "exec sleep 1000"),
        offer.task("helper", "until [ -e stop ]; do sleep 0.05; done; exit 3"),
    ];
    let executor = executor(&scheduler.id);
    scheduler.send(launch_group(&offer, &executor, &tasks));
    let mut running = Vec::new();
    while running.len() < 2 {
        let status = status(&mut scheduler);
        match status["state"].as_str() {
            Some("TASK_STARTING") => {}
            Some("TASK_RUNNING") => running.push(status),
            _ => panic!("{status}"),
        }
    }
    let container = |status: &Value| status["container_status"]["container_id"].clone();
    let containers: Vec<Value> = running.iter().map(container).collect();
    assert_ne!(containers[0]["value"], containers[1]["value"]);
    assert_eq!(containers[0]["parent"], containers[1]["parent"]);
    assert!(
        containers[0]["parent"]["value"].is_string(),
        "{containers:?}"
    );

    let page = page(cluster.port, "/frameworks");
    let shown = &page["frameworks"][0]["executors"][0];
    assert_eq!(shown["type"], "DEFAULT");
    assert_eq!(shown["command"], json!({"argv": [], "uris": []}));
    assert_eq!(page["frameworks"][0]["tasks"][0]["executor_id"], "pod");
    let call = v1::json::read::<Call>(br#"{"type": "GET_EXECUTORS"}"#, v1::Limits::default());
    let answer = Endpoint::new(cluster.port, "/api/v1").call(&call.expect("a call"));
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let info = &answer["get_executors"]["executors"][0]["executor_info"];
    assert_eq!(
        (&info["type"], info.get("command")),
        (&json!("DEFAULT"), None)
    );

    let sandbox = nested_sandbox(&cluster, containers, "helper", &running);
    std::fs::write(sandbox.join("stop"), "").expect("a sandbox");
    let mut ends = Vec::new();
    while ends.len() < 2 {
        let status = status(&mut scheduler);
        if status["state"] != "TASK_KILLING" {
            ends.push(format!(
                "{} {}",
                status["task_id"]["value"], status["state"]
            ));
        }
    }
    assert_eq!(
        ends,
        [r#""helper" "TASK_FAILED""#, r#""server" "TASK_KILLED""#]
    );
    let failure = scheduler
        .events
        .wait("its executor's end", |event| event.failure.clone());
    assert_eq!(failure.executor_id.expect("an executor").value, "pod");
}

/// The directory of a task's container.
fn nested_sandbox(
    cluster: &Cluster,
    containers: Vec<Value>,
    task: &str,
    running: &[Value],
) -> std::path::PathBuf {
    let position = running
        .iter()
        .position(|status| status["task_id"]["value"] == task);
    let id = containers[position.expect("the task")]["value"].as_str();
    let id = id.expect("an id").to_owned();
    let page = page(cluster.port + 1, "/state");
    let directory = page["frameworks"][0]["executors"][0]["directory"].as_str();
    std::path::Path::new(directory.expect("its sandbox"))
        .join("containers")
        .join(id)
}
