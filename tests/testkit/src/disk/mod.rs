//! A disk in memory, whose crash loses unsynced writes.
//!
//! A [`SimulatedDisk`] outlives the processes that use it; a [`SimulatedStore`] is one process'
//! opened store on it, with exactly the guarantees of [`storage::Store`]. The test holds the disk,
//! injects failures, crashes it, and reopens it. It never delays.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::{Change, Changes, Record, Store, StoreError};

/// An injected failure of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// [`StoreError::Refused`]: nothing is changed, and the store stays open.
    Refuse(String),
    /// [`StoreError::Full`]: nothing is changed, and the store closes itself.
    Full,
    /// [`StoreError::Failed`]: the changes were written, their sync failed, and the store closes
    /// itself. A crash decides whether they survive.
    Sync(String),
}

/// A disk in memory with several stores. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    stores: BTreeMap<&'static str, Content>,
    failures: VecDeque<Failure>,
    /// The number of faults that make all writes fail.
    failing: u32,
    /// Index of the next kind of failure.
    turn: u32,
    /// Reports a sync without doing it: a known fault of sled, reproduced for the checkers.
    fakes_syncs: bool,
    crash_points: Vec<CrashPoint>,
    /// The copied records of each store.
    copied: BTreeMap<&'static str, Records>,
    syncs: u64,
    losses: u64,
}

/// The content of one store.
#[derive(Default)]
struct Content {
    /// Records that survive a crash.
    synced: Records,
    /// Records that a reader sees.
    seen: Records,
    /// Unsynced commits and prepared records, oldest first.
    unsynced: Vec<Vec<Change>>,
    /// The current opening; stores of earlier ones are closed.
    incarnation: u64,
    open: bool,
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

struct CrashPoint {
    /// Remaining commits.
    left: u32,
    /// Whether the last of them is still synced.
    synced: bool,
    reached: Box<dyn FnOnce() + Send>,
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the store, and syncs its content; [`StoreError::InUse`] while an earlier opening lives
    /// and has not crashed. A failing disk with unsynced writes cannot be opened.
    pub fn open(&self) -> Result<SimulatedStore, StoreError> {
        self.open_named("")
    }

    /// Opens the store of this name, beside the others of the disk.
    pub fn open_named(&self, name: &'static str) -> Result<SimulatedStore, StoreError> {
        let mut state = self.state();
        let (failing, fakes_syncs) = (state.failing > 0, state.fakes_syncs);
        let content = state.stores.entry(name).or_default();
        let unsynced = !content.unsynced.is_empty();
        if failing && unsynced {
            state.losses += 1;
            let reason = "the disk did not answer".to_owned();
            return Err(StoreError::Failed { reason });
        }
        if content.open {
            let dir = PathBuf::from("memory");
            return Err(StoreError::InUse { dir });
        }
        content.open = true;
        content.incarnation += 1;
        let incarnation = content.incarnation;
        if unsynced && !fakes_syncs {
            state.sync(name);
        }
        Ok(SimulatedStore {
            disk: self.clone(),
            name,
            incarnation,
            closed: false,
        })
    }

    /// Makes the next otherwise successful commit fail in this way. Several failures are used in
    /// order.
    pub fn fail_next(&self, failure: Failure) {
        self.state().failures.push_back(failure);
    }

    /// Makes all commits fail, by a refusal, a full disk and a failed sync in turn, until
    /// [`mend`](Self::mend) is called as often.
    pub fn fail(&self) {
        self.state().failing += 1;
    }

    /// Undoes one [`fail`](Self::fail).
    pub fn mend(&self) {
        self.state().failing -= 1;
    }

    /// Whether a write outside of the stores fails now, which counts as lost.
    pub fn fails_now(&self) -> bool {
        let mut state = self.state();
        let fails = state.failing > 0;
        state.losses += u64::from(fails);
        fails
    }

    /// Sets whether commits report a sync without doing it.
    pub fn fake_syncs(&self, fakes_syncs: bool) {
        self.state().fakes_syncs = fakes_syncs;
    }

    /// Calls `reached` at the `count`th commit from now on. All later ones stay unsynced until the
    /// crash, whatever the disk reports, and that one as well unless it is to be `synced`.
    pub fn set_crash_point(
        &self,
        count: u32,
        synced: bool,
        reached: impl FnOnce() + Send + 'static,
    ) {
        let point = CrashPoint {
            left: count.max(1),
            synced,
            reached: Box::new(reached),
        };
        self.state().crash_points.push(point);
    }

    /// Removes all crash points.
    pub fn clear_crash_points(&self) {
        self.state().crash_points.clear();
    }

    /// Copies the synced content, for [`put_back`](Self::put_back).
    pub fn copy(&self) {
        let mut state = self.state();
        let synced = |(name, content): (&&'static str, &Content)| (*name, content.synced.clone());
        state.copied = state.stores.iter().map(synced).collect();
    }

    /// Replaces the content by the copied one, as an operator does with a backup, and closes the
    /// stores. Returns whether anything had been written since.
    pub fn put_back(&self) -> bool {
        let mut state = self.state();
        let mut copied = std::mem::take(&mut state.copied);
        let mut changed = false;
        for (name, content) in &mut state.stores {
            let copied = copied.remove(name).unwrap_or_default();
            changed |= content.synced != copied;
            content.synced = copied;
            content.crash(0);
        }
        changed
    }

    /// Simulates a loss of power: closes the stores, and drops unsynced writes, failing syncs and
    /// crash points.
    pub fn crash(&self) {
        self.crash_with(|_| 0);
    }

    /// As [`crash`](Self::crash), but of each store's unsynced commits the oldest survive, in the
    /// number that `kept` returns for their count.
    pub fn crash_with(&self, mut kept: impl FnMut(usize) -> usize) {
        let mut state = self.state();
        let mut losses = 0;
        for content in state.stores.values_mut() {
            let unsynced = content.unsynced.len();
            let kept = kept(unsynced).min(unsynced);
            losses += (unsynced - kept) as u64;
            content.crash(kept);
        }
        state.losses += losses;
        state.fakes_syncs = false;
        state.crash_points.clear();
    }

    /// Another disk, with what would be left after a loss of power now.
    pub fn synced(&self) -> Self {
        let state = self.state();
        let synced = |(name, content): (&&'static str, &Content)| {
            let records = content.synced.clone();
            let content = Content {
                seen: records.clone(),
                synced: records,
                ..Content::default()
            };
            (*name, content)
        };
        let stores = state.stores.iter().map(synced).collect();
        let state = State {
            stores,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The number of unsynced commits, counting each prepared record as one.
    pub fn unsynced(&self) -> usize {
        let state = self.state();
        let unsynced = |content: &Content| content.unsynced.len();
        state.stores.values().map(unsynced).sum()
    }

    /// The number of actual syncs.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The number of writes that failed because of [`fail`](Self::fail), or were lost in a crash.
    pub fn losses(&self) -> u64 {
        self.state().losses
    }

    /// A test that failed while it held the lock has not made the state inconsistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SimulatedDisk")
    }
}

/// One process' opened store on a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedStore {
    disk: SimulatedDisk,
    name: &'static str,
    incarnation: u64,
    closed: bool,
}

impl SimulatedStore {
    /// The disk of the store.
    pub fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// Simulates a loss of power, and returns the reopened store.
    pub fn crash(self) -> Result<SimulatedStore, StoreError> {
        self.disk.crash();
        self.disk.open_named(self.name)
    }

    /// Uses the content, if this is the current opening.
    fn with<T>(&self, read: impl FnOnce(&mut Content) -> T) -> Result<T, StoreError> {
        let mut state = self.disk.state();
        match state.stores.get_mut(self.name) {
            Some(content) if !self.closed && content.incarnation == self.incarnation => {
                Ok(read(content))
            }
            _ => Err(StoreError::Closed),
        }
    }
}

/// A store on a new disk.
impl Default for SimulatedStore {
    fn default() -> Self {
        let disk = SimulatedDisk::new();
        disk.state().stores.entry("").or_default().open = true;
        SimulatedStore {
            disk,
            name: "",
            incarnation: 0,
            closed: false,
        }
    }
}

impl Store for SimulatedStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|content| content.seen.get(key).cloned())
    }

    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let from = after.map_or_else(|| prefix.to_vec(), |key| [key, &[0]].concat());
        let from = from.max(prefix.to_vec());
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| Record {
            key: key.clone(),
            value: value.clone(),
        };
        self.with(|content| {
            let found = content.seen.range(from..);
            let found = found.take_while(|(key, _)| key.starts_with(prefix));
            found.take(limit).map(record).collect()
        })
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        self.with(|_| ())?;
        let changes = changes.settled()?;
        if changes.is_empty() {
            return Ok(());
        }
        let (result, reached) = self.disk.state().write(self.name, changes);
        self.closed = matches!(result, Err(StoreError::Full | StoreError::Failed { .. }));
        reached.into_iter().for_each(|point| (point.reached)());
        result
    }

    fn prepare(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut changes = Changes::new();
        changes.put(key, value);
        let changes = changes.settled()?;
        self.with(|content| content.write(changes))
    }

    fn disk_bytes(&self) -> u64 {
        let bytes = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.len() + value.len()) as u64;
        self.with(|content| content.seen.iter().map(bytes).sum())
            .unwrap_or_default()
    }
}

impl Drop for SimulatedStore {
    fn drop(&mut self) {
        self.closed = false;
        let _ = self.with(|content| content.open = false); // A later opening is not closed.
    }
}

impl State {
    /// Commits, and returns the crash points at this commit.
    fn write(
        &mut self,
        name: &'static str,
        changes: Vec<Change>,
    ) -> (Result<(), StoreError>, Vec<CrashPoint>) {
        self.crash_points
            .iter_mut()
            .for_each(|point| point.left -= 1);
        let reached: Vec<_> = self
            .crash_points
            .extract_if(.., |point| point.left == 0)
            .collect();
        self.fakes_syncs |= reached.iter().any(|point| !point.synced);
        if self.failing > 0 {
            let failure = self.next_failure();
            self.failures.push_back(failure);
            self.losses += 1;
        }
        let result = self.write_or_fail(name, changes);
        self.fakes_syncs |= !reached.is_empty();
        (result, reached)
    }

    fn write_or_fail(
        &mut self,
        name: &'static str,
        changes: Vec<Change>,
    ) -> Result<(), StoreError> {
        let failure = self.failures.pop_front();
        match failure {
            Some(Failure::Refuse(reason)) => return Err(StoreError::Refused { reason }),
            Some(Failure::Full) => return Err(StoreError::Full),
            Some(Failure::Sync(_)) | None => {}
        }
        self.stores.entry(name).or_default().write(changes);
        match failure {
            Some(Failure::Sync(reason)) => return Err(StoreError::Failed { reason }),
            _ if self.fakes_syncs => {}
            _ => self.sync(name),
        }
        Ok(())
    }

    /// One sync covers all earlier writes of the store.
    fn sync(&mut self, name: &'static str) {
        let content = self.stores.entry(name).or_default();
        for changes in std::mem::take(&mut content.unsynced) {
            apply(&mut content.synced, &changes);
        }
        self.syncs += 1;
    }

    fn next_failure(&mut self) -> Failure {
        self.turn = self.turn.wrapping_add(1);
        match self.turn % 3 {
            1 => Failure::Refuse("the disk refuses".to_owned()),
            2 => Failure::Full,
            _ => Failure::Sync("the disk did not answer".to_owned()),
        }
    }
}

impl Content {
    fn write(&mut self, changes: Vec<Change>) {
        apply(&mut self.seen, &changes);
        self.unsynced.push(changes);
    }

    /// Closes it; only this many unsynced commits survive.
    fn crash(&mut self, kept: usize) {
        self.open = false;
        self.incarnation += 1;
        for changes in std::mem::take(&mut self.unsynced).iter().take(kept) {
            apply(&mut self.synced, changes);
        }
        self.seen = self.synced.clone();
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
mod tests;
