//! Full mailboxes of the containerizer and of executor drivers, in virtual time: messages are
//! repeated, or their sender reconnects.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use fixture::*;
use protocol::message::executor::{EndTask, ExecutorUpdated, UpdateStored};
use protocol::message::scheduler::FrameworkMessage;
use protocol::message::task::RunTasks;
use protocol::{ExecutorId, TaskState};
use runtime::observe::tap::Probe;
use runtime::prelude::*;

/// More messages than a mailbox holds.
const FLOOD: usize = 70_000;

/// Bytes for an executor that does not exist.
fn bytes() -> FrameworkMessage {
    FrameworkMessage {
        framework_id: framework_id(),
        agent_id: agent_id(),
        executor_id: ExecutorId::new("nobody").unwrap(),
        data: Vec::new(),
    }
}

#[test]
fn lost_update_is_repeated_and_delivered_once() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        let (node, script) = world.executor(0).await;
        let probe = Probe::on(&node);
        let lost = probe.drop_next(|_: &ExecutorUpdated| true);
        script.driver().report(&task_id("t"), TaskState::Finished);
        world.settle().await;
        assert_eq!(lost.count(), 1);
        assert_eq!(world.master.states("t"), [TaskState::Running]);
        world.advance(5).await;
        let both = [TaskState::Running, TaskState::Finished];
        assert_eq!(world.master.states("t"), both);
        world.advance(120).await;
        assert_eq!(world.master.states("t"), both);
    });
}

/// Its confirmation was lost: the executor repeats it, and the framework receives it once.
#[test]
fn repeated_update_is_recognized_by_uuid() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        let (node, script) = world.executor(0).await;
        let probe = Probe::on(&node);
        let lost = probe.drop_next(|_: &UpdateStored| true);
        let message = probe.observe(|_: &ExecutorUpdated| true);
        script.driver().report(&task_id("t"), TaskState::Running);
        world.advance(30).await;
        assert_eq!((lost.count(), message.count()), (1, 2));
        let twice = [TaskState::Running, TaskState::Running];
        assert_eq!(world.master.states("t"), twice, "as ordered");
    });
}

/// It registers again, so that the master compares its inventory.
#[test]
fn agent_reregisters_after_losing_a_masters_message() {
    world(FixtureOptions::default(), |world| async move {
        world.settle().await;
        let before = world.master.registrations();
        let run = |id: &str| RunTasks {
            framework: framework(),
            tasks: vec![single(id)],
        };
        // The agent runs before the containerizer and finds its mailbox full.
        let agent = world.master.agent();
        world.node.tell(&agent, run("unheard")).unwrap();
        let containerizer = Pid::new("containerizer", world.node.id().clone(), 0);
        while world.node.tell(&containerizer, bytes()).is_ok() {}
        world.settle().await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 0, "no room");
        world.advance(60).await;
        assert_eq!(world.master.registrations(), before + 1);
        world.master.run(vec![single("heard")]);
        world.settle().await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 1);
    });
}

/// Floods an executor's driver; returns the other messages that it received.
async fn driver_flooded<M: Remote>(world: &World, with: impl Fn() -> M) -> Vec<String> {
    world.master.run(vec![custom("t")]);
    world.settle().await;
    let (node, script) = world.executor(0).await;
    let driver = Pid::new("executor", node.id().clone(), 0);
    for _ in 0..FLOOD {
        if world.node.tell(&driver, with()).is_err() {
            break; // The link is closed.
        }
    }
    world.advance(30).await;
    let mut received = script.received();
    received.retain(|what| !what.contains("nobody"));
    received
}

#[test]
fn executor_with_full_mailbox_is_disconnected_on_a_kill() {
    world(FixtureOptions::default(), |world| async move {
        let kill = || EndTask {
            task_id: task_id("nobody"),
            kill_policy: None,
        };
        let received = driver_flooded(&world, kill).await;
        assert_eq!(received, ["subscribed own", "launch t", "disconnected"]);
        assert_eq!(world.master.states("t").last(), Some(&TaskState::Failed));
    });
}

/// Messages are delivered at most once, so those that do not fit are dropped.
#[test]
fn executor_with_full_mailbox_drops_messages() {
    world(FixtureOptions::default(), |world| async move {
        let bytes = || FrameworkMessage {
            data: b"nobody".to_vec(),
            ..bytes()
        };
        let received = driver_flooded(&world, bytes).await;
        assert_eq!(received, ["subscribed own", "launch t"]);
    });
}
