//! Masters that are killed, stopped and restarted under a load of launches: no task is lost or doubled, and nobody gets another id.
//!
//! What may be said of a task that was on its way when its master died is `TASK_LOST`, and then it never ran.

use std::time::Duration;

use protocol::TaskState;

use crate::group::Group;
use crate::load::Load;
use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{Cluster, Running, eventually, stderr};

/// How many times the leader is killed, if it is not said otherwise.
const KILLS: u32 = 20;

fn kills() -> u32 {
    let said = std::env::var("MEROS_TEST_KILLS").ok();
    said.map_or(KILLS, |said| {
        said.parse().expect("MEROS_TEST_KILLS is a number")
    })
}

/// Two agents, with room for two tasks of a load each.
fn two_agents(group: &Group) -> [Running; 2] {
    ["one", "two"].map(|name| group.cluster.agent(name, "cpus:1;mem:64;disk:0;ports:[]"))
}

/// S131, S132: as many tasks as the load launches end once, whatever dies in between.
// Covers S131; P7; S132.
#[test]
fn the_leader_is_killed_under_a_load_of_launches_and_no_task_is_lost_or_doubled() {
    leaders_are_killed(Group::start(), kills());
}

/// With `--lease_reads` a leader answers reads of the registry by itself for a while, and no longer than it leads.
#[test]
fn leaders_of_a_group_that_reads_from_leases_are_killed_and_no_task_is_lost_or_doubled() {
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
        load.goes_on();
        group.start_again(leader);
        eprintln!("round {round}: master {leader} was killed");
    }
    assert!(load.finish() > 1, "it was subscribed by several masters");
    eventually("both agents to be back under their ids", || {
        (group.agents() == agents).then_some(())
    });
}

/// A leader that was frozen wakes up, finds that another leads, and says so to whoever asks; what was agreed on meanwhile stands.
#[test]
fn a_leader_that_was_frozen_wakes_up_behind_the_others_and_takes_nothing_back() {
    let mut group = Group::start();
    let _agents = two_agents(&group);
    let load = Load::start(&group.cluster);
    let frozen = group.leader();
    group.process(frozen).signal("STOP");
    let next = group.leader_of(&group.others(frozen));
    load.goes_on();
    // One that only the others have agreed on.
    let _late = group
        .cluster
        .agent("late", "cpus:0.1;mem:16;disk:0;ports:[]");
    let agents = group.agents();
    assert_eq!(agents.len(), 3, "{agents:?}");

    group.process(frozen).signal("CONT");
    group.follows(frozen);
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

    // The one that woke up has what it missed, or gets it: with the third it is a majority.
    group.process(next).signal("KILL");
    group.process(next).wait();
    load.goes_on();
    load.finish();
    eventually("all agents to be back under their ids", || {
        (group.agents() == agents).then_some(())
    });
}

/// Each is stopped in good order, and the one that leads hands over first.
#[test]
fn a_rolling_restart_of_all_masters_under_load_loses_nothing() {
    let mut group = Group::start();
    let _agents = two_agents(&group);
    let agents = group.agents();
    let load = Load::start(&group.cluster);

    for index in 0..3 {
        let led = group.leads(index);
        group.process(index).signal("TERM");
        let status = group.process(index).wait();
        assert!(status.success(), "{status}: {}", group.said(index));
        if led {
            group.leader_of(&group.others(index));
        }
        group.start_again(index);
        group.is_back(index);
        load.goes_on();
    }

    load.finish();
    assert_eq!(group.agents(), agents);
}

/// W6: agent, scheduler and verbs each know one master, which does not lead, and the one that does dies.
// Covers W6.
#[test]
fn whoever_is_given_only_a_master_that_does_not_lead_finds_the_one_that_does() {
    let mut group = Group::start();
    let leader = group.leader();
    let [known, _] = group.others(leader);
    group.follows(known);
    group.cluster.master.clone_from(&group.addresses[known]);
    let _agent = group
        .cluster
        .agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let agents = group.agents();
    let mut info = framework("owner", "*");
    info.failover_timeout = Duration::from_secs(300);
    let mut puppet = Puppet::subscribe(&group.cluster, info);
    let runs = |puppet: &mut Puppet, name: &str| {
        let offer = puppet.offer();
        let task = task(name, &offer, "cpus:1;mem:64", "true");
        let launched = puppet.driver.launch(vec![offer.id.clone()], vec![task]);
        launched.expect("the driver hears");
        puppet.state(name, TaskState::Finished);
    };
    runs(&mut puppet, "one");

    group.process(leader).signal("KILL");
    group.process(leader).wait();
    puppet.hear("its new subscription", |heard| match heard {
        Heard::Subscribed(_) => Some(()),
        _ => None,
    });
    runs(&mut puppet, "two");
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
