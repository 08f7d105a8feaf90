//! Two schedulers of one framework, killed in turn: what they were to do is done once (S134).

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

/// The silence of a process that was killed is noticed after the transport's idle timeout of 30 seconds: then the other leads.
// Covers S134.
#[test]
fn two_schedulers_that_are_killed_in_turn_lose_no_task_and_double_none() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut first = scheduler(&cluster);
    first.line("that it leads", |line| line.starts_with("leading "));
    let mut second = scheduler(&cluster);
    second.line("that it waits", |line| line.starts_with("standing by for "));
    finishes(&mut first, 3);
    first.signal("KILL");
    first.wait();

    second.line("that it leads", |line| line.starts_with("leading "));
    // The third end was heard; whether it was written down as well, nobody knows. If not, it is told again.
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

/// S131, S134: the master that would have told the standby dies together with the scheduler that led; the next one, which learns from the registry
/// who led, tells it.
#[test]
fn a_standby_takes_over_when_the_leading_scheduler_and_the_leading_master_are_killed_together() {
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
