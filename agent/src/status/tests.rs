//! Tests of checkpointed updates on a slow or failing disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Source, TaskState, TaskStatus};
use runtime::Timestamp;
use runtime::testing::simulate;
use testkit::disk::{Failure, SimulatedDisk};

use super::*;
use crate::ledger::record::tests::id;
use crate::ledger::store::CheckpointStore;

/// Records the received uuids.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Uuid>>>);

impl Listener {
    fn received(&self) -> Vec<Uuid> {
        self.0.lock().unwrap().clone()
    }
}

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<UpdateStored>();
        handlers.accept_local::<TaskUpdated>();
    }
}

impl Handler<UpdateStored> for Listener {
    type Result = ();
    fn handle(&mut self, stored: UpdateStored, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(stored.uuid);
    }
}

impl Handler<TaskUpdated> for Listener {
    type Result = ();
    fn handle(&mut self, updated: TaskUpdated, _: &mut Context<Self>) {
        self.0.lock().unwrap().extend(updated.update.status.uuid);
    }
}

/// Checkpointed updates, a master, and an executor that subscribes twice.
struct Fixture {
    node: Node,
    ledger: Handle<Ledger>,
    status: Handle<StatusUpdates>,
    master: Listener,
    executors: [(Listener, Pid); 2],
}

impl Fixture {
    async fn start(node: Node, store: CheckpointStore) -> Self {
        let ledger = node.spawn("ledger", Ledger::new(store)).unwrap();
        let now = node.clock().now();
        let status = StatusUpdates::with_ledger(ledger.clone(), BTreeMap::new(), now);
        let status = node.spawn("status_updates", status).unwrap();
        let listener = |name: &str| {
            let listener = Listener::default();
            let pid = node.spawn(name, listener.clone()).unwrap().pid();
            (listener, pid)
        };
        let (master, pid) = listener("master");
        let agent_id = AgentId::new("s").unwrap();
        status.tell(MasterChanged(Some((agent_id, pid)))).unwrap();
        let executors = ["first", "second"].map(listener);
        Self {
            node,
            ledger,
            status,
            master,
            executors,
        }
    }

    /// The end of a task, sent by the given subscription of its executor.
    fn end(&self, subscribed: usize) -> Forward {
        let task_id = TaskId::new("t").unwrap();
        let (state, time) = (TaskState::Finished, Timestamp::default());
        let mut status = TaskStatus::new(task_id, state, Source::Executor, time);
        status.uuid = Some(UUID);
        let given = vec![UUID];
        Forward {
            update: StatusUpdate {
                framework_id: FrameworkId::new("f").unwrap(),
                latest_state: state,
                status,
            },
            executor: Some(self.executors[subscribed].1.clone()),
            record: Some((
                id("c"),
                StateRecord {
                    state,
                    given,
                    is_throttled: false,
                },
            )),
        }
    }

    async fn settle(&self) {
        self.node.clock().settle().await;
    }

    fn confirmed(&self) -> [usize; 2] {
        [0, 1].map(|of| self.executors[of].0.received().len())
    }
}

const UUID: Uuid = Uuid([1; 16]);

/// SPEC 5.3: otherwise it is lost if the agent fails before the master has it.
#[test]
fn unwritten_update_is_sent_but_not_confirmed() {
    simulate(|node| async move {
        let fixture = Fixture::start(node, CheckpointStore::in_memory().failing_once()).await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.settle().await;
        assert_eq!(fixture.master.received(), [UUID]);
        assert_eq!(fixture.confirmed(), [0, 0]);
        fixture.status.tell(RepeatedUpdate(fixture.end(1))).unwrap();
        fixture.settle().await;
        assert_eq!(fixture.confirmed(), [0, 1]);
        assert_eq!(fixture.master.received(), [UUID], "it was sent before");
    });
}

/// SPEC 2.2: a new scheduler does not wait for the resend of updates sent to the previous one.
#[test]
fn updates_are_resent_at_once_on_request() {
    simulate(|node| async move {
        let fixture = Fixture::start(node, CheckpointStore::in_memory()).await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.settle().await;
        let of = |framework: &str| ResendUpdates(FrameworkId::new(framework).unwrap());
        for (framework, times) in [("other", 1), ("f", 2)] {
            fixture.status.tell(of(framework)).unwrap();
            fixture.settle().await;
            assert_eq!(fixture.master.received(), vec![UUID; times], "{framework}");
        }
    });
}

#[test]
fn update_repeated_during_the_write_is_confirmed_once() {
    simulate(|node| async move {
        let fixture = Fixture::start(node, CheckpointStore::in_memory()).await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.status.tell(RepeatedUpdate(fixture.end(1))).unwrap();
        fixture.settle().await;
        assert_eq!(fixture.confirmed(), [0, 1]);
        assert_eq!(fixture.master.received(), [UUID]);
        fixture.status.tell(RepeatedUpdate(fixture.end(1))).unwrap();
        fixture.settle().await;
        assert_eq!(fixture.confirmed(), [0, 2], "it is kept");
    });
}

/// Otherwise the next agent process would resend an update acknowledged long ago.
#[test]
fn acknowledged_update_is_removed_after_a_late_write() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let store = || {
            let disk = disk.clone();
            CheckpointStore::simulated(Arc::new(move || Ok(Box::new(disk.open()?))))
        };
        disk.fail_next(Failure::Full);
        let fixture = Fixture::start(node, store()).await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.settle().await;
        let key = key_of(&fixture.end(0).update);
        fixture
            .status
            .tell(Acknowledge { key, uuid: UUID })
            .unwrap();
        assert_eq!(
            fixture.confirmed(),
            [0, 0],
            "its executor may have to repeat it"
        );
        fixture.node.clock().advance(Duration::from_secs(5)).await;
        assert_eq!(fixture.confirmed(), [1, 0], "the disk knows of it now");
        fixture.node.shutdown().await;
        disk.crash();
        assert_eq!(store().read().unwrap().updates, BTreeMap::new());
    });
}

/// Otherwise the next agent process, which does not know the end, would report another one.
#[test]
fn acknowledged_update_is_not_confirmed_before_it_is_written() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let open = disk.clone();
        let store = CheckpointStore::simulated(Arc::new(move || Ok(Box::new(open.open()?))));
        disk.fail_next(Failure::Full);
        let fixture = Fixture::start(node, store).await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.settle().await;
        let key = key_of(&fixture.end(0).update);
        fixture
            .status
            .tell(Acknowledge { key, uuid: UUID })
            .unwrap();
        // The acknowledgement has removed the task from its container.
        let record = None;
        for of in [0, 1] {
            let repeated = Forward {
                record: record.clone(),
                ..fixture.end(of)
            };
            fixture.status.tell(RepeatedUpdate(repeated)).unwrap();
            fixture.settle().await;
            assert_eq!(fixture.confirmed(), [0, 0]);
        }
        fixture.node.clock().advance(Duration::from_secs(5)).await;
        assert_eq!(fixture.confirmed(), [0, 1], "the newest sender");
    });
}

#[test]
fn update_without_a_ledger_is_sent_but_not_confirmed() {
    simulate(|node| async move {
        let fixture = Fixture::start(node, CheckpointStore::in_memory()).await;
        fixture.ledger.stop();
        fixture.settle().await;
        fixture.status.tell(fixture.end(0)).unwrap();
        fixture.settle().await;
        assert_eq!(fixture.master.received(), [UUID]);
        assert_eq!(fixture.confirmed(), [0, 0]);
    });
}
