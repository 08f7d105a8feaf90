//! Disks of simulated machines: what the master's registry is on, and where an agent would make its sandboxes.
//!
//! Has two stores: what a master or an agent's operations keep, and the ledger of what runs on an agent. Remembers what was synced, over every crash, whether writes fail just now, and at which write somebody wants to be called. How long a write takes is not its business:
//! the node's blocking work is slowed instead. It touches no file of the real machine.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent::Sandboxes;
use agent::sandbox::ReadError;
use protocol::ContainerId;
use protocol::message::operator::FilePiece;
use storage::forgetful::{Failure, ForgetfulDisk, ForgetfulStore};
use storage::{Changes, Record, Store, StoreError};

/// One machine's disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    records: ForgetfulDisk,
    executors: ForgetfulDisk,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many faults make writes fail.
    failing: AtomicU32,
    /// Writes that failed, or were forgotten in a crash.
    lost: AtomicU64,
    /// What a failing write meets, one after the other.
    turn: Mutex<u32>,
    /// Who wants to know of the write after so many others.
    snares: Mutex<Vec<Snare>>,
    /// What was on it when it was copied.
    copied: Mutex<Copied>,
}

#[derive(Debug, Default)]
enum Copied {
    #[default]
    Never,
    /// As soon as something is written: until then nothing changes.
    Soon,
    This(Vec<Record>),
}

struct Snare {
    left: u32,
    sprung: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Snare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snare({})", self.left)
    }
}

impl Disk {
    /// Writes fail from now on, until [`Disk::mend`] is called as often.
    pub fn fail(&self) {
        self.state.failing.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes one [`Disk::fail`].
    pub fn mend(&self) {
        self.state.failing.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_failing(&self) -> bool {
        self.state.failing.load(Ordering::Relaxed) > 0
    }

    fn note_loss(&self) {
        self.state.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// How many writes failed or were forgotten.
    pub fn losses(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Calls this at the `count`th write from now on. That write and all after it are not synced, whatever the disk says, until it crashes.
    pub fn snare(&self, count: u32, sprung: impl FnOnce() + Send + 'static) {
        let snare = Snare {
            left: count.max(1),
            sprung: Box::new(sprung),
        };
        self.snares().push(snare);
    }

    /// Nobody wants to know of writes any more.
    pub fn clear_snares(&self) {
        self.snares().clear();
    }

    fn snares(&self) -> std::sync::MutexGuard<'_, Vec<Snare>> {
        self.state
            .snares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write that is about to be done.
    fn note_write(&self) {
        let sprung = {
            let mut snares = self.snares();
            snares.iter_mut().for_each(|snare| snare.left -= 1);
            match snares.iter().any(|snare| snare.left == 0) {
                true => std::mem::take(&mut *snares),
                false => Vec::new(),
            }
        };
        for snare in sprung.into_iter().filter(|snare| snare.left == 0) {
            self.stores().for_each(|store| store.pretend_to_sync(true));
            (snare.sprung)();
        }
    }

    /// What was written up to now can be put back later.
    pub fn copy(&self) {
        *self.copied() = Copied::Soon;
    }

    /// A disk in the place of this one, which nobody uses any more, with what was copied from it; `None` if nothing was written since.
    #[must_use]
    pub fn put_back(&self) -> Option<Self> {
        let Copied::This(records) = std::mem::take(&mut *self.copied()) else {
            return None;
        };
        let old = ForgetfulDisk::new();
        let written = old.open().and_then(|mut store| {
            let put = |record: Record| store.prepare(&record.key, &record.value);
            records.into_iter().try_for_each(put)?;
            // A commit syncs what was prepared before it.
            let mut last = Changes::new();
            last.remove("put back");
            store.commit(last)
        });
        if let Err(error) = written {
            tracing::error!(%error, "a copy of a disk could not be put back");
        }
        Some(Self {
            records: old,
            ..self.clone()
        })
    }

    fn copied(&self) -> std::sync::MutexGuard<'_, Copied> {
        self.state
            .copied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn stores(&self) -> impl Iterator<Item = &ForgetfulDisk> {
        [&self.records, &self.executors].into_iter()
    }

    /// Who writes on it is gone at once. Of what was written to a store and not synced only the oldest writes are found again, as many as
    /// `kept` says, which is asked with their number.
    pub fn crash(&self, mut kept: impl FnMut(usize) -> usize) {
        for store in self.stores() {
            let unsynced = store.unsynced();
            let kept = kept(unsynced);
            let lost = unsynced.saturating_sub(kept) as u64;
            self.state.lost.fetch_add(lost, Ordering::Relaxed);
            store.crash_keeping(kept);
            store.pretend_to_sync(false);
        }
        self.clear_snares();
    }

    /// Opens the store on it, for one process at a time. A disk that fails cannot keep what was not synced, so it is not opened then.
    pub fn open(&self) -> Result<DiskStore, StoreError> {
        self.open_one(&self.records)
    }

    /// Opens the store of an agent's ledger in the same way.
    pub fn open_executors(&self) -> Result<DiskStore, StoreError> {
        self.open_one(&self.executors)
    }

    fn open_one(&self, records: &ForgetfulDisk) -> Result<DiskStore, StoreError> {
        if self.is_failing() && records.unsynced() > 0 {
            self.note_loss();
            let reason = "the disk did not answer".to_owned();
            return Err(StoreError::Failed { reason });
        }
        Ok(DiskStore {
            disk: self.clone(),
            records: records.clone(),
            store: records.open()?,
        })
    }

    /// What the next failing write meets: a refusal, a full disk, a sync that did not end, and so on in turn.
    fn next_failure(&self) -> Failure {
        let mut turn = self
            .state
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *turn = turn.wrapping_add(1);
        match *turn % 3 {
            1 => Failure::Refuse("the disk refuses".to_owned()),
            2 => Failure::Full,
            _ => Failure::Sync("the disk did not answer".to_owned()),
        }
    }
}

/// One process' opened store on a disk.
#[derive(Debug)]
pub struct DiskStore {
    disk: Disk,
    records: ForgetfulDisk,
    store: ForgetfulStore,
}

impl Store for DiskStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(key)
    }

    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.page(prefix, after, limit)
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        if matches!(*self.disk.copied(), Copied::Soon) {
            let records = self.store.scan(&[])?;
            *self.disk.copied() = Copied::This(records);
        }
        self.disk.note_write();
        if self.disk.is_failing() {
            self.records.fail_next(self.disk.next_failure());
            self.disk.note_loss();
        }
        self.store.commit(changes)
    }
}

impl Sandboxes for Disk {
    fn create(&self, _: &Path, _: &ContainerId, _: Option<&str>) -> Result<(), String> {
        if self.is_failing() {
            self.note_loss();
            return Err("the disk refuses".to_owned());
        }
        Ok(())
    }

    /// Simulated tasks write nothing.
    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FilePiece, ReadError> {
        Err(ReadError::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Changes {
        let mut changes = Changes::new();
        changes.put(key, "value");
        changes
    }

    #[test]
    fn what_was_synced_outlives_a_crash_and_what_failed_does_not() {
        let disk = Disk::default();
        let mut store = disk.open().unwrap();
        store.commit(put("kept")).unwrap();
        disk.fail();
        assert!(store.commit(put("lost")).is_err());
        disk.mend();
        disk.crash(|_| 0);
        let store = disk.open().unwrap();
        assert!(store.get(b"kept").unwrap().is_some());
        assert_eq!(store.get(b"lost"), Ok(None));
        assert_eq!(disk.losses(), 1);
    }

    #[test]
    fn what_an_opening_finds_outlives_a_crash_though_its_write_had_failed() {
        let disk = Disk::default();
        disk.fail();
        // Refused, full, and the third one is written and not synced.
        for _ in 0..3 {
            let mut store = disk.open().unwrap();
            assert!(store.commit(put("written")).is_err());
        }
        assert_eq!(disk.records.unsynced(), 1);
        assert!(disk.open_executors().is_ok(), "nothing of it is in doubt");
        assert!(matches!(disk.open(), Err(StoreError::Failed { .. })));
        disk.mend();
        let store = disk.open().unwrap();
        assert!(store.get(b"written").unwrap().is_some());
        drop(store);
        disk.crash(|_| 0);
        assert!(disk.open().unwrap().get(b"written").unwrap().is_some());
    }

    #[test]
    fn a_snare_springs_at_its_write_and_that_write_is_not_synced() {
        let (disk, sprung) = (Disk::default(), Arc::new(AtomicU32::new(0)));
        let mut store = disk.open().unwrap();
        let count = sprung.clone();
        disk.snare(2, move || {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
        });
        for key in ["one", "two", "three"] {
            store.commit(put(key)).unwrap();
        }
        let unsynced = disk.records.unsynced();
        assert_eq!((sprung.load(Ordering::Relaxed), unsynced), (1, 2));
        disk.crash(|_| 0);
        let mut store = disk.open().unwrap();
        assert!(store.get(b"one").unwrap().is_some());
        assert_eq!(store.get(b"two"), Ok(None));
        store.commit(put("four")).unwrap();
        assert_eq!(disk.records.unsynced(), 0, "it syncs again");
    }

    #[test]
    fn a_disk_that_is_put_back_has_what_it_had_when_it_was_copied() {
        let disk = Disk::default();
        let mut store = disk.open().unwrap();
        store.commit(put("one")).unwrap();
        disk.copy();
        store.commit(put("two")).unwrap();
        let mut gone = Changes::new();
        gone.remove("one");
        store.commit(gone).unwrap();
        disk.crash(|_| 0);
        let back = disk.put_back().unwrap();
        back.crash(|_| 0);
        let store = back.open().unwrap();
        assert!(store.get(b"one").unwrap().is_some());
        assert_eq!(store.get(b"two"), Ok(None));
        back.copy();
        assert!(back.put_back().is_none(), "nothing was written");
    }

    #[test]
    fn a_sandbox_cannot_be_made_while_the_disk_fails() {
        let disk = Disk::default();
        let container = ContainerId::new("c").unwrap();
        assert!(disk.create(Path::new("/w"), &container, None).is_ok());
        disk.fail();
        assert!(disk.create(Path::new("/w"), &container, None).is_err());
    }
}
