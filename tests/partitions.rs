//! Masters in separate network namespaces on one bridge, with partial partitions.
//!
//! Each test runs in its own namespaces (see `machine`) or is skipped. Loss and reordering are
//! tested in the simulator.

use crate::group::Group;
use crate::load::Load;
use crate::machine::{Net, inside, on};
use crate::support::{Cluster, Running, eventually, meros};

/// Three masters on three machines; the rest runs on the test's machine.
struct SeparateMachines {
    net: Net,
    group: Group,
    _agent: Running,
}

impl SeparateMachines {
    fn start() -> Self {
        let net = Net::of(3);
        let holders = net.holders();
        let addresses = (0..3).map(|index| format!("{}:5050", Net::ip(index)));
        let group = Group::at(addresses.collect(), move |directory, addresses, index| {
            let command = Cluster::master_of_three(directory, addresses, index);
            on(holders[index], &command)
        });
        let mut agent = meros(["agent", "--master", &group.cluster.master]);
        agent
            .args(["--ip", "10.77.0.254", "--port", "5051"])
            .args(["--resources", "cpus:1;mem:64;disk:0;ports:[]"])
            .arg("--work_dir")
            .arg(group.cluster.directory().join("agent"))
            .env("MEROS_CERTS", group.cluster.certs());
        let agent = group.cluster.agent_of(&mut agent);
        Self {
            net,
            group,
            _agent: agent,
        }
    }

    /// Waits until another master leads and the load continues.
    fn is_replaced(&self, led: usize, load: &Load) {
        self.group.leader_of(&self.group.others(led));
        load.wait_for_progress();
    }
}

/// Drops one direction between the leader and each follower until another master leads and the old
/// leader follows.
fn a_leader_is_cut_off_one_way(lose: impl Fn(&Net, usize, usize, bool)) {
    let apart = SeparateMachines::start();
    let load = Load::start(&apart.group.cluster);
    let led = apart.group.leader();
    let lost = |lost| {
        for other in apart.group.others(led) {
            lose(&apart.net, led, other, lost);
        }
    };
    lost(true);
    apart.is_replaced(led, &load);
    eventually("the one that is cut off to act no more", || {
        (!apart.group.leads(led)).then_some(())
    });
    lost(false);
    apart.group.wait_until_follower(led);
    load.wait_for_progress();
    load.finish();
}

/// The leader's messages are lost but it receives: the followers elect another leader, and it
/// learns of it.
#[test]
fn leader_with_lost_sends_is_replaced() {
    if inside("partitions::leader_with_lost_sends_is_replaced") {
        a_leader_is_cut_off_one_way(|net, led, other, lost| net.drop_packets(led, other, lost));
    }
}

/// The leader receives nothing but its messages arrive: without answers of a majority it steps
/// down.
#[test]
fn leader_that_receives_nothing_steps_down() {
    if inside("partitions::leader_that_receives_nothing_steps_down") {
        a_leader_is_cut_off_one_way(|net, led, other, lost| net.drop_packets(other, led, lost));
    }
}

/// Losing one follower's messages to the leader does not stop work. That the follower starts no
/// election is tested in virtual time in `consensus`: here a busy machine may also cause one.
#[test]
fn work_continues_while_one_followers_messages_are_lost() {
    if !inside("partitions::work_continues_while_one_followers_messages_are_lost") {
        return;
    }
    let apart = SeparateMachines::start();
    let load = Load::start(&apart.group.cluster);
    let led = apart.group.leader();
    let [unheard, other] = apart.group.others(led);
    apart.net.drop_packets(unheard, led, true);
    for _ in 0..5 {
        load.wait_for_progress();
    }
    apart.net.drop_packets(unheard, led, false);
    apart.group.wait_until_back(unheard);
    apart.group.wait_until_back(other);
    load.wait_for_progress();
    load.finish();
}

/// The isolated leader does nothing until it is reconnected; the others continue.
#[test]
fn isolated_leader_is_replaced_and_isolated_follower_tolerated() {
    if !inside("partitions::isolated_leader_is_replaced_and_isolated_follower_tolerated") {
        return;
    }
    let apart = SeparateMachines::start();
    let load = Load::start(&apart.group.cluster);
    let led = apart.group.leader();
    apart.net.unplug(led, true);
    apart.is_replaced(led, &load);
    apart.net.unplug(led, false);
    apart.group.wait_until_follower(led);

    let leads = apart.group.leader();
    let [alone, _] = apart.group.others(leads);
    apart.net.unplug(alone, true);
    load.wait_for_progress();
    assert!(apart.group.leads(leads), "the leader leads on");
    apart.net.unplug(alone, false);
    apart.group.wait_until_follower(alone);
    load.wait_for_progress();
    load.finish();
}
