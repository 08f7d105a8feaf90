//! Launches: one process for each container, and no task is launched twice.
//!
//! Judged by the machines and each party's own order. A container's process starts once; a master
//! sends a task to an agent once; an agent gives a task to an executor once, or runs its command
//! once. The agent's next process, which may not know that, may give it to the same executor again,
//! which ignores it. The load never reuses a task id of a framework. Sound with any loss, because
//! only sent messages and started processes count.

use std::collections::{BTreeMap, BTreeSet};

use protocol::message::executor::{LaunchTask, SubscribeExecutor};
use protocol::message::task::RunTasks;
use protocol::{ContainerId, FrameworkId, TaskId};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "launches";

/// The checker.
#[derive(Default)]
pub struct Launches {
    started: BTreeSet<ContainerId>,
    /// The framework of each executor's node.
    executors: BTreeMap<String, FrameworkId>,
    sent: BTreeSet<(FrameworkId, TaskId)>,
    given: BTreeMap<(FrameworkId, TaskId), Given>,
    /// How often the process of each agent has ended.
    ends: BTreeMap<String, u64>,
    judgements: u64,
}

/// The executor of a task.
#[derive(Clone, PartialEq)]
struct Given {
    executor: String,
    /// The number of ends of its agent's process before.
    life: u64,
}

impl Launches {
    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        if let Some(run) = observed.is::<RunTasks>()
            && let Some(framework) = &run.framework.id
        {
            for task in &run.tasks {
                self.judgements += 1;
                let key = (framework.clone(), task.task_id.clone());
                if !self.sent.insert(key) {
                    return Err(format!(
                        "task {} of {framework} is sent to an agent again, now to {}",
                        task.task_id, observed.to
                    ));
                }
            }
        } else if let Some(launch) = observed.is::<LaunchTask>()
            && let Some(framework) = self.executors.get(observed.to)
        {
            let key = (framework.clone(), launch.task.task_id.clone());
            return self.given(key, observed.to, observed.from);
        }
        Ok(())
    }

    /// An agent gives a task to an executor.
    fn given(
        &mut self,
        key: (FrameworkId, TaskId),
        executor: &str,
        agent: &str,
    ) -> Result<(), String> {
        self.judgements += 1;
        let task = key.1.clone();
        let given = Given {
            executor: executor.to_owned(),
            life: self.ends.get(agent).copied().unwrap_or(0),
        };
        let before = self.given.insert(key, given.clone());
        let again = |before: &Given| before.executor != given.executor || before.life == given.life;
        match before.filter(again) {
            Some(before) => Err(format!(
                "task {task} is given to executor {executor} by {agent}, but {} has had it already",
                before.executor
            )),
            None => Ok(()),
        }
    }

    fn started(&mut self, container: &ContainerId, agent: &str) -> Result<(), String> {
        self.judgements += 1;
        match self.started.insert(container.clone()) {
            true => Ok(()),
            false => Err(format!(
                "container {container} on {agent} has a second process"
            )),
        }
    }
}

impl Checker for Launches {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let judged = match event.kind {
            EventKind::Sent(observed) => self.on_sent(&observed),
            EventKind::ProcessStarted { agent, container } => self.started(container, agent),
            EventKind::CommandStarted(started) => {
                let key = (started.framework.clone(), started.task.clone());
                self.given(key, started.container.as_str(), started.agent)
            }
            EventKind::NodeEnded { node, .. } => {
                *self.ends.entry(node.to_owned()).or_default() += 1;
                Ok(())
            }
            EventKind::Received(observed) => {
                if let Some(subscribe) = observed.is::<SubscribeExecutor>() {
                    let framework = subscribe.framework_id.clone();
                    self.executors.insert(observed.from.to_owned(), framework);
                }
                Ok(())
            }
            _ => Ok(()),
        };
        judged.or_else(|what| broken(NAME, event.at, what))
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{Fixture, container, task};

    #[test]
    fn a_container_has_one_process() {
        let mut fixture = Fixture::new(Launches::default(), "cpus:4");
        let container = &container();
        let agent = "agent-1";
        fixture.fact(EventKind::ProcessStarted { agent, container });
        fixture
            .fact(EventKind::ProcessStarted { agent, container })
            .is_broken("second process");
    }

    #[test]
    fn a_task_is_sent_once_and_given_once() {
        let mut sent = Fixture::new(Launches::default(), "cpus:4");
        sent.runs(&[task("t", "cpus:1"), task("t2", "cpus:1")]);
        sent.runs(&[task("t", "cpus:1")])
            .is_broken("task t of f is sent");
        let launch = LaunchTask {
            task: task("t", "cpus:1"),
        };
        let mut given = Fixture::new(Launches::default(), "cpus:4");
        given
            .executor_subscribes()
            .sent("agent-1", "executor-1", &launch);
        given.fact(EventKind::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        given.sent("agent-1", "executor-1", &launch).is_clean();
        given
            .sent("agent-1", "executor-1", &launch)
            .is_broken("is given");
    }
}
