//! What a framework says while it has no master, or while the one it has is failing.

use runtime::delivery::Bounds;
use runtime::rehearsal;

use super::*;

impl Stage {
    /// The master's machine dies.
    async fn lose_master(&self) {
        self.network.leave("master");
        self.pass(1).await;
    }

    /// Another process takes the master's place.
    fn next_master(&mut self, seed: u64) {
        let node = rehearsal::node("master").seed(seed).role(Role::Master);
        self.master = node.accepts(&[Role::Framework]).build();
        self.network.join(&self.master, "master");
        self.raise(None);
    }

    fn drive_within(&self, calls: Bounds) -> DriverRef {
        SchedulerDriver::new(["master"], FrameworkInfo::new("user", "test"))
            .call_bounds(calls)
            .start(&self.framework, Notes(self.told.clone()))
            .unwrap()
    }

    /// What the master was asked since the last look, without subscriptions and the driver's own questions.
    fn calls(&self) -> Vec<String> {
        let asked = take(&self.asked).into_iter();
        let own = |line: &String| line.starts_with("subscribe") || line.starts_with("reconcile");
        asked.filter(|line| !own(line)).collect()
    }
}

fn named(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

/// W4: offers, ends and losses are told once, so none may be missing among those that are heard.
#[test]
fn a_scheduler_that_is_too_slow_to_hear_every_event_subscribes_anew() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let _driver = stage.drive();
        stage.settle().await;
        drop((take(&stage.asked), take(&stage.told)));
        let scheduler = stage.scheduler.lock().unwrap().clone().unwrap();
        for number in 0..70_000 {
            let offer_id = OfferId::new(number.to_string()).unwrap();
            let told = stage.master.tell(&scheduler, OfferRescinded { offer_id });
            told.unwrap();
        }
        stage.pass(10).await;
        let told = take(&stage.told);
        let lost = told
            .iter()
            .position(|line| line.starts_with("disconnected"));
        let (before, after) = told.split_at(lost.unwrap());
        let all = (0..before.len()).map(|number| format!("rescinded {number}"));
        assert!(
            before.iter().eq(all.collect::<Vec<_>>().iter()),
            "none is missing"
        );
        assert!(before.len() >= 65_536);
        let expected = [
            "disconnected: node lost: the mailbox of scheduler is full",
            "subscribed m-0000",
            "rescinded early",
        ];
        assert_eq!(after, expected);
        assert!(take(&stage.asked)[0].starts_with("subscribe \"m-0000\""));
    });
}

/// S132, W17.
#[test]
fn what_is_said_without_a_master_reaches_the_next_one_in_order_and_once() {
    rehearse_network(|network| async move {
        let mut stage = Stage::new(network);
        let driver = stage.drive_with(Acknowledgement::Explicit);
        stage.settle().await;
        stage.update(TaskState::Running, Some(1)).await;
        stage.lose_master().await;
        take(&stage.asked);
        driver.kill(named("one"), None).unwrap();
        let mut status = TaskStatus::new(
            named("t"),
            TaskState::Running,
            Source::Executor,
            Timestamp::default(),
        );
        (status.uuid, status.agent_id) = (Some(Uuid([1; 16])), Some(task().agent_id));
        driver.acknowledge(&status).unwrap();
        driver.suppress(BTreeSet::new()).unwrap();
        driver.kill(named("two"), None).unwrap();
        stage.pass(60).await;
        assert!(take(&stage.asked).is_empty());
        stage.next_master(8);
        stage.pass(600).await;
        let expected = ["kill one", "acknowledge t 1", "suppress {}", "kill two"];
        assert_eq!(stage.calls(), expected);
        assert!(
            take(&stage.told)
                .iter()
                .all(|line| !line.starts_with("undelivered"))
        );
    });
}

/// S132, W17.
#[test]
fn a_call_that_was_handled_but_not_acknowledged_is_not_handled_again() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        driver.kill(named("cut"), None).unwrap();
        driver.kill(named("after"), None).unwrap();
        stage.pass(20).await;
        // Both were in one envelope, which the master handled whole.
        assert_eq!(stage.calls(), ["kill cut", "kill after"]);
        stage.network.heal("master", "framework");
        stage.pass(20).await;
        assert!(stage.calls().is_empty(), "the same master knows them");
        let resent = stage.master.counters()["delivery/duplicates"];
        assert_eq!(resent, 2.0, "they did come again");
    });
}

/// S132: what the dead master heard but could not acknowledge, it may not have passed on.
#[test]
fn a_call_that_a_dead_master_did_not_acknowledge_is_said_to_the_next() {
    rehearse_network(|network| async move {
        let mut stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        driver.kill(named("cut"), None).unwrap();
        stage.settle().await;
        stage.lose_master().await;
        assert_eq!(stage.calls(), ["kill cut"]);
        stage.next_master(8);
        stage.pass(5).await;
        assert!(stage.calls().is_empty(), "the link is severed");
        stage.network.heal("master", "framework");
        stage.pass(20).await;
        // Once to this master too, at which it loses the link again; and not a third time.
        assert_eq!(stage.calls(), ["kill cut"]);
        stage.network.heal("master", "framework");
        stage.pass(20).await;
        assert!(stage.calls().is_empty());
    });
}

/// S132: an accept on its way to a master that dies is answered by the next, which refuses it or knows its tasks.
#[test]
fn an_accept_that_was_on_its_way_reaches_the_next_master_and_its_tasks_are_asked_about_later() {
    rehearse_network(|network| async move {
        let mut stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        take(&stage.asked);
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        stage.lose_master().await;
        assert!(take(&stage.asked).is_empty(), "the link broke before");
        stage.next_master(8);
        stage.pass(4).await;
        let asked = take(&stage.asked);
        assert_eq!(asked[1..], ["accept [OfferId(o)]", "reconcile "]);
        stage.pass(10).await;
        assert_eq!(take(&stage.asked), ["reconcile t"], "nobody has answered");
    });
}

/// S132.
#[test]
fn a_tear_down_without_a_master_is_heard_by_the_next_and_confirmed() {
    rehearse_network(|network| async move {
        let mut stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        stage.lose_master().await;
        take(&stage.asked);
        take(&stage.told);
        driver.kill(named("t"), None).unwrap();
        driver.tear_down().unwrap();
        stage.pass(2).await;
        stage.next_master(8);
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: true });
        assert_eq!(stage.calls(), ["kill t", "tear down"]);
        assert!(take(&stage.told).is_empty(), "it was done with");
    });
}

/// S132: failing loudly.
#[test]
fn a_tear_down_that_no_master_hears_within_ten_seconds_is_not_confirmed() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        stage.lose_master().await;
        let started = stage.framework.clock().now();
        driver.tear_down().unwrap();
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: false });
        let waited = stage.framework.clock().now() - started;
        assert_eq!(waited, Duration::from_secs(10));
    });
}

/// S132: failing loudly.
#[test]
fn a_kill_beyond_the_bounds_is_told_to_have_failed_and_what_expired_is_said_to_the_next_master() {
    rehearse_network(|network| async move {
        let mut stage = Stage::new(network);
        let driver = stage.drive_within(Bounds {
            messages: 2,
            age: Duration::from_secs(60),
            ..Bounds::default()
        });
        stage.settle().await;
        stage.lose_master().await;
        take(&stage.told);
        for task in ["a", "b", "c"] {
            driver.kill(named(task), None).unwrap();
        }
        stage.settle().await;
        let full = "undelivered kill c: 2 messages of ";
        let told = take(&stage.told);
        assert!(told.len() == 1 && told[0].starts_with(full), "{told:?}");
        stage.pass(60).await;
        let expired = |task| format!("undelivered kill {task}: not acknowledged within 60s");
        assert_eq!(take(&stage.told), ["a", "b"].map(expired));
        let counters = stage.framework.counters();
        assert_eq!(
            (counters["delivery/full"], counters["delivery/failed"]),
            (1.0, 2.0)
        );
        take(&stage.asked);
        stage.next_master(8);
        stage.pass(20).await;
        assert_eq!(stage.calls(), ["kill a", "kill b"]);
        let told = take(&stage.told);
        assert!(
            told.last().unwrap().starts_with(full),
            "no room beside those: {told:?}"
        );
    });
}

/// SPEC 2.8: a launch that was certainly not heard is lost at once.
#[test]
fn a_launch_beyond_the_bounds_comes_back_as_lost() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive_within(Bounds {
            bytes: 0,
            ..Bounds::default()
        });
        stage.settle().await;
        take(&stage.told);
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        stage.settle().await;
        assert_eq!(
            take(&stage.told),
            ["t TASK_LOST REASON_MASTER_DISCONNECTED"]
        );
    });
}

#[test]
fn a_driver_that_is_stopped_has_what_it_said_before_heard() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        take(&stage.asked);
        driver.kill(named("t"), None).unwrap();
        driver.stop(true).unwrap();
        assert_eq!(driver.ended().await, Ended::LeftForFailover);
        assert_eq!(take(&stage.asked), ["kill t"]);
    });
}
