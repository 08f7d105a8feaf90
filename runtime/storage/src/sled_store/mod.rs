//! The store of masters and agents: sled 0.34.7, with additions.
//!
//! In memory are only the number of the newest write and a sum over all records. The additions:
//!
//! - sled's `flush` writes but does not sync on Linux, so every commit ends in `fdatasync` on a
//!   second handle of its file `db`. Its background flusher is off, since it would only sync at
//!   random moments.
//! - Its blob files, for pages above a quarter of a segment, are never synced. A leaf holds up to
//!   17 records, so segments are 8 MiB: no page can become a blob.
//! - sled reuses a segment once the replacement of its content is written, synced or not; between
//!   the two lies at least one whole segment of writing. So the store syncs before a segment's
//!   worth can have been written since the last sync, in the middle of a long commit as well: the
//!   only synced copy of a record is never overwritten.
//! - Commits of several changes go through the journal, never through a `Batch`.
//! - A panic inside sled on damaged files becomes an error. The marker detects damage that sled
//!   misses.
//!
//! A store closes itself after its disk has failed, because the disk's content is then unknown.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::changes::{Change, Changes, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::disk::{self, DirectoryLock, Disk, RealDisk};
use crate::error::StoreError;
use crate::mark::{SyncMarker, SyncedState};
use crate::{Record, Store, journal, record};

/// sled's page cache, in bytes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// sled's unit of allocation, in bytes. A store must be opened with the size that it was created
/// with.
const SEGMENT_BYTES: usize = 8 * 1024 * 1024;
/// A leaf is split at its next visit when it has more than 16 records.
const LEAF_RECORDS_MAX: usize = 17;
/// The record header and sled's overhead per record, rounded up.
const RECORD_OVERHEAD: usize = 64;
/// Pages that sled may rewrite for one record: its leaf, the other half of a split or merged one,
/// and another page moved out of a segment that it wants to free.
const PAGES_PER_RECORD: usize = 3;
/// Maximum bytes written since the last sync: less than a segment.
const UNSYNCED_BYTES_MAX: usize = SEGMENT_BYTES - SEGMENT_BYTES / 16;
// Pages from a quarter of a segment on would become blob files, which are never synced.
const _: () = assert!(
    LEAF_RECORDS_MAX * (KEY_BYTES_MAX + VALUE_BYTES_MAX + RECORD_OVERHEAD)
        < SEGMENT_BYTES / 4 - 1024
);

/// A store in a directory of its own.
pub struct SledStore {
    records: sled::Tree,
    journal: sled::Tree,
    /// Dropped after its trees, and before the file's second handle and the lock.
    db: sled::Db,
    file: File,
    disk: Box<dyn Disk>,
    dir: PathBuf,
    /// Bytes of the largest record with its key, and the maximum that sled may have written since
    /// the last sync.
    largest: usize,
    unsynced: usize,
    /// The newest write and the records after it. Each record is stamped with the number of its
    /// write: reapplying an old entry of the journal never undoes a newer write, and a lost write
    /// is detected.
    newest: SyncedState,
    /// The number of the newest journalled commit.
    journalled: u64,
    mark: SyncMarker,
    closed: Cell<bool>,
    _lock: DirectoryLock,
}

impl SledStore {
    /// Opens the store in this directory, or creates one. The directory belongs to the store alone.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(dir, Box::new(RealDisk))
    }

    /// As [`open`](Self::open), over another disk: for tests that count syncs or interrupt a
    /// commit.
    pub fn open_with(dir: impl AsRef<Path>, disk: Box<dyn Disk>) -> Result<Self, StoreError> {
        let dir = dir.as_ref();
        let lock = DirectoryLock::take(dir)?;
        disk::sweep(dir)?;
        disk::await_release(dir)?;
        let db = guarded(|| open_sled(dir)).map_err(|error| unreadable(dir, error))?;
        let file = File::open(dir.join("db")).map_err(|error| disk::unusable(dir, error))?;
        let tree = |name: &str| {
            guarded(|| Ok(db.open_tree(name)?)).map_err(|error| unreadable(dir, error))
        };
        let (records, journal) = (tree("records")?, tree("journal")?);
        let mark = SyncMarker::open(dir).map_err(|error| disk::unusable(dir, error))?;
        let mut store = SledStore {
            records,
            journal,
            db,
            file,
            disk,
            dir: dir.to_owned(),
            largest: 0,
            unsynced: 0,
            newest: SyncedState::default(),
            journalled: 0,
            mark,
            closed: Cell::new(false),
            _lock: lock,
        };
        let damaged = guarded(|| store.read_all()).map_err(|error| unreadable(dir, error))?;
        let synced = store.mark.read().unwrap_or_default();
        let outstanding = guarded(|| store.outstanding())?;
        // Nothing is written to a store that is refused.
        let recovered = guarded(|| store.state_after(&outstanding))?;
        store.check(synced, recovered, damaged)?;
        guarded(|| store.recover(&outstanding))?;
        disk::sync_names(dir).map_err(|error| disk::unusable(dir, error))?;
        store.mark.set(store.newest)?;
        store.mark.sync()?;
        Ok(store)
    }

    /// Reads all records and the journal: finds the largest record, the newest write and the sum.
    /// Returns the error of the first damaged record.
    fn read_all(&mut self) -> Result<Option<StoreError>, StoreError> {
        let mut damaged = None;
        let mut number = 0;
        for (tree, counts) in [(&self.records, true), (&self.journal, false)] {
            for item in tree.iter() {
                let (key, bytes) = item?;
                self.largest = self.largest.max(key.len() + bytes.len());
                match record::open(&key, &bytes) {
                    Ok(opened) => number = number.max(opened.epoch),
                    Err(error) => damaged = damaged.or(Some(error)),
                }
                if counts {
                    self.newest.add(&bytes);
                }
            }
        }
        self.newest.number = number;
        Ok(damaged)
    }

    /// An error if synced records are missing. A known damaged record is named in it.
    fn check(
        &self,
        synced: SyncedState,
        found: SyncedState,
        damaged: Option<StoreError>,
    ) -> Result<(), StoreError> {
        let Some(reason) = synced.missing(&found) else {
            return Ok(());
        };
        let lost = || StoreError::Lost {
            dir: self.dir.clone(),
            reason,
        };
        Err(damaged.unwrap_or_else(lost))
    }

    /// Makes room for a record of this size, including the key, within the bound of unsynced bytes.
    fn reserve(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.largest = self.largest.max(bytes);
        let page = LEAF_RECORDS_MAX * (self.largest + RECORD_OVERHEAD);
        if self.unsynced > 0 && self.unsynced + PAGES_PER_RECORD * page > UNSYNCED_BYTES_MAX {
            self.sync()?;
        }
        self.unsynced += PAGES_PER_RECORD * page;
        Ok(())
    }

    /// The journalled changes that are not applied, with the numbers of their commits: for each key
    /// the newest.
    fn outstanding(&mut self) -> Result<Vec<(u64, Change)>, StoreError> {
        let mut entries = Vec::new();
        for slot in journal::SLOTS {
            let get = |key: &[u8]| Ok(self.journal.get(key)?.map(|bytes| bytes.to_vec()));
            entries.extend(journal::read(slot, get)?);
        }
        entries.sort_by_key(|entry| entry.number);
        let mut newest = BTreeMap::new();
        for entry in entries {
            self.journalled = entry.number;
            for change in entry.changes {
                newest.insert(change.key().to_vec(), (entry.number, change));
            }
        }
        let mut outstanding = Vec::new();
        for (key, (number, change)) in newest {
            let written = match self.records.get(&key)? {
                Some(bytes) => Some(record::open(&key, &bytes)?.epoch),
                None => None,
            };
            if journal::outstanding(number, &change, written) {
                outstanding.push((number, change));
            }
        }
        Ok(outstanding)
    }

    /// The state of the store after these changes.
    fn state_after(&self, outstanding: &[(u64, Change)]) -> Result<SyncedState, StoreError> {
        let mut after = self.newest;
        for (number, change) in outstanding {
            if let Some(replaced) = self.records.get(change.key())? {
                after.subtract(&replaced);
            }
            if let Change::Put { key, value } = change {
                after.add(&record::seal(key, *number, value));
            }
        }
        Ok(after)
    }

    fn recover(&mut self, outstanding: &[(u64, Change)]) -> Result<(), StoreError> {
        for (number, change) in outstanding {
            self.apply(change, *number)?;
        }
        self.sync()
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        // One put is one insertion, which sled makes atomic. One removal is not as simple: the
        // journal may hold an older put of its key, which a later recovery would apply.
        if let [change @ Change::Put { .. }] = changes {
            self.newest.number += 1;
            self.apply(change, self.newest.number)?;
            return self.sync();
        }
        let number = journal::next_number(self.newest.number, self.journalled);
        let parts = journal::parts(number, changes);
        let count = parts.len();
        for (key, sealed) in parts {
            self.reserve(key.len() + sealed.len())?;
            self.journal.insert(key, sealed)?;
            self.disk.wrote()?;
        }
        self.sync()?;
        (self.newest.number, self.journalled) = (number, number);
        for change in changes {
            self.apply(change, number)?;
        }
        self.trim(journal::slot(number), count)
    }

    fn apply(&mut self, change: &Change, number: u64) -> Result<(), StoreError> {
        let replaced = match change {
            Change::Put { key, value } => {
                let sealed = record::seal(key, number, value);
                self.reserve(key.len() + sealed.len())?;
                self.newest.add(&sealed);
                self.records.insert(key, sealed)?
            }
            Change::Remove { key } => {
                self.reserve(key.len())?;
                self.records.remove(key)?
            }
        };
        if let Some(bytes) = replaced {
            self.newest.subtract(&bytes);
        }
        Ok(self.disk.wrote()?)
    }

    /// Deletes the remaining parts of a longer entry in this slot.
    fn trim(&mut self, slot: u8, count: usize) -> Result<(), StoreError> {
        let from = u16::try_from(count).unwrap_or(u16::MAX);
        let left = journal::part_key(slot, from)..=journal::part_key(slot, u16::MAX);
        let left: Vec<_> = self.journal.range(left).keys().collect::<Result<_, _>>()?;
        for key in left {
            self.reserve(key.len())?;
            self.journal.remove(key)?;
            self.disk.wrote()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.db.flush()?;
        self.disk.sync(&self.file)?;
        self.unsynced = 0;
        Ok(())
    }

    /// Runs `work` unless the store is closed, and closes it if sled panicked.
    fn reading<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.closed.get() {
            return Err(StoreError::Closed);
        }
        let result = guarded(work);
        if let Err(StoreError::Failed { .. } | StoreError::Full) = &result {
            self.closed.set(true);
        }
        result
    }
}

impl Store for SledStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.reading(|| match self.records.get(key)? {
            Some(bytes) => Ok(Some(record::open(key, &bytes)?.value.to_vec())),
            None => Ok(None),
        })
    }

    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.reading(|| {
            let from = after.map_or_else(|| prefix.to_vec(), |key| [key, &[0]].concat());
            let from = from.max(prefix.to_vec());
            let mut page = Vec::new();
            for item in self.records.range(from..).take(limit) {
                let (key, bytes) = item?;
                if !key.starts_with(prefix) {
                    break;
                }
                let value = record::open(&key, &bytes)?.value.to_vec();
                page.push(Record {
                    key: key.to_vec(),
                    value,
                });
            }
            Ok(page)
        })
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        if self.closed.get() {
            return Err(StoreError::Closed);
        }
        let changes = changes.settled()?;
        if changes.is_empty() {
            return Ok(());
        }
        let result = guarded(|| {
            self.write(&changes)?;
            Ok(self.mark.set(self.newest)?)
        });
        self.closed.set(result.is_err());
        result
    }

    fn prepare(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if self.closed.get() {
            return Err(StoreError::Closed);
        }
        let mut changes = Changes::new();
        changes.put(key, value);
        // sled recovers its writes in order, and stops at the first gap: a later commit is never
        // recovered without this record.
        let changes = changes.settled()?;
        let result = guarded(|| {
            changes.iter().try_for_each(|change| {
                self.newest.number += 1;
                self.apply(change, self.newest.number)
            })
        });
        self.closed.set(result.is_err());
        result
    }

    fn disk_bytes(&self) -> u64 {
        disk::bytes_allocated(&self.dir)
    }
}

fn open_sled(dir: &Path) -> Result<sled::Db, StoreError> {
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity(CACHE_BYTES)
        .segment_size(SEGMENT_BYTES)
        .flush_every_ms(None);
    match config.open() {
        Ok(db) => Ok(db),
        // This store holds its own lock already, so another program holds sled's.
        Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => {
            Err(StoreError::InUse {
                dir: dir.to_owned(),
            })
        }
        Err(sled::Error::Io(error)) if is_path_error(&error) => Err(disk::unusable(dir, error)),
        Err(error) => Err(error.into()),
    }
}

/// Whether the path or its permissions are wrong, not the content of the files.
fn is_path_error(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        PermissionDenied | NotFound | ReadOnlyFilesystem | IsADirectory | NotADirectory
    )
}

/// While opening, an error that is not about the path or the disk's space means unreadable files.
fn unreadable(dir: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Failed { reason } => StoreError::Unreadable {
            dir: dir.to_owned(),
            reason,
        },
        other => other,
    }
}

/// Runs `work`, and converts a panic in sled to an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    // Unwind safe: after an error the store is closed, and its state is never read again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(StoreError::Failed {
            reason: format!("sled panicked: {}", text.unwrap_or("unknown")),
        })
    })
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore")
            .field("newest", &self.newest)
            .field("closed", &self.closed.get())
            .finish()
    }
}

#[cfg(test)]
mod tests;
