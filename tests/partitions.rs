//! Masters on machines of their own, network namespaces on one bridge, some of which do not hear others for a while.
//!
//! Each test runs in a place of its own (see `machine`), and is skipped with a line where there is none. Loss and reordering belong
//! to the simulator.

use crate::group::Group;
use crate::load::Load;
use crate::machine::{Net, inside, on};
use crate::support::{Cluster, Running, eventually, meros};

/// Three masters on three machines, and all else on this one.
struct Apart {
    net: Net,
    group: Group,
    _agent: Running,
}

impl Apart {
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

    /// Whoever led is replaced by one of the others, and the load goes on.
    fn is_replaced(&self, led: usize, load: &Load) {
        self.group.leader_of(&self.group.others(led));
        load.goes_on();
    }
}

/// Between the leader and each other master one way is lost, until another leads and this one acts no more.
fn a_leader_is_cut_off_one_way(lose: impl Fn(&Net, usize, usize, bool)) {
    let apart = Apart::start();
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
    apart.group.follows(led);
    load.goes_on();
    load.finish();
}

/// Its followers do not hear it any more, though it hears them: they elect another, which it hears of.
#[test]
fn a_leader_that_is_not_heard_is_replaced_and_follows_when_it_is_heard_again() {
    if inside(
        "partitions::a_leader_that_is_not_heard_is_replaced_and_follows_when_it_is_heard_again",
    ) {
        a_leader_is_cut_off_one_way(|net, led, other, lost| net.deafen(led, other, lost));
    }
}

/// It hears nobody any more, though it is heard: without a majority that answers it steps down by itself.
#[test]
fn a_leader_that_hears_nobody_steps_down() {
    if inside("partitions::a_leader_that_hears_nobody_steps_down") {
        a_leader_is_cut_off_one_way(|net, led, other, lost| net.deafen(other, led, lost));
    }
}

/// A follower that the leader does not hear costs no work. That it starts no election is shown in virtual time, in `consensus`: here an
/// election may also come of a machine that is too busy for heartbeats.
#[test]
fn work_goes_on_while_the_leader_receives_nothing_of_a_follower() {
    if !inside("partitions::work_goes_on_while_the_leader_receives_nothing_of_a_follower") {
        return;
    }
    let apart = Apart::start();
    let load = Load::start(&apart.group.cluster);
    let led = apart.group.leader();
    let [unheard, other] = apart.group.others(led);
    apart.net.deafen(unheard, led, true);
    for _ in 0..5 {
        load.goes_on();
    }
    apart.net.deafen(unheard, led, false);
    apart.group.is_back(unheard);
    apart.group.is_back(other);
    load.goes_on();
    load.finish();
}

/// The leader is alone on its side: the others go on, and it does nothing until it is back among them.
#[test]
fn a_leader_alone_on_its_side_is_replaced_and_a_follower_alone_is_not_missed() {
    if !inside(
        "partitions::a_leader_alone_on_its_side_is_replaced_and_a_follower_alone_is_not_missed",
    ) {
        return;
    }
    let apart = Apart::start();
    let load = Load::start(&apart.group.cluster);
    let led = apart.group.leader();
    apart.net.unplug(led, true);
    apart.is_replaced(led, &load);
    apart.net.unplug(led, false);
    apart.group.follows(led);

    let leads = apart.group.leader();
    let [alone, _] = apart.group.others(leads);
    apart.net.unplug(alone, true);
    load.goes_on();
    assert!(apart.group.leads(leads), "the leader leads on");
    apart.net.unplug(alone, false);
    apart.group.follows(alone);
    load.goes_on();
    load.finish();
}
