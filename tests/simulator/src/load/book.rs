//! A framework's book: what it must not forget over its own crash, on its own disk.
//!
//! Remembers the framework's id, the numbers it has given to tasks, and the tasks that have not ended. Pure.

use std::collections::BTreeMap;

use protocol::{
    AgentId, ExecutorId, ExecutorInfo, FrameworkId, Reason, TaskId, TaskState, TaskStatus,
};

/// What a framework knows of itself and its tasks.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Its id, once a master has given it.
    pub id: Option<FrameworkId>,
    /// How many names it has given.
    named: u64,
    /// How often it had to begin anew as another framework.
    lives: u64,
    tasks: BTreeMap<TaskId, Entry>,
    /// Executors of its own, by agent.
    pub executors: BTreeMap<AgentId, ExecutorInfo>,
}

/// A task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub agent: AgentId,
    /// Its newest state.
    pub state: TaskState,
}

impl Book {
    /// A number that no task or executor of this framework has had.
    pub fn next_number(&mut self) -> u64 {
        self.named += 1;
        self.lives << 32 | self.named
    }

    /// A task is launched.
    pub fn launched(&mut self, id: TaskId, agent: AgentId) {
        let state = TaskState::Staging;
        self.tasks.insert(id, Entry { agent, state });
    }

    /// A task has a new state. One that nobody knows any more has ended.
    pub fn heard(&mut self, status: &TaskStatus) {
        let forgotten =
            status.state == TaskState::Unknown && status.reason == Some(Reason::Reconciliation);
        if status.state.is_terminal() || forgotten {
            self.tasks.remove(&status.task_id);
        } else if let Some(entry) = self.tasks.get_mut(&status.task_id) {
            entry.state = status.state;
        }
    }

    /// An executor of its own is no more.
    pub fn executor_lost(&mut self, agent: &AgentId, executor: Option<&ExecutorId>) {
        let known = self.executors.get(agent);
        if known.is_some_and(|known| executor.is_none_or(|lost| *lost == known.executor_id)) {
            self.executors.remove(agent);
        }
    }

    /// The masters do not want this framework any more: it begins anew as another.
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

    /// How many of them do the framework's work, as far as it knows: one on an agent that cannot be reached may never come back.
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
    fn a_task_is_in_the_book_until_it_ends_or_nobody_knows_it() {
        let mut book = Book::default();
        let agent = AgentId::new("s").unwrap();
        for id in ["a", "b", "c"] {
            book.launched(TaskId::new(id).unwrap(), agent.clone());
        }
        book.heard(&status("a", TaskState::Unreachable));
        book.heard(&status("b", TaskState::Failed));
        book.heard(&status("c", TaskState::Unknown).because(Reason::Reconciliation, ""));
        let left: Vec<_> = book.tasks().values().map(|entry| entry.state).collect();
        assert_eq!(left, [TaskState::Unreachable]);
        assert_eq!(book.at_work(), 0);
        book.heard(&status("a", TaskState::Running));
        assert_eq!(book.at_work(), 1);
    }

    #[test]
    fn who_begins_anew_gives_no_name_twice() {
        let mut book = Book::default();
        let first = book.next_number();
        book.begin_anew();
        assert!(book.id.is_none() && book.tasks().is_empty());
        assert_ne!(book.next_number(), first);
    }
}
