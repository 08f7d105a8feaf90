//! Masters are killed, stopped and restarted under a load of launches: no task is lost or
//! duplicated, and ids stay.
//!
//! A task that was in flight when its master died may become `TASK_LOST`; then it never ran.

use std::time::Duration;

use protocol::TaskState;

use crate::group::Group;
use crate::load::Load;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, stderr};

/// Default number of leader kills.
const KILLS: u32 = 20;

fn kills() -> u32 {
    let value = std::env::var("MEROS_TEST_KILLS").ok();
    value.map_or(KILLS, |value| {
        value.parse().expect("MEROS_TEST_KILLS is a number")
    })
}

/// Two agents, with room for two tasks of a load each.
fn two_agents(group: &Group) -> [Running; 2] {
    ["one", "two"].map(|name| group.cluster.agent(name, "cpus:1;mem:64;disk:0;ports:[]"))
}

/// Every launched task ends once, whichever masters die.
// Covers S131; P7; S132.
#[test]
fn leader_is_killed_under_load_without_task_loss() {
    leaders_are_killed(Group::start(), kills());
}

/// With `--lease_reads` a leader answers registry reads locally during its lease.
#[test]
fn lease_reading_leader_is_killed_without_task_loss() {
    let group = Group::start_with(|directory, addresses, index| {
        let mut command = Cluster::master_of_three(directory, addresses, index);
        command.arg("--lease_reads");
        command
    });
    leaders_are_killed(group, 3);
}

fn leaders_are_killed(mut group: Group, times: u32) {
    let _agents = two_agents(&group);
    let agents = group.agents();
    let load = Load::start(&group.cluster);
    for round in 0..times {
        let leader = group.leader();
        group.process(leader).signal("KILL");
        group.process(leader).wait();
        load.wait_for_progress();
        group.start_again(leader);
        eprintln!("round {round}: master {leader} was killed");
    }
    assert!(load.finish() > 1, "it was subscribed by several masters");
    eventually("both agents to be back under their ids", || {
        (group.agents() == agents).then_some(())
    });
}

/// A resumed old leader redirects to the new one, and commits made meanwhile stand.
#[test]
fn resumed_old_leader_undoes_no_commit() {
    let mut group = Group::start();
    let _agents = two_agents(&group);
    let load = Load::start(&group.cluster);
    let frozen = group.leader();
    group.process(frozen).signal("STOP");
    let next = group.leader_of(&group.others(frozen));
    load.wait_for_progress();
    // One that only the others have agreed on.
    let _late = group
        .cluster
        .agent("late", "cpus:0.1;mem:16;disk:0;ports:[]");
    let agents = group.agents();
    assert_eq!(agents.len(), 3, "{agents:?}");

    group.process(frozen).signal("CONT");
    group.wait_until_follower(frozen);
    let address = group.addresses[frozen].clone();
    let asked = group
        .cluster
        .output(["agents", "--json", "--master", &address]);
    assert!(asked.status.success(), "{}", stderr(&asked));
    let listed: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    let listed = listed.as_array().map(Vec::len);
    assert_eq!(
        listed,
        Some(3),
        "it leads whoever asks to the one that knows"
    );
    assert!(group.leads(next), "the one that was elected leads still");

    // The resumed master catches up: once the new leader is killed, it is needed for a majority.
    group.process(next).signal("KILL");
    group.process(next).wait();
    load.wait_for_progress();
    load.finish();
    eventually("all agents to be back under their ids", || {
        (group.agents() == agents).then_some(())
    });
}

/// Each master gets SIGTERM, and the leader hands over first.
#[test]
fn rolling_restart_of_masters_loses_nothing() {
    let mut group = Group::start();
    let _agents = two_agents(&group);
    let agents = group.agents();
    let load = Load::start(&group.cluster);

    for index in 0..3 {
        let led = group.leads(index);
        group.process(index).signal("TERM");
        let status = group.process(index).wait();
        assert!(status.success(), "{status}: {}", group.log_text(index));
        if led {
            group.leader_of(&group.others(index));
        }
        group.start_again(index);
        group.wait_until_back(index);
        load.wait_for_progress();
    }

    load.finish();
    assert_eq!(group.agents(), agents);
}

/// Agent, scheduler and verbs each know only one follower, and the leader dies.
// Covers W6.
#[test]
fn clients_find_the_leader_through_a_follower() {
    let mut group = Group::start();
    let leader = group.leader();
    let [known, _] = group.others(leader);
    group.wait_until_follower(known);
    group.cluster.master.clone_from(&group.addresses[known]);
    let _agent = group
        .cluster
        .agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let agents = group.agents();
    let mut info = framework("owner", "*");
    info.failover_timeout = Duration::from_secs(300);
    let mut scripted = ScriptedFramework::subscribe(&group.cluster, info);
    let runs = |scripted: &mut ScriptedFramework, name: &str| {
        let offer = scripted.offer();
        let task = task(name, &offer, "cpus:1;mem:64", "true");
        scripted.launch(&offer, vec![task]);
        scripted.state(name, TaskState::Finished);
    };
    runs(&mut scripted, "one");

    group.process(leader).signal("KILL");
    group.process(leader).wait();
    scripted.wait_for("its new subscription", |callback| match callback {
        Callback::Subscribed(_) => Some(()),
        _ => None,
    });
    runs(&mut scripted, "two");
    for address in group
        .others(leader)
        .map(|index| group.addresses[index].clone())
    {
        group.cluster.master = address;
        eventually("the agent to be back under its id", || {
            (group.agents() == agents).then_some(())
        });
    }
}
