//! The newest tasks of some kind, at most so many and of so many bytes; the oldest are forgotten for a new one.
//!
//! Plain data. One id is in it once: the newer replaces the older.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::TaskId;

use super::Task;

/// The most bytes of these tasks, unless a single one has more.
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
    /// Room for `most`.
    pub fn new(most: usize) -> Self {
        Self {
            in_order: BTreeMap::new(),
            by_id: BTreeMap::new(),
            next: 0,
            most,
            bytes: 0,
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

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps these.
    pub(super) fn retain(&mut self, keep: impl Fn(&Task) -> bool) {
        self.in_order.retain(|_, task| keep(task));
        let in_order = &self.in_order;
        self.by_id.retain(|_, number| in_order.contains_key(number));
        self.bytes = in_order.values().map(|task| task.bytes()).sum();
    }

    /// Takes one out.
    pub fn remove(&mut self, id: &TaskId) -> Option<Arc<Task>> {
        let number = self.by_id.remove(id)?;
        self.take(number)
    }
}
