//! Frameworks, agents and masters are killed with SIGKILL; their tasks are recovered or ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::{FrameworkInfo, Reason, TaskState};

use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, example, sleepers, stderr};

/// Starts the example framework that keeps its id in a file.
fn keeper(cluster: &Cluster, seconds: u32, command: &str) -> Running {
    Running::start(
        Command::new(example("failover"))
            .arg(&cluster.master)
            .arg(cluster.certs())
            .arg(id_file(cluster.directory()))
            .args([&seconds.to_string(), command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
}

fn id_file(directory: &Path) -> PathBuf {
    directory.join("keeper.id")
}

// Covers S133.
#[test]
fn framework_back_within_its_timeout_keeps_its_tasks() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut first = keeper(&cluster, 300, "sleep 98741");
    let subscribed = first.line("its id", |line| line.starts_with("subscribed as "));
    first.line("that the task runs", |line| line.contains("TASK_RUNNING"));
    let process = process(98741);
    first.signal("KILL");
    first.wait();

    let mut second = keeper(&cluster, 300, "never launched");
    let again = second.line("its id", |line| line.starts_with("subscribed as "));
    assert_eq!(again, subscribed, "the master knows it again");
    second.line("how its task is", |line| {
        line.starts_with("kept is TASK_RUNNING")
    });
    assert_eq!(sleepers(98741), [process], "the same process");

    assert!(cluster.output(["kill", "kept"]).status.success());
    second.line("its task's end", |line| line.contains("TASK_KILLED"));
    assert!(second.wait().success());
    gone(98741);
}

/// A killed process is detected after the transport's idle timeout of 30 seconds; only then does
/// its failover timeout begin.
#[test]
fn framework_away_beyond_its_timeout_is_removed() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut first = keeper(&cluster, 1, "setsid sleep 98742 & sleep 98742");
    first.line("that the task runs", |line| line.contains("TASK_RUNNING"));
    both_run(98742);
    first.signal("KILL");
    first.wait();
    gone(98742);
    let mut late = keeper(&cluster, 1, "never launched");
    late.line("that it is refused", |line| {
        line.starts_with("framework failed") && line.contains("has been removed")
    });
    assert!(!late.wait().success());
    let run = cluster.output(["run", "--", "true"]);
    assert!(run.status.success(), "{}", stderr(&run));
}

/// The framework is notified of the lost task and agent, and decides how to continue.
// Covers S133.
#[test]
fn restarted_agent_is_usable_and_old_processes_are_gone() {
    let cluster = Cluster::with(0, &[]);
    let mut command = cluster.agent_command("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut agent = cluster.agent_of(&mut command);
    let mut scripted = ScriptedFramework::subscribe(&cluster, lasting("owner"));
    let offer = scripted.offer();
    let old = task(
        "old",
        &offer,
        "cpus:2;mem:256",
        "setsid sleep 98743 & sleep 98743",
    );
    scripted.launch(&offer, vec![old]);
    scripted.state("old", TaskState::Running);
    both_run(98743);

    agent.signal("KILL");
    agent.wait();
    gone(98743);
    let _agent = Running::start(&mut command);
    let lost = scripted.state("old", TaskState::Lost);
    assert_eq!(lost.reason, Some(Reason::Reconciliation), "{lost:?}");
    assert_eq!(lost.agent_id, Some(offer.agent_id));
    drop(scripted); // It is offered the agent again, and would keep it.
    let run = cluster.output(["run", "--", "true"]);
    assert!(run.status.success(), "{}", stderr(&run));
}

/// Agents and schedulers find the master again and restore its state.
// Covers S131.
#[test]
fn restarted_master_recovers_agents_frameworks_and_tasks() {
    let mut cluster = Cluster::master_alone(|_, _| {});
    let _agent = cluster.agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut scripted = ScriptedFramework::subscribe(&cluster, lasting("owner"));
    let offer = scripted.offer();
    let task = task("steady", &offer, "cpus:1;mem:64", "sleep 98744");
    scripted.launch(&offer, vec![task]);
    scripted.state("steady", TaskState::Running);
    let process = process(98744);
    let agents = ids(&cluster);

    cluster.kill_and_restart_master();
    let id = scripted.wait_for("its new subscription", |callback| match callback {
        Callback::Subscribed(id) => Some(id.clone()),
        _ => None,
    });
    assert_eq!(id, scripted.id, "the registry has kept it");
    eventually("the agent to be back under its id", || {
        (ids(&cluster) == agents).then_some(())
    });
    assert_eq!(sleepers(98744), [process], "the task has not noticed");

    let asked = scripted.driver.reconcile(Vec::new());
    asked.expect("the driver hears");
    // The agent may also resend updates that were unacknowledged when the master died.
    let status = scripted.wait_for("the answer", |callback| match callback {
        Callback::Status(status) if status.reason == Some(Reason::Reconciliation) => {
            Some((**status).clone())
        }
        _ => None,
    });
    assert_eq!(status.state, TaskState::Running, "{status:?}");
    scripted.kill(status.task_id);
    scripted.state("steady", TaskState::Killed);
    gone(98744);
}

/// The only process `sleep SECONDS`.
fn process(seconds: u32) -> u32 {
    // A task runs as soon as it is forked; the shell becomes `sleep` a little later.
    let found = eventually("the task's process", || sleepers(seconds).first().copied());
    assert_eq!(sleepers(seconds), [found]);
    found
}

fn gone(seconds: u32) {
    eventually("the task's processes to be gone", || {
        sleepers(seconds).is_empty().then_some(())
    });
}

/// A task runs from when its shell does: what the shell starts comes later.
fn both_run(seconds: u32) {
    eventually("both the task's processes", || {
        (sleepers(seconds).len() == 2).then_some(())
    });
}

/// A framework with a failover timeout of five minutes.
fn lasting(name: &str) -> FrameworkInfo {
    let mut info = framework(name, "*");
    info.failover_timeout = Duration::from_secs(300);
    info
}

/// The active agents' ids.
fn ids(cluster: &Cluster) -> Vec<String> {
    let agents = cluster.list("agents");
    let active = agents.iter().filter(|agent| agent["active"] == true);
    active.map(|agent| agent["id"].to_string()).collect()
}
