//! The store's twin for tests: in memory, and a crash takes from it what was not synced.
//!
//! A [`ForgetfulDisk`] outlives the processes that use it; a [`ForgetfulStore`] is one process' opened
//! store on it, with the promises of [`crate::Store`] and nothing more. The test holds the disk, makes it
//! fail on purpose, crashes it, and opens it again. It never delays: time is not its business.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::changes::{Change, Changes};
use crate::error::StoreError;
use crate::{Record, Store};

/// What a commit shall meet instead of success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// [`StoreError::Refused`]: nothing is changed, and the store goes on.
    Refuse(String),
    /// [`StoreError::Full`]: nothing is changed, and the store closes itself.
    Full,
    /// [`StoreError::Failed`]: the changes were written, their sync did not end; the store closes itself.
    /// What is found at the next opening is decided by [`ForgetfulDisk::crash`] or
    /// [`ForgetfulDisk::crash_keeping`].
    Sync(String),
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// What survives a crash.
    synced: Records,
    /// What a reader sees.
    seen: Records,
    /// Commits, and what was prepared for one, that were written and not synced, oldest first.
    unsynced: Vec<Vec<Change>>,
    failures: VecDeque<Failure>,
    /// Says that it synced, and did not: sled's own fault, kept here for checkers to find.
    pretends: bool,
    /// Which opening the disk listens to; an older store is closed.
    incarnation: u64,
    open: bool,
    syncs: u64,
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

impl ForgetfulDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the store, and syncs what is found; [`StoreError::InUse`] while an earlier opening lives and was not crashed.
    pub fn open(&self) -> Result<ForgetfulStore, StoreError> {
        let mut state = self.state();
        if state.open {
            return Err(StoreError::InUse {
                dir: PathBuf::from("memory"),
            });
        }
        state.open = true;
        state.incarnation += 1;
        if !state.unsynced.is_empty() && !state.pretends {
            state.sync();
        }
        let incarnation = state.incarnation;
        Ok(ForgetfulStore {
            disk: self.clone(),
            incarnation,
            closed: false,
        })
    }

    /// The next commit that would succeed meets this failure. Several are met one after the other.
    pub fn fail_next(&self, failure: Failure) {
        self.state().failures.push_back(failure);
    }

    /// From now on a commit says that it is synced and is not, or the truth again.
    pub fn pretend_to_sync(&self, pretends: bool) {
        self.state().pretends = pretends;
    }

    /// The process ends and the machine loses power: its store is closed, and what was not synced is gone.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// The same, but the oldest `commits` of those that were not synced had reached the disk by chance.
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

    /// How many commits were written and not synced, each prepared record counted as one?
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// How often was the disk really synced?
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// A test that failed while it held the state has not spoiled it for the others.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process' opened store on a [`ForgetfulDisk`].
#[derive(Debug)]
pub struct ForgetfulStore {
    disk: ForgetfulDisk,
    incarnation: u64,
    closed: bool,
}

impl ForgetfulStore {
    /// A store on a new disk of its own.
    pub fn new() -> Self {
        let disk = ForgetfulDisk::new();
        disk.state().open = true;
        ForgetfulStore {
            disk,
            incarnation: 0,
            closed: false,
        }
    }

    /// The disk under it.
    pub fn disk(&self) -> &ForgetfulDisk {
        &self.disk
    }

    /// The machine loses power now, and this gives the store as it is found after the restart.
    pub fn crash(self) -> Result<ForgetfulStore, StoreError> {
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

impl Default for ForgetfulStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for ForgetfulStore {
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

impl Drop for ForgetfulStore {
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
        if !self.pretends {
            self.sync();
        }
        Ok(())
    }

    /// One sync covers all that was written before it.
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
        let mut store = ForgetfulStore::new();
        store.commit(put("term", "7")).unwrap();
        let store = store.crash().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn a_refused_commit_changes_nothing_and_the_next_one_succeeds() {
        let mut store = ForgetfulStore::new();
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
    fn a_full_disk_closes_the_store_and_leaves_it_as_it_was() {
        let disk = ForgetfulDisk::new();
        let mut store = disk.open().unwrap();
        store.commit(put("term", "7")).unwrap();
        disk.fail_next(Failure::Full);
        assert_eq!(store.commit(put("term", "8")), Err(StoreError::Full));
        assert_eq!(store.commit(put("term", "9")), Err(StoreError::Closed));
        drop(store);
        assert_eq!(disk.open().unwrap().get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn a_sync_that_failed_leaves_the_commit_in_doubt_and_whole() {
        for (kept, expected) in [(0, None), (1, Some(b"7".to_vec()))] {
            let disk = ForgetfulDisk::new();
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
    fn what_an_opening_finds_is_kept() {
        let disk = ForgetfulDisk::new();
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
    fn a_disk_that_only_pretends_to_sync_forgets_what_it_acknowledged() {
        let mut store = ForgetfulStore::new();
        store.commit(put("term", "7")).unwrap();
        store.disk().pretend_to_sync(true);
        store.commit(put("term", "8")).unwrap();
        assert_eq!((store.disk().unsynced(), store.disk().syncs()), (1, 1));
        let store = store.crash().unwrap();
        assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
    }

    #[test]
    fn what_was_prepared_is_lost_in_a_crash_until_a_commit_returns() {
        let mut store = ForgetfulStore::new();
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
    fn a_disk_is_open_once_and_a_crash_frees_it() {
        let disk = ForgetfulDisk::new();
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
