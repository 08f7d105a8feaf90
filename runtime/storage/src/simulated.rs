//! An in-memory store for tests; its simulated crashes lose unsynced writes.
//!
//! A [`SimulatedDisk`] outlives the processes that use it; a [`SimulatedStore`] is one process'
//! opened store on it, with exactly the guarantees of [`crate::Store`]. The test holds the disk,
//! injects failures, crashes it, and reopens it. It never delays.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::changes::{Change, Changes};
use crate::error::StoreError;
use crate::{Record, Store};

/// An injected failure of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// [`StoreError::Refused`]: nothing is changed, and the store stays open.
    Refuse(String),
    /// [`StoreError::Full`]: nothing is changed, and the store closes itself.
    Full,
    /// [`StoreError::Failed`]: the changes were written, their sync failed, and the store closes
    /// itself. [`SimulatedDisk::crash`] or [`SimulatedDisk::crash_keeping`] decides whether they
    /// survive.
    Sync(String),
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Records that survive a crash.
    synced: Records,
    /// Records that a reader sees.
    seen: Records,
    /// Unsynced commits and prepared records, oldest first.
    unsynced: Vec<Vec<Change>>,
    failures: VecDeque<Failure>,
    /// Reports a sync without doing it: a known fault of sled, reproduced for the checkers.
    fakes_syncs: bool,
    /// The current opening; stores of earlier ones are closed.
    incarnation: u64,
    open: bool,
    syncs: u64,
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the store, and syncs its content; [`StoreError::InUse`] while an earlier opening lives
    /// and has not crashed.
    pub fn open(&self) -> Result<SimulatedStore, StoreError> {
        let mut state = self.state();
        if state.open {
            return Err(StoreError::InUse {
                dir: PathBuf::from("memory"),
            });
        }
        state.open = true;
        state.incarnation += 1;
        if !state.unsynced.is_empty() && !state.fakes_syncs {
            state.sync();
        }
        let incarnation = state.incarnation;
        Ok(SimulatedStore {
            disk: self.clone(),
            incarnation,
            closed: false,
        })
    }

    /// A copy of the synced content, like a backup.
    pub fn copy(&self) -> Self {
        let synced = self.state().synced.clone();
        let copied = State {
            seen: synced.clone(),
            synced,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(copied)),
        }
    }

    /// Makes the next otherwise successful commit fail in this way. Several failures are used in
    /// order.
    pub fn fail_next(&self, failure: Failure) {
        self.state().failures.push_back(failure);
    }

    /// Sets whether commits report a sync without doing it.
    pub fn fake_syncs(&self, fakes_syncs: bool) {
        self.state().fakes_syncs = fakes_syncs;
    }

    /// Simulates a loss of power: closes the store and drops unsynced writes.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// As [`crash`](Self::crash), but the oldest `commits` unsynced ones survive.
    pub fn crash_keeping(&self, commits: usize) {
        let mut state = self.state();
        state.open = false;
        state.incarnation += 1;
        let unsynced = std::mem::take(&mut state.unsynced);
        for changes in unsynced.iter().take(commits) {
            apply(&mut state.synced, changes);
        }
        state.seen = state.synced.clone();
    }

    /// The number of unsynced commits, counting each prepared record as one.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// The number of actual syncs.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// A test that failed while it held the lock has not made the state inconsistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process' opened store on a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedStore {
    disk: SimulatedDisk,
    incarnation: u64,
    closed: bool,
}

impl SimulatedStore {
    /// A store on a new disk.
    pub fn new() -> Self {
        let disk = SimulatedDisk::new();
        disk.state().open = true;
        SimulatedStore {
            disk,
            incarnation: 0,
            closed: false,
        }
    }

    /// The disk of the store.
    pub fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// Simulates a loss of power, and returns the reopened store.
    pub fn crash(self) -> Result<SimulatedStore, StoreError> {
        self.disk.crash();
        self.disk.open()
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.disk.state();
        if self.closed || state.incarnation != self.incarnation {
            return Err(StoreError::Closed);
        }
        Ok(state)
    }
}

impl Default for SimulatedStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for SimulatedStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state()?.seen.get(key).cloned())
    }

    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let state = self.state()?;
        let from = after.map_or_else(|| prefix.to_vec(), |key| [key, &[0]].concat());
        let from = from.max(prefix.to_vec());
        let found = state
            .seen
            .range(from..)
            .take_while(|(key, _)| key.starts_with(prefix));
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| Record {
            key: key.clone(),
            value: value.clone(),
        };
        Ok(found.take(limit).map(record).collect())
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        drop(self.state()?);
        let changes = changes.settled()?;
        if changes.is_empty() {
            return Ok(());
        }
        let result = self.disk.state().write(changes);
        self.closed = matches!(result, Err(StoreError::Full | StoreError::Failed { .. }));
        result
    }

    fn prepare(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        drop(self.state()?);
        let mut changes = Changes::new();
        changes.put(key, value);
        let changes = changes.settled()?;
        let mut state = self.disk.state();
        apply(&mut state.seen, &changes);
        state.unsynced.push(changes);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        let state = self.disk.state();
        let bytes = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.len() + value.len()) as u64;
        state.seen.iter().map(bytes).sum()
    }
}

impl Drop for SimulatedStore {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.incarnation == self.incarnation {
            state.open = false;
        }
    }
}

impl State {
    fn write(&mut self, changes: Vec<Change>) -> Result<(), StoreError> {
        match self.failures.pop_front() {
            Some(Failure::Refuse(reason)) => return Err(StoreError::Refused { reason }),
            Some(Failure::Full) => return Err(StoreError::Full),
            Some(Failure::Sync(reason)) => {
                apply(&mut self.seen, &changes);
                self.unsynced.push(changes);
                return Err(StoreError::Failed { reason });
            }
            None => {}
        }
        apply(&mut self.seen, &changes);
        self.unsynced.push(changes);
        if !self.fakes_syncs {
            self.sync();
        }
        Ok(())
    }

    /// One sync covers all earlier writes.
    fn sync(&mut self) {
        for changes in std::mem::take(&mut self.unsynced) {
            apply(&mut self.synced, &changes);
        }
        self.syncs += 1;
    }
}

fn apply(records: &mut Records, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put { key, value } => records.insert(key.clone(), value.clone()),
            Change::Remove { key } => records.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Changes {
        let mut changes = Changes::new();
        changes.put(key, value);
        changes
    }

    #[test]
    fn a_crash_keeps_what_was_committed() {
        let mut store = SimulatedStore::new();
        store.commit(put("term", "7")).unwrap();
        let store = store.crash().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn refused_commit_changes_nothing() {
        let mut store = SimulatedStore::new();
        store
            .disk()
            .fail_next(Failure::Refuse("not the leader".into()));
        let error = store.commit(put("term", "7")).unwrap_err();
        assert_eq!(
            error,
            StoreError::Refused {
                reason: "not the leader".into()
            }
        );
        assert_eq!(store.get(b"term"), Ok(None));
        store.commit(put("term", "8")).unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"8".to_vec())));
    }

    #[test]
    fn full_disk_closes_the_store_unchanged() {
        let disk = SimulatedDisk::new();
        let mut store = disk.open().unwrap();
        store.commit(put("term", "7")).unwrap();
        disk.fail_next(Failure::Full);
        assert_eq!(store.commit(put("term", "8")), Err(StoreError::Full));
        assert_eq!(store.commit(put("term", "9")), Err(StoreError::Closed));
        drop(store);
        assert_eq!(disk.open().unwrap().get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn failed_sync_leaves_the_commit_in_doubt() {
        for (kept, expected) in [(0, None), (1, Some(b"7".to_vec()))] {
            let disk = SimulatedDisk::new();
            let mut store = disk.open().unwrap();
            disk.fail_next(Failure::Sync("input/output error".into()));
            let mut both = put("term", "7");
            both.put("vote", "7");
            assert!(matches!(store.commit(both), Err(StoreError::Failed { .. })));
            assert_eq!(store.get(b"term"), Err(StoreError::Closed));
            disk.crash_keeping(kept);
            let store = disk.open().unwrap();
            assert_eq!(store.get(b"term"), Ok(expected.clone()));
            assert_eq!(store.get(b"vote"), Ok(expected));
        }
    }

    #[test]
    fn records_found_at_opening_are_durable() {
        let disk = SimulatedDisk::new();
        let mut store = disk.open().unwrap();
        disk.fail_next(Failure::Sync("input/output error".into()));
        assert!(store.commit(put("term", "7")).is_err());
        drop(store);
        let store = disk.open().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
        drop(store);
        disk.crash();
        let store = disk.open().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn fake_syncs_lose_acknowledged_commits() {
        let mut store = SimulatedStore::new();
        store.commit(put("term", "7")).unwrap();
        store.disk().fake_syncs(true);
        store.commit(put("term", "8")).unwrap();
        assert_eq!((store.disk().unsynced(), store.disk().syncs()), (1, 1));
        let store = store.crash().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn prepared_records_are_lost_before_the_commit() {
        let mut store = SimulatedStore::new();
        store.prepare(b"part", b"1").unwrap();
        assert_eq!(store.get(b"part"), Ok(Some(b"1".to_vec())));
        let mut store = store.crash().unwrap();
        assert_eq!(store.get(b"part"), Ok(None));
        store.prepare(b"part", b"1").unwrap();
        store.commit(put("whole", "part 1")).unwrap();
        let store = store.crash().unwrap();
        assert_eq!(store.get(b"part"), Ok(Some(b"1".to_vec())));
    }

    #[test]
    fn disk_opens_once_until_a_crash() {
        let disk = SimulatedDisk::new();
        let first = disk.open().unwrap();
        assert!(matches!(disk.open(), Err(StoreError::InUse { .. })));
        disk.crash();
        let second = disk.open().unwrap();
        assert_eq!(first.get(b"term"), Err(StoreError::Closed));
        drop(first);
        assert!(matches!(disk.open(), Err(StoreError::InUse { .. })));
        drop(second);
        disk.open().unwrap();
    }
}
