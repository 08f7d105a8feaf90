//! What is told and finds no room at a containerizer or at an executor's driver, in virtual time: it is said again, or its speaker begins anew.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use protocol::message::executor::{EndTask, ExecutorUpdated, UpdateStored};
use protocol::message::scheduler::FrameworkMessage;
use protocol::message::task::RunTasks;
use protocol::{ExecutorId, TaskState};
use runtime::prelude::*;
use runtime::tap::Probe;
use stage::*;

/// More than a mailbox takes.
const FLOOD: usize = 70_000;

/// Bytes for an executor that is not there: they cost the containerizer a look.
fn bytes() -> FrameworkMessage {
    FrameworkMessage {
        framework_id: framework_id(),
        agent_id: agent_id(),
        executor_id: ExecutorId::new("nobody").unwrap(),
        data: Vec::new(),
    }
}

#[test]
fn an_update_that_was_not_heard_is_said_again_and_one_that_was_is_not_passed_on_twice() {
    world(Cast::default(), |world| async move {
        world.master.run(vec![shell("t")]);
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

/// Its confirmation was lost: the executor says it again, and the framework does not hear it twice.
#[test]
fn an_update_that_is_said_again_is_known_by_its_uuid() {
    world(Cast::default(), |world| async move {
        world.master.run(vec![shell("t")]);
        world.settle().await;
        let (node, script) = world.executor(0).await;
        let probe = Probe::on(&node);
        let lost = probe.drop_next(|_: &UpdateStored| true);
        let said = probe.observe(|_: &ExecutorUpdated| true);
        script.driver().report(&task_id("t"), TaskState::Running);
        world.advance(30).await;
        assert_eq!((lost.count(), said.count()), (1, 2));
        let twice = [TaskState::Running, TaskState::Running];
        assert_eq!(world.master.states("t"), twice, "as it was told");
    });
}

/// It registers again, so that its master finds what it lacks.
#[test]
fn an_agent_that_cannot_hand_on_what_its_master_says_registers_again() {
    world(Cast::default(), |world| async move {
        world.settle().await;
        let before = world.master.registrations();
        let run = |id: &str| RunTasks {
            framework: framework(),
            tasks: vec![shell(id)],
        };
        // The agent is woken before the containerizer, and finds that one's mailbox full.
        let agent = world.master.agent();
        world.node.tell(&agent, run("unheard")).unwrap();
        let containerizer = Pid::new("containerizer", world.node.id().clone(), 0);
        while world.node.tell(&containerizer, bytes()).is_ok() {}
        world.settle().await;
        assert_eq!(world.stage.launched.lock().unwrap().len(), 0, "no room");
        world.advance(60).await;
        assert_eq!(world.master.registrations(), before + 1);
        world.master.run(vec![shell("heard")]);
        world.settle().await;
        assert_eq!(world.stage.launched.lock().unwrap().len(), 1);
    });
}

/// Floods the driver of an executor, and gives what that hears beside it.
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
    let mut heard = script.heard();
    heard.retain(|what| !what.contains("nobody"));
    heard
}

#[test]
fn an_executor_that_has_no_room_for_a_kill_is_cut_off_and_ends() {
    world(Cast::default(), |world| async move {
        let kill = || EndTask {
            task_id: task_id("nobody"),
            kill_policy: None,
        };
        let heard = driver_flooded(&world, kill).await;
        assert_eq!(heard, ["subscribed own", "launch t", "disconnected"]);
        assert_eq!(world.master.states("t").last(), Some(&TaskState::Failed));
    });
}

/// Bytes are said at most once, so those that find no room are just lost.
#[test]
fn an_executor_that_has_no_room_for_bytes_goes_on() {
    world(Cast::default(), |world| async move {
        let bytes = || FrameworkMessage {
            data: b"nobody".to_vec(),
            ..bytes()
        };
        let heard = driver_flooded(&world, bytes).await;
        assert_eq!(heard, ["subscribed own", "launch t"]);
    });
}
