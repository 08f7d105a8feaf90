//! Executors (invariant 5, its middle part): one that dies takes its tasks with it, and its agent says so.
//!
//! Judged by the agent's own order, as long as it lives. When the process of a container ends, each task that was given to its
//! executor, and whose end the agent has not heard from the executor before, is owed an end: the next terminal state that the agent
//! tells a master must be that of a task whose executor has gone (`TASK_FAILED` for `EXECUTOR_TERMINATED`), or of one that had to
//! yield (`TASK_GONE`, or `TASK_LOST` to those who do not know it, for `CONTAINER_PREEMPTED`). It must have been told by the end of the
//! recovery, by the deadline that agents' waits allow.
//!
//! An executor that outlives the process of its agent has its tasks on. If it does not subscribe again in time, its agent ends it, and says so
//! as well (`TASK_GONE`, or `TASK_LOST`, for `EXECUTOR_REREGISTRATION_TIMEOUT`).
//!
//! Not owed: what an agent had when its own process ended, and what ends before the next one runs; tasks that a master has disowned, and
//! those of frameworks that are over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{ExecutorUpdated, LaunchTask, SubscribeExecutor};
use protocol::message::registration::DisownTasks;
use protocol::message::task::{ShutDownFramework, TaskUpdated};
use protocol::{ContainerId, FrameworkId, Reason, TaskId, TaskState, TaskStatus};
use runtime::Role;

use super::{UNDER_WAY, broken};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

/// How long the news may take once an agent is registered: updates before it in its task's stream are sent again after ten minutes
/// at most.
const NEWS: Duration = Duration::from_secs(720);

const NAME: &str = "executors";

type Key = (FrameworkId, TaskId);

/// An executor that has subscribed.
struct Living {
    agent: String,
    framework: FrameworkId,
    container: ContainerId,
    /// Its tasks, and whether an agent has heard from it that they have ended.
    tasks: BTreeMap<TaskId, bool>,
    /// Whether it has lost its agent, and not subscribed at the next one.
    astray: bool,
}

/// A task that has gone with its executor.
struct Owed {
    agent: String,
    container: ContainerId,
    died: Duration,
    astray: bool,
}

/// The checker.
#[derive(Default)]
pub struct Executors {
    /// Agents that run.
    agents: BTreeSet<String>,
    /// By their nodes.
    living: BTreeMap<String, Living>,
    /// Where each executor's node is, by its container.
    nodes: BTreeMap<ContainerId, String>,
    owed: BTreeMap<Key, Owed>,
    /// What each agent has been told is not wanted any more.
    disowned: BTreeSet<Key>,
    over: BTreeSet<(String, FrameworkId)>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl Executors {
    fn heard(&mut self, spoken: &Spoken<'_>) {
        if let Some(subscribe) = spoken.is::<SubscribeExecutor>() {
            let container = subscribe.container_id.clone();
            self.nodes.insert(container.clone(), spoken.from.to_owned());
            let living = self.living.entry(spoken.from.to_owned());
            let living = living.or_insert_with(|| Living {
                agent: spoken.to.to_owned(),
                framework: subscribe.framework_id.clone(),
                container,
                tasks: BTreeMap::new(),
                astray: false,
            });
            living.astray = false;
        } else if let Some(updated) = spoken.is::<ExecutorUpdated>()
            && updated.status.state.is_terminal()
            && let Some(living) = self.living.get_mut(spoken.from)
            && let Some(ended) = living.tasks.get_mut(&updated.status.task_id)
        {
            *ended = true;
        } else if let Some(disown) = spoken.is::<DisownTasks>() {
            for key in &disown.tasks {
                self.owed.remove(key);
                self.disowned.insert(key.clone());
            }
        } else if let Some(gone) = spoken.is::<ShutDownFramework>() {
            let framework = &gone.framework_id;
            self.owed
                .retain(|key, owed| key.0 != *framework || owed.agent != spoken.to);
            self.over.insert((spoken.to.to_owned(), framework.clone()));
        }
    }

    fn said(&mut self, spoken: &Spoken<'_>) -> Result<(), String> {
        if let Some(launch) = spoken.is::<LaunchTask>() {
            if let Some(living) = self.living.get_mut(spoken.to) {
                // An agent that was started again may not know that it has been given.
                let task = living.tasks.entry(launch.task.task_id.clone());
                task.or_insert(false);
            }
        } else if let Some(updated) = spoken.is::<TaskUpdated>()
            && updated.update.status.state.is_terminal()
        {
            let (update, status) = (&updated.update, &updated.update.status);
            let key = (update.framework_id.clone(), status.task_id.clone());
            if let Some(owed) = self.owed.remove(&key) {
                self.judgements += 1;
                return fits(status, owed.astray).then_some(()).ok_or_else(|| {
                    format!(
                        "{} says that task {} of {} is {} ({:?}), but its executor, in container {}, died at {:?}",
                        spoken.from, key.1, key.0, status.state, status.reason, owed.container, owed.died
                    )
                });
            }
        }
        Ok(())
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
            astray,
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
                    astray,
                };
                self.owed.insert(key, owed);
            }
        }
    }
}

/// Whether this is what an agent says of a task whose executor has gone, which may have been astray.
fn fits(status: &TaskStatus, astray: bool) -> bool {
    let is_late = matches!(
        (status.state, status.reason),
        (
            TaskState::Gone | TaskState::Lost,
            Some(Reason::ExecutorReregistrationTimeout)
        )
    );
    if astray && is_late {
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
        match event.what {
            What::NodeStarted {
                node,
                role: Role::Agent,
            } => {
                self.agents.insert(node.to_owned());
            }
            What::NodeEnded { node, .. } => {
                self.agents.remove(node);
                self.owed.retain(|_, owed| owed.agent != node);
                let of_agent = self.living.values_mut().filter(|one| one.agent == node);
                of_agent.for_each(|one| one.astray = true);
                self.over.retain(|(agent, _)| agent != node);
            }
            What::Heard(spoken) => self.heard(&spoken),
            What::Said(spoken) => {
                return self
                    .said(&spoken)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            What::ProcessEnded { container, .. } => self.died(container, event.at),
            What::FaultsOver => self.recovery = Some(event.at),
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
    use super::super::stage::{Stage, agent, container, framework, seconds, status, task};
    use super::*;
    use protocol::StatusUpdate;

    /// An executor that was given a task.
    fn stage() -> Stage<Executors> {
        let mut stage = Stage::new(Executors::default(), "cpus:4");
        let launch = LaunchTask {
            task: task("t", "cpus:1"),
        };
        stage
            .executor_subscribes()
            .said("agent-1", "executor-1", &launch);
        stage
    }

    fn dies(stage: &mut Stage<Executors>) -> &mut Stage<Executors> {
        stage.fact(What::ProcessEnded {
            agent: "agent-1",
            container: &container(),
        })
    }

    fn told(stage: &mut Stage<Executors>, state: TaskState, reason: Option<Reason>) {
        let mut status = status("t", state, Some(9));
        status.reason = reason;
        let update = StatusUpdate {
            framework_id: framework(),
            latest_state: state,
            status,
        };
        let agent_id = agent();
        stage.said("agent-1", "master", &TaskUpdated { agent_id, update });
    }

    #[test]
    fn the_tasks_of_a_dead_executor_fail_for_its_death_or_have_yielded() {
        use Reason::{ContainerPreempted, ExecutorTerminated};
        for (state, reason, fits) in [
            (TaskState::Failed, Some(ExecutorTerminated), true),
            (TaskState::Gone, Some(ContainerPreempted), true),
            (TaskState::Lost, Some(ContainerPreempted), true),
            (TaskState::Finished, None, false),
            (TaskState::Failed, None, false),
            (TaskState::Lost, Some(ExecutorTerminated), false),
        ] {
            let mut stage = stage();
            told(dies(&mut stage), state, reason);
            match fits {
                true => stage.is_clean(),
                false => stage.is_broken("died at"),
            }
        }
    }

    #[test]
    fn who_outlives_an_agent_keeps_its_tasks_and_must_be_back_in_time() {
        use Reason::{ExecutorReregistrationTimeout, ExecutorTerminated};
        for (back, reason, fits) in [
            (false, ExecutorReregistrationTimeout, true),
            (false, ExecutorTerminated, true),
            (true, ExecutorTerminated, true),
            (true, ExecutorReregistrationTimeout, false),
        ] {
            let mut stage = stage();
            let (node, role) = ("agent-1", Role::Agent);
            stage.fact(What::NodeEnded {
                node,
                crashed: true,
            });
            stage.fact(What::NodeStarted { node, role });
            if back {
                stage.executor_subscribes();
            }
            let state = match reason {
                ExecutorReregistrationTimeout => TaskState::Lost,
                _ => TaskState::Failed,
            };
            told(dies(&mut stage), state, Some(reason));
            assert_eq!(stage.checker.judgements(), 1);
            match fits {
                true => stage.is_clean(),
                false => stage.is_broken("died at"),
            }
        }
    }

    #[test]
    fn a_task_that_ended_before_its_executor_is_owed_nothing() {
        let mut stage = stage();
        let finished = status("t", TaskState::Finished, Some(2));
        dies(stage.stored(&finished));
        told(&mut stage, TaskState::Finished, None);
        stage.wait(NEWS * 2);
        assert!(stage.checker.owed.is_empty());
    }

    #[test]
    fn somebody_must_be_told_unless_the_agent_is_gone_too() {
        let mut silent = stage();
        dies(silent.fact(What::FaultsOver)).wait(NEWS);
        silent.is_broken("has told nobody");
        let mut gone = stage();
        dies(gone.fact(What::FaultsOver)).wait(seconds(1));
        gone.fact(What::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        assert!(gone.wait(NEWS).checker.owed.is_empty());
    }
}
