//! Ended tasks: the newest tasks with acknowledged terminal updates, since this process started.
//!
//! A kill of such a task is late, perhaps repeated by a new master. It must not be answered: the
//! framework has the task's end, and "unknown task" would be a second one. Holds ids only; pages
//! use `history`. Not on disk.

use std::collections::{BTreeMap, VecDeque};

use protocol::{FrameworkId, TaskId};

/// Bound for all frameworks together. Kills are repeated within minutes.
const ENDED_MAX: usize = 10_000;

/// The ended tasks.
#[derive(Debug, Default)]
pub(super) struct EndedTasks {
    /// Each with its number in `order`.
    tasks: BTreeMap<(FrameworkId, TaskId), u64>,
    /// Oldest first. Contains stale numbers of tasks that were started again since.
    order: VecDeque<(u64, (FrameworkId, TaskId))>,
    next: u64,
}

impl EndedTasks {
    /// The task's end is acknowledged.
    pub(super) fn note(&mut self, framework: &FrameworkId, task: &TaskId) {
        let key = (framework.clone(), task.clone());
        self.tasks.insert(key.clone(), self.next);
        self.order.push_back((self.next, key));
        self.next += 1;
        while self.order.len() > ENDED_MAX {
            self.forget_oldest();
        }
    }

    /// A task with this id is started, perhaps again.
    pub(super) fn begins(&mut self, framework: &FrameworkId, task: &TaskId) {
        self.tasks.remove(&(framework.clone(), task.clone()));
    }

    /// Whether the task was here and has ended.
    pub(super) fn has(&self, framework: &FrameworkId, task: &TaskId) -> bool {
        self.tasks.contains_key(&(framework.clone(), task.clone()))
    }

    fn forget_oldest(&mut self) {
        if let Some((number, key)) = self.order.pop_front()
            && self.tasks.get(&key) == Some(&number)
        {
            self.tasks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framework() -> FrameworkId {
        FrameworkId::new("f").unwrap()
    }

    fn task(number: usize) -> TaskId {
        TaskId::new(number.to_string()).unwrap()
    }

    #[test]
    fn newest_ended_tasks_are_kept_until_restarted() {
        let mut ended = EndedTasks::default();
        (0..=ENDED_MAX).for_each(|number| ended.note(&framework(), &task(number)));
        assert!(!ended.has(&framework(), &task(0)) && ended.has(&framework(), &task(1)));
        ended.begins(&framework(), &task(1));
        assert!(!ended.has(&framework(), &task(1)));
        let other = FrameworkId::new("g").unwrap();
        assert!(!ended.has(&other, &task(2)), "each framework has its own");
    }

    #[test]
    fn task_that_ends_twice_counts_from_its_second_end() {
        let mut ended = EndedTasks::default();
        ended.note(&framework(), &task(0));
        ended.begins(&framework(), &task(0));
        ended.note(&framework(), &task(0));
        (1..ENDED_MAX).for_each(|number| ended.note(&framework(), &task(number)));
        assert!(
            ended.has(&framework(), &task(0)),
            "its first end has gone, its second is there"
        );
        for _ in 0..2 * ENDED_MAX {
            ended.note(&framework(), &task(7));
        }
        assert_eq!((ended.tasks.len(), ended.order.len()), (1, ENDED_MAX));
    }
}
