//! Operation of a group of master processes: list, add, remove, hand over, dump, restore.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::support::{Cluster, Running, eventually, free_ports, meros, stderr, stdout};

/// Three masters; the first is the cluster's process.
struct Masters {
    cluster: Cluster,
    addresses: Vec<String>,
    others: Vec<Running>,
}

impl Masters {
    fn start() -> Self {
        let (cluster, others) = Cluster::of_three_masters();
        let addresses = cluster.master.split(',').map(str::to_owned).collect();
        Self {
            cluster,
            addresses,
            others,
        }
    }

    /// Runs a verb that must succeed; returns its output.
    fn done(&self, arguments: &[&str]) -> String {
        self.cluster.done(arguments)
    }

    /// Runs a verb that must fail with one line; returns that line.
    fn refused(&self, arguments: &[&str]) -> String {
        refusal(&self.cluster.output(arguments.iter().copied()))
    }

    fn list(&self) -> Vec<Value> {
        let list = self.done(&["masters", "list", "--json"]);
        serde_json::from_str(&list).expect("JSON")
    }

    fn leader(&self) -> Value {
        eventually("one leader", || {
            let mut leaders = self.list();
            leaders.retain(|master| master["role"] == "leader");
            (leaders.len() == 1).then(|| leaders.remove(0))
        })
    }

    fn kill(&mut self, address: &str) {
        let index = self.addresses.iter().position(|one| one == address);
        let index = index.expect("one of the three");
        let process = match index {
            0 => &mut self.cluster.process,
            _ => &mut self.others[index - 1],
        };
        process.signal("KILL");
        process.wait();
    }

    /// A master process with the directory `name` and these initial masters.
    fn master(&self, name: &str, address: &str, initial: &str) -> Running {
        let (_, port) = address.rsplit_once(':').expect("a port");
        let mut command = Cluster::master_in(self.cluster.directory(), name, port);
        if !initial.is_empty() {
            command.args(["--initial_masters", initial]);
        }
        Running::start(&mut command)
    }
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    let text = stderr(output);
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn address(master: &Value) -> String {
    master["address"].as_str().expect("an address").to_owned()
}

fn local_address() -> String {
    format!("127.0.0.1:{}", free_ports(0))
}

/// One process with a group in it is operated like any other group.
#[test]
fn embedded_three_masters_run_tasks_under_any_leader() {
    let cluster = Cluster::local(3, 1, &["--resources", "cpus:1;mem:64"]);
    let roles = || {
        let output = cluster.output(["masters", "list", "--json"]);
        let list: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        list.iter()
            .map(|master| (address(master), master["role"] == "leader"))
            .collect::<Vec<_>>()
    };
    let leader = |other_than: Option<&String>| {
        eventually("one of three to lead", || {
            let roles = roles();
            let mut leaders = roles.iter().filter(|(_, leads)| *leads);
            let (leader, _) = leaders.next()?;
            let one = roles.len() == 3 && leaders.next().is_none();
            (one && Some(leader) != other_than).then(|| leader.clone())
        })
    };
    let old = leader(None);
    assert_eq!(stdout(&cluster.run_shell(&[], "echo one")), "one\n");
    let handed_over = cluster.output(["masters", "transfer"]);
    assert!(handed_over.status.success(), "{}", stderr(&handed_over));
    let new = leader(Some(&old));
    let all: Vec<&str> = cluster.master.split(',').collect();
    assert!(all.contains(&&*old) && all.contains(&&*new), "{old}, {new}");
    let ran = cluster.run_shell(&[], "echo two");
    assert_eq!(stdout(&ran), "two\n", "{}", stderr(&ran));
    assert!(cluster.stop().success());
}

#[test]
fn dead_master_is_replaced_in_one_change() {
    let mut group = Masters::start();
    let leader = address(&group.leader());
    let dead = group.addresses.iter().find(|one| **one != leader);
    let dead = dead.expect("three").clone();
    group.kill(&dead);
    let fourth = local_address();
    let _fourth = group.master("master-4", &fourth, &group.cluster.master);
    group.done(&["masters", "add", "--learner", &fourth]);
    let lone = group.refused(&["masters", "promote", &fourth, "--in_place_of", &fourth]);
    assert!(lone.contains("cannot take its own place"), "{lone}");
    let printed = group.done(&["masters", "promote", &fourth, "--in_place_of", &dead]);
    assert!(printed.contains("votes in the place of"), "{printed}");
    assert!(printed.contains("2 of 3 voters are needed"), "{printed}");
    let again = group.done(&["masters", "promote", &fourth, "--in_place_of", &dead]);
    assert!(again.contains("votes already"), "{again}");
    let seated = |row: &Value| row["votes"] == true;
    assert_eq!(group.list().iter().filter(|row| seated(row)).count(), 3);
}

#[test]
fn masters_are_added_promoted_and_removed() {
    let mut group = Masters::start();
    let old = group.leader();
    assert_eq!(group.list().len(), 3);
    assert!(old["disk_bytes"].as_u64() > Some(0) && old["lag"] == 0);
    let applied = |master: &Value| master["applied_index"].as_u64();
    eventually("all to have applied the same", || {
        let list = group.list();
        let all = list.iter().map(applied).collect::<Vec<_>>();
        (all[0].is_some() && all.iter().all(|one| *one == all[0])).then_some(())
    });

    let printed = group.done(&["masters", "transfer"]);
    let new = group.leader();
    assert!(
        new["id"] != old["id"] && printed.contains(&address(&new)),
        "{printed}"
    );
    let again = group.done(&["masters", "transfer", &address(&new)]);
    assert!(again.contains("leads already"), "{again}");

    let fourth = local_address();
    let waiting = group.refused(&["masters", "add", &fourth, "--wait", "1secs"]);
    assert_contains!(waiting, "start it with an empty directory");
    let _fourth = group.master("master-4", &fourth, &group.cluster.master);
    let added = group.done(&["masters", "add", &fourth, "--learner"]);
    assert!(added.contains("has caught up"), "{added}");
    assert_eq!(
        role_of(&group, &fourth),
        Some(("learner".into(), false.into()))
    );
    for verb in ["promote", "promote", "add"] {
        group.done(&["masters", verb, &fourth]);
        assert_eq!(
            role_of(&group, &fourth),
            Some(("follower".into(), true.into()))
        );
    }

    let leads = group.refused(&["masters", "remove", &address(&new)]);
    assert!(leads.contains("masters transfer"), "{leads}");
    for _ in 0..2 {
        group.done(&["masters", "remove", &address(&old)]);
        let votes = role_of(&group, &address(&old)).is_some_and(|(_, votes)| votes == true);
        assert!(!votes);
    }
    let voters = |group: &Masters| {
        let list = group.list();
        list.iter().filter(|row| row["votes"] == true).count()
    };
    assert_eq!(voters(&group), 3);

    // Of the three that vote now, one falls: the group would not survive the loss of the other.
    let third = group
        .addresses
        .iter()
        .find(|one| **one != address(&old) && **one != address(&new));
    let third = third.expect("three").clone();
    group.kill(&third);
    eventually("the fallen one to be shown", || {
        let (role, _) = role_of(&group, &third)?;
        (role == "unreachable").then_some(())
    });
    let lost = eventually("the leader to notice", || {
        let output = group.cluster.output(["masters", "remove", &fourth]);
        let noticed = !output.status.success() && stderr(&output).contains("of 2 voters only 1");
        noticed.then(|| stderr(&output))
    });
    assert!(lost.contains("2 are needed"), "{lost}");
    group.done(&["masters", "remove", &third]);
    assert_eq!(voters(&group), 2);
}

fn role_of(group: &Masters, address: &str) -> Option<(Value, Value)> {
    let list = group.list();
    let row = list.iter().find(|row| row["address"] == address)?;
    Some((row["role"].clone(), row["votes"].clone()))
}

/// Agents of a list, by id.
fn ids(cluster: &Cluster) -> Vec<String> {
    let agents = cluster.list("agents");
    agents.iter().map(|agent| agent["id"].to_string()).collect()
}

#[test]
fn lost_majority_is_restored_from_a_survivors_dump() {
    let mut group = Masters::start();
    let agent = group
        .cluster
        .agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let agents = ids(&group.cluster);
    let directory = group.cluster.directory().to_owned();
    let file = |name: &str| directory.join(name).to_str().expect("a path").to_owned();
    let online = file("online.dump");
    let printed = group.done(&["registry", "dump", &online]);
    assert!(printed.contains("1 agents"), "{printed}");
    let kept = group.refused(&["registry", "dump", &online]);
    assert!(kept.contains("--force"), "{kept}");
    group.done(&["registry", "dump", &online, "--force"]);

    // A leader and its follower fall for good; the survivor is stopped.
    let leader = address(&group.leader());
    let survivor = group.addresses.iter().position(|one| *one != leader);
    let survivor = survivor.expect("three");
    for address in group.addresses.clone() {
        if address != group.addresses[survivor] {
            group.kill(&address);
        }
    }
    let work_dir = file(&format!("master-{survivor}"));
    let dump = file("survivor.dump");
    let running = group.refused(&["registry", "dump", &dump, "--work_dir", &work_dir]);
    assert!(running.contains("a master runs there"), "{running}");
    group.kill(&group.addresses[survivor].clone());
    let printed = group.done(&["registry", "dump", &dump, "--work_dir", &work_dir]);
    assert!(printed.contains("1 agents"), "{printed}");

    let restored = file("restored");
    let damaged = file("damaged.dump");
    flip(&dump, &damaged);
    let refused = group.refused(&["registry", "restore", &damaged, "--work_dir", &restored]);
    assert!(refused.contains("checksum"), "{refused}");
    assert!(!Path::new(&restored).exists());
    group.done(&["registry", "restore", &dump, "--work_dir", &restored]);

    // At the survivor's address: its agent finds it there.
    let address = group.addresses[survivor].clone();
    let alone = group.master("restored", &address, "");
    eventually("the agent to be back under its id", || {
        let list = group.cluster.output(["agents", "--json"]);
        let list: Vec<Value> = serde_json::from_slice(&list.stdout).ok()?;
        let mut active = list.iter().filter(|agent| agent["active"] == true);
        active
            .next()
            .filter(|agent| agents == [agent["id"].to_string()])
            .map(drop)
    });
    let list = group.list();
    let row = list.iter().find(|row| row["role"] == "leader");
    assert_eq!(row.map(|row| row["id"].clone()), Some(1.into()));
    drop((agent, alone));
}

/// A copy with one bit changed in its middle.
fn flip(from: &str, to: &str) {
    let mut bytes = std::fs::read(from).expect("a dump");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(to, bytes).expect("a copy");
}

/// Agents keep their ids when the founder is killed.
#[test]
fn lone_master_grows_to_a_group_of_three() {
    let mut cluster = Cluster::master_alone(|_, _| ());
    let _agent = cluster.agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let agents = ids(&cluster);
    let first = cluster.master.clone();
    let directory = cluster.directory().to_owned();
    let mut others = Vec::new();
    for name in ["second", "third"] {
        let address = local_address();
        let port = address.rsplit_once(':').expect("a port").1;
        let mut command = Cluster::master_in(&directory, name, port);
        others.push(Running::start(command.args(["--initial_masters", &first])));
        let added = cluster.output(["masters", "add", &address]);
        assert!(added.status.success(), "{}", stderr(&added));
        cluster.master = format!("{},{address}", cluster.master);
    }
    cluster.kill_master();
    eventually("the agent to be back under its id", || {
        let list = cluster.output(["agents", "--json"]);
        let list: Vec<Value> = serde_json::from_slice(&list.stdout).ok()?;
        let mut active = list.iter().filter(|agent| agent["active"] == true);
        let back = active.next()?;
        (agents == [back["id"].to_string()]).then_some(())
    });
    cluster.process = Running::start(&mut Cluster::master_in(
        &directory,
        "master",
        &cluster.port.to_string(),
    ));
    eventually("all three to answer", || {
        let list = cluster.output(["masters", "list", "--json"]);
        let list: Vec<Value> = serde_json::from_slice(&list.stdout).ok()?;
        let voters = list.iter().filter(|row| row["votes"] == true);
        let count = |role| list.iter().filter(|row| row["role"] == role).count();
        (voters.count() == 3 && count("leader") == 1 && count("follower") == 2).then_some(())
    });
}

#[test]
fn registry_of_an_older_form_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let registry = directory.path().join("master").join("registry");
    std::fs::create_dir_all(&registry).expect("a directory");
    let authority = meros(["certs", "--dir"])
        .arg(directory.path().join("certs"))
        .output_in_time();
    assert!(authority.expect("meros runs").status.success());
    let mut master = Cluster::master_in(directory.path(), "master", "0");
    let refused = refusal(
        &master
            .args(["--log", "off"])
            .output_in_time()
            .expect("meros runs"),
    );
    let registry = registry.display().to_string();
    assert!(
        refused.contains(&registry) && refused.contains("--work_dir"),
        "{refused}"
    );
    assert!(!directory.path().join("master").join("log").exists());
}
