//! Executors: the death of an executor ends its tasks, and its agent reports it.
//!
//! Judged in the agent's own order, while it lives. When a container's process ends, an end is owed
//! for each task of its executor whose end the agent has not received from the executor. The
//! agent's next terminal state must then be that of a task without executor (`TASK_FAILED` for
//! `EXECUTOR_TERMINATED`), or of a preempted one (`TASK_GONE`, or `TASK_LOST` for frameworks
//! without it, for `CONTAINER_PREEMPTED`), or of one that has exceeded a limit, if an isolator has
//! found that (`TASK_FAILED` for `CONTAINER_LIMITATION_MEMORY`). It must be sent by the end of the recovery, within the
//! agents' resend times. A command's container counts as an executor that dies unless its command
//! ends.
//!
//! An executor that outlives its agent's process keeps its tasks. If it does not reregister in
//! time, its agent ends it and reports that too (`TASK_GONE`, or `TASK_LOST`, for
//! `EXECUTOR_REREGISTRATION_TIMEOUT`).
//!
//! Not owed: tasks of an agent whose own process has ended, and ends before its next process runs;
//! tasks that a master has disowned, and those of removed frameworks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{ExecutorUpdated, LaunchTask, SubscribeExecutor};
use protocol::message::registration::DisownTasks;
use protocol::message::task::{ShutDownFramework, TaskUpdated};
use protocol::{ContainerId, FrameworkId, Reason, TaskId, TaskState, TaskStatus};
use runtime::Role;

use crate::checkers::checker::{Checker, Violation};
use crate::checkers::{UNDER_WAY, broken};
use crate::event::{CommandTask, Event, EventKind, IsolationStep, SeenMessage};
use crate::world::executor;

/// Maximum time of the report after an agent's registration: earlier updates in a task's stream are
/// resent after ten minutes at most.
const NEWS: Duration = Duration::from_secs(720);

const NAME: &str = "executors";

type Key = (FrameworkId, TaskId);

/// A registered executor.
struct Living {
    agent: String,
    framework: FrameworkId,
    container: ContainerId,
    /// Its tasks, and whether an agent has received their end from it.
    tasks: BTreeMap<TaskId, bool>,
    /// Whether it has lost its agent and not reregistered yet.
    lost_agent: bool,
}

/// A task whose executor has died.
struct Owed {
    agent: String,
    container: ContainerId,
    died: Duration,
    lost_agent: bool,
}

/// The checker.
#[derive(Default)]
pub struct Executors {
    /// Running agents.
    agents: BTreeSet<String>,
    /// Executors by their nodes.
    living: BTreeMap<String, Living>,
    /// Executors' nodes by container.
    nodes: BTreeMap<ContainerId, String>,
    owed: BTreeMap<Key, Owed>,
    /// Tasks that each agent was told to drop.
    disowned: BTreeSet<Key>,
    over: BTreeSet<(String, FrameworkId)>,
    /// Containers that have exceeded a limit.
    limited: BTreeSet<ContainerId>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl Executors {
    fn on_received(&mut self, observed: &SeenMessage<'_>) {
        if let Some(subscribe) = observed.is::<SubscribeExecutor>() {
            let container = subscribe.container_id.clone();
            self.nodes
                .insert(container.clone(), observed.from.to_owned());
            let living = self.living.entry(observed.from.to_owned());
            let living = living.or_insert_with(|| Living {
                agent: observed.to.to_owned(),
                framework: subscribe.framework_id.clone(),
                container,
                tasks: BTreeMap::new(),
                lost_agent: false,
            });
            living.lost_agent = false;
        } else if let Some(updated) = observed.is::<ExecutorUpdated>()
            && updated.status.state.is_terminal()
            && let Some(living) = self.living.get_mut(observed.from)
            && let Some(ended) = living.tasks.get_mut(&updated.status.task_id)
        {
            *ended = true;
        } else if let Some(disown) = observed.is::<DisownTasks>() {
            for key in &disown.tasks {
                self.owed.remove(key);
                self.disowned.insert(key.clone());
            }
        } else if let Some(gone) = observed.is::<ShutDownFramework>() {
            let framework = &gone.framework_id;
            self.owed
                .retain(|key, owed| key.0 != *framework || owed.agent != observed.to);
            self.over
                .insert((observed.to.to_owned(), framework.clone()));
        }
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        if let Some(launch) = observed.is::<LaunchTask>() {
            if let Some(living) = self.living.get_mut(observed.to) {
                // A restarted agent may not know that the task was given.
                let task = living.tasks.entry(launch.task.task_id.clone());
                task.or_insert(false);
            }
        } else if let Some(updated) = observed.is::<TaskUpdated>()
            && updated.update.status.state.is_terminal()
        {
            let (update, status) = (&updated.update, &updated.update.status);
            let key = (update.framework_id.clone(), status.task_id.clone());
            // A command's end may be reported before its container has ended.
            self.command_ended(status.container_id.as_ref(), &key.1);
            if let Some(owed) = self.owed.remove(&key) {
                self.judgements += 1;
                let is_limited = status.reason == Some(Reason::ContainerLimitationMemory)
                    && status.state == TaskState::Failed
                    && self.is_limited(&owed.container);
                let fits = is_limited || fits(status, owed.lost_agent);
                return fits.then_some(()).ok_or_else(|| {
                    format!(
                        "{} says that task {} of {} is {} ({:?}), but its executor, in container {}, died at {:?}",
                        observed.from, key.1, key.0, status.state, status.reason, owed.container, owed.died
                    )
                });
            }
        }
        Ok(())
    }

    /// Whether it has exceeded a limit, or the container in which it is nested.
    fn is_limited(&self, container: &ContainerId) -> bool {
        self.limited.contains(container) || self.limited.contains(&container.outermost())
    }

    fn command_started(&mut self, started: CommandTask<'_>) {
        let node = executor::node_of(started.container);
        self.nodes.insert(started.container.clone(), node.clone());
        let living = Living {
            agent: started.agent.to_owned(),
            framework: started.framework.clone(),
            container: started.container.clone(),
            tasks: BTreeMap::from([(started.task.clone(), false)]),
            lost_agent: false,
        };
        self.living.insert(node, living);
    }

    fn command_ended(&mut self, container: Option<&ContainerId>, task: &TaskId) {
        let node = container.map(executor::node_of);
        let living = node.and_then(|node| self.living.get_mut(&node));
        if let Some(ended) = living.and_then(|living| living.tasks.get_mut(task)) {
            *ended = true;
        }
    }

    fn died(&mut self, container: &ContainerId, at: Duration) {
        let node = self.nodes.remove(container);
        let Some(living) = node.and_then(|node| self.living.remove(&node)) else {
            return;
        };
        let Living {
            agent,
            framework,
            container,
            tasks,
            lost_agent,
        } = living;
        let over = self.over.contains(&(agent.clone(), framework.clone()));
        if over || !self.agents.contains(&agent) {
            return;
        }
        for (task, _) in tasks.into_iter().filter(|(_, ended)| !ended) {
            let key = (framework.clone(), task);
            if !self.disowned.contains(&key) {
                let (agent, container) = (agent.clone(), container.clone());
                let owed = Owed {
                    agent,
                    container,
                    died: at,
                    lost_agent,
                };
                self.owed.insert(key, owed);
            }
        }
    }
}

/// Whether an agent reports this for a task whose executor has died, possibly after losing its
/// agent.
fn fits(status: &TaskStatus, lost_agent: bool) -> bool {
    let is_late = matches!(
        (status.state, status.reason),
        (
            TaskState::Gone | TaskState::Lost,
            Some(Reason::ExecutorReregistrationTimeout)
        )
    );
    if lost_agent && is_late {
        return true;
    }
    matches!(
        (status.state, status.reason),
        (TaskState::Failed, Some(Reason::ExecutorTerminated))
            | (
                TaskState::Gone | TaskState::Lost,
                Some(Reason::ContainerPreempted)
            )
    )
}

impl Checker for Executors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::NodeStarted {
                node,
                role: Role::Agent,
            } => {
                self.agents.insert(node.to_owned());
            }
            EventKind::NodeEnded { node, .. } => {
                self.agents.remove(node);
                self.owed.retain(|_, owed| owed.agent != node);
                let of_agent = self.living.values_mut().filter(|one| one.agent == node);
                of_agent.for_each(|one| one.lost_agent = true);
                self.over.retain(|(agent, _)| agent != node);
            }
            EventKind::Received(observed) => self.on_received(&observed),
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            EventKind::CommandStarted(started) => self.command_started(started),
            EventKind::CommandEnded(ended) => self.command_ended(Some(ended.container), ended.task),
            EventKind::Isolated {
                container,
                step: IsolationStep::Limited,
                ..
            } => drop(self.limited.insert(container.clone())),
            EventKind::ProcessEnded { container, .. } => self.died(container, event.at),
            EventKind::FaultsOver => self.recovery = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let mut owed = self.owed.values();
        owed.any(|owed| owed.died + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let recovery = self.recovery.unwrap_or(at);
        let late = self
            .owed
            .iter()
            .find(|(_, owed)| owed.died.max(recovery) + NEWS <= at);
        let Some(((framework, task), owed)) = late else {
            return Ok(());
        };
        let what = format!(
            "{} has told nobody that task {task} of {framework} has ended, whose executor, in container {}, died at {:?}",
            owed.agent, owed.container, owed.died
        );
        broken(NAME, at, what)
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{Fixture, agent, container, framework, seconds, status, task};
    use protocol::StatusUpdate;

    /// An executor with a task.
    fn fixture() -> Fixture<Executors> {
        let mut fixture = Fixture::new(Executors::default(), "cpus:4");
        let launch = LaunchTask {
            task: task("t", "cpus:1"),
        };
        fixture
            .executor_subscribes()
            .sent("agent-1", "executor-1", &launch);
        fixture
    }

    fn dies(fixture: &mut Fixture<Executors>) -> &mut Fixture<Executors> {
        fixture.fact(EventKind::ProcessEnded {
            agent: "agent-1",
            container: &container(),
        })
    }

    fn told(fixture: &mut Fixture<Executors>, state: TaskState, reason: Option<Reason>) {
        let mut status = status("t", state, Some(9));
        status.reason = reason;
        let update = StatusUpdate {
            framework_id: framework(),
            latest_state: state,
            status,
        };
        let agent_id = agent();
        fixture.sent("agent-1", "master", &TaskUpdated { agent_id, update });
    }

    #[test]
    fn dead_executors_tasks_fail_or_yield() {
        use Reason::{ContainerPreempted, ExecutorTerminated};
        for (state, reason, fits) in [
            (TaskState::Failed, Some(ExecutorTerminated), true),
            (TaskState::Gone, Some(ContainerPreempted), true),
            (TaskState::Lost, Some(ContainerPreempted), true),
            (TaskState::Finished, None, false),
            (TaskState::Failed, None, false),
            (TaskState::Lost, Some(ExecutorTerminated), false),
        ] {
            let mut fixture = fixture();
            told(dies(&mut fixture), state, reason);
            match fits {
                true => fixture.is_clean(),
                false => fixture.is_broken("died at"),
            }
        }
    }

    #[test]
    fn surviving_executor_must_reregister_in_time() {
        use Reason::{ExecutorReregistrationTimeout, ExecutorTerminated};
        for (back, reason, fits) in [
            (false, ExecutorReregistrationTimeout, true),
            (false, ExecutorTerminated, true),
            (true, ExecutorTerminated, true),
            (true, ExecutorReregistrationTimeout, false),
        ] {
            let mut fixture = fixture();
            let (node, role) = ("agent-1", Role::Agent);
            fixture.fact(EventKind::NodeEnded {
                node,
                crashed: true,
            });
            fixture.fact(EventKind::NodeStarted { node, role });
            if back {
                fixture.executor_subscribes();
            }
            let state = match reason {
                ExecutorReregistrationTimeout => TaskState::Lost,
                _ => TaskState::Failed,
            };
            told(dies(&mut fixture), state, Some(reason));
            assert_eq!(fixture.checker.judgements(), 1);
            match fits {
                true => fixture.is_clean(),
                false => fixture.is_broken("died at"),
            }
        }
    }

    #[test]
    fn task_ended_before_its_executor_owes_nothing() {
        let mut fixture = fixture();
        let finished = status("t", TaskState::Finished, Some(2));
        dies(fixture.stored(&finished));
        told(&mut fixture, TaskState::Finished, None);
        fixture.wait(NEWS * 2);
        assert!(fixture.checker.owed.is_empty());
    }

    #[test]
    fn end_is_owed_unless_the_agent_is_gone() {
        let mut silent = fixture();
        dies(silent.fact(EventKind::FaultsOver)).wait(NEWS);
        silent.is_broken("has told nobody");
        let mut gone = fixture();
        dies(gone.fact(EventKind::FaultsOver)).wait(seconds(1));
        gone.fact(EventKind::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        assert!(gone.wait(NEWS).checker.owed.is_empty());
    }
}
