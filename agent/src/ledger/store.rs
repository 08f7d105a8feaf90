//! The checkpoint store: persists the records of [`super::record`] in the work directory.
//!
//! Blocking. The store is created at the first write, which is the agent's id at its first
//! registration. A record that exceeds the size of one value is split; pieces of different records
//! are never mixed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use storage::sled_store::SledStore;
use storage::{COMMIT_BYTES_MAX, Changes, Store, StoreError, VALUE_BYTES_MAX};

use super::record::{Entry, StoredRecords, piece};
use crate::operations::checkpoint::OpenStore;

/// Maximum bytes of one commit; the store adds overhead.
const COMMIT_MAX: usize = COMMIT_BYTES_MAX / 2;

/// The checkpoint store.
pub struct CheckpointStore {
    location: Location,
    store: Option<Box<dyn Store>>,
    /// Number of pieces of each record that has more than one; `None` until the store was scanned
    /// since it was opened.
    pieces: Option<BTreeMap<String, usize>>,
}

/// The location of the store.
enum Location {
    /// In this work directory.
    Disk(PathBuf),
    /// On a simulated disk.
    Simulated(OpenStore),
}

/// The name of the record that a piece belongs to.
fn name_of(key: &str) -> &str {
    key.rsplit_once('#').map_or(key, |(name, _)| name)
}

/// Counts the pieces of records that have more than one.
fn count(records: &[storage::Record]) -> BTreeMap<String, usize> {
    let mut pieces: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        let key = String::from_utf8_lossy(&record.key);
        *pieces.entry(name_of(&key).to_owned()).or_default() += 1;
    }
    pieces.retain(|_, count| *count > 1);
    pieces
}

/// The store's directory.
pub fn directory(work_dir: &Path) -> PathBuf {
    work_dir.join("meta").join("executors")
}

/// Mode of the directory: it contains executor tokens and perhaps secrets of tasks.
const PRIVATE: u32 = 0o700;

/// Restricts access to the checkpoints in this work directory, including older and set-aside ones.
pub fn restrict_access(work_dir: &Path) -> io::Result<()> {
    let meta = work_dir.join("meta");
    if !meta.exists() {
        return Ok(());
    }
    let close = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(PRIVATE));
    close(&meta)?;
    for entry in std::fs::read_dir(&meta)? {
        let entry = entry?;
        let is_checkpoint = entry.file_name().to_string_lossy().starts_with("executors");
        if is_checkpoint && entry.file_type()?.is_dir() {
            close(&entry.path())?;
        }
    }
    Ok(())
}

/// Opens the store, creating it if missing.
fn open(work_dir: &Path) -> Result<SledStore, StoreError> {
    let directory = directory(work_dir);
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(PRIVATE).create(&directory);
    let closed = made.and_then(|()| restrict_access(work_dir));
    closed.map_err(|error| StoreError::Unusable {
        dir: directory.clone(),
        reason: error.to_string(),
    })?;
    SledStore::open(directory)
}

impl CheckpointStore {
    /// A store in this work directory.
    pub fn on_disk(work_dir: &Path) -> Self {
        Self {
            location: Location::Disk(work_dir.to_owned()),
            store: None,
            pieces: None,
        }
    }

    /// A store on a simulated disk.
    pub fn simulated(open: OpenStore) -> Self {
        Self {
            location: Location::Simulated(open),
            store: None,
            pieces: None,
        }
    }

    fn store(&mut self) -> Result<&mut Box<dyn Store>, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => match &self.location {
                Location::Disk(work_dir) => Box::new(open(work_dir)?),
                Location::Simulated(open) => open()?,
            },
        };
        Ok(self.store.insert(store))
    }

    /// Whether there is no store yet.
    fn is_absent(&self) -> bool {
        match &self.location {
            Location::Disk(work_dir) => self.store.is_none() && !directory(work_dir).exists(),
            Location::Simulated(_) => false,
        }
    }

    /// Reads all records. Empty if there is no store.
    pub fn read(&mut self) -> Result<StoredRecords, StoreError> {
        if self.is_absent() {
            return Ok(StoredRecords::default());
        }
        let records = self.store()?.scan(&[])?;
        self.pieces = Some(count(&records));
        let pairs = records.into_iter().map(|record| (record.key, record.value));
        Ok(StoredRecords::read(pairs))
    }

    /// The piece counts, scanned if unknown.
    fn counted(&mut self) -> Result<&mut BTreeMap<String, usize>, StoreError> {
        let counted = match self.pieces.take() {
            Some(counted) => counted,
            None => count(&self.store()?.scan(&[])?),
        };
        Ok(self.pieces.insert(counted))
    }

    /// Writes the entries in order; durable on return. Large batches are split into commits; each
    /// entry is atomic.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let written = self.try_write(entries);
        self.closed_by(written)
    }

    /// Closes the store after an error. The next open shows which part of the failed commit is on
    /// disk.
    fn closed_by<T>(&mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if outcome.is_err() {
            (self.store, self.pieces) = (None, None);
        }
        outcome
    }

    fn try_write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let (mut changes, mut bytes) = (Changes::new(), 0);
        for entry in entries {
            let (key, value): (_, &[u8]) = match entry {
                Entry::Put(key, value) => (key, value),
                Entry::Remove(key) => (key, &[]),
            };
            if bytes > 0 && bytes + value.len() > COMMIT_MAX {
                self.store()?.commit(std::mem::take(&mut changes))?;
                bytes = 0;
            }
            let name = key.text();
            let before = self.counted()?.remove(&name).unwrap_or(1);
            let mut count = 0;
            if matches!(entry, Entry::Put(..)) {
                for part in value.chunks(VALUE_BYTES_MAX) {
                    changes.put(piece(&name, count), part);
                    count += 1;
                }
            }
            for number in count..before {
                changes.remove(piece(&name, number));
            }
            if count > 1 {
                self.counted()?.insert(name, count);
            }
            bytes += value.len() + 512;
        }
        match changes.is_empty() {
            true => Ok(()),
            false => self.store()?.commit(changes),
        }
    }

    /// Removes the records of these names, which need not be valid keys.
    pub fn discard(&mut self, names: &BTreeSet<String>) -> Result<(), StoreError> {
        match names.is_empty() {
            true => Ok(()),
            false => {
                let removed = self.remove_where(|name| names.contains(name));
                self.closed_by(removed)
            }
        }
    }

    /// Removes all records.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        let removed = self.remove_where(|_| true);
        self.closed_by(removed)
    }

    fn remove_where(&mut self, wanted: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        if self.is_absent() {
            return Ok(());
        }
        self.counted()?.retain(|name, _| !wanted(name));
        let mut records = self.store()?.scan(&[])?;
        records.retain(|record| {
            let key = String::from_utf8_lossy(&record.key);
            wanted(name_of(&key))
        });
        for some in records.chunks(1024) {
            let mut changes = Changes::new();
            for record in some {
                changes.remove(record.key.clone());
            }
            self.store()?.commit(changes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::record::Key;
    use super::super::record::tests::{agent, container, id, task};
    use super::*;
    use protocol::TaskInfo;
    use std::sync::Arc;
    use testkit::disk::SimulatedDisk;

    /// A store on a full disk: commits fail.
    struct FullDisk(Box<dyn Store>);

    impl Store for FullDisk {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.0.get(key)
        }

        fn page(
            &self,
            prefix: &[u8],
            after: Option<&[u8]>,
            limit: usize,
        ) -> Result<Vec<storage::Record>, StoreError> {
            self.0.page(prefix, after, limit)
        }

        fn commit(&mut self, _: Changes) -> Result<(), StoreError> {
            let (dir, reason) = (PathBuf::from("/w"), "no space is left".to_owned());
            Err(StoreError::Unusable { dir, reason })
        }
    }

    impl CheckpointStore {
        /// A store in memory.
        pub(crate) fn in_memory() -> Self {
            let disk = SimulatedDisk::new();
            Self::simulated(Arc::new(move || Ok(Box::new(disk.open()?))))
        }

        /// Makes the next write fail.
        pub(crate) fn failing_once(mut self) -> Self {
            self.store().unwrap();
            let store = self.store.take().unwrap();
            self.store = Some(Box::new(FullDisk(store)));
            self
        }
    }

    fn large() -> TaskInfo {
        TaskInfo {
            data: vec![5; 3 * VALUE_BYTES_MAX],
            ..task("large")
        }
    }

    #[test]
    fn next_process_finds_exactly_the_stored_records() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut checkpoints = CheckpointStore::on_disk(work_dir.path());
        assert_eq!(checkpoints.read().unwrap(), StoredRecords::default());
        assert!(!work_dir.path().join("meta").exists(), "nothing to keep");
        let entries = [
            Entry::agent(&agent("boot")).unwrap(),
            Entry::container(&id("c"), &container()).unwrap(),
            Entry::task(&id("c"), &large()).unwrap(),
            Entry::task(&id("c"), &task("small")).unwrap(),
        ];
        checkpoints.write(&entries).unwrap();
        drop(checkpoints);
        let mut next = CheckpointStore::on_disk(work_dir.path());
        let found = next.read().unwrap();
        let tasks = &found.containers[&id("c")].tasks;
        assert_eq!(tasks[0].0, large());
        assert_eq!((tasks.len(), found.unreadable.len()), (2, 0));
        // A record that shrinks or is removed leaves no pieces behind.
        let smaller = TaskInfo {
            data: Vec::new(),
            ..large()
        };
        let small = Key::Task(id("c"), task("small").task_id);
        let entries = [
            Entry::task(&id("c"), &smaller).unwrap(),
            Entry::Remove(small),
        ];
        next.write(&entries).unwrap();
        drop(next);
        let mut last = CheckpointStore::on_disk(work_dir.path());
        let found = last.read().unwrap();
        let tasks = &found.containers[&id("c")].tasks;
        assert_eq!((tasks.len(), &tasks[0].0), (1, &smaller));
        last.clear().unwrap();
        assert_eq!(last.read().unwrap(), StoredRecords::default());
    }

    #[test]
    fn failed_write_leaves_no_orphaned_piece() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut checkpoints = CheckpointStore::on_disk(work_dir.path());
        let write = |checkpoints: &mut CheckpointStore, task: &TaskInfo| {
            checkpoints.write(&[
                Entry::container(&id("c"), &container()).unwrap(),
                Entry::task(&id("c"), task).unwrap(),
            ])
        };
        let smaller = TaskInfo {
            data: vec![5; 10],
            ..large()
        };
        write(&mut checkpoints, &large()).unwrap();
        let mut checkpoints = checkpoints.failing_once();
        assert!(write(&mut checkpoints, &smaller).is_err());
        write(&mut checkpoints, &smaller).unwrap();
        let found = checkpoints.read().unwrap();
        assert_eq!(found.containers[&id("c")].tasks[0].0, smaller);
        assert_eq!(found.unreadable, []);
        // A record that failed to grow keeps its old piece count.
        let mut checkpoints = checkpoints.failing_once();
        assert!(write(&mut checkpoints, &large()).is_err());
        let key = Key::Task(id("c"), large().task_id);
        checkpoints.write(&[Entry::Remove(key)]).unwrap();
        assert!(
            checkpoints.read().unwrap().containers[&id("c")]
                .tasks
                .is_empty()
        );
        assert_eq!(checkpoints.counted().unwrap().len(), 0);
    }

    #[test]
    fn checkpoints_are_private_to_the_agents_user() {
        let dir = tempfile::tempdir().unwrap();
        let meta = dir.path().join("meta");
        let aside = meta.join("executors.aside.1");
        std::fs::create_dir_all(&aside).unwrap();
        let kept = directory(dir.path());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let open_up = |path: &Path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        open_up(&meta);
        open_up(&aside);
        let entries = [Entry::agent(&agent("boot")).unwrap()];
        CheckpointStore::on_disk(dir.path())
            .write(&entries)
            .unwrap();
        assert_eq!([&meta, &kept, &aside].map(|path| mode(path)), [PRIVATE; 3]);
        // An earlier version left it open.
        open_up(&kept);
        CheckpointStore::on_disk(dir.path()).read().unwrap();
        assert_eq!(mode(&kept), PRIVATE);
        open_up(&meta);
        crate::start::WorkDir::lock(dir.path()).unwrap();
        assert_eq!(mode(&meta), PRIVATE, "though nothing is opened");
    }

    #[test]
    fn large_batches_are_split_into_commits() {
        let mut checkpoints = CheckpointStore::in_memory();
        let one = |number: usize| TaskInfo {
            data: vec![number as u8; 1024 * 1024],
            ..task(&format!("t{number:02}"))
        };
        let entries: Vec<Entry> = (0..24)
            .map(|number| Entry::task(&id("c"), &one(number)).unwrap())
            .chain([Entry::container(&id("c"), &container()).unwrap()])
            .collect();
        checkpoints.write(&entries).unwrap();
        let found = checkpoints.read().unwrap();
        assert_eq!(found.containers[&id("c")].tasks.len(), 24);
        assert_eq!(found.containers[&id("c")].tasks[23].0, one(23));
    }
}
