//! A log in memory for tests, whose crash loses unsynced data.
//!
//! A [`ForgetfulLogDisk`] outlives the processes that use it; a [`ForgetfulLog`] is one process'
//! open log on it. The test holds the disk, injects failures, crashes it, and opens it again. Obeys
//! every rule of the real log, without chunks, keys or encodings. Never delays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::simulated::Failure;

use super::rules::{self, LogBounds, refused};
use crate::log::{Entry, HardState, Identity, Loaded, LogError, LogStore, Snapshot, Write};

/// A disk in memory with one log. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulLogDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The content that survives a crash.
    synced: Log,
    /// The content that a reader sees.
    seen: Log,
    /// The unsynced changes, oldest first.
    unsynced: Vec<Change>,
    failures: VecDeque<Failure>,
    /// Whether it acknowledges syncs without syncing.
    pretends: bool,
    /// The valid opening; a log of an older one is closed.
    incarnation: u64,
    open: bool,
    syncs: u64,
}

/// The change of one call.
#[derive(Clone, Debug)]
enum Change {
    Claim(Identity),
    Write(Write, HardState),
    Compact(Snapshot, u64, HardState),
}

#[derive(Clone, Debug, Default)]
struct Log {
    identity: Option<Identity>,
    hard: HardState,
    snapshot: Snapshot,
    /// Without gaps.
    entries: VecDeque<Entry>,
}

impl ForgetfulLogDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the log and syncs it. An error while an earlier opening exists that did not crash.
    pub fn open(&self) -> Result<ForgetfulLog, LogError> {
        let mut state = self.state();
        if state.open {
            return Err(refused("it is in use by another process".to_owned()));
        }
        state.open = true;
        state.incarnation += 1;
        if !state.unsynced.is_empty() && !state.pretends {
            state.sync();
        }
        Ok(ForgetfulLog {
            disk: self.clone(),
            incarnation: state.incarnation,
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

    /// Makes the next write fail in this way. Several failures are used in order.
    pub fn fail_next(&self, failure: Failure) {
        self.state().failures.push_back(failure);
    }

    /// Sets whether writes acknowledge syncs without syncing.
    pub fn fake_syncs(&self, pretends: bool) {
        self.state().pretends = pretends;
    }

    /// A power failure: the log is closed, and unsynced data is lost.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// As [`crash`](Self::crash), but the oldest `writes` unsynced ones had reached the disk by
    /// chance.
    pub fn crash_keeping(&self, writes: usize) {
        let mut state = self.state();
        state.open = false;
        state.incarnation += 1;
        let unsynced = std::mem::take(&mut state.unsynced);
        for change in unsynced.into_iter().take(writes) {
            state.synced.apply(change);
        }
        state.seen = state.synced.clone();
    }

    /// The number of unsynced writes.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// The number of real syncs.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// A test that panicked while it held the lock does not break the others.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process' open log on a [`ForgetfulLogDisk`].
#[derive(Debug)]
pub struct ForgetfulLog {
    disk: ForgetfulLogDisk,
    incarnation: u64,
    closed: bool,
}

impl ForgetfulLog {
    fn open(&self) -> Result<MutexGuard<'_, State>, LogError> {
        let state = self.disk.state();
        if self.closed || state.incarnation != self.incarnation {
            return Err(refused("the log was closed by an earlier error".to_owned()));
        }
        Ok(state)
    }

    fn change(&mut self, change: Change) -> Result<(), LogError> {
        let (result, closes) = self.open()?.change(change);
        self.closed = closes;
        result
    }
}

impl LogStore for ForgetfulLog {
    fn load(&mut self) -> Result<Loaded, LogError> {
        let state = self.open()?;
        let seen = &state.seen;
        Ok(Loaded {
            identity: seen.identity,
            hard: seen.hard,
            snapshot: seen.snapshot.clone(),
            entries: seen.entries.iter().cloned().collect(),
        })
    }

    fn claim(&mut self, identity: Identity) -> Result<(), LogError> {
        match self.open()?.seen.identity {
            Some(found) if found == identity => return Ok(()),
            Some(found) => return Err(LogError::NotOwner { found }),
            None if identity.id == 0 => {
                return Err(refused(
                    "a member's raft id is at least 1, and 0 was given".to_owned(),
                ));
            }
            None => {}
        }
        self.change(Change::Claim(identity))
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        let bounds = self.open()?.seen.bounds();
        let next = rules::after(bounds, write)?;
        if write.snapshot.is_none() && write.entries.is_empty() && next == bounds {
            return Ok(());
        }
        self.change(Change::Write(write.clone(), next.hard))
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        let next = rules::compacted(self.open()?.seen.bounds(), snapshot)?;
        let keep_from = keep_from.min(snapshot.index.saturating_add(1));
        self.change(Change::Compact(snapshot.clone(), keep_from, next.hard))
    }

    fn disk_bytes(&self) -> u64 {
        let state = self.disk.state();
        let entry = |entry: &Entry| (entry.data.len() + entry.context.len()) as u64;
        let entries: u64 = state.seen.entries.iter().map(entry).sum();
        entries + state.seen.snapshot.data.len() as u64
    }
}

impl Drop for ForgetfulLog {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.incarnation == self.incarnation {
            state.open = false;
        }
    }
}

impl State {
    /// Applies this change or fails. Returns whether the log is now closed.
    fn change(&mut self, change: Change) -> (Result<(), LogError>, bool) {
        match self.failures.pop_front() {
            Some(Failure::Refuse(reason)) => return (Err(refused(reason)), false),
            Some(Failure::Full) => return (Err(refused("the disk is full".to_owned())), true),
            Some(Failure::Sync(reason)) => {
                self.seen.apply(change.clone());
                self.unsynced.push(change);
                return (Err(refused(reason)), true);
            }
            None => {}
        }
        self.seen.apply(change.clone());
        self.unsynced.push(change);
        if !self.pretends {
            self.sync();
        }
        (Ok(()), false)
    }

    /// Syncs all changes.
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            self.synced.apply(change);
        }
        self.syncs += 1;
    }
}

impl Log {
    fn bounds(&self) -> LogBounds {
        let last = self
            .entries
            .back()
            .map_or(self.snapshot.index, |entry| entry.index);
        LogBounds {
            snapshot: self.snapshot.index,
            last,
            hard: self.hard,
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Claim(identity) => self.identity = Some(identity),
            Change::Write(write, hard) => {
                if let Some(snapshot) = write.snapshot {
                    self.entries.clear();
                    self.snapshot = snapshot;
                }
                if let Some(first) = write.entries.first().map(|entry| entry.index) {
                    while self.entries.back().is_some_and(|last| last.index >= first) {
                        self.entries.pop_back();
                    }
                }
                self.entries.extend(write.entries);
                self.hard = hard;
            }
            Change::Compact(snapshot, keep_from, hard) => {
                if snapshot.index != self.snapshot.index {
                    self.snapshot = snapshot;
                }
                while self
                    .entries
                    .front()
                    .is_some_and(|first| first.index < keep_from)
                {
                    self.entries.pop_front();
                }
                self.hard = hard;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::EntryKind;

    fn append(index: u64, term: u64) -> Write {
        let entry = Entry {
            term,
            index,
            kind: EntryKind::Operation,
            data: vec![term as u8],
            context: Vec::new(),
        };
        Write {
            entries: vec![entry],
            ..Write::default()
        }
    }

    fn found(disk: &ForgetfulLogDisk) -> Vec<(u64, u64)> {
        let loaded = disk.open().unwrap().load().unwrap();
        let seen = loaded.entries.iter();
        seen.map(|entry| (entry.index, entry.term)).collect()
    }

    #[test]
    fn a_crash_keeps_what_was_written() {
        let disk = ForgetfulLogDisk::new();
        let mut log = disk.open().unwrap();
        log.write(&append(1, 1)).unwrap();
        log.write(&append(2, 1)).unwrap();
        log.write(&append(1, 2)).unwrap();
        disk.crash();
        assert!(log.load().is_err(), "the process is gone");
        assert_eq!(found(&disk), [(1, 2)]);
    }

    #[test]
    fn failed_sync_closes_the_log() {
        for (kept, expected) in [(0, vec![(1, 1)]), (1, vec![(1, 1), (2, 1)])] {
            let disk = ForgetfulLogDisk::new();
            let mut log = disk.open().unwrap();
            log.write(&append(1, 1)).unwrap();
            disk.fail_next(Failure::Sync("input/output error".into()));
            assert!(log.write(&append(2, 1)).is_err());
            assert!(log.write(&append(2, 1)).is_err(), "it is closed");
            disk.crash_keeping(kept);
            assert_eq!(found(&disk), expected);
        }
    }

    #[test]
    fn pretended_syncs_lose_data() {
        let disk = ForgetfulLogDisk::new();
        let mut log = disk.open().unwrap();
        log.write(&append(1, 1)).unwrap();
        disk.fake_syncs(true);
        log.write(&append(2, 1)).unwrap();
        assert_eq!((disk.unsynced(), disk.syncs()), (1, 1));
        disk.crash();
        assert_eq!(found(&disk), [(1, 1)]);
    }

    #[test]
    fn a_full_disk_changes_nothing() {
        let disk = ForgetfulLogDisk::new();
        let mut log = disk.open().unwrap();
        log.write(&append(1, 1)).unwrap();
        disk.fail_next(Failure::Full);
        let error = log.write(&append(2, 1)).unwrap_err().to_string();
        assert_eq!(error, "the log cannot be written: the disk is full");
        drop(log);
        assert_eq!(found(&disk), [(1, 1)]);
    }
}
