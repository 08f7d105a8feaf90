//! Which number an update has in the ledger, until it is acknowledged or nobody wants it any more. Pure.

use std::collections::BTreeMap;

use protocol::{FrameworkId, Uuid};

use super::stream::Key;

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<Key, Vec<(Uuid, u64)>>);

impl Numbers {
    /// This update has this number. `false` if it has another already.
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

    /// Takes the number of one update.
    pub(super) fn take(&mut self, key: &Key, uuid: Uuid) -> Option<u64> {
        let of_task = self.0.get_mut(key)?;
        let at = of_task.iter().position(|(own, _)| *own == uuid)?;
        let (_, number) = of_task.remove(at);
        if of_task.is_empty() {
            self.0.remove(key);
        }
        Some(number)
    }

    /// Takes those of a task.
    pub(super) fn take_task(&mut self, key: &Key) -> Vec<u64> {
        let of_task = self.0.remove(key).unwrap_or_default();
        of_task.into_iter().map(|(_, number)| number).collect()
    }

    /// Takes those of all tasks of a framework.
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
    fn a_number_is_taken_once_alone_or_with_its_task_or_framework() {
        let key = |framework: &str, task: &str| {
            let framework = FrameworkId::new(framework).unwrap();
            (framework, TaskId::new(task).unwrap())
        };
        let uuid = |number| Uuid([number; 16]);
        let mut numbers = Numbers::default();
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
