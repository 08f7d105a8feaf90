//! Which updates are not in the ledger although they were given: those on their way there, and those that it could not take. Pure.
//!
//! None of them is confirmed, so their executors keep them and may say them again.

use std::collections::BTreeMap;

use protocol::{FrameworkId, Uuid};
use runtime::Pid;

use super::stream::Key;

/// Where such an update is.
#[derive(Debug)]
enum Place {
    /// On its way. This is who waits for the confirmation.
    OnItsWay(Option<Pid>),
    /// On its way to its framework only. This is the number that it was to have in the ledger.
    Failed(u64),
}

/// What is to be done with an update that is said again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Nothing: it is on its way to the ledger, and whoever said it last hears when it is there.
    Wait,
    /// Put it into the ledger, under this number.
    Keep(u64),
    /// Confirm it.
    Confirm,
}

/// The updates.
#[derive(Debug, Default)]
pub(super) struct Unkept(BTreeMap<Key, Vec<(Uuid, Place)>>);

impl Unkept {
    /// This update is being written for this executor.
    pub(super) fn write(&mut self, key: Key, uuid: Uuid, executor: Option<Pid>) {
        self.set(key, uuid, Place::OnItsWay(executor));
    }

    /// It could not be.
    pub(super) fn fail(&mut self, key: Key, uuid: Uuid, number: u64) {
        self.set(key, uuid, Place::Failed(number));
    }

    fn set(&mut self, key: Key, uuid: Uuid, place: Place) {
        let of_task = self.0.entry(key).or_default();
        match of_task.iter_mut().find(|(own, _)| *own == uuid) {
            Some((_, before)) => *before = place,
            None => of_task.push((uuid, place)),
        }
    }

    fn place(&mut self, key: &Key, uuid: Uuid) -> Option<&mut Place> {
        let mut of_task = self.0.get_mut(key)?.iter_mut();
        let (_, place) = of_task.find(|(own, _)| *own == uuid)?;
        Some(place)
    }

    /// Whether it could not be written.
    pub(super) fn has_failed(&self, key: &Key, uuid: Uuid) -> bool {
        let of_task = self.0.get(key).into_iter().flatten();
        let mut own = of_task.filter(|(own, _)| *own == uuid);
        own.any(|(_, place)| matches!(place, Place::Failed(_)))
    }

    /// The executor says it again, and waits from now on.
    pub(super) fn again(&mut self, key: &Key, uuid: Uuid, executor: Option<&Pid>) -> Again {
        match self.place(key, uuid) {
            None => Again::Confirm,
            Some(Place::Failed(number)) => Again::Keep(*number),
            Some(Place::OnItsWay(waiting)) => {
                *waiting = executor.cloned();
                Again::Wait
            }
        }
    }

    /// It is written, or cannot be: who waits for that, if somebody does.
    pub(super) fn take(&mut self, key: &Key, uuid: Uuid) -> Option<Pid> {
        let of_task = self.0.get_mut(key)?;
        let at = of_task.iter().position(|(own, _)| *own == uuid)?;
        let (_, place) = of_task.remove(at);
        if of_task.is_empty() {
            self.0.remove(key);
        }
        match place {
            Place::OnItsWay(executor) => executor,
            Place::Failed(_) => None,
        }
    }

    /// Its framework has it: it needs no place in the ledger.
    pub(super) fn acknowledged(&mut self, key: &Key, uuid: Uuid) {
        if self.has_failed(key, uuid) {
            self.take(key, uuid);
        }
    }

    /// Nobody wants those of this task any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Nobody wants those of this framework any more.
    pub(super) fn forget_framework(&mut self, framework: &FrameworkId) {
        self.0.retain(|(owner, _), _| owner != framework);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::TaskId;
    use runtime::NodeId;

    /// SPEC 5.3: an executor lets go of what is in the ledger, and of nothing else.
    #[test]
    fn what_is_said_again_is_confirmed_only_if_it_is_kept() {
        let key = (FrameworkId::new("f").unwrap(), TaskId::new("t").unwrap());
        let uuid = |number| Uuid([number; 16]);
        let pid = |life| Pid::new("executor", NodeId::new("executor-c", life), 1);
        let mut unkept = Unkept::default();
        unkept.write(key.clone(), uuid(1), Some(pid(1)));
        assert_eq!(unkept.again(&key, uuid(1), Some(&pid(2))), Again::Wait);
        assert_eq!(unkept.take(&key, uuid(1)), Some(pid(2)), "the newest");
        assert_eq!(unkept.again(&key, uuid(1), Some(&pid(2))), Again::Confirm);
        unkept.fail(key.clone(), uuid(2), 7);
        assert_eq!(unkept.again(&key, uuid(2), Some(&pid(2))), Again::Keep(7));
        assert!(unkept.has_failed(&key, uuid(2)));
        unkept.write(key.clone(), uuid(2), Some(pid(2)));
        unkept.acknowledged(&key, uuid(2));
        assert_eq!(unkept.again(&key, uuid(2), Some(&pid(3))), Again::Wait);
        unkept.fail(key.clone(), uuid(2), 7);
        unkept.acknowledged(&key, uuid(2));
        assert!(unkept.0.is_empty());
    }
}
