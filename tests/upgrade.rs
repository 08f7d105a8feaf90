//! A cluster is upgraded master by master while it is used, over a message that has changed.
//!
//! `--speak_previous` makes one binary say and hear, of each message that has changed, the version before the newest. Today those are an agent's
//! `register_agent` and `reregister_agent`, which each master that comes to lead hears from each agent; a scheduler's `kill_task`, which goes on
//! from the master to the agent; and two of operations that nobody asks for here (`apply_operation` and `resources_reported`).

use protocol::{TaskId, TaskState};

use crate::group::Group;
use crate::load::Load;
use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{Cluster, Running};

/// The file in the cluster's directory from which on a master is of the newest version.
fn new(index: usize) -> String {
    format!("master-{index}-is-new")
}

/// A scheduler that runs tasks on one agent, on resources of its own, and kills them.
struct Killer {
    puppet: Puppet,
    tried: u32,
    /// Offers that were taken.
    taken: Vec<String>,
}

impl Killer {
    fn of(group: &Group, role: &str, previous: bool) -> Self {
        let info = framework(role, role);
        Self {
            puppet: Puppet::subscribe_as(&group.cluster, info, previous),
            tried: 0,
            taken: Vec::new(),
        }
    }

    /// Launches a task that does not end by itself, and kills it.
    fn kill(&mut self) {
        let id = self.launch();
        let task = TaskId::new(&id).expect("an id");
        let killed = self.puppet.driver.kill(task, None);
        killed.expect("the driver hears");
        self.puppet.state(&id, TaskState::Killed);
    }

    /// The newest offer, which may have come while something else was waited for.
    fn offer(&mut self) -> protocol::Offer {
        let newest = self
            .puppet
            .past
            .iter()
            .rev()
            .find_map(|(_, heard)| match heard {
                Heard::Offers(offers) => offers.first().cloned(),
                _ => None,
            });
        let taken = |offer: &protocol::Offer| self.taken.contains(&offer.id.to_string());
        let offer = match newest.filter(|offer| !taken(offer)) {
            Some(offer) => offer,
            None => self.puppet.offer(),
        };
        self.taken.push(offer.id.to_string());
        offer
    }

    /// What an earlier master has offered is lost: then the next offer is taken.
    fn launch(&mut self) -> String {
        loop {
            self.tried += 1;
            let id = format!("task-{}", self.tried);
            let offer = self.offer();
            let endless = task(&id, &offer, "cpus:0.2;mem:16", "exec sleep 98753");
            let launched = self.puppet.driver.launch(vec![offer.id], vec![endless]);
            launched.expect("the driver hears");
            if self.puppet.status(&id).state != TaskState::Lost {
                return id;
            }
        }
    }
}

/// What is sent is what its receiver hears, between any two of scheduler, master and agent of either version; and nothing that runs is lost.
#[test]
fn masters_are_upgraded_one_by_one_over_a_changed_message_and_nothing_is_lost() {
    let mut group = Group::start_with(|directory, addresses, index| {
        let mut command = Cluster::master_of_three(directory, addresses, index);
        if !directory.join(new(index)).exists() {
            command.arg("--speak_previous");
        }
        command
    });
    // All of it is reserved: nobody is offered what another needs.
    let _own = group
        .cluster
        .agent("own", "cpus(load):1;mem(load):64;disk:0;ports:[]");
    let mut agents: Vec<Running> = Vec::new();
    let mut killers: Vec<Killer> = Vec::new();
    for (agent, previous) in [("old", true), ("new", false)] {
        let roles = [
            (format!("{agent}-by-old"), true),
            (format!("{agent}-by-new"), false),
        ];
        let share = |(role, _): &(String, bool)| format!("cpus({role}):0.5;mem({role}):32;");
        let shares: String = roles.iter().map(share).collect();
        let resources = format!("{shares}disk:0;ports:[]");
        let mut command = group.cluster.agent_command(agent, &resources);
        if previous {
            command.arg("--speak_previous");
        }
        agents.push(group.cluster.agent_of(&mut command));
        let of = |(role, previous): &(String, bool)| Killer::of(&group, role, *previous);
        killers.extend(roles.iter().map(of));
    }
    let load = Load::start_as(&group.cluster, "load");
    killers.iter_mut().for_each(Killer::kill);

    for index in 0..3 {
        let marker = group.cluster.directory().join(new(index));
        std::fs::write(marker, "").expect("a file");
        group.process(index).signal("TERM");
        let status = group.process(index).wait();
        assert!(status.success(), "{status}");
        group.start_again(index);
        group.is_back(index);
        load.goes_on();
        killers.iter_mut().for_each(Killer::kill);
    }
    load.finish();
}
