//! The agent's actors in virtual time: a recording master, a launcher without processes, executors
//! on simulated nodes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::time::Duration;

use executor_driver::{Environment, ExecutorDriverRef};
use fixture::*;
use meros_agent::launcher::ContainerEnd;
use meros_agent::oversubscription::qos::CORRECTIONS_MAX;
use meros_agent::{AgentEnd, LauncherEvent};
use module_api::Fault;
use protocol::message::registration::{DisownTasks, ShutDownAgent};
use protocol::message::scheduler::{AcknowledgeStatus, FrameworkMessage};
use protocol::message::task::{RunTasks, ShutDownFramework};
use protocol::{ExecutorId, QosCorrection, Reason, Source, TaskState, Termination};
use resources::Resources;
use runtime::prelude::*;
use runtime::testing::inject_panic;

/// SPEC 5.3.
// Covers S132; 2.2 ACKNOWLEDGE.
#[test]
fn update_is_resent_until_acknowledged() {
    let behavior = MasterBehavior {
        acknowledges: false,
        ..MasterBehavior::default()
    };
    world(
        FixtureOptions {
            behavior,
            ..FixtureOptions::default()
        },
        |world| async move {
            world.master.run(vec![single("t")]);
            world.settle().await;
            let (_executor, script) = world.executor(0).await;
            script.driver().report(&task_id("t"), TaskState::Finished);
            // Pings keep the agent's master.
            for _ in 0..18 {
                world.advance(10).await;
                world.master.ping(true).await;
            }
            let first = {
                let received = world.master.received.lock().unwrap();
                let seconds: Vec<u64> = received
                    .updates
                    .iter()
                    .map(|(at, _)| at.as_secs())
                    .collect();
                assert_eq!(seconds, [0, 10, 30, 70, 150]);
                let update = received.updates[1].1.clone();
                assert_eq!(
                    (update.status.state, update.latest_state),
                    (TaskState::Running, TaskState::Finished)
                );
                update
            };
            let acknowledge = AcknowledgeStatus {
                framework_id: framework_id(),
                agent_id: agent_id(),
                task_id: task_id("t"),
                uuid: first.status.uuid.unwrap(),
            };
            world.master.tell(acknowledge.clone());
            world.master.tell(acknowledge);
            world.settle().await;
            assert_eq!(
                world.master.states("t"),
                [TaskState::Running, TaskState::Finished]
            );
            assert_eq!(world.master.received.lock().unwrap().updates.len(), 6);
        },
    );
}

/// SPEC 5.3: a task whose framework is away does not delay others.
#[test]
fn resend_timers_are_independent() {
    let behavior = MasterBehavior {
        acknowledges: false,
        ..MasterBehavior::default()
    };
    world(
        FixtureOptions {
            behavior,
            ..FixtureOptions::default()
        },
        |world| async move {
            world.master.run(vec![single("old")]);
            world.settle().await;
            let (_old, _) = world.executor(0).await;
            for _ in 0..8 {
                world.advance(10).await;
                world.master.ping(true).await;
            }
            // The old one is resent at 150 s, then at 310 s.
            world.master.run(vec![single("new")]);
            world.settle().await;
            let (_new, _) = world.executor(1).await;
            for _ in 0..3 {
                world.advance(10).await;
                world.master.ping(true).await;
            }
            let received = world.master.received.lock().unwrap();
            let new = received.updates.iter().filter(|(_, update)| {
                let id = &update.status.task_id;
                *id == task_id("new")
            });
            let seconds: Vec<u64> = new.map(|(at, _)| at.as_secs()).collect();
            assert_eq!(seconds, [80, 90, 110]);
        },
    );
}

/// SPEC 5.2, 5.4.
#[test]
fn kill_before_subscription_ends_the_task() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("early"), single("late")]);
        world.settle().await;
        world.master.kill("early");
        world.settle().await;
        let early = world.master.last("early").unwrap().status;
        assert_eq!(
            (early.state, early.reason),
            (TaskState::Killed, Some(Reason::TaskKilledDuringLaunch))
        );
        assert_eq!(
            world.launcher.killed.lock().unwrap().len(),
            1,
            "its container is not needed"
        );
        let late = world
            .launcher
            .launched
            .lock()
            .unwrap()
            .iter()
            .position(|request| request.environment["MESOS_EXECUTOR_ID"] == "late");
        let (_executor, script) = world.executor(late.unwrap()).await;
        world.master.kill("late");
        world.settle().await;
        assert_eq!(
            script.received(),
            ["subscribed late", "launch late", "kill late None"]
        );
        assert_eq!(
            world.master.states("late"),
            [TaskState::Running, TaskState::Killed]
        );
        world.master.kill("never");
        world.settle().await;
        let never = world.master.last("never").unwrap().status;
        assert_eq!(
            (never.state, never.reason),
            (TaskState::Lost, Some(Reason::ExecutorTerminated))
        );
        assert_eq!(never.message, "Cannot find executor");
    });
}

/// A repeated kill, perhaps from the next master, finds the task's end acknowledged: there is no
/// second end.
#[test]
fn kill_of_an_ended_task_is_ignored() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        let (_executor, _) = world.executor(0).await;
        let told = || world.master.received.lock().unwrap().updates.len();
        for task in ["t", "never"] {
            world.master.kill(task);
            world.settle().await;
            let before = told();
            world.master.kill(task);
            world.settle().await;
            assert_eq!(told(), before, "{task}");
        }
        assert_eq!(
            world.master.states("t"),
            [TaskState::Running, TaskState::Killed]
        );
        world
            .launcher
            .exit(world.launcher.container(0), Termination::Exited(0));
        world.master.run(vec![single("t")]);
        world.settle().await;
        let (_executor, _) = world.executor(1).await;
        world.master.kill("t");
        world.settle().await;
        let twice = [TaskState::Running, TaskState::Killed].repeat(2);
        assert_eq!(world.master.states("t"), twice);
    });
}

#[test]
fn launches_are_limited_and_queued_ones_killable() {
    let options = FixtureOptions {
        launcher: LauncherControl::default(),
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let tasks = (0..40).map(|number| shell(&format!("t{number:02}")));
        world.master.run(tasks.collect());
        world.settle().await;
        let launched = || world.launcher.launched.lock().unwrap().len();
        assert_eq!(launched(), 32);
        world.master.kill("t32");
        world.settle().await;
        assert_eq!(world.master.states("t32"), [TaskState::Killed]);
        assert!(
            world.launcher.killed.lock().unwrap().is_empty(),
            "there is no process to kill"
        );
        world.launcher.start(world.launcher.container(0));
        world.settle().await;
        assert_eq!(
            launched(),
            33,
            "the next one's turn comes when a command has started"
        );
        world.master.kill("t05");
        world.settle().await;
        let t05 = world.launcher.container(5);
        assert_eq!(world.launcher.terminated.lock().unwrap()[0].0, t05);
        world.launcher.exit(t05, Termination::Signaled(9));
        world.settle().await;
        assert_eq!(launched(), 34);
        let last =
            world.launcher.launched.lock().unwrap()[33].environment["MESOS_EXECUTOR_ID"].clone();
        assert_eq!(last, "t34");
    });
}

/// SPEC 5.4: the agent reports what Mesos' command executor would.
#[test]
fn command_needs_no_executor() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![shell("t")]);
        world.settle().await;
        let started = [TaskState::Starting, TaskState::Running];
        assert_eq!(world.master.states("t"), started);
        let running = world.master.last("t").unwrap().status;
        assert_eq!((running.source, running.reason), (Source::Executor, None));
        assert_eq!(running.executor_id, Some(ExecutorId::new("t").unwrap()));
        let request = world.launcher.launched.lock().unwrap()[0].clone();
        assert_eq!(request.environment["MESOS_TASK_ID"], "t");
        let secrets = ["MEROS_EXECUTOR_TOKEN", "MEROS_EXECUTOR_SOCKET"];
        assert!(
            !secrets
                .iter()
                .any(|name| request.environment.contains_key(*name))
        );
        world.master.kill("t");
        world.settle().await;
        let id = world.launcher.container(0);
        let terminated = world.launcher.terminated.lock().unwrap().clone();
        assert_eq!(terminated, [(id.clone(), Duration::from_secs(3))]);
        let end = ContainerEnd::Command {
            termination: Termination::Signaled(15),
            kill_wanted: true,
        };
        let container_id = id.clone();
        world
            .launcher
            .emit(LauncherEvent::Exited { container_id, end });
        world.settle().await;
        let killed = world.master.last("t").unwrap().status;
        assert_eq!((killed.state, killed.reason), (TaskState::Killed, None));
        assert_eq!(killed.message, "Command terminated with signal Terminated");
        assert_eq!(killed.container_id, Some(id));
        assert!(world.agent.survey().await.unwrap().containers.is_empty());
        let exits = world.master.received.lock().unwrap().exited.len();
        assert_eq!(exits, 0, "it is no executor of the framework");
    });
}

/// SPEC 5.3: one minute.
#[test]
fn silent_executor_is_killed_after_a_minute() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        world.advance(59).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        world.advance(2).await;
        let status = world.master.last("t").unwrap().status;
        assert_eq!(
            (status.state, status.reason),
            (TaskState::Failed, Some(Reason::ExecutorRegistrationTimeout))
        );
    });
}

/// SPEC 5.4.
#[test]
fn custom_executor_runs_tasks_and_exchanges_messages() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![custom("a"), custom("b")]);
        world.settle().await;
        assert_eq!(
            world.launcher.launched.lock().unwrap().len(),
            1,
            "one executor for both"
        );
        let (executor, script) = world.executor(0).await;
        world.master.run(vec![custom("c")]);
        let message = FrameworkMessage {
            framework_id: framework_id(),
            agent_id: agent_id(),
            executor_id: ExecutorId::new("own").unwrap(),
            data: b"hi".to_vec(),
        };
        world.master.tell(message.clone());
        world.settle().await;
        assert_eq!(
            script.received(),
            [
                "subscribed own",
                "launch a",
                "launch b",
                "launch c",
                "message hi"
            ]
        );
        assert_eq!(world.master.received.lock().unwrap().messages, [message]);
        script.driver().report(&task_id("a"), TaskState::Finished);
        world.settle().await;
        // Its process ends: live tasks fail, ended ones keep their state, and the master is
        // informed.
        executor.shutdown().await;
        world.settle().await;
        for (task, state) in [
            ("a", TaskState::Finished),
            ("b", TaskState::Failed),
            ("c", TaskState::Failed),
        ] {
            assert_eq!(world.master.states(task).last(), Some(&state), "{task}");
        }
        let exited = world.master.received.lock().unwrap().exited.clone();
        assert_eq!(
            (exited.len(), exited[0].termination),
            (1, Some(Termination::Signaled(9)))
        );
        let again = world.agent.survey().await.unwrap();
        assert!(
            again.containers.is_empty(),
            "everything is acknowledged and removed: {again:?}"
        );
    });
}

/// SPEC 5.2.
#[test]
fn removed_framework_gets_no_updates() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        world.master.tell(ShutDownFramework {
            framework_id: framework_id(),
        });
        world.settle().await;
        assert_eq!(script.received().last().unwrap(), "shutdown 5s");
        world.advance(6).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        assert!(world.agent.survey().await.unwrap().frameworks.is_empty());
    });
}

#[test]
fn disowned_task_is_killed_without_updates() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        world.master.tell(DisownTasks {
            tasks: vec![(framework_id(), task_id("t"))],
        });
        world.settle().await;
        assert_eq!(script.received().last().unwrap(), "kill t None");
        assert_eq!(world.master.states("t"), [TaskState::Running]);
    });
}

// Covers S6; S7.
#[test]
fn oversubscribed_resources_are_sent_only_on_change() {
    let same = revocable("cpus:14");
    let more = revocable("cpus:15");
    let estimates = [
        same.clone(),
        same.clone(),
        same.clone(),
        more.clone(),
        more.clone(),
    ]
    .map(Ok);
    world(
        FixtureOptions {
            estimator: FakeModule::new(estimates, []),
            ..FixtureOptions::default()
        },
        |world| async move {
            for _ in 0..10 {
                world.advance(15).await;
                world.master.ping(true).await;
            }
            assert_eq!(world.master.oversubscribed(), [same, more.clone()]);
            world.network.sever("agent", "master");
            world.settle().await;
            world.network.heal("agent", "master");
            world.advance(60).await;
            let received = world.master.received.lock().unwrap();
            assert_eq!(
                received.registrations.last().unwrap().1.oversubscribed,
                more
            );
        },
    );
}

// Covers S2 in part: estimator, controller and allocator, each replaced; S18 in part: at the agent.
// Covers S20 in part: all but that it is the default; S23.
#[test]
fn invalid_and_missing_estimates_lend_nothing() {
    world(FixtureOptions::default(), |world| async move {
        world.advance(70).await;
        assert!(world.master.oversubscribed().is_empty());
    });
    let regular = Resources::parse("cpus:1").unwrap();
    let estimates = [
        Err(Fault::Failed {
            reason: "no".into(),
        }),
        Ok(regular),
        Ok(revocable("cpus:2")),
    ];
    world(
        FixtureOptions {
            estimator: FakeModule::new(estimates, []),
            ..FixtureOptions::default()
        },
        |world| async move {
            world.advance(40).await;
            assert_eq!(world.master.oversubscribed(), [revocable("cpus:2")]);
            assert_eq!(
                world.agent.counters().await.unwrap()["slave/oversubscription_estimates_rejected"],
                1.0
            );
        },
    );
}

/// S26, S27, SPEC 5.7.
// Covers S15 in part: the judgement and a container of one task.
// Covers S16 in part: killing for the machine's load, in two halves.
// Covers S26 in part: an executor and its kill; S27 in part: framework and executor.
#[test]
fn kill_correction_ends_the_container() {
    let kill = |executor: &str| QosCorrection::Kill {
        framework_id: framework_id(),
        executor_id: ExecutorId::new(executor).unwrap(),
        container_id: None,
        reason: "load".to_owned(),
    };
    // The first round precedes the task; the third names an unknown executor.
    let rounds = [
        Ok(vec![]),
        Err(Fault::NotInitialized),
        Ok(vec![kill("nobody"), kill("t")]),
    ];
    world(
        FixtureOptions {
            controller: FakeModule::new([], rounds),
            ..FixtureOptions::default()
        },
        |world| async move {
            let mut lent = single("t");
            lent.resources += &revocable("cpus:1");
            world.master.run(vec![lent]);
            world.advance(1).await;
            let status = world.master.last("t").unwrap().status;
            assert_eq!(
                (status.state, status.reason),
                (TaskState::Lost, Some(Reason::ContainerPreempted))
            );
            assert_eq!(
                world.agent.counters().await.unwrap()["slave/executors_preempted"],
                1.0
            );
            let view = world.agent.oversubscription(Default::default()).await;
            let view = view.unwrap();
            assert_eq!(
                (view.counts.kill, &*view.corrections[0].reason),
                (1, "load")
            );
        },
    );
}

fn kill_nobody() -> QosCorrection {
    QosCorrection::Kill {
        framework_id: framework_id(),
        executor_id: ExecutorId::new("nobody").unwrap(),
        container_id: None,
        reason: String::new(),
    }
}

/// Corrections for containers that are gone, many at once and without a pause.
// Covers S25.
#[test]
fn flooding_controller_delays_nothing() {
    let flood = || Ok(vec![kill_nobody(); 2 * CORRECTIONS_MAX]);
    let controller = FakeModule::new([], std::iter::repeat_with(flood).take(30));
    let asked = controller.asked.clone();
    world(
        FixtureOptions {
            controller,
            ..FixtureOptions::default()
        },
        |world| async move {
            world.master.run(vec![single("t")]);
            world.settle().await;
            let (_executor, script) = world.executor(0).await;
            assert_eq!(script.received(), ["subscribed t", "launch t"]);
            world.advance(1).await;
            let count = *asked.lock().unwrap();
            assert!(
                (10..=12).contains(&count),
                "ten rounds a second at most: {count}"
            );
            let counters = world.agent.counters().await.unwrap();
            assert_eq!(counters["slave/executors_preempted"], 0.0);
        },
    );
}

// Covers S25.
#[test]
fn panicking_controller_delays_nothing() {
    let rounds = [Ok(vec![kill_nobody()])];
    world(
        FixtureOptions {
            controller: FakeModule::new([], rounds),
            ..FixtureOptions::default()
        },
        |world| async move {
            world.advance(1).await;
            assert!(inject_panic(&world.node, "controller", "planted"));
            world.advance(1).await;
            world.master.run(vec![single("t")]);
            world.settle().await;
            world.executor(0).await;
            assert_eq!(world.master.states("t").last(), Some(&TaskState::Running));
            world.advance(60).await;
            let lives = world.node.processes();
            let loops = lives.iter().find(|one| one.pid.name() == "qos").unwrap();
            assert_eq!(loops.restarts, 0, "it asks again later");
        },
    );
}

// Covers S34; S38 in part: the 20 seconds.
#[test]
fn corrections_are_requested_at_the_minimum_interval() {
    let controller = FakeModule::new(
        [],
        std::iter::repeat_with(|| Ok(vec![kill_nobody()])).take(99),
    );
    let asked = controller.asked.clone();
    world(
        FixtureOptions {
            controller,
            change: |settings| settings.qos_correction_interval_min = Duration::from_secs(20),
            ..FixtureOptions::default()
        },
        |world| async move {
            world.advance(19).await;
            assert_eq!(*asked.lock().unwrap(), 1);
            world.advance(42).await;
            assert_eq!(*asked.lock().unwrap(), 4);
        },
    );
}

// Covers S2 in part: estimator, controller and allocator, each replaced; S25.
#[test]
fn a_silent_controller_costs_nothing() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.advance(30).await;
        let (_executor, script) = world.executor(0).await;
        assert_eq!(script.received(), ["subscribed t", "launch t"]);
        let asked = world.node.counters()["process/controller/handled"];
        assert_eq!(asked, 1.0, "it is asked once, and the question stays open");
    });
}

// Covers 6.1 spawn.
#[test]
fn stateless_actors_are_restarted_after_a_panic() {
    let estimates = ["cpus:14", "cpus:15", "cpus:16"].map(|lent| Ok(revocable(lent)));
    world(
        FixtureOptions {
            estimator: FakeModule::new(estimates, []),
            ..FixtureOptions::default()
        },
        |world| async move {
            world.advance(1).await;
            let asked = || world.node.counters()["process/controller/handled"];
            let before = asked();
            for part in ["monitor", "oversubscription", "qos"] {
                assert!(inject_panic(&world.node, part, "planted"), "{part}");
            }
            world.advance(1).await;
            let lives = world.node.processes();
            for part in ["monitor", "oversubscription", "qos"] {
                let one = lives.iter().find(|one| one.pid.name() == part).unwrap();
                assert_eq!(one.restarts, 1, "{part}");
            }
            assert_eq!(asked(), before + 1.0, "the controller is asked again");
            assert_eq!(world.agent.usage().await.unwrap().executors.len(), 0);
            world.advance(15).await;
            let told = ["cpus:14", "cpus:15", "cpus:16"].map(revocable);
            assert_eq!(world.master.oversubscribed(), told);
            world.master.run(vec![single("t")]);
            world.settle().await;
            world.executor(0).await;
            assert_eq!(world.master.states("t").last(), Some(&TaskState::Running));
            assert_eq!(world.master.registrations(), 1);
        },
    );
}

/// A launch must not be lost between master and agent: the link is closed, the agent reregisters,
/// and both compare their state.
// Covers W4.
#[test]
fn flooded_agent_reregisters() {
    world(FixtureOptions::default(), |world| async move {
        world.settle().await;
        let before = world.master.registrations();
        for _ in 0..70_000 {
            world.master.tell(AcknowledgeStatus {
                framework_id: framework_id(),
                agent_id: agent_id(),
                task_id: task_id("t"),
                uuid: protocol::Uuid([1; 16]),
            });
        }
        world.advance(60).await;
        assert_eq!(world.master.registrations(), before + 1);
        world.master.run(vec![single("t")]);
        world.settle().await;
        world.executor(0).await;
        assert_eq!(world.master.states("t").last(), Some(&TaskState::Running));
    });
}

#[test]
fn lost_launcher_fails_tasks_and_is_restarted() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("a")]);
        world.settle().await;
        world.launcher.emit(LauncherEvent::Lost {
            reason: "killed".into(),
        });
        world.settle().await;
        let status = world.master.last("a").unwrap().status;
        assert_eq!(
            (status.state, status.reason),
            (TaskState::Failed, Some(Reason::ExecutorTerminated))
        );
        world.master.run(vec![single("b")]);
        world.settle().await;
        assert_eq!(world.launcher.launched.lock().unwrap().len(), 2);
    });
}

#[test]
fn executor_without_its_token_is_refused() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        let request = world.launcher.launched.lock().unwrap()[0].clone();
        let mut environment =
            Environment::from(|name| request.environment.get(name).cloned()).unwrap();
        environment.token = "guess".into();
        let node = world
            .network
            .node("stranger", Role::Executor, &[Role::Agent]);
        let driver = ExecutorDriverRef::connect(&node, environment, ScriptedExecutor::default())
            .await
            .unwrap();
        driver.report(&task_id("t"), TaskState::Finished);
        assert!(matches!(
            driver.ended().await,
            executor_driver::DriverEnd::Refused(_)
        ));
        world.settle().await;
        assert_eq!(world.master.states("t"), []);
        assert_eq!(
            world.agent.counters().await.unwrap()["slave/invalid_status_updates"],
            1.0
        );
    });
}

#[test]
fn unknown_master_is_not_obeyed() {
    world(FixtureOptions::default(), |world| async move {
        let stranger = world.network.node("stranger", Role::Master, &[Role::Agent]);
        stranger.connect("agent").await.unwrap();
        let agent = world.master.agent();
        stranger
            .tell(
                &agent,
                RunTasks {
                    framework: framework(),
                    tasks: vec![single("t")],
                },
            )
            .unwrap();
        world.settle().await;
        assert!(world.launcher.launched.lock().unwrap().is_empty());
    });
}

#[test]
fn shut_down_agent_kills_executors_and_reports_why() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        world.master.tell(ShutDownAgent {
            reason: "removed".into(),
        });
        assert_eq!(
            world.agent.ended().await,
            AgentEnd::ShutDown {
                reason: "removed".into()
            }
        );
        world.settle().await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        assert!(world.work_dir.path().exists());
    });
}
