//! The examples do as their module comments claim, each in its own process against a real cluster.
//!
//! `tests/examples/failover.rs` is run by the failover tests.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use protocol::{ExecutorId, ExecutorInfo, Offer, TaskInfo, TaskState};
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, eventually, example, stderr, stdout};

fn run_framework(cluster: &Cluster, executor: Option<&Path>) -> Output {
    let mut command = Command::new(example("framework"));
    command
        .arg(&cluster.master)
        .arg(cluster.certs())
        .args(executor)
        .stdin(Stdio::null());
    command.output_in_time().expect("the example runs")
}

#[test]
fn example_framework_runs_three_tasks_and_reports_them() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = run_framework(&cluster, None);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for number in 1..=3 {
        for state in ["TASK_RUNNING", "TASK_FINISHED"] {
            let line = format!("line-{number} is {state}");
            assert!(text.contains(&line), "no `{line}` in {text}");
        }
    }
    assert_contains!(text, "all tasks have ended, 0 unsuccessfully");
    let frameworks = cluster.list("frameworks");
    let here = |framework: &serde_json::Value| framework["active"] == true;
    assert!(!frameworks.iter().any(here), "it has left: {frameworks:?}");
}

#[test]
fn example_framework_works_with_the_example_executor() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = run_framework(&cluster, Some(&example("executor")));
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for number in 1..=3 {
        let line = format!("poet says: THIS IS LINE-{number}");
        assert!(text.contains(&line), "no `{line}` in {text}");
    }
}

#[test]
fn example_executor_runs_two_tasks_and_answers_a_message() {
    let cluster = Cluster::start(1, "cpus:2;mem:256;disk:0;ports:[]");
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let offer = scripted.offer();
    let executor = poet(&offer);
    let tasks = vec![
        line("first", &offer, &executor),
        line("second", &offer, &executor),
    ];
    scripted.launch(&offer, tasks);
    for name in ["first", "second"] {
        scripted.state(name, TaskState::Finished);
    }
    let containers: Vec<_> = ["first", "second"]
        .map(|name| container(&scripted, name))
        .into();
    assert!(containers[0].is_some());
    assert_eq!(containers[0], containers[1], "one container ran both");
    while messages(&scripted).len() < 2 {
        scripted.wait_for("what the executor says", |callback| {
            matches!(callback, Callback::Message(..)).then_some(())
        });
    }
    assert_eq!(messages(&scripted), ["THIS IS FIRST", "THIS IS SECOND"]);

    let asked = scripted.driver.message(
        offer.agent_id.clone(),
        executor.executor_id.clone(),
        b"are you there?".to_vec(),
    );
    asked.expect("the driver hears");
    scripted.wait_for("the answer to a message", |callback| match callback {
        Callback::Message(from, data) if data == b"are you there?" => {
            assert_eq!(*from, executor.executor_id);
            Some(())
        }
        _ => None,
    });
    let used = cluster.list("agents").remove(0)["used_resources"]["cpus"].as_f64();
    assert_eq!(
        used,
        Some(0.1),
        "its tasks are over, the executor itself is not"
    );

    drop(scripted);
    eventually("the executor to have ended with its framework", || {
        let agent = cluster.list("agents").remove(0);
        (agent["used_resources"]["cpus"].as_f64() == Some(0.0)).then_some(())
    });
}

/// The example executor, on a part of this offer.
fn poet(offer: &Offer) -> ExecutorInfo {
    let own = task("any", offer, "cpus:0.1;mem:16", "");
    let program = example("executor").to_string_lossy().into_owned();
    ExecutorInfo {
        name: "poet".to_owned(),
        ..ExecutorInfo::new(
            ExecutorId::new("poet").expect("an id"),
            protocol::CommandInfo::program(program, []),
            own.resources,
        )
    }
}

/// A task for it.
fn line(name: &str, offer: &Offer, executor: &ExecutorInfo) -> TaskInfo {
    TaskInfo {
        command: None,
        executor: Some(executor.clone()),
        data: format!("this is {name}").into_bytes(),
        ..task(name, offer, "cpus:0.5;mem:16", "")
    }
}

/// The container id in a task's last status.
fn container(scripted: &ScriptedFramework, name: &str) -> Option<protocol::ContainerId> {
    let mut named = scripted
        .past
        .iter()
        .rev()
        .filter_map(|(_, callback)| match callback {
            Callback::Status(status) if status.task_id.as_str() == name => {
                status.container_id.clone()
            }
            _ => None,
        });
    named.next()
}

/// The messages of executors so far.
fn messages(scripted: &ScriptedFramework) -> Vec<String> {
    let words = scripted
        .past
        .iter()
        .filter_map(|(_, callback)| match callback {
            Callback::Message(_, data) => Some(String::from_utf8_lossy(data).into_owned()),
            _ => None,
        });
    words.collect()
}
