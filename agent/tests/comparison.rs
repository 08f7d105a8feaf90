//! Inventory comparison between a returning agent and its master, in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use fixture::*;
use protocol::digest::{Digest, Fingerprinter};
use protocol::message::registration::{AgentInventory, DisownTasks, ReregisterAgent, Reregistered};
use protocol::message::scheduler::AcknowledgeStatus;
use protocol::message::task::ShutDownFramework;
use protocol::{TaskState, Termination};

fn by_hand() -> FixtureOptions {
    FixtureOptions {
        behavior: MasterBehavior {
            compares_by_hand: true,
            ..MasterBehavior::default()
        },
        ..FixtureOptions::default()
    }
}

/// The sums of a master with an empty inventory, in this many buckets.
fn nothing(buckets: usize) -> Reregistered {
    Reregistered::Differs {
        buckets: Digest::of([], buckets).buckets().to_vec(),
    }
}

impl World {
    /// The master reports the agent as disconnected, and the agent registers again.
    async fn come_back(&self) {
        self.master.ping(false).await;
        self.advance(2).await;
    }

    async fn answer(&self, answer: Reregistered) -> ReregisterAgent {
        let answered = self.master.answer(answer);
        self.settle().await;
        answered
    }
}

/// Whether the report matches the summary of the same message.
fn fits(message: &ReregisterAgent, held: &AgentInventory) -> bool {
    Fingerprinter::new(message.summary.key).summary(held) == message.summary
}

#[test]
fn returning_agent_registers_with_a_summary() {
    world(by_hand(), |world| async move {
        let tasks = (0..20).map(|number| shell(&format!("t{number}")));
        world.master.run(tasks.collect());
        world.settle().await;
        world.come_back().await;
        let welcome = Reregistered::Registered(welcome(agent_id()));
        let message = world.answer(welcome).await;
        assert_eq!(
            (message.agent.id.clone(), message.report),
            (Some(agent_id()), None)
        );
        assert_eq!(message.summary.items, 20);
        // It is registered: it keeps a master that pings and gives up a silent one.
        world.advance(70).await;
        assert_eq!(world.master.received.lock().unwrap().returns.len(), 1);
        assert_eq!(world.master.registrations(), 1);
    });
}

#[test]
fn agent_reports_only_the_differing_buckets() {
    world(by_hand(), |world| async move {
        let tasks = (0..40).map(|number| shell(&format!("t{number}")));
        world.master.run(tasks.collect());
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        let all = world.master.received.lock().unwrap().returns[1].clone();
        let held = all.report.clone().unwrap().held;
        assert_eq!((held.tasks.len(), held.executors.len()), (40, 0));
        assert_eq!(held.frameworks, [framework()]);
        assert!(fits(&all, &held));
        let mut other = held.clone();
        other.tasks[11].state = TaskState::Starting;
        let theirs = Digest::of(Fingerprinter::new(all.summary.key).fingerprints(&other), 16);
        let buckets = theirs.buckets().to_vec();
        world.answer(Reregistered::Differs { buckets }).await;
        let part = world.master.received.lock().unwrap().returns[2].clone();
        let report = part.report.clone().unwrap();
        assert_eq!((report.buckets, report.differing.len()), (16, 1));
        assert!(report.held.tasks.contains(&held.tasks[11]));
        assert!(report.held.tasks.len() < 12);
        assert!(fits(&part, &held));
    });
}

/// A report contains the present state; later changes follow as updates.
#[test]
fn task_that_ends_during_comparison_is_reported() {
    world(by_hand(), |world| async move {
        world.master.run(vec![single("a"), single("b")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        let (_other, others) = world.executor(1).await;
        world.settle().await;
        world.come_back().await;
        script.driver().report(&task_id("a"), TaskState::Finished);
        world.settle().await;
        let before = world.answer(nothing(2)).await;
        let message = world.master.received.lock().unwrap().returns[1].clone();
        assert_ne!(before.summary, message.summary);
        let held = message.report.clone().unwrap().held;
        assert!(fits(&message, &held));
        let states: Vec<_> = held.tasks.iter().map(|task| task.state).collect();
        assert!(states.contains(&TaskState::Finished) && states.contains(&TaskState::Running));
        // Not sent while there is no master.
        assert_eq!(world.master.states("a"), [TaskState::Running]);
        others.driver().report(&task_id("b"), TaskState::Failed);
        world.settle().await;
        let welcome = Reregistered::Registered(welcome(agent_id()));
        world.answer(welcome).await;
        assert_eq!(
            world.master.states("a"),
            [TaskState::Running, TaskState::Finished]
        );
        assert_eq!(
            world.master.states("b"),
            [TaskState::Running, TaskState::Failed]
        );
    });
}

/// SPEC 2.2, RECONCILE; 5.3: a master that does not know the task would report it as gone. Its end
/// comes first.
// Covers 2.2 RECONCILE.
#[test]
fn unplaced_task_is_reported_until_acknowledged() {
    let options = FixtureOptions {
        behavior: MasterBehavior {
            acknowledges: false,
            compares_by_hand: true,
            ..MasterBehavior::default()
        },
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let nobodys = |id: &str| protocol::TaskInfo {
            command: None,
            ..shell(id)
        };
        let ids = ["a", "b", "c"];
        world.master.run(ids.map(nobodys).to_vec());
        world.master.kill("unknown");
        world.settle().await;
        let mut comparisons = 0;
        let mut held = async || {
            world.come_back().await;
            world.answer(nothing(1)).await;
            let welcome = Reregistered::Registered(welcome(agent_id()));
            let message = world.answer(welcome).await;
            comparisons += 1;
            assert_eq!(
                world.master.received.lock().unwrap().returns.len(),
                comparisons * 2
            );
            let held = message.report.clone().unwrap().held;
            assert!(fits(&message, &held));
            held
        };
        let ends = |held: &AgentInventory| -> Vec<(String, TaskState)> {
            let end = |task: &protocol::message::registration::RunningTask| {
                (task.info.task_id.to_string(), task.state)
            };
            held.tasks.iter().map(end).collect()
        };
        let end = |id: &str, state: TaskState| (id.to_owned(), state);
        let first = held().await;
        assert_eq!(
            ends(&first),
            [
                end("a", TaskState::Error),
                end("b", TaskState::Error),
                end("c", TaskState::Error),
                end("unknown", TaskState::Lost)
            ]
        );
        // A master rejects an inventory with an invalid task.
        let is_one = |task: &protocol::message::registration::RunningTask| {
            task.info.command.is_some() != task.info.executor.is_some()
                && task.info.agent_id == agent_id()
        };
        assert!(first.tasks.iter().all(is_one));
        assert_eq!(first.frameworks, [framework()]);
        for id in ["a", "unknown"] {
            let uuid = world.master.last(id).unwrap().status.uuid.unwrap();
            world.master.tell(AcknowledgeStatus {
                framework_id: framework_id(),
                agent_id: agent_id(),
                task_id: task_id(id),
                uuid,
            });
        }
        world.master.tell(DisownTasks {
            tasks: vec![(framework_id(), task_id("b"))],
        });
        world.settle().await;
        assert_eq!(ends(&held().await), [end("c", TaskState::Error)]);
        let framework_id = framework_id();
        world.master.tell(ShutDownFramework { framework_id });
        world.settle().await;
        assert_eq!(held().await, AgentInventory::default());
    });
}

/// An exit between the last inventory and the answer is in neither: it is sent afterwards.
#[test]
fn executor_exit_during_comparison_is_reported_once() {
    world(by_hand(), |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        let message = world.master.received.lock().unwrap().returns[1].clone();
        let executors = message.report.unwrap().held.executors;
        assert_eq!(executors.len(), 1);
        assert_eq!(executors[0].info.executor_id.as_str(), "own");
        let container_id = world.launcher.container(0);
        world.launcher.exit(container_id, Termination::Exited(1));
        world.settle().await;
        assert!(world.master.received.lock().unwrap().exited.is_empty());
        let welcome = Reregistered::Registered(welcome(agent_id()));
        world.answer(welcome).await;
        assert_eq!(world.master.received.lock().unwrap().exited.len(), 1);
        // Sent once; the next inventory simply lacks it.
        world.come_back().await;
        world.answer(nothing(1)).await;
        let message = world.master.received.lock().unwrap().returns[3].clone();
        assert_eq!(message.report.unwrap().held.executors, []);
        assert_eq!(world.master.received.lock().unwrap().exited.len(), 1);
    });
}

#[test]
fn full_inventory_follows_unknown_or_failed_comparisons() {
    world(by_hand(), |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        world.come_back().await;
        for _ in 0..3 {
            assert_eq!(world.master.registrations(), 1);
            world.answer(nothing(4)).await;
        }
        assert_eq!(world.master.registrations(), 2);
        let all = world.master.received.lock().unwrap().registrations[1]
            .1
            .clone();
        assert_eq!(all.agent.id, Some(agent_id()));
        let held = &all.held;
        assert_eq!((held.tasks.len(), held.executors.len()), (1, 1));

        world.come_back().await;
        world.answer(Reregistered::Unknown).await;
        assert_eq!(world.master.registrations(), 3);

        // A wrong number of sums counts as none.
        world.come_back().await;
        world
            .answer(Reregistered::Differs {
                buckets: vec![0; 3],
            })
            .await;
        assert_eq!(world.master.registrations(), 4);
    });
}

#[test]
fn master_crash_during_comparison_restarts_registration() {
    world(by_hand(), |world| async move {
        world.master.run(vec![single("a")]);
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        world.network.sever("agent", "master");
        world.advance(3).await;
        world.network.heal("agent", "master");
        world.advance(60).await;
        let returns = world.master.received.lock().unwrap().returns.clone();
        assert!(returns.len() > 2 && returns[1].report.is_some());
        let later = returns[2..].iter().map(|message| &message.report);
        assert!(
            later.flatten().next().is_none(),
            "earlier answers are forgotten"
        );
    });
}
