//! Restart of an agent's process, in virtual time: which executors return, and what the master
//! receives (SPEC 5.3).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::time::Duration;

use fixture::*;
use meros_agent::launcher::{ContainerEnd, LeftContainer};
use meros_agent::ledger::reconfiguration::ReconfigurationPolicy;
use meros_agent::ledger::store::CheckpointStore;
use meros_agent::{AgentEnd, LauncherEvent};
use protocol::message::operation::ApplyOperation;
use protocol::message::registration::Reregistered;
use protocol::message::scheduler::AcknowledgeStatus;
use protocol::message::task::{FrameworkChanged, RunTasks};
use protocol::{Capability, Reason, TaskState, Termination};
use resources::{Conversion, Reservation, Resources};
use runtime::testing::inject_panic;

/// Runs tasks of a custom executor with checkpointing.
async fn run(world: &World, tasks: &[&str]) {
    world.master.tell(RunTasks {
        framework: checkpointing_framework(),
        tasks: tasks.iter().map(|id| custom(id)).collect(),
    });
    world.settle().await;
}

/// A launcher that has the container launched first.
fn still_there(world: &World) -> LauncherControl {
    LauncherControl::with_left(world.launcher.container(0))
}

fn silent() -> FixtureOptions {
    FixtureOptions {
        behavior: MasterBehavior {
            acknowledges: false,
            ..MasterBehavior::default()
        },
        ..FixtureOptions::default()
    }
}

#[test]
fn executor_resubscribes_after_an_agent_restart() {
    world(silent(), |world| async move {
        run(&world, &["a", "b"]).await;
        let request = world.launcher.launched.lock().unwrap()[0].clone();
        assert!(request.outlives);
        let (_node, script) = world.executor(0).await;
        assert_eq!(
            script.received(),
            ["subscribed own", "launch a", "launch b"]
        );
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        let sent = world.master.received.lock().unwrap().updates.len();
        let registered = world.master.registrations();

        let launcher = still_there(&world);
        let world = world.restart(launcher).await;
        assert_eq!(world.master.registrations(), registered, "it waits");
        world
            .node
            .clock()
            .advance(Duration::from_millis(1900))
            .await;
        assert!(world.master.registrations() > registered, "all are back");
        {
            let received = world.master.received.lock().unwrap();
            let (_, last) = received.registrations.last().unwrap();
            assert_eq!(last.agent.id, Some(agent_id()));
            let told: Vec<_> = last.held.tasks.iter().map(|task| task.state).collect();
            assert_eq!(told, [TaskState::Running; 2]);
            assert_eq!(last.held.executors.len(), 1);
            assert!(
                received.updates.len() > sent,
                "updates in flight are resent"
            );
        }
        assert_eq!(world.master.states("a"), [TaskState::Running], "once");
        assert_eq!(script.received().len(), 3, "the executor has not noticed");

        world.master.kill("a");
        run(&world, &["c"]).await;
        assert_eq!(script.received()[3..], ["kill a None", "launch c"]);
        world.advance(10).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
    });
}

/// Neither in memory nor on disk, beyond the newest that pages show.
#[test]
fn finished_containers_leave_nothing_behind() {
    const FINISHED: usize = 60;
    let few = FixtureOptions {
        change: |settings| {
            settings.max_completed_executors_per_framework = 5;
            settings.max_completed_sandboxes = 10;
        },
        ..FixtureOptions::default()
    };
    world(few, |world| async move {
        for number in 0..FINISHED {
            world.master.tell(RunTasks {
                framework: checkpointing_framework(),
                tasks: vec![shell(&format!("t{number}"))],
            });
            world.settle().await;
            let container_id = world.launcher.container(number);
            let end = ContainerEnd::Command {
                termination: Termination::Exited(0),
                kill_wanted: false,
            };
            world
                .launcher
                .emit(LauncherEvent::Exited { container_id, end });
            world.settle().await;
        }
        assert_eq!(
            world.master.states("t59").last(),
            Some(&TaskState::Finished)
        );
        let forgotten = world.launcher.forgotten.lock().unwrap().len();
        assert_eq!(forgotten, FINISHED, "the launcher keeps no ends");
        let survey = world.agent.survey().await.unwrap();
        assert_eq!((survey.containers.len(), survey.frameworks.len()), (0, 0));
        assert!(survey.completed.len() <= 5, "{}", survey.completed.len());
        let pending = world.agent.counters().await.unwrap()["gc/path_removals_pending"];
        assert_eq!(pending, 10.0);
        world.node.shutdown().await;
        drop(world.agent);
        let stored = CheckpointStore::on_disk(world.work_dir.path())
            .read()
            .unwrap();
        assert_eq!((stored.containers.len(), stored.updates.len()), (0, 0));
        assert_eq!(stored.orphaned, []);
    });
}

/// A command goes on without its agent, and its end is stored before the launcher forgets it.
#[test]
fn command_that_ends_without_its_agent_keeps_its_state() {
    world(silent(), |world| async move {
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![shell("goes-on"), shell("ends")],
        });
        world.settle().await;
        let (goes_on, ends) = (world.launcher.container(0), world.launcher.container(1));
        let mut launcher = LauncherControl::with_left(goes_on);
        launcher.left.push(LeftContainer {
            container_id: ends.clone(),
            pid: None,
            age: Duration::ZERO,
        });
        let world = world.restart(launcher).await;
        world.settle().await;
        let command_ends = || {
            let end = ContainerEnd::Command {
                termination: Termination::Exited(0),
                kill_wanted: false,
            };
            let container_id = ends.clone();
            world
                .launcher
                .emit(LauncherEvent::Exited { container_id, end });
        };
        command_ends();
        world.settle().await;
        command_ends();
        // No executor has to return.
        world.advance(10).await;
        let running = [TaskState::Starting, TaskState::Running];
        assert_eq!(world.master.states("goes-on"), running[..1], "one by one");
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        assert!(world.launcher.forgotten.lock().unwrap().is_empty());
        for _ in 0..3 {
            let update = world.master.last("ends").unwrap();
            world.master.tell(AcknowledgeStatus {
                framework_id: framework_id(),
                agent_id: agent_id(),
                task_id: task_id("ends"),
                uuid: update.status.uuid.unwrap(),
            });
            world.settle().await;
        }
        let finished = [running[0], running[1], TaskState::Finished];
        assert_eq!(world.master.states("ends"), finished);
        assert_eq!(*world.launcher.forgotten.lock().unwrap(), [ends]);
    });
}

/// The time counts from the start of the command, not of the agent.
#[test]
fn completion_time_goes_on_over_a_restart() {
    world(FixtureOptions::default(), |world| async move {
        let limited = protocol::TaskInfo {
            max_completion_time: Some(Duration::from_secs(60)),
            ..shell("t")
        };
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![limited],
        });
        world.settle().await;
        let id = world.launcher.container(0);
        let mut launcher = still_there(&world);
        launcher.left[0].age = Duration::from_secs(50);
        let world = world.restart(launcher).await;
        let terminated = || world.launcher.terminated.lock().unwrap().clone();
        world.advance(9).await;
        assert_eq!(terminated(), []);
        world.advance(2).await;
        assert_eq!(terminated(), [(id.clone(), Duration::ZERO)]);
        let end = ContainerEnd::Command {
            termination: Termination::Signaled(9),
            kill_wanted: true,
        };
        let container_id = id;
        world
            .launcher
            .emit(LauncherEvent::Exited { container_id, end });
        world.settle().await;
        let last = world.master.last("t").unwrap().status;
        let reason = Some(Reason::MaxCompletionTimeReached);
        assert_eq!((last.state, last.reason), (TaskState::Failed, reason));
    });
}

/// SPEC 3.2: applies to running containers, and survives a restart.
// Covers 3.2 Framework info updates.
#[test]
fn changed_framework_is_checkpointed() {
    world(silent(), |world| async move {
        run(&world, &["a"]).await;
        let mut framework = checkpointing_framework();
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
        // The agent's own updates use the new capabilities.
        world.master.kill("never-here");
        world.settle().await;
        assert_eq!(world.master.states("never-here"), [TaskState::Dropped]);
        let launcher = still_there(&world);
        let world = world.restart(launcher).await;
        world.settle().await;
        assert_eq!(world.agent.survey().await.unwrap().frameworks, [framework]);
    });
    // A framework without containers here is not stored.
    world(silent(), |world| async move {
        world.master.tell(FrameworkChanged {
            framework: checkpointing_framework(),
        });
        world.settle().await;
        assert_eq!(world.agent.survey().await.unwrap().frameworks, []);
    });
}

/// Found by a simulation: the tasks were checkpointed, but not the agent's id.
#[test]
fn agent_learns_its_id_from_a_launch() {
    let options = FixtureOptions {
        behavior: MasterBehavior {
            launches_first: vec![custom("a")],
            ..MasterBehavior::default()
        },
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let (_node, script) = world.executor(0).await;
        assert_eq!(script.received(), ["subscribed own", "launch a"]);
        let launcher = still_there(&world);
        let world = world.restart(launcher).await;
        world.advance(2).await;
        let received = world.master.received.lock().unwrap();
        let ids: Vec<_> = received
            .registrations
            .iter()
            .map(|(_, one)| one.agent.id.clone())
            .collect();
        assert_eq!(ids, [None, Some(agent_id())]);
        let (_, last) = received.registrations.last().unwrap();
        assert_eq!(last.held.tasks[0].info.agent_id, agent_id());
    });
}

/// SPEC 2.5, 5.3: the agent is the same process and knows the updates received before.
// Covers 2.5 What an executor must do.
#[test]
fn broken_executor_link_loses_and_doubles_nothing() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a", "b"]).await;
        let (_node, script) = world.executor(0).await;
        let settings = meros_agent::Settings::new(Vec::new(), world.work_dir.path());
        let socket = format!("unix:{}", settings.executor_socket.display());
        world.network.sever("executor-0", &socket);
        world.settle().await;
        // None of this arrives: it is repeated when the executor is back.
        script.driver().report(&task_id("a"), TaskState::Finished);
        world.master.kill("b");
        run(&world, &["c"]).await;
        world.advance(600).await;
        assert_eq!(
            script.received(),
            ["subscribed own", "launch a", "launch b"]
        );
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        assert!(world.launcher.killed.lock().unwrap().is_empty());

        world.network.heal("executor-0", &socket);
        world.advance(1).await;
        let received = script.received()[3..].to_vec();
        assert_eq!(received, ["launch c", "kill b None"]);
        let ends = |end| vec![TaskState::Running, end];
        assert_eq!(world.master.states("a"), ends(TaskState::Finished));
        assert_eq!(world.master.states("b"), ends(TaskState::Killed));
        assert_eq!(world.master.states("c"), [TaskState::Running]);

        // The next time it does not return; a flapping executor gets one deadline.
        world.network.sever("executor-0", &socket);
        world.advance(899).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        world.advance(900).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        let update = world.master.last("c").unwrap().status;
        let expected = (TaskState::Lost, Some(Reason::ExecutorReregistrationTimeout));
        assert_eq!((update.state, update.reason), expected);
    });
}

// Covers 2.5 What an executor must do.
#[test]
fn missing_executor_is_killed_before_registration() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"]).await;
        let (node, _) = world.executor(0).await;
        let launcher = still_there(&world);
        let before = world.master.registrations();
        let world = world.restart(launcher).await;
        // It hangs: its process lives but is silent.
        node.shutdown().await;
        world
            .node
            .clock()
            .advance(Duration::from_millis(1900))
            .await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        assert_eq!(world.master.registrations(), before);
        world.node.clock().advance(Duration::from_millis(200)).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        assert!(world.master.registrations() > before);
        let update = world.master.last("a").unwrap().status;
        let expected = (TaskState::Lost, Some(Reason::ExecutorReregistrationTimeout));
        assert_eq!((update.state, update.reason), expected);
        // Acknowledged, so the next process has no record of it.
        world.settle().await;
        let world = world.restart(LauncherControl::prompt()).await;
        world.advance(1).await;
        let received = world.master.received.lock().unwrap();
        let (_, last) = received.registrations.last().unwrap();
        assert_eq!(last.agent.id, Some(agent_id()));
        assert_eq!((last.held.tasks.len(), last.held.frameworks.len()), (0, 0));
    });
}

/// S131: its id is in the registry, so a deposed master could admit it without a write and end
/// unknown tasks.
// Covers S131.
#[test]
fn recovered_agent_requires_a_confirmed_leader() {
    let options = FixtureOptions {
        behavior: MasterBehavior {
            term: 3,
            compares_by_hand: true,
            ..MasterBehavior::default()
        },
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        let first = world.master.received.lock().unwrap().registrations[0]
            .1
            .clone();
        assert_eq!((first.agent.id, first.term_seen), (None, 0));
        let launcher = still_there(&world);
        let world = world.restart(launcher).await;
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
fn ended_tasks_fail_and_unknown_containers_are_killed() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"]).await;
        let stranger = protocol::ContainerId::new("stranger").unwrap();
        let launcher = LauncherControl::with_left(stranger.clone());
        let world = world.restart(launcher).await;
        world.advance(1).await;
        assert_eq!(*world.launcher.killed.lock().unwrap(), [stranger]);
        let update = world.master.last("a").unwrap().status;
        let expected = (TaskState::Failed, Some(Reason::ExecutorTerminated));
        assert_eq!((update.state, update.reason), expected);
    });
}

/// SPEC W18: any change of the configuration is accepted, and what no longer fits keeps running.
#[test]
fn changed_agent_keeps_its_id_and_tasks() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a", "b"]).await;
        let (_node, script) = world.executor(0).await;
        let first = world.master.received.lock().unwrap().registrations[0]
            .1
            .clone();
        world.master.tell(ApplyOperation {
            feedback: None,
            conversion: Conversion::Reserve {
                resources: reserved("cpus:2"),
            },
            version: first.resources.unwrap().version,
            serial: None,
        });
        world.settle().await;
        let launcher = still_there(&world);
        let world = world
            .restart_with(launcher, |settings| {
                settings.resources = Some("cpus:1;mem:48;disk:0;ports:[1-2]".into());
                settings.attributes = Some("rack:r2".into());
                settings.hostname = Some("moved".into());
                settings.port = 6051;
            })
            .await;
        world.advance(2).await;
        {
            let received = world.master.received.lock().unwrap();
            let (_, last) = received.registrations.last().unwrap();
            let agent = &last.agent;
            assert_eq!(agent.id, Some(agent_id()));
            assert_eq!((&*agent.hostname, agent.port), ("moved", 6051));
            // The reservation stays whole, so it counts instead of the configured cpu.
            let resources = |text: &str| Resources::parse(text).unwrap();
            assert_eq!(agent.resources, resources("cpus:2;mem:48;ports:[1-2]"));
            let total = &last.resources.as_ref().unwrap().total;
            assert_eq!(*total, resources("mem:48;ports:[1-2]") + reserved("cpus:2"));
            let states: Vec<_> = last.held.tasks.iter().map(|task| task.state).collect();
            assert_eq!(states, [TaskState::Running; 2]);
        }
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        run(&world, &["c"]).await;
        assert_eq!(script.received().last().unwrap(), "launch c");
    });
}

fn reserved(text: &str) -> Resources {
    let ads = Reservation::dynamic("ads".parse().unwrap(), None);
    Resources::parse(text)
        .unwrap()
        .push_reservation(&ads)
        .unwrap()
}

#[test]
fn agent_keeps_its_id_without_tasks() {
    world(FixtureOptions::default(), |world| async move {
        world.advance(1).await;
        let world = world
            .restart_with(LauncherControl::prompt(), |settings| {
                settings.reconfiguration_policy = ReconfigurationPolicy::Equal;
                settings.resources = Some("cpus:1;mem:48;disk:0;ports:[]".into());
            })
            .await;
        world.advance(1).await;
        world.agent.stop();
        let end = world.agent.ended().await;
        assert_eq!(end, AgentEnd::Stopped { waiting: 0 });
        let world = world.restart(LauncherControl::prompt()).await;
        world.advance(1).await;
        let received = world.master.received.lock().unwrap();
        assert!(!received.left);
        let registered = received.registrations.iter();
        let ids: Vec<_> = registered.map(|(_, one)| one.agent.id.clone()).collect();
        assert_eq!(ids, [None, Some(agent_id()), Some(agent_id())]);
    });
}

#[test]
fn agent_returns_under_its_id_unless_it_leaves() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.agent.stop();
        let end = world.agent.ended().await;
        assert_eq!(end, AgentEnd::Stopped { waiting: 1 });
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        assert!(!world.master.received.lock().unwrap().left);
        assert!(!*world.launcher.checkpoints_discarded.lock().unwrap());

        let launcher = still_there(&world);
        let world = world.restart(launcher).await;
        world.advance(1).await;
        world.agent.leave();
        assert_eq!(world.agent.ended().await, AgentEnd::Unregistered);
        assert!(world.master.received.lock().unwrap().left);
        assert!(*world.launcher.checkpoints_discarded.lock().unwrap());
        // It does not return under its id.
        let world = world.restart(LauncherControl::prompt()).await;
        world.advance(1).await;
        let received = world.master.received.lock().unwrap();
        assert_eq!(received.registrations.last().unwrap().1.agent.id, None);
    });
}

/// Found by a simulation (seed 3372): a task started while the slow disk deleted the checkpoints
/// was left behind unknown.
#[test]
fn leaving_agent_starts_no_tasks() {
    world(FixtureOptions::default(), |world| async move {
        world.advance(1).await;
        world.node.slow_blocking(Duration::from_secs(2));
        world.agent.leave();
        world.settle().await;
        world.master.run(vec![custom("late")]);
        world.settle().await;
        assert!(
            !world.master.received.lock().unwrap().left,
            "it leaves still"
        );
        world.advance(10).await;
        assert_eq!(world.agent.ended().await, AgentEnd::Unregistered);
        assert!(world.master.received.lock().unwrap().left);
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 0);
    });
}

/// Found by a simulation (seed 8892): the slow disk had not deleted the task when the agent failed,
/// and the next process reported it as gone.
#[test]
fn leaving_agent_reports_ends_after_deleting_checkpoints() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.node.slow_blocking(Duration::from_secs(2));
        world.agent.leave();
        world.launcher.exit(
            world.launcher.container(0),
            protocol::Termination::Signaled(9),
        );
        let ended = || {
            let received = world.master.received.lock().unwrap();
            let mut told = received
                .updates
                .iter()
                .map(|(_, update)| update.latest_state);
            (told.any(TaskState::is_terminal), received.left)
        };
        world.advance(1).await;
        assert_eq!(ended(), (false, false));
        world.advance(10).await;
        assert_eq!(world.agent.ended().await, AgentEnd::Unregistered);
        assert_eq!(ended(), (true, true));
    });
}

/// SPEC 5.3: an absent framework eventually receives its tasks' ends.
#[test]
fn stopped_agent_returns_for_unacknowledged_ends() {
    world(silent(), |world| async move {
        run(&world, &["a"]).await;
        let _executor = world.executor(0).await;
        world.launcher.exit(
            world.launcher.container(0),
            protocol::Termination::Exited(3),
        );
        world.settle().await;
        world.agent.stop();
        let end = world.agent.ended().await;
        assert_eq!(end, AgentEnd::Stopped { waiting: 1 });
        assert!(!world.master.received.lock().unwrap().left);

        world.master.received.lock().unwrap().updates.clear();
        let world = world.restart(LauncherControl::prompt()).await;
        world.advance(1).await;
        let received = world.master.received.lock().unwrap();
        let (_, last) = received.registrations.last().unwrap();
        assert_eq!(last.agent.id, Some(agent_id()));
        let told = &received.updates.last().unwrap().1;
        assert_eq!(told.latest_state, TaskState::Failed);
    });
}

/// SPEC 5.3: these actors share state that none of them could rebuild alone, and later changes
/// might not be checkpointed.
// Covers 6.1 spawn.
#[test]
fn panic_of_a_stateful_actor_restarts_the_agent() {
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
            assert!(inject_panic(&world.node, part, "planted"));
            let end = world.agent.ended().await;
            let AgentEnd::ActorFailed { name, reason } = &end else {
                panic!("{part}: {end}");
            };
            assert!(name == part && !reason.is_empty(), "{part}: {end}");
            assert!(world.launcher.killed.lock().unwrap().is_empty());
            assert!(!*world.launcher.checkpoints_discarded.lock().unwrap());

            let launcher = still_there(&world);
            let world = world.restart(launcher).await;
            world.advance(2).await;
            let received = world.master.received.lock().unwrap();
            let (_, last) = received.registrations.last().unwrap();
            assert_eq!(last.agent.id, Some(agent_id()));
            let told: Vec<_> = last.held.tasks.iter().map(|task| task.state).collect();
            assert_eq!(told, [TaskState::Running], "{part}");
            assert_eq!(script.received(), ["subscribed own", "launch a"]);
        });
    }
}

/// The task of a group under the executor `pod`.
fn member(first: &str, id: &str) -> protocol::TaskInfo {
    let resources = resources::Resources::parse("cpus:0.1;mem:32;disk:1").unwrap();
    let pod = protocol::ExecutorId::new("pod").unwrap();
    protocol::TaskInfo {
        group: Some(task_id(first)),
        ..shell(id).with_executor(protocol::ExecutorInfo::default_kind(pod, resources))
    }
}

#[test]
fn groups_go_on_after_an_agent_restart() {
    world(FixtureOptions::default(), |world| async move {
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![member("a", "a"), member("a", "b")],
        });
        world.settle().await;
        for task in ["a", "b"] {
            assert_eq!(world.master.states(task)[1..], [TaskState::Running]);
        }
        let (outer, a, b) = (
            world.launcher.container(0),
            world.launcher.container(1),
            world.launcher.container(2),
        );
        assert!(a.is_inside(&outer) && b.is_inside(&outer));
        let mut launcher = LauncherControl::with_left(outer.clone());
        for (id, pid) in [(&a, Some(1 << 22)), (&b, None)] {
            launcher.left.push(LeftContainer {
                container_id: id.clone(),
                pid,
                age: Duration::from_secs(1),
            });
        }
        let world = world.restart(launcher).await;
        world.settle().await;
        let ends = |id: &protocol::ContainerId, status| {
            let end = ContainerEnd::Command {
                termination: Termination::Exited(status),
                kill_wanted: status == 0,
            };
            let container_id = id.clone();
            let event = LauncherEvent::Exited { container_id, end };
            world.launcher.emit(event);
        };
        // The end of one, which came while there was no agent, ends its group.
        ends(&b, 3);
        world.advance(10).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        {
            let received = world.master.received.lock().unwrap();
            let (_, last) = received.registrations.last().unwrap();
            assert_eq!(last.held.executors.len(), 1);
        }
        assert_eq!(world.master.states("b").last(), Some(&TaskState::Failed));
        let terminated = world.launcher.terminated.lock().unwrap().clone();
        assert_eq!(terminated, [(a.clone(), Duration::from_secs(3))]);
        ends(&a, 0);
        world.settle().await;
        assert_eq!(world.master.states("a").last(), Some(&TaskState::Killed));
        assert_eq!(world.launcher.killed.lock().unwrap().last(), Some(&outer));
        let forgotten = world.launcher.forgotten.lock().unwrap().clone();
        assert!(
            forgotten.contains(&a) && forgotten.contains(&b),
            "{forgotten:?}"
        );
    });
}

#[test]
fn kill_before_the_launch_ends_the_whole_group() {
    let options = FixtureOptions {
        launcher: LauncherControl::default(),
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![member("a", "a"), member("a", "b")],
        });
        world.settle().await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 1, "it waits");
        world.master.kill("b");
        world.settle().await;
        for task in ["a", "b"] {
            let status = world.master.last(task).unwrap().status;
            assert_eq!(status.state, TaskState::Killed, "{task}");
            assert_eq!(status.reason, Some(Reason::TaskKilledDuringLaunch));
            let message = "A task within the task group was killed before delivery to the executor";
            assert_eq!(status.message, message);
        }
        let outer = world.launcher.container(0);
        assert_eq!(
            world.launcher.killed.lock().unwrap().as_slice(),
            std::slice::from_ref(&outer)
        );
        world.launcher.start(outer.clone());
        world.launcher.exit(outer, Termination::Exited(0));
        world.settle().await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 1);
        assert_eq!(world.master.received.lock().unwrap().exited.len(), 1);
    });
}
