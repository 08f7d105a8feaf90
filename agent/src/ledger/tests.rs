//! Tests of failed writes.

use std::sync::{Arc, Mutex};

use runtime::testing::simulate;
use testkit::disk::{Failure, SimulatedDisk};

use super::record::tests::{agent, container, id, task};
use super::record::{Key, StoredRecords};
use super::*;

struct Fixture {
    node: Node,
    disk: SimulatedDisk,
    ledger: Handle<Ledger>,
    outcomes: Arc<Mutex<Vec<bool>>>,
}

impl Fixture {
    fn begin(node: Node) -> Self {
        let disk = SimulatedDisk::new();
        let ledger = Ledger::new(Self::store(&disk));
        Self {
            ledger: node.spawn("ledger", ledger).unwrap(),
            node,
            disk,
            outcomes: Arc::default(),
        }
    }

    fn store(disk: &SimulatedDisk) -> CheckpointStore {
        let disk = disk.clone();
        CheckpointStore::simulated(Arc::new(move || Ok(Box::new(disk.open()?))))
    }

    async fn keep(&self, entry: Entry) {
        let outcomes = self.outcomes.clone();
        let on_written =
            OnWritten::new(move |outcome| outcomes.lock().unwrap().push(outcome.is_ok()));
        let keep = WriteEntries {
            entries: vec![entry],
            on_written: Some(on_written),
        };
        self.ledger.tell(keep).unwrap();
        self.node.clock().settle().await;
    }

    fn outcomes(&self) -> Vec<bool> {
        self.outcomes.lock().unwrap().clone()
    }

    /// What the next process finds.
    async fn found(self) -> StoredRecords {
        self.node.shutdown().await;
        self.disk.crash();
        Self::store(&self.disk).read().unwrap()
    }
}

fn its_container() -> Entry {
    Entry::container(&id("c"), &container()).unwrap()
}

fn its_task() -> Entry {
    Entry::task(&id("c"), &task("t")).unwrap()
}

/// SPEC 5.3: a task without its container would be removed, and its executor killed as unknown.
#[test]
fn failed_entries_are_written_before_later_ones() {
    let failures = [
        Failure::Refuse("not now".to_owned()),
        Failure::Full,
        Failure::Sync("the disk did not answer".to_owned()),
    ];
    for failure in failures {
        simulate(|node| async move {
            let fixture = Fixture::begin(node);
            fixture.disk.fail_next(failure);
            fixture.keep(its_container()).await;
            fixture.keep(its_task()).await;
            assert_eq!(fixture.outcomes(), [false, true]);
            let found = fixture.found().await;
            assert_eq!(found.containers[&id("c")].tasks.len(), 1);
            assert_eq!(found.orphaned, []);
        });
    }
}

#[test]
fn failed_entries_are_retried_every_second() {
    simulate(|node| async move {
        let fixture = Fixture::begin(node);
        for _ in 0..3 {
            fixture.disk.fail_next(Failure::Full);
        }
        fixture.keep(its_container()).await;
        fixture.keep(Entry::agent(&agent("boot")).unwrap()).await;
        fixture.node.clock().advance(RETRY_AFTER).await;
        assert_eq!(fixture.disk.syncs(), 0);
        fixture.node.clock().advance(RETRY_AFTER).await;
        assert_eq!(fixture.disk.syncs(), 1);
        fixture.node.clock().advance(RETRY_AFTER * 3).await;
        assert_eq!(fixture.disk.syncs(), 1, "once is enough");
        assert_eq!(fixture.outcomes(), [false, false]);
        let found = fixture.found().await;
        assert_eq!(
            (found.containers.len(), found.agent),
            (1, Some(agent("boot")))
        );
    });
}

#[test]
fn failed_deletion_is_retried_until_done() {
    simulate(|node| async move {
        let fixture = Fixture::begin(node);
        fixture.keep(its_container()).await;
        fixture.disk.fail_next(Failure::Full);
        fixture.keep(its_task()).await;
        fixture.disk.fail_next(Failure::Full);
        fixture.disk.fail_next(Failure::Full);
        let refused = fixture.ledger.ask(DeleteCheckpoints, RETRY_AFTER).await;
        assert!(refused.unwrap().is_err(), "it may be found again");
        fixture.disk.fail_next(Failure::Full);
        let forgotten = fixture.ledger.ask(DeleteCheckpoints, RETRY_AFTER).await;
        assert!(forgotten.unwrap().is_err());
        fixture.node.clock().advance(RETRY_AFTER).await;
        let forgotten = fixture.ledger.ask(DeleteCheckpoints, RETRY_AFTER).await;
        assert!(forgotten.unwrap().is_ok());
        fixture.keep(Entry::Remove(Key::Agent)).await;
        assert_eq!(fixture.found().await, StoredRecords::default());
    });
}
