//! How an agent that comes back comes to terms with its master on what it has, in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use meros_agent::LauncherEvent;
use protocol::digest::{Digest, Printer};
use protocol::message::registration::{DisownTasks, Held, ReregisterAgent, Reregistered};
use protocol::message::scheduler::AcknowledgeStatus;
use protocol::message::task::ShutDownFramework;
use protocol::{TaskState, Termination};
use stage::*;

fn by_hand() -> Cast {
    Cast {
        manners: Manners {
            compares_by_hand: true,
            ..Manners::default()
        },
        ..Cast::default()
    }
}

/// The sums of a master that believes that the agent has nothing, in so many buckets.
fn nothing(buckets: usize) -> Reregistered {
    Reregistered::Differs {
        buckets: Digest::of([], buckets).buckets().to_vec(),
    }
}

impl World {
    /// The master says that it does not hold the agent for connected, and the agent comes back.
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

/// The report fits the summary of the same message.
fn fits(said: &ReregisterAgent, held: &Held) -> bool {
    Printer::new(said.summary.key).summary(held) == said.summary
}

#[test]
fn an_agent_that_comes_back_says_a_summary_and_is_content_with_a_welcome() {
    world(by_hand(), |world| async move {
        let tasks = (0..20).map(|number| shell(&format!("t{number}")));
        world.master.run(tasks.collect());
        world.settle().await;
        world.come_back().await;
        let welcome = Reregistered::Registered(welcome(agent_id()));
        let said = world.answer(welcome).await;
        assert_eq!(
            (said.agent.id.clone(), said.report),
            (Some(agent_id()), None)
        );
        assert_eq!(said.summary.items, 20);
        // It is registered: a silent master is given up, one that pings is not.
        world.advance(70).await;
        assert_eq!(world.master.heard.lock().unwrap().returns.len(), 1);
        assert_eq!(world.master.registrations(), 1);
    });
}

#[test]
fn where_the_masters_sums_differ_the_agent_tells_what_it_has_there_and_nothing_else() {
    world(by_hand(), |world| async move {
        let tasks = (0..40).map(|number| shell(&format!("t{number}")));
        world.master.run(tasks.collect());
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        let all = world.master.heard.lock().unwrap().returns[1].clone();
        let held = all.report.clone().unwrap().held;
        assert_eq!((held.tasks.len(), held.executors.len()), (40, 0));
        assert_eq!(held.frameworks, [framework()]);
        assert!(fits(&all, &held));
        let mut other = held.clone();
        other.tasks[11].state = TaskState::Running;
        let theirs = Digest::of(Printer::new(all.summary.key).held(&other), 16);
        let buckets = theirs.buckets().to_vec();
        world.answer(Reregistered::Differs { buckets }).await;
        let part = world.master.heard.lock().unwrap().returns[2].clone();
        let report = part.report.clone().unwrap();
        assert_eq!((report.buckets, report.differing.len()), (16, 1));
        assert!(report.held.tasks.contains(&held.tasks[11]));
        assert!(report.held.tasks.len() < 12);
        assert!(fits(&part, &held));
    });
}

/// What is told is what there is at that moment; what happens after it is told as an update.
#[test]
fn a_task_that_ends_during_the_comparison_is_in_the_next_report_and_its_end_is_told() {
    world(by_hand(), |world| async move {
        world.master.run(vec![shell("a"), shell("b")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        let (_other, others) = world.executor(1).await;
        world.settle().await;
        world.come_back().await;
        script.driver().report(&task_id("a"), TaskState::Finished);
        world.settle().await;
        let before = world.answer(nothing(2)).await;
        let said = world.master.heard.lock().unwrap().returns[1].clone();
        assert_ne!(before.summary, said.summary);
        let held = said.report.clone().unwrap().held;
        assert!(fits(&said, &held));
        let states: Vec<_> = held.tasks.iter().map(|task| task.state).collect();
        assert!(states.contains(&TaskState::Finished) && states.contains(&TaskState::Running));
        // Nobody hears of it while it has no master.
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

/// SPEC 2.2, RECONCILE; 5.3: a master that knows nothing of a task that this agent has would call it gone. Its end is told first.
#[test]
fn a_task_that_never_came_into_a_container_is_held_until_its_end_is_acknowledged() {
    let cast = Cast {
        manners: Manners {
            acknowledges: false,
            compares_by_hand: true,
            ..Manners::default()
        },
        ..Cast::default()
    };
    world(cast, |world| async move {
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
            let said = world.answer(welcome).await;
            comparisons += 1;
            assert_eq!(
                world.master.heard.lock().unwrap().returns.len(),
                comparisons * 2
            );
            let held = said.report.clone().unwrap().held;
            assert!(fits(&said, &held));
            held
        };
        let ends = |held: &Held| -> Vec<(String, TaskState)> {
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
        // A master refuses for ever whoever says that it has a task which cannot be.
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
        assert_eq!(held().await, Held::default());
    });
}

/// An executor's end that falls between the last count and the welcome is in neither: it is told afterwards.
#[test]
fn an_executor_that_ends_during_the_comparison_is_told_once_the_agent_is_registered() {
    world(by_hand(), |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        let said = world.master.heard.lock().unwrap().returns[1].clone();
        let executors = said.report.unwrap().held.executors;
        assert_eq!(executors.len(), 1);
        assert_eq!(executors[0].info.executor_id.as_str(), "own");
        let container_id = world.stage.container(0);
        world.stage.happens(LauncherEvent::Exited {
            container_id,
            termination: Termination::Exited(1),
        });
        world.settle().await;
        assert!(world.master.heard.lock().unwrap().exited.is_empty());
        let welcome = Reregistered::Registered(welcome(agent_id()));
        world.answer(welcome).await;
        assert_eq!(world.master.heard.lock().unwrap().exited.len(), 1);
        // Said once: the next time it is simply not there.
        world.come_back().await;
        world.answer(nothing(1)).await;
        let said = world.master.heard.lock().unwrap().returns[3].clone();
        assert_eq!(said.report.unwrap().held.executors, []);
        assert_eq!(world.master.heard.lock().unwrap().exited.len(), 1);
    });
}

#[test]
fn an_agent_tells_all_when_nothing_is_known_or_a_few_comparisons_have_led_nowhere() {
    world(by_hand(), |world| async move {
        world.master.run(vec![custom("a")]);
        world.settle().await;
        world.come_back().await;
        for _ in 0..3 {
            assert_eq!(world.master.registrations(), 1);
            world.answer(nothing(4)).await;
        }
        assert_eq!(world.master.registrations(), 2);
        let all = world.master.heard.lock().unwrap().registrations[1]
            .1
            .clone();
        assert_eq!(all.agent.id, Some(agent_id()));
        let held = &all.held;
        assert_eq!((held.tasks.len(), held.executors.len()), (1, 1));

        world.come_back().await;
        world.answer(Reregistered::Unknown).await;
        assert_eq!(world.master.registrations(), 3);

        // Sums that cannot be counted are as good as none.
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
fn a_master_that_dies_during_the_comparison_is_looked_for_again_from_the_beginning() {
    world(by_hand(), |world| async move {
        world.master.run(vec![shell("a")]);
        world.settle().await;
        world.come_back().await;
        world.answer(nothing(1)).await;
        world.network.sever("agent", "master");
        world.advance(3).await;
        world.network.heal("agent", "master");
        world.advance(60).await;
        let returns = world.master.heard.lock().unwrap().returns.clone();
        assert!(returns.len() > 2 && returns[1].report.is_some());
        let later = returns[2..].iter().map(|said| &said.report);
        assert!(
            later.flatten().next().is_none(),
            "what the one said before is forgotten"
        );
    });
}
