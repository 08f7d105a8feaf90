//! What becomes of what the disk has refused.

use std::sync::{Arc, Mutex};

use runtime::rehearsal::rehearse;
use storage::forgetful::{Failure, ForgetfulDisk};

use super::record::tests::{agent, container, id, task};
use super::record::{Found, Key};
use super::*;

struct Story {
    node: Node,
    disk: ForgetfulDisk,
    ledger: Handle<Ledger>,
    told: Arc<Mutex<Vec<bool>>>,
}

impl Story {
    fn begin(node: Node) -> Self {
        let disk = ForgetfulDisk::new();
        let ledger = Ledger::new(Self::book(&disk));
        Self {
            ledger: node.spawn("ledger", ledger).unwrap(),
            node,
            disk,
            told: Arc::default(),
        }
    }

    fn book(disk: &ForgetfulDisk) -> Book {
        let disk = disk.clone();
        Book::rehearsed(Arc::new(move || Ok(Box::new(disk.open()?))))
    }

    async fn keep(&self, entry: Entry) {
        let told = self.told.clone();
        let then = Then::new(move |outcome| told.lock().unwrap().push(outcome.is_ok()));
        let keep = Keep {
            entries: vec![entry],
            then: Some(then),
        };
        self.ledger.tell(keep).unwrap();
        self.node.clock().settle().await;
    }

    fn told(&self) -> Vec<bool> {
        self.told.lock().unwrap().clone()
    }

    /// What the next process finds.
    async fn found(self) -> Found {
        self.node.shutdown().await;
        self.disk.crash();
        Self::book(&self.disk).read().unwrap()
    }
}

fn its_container() -> Entry {
    Entry::container(&id("c"), &container()).unwrap()
}

fn its_task() -> Entry {
    Entry::task(&id("c"), &task("t")).unwrap()
}

/// SPEC 5.3: a task without its container would be forgotten, and its executor ended as a stranger.
#[test]
fn what_the_disk_has_refused_is_written_before_anything_later() {
    let failures = [
        Failure::Refuse("not now".to_owned()),
        Failure::Full,
        Failure::Sync("the disk did not answer".to_owned()),
    ];
    for failure in failures {
        rehearse(|node| async move {
            let story = Story::begin(node);
            story.disk.fail_next(failure);
            story.keep(its_container()).await;
            story.keep(its_task()).await;
            assert_eq!(story.told(), [false, true]);
            let found = story.found().await;
            assert_eq!(found.containers[&id("c")].tasks.len(), 1);
            assert_eq!(found.loose, []);
        });
    }
}

#[test]
fn what_the_disk_has_refused_is_tried_again_every_second_and_told_once() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        for _ in 0..3 {
            story.disk.fail_next(Failure::Full);
        }
        story.keep(its_container()).await;
        story.keep(Entry::agent(&agent("boot")).unwrap()).await;
        story.node.clock().advance(AGAIN_AFTER).await;
        assert_eq!(story.disk.syncs(), 0);
        story.node.clock().advance(AGAIN_AFTER).await;
        assert_eq!(story.disk.syncs(), 1);
        story.node.clock().advance(AGAIN_AFTER * 3).await;
        assert_eq!(story.disk.syncs(), 1, "once is enough");
        assert_eq!(story.told(), [false, false]);
        let found = story.found().await;
        assert_eq!(
            (found.containers.len(), found.agent),
            (1, Some(agent("boot")))
        );
    });
}

#[test]
fn an_end_of_everything_that_the_disk_has_refused_is_one_all_the_same() {
    rehearse(|node| async move {
        let story = Story::begin(node);
        story.keep(its_container()).await;
        story.disk.fail_next(Failure::Full);
        story.keep(its_task()).await;
        story.disk.fail_next(Failure::Full);
        story.disk.fail_next(Failure::Full);
        let refused = story.ledger.ask(ForgetEverything, AGAIN_AFTER).await;
        assert!(refused.unwrap().is_err(), "it may be found again");
        story.disk.fail_next(Failure::Full);
        let forgotten = story.ledger.ask(ForgetEverything, AGAIN_AFTER).await;
        assert!(forgotten.unwrap().is_err());
        story.node.clock().advance(AGAIN_AFTER).await;
        let forgotten = story.ledger.ask(ForgetEverything, AGAIN_AFTER).await;
        assert!(forgotten.unwrap().is_ok());
        story.keep(Entry::Remove(Key::Agent)).await;
        assert_eq!(story.found().await, Found::default());
    });
}
