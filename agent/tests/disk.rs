//! The agent's disk in virtual time: removal of sandboxes, bounded output, and suspension while the
//! work directory takes no writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::path::PathBuf;
use std::time::Duration;

use fixture::*;
use meros_agent::Settings;
use protocol::message::task::RunTasks;
use protocol::{TaskState, Termination};

/// Removes sandboxes of ended executors after a minute.
fn quick(settings: &mut Settings) {
    settings.gc_delay = Duration::from_secs(60);
    settings.disk_watch_interval = Duration::from_secs(10);
}

fn fixture(acknowledges: bool, change: fn(&mut Settings)) -> FixtureOptions {
    let behavior = MasterBehavior {
        acknowledges,
        total_ping_timeout: Duration::from_secs(3600),
        ..MasterBehavior::default()
    };
    FixtureOptions {
        behavior,
        change,
        ..FixtureOptions::default()
    }
}

fn sandbox(world: &World, index: usize) -> PathBuf {
    world.launcher.launched.lock().unwrap()[index]
        .sandbox
        .clone()
}

/// Ends the executor that was launched at `index`.
async fn end(world: &World, index: usize) {
    world
        .launcher
        .exit(world.launcher.container(index), Termination::Exited(0));
    world.settle().await;
}

async fn run(world: &World, task: &str) {
    world.master.run(vec![single(task)]);
    world.settle().await;
}

async fn metric(world: &World, name: &str) -> f64 {
    world.agent.counters().await.unwrap()[name]
}

#[test]
fn acknowledged_sandbox_is_removed_at_its_age() {
    world(fixture(true, quick), |world| async move {
        run(&world, "ends").await;
        run(&world, "lives").await;
        end(&world, 0).await;
        assert_eq!(metric(&world, "gc/path_removals_pending").await, 1.0);
        world.advance(5).await;
        assert!(sandbox(&world, 0).is_dir(), "its time has not come");
        world.advance(60).await;
        assert!(!sandbox(&world, 0).exists());
        assert!(sandbox(&world, 1).is_dir(), "its executor lives");
        assert_eq!(metric(&world, "gc/path_removals_succeeded").await, 1.0);
        assert_eq!(metric(&world, "gc/path_removals_failed").await, 0.0);
        let age = metric(&world, "slave/executor_directory_max_allowed_age_secs").await;
        assert!(age < 60.0, "{age}");
    });
}

/// Within a process only the time since its start counts.
#[test]
fn jumps_of_the_clock_do_not_age_a_sandbox() {
    /// Nanoseconds of a year.
    const YEAR: i64 = 365 * 86_400 * 1_000_000_000;
    for jump in [YEAR, -YEAR] {
        world(fixture(true, quick), |world| async move {
            run(&world, "ends").await;
            end(&world, 0).await;
            world.advance(5).await;
            world.node.clock().set_wall_offset(jump);
            world.advance(20).await;
            assert!(sandbox(&world, 0).is_dir(), "{jump}");
            run(&world, "later").await;
            end(&world, 1).await;
            world.node.clock().set_wall_offset(0);
            world.advance(40).await;
            let kept = [0, 1].map(|index| sandbox(&world, index).is_dir());
            assert_eq!(kept, [false, true], "{jump}");
            world.advance(60).await;
            assert!(!sandbox(&world, 1).exists(), "{jump}");
        });
    }
}

#[test]
fn a_sandbox_with_an_unacknowledged_end_is_kept() {
    world(fixture(false, quick), |world| async move {
        run(&world, "ends").await;
        end(&world, 0).await;
        assert_eq!(world.master.states("ends"), [TaskState::Failed]);
        world.advance(300).await;
        assert!(sandbox(&world, 0).is_dir());
    });
}

#[test]
fn oldest_excess_sandboxes_are_removed_at_once() {
    let few = |settings: &mut Settings| settings.max_completed_sandboxes = 2;
    world(fixture(true, few), |world| async move {
        for index in 0..4 {
            run(&world, &format!("t{index}")).await;
            end(&world, index).await;
        }
        let kept = (0..4).filter(|index| sandbox(&world, *index).is_dir());
        assert_eq!(kept.collect::<Vec<_>>(), [2, 3]);
        assert_eq!(metric(&world, "gc/path_removals_pending").await, 2.0);
    });
}

#[test]
fn the_next_process_schedules_what_an_earlier_one_left() {
    let none = |settings: &mut Settings| settings.max_completed_sandboxes = 100;
    world(fixture(false, none), |world| async move {
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![custom("lives")],
        });
        world.settle().await;
        let (_node, _script) = world.executor(0).await;
        run(&world, "ends").await;
        end(&world, 1).await;
        let (lives, left) = (sandbox(&world, 0), sandbox(&world, 1));
        let launcher = LauncherControl::with_left(world.launcher.container(0));
        let world = world.restart(launcher).await;
        assert_eq!(metric(&world, "gc/path_removals_pending").await, 1.0);
        // The default week, less the used share of the disk.
        world.advance(1).await;
        assert!(lives.is_dir() && left.is_dir());
    });
}

#[test]
fn output_of_a_live_executor_is_bounded() {
    let small = |settings: &mut Settings| settings.max_output_size = 10;
    world(fixture(true, small), |world| async move {
        run(&world, "t").await;
        let path = |name: &str| sandbox(&world, 0).join(name);
        std::fs::write(path("stdout"), "0123456789 and more").unwrap();
        std::fs::write(path("stderr"), "0123456789").unwrap();
        world.advance(6).await;
        assert_eq!(std::fs::read(path("stdout")).unwrap(), b"");
        assert_eq!(
            std::fs::read(path("stdout.1")).unwrap(),
            b"9 and more",
            "its last bytes, as many as the bound"
        );
        assert_eq!(std::fs::read(path("stderr")).unwrap(), b"0123456789");
    });
}

#[test]
fn failed_writes_suspend_the_agent() {
    world(fixture(true, |_| ()), |world| async move {
        let suspensions = || world.master.received.lock().unwrap().suspensions.clone();
        // Neither sandboxes nor test writes are possible.
        let work_dir = world.work_dir.path();
        std::fs::create_dir(work_dir.join(".write-test")).unwrap();
        let slaves = work_dir.join("slaves");
        std::fs::remove_dir_all(&slaves).ok();
        std::fs::write(&slaves, "").unwrap();
        world.advance(2).await;
        assert_eq!(suspensions(), [], "not looked at yet");
        run(&world, "fails").await;
        assert_eq!(world.master.states("fails"), [TaskState::Failed]);
        assert_eq!(suspensions().len(), 1, "at the first failure");
        assert!(suspensions()[0].is_some());
        run(&world, "fails-too").await;
        world.advance(5).await;
        assert_eq!(suspensions().len(), 1, "reported once");
        // Each new master is informed.
        world.master.ping(false).await;
        world.advance(2).await;
        assert_eq!(suspensions().len(), 2);
        std::fs::remove_dir(work_dir.join(".write-test")).unwrap();
        std::fs::remove_file(&slaves).unwrap();
        world.advance(2).await;
        assert_eq!(suspensions()[2..], [None]);
        run(&world, "runs").await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 1);
    });
}

#[test]
fn hanging_disk_suspends_the_agent() {
    world(fixture(true, quick), |world| async move {
        let suspensions = || world.master.received.lock().unwrap().suspensions.clone();
        world.node.slow_blocking(Duration::from_secs(100));
        world.advance(25).await;
        assert_eq!(suspensions(), [], "a look may take some intervals");
        world.advance(30).await;
        assert_eq!(suspensions().len(), 1);
        assert!(suspensions()[0].is_some());
        world.node.slow_blocking(Duration::ZERO);
        world.advance(100).await;
        assert_eq!(suspensions()[1..], [None]);
    });
}
