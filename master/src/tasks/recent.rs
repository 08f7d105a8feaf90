//! The newest tasks of some kind, bounded in number and bytes; a new task evicts the oldest.
//!
//! Plain data. A newer task replaces an older one with the same id.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::TaskId;

use super::Task;

/// Maximum bytes of these tasks, unless a single one exceeds it.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// The newest tasks, found by id.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Oldest first.
    in_order: BTreeMap<u64, Arc<Task>>,
    by_id: BTreeMap<TaskId, u64>,
    next: u64,
    most: usize,
    bytes: usize,
}

impl Recent {
    /// An empty collection of at most `most` tasks.
    pub fn new(most: usize) -> Self {
        Self {
            in_order: BTreeMap::new(),
            by_id: BTreeMap::new(),
            next: 0,
            most,
            bytes: 0,
        }
    }

    /// The task with that id.
    pub fn get(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.in_order.get(self.by_id.get(id)?)
    }

    /// All tasks, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.in_order.values()
    }

    /// Adds the newest task.
    pub fn push(&mut self, task: Arc<Task>) {
        if self.most == 0 {
            return;
        }
        self.next += 1;
        self.bytes += task.bytes();
        if let Some(older) = self.by_id.insert(task.id.clone(), self.next) {
            self.take(older);
        }
        self.in_order.insert(self.next, task);
        while self.in_order.len() > self.most || (self.bytes > BYTES_MAX && self.in_order.len() > 1)
        {
            let Some((&oldest, _)) = self.in_order.first_key_value() else {
                break;
            };
            if let Some(task) = self.take(oldest) {
                self.by_id.remove(&task.id);
            }
        }
    }

    fn take(&mut self, number: u64) -> Option<Arc<Task>> {
        let task = self.in_order.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(task.bytes());
        Some(task)
    }

    /// Approximate bytes of all tasks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps the tasks for which `keep` is true.
    pub(super) fn retain(&mut self, keep: impl Fn(&Task) -> bool) {
        self.in_order.retain(|_, task| keep(task));
        let in_order = &self.in_order;
        self.by_id.retain(|_, number| in_order.contains_key(number));
        self.bytes = in_order.values().map(|task| task.bytes()).sum();
    }

    /// Removes a task.
    pub fn remove(&mut self, id: &TaskId) -> Option<Arc<Task>> {
        let number = self.by_id.remove(id)?;
        self.take(number)
    }
}
