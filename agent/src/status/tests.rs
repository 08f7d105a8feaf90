//! What becomes of updates whose task outlives the agent, with a disk that is slow or fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Source, TaskState, TaskStatus};
use runtime::Timestamp;
use runtime::rehearsal::rehearse;
use storage::forgetful::{Failure, ForgetfulDisk};

use super::*;
use crate::ledger::book::Book;
use crate::ledger::record::tests::id;

/// Writes down what it hears.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Uuid>>>);

impl Listener {
    fn heard(&self) -> Vec<Uuid> {
        self.0.lock().unwrap().clone()
    }
}

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<UpdateStored>();
        ears.hear_local::<TaskUpdated>();
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

/// Updates that are kept in some book, a master, and an executor which subscribes twice.
struct Story {
    node: Node,
    ledger: Handle<Ledger>,
    status: Handle<StatusUpdates>,
    master: Listener,
    executors: [(Listener, Pid); 2],
}

impl Story {
    async fn begin(node: Node, book: Book) -> Self {
        let ledger = node.spawn("ledger", Ledger::new(book)).unwrap();
        let now = node.clock().now();
        let status = StatusUpdates::keeping(ledger.clone(), BTreeMap::new(), now);
        let status = node.spawn("status_updates", status).unwrap();
        let listener = |name: &str| {
            let listener = Listener::default();
            let pid = node.spawn(name, listener.clone()).unwrap().pid();
            (listener, pid)
        };
        let (master, pid) = listener("master");
        let agent_id = AgentId::new("s").unwrap();
        status.tell(MasterIs(Some((agent_id, pid)))).unwrap();
        let executors = ["first", "second"].map(listener);
        Self {
            node,
            ledger,
            status,
            master,
            executors,
        }
    }

    /// The end of a task, as the executor says it which has subscribed so often.
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
            record: Some((id("c"), StateRecord { state, given })),
        }
    }

    async fn settle(&self) {
        self.node.clock().settle().await;
    }

    fn confirmed(&self) -> [usize; 2] {
        [0, 1].map(|of| self.executors[of].0.heard().len())
    }
}

const UUID: Uuid = Uuid([1; 16]);

/// SPEC 5.3: else it is lost when the agent falls before the master has it.
#[test]
fn an_end_that_could_not_be_kept_is_sent_but_confirmed_only_once_it_is_kept() {
    rehearse(|node| async move {
        let story = Story::begin(node, Book::in_memory().failing_once()).await;
        story.status.tell(story.end(0)).unwrap();
        story.settle().await;
        assert_eq!(story.master.heard(), [UUID]);
        assert_eq!(story.confirmed(), [0, 0]);
        story.status.tell(Repeated(story.end(1))).unwrap();
        story.settle().await;
        assert_eq!(story.confirmed(), [0, 1]);
        assert_eq!(story.master.heard(), [UUID], "it was sent before");
    });
}

/// SPEC 2.2: a scheduler that has just subscribed does not wait until it is time for what the one before was told.
#[test]
fn what_a_framework_has_not_acknowledged_is_sent_again_at_once_when_its_agent_is_asked_to() {
    rehearse(|node| async move {
        let story = Story::begin(node, Book::in_memory()).await;
        story.status.tell(story.end(0)).unwrap();
        story.settle().await;
        let of = |framework: &str| TellAgain(FrameworkId::new(framework).unwrap());
        for (framework, times) in [("other", 1), ("f", 2)] {
            story.status.tell(of(framework)).unwrap();
            story.settle().await;
            assert_eq!(story.master.heard(), vec![UUID; times], "{framework}");
        }
    });
}

#[test]
fn what_is_said_again_while_it_is_written_is_confirmed_once_to_who_said_it_last() {
    rehearse(|node| async move {
        let story = Story::begin(node, Book::in_memory()).await;
        story.status.tell(story.end(0)).unwrap();
        story.status.tell(Repeated(story.end(1))).unwrap();
        story.settle().await;
        assert_eq!(story.confirmed(), [0, 1]);
        assert_eq!(story.master.heard(), [UUID]);
        story.status.tell(Repeated(story.end(1))).unwrap();
        story.settle().await;
        assert_eq!(story.confirmed(), [0, 2], "it is kept");
    });
}

/// Else the next process of the agent would say again what its framework has known for long.
#[test]
fn what_the_disk_had_refused_is_not_there_once_its_framework_has_it() {
    rehearse(|node| async move {
        let disk = ForgetfulDisk::new();
        let book = || {
            let disk = disk.clone();
            Book::rehearsed(Arc::new(move || Ok(Box::new(disk.open()?))))
        };
        disk.fail_next(Failure::Full);
        let story = Story::begin(node, book()).await;
        story.status.tell(story.end(0)).unwrap();
        story.settle().await;
        let key = key_of(&story.end(0).update);
        story.status.tell(Acknowledge { key, uuid: UUID }).unwrap();
        assert_eq!(story.confirmed(), [0, 0], "its executor may have to say it");
        story.node.clock().advance(Duration::from_secs(5)).await;
        assert_eq!(story.confirmed(), [1, 0], "the disk knows of it now");
        story.node.shutdown().await;
        disk.crash();
        assert_eq!(book().read().unwrap().updates, BTreeMap::new());
    });
}

/// Else the next process of the agent, which knows nothing of the end, would make up another one.
#[test]
fn what_its_framework_has_and_the_disk_has_not_is_not_confirmed_however_often_it_is_said() {
    rehearse(|node| async move {
        let disk = ForgetfulDisk::new();
        let open = disk.clone();
        let book = Book::rehearsed(Arc::new(move || Ok(Box::new(open.open()?))));
        disk.fail_next(Failure::Full);
        let story = Story::begin(node, book).await;
        story.status.tell(story.end(0)).unwrap();
        story.settle().await;
        let key = key_of(&story.end(0).update);
        story.status.tell(Acknowledge { key, uuid: UUID }).unwrap();
        // With its framework's word the container has forgotten the task.
        let record = None;
        for of in [0, 1] {
            let said = Forward {
                record: record.clone(),
                ..story.end(of)
            };
            story.status.tell(Repeated(said)).unwrap();
            story.settle().await;
            assert_eq!(story.confirmed(), [0, 0]);
        }
        story.node.clock().advance(Duration::from_secs(5)).await;
        assert_eq!(story.confirmed(), [0, 1], "who said it last");
    });
}

#[test]
fn what_a_fallen_ledger_does_not_hear_is_sent_and_not_confirmed() {
    rehearse(|node| async move {
        let story = Story::begin(node, Book::in_memory()).await;
        story.ledger.stop();
        story.settle().await;
        story.status.tell(story.end(0)).unwrap();
        story.settle().await;
        assert_eq!(story.master.heard(), [UUID]);
        assert_eq!(story.confirmed(), [0, 0]);
    });
}
