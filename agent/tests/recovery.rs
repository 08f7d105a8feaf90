//! An agent whose process ends and is followed by another, in virtual time: who comes back, who does not, and what its master is told (SPEC 5.3).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use std::time::Duration;

use meros_agent::{AgentEnd, LauncherEvent};
use protocol::message::registration::Reregistered;
use protocol::message::task::{FrameworkChanged, RunTasks};
use protocol::{Capability, Reason, TaskState};
use runtime::rehearsal::let_fall;
use stage::*;

/// Runs tasks of the framework's own executor, which outlives its agent.
async fn run(world: &World, tasks: &[&str]) {
    world.master.tell(RunTasks {
        framework: kept_framework(),
        tasks: tasks.iter().map(|id| custom(id)).collect(),
    });
    world.settle().await;
}

/// The next launcher has the container that was launched first.
fn still_there(world: &World) -> Stage {
    Stage::with_left(world.stage.container(0))
}

fn silent() -> Cast {
    Cast {
        manners: Manners {
            acknowledges: false,
            ..Manners::default()
        },
        ..Cast::default()
    }
}

#[test]
fn an_executor_subscribes_at_the_next_process_and_the_agent_comes_back_with_its_tasks() {
    world(silent(), |world| async move {
        run(&world, &["a", "b"]).await;
        let request = world.stage.launched.lock().unwrap()[0].clone();
        assert!(request.outlives);
        let (_node, script) = world.executor(0).await;
        assert_eq!(script.heard(), ["subscribed own", "launch a", "launch b"]);
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        let sent = world.master.heard.lock().unwrap().updates.len();
        let registered = world.master.registrations();

        let stage = still_there(&world);
        let world = world.restart(stage).await;
        assert_eq!(world.master.registrations(), registered, "it waits");
        world
            .node
            .clock()
            .advance(Duration::from_millis(1900))
            .await;
        assert!(world.master.registrations() > registered, "all are back");
        {
            let heard = world.master.heard.lock().unwrap();
            let (_, last) = heard.registrations.last().unwrap();
            assert_eq!(last.agent.id, Some(agent_id()));
            let told: Vec<_> = last.held.tasks.iter().map(|task| task.state).collect();
            assert_eq!(told, [TaskState::Running; 2]);
            assert_eq!(last.held.executors.len(), 1);
            assert!(heard.updates.len() > sent, "those in flight are sent again");
        }
        assert_eq!(world.master.states("a"), [TaskState::Running], "once");
        assert_eq!(script.heard().len(), 3, "the executor has not noticed");

        world.master.kill("a");
        run(&world, &["c"]).await;
        assert_eq!(script.heard()[3..], ["kill a None", "launch c"]);
        world.advance(10).await;
        assert!(world.stage.killed.lock().unwrap().is_empty());
    });
}

/// SPEC 3.2: what runs already goes by it, and so does the next process of the agent.
#[test]
fn a_framework_is_what_its_master_says_that_it_has_become() {
    world(silent(), |world| async move {
        run(&world, &["a"]).await;
        let mut framework = kept_framework();
        framework.capabilities.insert(Capability::PartitionAware);
        let changed = FrameworkChanged {
            framework: framework.clone(),
        };
        world.master.tell(changed.clone());
        world.settle().await;
        assert_eq!(
            world.agent.survey().await.unwrap().frameworks,
            [framework.clone()]
        );
        // What the agent itself says of tasks is in the words that it knows now.
        world.master.kill("never-here");
        world.settle().await;
        assert_eq!(world.master.states("never-here"), [TaskState::Dropped]);
        let stage = still_there(&world);
        let world = world.restart(stage).await;
        world.settle().await;
        assert_eq!(world.agent.survey().await.unwrap().frameworks, [framework]);
    });
    // One that has nothing here is not known by it.
    world(silent(), |world| async move {
        world.master.tell(FrameworkChanged {
            framework: kept_framework(),
        });
        world.settle().await;
        assert_eq!(world.agent.survey().await.unwrap().frameworks, []);
    });
}

/// A rehearsal found it: the tasks were on its disk, and who it is was not.
#[test]
fn an_agent_that_runs_tasks_before_it_is_told_who_it_is_comes_back_as_whom_the_tasks_name() {
    let cast = Cast {
        manners: Manners {
            launches_first: vec![custom("a")],
            ..Manners::default()
        },
        ..Cast::default()
    };
    world(cast, |world| async move {
        let (_node, script) = world.executor(0).await;
        assert_eq!(script.heard(), ["subscribed own", "launch a"]);
        let stage = still_there(&world);
        let world = world.restart(stage).await;
        world.advance(2).await;
        let heard = world.master.heard.lock().unwrap();
        let ids: Vec<_> = heard
            .registrations
            .iter()
            .map(|(_, one)| one.agent.id.clone())
            .collect();
        assert_eq!(ids, [None, Some(agent_id())]);
        let (_, last) = heard.registrations.last().unwrap();
        assert_eq!(last.held.tasks[0].info.agent_id, agent_id());
    });
}

/// SPEC 2.5, 5.3: its agent is the same as before, and knows what it has heard.
#[test]
fn an_executor_whose_link_breaks_subscribes_again_and_nothing_is_doubled_or_lost() {
    world(Cast::default(), |world| async move {
        run(&world, &["a", "b"]).await;
        let (_node, script) = world.executor(0).await;
        let settings = meros_agent::Settings::new(Vec::new(), world.work_dir.path());
        let socket = format!("unix:{}", settings.executor_socket.display());
        world.network.sever("executor-0", &socket);
        world.settle().await;
        // None of this is heard: it is said when the executor is back.
        script.driver().report(&task_id("a"), TaskState::Finished);
        world.master.kill("b");
        run(&world, &["c"]).await;
        world.advance(600).await;
        assert_eq!(script.heard(), ["subscribed own", "launch a", "launch b"]);
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        assert!(world.stage.killed.lock().unwrap().is_empty());

        world.network.heal("executor-0", &socket);
        world.advance(1).await;
        let heard = script.heard()[3..].to_vec();
        assert_eq!(heard, ["launch c", "kill b None"]);
        let ends = |end| vec![TaskState::Running, end];
        assert_eq!(world.master.states("a"), ends(TaskState::Finished));
        assert_eq!(world.master.states("b"), ends(TaskState::Killed));
        assert_eq!(world.master.states("c"), [TaskState::Running]);

        // The next time it does not come back; who comes and goes is looked after once in that time.
        world.network.sever("executor-0", &socket);
        world.advance(899).await;
        assert!(world.stage.killed.lock().unwrap().is_empty());
        world.advance(900).await;
        assert_eq!(world.stage.killed.lock().unwrap().len(), 1);
        let update = world.master.last("c").unwrap().status;
        let expected = (TaskState::Lost, Some(Reason::ExecutorReregistrationTimeout));
        assert_eq!((update.state, update.reason), expected);
    });
}

#[test]
fn an_executor_that_stays_away_is_killed_after_the_timeout_and_then_the_agent_registers() {
    world(Cast::default(), |world| async move {
        run(&world, &["a"]).await;
        let (node, _) = world.executor(0).await;
        let stage = still_there(&world);
        let before = world.master.registrations();
        let world = world.restart(stage).await;
        // It hangs: its process is there and says nothing.
        node.shutdown().await;
        world
            .node
            .clock()
            .advance(Duration::from_millis(1900))
            .await;
        assert!(world.stage.killed.lock().unwrap().is_empty());
        assert_eq!(world.master.registrations(), before);
        world.node.clock().advance(Duration::from_millis(200)).await;
        assert_eq!(world.stage.killed.lock().unwrap().len(), 1);
        assert!(world.master.registrations() > before);
        let update = world.master.last("a").unwrap().status;
        let expected = (TaskState::Lost, Some(Reason::ExecutorReregistrationTimeout));
        assert_eq!((update.state, update.reason), expected);
        // Acknowledged, so nothing is left of it for the next process.
        world.settle().await;
        let world = world.restart(Stage::prompt()).await;
        world.advance(1).await;
        let heard = world.master.heard.lock().unwrap();
        let (_, last) = heard.registrations.last().unwrap();
        assert_eq!(last.agent.id, Some(agent_id()));
        assert_eq!((last.held.tasks.len(), last.held.frameworks.len()), (0, 0));
    });
}

/// S131: it is known to the registry, so a deposed master would have it without a write, and end what it does not know.
#[test]
fn an_agent_that_goes_on_has_forgotten_the_terms_and_is_taken_in_only_by_who_asks_a_majority() {
    let cast = Cast {
        manners: Manners {
            term: 3,
            compares_by_hand: true,
            ..Manners::default()
        },
        ..Cast::default()
    };
    world(cast, |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        let first = world.master.heard.lock().unwrap().registrations[0]
            .1
            .clone();
        assert_eq!((first.agent.id, first.term_seen), (None, 0));
        let stage = still_there(&world);
        let world = world.restart(stage).await;
        world.advance(2).await;
        let mut welcome = welcome(agent_id());
        welcome.master.term = 3;
        let welcome = Reregistered::Registered(welcome);
        let back = world.master.answer(welcome.clone());
        assert_eq!(
            (back.agent.id, back.term_seen),
            (Some(agent_id()), u64::MAX)
        );
        world.settle().await;
        world.master.ping(false).await;
        world.advance(2).await;
        assert_eq!(world.master.answer(welcome).term_seen, 3);
    });
}

#[test]
fn what_did_not_live_on_has_failed_and_what_is_not_known_is_ended() {
    world(Cast::default(), |world| async move {
        run(&world, &["a"]).await;
        let stranger = protocol::ContainerId::new("stranger").unwrap();
        let stage = Stage::with_left(stranger.clone());
        let world = world.restart(stage).await;
        world.advance(1).await;
        assert_eq!(*world.stage.killed.lock().unwrap(), [stranger]);
        let update = world.master.last("a").unwrap().status;
        let expected = (TaskState::Failed, Some(Reason::ExecutorTerminated));
        assert_eq!((update.state, update.reason), expected);
    });
}

#[test]
fn an_agent_that_is_stopped_leaves_only_if_nothing_waits_for_it() {
    world(Cast::default(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.agent.go_away();
        let end = world.agent.ended().await;
        assert_eq!(end, AgentEnd::Departed { waiting: 1 });
        assert!(world.stage.killed.lock().unwrap().is_empty());
        assert!(!world.master.heard.lock().unwrap().left);
        assert!(!*world.stage.keeps_nothing.lock().unwrap());

        let stage = still_there(&world);
        let world = world.restart(stage).await;
        world.advance(1).await;
        world.agent.leave();
        assert_eq!(world.agent.ended().await, AgentEnd::Left);
        assert!(world.master.heard.lock().unwrap().left);
        assert!(*world.stage.keeps_nothing.lock().unwrap());
        // It will not come back as itself.
        let world = world.restart(Stage::prompt()).await;
        world.advance(1).await;
        let heard = world.master.heard.lock().unwrap();
        assert_eq!(heard.registrations.last().unwrap().1.agent.id, None);
    });
}

/// Found by a rehearsal of a group (seed 3372): what it began while its slow disk forgot was left behind, and nobody knew of it.
#[test]
fn an_agent_that_leaves_begins_nothing_more() {
    world(Cast::default(), |world| async move {
        world.advance(1).await;
        world.node.slow_blocking(Duration::from_secs(2));
        world.agent.go_away();
        world.settle().await;
        world.master.run(vec![custom("late")]);
        world.settle().await;
        assert!(!world.master.heard.lock().unwrap().left, "it leaves still");
        world.advance(10).await;
        assert_eq!(world.agent.ended().await, AgentEnd::Left);
        assert!(world.master.heard.lock().unwrap().left);
        assert_eq!(world.stage.launched.lock().unwrap().len(), 0);
    });
}

/// Found by a rehearsal of a group (seed 8892): its slow disk had not forgotten the task when it fell, and the next process called it gone.
#[test]
fn an_agent_that_leaves_tells_how_tasks_ended_once_its_disk_has_forgotten_them() {
    world(Cast::default(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.node.slow_blocking(Duration::from_secs(2));
        world.agent.leave();
        world.stage.happens(LauncherEvent::Exited {
            container_id: world.stage.container(0),
            termination: protocol::Termination::Signaled(9),
        });
        let ended = || {
            let heard = world.master.heard.lock().unwrap();
            let mut told = heard.updates.iter().map(|(_, update)| update.latest_state);
            (told.any(TaskState::is_terminal), heard.left)
        };
        world.advance(1).await;
        assert_eq!(ended(), (false, false));
        world.advance(10).await;
        assert_eq!(world.agent.ended().await, AgentEnd::Left);
        assert_eq!(ended(), (true, true));
    });
}

/// SPEC 5.3: a framework that is away hears at some time how its tasks have ended.
#[test]
fn an_agent_that_is_stopped_comes_back_for_ends_that_nobody_has_acknowledged() {
    world(silent(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.stage.happens(LauncherEvent::Exited {
            container_id: world.stage.container(0),
            termination: protocol::Termination::Exited(3),
        });
        world.settle().await;
        world.agent.go_away();
        let end = world.agent.ended().await;
        assert_eq!(end, AgentEnd::Departed { waiting: 1 });
        assert!(!world.master.heard.lock().unwrap().left);

        world.master.heard.lock().unwrap().updates.clear();
        let world = world.restart(Stage::prompt()).await;
        world.advance(1).await;
        let heard = world.master.heard.lock().unwrap();
        let (_, last) = heard.registrations.last().unwrap();
        assert_eq!(last.agent.id, Some(agent_id()));
        let told = &heard.updates.last().unwrap().1;
        assert_eq!(told.latest_state, TaskState::Failed);
    });
}

/// SPEC 5.3: what these know together none of them could go on with alone, and what happens from then on might not be kept.
#[test]
fn an_agent_of_which_a_part_that_remembers_has_fallen_ends_and_the_next_process_goes_on() {
    for part in [
        "agent",
        "containerizer",
        "status_updates",
        "operations",
        "ledger",
    ] {
        world(silent(), |world| async move {
            run(&world, &["a"]).await;
            let (_node, script) = world.executor(0).await;
            assert!(let_fall(&world.node, part, "planted"));
            let end = world.agent.ended().await;
            let AgentEnd::Broken { name, reason } = &end else {
                panic!("{part}: {end}");
            };
            assert!(name == part && !reason.is_empty(), "{part}: {end}");
            assert!(world.stage.killed.lock().unwrap().is_empty());
            assert!(!*world.stage.keeps_nothing.lock().unwrap());

            let stage = still_there(&world);
            let world = world.restart(stage).await;
            world.advance(2).await;
            let heard = world.master.heard.lock().unwrap();
            let (_, last) = heard.registrations.last().unwrap();
            assert_eq!(last.agent.id, Some(agent_id()));
            let told: Vec<_> = last.held.tasks.iter().map(|task| task.state).collect();
            assert_eq!(told, [TaskState::Running], "{part}");
            assert_eq!(script.heard(), ["subscribed own", "launch a"]);
        });
    }
}
