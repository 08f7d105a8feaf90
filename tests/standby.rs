//! Two schedulers of one framework are killed alternately; each task runs once.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::group::Group;
use crate::support::{Cluster, Running, example};

const TASKS: usize = 12;

/// One of the schedulers of the worked framework, which writes a line for each task that has run.
fn scheduler(cluster: &Cluster) -> Running {
    let done = cluster.directory().join("done");
    let command = format!("sleep 0.2; echo $MESOS_EXECUTOR_ID >> {}", done.display());
    Running::start(
        Command::new(example("standby"))
            .arg(&cluster.master)
            .arg(cluster.certs())
            .args([&TASKS.to_string(), &command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
}

fn finishes(scheduler: &mut Running, tasks: usize) {
    for _ in 0..tasks {
        scheduler.line("that a task has finished", |line| {
            line.ends_with("is TASK_FINISHED")
        });
    }
}

/// A killed process is detected after the transport's idle timeout of 30 seconds; then the standby
/// leads.
// Covers S134.
#[test]
fn alternating_scheduler_kills_lose_and_duplicate_no_task() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut first = scheduler(&cluster);
    first.line("that it leads", |line| line.starts_with("leading "));
    let mut second = scheduler(&cluster);
    second.line("that it waits", |line| line.starts_with("standing by for "));
    finishes(&mut first, 3);
    first.signal("KILL");
    first.wait();

    second.line("that it leads", |line| line.starts_with("leading "));
    // The third end was received but may not have been persisted; then it is sent again.
    second.line("what was done", |line| line.starts_with("progress ##"));
    let mut third = scheduler(&cluster);
    third.line("that it waits", |line| line.starts_with("standing by for "));
    finishes(&mut second, 3);
    second.signal("KILL");
    second.wait();

    third.line("that it leads", |line| line.starts_with("leading "));
    let mut last = scheduler(&cluster);
    last.line("that it waits", |line| line.starts_with("standing by for "));
    third.line("the end", |line| line == "all 12 tasks have finished");
    assert!(third.wait().success());
    assert!(last.wait().success(), "a standby ends with its framework");

    let done = std::fs::read_to_string(cluster.directory().join("done")).expect("lines");
    let ran: BTreeSet<&str> = done.lines().collect();
    assert_eq!((done.lines().count(), ran.len()), (TASKS, TASKS), "{done}");
}

/// The master that would notify the standby dies together with the leading scheduler; the next one
/// learns the leading scheduler from the registry.
#[test]
fn standby_takes_over_after_scheduler_and_master_die() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut first = scheduler(&group.cluster);
    first.line("that it leads", |line| line.starts_with("leading "));
    let mut second = scheduler(&group.cluster);
    second.line("that it waits", |line| line.starts_with("standing by for "));
    finishes(&mut first, 3);
    let leader = group.leader();
    first.signal("KILL");
    group.process(leader).signal("KILL");
    first.wait();
    group.process(leader).wait();

    second.line("that it leads", |line| line.starts_with("leading "));
    group.start_again(leader);
    second.line("the end", |line| line == "all 12 tasks have finished");
    assert!(second.wait().success());
    let done = std::fs::read_to_string(group.cluster.directory().join("done")).expect("lines");
    let ran: BTreeSet<&str> = done.lines().collect();
    assert_eq!((done.lines().count(), ran.len()), (TASKS, TASKS), "{done}");
}
