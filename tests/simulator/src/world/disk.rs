//! Disks of simulated machines, for the master's registry and the agents' stores.
//!
//! Each has two stores: one of a master or of an agent's operations, and the ledger of containers
//! on an agent. A disk knows its synced content across crashes, whether writes fail now, and the
//! writes at which a callback runs. The duration of writes is simulated by the node's blocking
//! work. No file of the real machine is used.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent::Sandboxes;
use agent::sandbox::ReadError;
use protocol::ContainerId;
use protocol::message::operator::FileChunk;
use storage::simulated::{Failure, SimulatedDisk, SimulatedStore};
use storage::{Changes, Record, Store, StoreError};

/// One machine's disk. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    records: SimulatedDisk,
    executors: SimulatedDisk,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of faults that make writes fail.
    failing: AtomicU32,
    /// Writes that failed, or were lost in a crash.
    lost: AtomicU64,
    /// Index of the next kind of failure.
    turn: Mutex<u32>,
    /// Callbacks at a write with a certain number.
    crash_points: Mutex<Vec<CrashPoint>>,
    /// The copied content.
    copied: Mutex<Copied>,
}

#[derive(Debug, Default)]
enum Copied {
    #[default]
    Never,
    /// At the next write: until then nothing changes.
    Soon,
    This(Vec<Record>),
}

struct CrashPoint {
    left: u32,
    reached: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for CrashPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snare({})", self.left)
    }
}

impl Disk {
    /// Makes writes fail until [`Disk::mend`] is called as often.
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

    /// The number of writes that failed or were lost.
    pub fn losses(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Calls `reached` at the `count`th write from now on. That write and all later ones stay
    /// unsynced, whatever the disk reports, until the crash.
    pub fn set_crash_point(&self, count: u32, reached: impl FnOnce() + Send + 'static) {
        let snare = CrashPoint {
            left: count.max(1),
            reached: Box::new(reached),
        };
        self.crash_points().push(snare);
    }

    /// Removes all callbacks.
    pub fn clear_crash_points(&self) {
        self.crash_points().clear();
    }

    fn crash_points(&self) -> std::sync::MutexGuard<'_, Vec<CrashPoint>> {
        self.state
            .crash_points
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write before it is done.
    fn note_write(&self) {
        let reached = {
            let mut crash_points = self.crash_points();
            crash_points.iter_mut().for_each(|snare| snare.left -= 1);
            match crash_points.iter().any(|snare| snare.left == 0) {
                true => std::mem::take(&mut *crash_points),
                false => Vec::new(),
            }
        };
        for snare in reached.into_iter().filter(|snare| snare.left == 0) {
            self.stores().for_each(|store| store.fake_syncs(true));
            (snare.reached)();
        }
    }

    /// Copies the present content, for a later reset.
    pub fn copy(&self) {
        *self.copied() = Copied::Soon;
    }

    /// A disk with the copied content, in place of this unused one; `None` if nothing was written
    /// since.
    #[must_use]
    pub fn put_back(&self) -> Option<Self> {
        let Copied::This(records) = std::mem::take(&mut *self.copied()) else {
            return None;
        };
        let old = SimulatedDisk::new();
        let written = old.open().and_then(|mut store| {
            let put = |record: Record| store.prepare(&record.key, &record.value);
            records.into_iter().try_for_each(put)?;
            // A commit syncs the writes prepared before it.
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

    fn stores(&self) -> impl Iterator<Item = &SimulatedDisk> {
        [&self.records, &self.executors].into_iter()
    }

    /// Crashes the process that uses it. Of a store's unsynced writes only the oldest remain, in
    /// the number that `kept` returns for their count.
    pub fn crash(&self, mut kept: impl FnMut(usize) -> usize) {
        for store in self.stores() {
            let unsynced = store.unsynced();
            let kept = kept(unsynced);
            let lost = unsynced.saturating_sub(kept) as u64;
            self.state.lost.fetch_add(lost, Ordering::Relaxed);
            store.crash_keeping(kept);
            store.fake_syncs(false);
        }
        self.clear_crash_points();
    }

    /// Opens its store, for one process at a time. A failing disk loses unsynced writes, so it
    /// cannot be opened.
    pub fn open(&self) -> Result<DiskStore, StoreError> {
        self.open_one(&self.records)
    }

    /// Opens the store of an agent's ledger in the same way.
    pub fn open_executors(&self) -> Result<DiskStore, StoreError> {
        self.open_one(&self.executors)
    }

    fn open_one(&self, records: &SimulatedDisk) -> Result<DiskStore, StoreError> {
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

    /// The kind of the next failure, in turn: a refusal, a full disk, a sync that did not end, and
    /// so on.
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

/// A process' open store on a disk.
#[derive(Debug)]
pub struct DiskStore {
    disk: Disk,
    records: SimulatedDisk,
    store: SimulatedStore,
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
    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FileChunk, ReadError> {
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
    fn synced_writes_survive_a_crash_failed_ones_do_not() {
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
    fn content_found_at_opening_survives_a_crash() {
        let disk = Disk::default();
        disk.fail();
        // Refused, full, and the third one is written but not synced.
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
    fn crash_point_fires_at_its_unsynced_write() {
        let (disk, reached) = (Disk::default(), Arc::new(AtomicU32::new(0)));
        let mut store = disk.open().unwrap();
        let count = reached.clone();
        disk.set_crash_point(2, move || {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
        });
        for key in ["one", "two", "three"] {
            store.commit(put(key)).unwrap();
        }
        let unsynced = disk.records.unsynced();
        assert_eq!((reached.load(Ordering::Relaxed), unsynced), (1, 2));
        disk.crash(|_| 0);
        let mut store = disk.open().unwrap();
        assert!(store.get(b"one").unwrap().is_some());
        assert_eq!(store.get(b"two"), Ok(None));
        store.commit(put("four")).unwrap();
        assert_eq!(disk.records.unsynced(), 0, "it syncs again");
    }

    #[test]
    fn reset_disk_has_its_copied_content() {
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
    fn sandbox_fails_while_the_disk_fails() {
        let disk = Disk::default();
        let container = ContainerId::new("c").unwrap();
        assert!(disk.create(Path::new("/w"), &container, None).is_ok());
        disk.fail();
        assert!(disk.create(Path::new("/w"), &container, None).is_err());
    }
}
