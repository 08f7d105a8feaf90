//! The newest tasks of some kind, at most so many; the oldest is forgotten for a new one.
//!
//! Plain data. One id is in it once: the newer replaces the older.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::TaskId;

use super::Task;

/// The newest tasks, found by id.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Oldest first.
    in_order: BTreeMap<u64, Arc<Task>>,
    by_id: BTreeMap<TaskId, u64>,
    next: u64,
    most: usize,
}

impl Recent {
    /// Room for `most`.
    pub fn new(most: usize) -> Self {
        Self {
            in_order: BTreeMap::new(),
            by_id: BTreeMap::new(),
            next: 0,
            most,
        }
    }

    /// The task of that id.
    pub fn get(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.in_order.get(self.by_id.get(id)?)
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.in_order.values()
    }

    /// This is the newest.
    pub fn push(&mut self, task: Arc<Task>) {
        if self.most == 0 {
            return;
        }
        self.next += 1;
        if let Some(older) = self.by_id.insert(task.id.clone(), self.next) {
            self.in_order.remove(&older);
        }
        self.in_order.insert(self.next, task);
        while self.in_order.len() > self.most {
            let Some((_, oldest)) = self.in_order.pop_first() else {
                break;
            };
            self.by_id.remove(&oldest.id);
        }
    }

    /// Keeps these.
    pub(super) fn retain(&mut self, keep: impl Fn(&Task) -> bool) {
        self.in_order.retain(|_, task| keep(task));
        let in_order = &self.in_order;
        self.by_id.retain(|_, number| in_order.contains_key(number));
    }

    /// Takes one out.
    pub fn remove(&mut self, id: &TaskId) -> Option<Arc<Task>> {
        self.in_order.remove(&self.by_id.remove(id)?)
    }
}
