//! Full, hung and damaged disks of masters and a full disk of an agent. Commits must be on a
//! majority of disks.
//!
//! Disks that forget unsynced data are simulated in `consensus` and `storage`; here the disks are
//! real.

use std::path::Path;

use runtime::Clock;

use crate::group::Group;
use crate::load::Load;
use crate::machine::{HungDisk, SmallDisk, can_trace, inside, skip, times, traced};
use crate::scripted_framework::{ScriptedFramework, framework};
use crate::support::{Cluster, Running, eventually, free_ports, stderr};

/// Makes the masters commit: subscribes a framework, which is torn down when dropped.
fn agree(group: &Group, name: &str) -> ScriptedFramework {
    ScriptedFramework::subscribe(&group.cluster, framework(name, "*"))
}

/// Starts masters with their logs on these disks.
fn on_disks(disks: &[SmallDisk]) -> Group {
    let paths: Vec<_> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    let addresses = paths.iter().map(|_| format!("127.0.0.1:{}", free_ports(0)));
    Group::at(addresses.collect(), move |directory, addresses, index| {
        let place = directory.join(format!("master-{index}"));
        if !place.exists() {
            std::os::unix::fs::symlink(&paths[index], &place).expect("a link");
        }
        Cluster::master_of_three(directory, addresses, index)
    })
}

/// This master has ended, and its last line explains why.
fn ends_with_advice(group: &mut Group, full: usize) {
    let status = group.process(full).wait();
    assert_eq!(status.code(), Some(1), "{}", group.log_text(full));
    let log_text = group.log_text(full);
    let last = log_text.lines().last().unwrap_or_default();
    let log = format!("master-{full}/log");
    for words in ["meros: ", "disk of the store is full", &log, "make room"] {
        assert!(last.contains(words), "no `{words}` in: {last}");
    }
}

/// Fills the disk of the leader or of a follower.
fn a_disk_fills_up(of_the_leader: bool) {
    let disks = (0..3).map_while(|_| SmallDisk::mount(48));
    let disks: Vec<SmallDisk> = disks.collect();
    if disks.len() < 3 {
        return skip("this machine does not let us mount a tmpfs");
    }
    let mut group = on_disks(&disks);
    let _agent = group
        .cluster
        .agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let load = Load::start(&group.cluster);
    let leader = group.leader();
    let [other, third] = group.others(leader);
    let full = if of_the_leader { leader } else { other };

    disks[full].fill();
    eventually("the one without room to end", || {
        drop(agree(&group, "one-more"));
        (!group.process(full).is_running()).then_some(())
    });
    ends_with_advice(&mut group, full);
    load.wait_for_progress();
    if of_the_leader {
        group.leader_of(&group.others(full));
    } else {
        assert!(group.leads(leader), "the leader leads on");
    }

    disks[full].clear();
    group.start_again(full);
    group.wait_until_follower(full);
    // It must take part again: without it there is no majority.
    group.process(third).signal("KILL");
    group.process(third).wait();
    drop(agree(&group, "two-are-enough"));
    load.wait_for_progress();
    load.finish();
}

#[test]
fn follower_with_a_full_disk_exits_and_recovers() {
    if inside("disks::follower_with_a_full_disk_exits_and_recovers") {
        a_disk_fills_up(false);
    }
}

#[test]
fn leader_with_a_full_disk_is_replaced_and_recovers() {
    if inside("disks::leader_with_a_full_disk_is_replaced_and_recovers") {
        a_disk_fills_up(true);
    }
}

#[test]
fn lone_master_with_a_full_disk_exits_and_keeps_its_registry() {
    if !inside("disks::lone_master_with_a_full_disk_exits_and_keeps_its_registry") {
        return;
    }
    let Some(disk) = SmallDisk::mount(48) else {
        return skip("this machine does not let us mount a tmpfs");
    };
    let mut group = on_disks(std::slice::from_ref(&disk));
    let set = |group: &Group, weight: &str| {
        let output = group.cluster.output(["weights", "set", weight]);
        output.status.success()
    };
    assert!(set(&group, "dev=2"));
    disk.fill();
    let mut acknowledged = 0;
    while set(&group, &format!("role-{acknowledged}=3")) {
        acknowledged += 1;
    }
    ends_with_advice(&mut group, 0);

    disk.clear();
    group.start_again(0);
    group.leader_of(&[0]);
    let shown = group.cluster.output(["weights", "show"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    let weights = shown.lines().filter(|line| line.starts_with("role-"));
    assert!(
        weights.count() >= acknowledged && shown.contains("dev"),
        "{shown}"
    );
}

/// A master with a hung disk still answers heartbeats, but its commits never complete.
#[test]
fn leader_with_a_hung_disk_hands_over_and_recovers() {
    if !can_trace() {
        return skip("this machine does not let us look at system calls");
    }
    let mut group = Group::start_with(Cluster::master_of_three);
    let _agent = group
        .cluster
        .agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    drop(agree(&group, "before"));
    let leader = group.leader();
    let [other, third] = group.others(leader);

    let Some(hung) = HungDisk::of(group.process(leader).id()) else {
        return skip("this machine does not let us look at a process that runs");
    };
    // The framework gets its answer from the next leader only.
    drop(agree(&group, "while-it-hangs"));
    group.leader_of(&[other, third]);
    assert!(
        group.process(leader).is_running(),
        "{}",
        group.log_text(leader)
    );
    let agents = || group.agents().len();
    eventually("the agent to be with who leads", || {
        (agents() == 1).then_some(())
    });

    drop(hung);
    group.wait_until_follower(leader);
    // It must take part again: without it there is no majority.
    group.process(third).signal("KILL");
    group.process(third).wait();
    drop(agree(&group, "two-are-enough"));
}

/// Flips one bit at each occurrence of these bytes in the log; returns their number.
fn damage(log: &Path, bytes: &[u8]) -> usize {
    let file = log.join("db");
    let mut content = std::fs::read(&file).expect("the log can be read");
    let found = content.windows(bytes.len()).enumerate();
    let places: Vec<usize> = found
        .filter(|(_, window)| *window == bytes)
        .map(|(at, _)| at)
        .collect();
    for at in &places {
        content[*at] ^= 1;
    }
    std::fs::write(&file, content).expect("the log can be written");
    places.len()
}

/// Changes the group by `meros masters`.
fn change(group: &Group, verb: &str, address: &str) {
    let output = group.cluster.output(["masters", verb, address]);
    assert!(output.status.success(), "{verb}: {}", stderr(&output));
}

/// Follows the error message: the damaged directory is moved away, the master is removed and added,
/// and its peers send it the log.
#[test]
fn damaged_master_log_is_rebuilt_as_its_error_explains() {
    let mut group = Group::start();
    let _marked = agree(&group, "a-mark-to-be-found-in-the-log");
    let _after: Vec<ScriptedFramework> = (0..4)
        .map(|n| agree(&group, &format!("after-{n}")))
        .collect();
    let [broken, third] = group.others(group.leader());
    group.process(broken).signal("TERM");
    group.process(broken).wait();
    let directory = group.cluster.directory().join(format!("master-{broken}"));
    let places = damage(&directory.join("log"), b"a-mark-to-be-found-in-the-log");
    assert!(places > 0, "the mark is in no log");

    group.start_again(broken);
    let status = group.process(broken).wait();
    assert_eq!(status.code(), Some(1), "{}", group.log_text(broken));
    let log_text = group.log_text(broken);
    let last = log_text.lines().last().unwrap_or_default();
    let log = directory.join("log");
    let log = log.to_string_lossy();
    for words in [
        "meros: ",
        "damaged",
        &log,
        "meros masters remove",
        "meros masters add",
    ] {
        assert!(last.contains(words), "no `{words}` in: {last}");
    }

    let address = group.addresses[broken].clone();
    std::fs::rename(&directory, directory.with_extension("damaged")).expect("it is moved");
    change(&group, "remove", &address);
    group.start_again(broken);
    change(&group, "add", &address);
    // It has the log and votes: without it there is no majority.
    group.process(third).signal("KILL");
    group.process(third).wait();
    let frameworks = group.cluster.list("frameworks").len();
    drop(agree(&group, "two-are-enough"));
    assert!(frameworks >= 5, "{frameworks}");
}

/// Before each framework got its subscription, two of three masters had synced after its request.
#[test]
fn answers_wait_for_a_majority_to_sync() {
    if !can_trace() {
        return skip("this machine does not let us look at system calls");
    }
    let file = |directory: &Path, index: usize| directory.join(format!("syncs-{index}"));
    let group = Group::start_with(move |directory, addresses, index| {
        let command = Cluster::master_of_three(directory, addresses, index);
        traced(&command, "fsync,fdatasync", &file(directory, index))
    });
    let clock = Clock::real();
    let mut agreed = Vec::new();
    for number in 0..8 {
        let asked = clock.wall().as_secs_f64();
        // Kept alive, so that its teardown causes no sync during the next subscription.
        let scripted = agree(&group, &format!("synced-{number}"));
        agreed.push((asked, clock.wall().as_secs_f64(), scripted));
    }
    let logs = (0..3).map(|index| times(&file(group.cluster.directory(), index)));
    let logs: Vec<Vec<f64>> = logs.collect();
    for (asked, told, scripted) in &agreed {
        let within = |log: &&Vec<f64>| log.iter().any(|at| asked <= at && at <= told);
        let synced = logs.iter().filter(within).count();
        assert!(
            synced >= 2,
            "{} was synced by {synced} from {asked} to {told}",
            scripted.id
        );
    }
}

#[test]
fn agent_with_a_full_disk_is_not_offered() {
    if !inside("disks::agent_with_a_full_disk_is_not_offered") {
        return;
    }
    let Some(disk) = SmallDisk::mount(48) else {
        return skip("this machine does not let us mount a tmpfs");
    };
    let cluster = Cluster::master_alone(|_, _| ());
    let log = cluster.directory().join("agent.log");
    let file = std::fs::File::create(&log).expect("a log");
    let work_dir = disk.path().to_string_lossy();
    let mut command = cluster.agent_command(&work_dir, "cpus:4;mem:256;disk:0;ports:[]");
    let _agent = cluster.agent_of(command.env("MEROS_LOG", "info").stderr(file));
    let deactivated = |expected: bool| {
        let is = || cluster.list("agents")[0]["deactivated"] == expected;
        eventually("the agent to suspend itself, or to resume", || {
            is().then_some(())
        });
    };
    let output = cluster.run_shell(&[], "echo before");
    assert!(output.status.success(), "{}", stderr(&output));

    disk.fill();
    let _fails = Running::start(&mut cluster.verb(["run", "--", "echo", "during"]));
    deactivated(true);
    let mut waits = Running::start(&mut cluster.verb(["run", "--", "echo", "after"]));
    assert!(waits.is_running());
    disk.clear();
    deactivated(false);
    assert!(waits.wait().success(), "it was not offered before");
    let log = std::fs::read_to_string(&log).expect("the log can be read");
    let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count("work directory takes no writes"), 1, "{log}");
    assert_eq!(count("work directory takes writes again"), 1, "{log}");
}
