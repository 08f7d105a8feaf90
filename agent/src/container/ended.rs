//! Ended: the newest tasks of this process of the agent whose ends are acknowledged.
//!
//! Remembers that a kill of one of them is late, said again perhaps to a new master: nobody is answered, because whoever waited for its end has it, and
//! "never heard of" would be a second end. A set of names and nothing else; what people look up is in `history`. Not on the disk.

use std::collections::{BTreeMap, VecDeque};

use protocol::{FrameworkId, TaskId};

/// How many are remembered, whosesoever they are. A kill is said again within minutes.
const ENDED_MAX: usize = 10_000;

/// Those tasks.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Each with the number under which it stands in `order`.
    tasks: BTreeMap<(FrameworkId, TaskId), u64>,
    /// Oldest first. One that began anew since is still named here, under a number that holds no longer.
    order: VecDeque<(u64, (FrameworkId, TaskId))>,
    next: u64,
}

impl Ended {
    /// This one is over, and whoever waited for its end has it.
    pub(super) fn note(&mut self, framework: &FrameworkId, task: &TaskId) {
        let key = (framework.clone(), task.clone());
        self.tasks.insert(key.clone(), self.next);
        self.order.push_back((self.next, key));
        self.next += 1;
        while self.order.len() > ENDED_MAX {
            self.forget_oldest();
        }
    }

    /// A task of this name begins, be it for the second time.
    pub(super) fn begins(&mut self, framework: &FrameworkId, task: &TaskId) {
        self.tasks.remove(&(framework.clone(), task.clone()));
    }

    /// Whether this one was here and is over.
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
    fn the_newest_are_remembered_and_what_begins_again_is_not_over() {
        let mut ended = Ended::default();
        (0..=ENDED_MAX).for_each(|number| ended.note(&framework(), &task(number)));
        assert!(!ended.has(&framework(), &task(0)) && ended.has(&framework(), &task(1)));
        ended.begins(&framework(), &task(1));
        assert!(!ended.has(&framework(), &task(1)));
        let other = FrameworkId::new("g").unwrap();
        assert!(!ended.has(&other, &task(2)), "each framework has its own");
    }

    #[test]
    fn one_that_ends_twice_is_as_new_as_its_second_end_and_nothing_grows() {
        let mut ended = Ended::default();
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
