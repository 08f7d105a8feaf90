//! Disk damage to the stores of a lone master and an agent: acknowledged data is present, or the
//! start fails.

use std::path::Path;

use agent::ledger::record::{ContainerRecord, Entry, Key};
use agent::ledger::store::CheckpointStore;
use agent::operations::checkpoint::{Checkpoint, OperationStore};
use consensus::log::LogStore;
use consensus::member::{Settings, start};
use consensus::store::StoredLog;
use master::registry::{Registry, RegistryMachine, RegistryOperation, ReplicatedRegistry};
use protocol::{
    AgentId, CommandInfo, ContainerId, ExecutorId, ExecutorInfo, FrameworkInfo, TaskId, TaskInfo,
};
use resources::{Reservation, Resources};
use runtime::testing::simulate;
use testkit::damage::damage;

use crate::in_time::InTime;
use crate::support::{Cluster, request, stderr};

/// Damages for each user of a store.
const SEEDS: u64 = 100;

/// Pseudo-random numbers from a seed.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("it can be read") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("it is copied")),
        }
    }
}

/// Damages copies of `work_dir` in the store `store`. `read` returns the content, or the error of a
/// start.
fn nothing_is_lost_silently<T: PartialEq>(
    work_dir: &Path,
    store: &str,
    read: impl Fn(&Path) -> Result<T, String>,
) {
    let acknowledged = read(work_dir).expect("it is whole");
    let mut refused = 0;
    for seed in 0..SEEDS {
        let copied = tempfile::tempdir().expect("a directory");
        copy(work_dir, copied.path());
        let damaged = damage(&copied.path().join(store), chance(seed));
        let damaged = damaged.expect("it can be damaged");
        match read(copied.path()) {
            Ok(found) => assert!(
                found == acknowledged,
                "seed {seed}, {damaged}: records are lost silently"
            ),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "no damage was noticed");
}

/// Writes the registry of a group of one, one acknowledged weight after the other.
fn write_weights(directory: &Path) {
    simulate(|node| {
        let log = Box::new(StoredLog::open(directory).expect("a log"));
        let member = start(&node, Settings::new("a", &[]), log, RegistryMachine::new());
        let member = member.expect("a member");
        let mut registry = ReplicatedRegistry::over(member.clone());
        async move {
            node.clock().settle().await;
            for number in 0..150 {
                let weights = [(format!("role-{number}"), Some(2.0))];
                let weights = weights.into_iter().collect();
                let applied = registry.apply(RegistryOperation::UpdateWeights { weights });
                applied.await.expect("it is applied");
            }
            member.retire().await;
        }
    });
}

#[test]
fn damaged_registry_loses_nothing_silently() {
    let work_dir = tempfile::tempdir().expect("a directory");
    write_weights(&work_dir.path().join("log"));
    nothing_is_lost_silently(work_dir.path(), "log", |work_dir| {
        let log = StoredLog::open(work_dir.join("log"));
        let loaded = log.and_then(|mut log| log.load());
        loaded.map_err(|error| error.to_string())
    });
}

fn container() -> ContainerRecord {
    let executor = ExecutorInfo::new(
        ExecutorId::new("e").expect("an id"),
        CommandInfo::shell("executor"),
        Resources::parse("cpus:0.1").expect("resources"),
    );
    ContainerRecord {
        framework: FrameworkInfo::new("", "f"),
        executor,
        is_command: true,
        token: "secret".into(),
    }
}

fn task(name: String) -> TaskInfo {
    TaskInfo::new(
        TaskId::new(&name).expect("an id"),
        AgentId::new("s1").expect("an id"),
        Resources::parse("cpus:1;mem:32").expect("resources"),
    )
    .with_command(CommandInfo::shell("true"))
}

#[test]
fn damaged_ledger_loses_nothing_silently() {
    let work_dir = tempfile::tempdir().expect("a directory");
    let mut store = CheckpointStore::on_disk(work_dir.path());
    for number in 0..60 {
        let id = |number: u32| ContainerId::new(format!("c{number}")).expect("an id");
        let info = task(format!("t{number}"));
        let mut entries = vec![
            Entry::container(&id(number), &container()).expect("an entry"),
            Entry::task(&id(number), &info).expect("an entry"),
        ];
        if number >= 40 {
            let ended = task(format!("t{}", number - 40)).task_id;
            entries.push(Entry::Remove(Key::Task(id(number - 40), ended)));
            entries.push(Entry::Remove(Key::Container(id(number - 40))));
        }
        store.write(&entries).expect("it is written");
    }
    drop(store);
    nothing_is_lost_silently(work_dir.path(), "meta/executors", |work_dir| {
        let found = CheckpointStore::on_disk(work_dir).read();
        let found = found.map_err(|error| error.to_string())?;
        match found.unreadable.first() {
            Some((key, problem)) => Err(format!("{key}: {problem}")),
            None => Ok(found),
        }
    });
}

#[test]
fn damaged_operations_lose_nothing_silently() {
    let work_dir = tempfile::tempdir().expect("a directory");
    let mut store = OperationStore::on_disk(work_dir.path());
    for settled in 1..=60u64 {
        let reserved = (0..settled * 7 % 50).map(|number| {
            let role = format!("role-{number}").parse().expect("a role");
            let cpus = Resources::parse("cpus:1").expect("resources");
            let reserved = cpus.push_reservation(&Reservation::dynamic(role, Some("ops")));
            reserved.expect("it is reserved")
        });
        let checkpoint = Checkpoint {
            made: reserved.collect(),
            unacknowledged: Vec::new(),
            settled,
        };
        store.write(&checkpoint).expect("it is written");
    }
    drop(store);
    nothing_is_lost_silently(work_dir.path(), "meta/resources", |work_dir| {
        let read = OperationStore::on_disk(work_dir).read();
        read.map_err(|error| error.to_string())
    });
}

#[test]
fn master_with_a_damaged_registry_says_what_to_do() {
    let mut cluster = Cluster::master_alone(|_, _| ());
    for number in 0..20 {
        let weights = format!(r#"[{{"role":"role-{number}","weight":2}}]"#);
        let (head, _) = request(cluster.port, "PUT", "/weights", "", &weights);
        assert!(head.contains(" 200 "), "{head}");
    }
    cluster.kill_master();
    let directory = cluster.directory().join("master").join("log");
    let log = directory.join("db");
    let mut bytes = std::fs::read(&log).expect("it can be read");
    let at = bytes.windows(7).position(|some| some == b"role-15");
    bytes[at.expect("the weight")] ^= 1;
    std::fs::write(&log, bytes).expect("it can be written");
    for _ in 0..2 {
        let port = cluster.port.to_string();
        let mut master = Cluster::master_in(cluster.directory(), "master", &port);
        let output = master.output_in_time().expect("meros runs");
        assert_eq!(output.status.code(), Some(1));
        let words = stderr(&output);
        let last = words.lines().last().unwrap_or_default();
        let directory = directory.display().to_string();
        for wanted in [
            "meros: ",
            &directory,
            "has lost records",
            "was synced",
            "meros registry restore",
            "delete",
        ] {
            assert!(last.contains(wanted), "no `{wanted}` in: {last}");
        }
    }
}
