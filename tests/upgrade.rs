//! A cluster is upgraded master by master while it is used, over a message that has changed.
//!
//! `--speak_previous` makes one binary say and hear, of each message that has changed, the version before the newest. Today those are an agent's
//! `register_agent` and `reregister_agent`, which each master that comes to lead hears from each agent; a scheduler's `kill_task`, which goes on
//! from the master to the agent; a master's `apply_operation`, and the `resources_reported` of an agent that could not do what its master had
//! counted on; and the packets of the masters' group among themselves.

use protocol::{Filters, Offer, Operation, OperationId, OperationState, TaskId, TaskState};
use resources::{
    Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Resources, Scalar,
};

use crate::group::Group;
use crate::load::Load;
use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{Cluster, Running, get};

/// The file in the cluster's directory from which on a master is of the newest version.
fn new(index: usize) -> String {
    format!("master-{index}-is-new")
}

/// The disk that each role has on its agent, in megabytes, and each volume takes.
const DISK: u32 = 16;

/// So many offers in a row may lack what was to be a volume, until the master knows that there is none.
const OFFERS_MAX: usize = 20;

/// What is declined may be offered again at once.
const AT_ONCE: Filters = Filters {
    refuse_seconds: 0.0,
};

/// A scheduler that runs tasks on one agent, on resources of its own, and kills them; and asks for volumes that the agent cannot make.
struct Owner {
    role: String,
    puppet: Puppet,
    tried: u32,
}

impl Owner {
    fn of(group: &Group, role: &str, previous: bool) -> Self {
        let info = framework(role, role);
        Self {
            puppet: Puppet::subscribe_as(&group.cluster, info, previous),
            role: role.to_owned(),
            tried: 0,
        }
    }

    /// Does what sends each of the messages.
    fn use_all(&mut self) {
        self.create_in_vain();
        self.kill();
    }

    /// Launches a task that does not end by itself, and kills it.
    fn kill(&mut self) {
        let id = self.launch();
        let task = TaskId::new(&id).expect("an id");
        let killed = self.puppet.driver.kill(task, None);
        killed.expect("the driver hears");
        self.puppet.state(&id, TaskState::Killed);
    }

    /// Asks for a volume until the agent itself has refused it.
    fn create_in_vain(&mut self) {
        loop {
            let (offer, name) = self.next();
            let id = Some(OperationId::new(&name).expect("an id"));
            let volumes = Resources::from(volume(&self.role, &name));
            let conversion = Conversion::Create { volumes };
            let create = vec![Operation::Convert { id, conversion }];
            let asked = self.puppet.driver.accept(vec![offer.id], create, AT_ONCE);
            asked.expect("the driver hears");
            let state = self.puppet.hear("how it ends", |heard| match heard {
                Heard::Operation(status) if status.operation_id.as_str() == name => {
                    Some(status.state)
                }
                _ => None,
            });
            if state == OperationState::Failed {
                return;
            }
        }
    }

    /// An offer with all the disk, no volume taken from it, and a name for what is done with it.
    fn next(&mut self) -> (Offer, String) {
        let disk: Resources = format!("disk({}):{DISK}", self.role)
            .parse()
            .expect("resources");
        for _ in 0..OFFERS_MAX {
            self.tried += 1;
            let offer = self.puppet.standing_offer();
            if offer.resources.unallocate().contains(&disk) {
                return (offer, format!("try-{}", self.tried));
            }
            let declined = self.puppet.driver.decline(vec![offer.id], AT_ONCE);
            declined.expect("the driver hears");
        }
        panic!("{OFFERS_MAX} offers in a row are without {disk}");
    }

    /// What an earlier master has offered is lost: then the next offer is taken.
    fn launch(&mut self) -> String {
        loop {
            let (offer, id) = self.next();
            let endless = task(&id, &offer, "cpus:0.2;mem:16", "exec sleep 98753");
            let launched = self.puppet.driver.launch(vec![offer.id], vec![endless]);
            launched.expect("the driver hears");
            if self.puppet.status(&id).state != TaskState::Lost {
                return id;
            }
        }
    }
}

/// A volume of the role's own disk.
fn volume(role: &str, id: &str) -> Resource {
    let annotations = Annotations {
        reservations: vec![Reservation::fixed(role.parse().expect("a role"))],
        disk: Some(Box::new(DiskInfo::persistent(id, None, "data"))),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(DISK), annotations).expect("a volume")
}

/// How many messages the leader has said in a shape before the newest, to those of this role that it has a link to.
fn said_older(group: &Group, role: &str) -> u64 {
    let address = &group.addresses[group.leader()];
    let (_, port) = address.rsplit_once(':').expect("a port");
    let (_, page) = get(port.parse().expect("a number"), "/__processes__");
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    let links = page["links"].as_array().expect("links");
    let links = links.iter().filter(|link| link["role"] == role);
    links.filter_map(|link| link["said_older"].as_u64()).sum()
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
    let mut owners: Vec<Owner> = Vec::new();
    for (agent, previous) in [("old", true), ("new", false)] {
        let roles = [
            (format!("{agent}-by-old"), true),
            (format!("{agent}-by-new"), false),
        ];
        let share = |(role, _): &(String, bool)| {
            format!("cpus({role}):0.5;mem({role}):32;disk({role}):{DISK};")
        };
        let shares: String = roles.iter().map(share).collect();
        let resources = format!("{shares}ports:[]");
        let mut command = group.cluster.agent_command(agent, &resources);
        if previous {
            command.arg("--speak_previous");
        }
        // Something is where its volumes would be.
        let work_dir = group.cluster.directory().join(agent);
        std::fs::create_dir(&work_dir).expect("a directory");
        std::fs::write(work_dir.join("volumes"), "in the way").expect("a file");
        agents.push(group.cluster.agent_of(&mut command));
        let of = |(role, previous): &(String, bool)| Owner::of(&group, role, *previous);
        owners.extend(roles.iter().map(of));
    }
    let load = Load::start_as(&group.cluster, "load");
    owners.iter_mut().for_each(Owner::use_all);
    for role in ["master", "agent"] {
        assert!(said_older(&group, role) > 0, "{role}s hear what they know");
    }

    for index in 0..3 {
        let marker = group.cluster.directory().join(new(index));
        std::fs::write(marker, "").expect("a file");
        group.process(index).signal("TERM");
        let status = group.process(index).wait();
        assert!(status.success(), "{status}");
        group.start_again(index);
        group.is_back(index);
        load.goes_on();
        owners.iter_mut().for_each(Owner::use_all);
    }
    assert_eq!(said_older(&group, "master"), 0, "all masters are new");
    load.finish();
}
