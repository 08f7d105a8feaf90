//! Updates of the task tables in a mirror.
//!
//! Plain data. Nothing is decided, summed or digested here: held resources come as the leader has
//! summed them.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::digest::Fingerprint;
use protocol::{AgentId, ExecutorId, ExecutorInfo, FrameworkId, TaskId};
use resources::Resources;
use serde::{Deserialize, Serialize};

use super::{AgentTasks, ById, FrameworkTasks, Task, Tasks, of_framework};

/// The condition of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskCondition {
    /// Running, or with an unacknowledged end.
    Active,
    /// Its end is acknowledged.
    Completed,
    /// Its agent is unreachable.
    Unreachable,
}

impl FrameworkTasks {
    /// Active tasks by id.
    pub(crate) fn active_by_id(&self) -> &ById<Arc<Task>> {
        &self.active
    }

    /// Sets a task in a mirror.
    pub(crate) fn mirror(&mut self, place: TaskCondition, task: Arc<Task>) {
        self.invalidate_used();
        match place {
            TaskCondition::Active => {
                self.ended += usize::from(task.state.is_terminal());
                let before = self.active.insert(&task.id.clone(), task);
                self.no_more(before);
            }
            TaskCondition::Completed => self.completed.push(task),
            TaskCondition::Unreachable => self.unreachable.push(task),
        }
    }

    /// Removes a task from a mirror.
    pub(crate) fn mirror_gone(&mut self, place: TaskCondition, id: &TaskId) {
        self.invalidate_used();
        match place {
            TaskCondition::Active => {
                let before = self.active.remove(id);
                self.no_more(before);
            }
            TaskCondition::Completed => drop(self.completed.remove(id)),
            TaskCondition::Unreachable => drop(self.unreachable.remove(id)),
        }
    }

    /// Adjusts the count of ended tasks when a task is no longer active.
    fn no_more(&mut self, task: Option<Arc<Task>>) {
        let ended = task.is_some_and(|task| task.state.is_terminal());
        self.ended = self.ended.saturating_sub(usize::from(ended));
    }
}

impl AgentTasks {
    /// The frameworks' own executors on the agent by framework and id, with their prints.
    pub(crate) fn executors_by_id(
        &self,
    ) -> &BTreeMap<(FrameworkId, ExecutorId), (Arc<ExecutorInfo>, Fingerprint)> {
        &self.executors
    }
}

impl Tasks {
    /// All agents that have, or had, tasks or executors.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (&AgentId, &Arc<AgentTasks>)> {
        self.by_agent.iter()
    }

    /// The mirror's tasks of this framework, created if there are none.
    pub(crate) fn mirrored(&mut self, framework: &FrameworkId) -> &mut FrameworkTasks {
        of_framework(&mut self.by_framework, framework, self.limits)
    }

    /// An empty set of tasks with the limits of a framework.
    pub(crate) fn nothing(&self) -> Arc<FrameworkTasks> {
        Arc::new(FrameworkTasks::new(self.limits))
    }

    /// Removes a framework's tasks from a mirror.
    pub(crate) fn mirror_no_framework(&mut self, framework: &FrameworkId) {
        self.by_framework.remove(framework);
    }

    /// Sets the held resources on an agent in a mirror.
    pub(crate) fn mirror_held(&mut self, agent: AgentId, held: BTreeMap<FrameworkId, Resources>) {
        Arc::make_mut(self.by_agent.made(&agent)).held = held.into_iter().collect();
    }

    /// Sets an executor in a mirror, or removes it.
    pub(crate) fn mirror_executor(
        &mut self,
        agent: AgentId,
        key: (FrameworkId, ExecutorId),
        info: Option<Arc<ExecutorInfo>>,
    ) {
        let on = Arc::make_mut(self.by_agent.made(&agent));
        let unprinted = |info| {
            (
                info,
                Fingerprint {
                    name_hash: 0,
                    value: 0,
                },
            )
        };
        crate::agents::keep(&mut on.executors, key, info.map(unprinted));
    }

    /// Removes an agent's entries from a mirror.
    pub(crate) fn mirror_no_agent(&mut self, agent: &AgentId) {
        self.by_agent.remove(agent);
    }
}
