//! Ledger numbers of unacknowledged updates. Pure.

use std::collections::BTreeMap;

use protocol::{FrameworkId, Uuid};

use super::stream::Key;

/// The numbers by task.
#[derive(Debug, Default)]
pub(super) struct UpdateNumbers(BTreeMap<Key, Vec<(Uuid, u64)>>);

impl UpdateNumbers {
    /// Stores an update's number. `false` if it has another.
    pub(super) fn add(&mut self, key: Key, uuid: Uuid, number: u64) -> bool {
        let of_task = self.0.entry(key).or_default();
        match of_task.iter().find(|(own, _)| *own == uuid) {
            Some((_, before)) => *before == number,
            None => {
                of_task.push((uuid, number));
                true
            }
        }
    }

    /// Removes the number of one update.
    pub(super) fn take(&mut self, key: &Key, uuid: Uuid) -> Option<u64> {
        let of_task = self.0.get_mut(key)?;
        let at = of_task.iter().position(|(own, _)| *own == uuid)?;
        let (_, number) = of_task.remove(at);
        if of_task.is_empty() {
            self.0.remove(key);
        }
        Some(number)
    }

    /// Removes the numbers of a task.
    pub(super) fn take_task(&mut self, key: &Key) -> Vec<u64> {
        let of_task = self.0.remove(key).unwrap_or_default();
        of_task.into_iter().map(|(_, number)| number).collect()
    }

    /// Removes the numbers of a framework.
    pub(super) fn take_framework(&mut self, framework: &FrameworkId) -> Vec<u64> {
        let mut taken = Vec::new();
        self.0.retain(|(owner, _), of_task| {
            let goes = owner == framework;
            if goes {
                taken.extend(of_task.iter().map(|(_, number)| *number));
            }
            !goes
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::TaskId;

    #[test]
    fn numbers_are_removed_by_update_task_or_framework() {
        let key = |framework: &str, task: &str| {
            let framework = FrameworkId::new(framework).unwrap();
            (framework, TaskId::new(task).unwrap())
        };
        let uuid = |number| Uuid([number; 16]);
        let mut numbers = UpdateNumbers::default();
        for (number, of) in [("f", "a"), ("f", "a"), ("f", "b"), ("g", "a"), ("g", "b")]
            .into_iter()
            .enumerate()
        {
            numbers.add(key(of.0, of.1), uuid(number as u8), number as u64);
        }
        assert_eq!(numbers.take(&key("f", "a"), uuid(1)), Some(1));
        assert_eq!(numbers.take(&key("f", "a"), uuid(1)), None);
        assert_eq!(numbers.take(&key("f", "b"), uuid(0)), None);
        assert_eq!(numbers.take_task(&key("g", "a")), [3]);
        assert_eq!(numbers.take_framework(&key("f", "a").0), [0, 2]);
        assert_eq!(numbers.0.len(), 1);
    }
}
