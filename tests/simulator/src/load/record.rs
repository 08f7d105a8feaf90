//! A framework's persistent state, which survives its crashes.
//!
//! It has the framework's id, the numbers given to tasks, and the tasks that have not ended. Pure.

use std::collections::BTreeMap;

use protocol::{
    AgentId, ExecutorId, ExecutorInfo, FrameworkId, Reason, TaskId, TaskState, TaskStatus,
};

/// The state of a framework and its tasks.
#[derive(Clone, Debug, Default)]
pub struct FrameworkRecord {
    /// Its id, once a master has given it.
    pub id: Option<FrameworkId>,
    /// The number of names given.
    named: u64,
    /// How often it had to subscribe anew as another framework.
    lives: u64,
    tasks: BTreeMap<TaskId, Entry>,
    /// Its own executors, by agent.
    pub executors: BTreeMap<AgentId, ExecutorInfo>,
}

/// A task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its agent.
    pub agent: AgentId,
    /// Its newest state.
    pub state: TaskState,
}

impl FrameworkRecord {
    /// A number not used for any task or executor of this framework.
    pub fn next_number(&mut self) -> u64 {
        self.named += 1;
        self.lives << 32 | self.named
    }

    /// Records a launched task.
    pub fn launched(&mut self, id: TaskId, agent: AgentId) {
        let state = TaskState::Staging;
        self.tasks.insert(id, Entry { agent, state });
    }

    /// Records a task's new state. An unknown task counts as ended.
    pub fn on_status(&mut self, status: &TaskStatus) {
        let forgotten =
            status.state == TaskState::Unknown && status.reason == Some(Reason::Reconciliation);
        if status.state.is_terminal() || forgotten {
            self.tasks.remove(&status.task_id);
        } else if let Some(entry) = self.tasks.get_mut(&status.task_id) {
            entry.state = status.state;
        }
    }

    /// Removes an executor that is gone.
    pub fn executor_lost(&mut self, agent: &AgentId, executor: Option<&ExecutorId>) {
        let known = self.executors.get(agent);
        if known.is_some_and(|known| executor.is_none_or(|lost| *lost == known.executor_id)) {
            self.executors.remove(agent);
        }
    }

    /// The masters have removed this framework: it starts anew as another.
    pub fn begin_anew(&mut self) {
        *self = Self {
            lives: self.lives + 1,
            ..Self::default()
        };
    }

    /// The tasks that have not ended.
    pub fn tasks(&self) -> &BTreeMap<TaskId, Entry> {
        &self.tasks
    }

    /// The number of tasks that do the framework's work, as far as it knows: a task on an
    /// unreachable agent may never return.
    pub fn at_work(&self) -> usize {
        let at_work = |entry: &&Entry| entry.state != TaskState::Unreachable;
        self.tasks.values().filter(at_work).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Source;
    use runtime::Timestamp;

    fn status(id: &str, state: TaskState) -> TaskStatus {
        let id = TaskId::new(id).unwrap();
        TaskStatus::new(id, state, Source::Master, Timestamp::default())
    }

    #[test]
    fn task_is_recorded_until_its_end() {
        let mut record = FrameworkRecord::default();
        let agent = AgentId::new("s").unwrap();
        for id in ["a", "b", "c"] {
            record.launched(TaskId::new(id).unwrap(), agent.clone());
        }
        record.on_status(&status("a", TaskState::Unreachable));
        record.on_status(&status("b", TaskState::Failed));
        record.on_status(&status("c", TaskState::Unknown).with_reason(Reason::Reconciliation, ""));
        let left: Vec<_> = record.tasks().values().map(|entry| entry.state).collect();
        assert_eq!(left, [TaskState::Unreachable]);
        assert_eq!(record.at_work(), 0);
        record.on_status(&status("a", TaskState::Running));
        assert_eq!(record.at_work(), 1);
    }

    #[test]
    fn new_framework_reuses_no_name() {
        let mut record = FrameworkRecord::default();
        let first = record.next_number();
        record.begin_anew();
        assert!(record.id.is_none() && record.tasks().is_empty());
        assert_ne!(record.next_number(), first);
    }
}
