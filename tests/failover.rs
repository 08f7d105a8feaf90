//! Who dies comes back: frameworks, agents and the master are killed without a word, and what they left is taken over or ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::{FrameworkInfo, Reason, TaskState};

use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{Cluster, Running, eventually, example, sleepers, stderr};

/// Starts the worked framework that keeps its id in a file.
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
fn a_killed_framework_that_comes_back_in_time_has_its_tasks_still() {
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

/// The silence of a process that was killed is noticed after the transport's idle timeout of 30 seconds; only then its time begins.
#[test]
fn a_killed_framework_that_stays_away_too_long_is_over_and_its_tasks_end() {
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

/// S133: the framework is told of the task and of the agent, and decides what follows.
// Covers S133.
#[test]
fn a_killed_agent_that_is_started_again_is_of_use_and_its_old_processes_are_gone() {
    let cluster = Cluster::with(0, &[]);
    let mut command = cluster.agent_command("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut agent = cluster.agent_of(&mut command);
    let mut puppet = Puppet::subscribe(&cluster, lasting("owner"));
    let offer = puppet.offer();
    let old = task(
        "old",
        &offer,
        "cpus:2;mem:256",
        "setsid sleep 98743 & sleep 98743",
    );
    let launched = puppet.driver.launch(vec![offer.id.clone()], vec![old]);
    launched.expect("the driver hears");
    puppet.state("old", TaskState::Running);
    both_run(98743);

    agent.signal("KILL");
    agent.wait();
    gone(98743);
    let _agent = Running::start(&mut command);
    let lost = puppet.state("old", TaskState::Lost);
    assert_eq!(lost.reason, Some(Reason::AgentRemoved), "{lost:?}");
    let agent = puppet.hear("the loss of the agent", |heard| match heard {
        Heard::Lost(lost) => Some(lost.agent_id.clone()),
        _ => None,
    });
    assert_eq!(agent, offer.agent_id);
    drop(puppet); // It is offered the agent again, and would keep it.
    let run = cluster.output(["run", "--", "true"]);
    assert!(run.status.success(), "{}", stderr(&run));
}

/// S131: agents and schedulers find the master again and fill its state.
// Covers S131.
#[test]
fn a_killed_master_that_is_started_again_finds_everybody_and_every_task() {
    let mut cluster = Cluster::master_alone(|_, _| {});
    let _agent = cluster.agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut puppet = Puppet::subscribe(&cluster, lasting("owner"));
    let offer = puppet.offer();
    let task = task("steady", &offer, "cpus:1;mem:64", "sleep 98744");
    let launched = puppet.driver.launch(vec![offer.id.clone()], vec![task]);
    launched.expect("the driver hears");
    puppet.state("steady", TaskState::Running);
    let process = process(98744);
    let agents = ids(&cluster);

    cluster.kill_and_restart_master();
    let id = puppet.hear("its new subscription", |heard| match heard {
        Heard::Subscribed(id) => Some(id.clone()),
        _ => None,
    });
    assert_eq!(id, puppet.id, "the registry has kept it");
    eventually("the agent to be back under its id", || {
        (ids(&cluster) == agents).then_some(())
    });
    assert_eq!(sleepers(98744), [process], "the task has not noticed");

    let asked = puppet.driver.reconcile(Vec::new());
    asked.expect("the driver hears");
    // Its agent may also send again what was not acknowledged when the master died.
    let status = puppet.hear("the answer", |heard| match heard {
        Heard::Status(status) if status.reason == Some(Reason::Reconciliation) => {
            Some((**status).clone())
        }
        _ => None,
    });
    assert_eq!(status.state, TaskState::Running, "{status:?}");
    let kill = puppet.driver.kill(status.task_id, None);
    kill.expect("the driver hears");
    puppet.state("steady", TaskState::Killed);
    gone(98744);
}

/// The one process that sleeps so long.
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

/// A framework that may be away for five minutes.
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
