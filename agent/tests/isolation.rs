//! The containerizer and its isolators, in virtual time: preparation, limits that follow the
//! tasks, exceeded limits, clean-up, recovery.
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
use module_api::Fault;
use module_api::isolator::{ContainerLimited, LaunchPlan, Limitation};
use protocol::message::task::RunTasks;
use protocol::text::reserved_labels::{LIMITATION, THROTTLE};
use protocol::usage::Throttle;
use protocol::{ExecutorId, QosCorrection, Reason, Source, TaskState, Termination};
use resources::{Resources, Role as ResourceRole};
use runtime::prelude::*;

fn isolated(isolators: &[FakeIsolator]) -> FixtureOptions {
    FixtureOptions {
        isolators: isolators.to_vec(),
        ..FixtureOptions::default()
    }
}

/// A task with allocated resources, as masters send it.
fn allocated(mut task: protocol::TaskInfo) -> protocol::TaskInfo {
    let role = ResourceRole::new("ads").unwrap();
    task.resources = task.resources.allocate(&role);
    task
}

fn memory() -> Limitation {
    Limitation {
        resources: Resources::parse("mem:64").unwrap(),
        reason: Reason::ContainerLimitationMemory,
        message: "Memory limit exceeded: Requested: 64MB".into(),
    }
}

/// Half of the CPUs of the executor of this task.
fn throttle(task: &str) -> QosCorrection {
    QosCorrection::Throttle {
        framework_id: framework_id(),
        executor_id: ExecutorId::new(task).unwrap(),
        container_id: None,
        degree: Throttle {
            cpu: Some(500),
            ..Throttle::default()
        },
        reason: "web waits".to_owned(),
    }
}

/// An agent that gets these corrections every ten seconds, the first at once.
fn corrected(isolator: &FakeIsolator, rounds: Vec<Vec<QosCorrection>>) -> FixtureOptions {
    FixtureOptions {
        controller: FakeModule::new([], rounds.into_iter().map(Ok)),
        change: |settings| settings.qos_correction_interval_min = Duration::from_secs(10),
        ..isolated(std::slice::from_ref(isolator))
    }
}

fn lent(mut task: protocol::TaskInfo) -> protocol::TaskInfo {
    task.resources += &revocable("cpus:1");
    allocated(task)
}

// Covers S16 in part: throttling, as far as the isolators; S26 in part: throttling.
#[test]
fn throttled_container_has_lower_limits_and_its_task_is_told() {
    let cgroups = FakeIsolator::named("cgroups");
    let restore = QosCorrection::Restore {
        framework_id: framework_id(),
        executor_id: ExecutorId::new("t").unwrap(),
        container_id: None,
        reason: String::new(),
    };
    let again = vec![throttle("nobody"), throttle("t"), throttle("regular")];
    let rounds = vec![vec![], vec![throttle("t")], again, vec![restore]];
    world(corrected(&cgroups, rounds), |world| async move {
        world.advance(1).await;
        world
            .master
            .run(vec![lent(shell("t")), allocated(shell("regular"))]);
        world.advance(1).await;
        cgroups.take_requests();
        let before = world.master.states("t").len();
        world.advance(10).await;
        let status = world.master.last("t").unwrap().status;
        assert_eq!(
            (status.state, status.source, status.reason),
            (
                TaskState::Running,
                Source::Agent,
                Some(Reason::ContainerLimitation)
            )
        );
        assert_eq!(
            status.message,
            "Container throttled by QoS correction: cpu 50%"
        );
        assert_eq!(status.labels[THROTTLE], "cpu 50%");
        let [request] = &cgroups.take_requests()[..] else {
            panic!("one request");
        };
        assert!(request.ends_with(" to cpu 50%"), "{request}");
        let view = world.agent.oversubscription(Default::default()).await;
        let view = view.unwrap();
        let [correction] = &view.corrections[..] else {
            panic!("{view:?}");
        };
        assert_eq!(
            (correction.kind.to_string(), &*correction.reason),
            ("THROTTLE to cpu 50%".to_owned(), "web waits")
        );
        assert_eq!(correction.tasks[0].as_str(), "t");
        let counters = world.agent.counters().await.unwrap();
        assert_eq!(counters["slave/executors_throttled"], 1.0);
        let usage = world.agent.usage().await.unwrap();
        let throttled = usage.executors.iter().filter(|one| !one.throttle.is_none());
        assert_eq!(throttled.count(), 1);

        // The same again, and what may not be throttled.
        world.advance(10).await;
        assert_eq!(cgroups.take_requests(), [""; 0]);
        assert_eq!(world.master.states("t").len(), before + 1);
        assert_eq!(world.master.states("regular").len(), before);

        world.advance(10).await;
        let status = world.master.last("t").unwrap().status;
        assert_eq!(status.message, "Container restored by QoS correction");
        assert_eq!(status.labels.get(THROTTLE), None);
        assert!(!cgroups.take_requests()[0].contains(" to "));
        assert_eq!(world.master.states("t").len(), before + 2);
    });
}

#[test]
fn throttling_that_fails_is_not_reported_and_may_be_repeated() {
    let cgroups = FakeIsolator {
        holds_updates: true,
        ..FakeIsolator::named("cgroups")
    };
    let rounds = vec![vec![], vec![throttle("t")], vec![throttle("t")]];
    world(corrected(&cgroups, rounds), |world| async move {
        world.advance(1).await;
        world.master.run(vec![lent(shell("t"))]);
        world.advance(1).await;
        let before = world.master.states("t").len();
        world.advance(10).await;
        cgroups.release(Err(Fault::failed("read-only")));
        world.settle().await;
        let usage = world.agent.usage().await.unwrap();
        assert!(
            usage.executors[0].throttle.is_none(),
            "the controller sees it"
        );
        assert_eq!(world.master.states("t").len(), before);
        cgroups.take_requests();
        world.advance(1).await;
        let again = cgroups.take_requests();
        assert_eq!(again.len(), 1, "a part may be set: {again:?}");
        assert!(again[0].starts_with("update ") && !again[0].contains(" to "));
        world.advance(10).await;
        cgroups.release(Ok(()));
        world.settle().await;
        assert_eq!(world.master.states("t").len(), before + 1);
    });
}

/// An earlier agent process may have throttled it, which is not checkpointed.
#[test]
fn restarted_agent_lifts_throttling() {
    let cgroups = FakeIsolator::named("cgroups");
    let rounds = vec![vec![], vec![throttle("a")]];
    world(corrected(&cgroups, rounds), |world| async move {
        world.advance(1).await;
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![lent(single("a"))],
        });
        world.advance(1).await;
        let (_executor, _) = world.executor(0).await;
        world.advance(10).await;
        let last = cgroups.take_requests().pop().unwrap();
        assert!(last.ends_with(" to cpu 50%"), "{last}");
        let launcher = LauncherControl::with_left(world.launcher.container(0));
        let world = world.restart(launcher).await;
        world.advance(1).await;
        let requests = cgroups.take_requests();
        assert_eq!(requests[0], "recover 1");
        assert!(requests[1].starts_with("update ") && !requests[1].contains(" to "));
        let usage = world.agent.usage().await.unwrap();
        assert!(usage.executors[0].throttle.is_none());
    });
}

#[test]
fn lifted_throttle_is_reported_after_a_restart() {
    let cgroups = FakeIsolator::named("cgroups");
    let rounds = vec![vec![], vec![throttle("a")]];
    world(corrected(&cgroups, rounds), |world| async move {
        world.advance(1).await;
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![lent(shell("a"))],
        });
        world.advance(11).await;
        let status = world.master.last("a").unwrap().status;
        assert_eq!(status.labels[THROTTLE], "cpu 50%");
        let launcher = LauncherControl::with_left(world.launcher.container(0));
        let world = world.restart(launcher).await;
        world.advance(1).await;
        let status = world.master.last("a").unwrap().status;
        assert_eq!(status.state, TaskState::Running);
        assert_eq!(status.labels.get(THROTTLE), None);
        assert_eq!(status.reason, Some(Reason::ContainerLimitation));
    });
}

// Covers 5.5; 5.12 Isolation.
#[test]
fn container_is_launched_with_the_plans_of_all_isolators() {
    let with = |name, plan| FakeIsolator {
        plan,
        ..FakeIsolator::named(name)
    };
    let cgroups = LaunchPlan {
        cgroups: vec!["/cpu/c".into()],
        environment: [("A".to_owned(), "1".to_owned())].into(),
        ..LaunchPlan::default()
    };
    let privileges = LaunchPlan {
        no_new_privileges: true,
        ..LaunchPlan::default()
    };
    let all = [with("first", cgroups.clone()), with("second", privileges)];
    world(isolated(&all), |world| async move {
        world.advance(1).await;
        world.master.run(vec![allocated(shell("t"))]);
        world.settle().await;
        let request = world.launcher.launched.lock().unwrap()[0].clone();
        assert_eq!(request.plan.cgroups, cgroups.cgroups);
        assert!(request.plan.no_new_privileges);
        assert_eq!(request.environment["A"], "1");
        let end = Termination::Exited(0);
        world.launcher.exit(request.container_id, end);
        world.settle().await;
        for isolator in &all {
            // With 0.1 cpus and 32 MB for the command's executor.
            let expected = ["recover 0", "prepare cpus:0.2;mem:64", "clean up"];
            assert_eq!(isolator.take_requests(), expected);
        }
    });
}

// Covers 5.5 Launch sequence.
#[test]
fn failed_preparation_fails_the_task_and_cleans_up() {
    let broken = FakeIsolator {
        failure: Some("no cgroups here"),
        ..FakeIsolator::named("broken")
    };
    let all = [FakeIsolator::named("first"), broken];
    world(isolated(&all), |world| async move {
        world.advance(1).await;
        world.master.run(vec![shell("t")]);
        world.settle().await;
        let status = world.master.last("t").unwrap().status;
        assert_eq!(status.reason, Some(Reason::ContainerLaunchFailed));
        let message = "Failed to launch container: the isolator failed: no cgroups here";
        assert_eq!(
            (status.state, status.message.as_str()),
            (TaskState::Failed, message)
        );
        assert!(world.launcher.launched.lock().unwrap().is_empty());
        let requests = all[0].take_requests();
        assert_eq!(requests.last().unwrap(), "clean up");
    });
}

// Covers 5.5; 5.12.
#[test]
fn exceeded_limit_is_the_reason_of_the_end() {
    let cgroups = FakeIsolator {
        exceeded: Some(memory()),
        ..FakeIsolator::named("cgroups")
    };
    world(isolated(&[cgroups]), |world| async move {
        world.advance(1).await;
        world.master.run(vec![shell("t")]);
        world.settle().await;
        let container = world.launcher.container(0);
        world.launcher.exit(container, Termination::Signaled(9));
        world.settle().await;
        let status = world.master.last("t").unwrap().status;
        let expected = Some(Reason::ContainerLimitationMemory);
        assert_eq!((status.state, status.reason), (TaskState::Failed, expected));
        assert_eq!(
            (status.source, status.message),
            (Source::Agent, memory().message)
        );
        let limitation = &status.labels[LIMITATION];
        assert!(limitation.contains(r#""value":64.0"#), "{limitation}");
    });
}

// Covers 5.5.
#[test]
fn container_is_killed_when_an_isolator_reports_a_limit() {
    world(
        isolated(&[FakeIsolator::named("cgroups")]),
        |world| async move {
            world.advance(1).await;
            world.master.run(vec![shell("t")]);
            world.settle().await;
            let container_id = world.launcher.container(0);
            let containerizer = Pid::new("containerizer", world.node.id().clone(), 0);
            let limited = ContainerLimited {
                container_id: container_id.clone(),
                limitation: memory(),
            };
            world.node.refer(containerizer).tell(limited).unwrap();
            world.settle().await;
            assert_eq!(*world.launcher.killed.lock().unwrap(), [container_id]);
            let status = world.master.last("t").unwrap().status;
            assert_eq!(status.reason, Some(Reason::ContainerLimitationMemory));
        },
    );
}

// Covers 5.5 in part: that limits follow the tasks; S125.
#[test]
fn further_task_waits_for_its_limits() {
    let cgroups = FakeIsolator {
        holds_updates: true,
        ..FakeIsolator::named("cgroups")
    };
    world(
        isolated(std::slice::from_ref(&cgroups)),
        |world| async move {
            world.advance(1).await;
            world.master.run(vec![custom("a")]);
            world.settle().await;
            let (_executor, script) = world.executor(0).await;
            assert_eq!(script.received(), ["subscribed own", "launch a"]);
            cgroups.take_requests();
            world.master.run(vec![custom("b")]);
            world.settle().await;
            assert_eq!(cgroups.take_requests(), ["update cpus:0.3;mem:96"]);
            assert_eq!(script.received().len(), 2, "b waits");
            cgroups.release(Ok(()));
            world.settle().await;
            assert_eq!(script.received()[2..], ["launch b"]);
            script.driver().report(&task_id("a"), TaskState::Finished);
            world.settle().await;
            assert_eq!(cgroups.take_requests(), ["update cpus:0.2;mem:64"]);

            world.master.run(vec![custom("c")]);
            world.settle().await;
            let reason = "the disk is gone".to_owned();
            cgroups.release(Err(Fault::Failed { reason }));
            world.settle().await;
            let status = world.master.last("c").unwrap().status;
            assert_eq!(status.reason, Some(Reason::ContainerUpdateFailed));
            assert!(
                status
                    .message
                    .starts_with("Failed to update resources for container")
            );
            assert_eq!(script.received().len(), 3);
        },
    );
}

// Covers 5.3; 5.5.
#[test]
fn checkpointed_tasks_are_isolated_and_recovered() {
    let cgroups = FakeIsolator::named("cgroups");
    world(
        isolated(std::slice::from_ref(&cgroups)),
        |world| async move {
            world.advance(1).await;
            let run = |tasks| RunTasks {
                framework: checkpointing_framework(),
                tasks,
            };
            world.master.tell(run(vec![custom("a")]));
            world.advance(1).await;
            let (executor, script) = world.executor(0).await;
            world.master.tell(run(vec![custom("b")]));
            world.advance(1).await;
            assert_eq!(script.received()[1..], ["launch a", "launch b"]);
            let expected = [
                "recover 0",
                "prepare cpus:0.2;mem:64",
                "update cpus:0.3;mem:96",
            ];
            assert_eq!(cgroups.take_requests(), expected);

            executor.shutdown().await;
            let launcher = LauncherControl::with_left(world.launcher.container(0));
            let world = world.restart(launcher).await;
            world.advance(5).await;
            // Its executor has not returned and is killed.
            assert_eq!(cgroups.take_requests(), ["recover 1", "clean up"]);
        },
    );
}

/// Found by a reviewer: an executor without tasks was taken for an orphan.
// Covers 5.3; 5.5 in part: orphans.
#[test]
fn idle_executor_is_recovered_with_its_isolation() {
    let cgroups = FakeIsolator::named("cgroups");
    world(
        isolated(std::slice::from_ref(&cgroups)),
        |world| async move {
            world.advance(1).await;
            world.master.tell(RunTasks {
                framework: checkpointing_framework(),
                tasks: vec![custom("a")],
            });
            world.advance(1).await;
            let (_executor, script) = world.executor(0).await;
            script.driver().report(&task_id("a"), TaskState::Finished);
            world.advance(1).await;
            let expected = [
                "recover 0",
                "prepare cpus:0.2;mem:64",
                "update cpus:0.1;mem:32",
            ];
            assert_eq!(cgroups.take_requests(), expected);
            let launcher = LauncherControl::with_left(world.launcher.container(0));
            let world = world.restart(launcher).await;
            world.advance(5).await;
            assert_eq!(cgroups.take_requests(), ["recover 1"]);
            assert!(world.launcher.killed.lock().unwrap().is_empty());
        },
    );
}

#[test]
fn failed_recovery_of_an_isolator_is_repeated() {
    let cgroups = FakeIsolator {
        failing_recoveries: 2,
        ..FakeIsolator::named("cgroups")
    };
    world(
        isolated(std::slice::from_ref(&cgroups)),
        |world| async move {
            world.advance(1).await;
            // A late recovery would clean up after a new container.
            assert_eq!(world.master.registrations(), 0);
            world.advance(5).await;
            assert_eq!(cgroups.take_requests(), ["recover 0"; 3]);
            assert_eq!(world.master.registrations(), 1);
        },
    );
}

/// Found by the simulator: the recovery listed a container as running after its clean-up.
#[test]
fn clean_up_waits_until_all_isolators_are_recovered() {
    let late = FakeIsolator {
        failing_recoveries: 1,
        ..FakeIsolator::named("late")
    };
    let all = [FakeIsolator::named("first"), late];
    world(isolated(&all), |world| async move {
        world.advance(3).await;
        world.master.tell(RunTasks {
            framework: checkpointing_framework(),
            tasks: vec![custom("a")],
        });
        world.advance(1).await;
        let container = world.launcher.container(0);
        let launcher = LauncherControl::with_left(container.clone());
        all.iter().for_each(|one| drop(one.take_requests()));
        let world = world.restart(launcher).await;
        world.settle().await;
        world.launcher.exit(container, Termination::Exited(0));
        world.advance(5).await;
        assert_eq!(all[0].take_requests(), ["recover 1", "clean up"]);
        let repeated = ["recover 1", "recover 1", "clean up"];
        assert_eq!(all[1].take_requests(), repeated);
        let status = world.master.last("a").unwrap().status;
        assert_eq!(status.reason, Some(Reason::ExecutorTerminated));
    });
}

/// Found by a reviewer: deadlines and corrections changed the reason of an ended container.
#[test]
fn end_is_not_changed_while_isolators_clean_up() {
    let slow = FakeIsolator {
        hangs: true,
        ..FakeIsolator::named("slow")
    };
    world(isolated(std::slice::from_ref(&slow)), |world| async move {
        world.advance(1).await;
        world.master.run(vec![custom("a")]);
        world.settle().await;
        // It ends before it subscribes.
        let container = world.launcher.container(0);
        world.launcher.exit(container, Termination::Exited(1));
        world.settle().await;
        world.master.run(vec![custom("b")]);
        for _ in 0..14 {
            world.advance(10).await;
            world.master.ping(true).await;
        }
        let status = world.master.last("b").unwrap().status;
        let expected = (TaskState::Lost, Some(Reason::ExecutorTerminated));
        assert_eq!((status.state, status.reason), expected);
        let status = world.master.last("a").unwrap().status;
        let expected = (TaskState::Failed, Some(Reason::ExecutorTerminated));
        assert_eq!(
            (status.state, status.reason),
            expected,
            "not the registration timeout"
        );
    });
}
