//! What a mirror is told of tasks, put where the leader has it.
//!
//! Plain data. Nothing is decided, summed up or digested here: what tasks hold is told as the leader has summed it up.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::digest::Print;
use protocol::{AgentId, ExecutorId, ExecutorInfo, FrameworkId, TaskId};
use resources::Resources;
use serde::{Deserialize, Serialize};

use super::{ById, OfFramework, OnAgent, Task, Tasks, of_framework};

/// In which condition a task of a framework is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// It runs, or its end is not acknowledged.
    Active,
    /// Its end is acknowledged.
    Completed,
    /// Its agent cannot be reached.
    Unreachable,
}

impl OfFramework {
    /// Those that run or whose end is not acknowledged, by id.
    pub(crate) fn active_by_id(&self) -> &ById<Arc<Task>> {
        &self.active
    }

    /// A mirror is told of a task.
    pub(crate) fn mirror(&mut self, place: Place, task: Arc<Task>) {
        self.uses_anew();
        match place {
            Place::Active => {
                self.ended += usize::from(task.state.is_terminal());
                let before = self.active.insert(&task.id.clone(), task);
                self.no_more(before);
            }
            Place::Completed => self.completed.push(task),
            Place::Unreachable => self.unreachable.push(task),
        }
    }

    /// A mirror is told that a task is not there any more.
    pub(crate) fn mirror_gone(&mut self, place: Place, id: &TaskId) {
        self.uses_anew();
        match place {
            Place::Active => {
                let before = self.active.remove(id);
                self.no_more(before);
            }
            Place::Completed => drop(self.completed.remove(id)),
            Place::Unreachable => drop(self.unreachable.remove(id)),
        }
    }

    /// This is no active task any more.
    fn no_more(&mut self, task: Option<Arc<Task>>) {
        let ended = task.is_some_and(|task| task.state.is_terminal());
        self.ended = self.ended.saturating_sub(usize::from(ended));
    }
}

impl OnAgent {
    /// The frameworks' own executors there, by framework and id, each with its print.
    pub(crate) fn executors_by_id(
        &self,
    ) -> &BTreeMap<(FrameworkId, ExecutorId), (Arc<ExecutorInfo>, Print)> {
        &self.executors
    }
}

impl Tasks {
    /// All agents that have, or had, tasks or executors.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (&AgentId, &Arc<OnAgent>)> {
        self.by_agent.iter()
    }

    /// Where a mirror keeps the tasks of this framework, made if there are none.
    pub(crate) fn mirrored(&mut self, framework: &FrameworkId) -> &mut OfFramework {
        of_framework(&mut self.by_framework, framework, self.limits)
    }

    /// No tasks yet, with room for as many as a framework may have.
    pub(crate) fn nothing(&self) -> Arc<OfFramework> {
        Arc::new(OfFramework::new(self.limits))
    }

    /// A mirror is told that nothing is known of this framework's tasks any more.
    pub(crate) fn mirror_no_framework(&mut self, framework: &FrameworkId) {
        self.by_framework.remove(framework);
    }

    /// A mirror is told what is held on an agent.
    pub(crate) fn mirror_held(&mut self, agent: AgentId, held: BTreeMap<FrameworkId, Resources>) {
        Arc::make_mut(self.by_agent.made(&agent)).held = held.into_iter().collect();
    }

    /// A mirror is told of an executor on an agent, or that there is none of that id.
    pub(crate) fn mirror_executor(
        &mut self,
        agent: AgentId,
        key: (FrameworkId, ExecutorId),
        info: Option<Arc<ExecutorInfo>>,
    ) {
        let on = Arc::make_mut(self.by_agent.made(&agent));
        let unprinted = |info| (info, Print { place: 0, value: 0 });
        crate::agents::keep(&mut on.executors, key, info.map(unprinted));
    }

    /// A mirror is told that nothing is on this agent any more.
    pub(crate) fn mirror_no_agent(&mut self, agent: &AgentId) {
        self.by_agent.remove(agent);
    }
}
