//! The newest tasks of some kind, at most so many; the oldest is forgotten for a new one.
//!
//! Plain data. One id is in it once: the newer replaces the older.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use protocol::TaskId;

use super::Task;

/// The newest tasks, found by id.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Oldest first. An id whose number is not the one in `by_id` is out of date and skipped.
    order: VecDeque<(u64, TaskId)>,
    by_id: BTreeMap<TaskId, (u64, Arc<Task>)>,
    next: u64,
    most: usize,
}

impl Recent {
    /// Room for `most`.
    pub fn new(most: usize) -> Self {
        Self {
            order: VecDeque::new(),
            by_id: BTreeMap::new(),
            next: 0,
            most,
        }
    }

    /// The task of that id.
    pub fn get(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.by_id.get(id).map(|(_, task)| task)
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.order.iter().filter_map(|(number, id)| {
            let (newest, task) = self.by_id.get(id)?;
            (newest == number).then_some(task)
        })
    }

    /// This is the newest.
    pub fn push(&mut self, task: Arc<Task>) {
        if self.most == 0 {
            return;
        }
        self.next += 1;
        self.order.push_back((self.next, task.id.clone()));
        self.by_id.insert(task.id.clone(), (self.next, task));
        while self.by_id.len() > self.most {
            let Some((number, id)) = self.order.pop_front() else {
                break;
            };
            if self.is_newest(number, &id) {
                self.by_id.remove(&id);
            }
        }
        if self.order.len() > 2 * self.most {
            let by_id = &self.by_id;
            self.order
                .retain(|(number, id)| by_id.get(id).is_some_and(|(newest, _)| newest == number));
        }
    }

    fn is_newest(&self, number: u64, id: &TaskId) -> bool {
        self.by_id
            .get(id)
            .is_some_and(|(newest, _)| *newest == number)
    }

    /// Keeps these.
    pub(super) fn retain(&mut self, keep: impl Fn(&Task) -> bool) {
        self.by_id.retain(|_, (_, task)| keep(task));
        let by_id = &self.by_id;
        let newest = |(number, id): &(u64, TaskId)| {
            by_id.get(id).is_some_and(|(newest, _)| newest == number)
        };
        self.order.retain(newest);
    }

    /// Takes one out.
    pub fn remove(&mut self, id: &TaskId) -> Option<Arc<Task>> {
        let (number, task) = self.by_id.remove(id)?;
        if self
            .order
            .back()
            .is_some_and(|(newest, _)| *newest == number)
        {
            self.order.pop_back();
        }
        Some(task)
    }
}
