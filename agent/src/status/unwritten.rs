//! Updates that are not in the ledger: being written, or with a failed write. Pure.
//!
//! They are not confirmed, so their executors keep and may repeat them.

use std::collections::BTreeMap;

use protocol::{FrameworkId, Uuid};
use runtime::Pid;

use super::stream::Key;

/// The state of such an update.
#[derive(Debug)]
enum WriteState {
    /// Being written; this executor waits for the confirmation.
    Writing(Option<Pid>),
    /// The write failed and the update is being delivered; its ledger number.
    Failed(u64),
}

/// How to handle a repeated update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OnRepeat {
    /// It is being written; the newest sender gets the confirmation.
    Wait,
    /// Write it under this number.
    Write(u64),
    /// Confirm it.
    Confirm,
}

/// The unwritten updates by task.
#[derive(Debug, Default)]
pub(super) struct UnwrittenUpdates(BTreeMap<Key, Vec<(Uuid, WriteState)>>);

impl UnwrittenUpdates {
    /// A write for this executor has started.
    pub(super) fn write(&mut self, key: Key, uuid: Uuid, executor: Option<Pid>) {
        self.set(key, uuid, WriteState::Writing(executor));
    }

    /// The write failed.
    pub(super) fn fail(&mut self, key: Key, uuid: Uuid, number: u64) {
        self.set(key, uuid, WriteState::Failed(number));
    }

    fn set(&mut self, key: Key, uuid: Uuid, state: WriteState) {
        let of_task = self.0.entry(key).or_default();
        match of_task.iter_mut().find(|(own, _)| *own == uuid) {
            Some((_, before)) => *before = state,
            None => of_task.push((uuid, state)),
        }
    }

    fn state(&mut self, key: &Key, uuid: Uuid) -> Option<&mut WriteState> {
        let mut of_task = self.0.get_mut(key)?.iter_mut();
        let (_, state) = of_task.find(|(own, _)| *own == uuid)?;
        Some(state)
    }

    /// Whether its write failed.
    pub(super) fn has_failed(&self, key: &Key, uuid: Uuid) -> bool {
        let of_task = self.0.get(key).into_iter().flatten();
        let mut own = of_task.filter(|(own, _)| *own == uuid);
        own.any(|(_, state)| matches!(state, WriteState::Failed(_)))
    }

    /// The executor repeats an update, and waits for its confirmation from now on.
    pub(super) fn on_repeat(&mut self, key: &Key, uuid: Uuid, executor: Option<&Pid>) -> OnRepeat {
        match self.state(key, uuid) {
            None => OnRepeat::Confirm,
            Some(WriteState::Failed(number)) => OnRepeat::Write(*number),
            Some(WriteState::Writing(waiting)) => {
                *waiting = executor.cloned();
                OnRepeat::Wait
            }
        }
    }

    /// The write has ended. Returns the waiting executor.
    pub(super) fn take(&mut self, key: &Key, uuid: Uuid) -> Option<Pid> {
        let of_task = self.0.get_mut(key)?;
        let at = of_task.iter().position(|(own, _)| *own == uuid)?;
        let (_, state) = of_task.remove(at);
        if of_task.is_empty() {
            self.0.remove(key);
        }
        match state {
            WriteState::Writing(executor) => executor,
            WriteState::Failed(_) => None,
        }
    }

    /// An acknowledged update need not be written.
    pub(super) fn acknowledged(&mut self, key: &Key, uuid: Uuid) {
        if self.has_failed(key, uuid) {
            self.take(key, uuid);
        }
    }

    /// Drops a task's updates.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Drops a framework's updates.
    pub(super) fn forget_framework(&mut self, framework: &FrameworkId) {
        self.0.retain(|(owner, _), _| owner != framework);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::TaskId;
    use runtime::NodeId;

    /// SPEC 5.3: an executor drops an update only once it is in the ledger.
    #[test]
    fn repeated_update_is_confirmed_only_if_written() {
        let key = (FrameworkId::new("f").unwrap(), TaskId::new("t").unwrap());
        let uuid = |number| Uuid([number; 16]);
        let pid = |life| Pid::new("executor", NodeId::new("executor-c", life), 1);
        let mut unwritten = UnwrittenUpdates::default();
        unwritten.write(key.clone(), uuid(1), Some(pid(1)));
        assert_eq!(
            unwritten.on_repeat(&key, uuid(1), Some(&pid(2))),
            OnRepeat::Wait
        );
        assert_eq!(unwritten.take(&key, uuid(1)), Some(pid(2)), "the newest");
        assert_eq!(
            unwritten.on_repeat(&key, uuid(1), Some(&pid(2))),
            OnRepeat::Confirm
        );
        unwritten.fail(key.clone(), uuid(2), 7);
        assert_eq!(
            unwritten.on_repeat(&key, uuid(2), Some(&pid(2))),
            OnRepeat::Write(7)
        );
        assert!(unwritten.has_failed(&key, uuid(2)));
        unwritten.write(key.clone(), uuid(2), Some(pid(2)));
        unwritten.acknowledged(&key, uuid(2));
        assert_eq!(
            unwritten.on_repeat(&key, uuid(2), Some(&pid(3))),
            OnRepeat::Wait
        );
        unwritten.fail(key.clone(), uuid(2), 7);
        unwritten.acknowledged(&key, uuid(2));
        assert!(unwritten.0.is_empty());
    }
}
