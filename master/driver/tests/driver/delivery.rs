//! Calls without a master, or with a failing one.

use runtime::delivery::Bounds;
use runtime::testing;

use super::*;

impl Fixture {
    /// The master's machine fails.
    async fn lose_master(&self) {
        self.network.leave("master");
        self.pass(1).await;
    }

    /// Another process replaces the master.
    fn next_master(&mut self, seed: u64) {
        let node = testing::node("master").seed(seed).role(Role::Master);
        self.master = node.accepts(&[Role::Framework]).build();
        self.network.join(&self.master, "master");
        self.raise(None);
    }

    fn drive_within(&self, calls: Bounds) -> DriverRef {
        SchedulerDriver::new(["master"], FrameworkInfo::new("user", "test"))
            .call_bounds(calls)
            .start(&self.framework, RecordingScheduler(self.callbacks.clone()))
            .unwrap()
    }

    /// Requests since the last call, except subscriptions and the driver's own reconciliations.
    fn calls(&self) -> Vec<String> {
        let requests = take(&self.requests).into_iter();
        let own = |line: &String| line.starts_with("subscribe") || line.starts_with("reconcile");
        requests.filter(|line| !own(line)).collect()
    }
}

fn named(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

/// W4: offers, ends and losses are sent once, so none may be missing among the delivered ones.
// Covers W4.
#[test]
fn slow_scheduler_resubscribes() {
    simulate_driver(|fixture| async move {
        let _driver = fixture.drive();
        fixture.settle().await;
        drop((take(&fixture.requests), take(&fixture.callbacks)));
        let scheduler = fixture.scheduler.lock().unwrap().clone().unwrap();
        for number in 0..70_000 {
            let offer_id = OfferId::new(number.to_string()).unwrap();
            let callbacks = fixture.master.tell(&scheduler, OfferRescinded { offer_id });
            callbacks.unwrap();
        }
        fixture.pass(10).await;
        let callbacks = take(&fixture.callbacks);
        let lost = callbacks
            .iter()
            .position(|line| line.starts_with("disconnected"));
        let (before, after) = callbacks.split_at(lost.unwrap());
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
        assert!(take(&fixture.requests)[0].starts_with("subscribe \"m-0000\""));
    });
}

// Covers S132.
#[test]
fn queued_calls_reach_the_next_master_in_order() {
    simulate_driver(|mut fixture| async move {
        let driver = fixture.drive_with(Acknowledgement::Explicit);
        fixture.settle().await;
        fixture.update(TaskState::Running, Some(1)).await;
        fixture.lose_master().await;
        take(&fixture.requests);
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
        fixture.pass(60).await;
        assert!(take(&fixture.requests).is_empty());
        fixture.next_master(8);
        fixture.pass(600).await;
        let expected = ["kill one", "acknowledge t 1", "suppress {}", "kill two"];
        assert_eq!(fixture.calls(), expected);
        assert!(
            take(&fixture.callbacks)
                .iter()
                .all(|line| !line.starts_with("undelivered"))
        );
    });
}

// Covers S132; W17.
#[test]
fn handled_call_is_not_handled_again() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        driver.kill(named("cut"), None).unwrap();
        driver.kill(named("after"), None).unwrap();
        fixture.pass(20).await;
        // Both were in the same envelope, which the master handled completely.
        assert_eq!(fixture.calls(), ["kill cut", "kill after"]);
        fixture.network.heal("master", "framework");
        fixture.pass(20).await;
        assert!(fixture.calls().is_empty(), "the same master knows them");
        let resent = fixture.master.counters()["delivery/duplicates"];
        assert_eq!(resent, 2.0, "they did come again");
    });
}

/// S132: the dead master may not have passed on an unacknowledged call.
#[test]
fn unacknowledged_call_reaches_the_next_master() {
    simulate_driver(|mut fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        driver.kill(named("cut"), None).unwrap();
        fixture.settle().await;
        fixture.lose_master().await;
        assert_eq!(fixture.calls(), ["kill cut"]);
        fixture.next_master(8);
        fixture.pass(5).await;
        assert!(fixture.calls().is_empty(), "the link is severed");
        fixture.network.heal("master", "framework");
        fixture.pass(20).await;
        // Once to this master too, which severs the link again, but not a third time.
        assert_eq!(fixture.calls(), ["kill cut"]);
        fixture.network.heal("master", "framework");
        fixture.pass(20).await;
        assert!(fixture.calls().is_empty());
    });
}

/// S132: the next master refuses the accept or knows its tasks.
#[test]
fn accept_in_flight_reaches_the_next_master() {
    simulate_driver(|mut fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        take(&fixture.requests);
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        fixture.lose_master().await;
        assert!(take(&fixture.requests).is_empty(), "the link broke before");
        fixture.next_master(8);
        fixture.pass(4).await;
        let requests = take(&fixture.requests);
        assert_eq!(requests[1..], ["accept [OfferId(o)]", "reconcile "]);
        fixture.pass(10).await;
        // Nobody has answered.
        receives(&fixture.requests, "reconcile t");
    });
}

// Covers S132.
#[test]
fn tear_down_reaches_the_next_master() {
    simulate_driver(|mut fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        fixture.lose_master().await;
        take(&fixture.requests);
        take(&fixture.callbacks);
        driver.kill(named("t"), None).unwrap();
        driver.tear_down().unwrap();
        fixture.pass(2).await;
        fixture.next_master(8);
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: true });
        assert_eq!(fixture.calls(), ["kill t", "tear down"]);
        assert!(take(&fixture.callbacks).is_empty(), "it was done with");
    });
}

/// S132: failing loudly.
#[test]
fn tear_down_without_master_is_unconfirmed() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        fixture.lose_master().await;
        let started = fixture.framework.clock().now();
        driver.tear_down().unwrap();
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: false });
        let waited = fixture.framework.clock().now() - started;
        assert_eq!(waited, Duration::from_secs(10));
    });
}

/// S132: failing loudly.
// Covers W17.
#[test]
fn kills_over_the_bounds_are_undelivered() {
    simulate_driver(|mut fixture| async move {
        let driver = fixture.drive_within(Bounds {
            messages: 2,
            age: Duration::from_secs(60),
            ..Bounds::default()
        });
        fixture.settle().await;
        fixture.lose_master().await;
        take(&fixture.callbacks);
        for task in ["a", "b", "c"] {
            driver.kill(named(task), None).unwrap();
        }
        fixture.settle().await;
        let full = "undelivered kill c: queue is full with 2 messages of ";
        let callbacks = take(&fixture.callbacks);
        assert!(
            callbacks.len() == 1 && callbacks[0].starts_with(full),
            "{callbacks:?}"
        );
        fixture.pass(60).await;
        let expired = |task| format!("undelivered kill {task}: not acknowledged within 60s");
        assert_eq!(take(&fixture.callbacks), ["a", "b"].map(expired));
        let counters = fixture.framework.counters();
        assert_eq!(
            (counters["delivery/full"], counters["delivery/failed"]),
            (1.0, 2.0)
        );
        take(&fixture.requests);
        fixture.next_master(8);
        fixture.pass(20).await;
        assert_eq!(fixture.calls(), ["kill a", "kill b"]);
        let callbacks = take(&fixture.callbacks);
        assert!(
            callbacks.last().unwrap().starts_with(full),
            "no room beside those: {callbacks:?}"
        );
    });
}

/// SPEC 2.8: a launch that certainly did not arrive is lost at once.
#[test]
fn launch_over_the_bounds_is_lost() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive_within(Bounds {
            bytes: 0,
            ..Bounds::default()
        });
        fixture.settle().await;
        take(&fixture.callbacks);
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        fixture.settle().await;
        receives(&fixture.callbacks, "t TASK_LOST REASON_MASTER_DISCONNECTED");
    });
}

#[test]
fn stop_waits_for_earlier_calls() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        take(&fixture.requests);
        driver.kill(named("t"), None).unwrap();
        driver.stop(true).unwrap();
        assert_eq!(driver.ended().await, Ended::LeftForFailover);
        receives(&fixture.requests, "kill t");
    });
}
