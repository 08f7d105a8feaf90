//! Where the records of [`super::record`] are: a store of their own in the work directory.
//!
//! Blocking functions: call them beside the mailbox. The store is opened when there is something to keep, so that an agent whose frameworks
//! want nothing kept has none. What is too large for one value is cut into pieces; the pieces of one record are never mixed with another's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use storage::sled_store::SledStore;
use storage::{COMMIT_BYTES_MAX, Changes, Store, StoreError, VALUE_BYTES_MAX};

use super::record::{Entry, Found, piece};
use crate::operations::checkpoint::OpenStore;

/// The most that one commit is given, in bytes; the store adds to it.
const COMMIT_MAX: usize = COMMIT_BYTES_MAX / 2;

/// The book.
pub struct Book {
    place: Place,
    store: Option<Box<dyn Store>>,
    /// How many pieces a record has, where it has more than one; `None` until the store has been looked through since it was opened.
    pieces: Option<BTreeMap<String, usize>>,
}

/// Where it is.
enum Place {
    /// In this work directory.
    Disk(PathBuf),
    /// On a simulated disk.
    Rehearsed(OpenStore),
}

/// The name of the record that a piece with this key is of.
fn name_of(key: &str) -> &str {
    key.rsplit_once('#').map_or(key, |(name, _)| name)
}

/// How many pieces records have, where that is more than one.
fn count(records: &[storage::Record]) -> BTreeMap<String, usize> {
    let mut pieces: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        let key = String::from_utf8_lossy(&record.key);
        *pieces.entry(name_of(&key).to_owned()).or_default() += 1;
    }
    pieces.retain(|_, count| *count > 1);
    pieces
}

/// Where the book of this work directory is.
pub fn directory(work_dir: &Path) -> PathBuf {
    work_dir.join("meta").join("executors")
}

/// Rights of what holds the tokens of executors and whatever secrets tasks have: nobody but the agent's own user looks in.
const PRIVATE: u32 = 0o700;

/// Closes to others what is kept in this work directory, also what an earlier version has left open and what was set aside.
pub fn close_to_others(work_dir: &Path) -> io::Result<()> {
    let meta = work_dir.join("meta");
    if !meta.exists() {
        return Ok(());
    }
    let close = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(PRIVATE));
    close(&meta)?;
    for entry in std::fs::read_dir(&meta)? {
        let entry = entry?;
        let is_of_book = entry.file_name().to_string_lossy().starts_with("executors");
        if is_of_book && entry.file_type()?.is_dir() {
            close(&entry.path())?;
        }
    }
    Ok(())
}

/// Opens the store of this work directory, which is made if it is missing.
fn open(work_dir: &Path) -> Result<SledStore, StoreError> {
    let directory = directory(work_dir);
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(PRIVATE).create(&directory);
    let closed = made.and_then(|()| close_to_others(work_dir));
    closed.map_err(|error| StoreError::Unusable {
        dir: directory.clone(),
        reason: error.to_string(),
    })?;
    SledStore::open(directory)
}

impl Book {
    /// A book in this work directory.
    pub fn on_disk(work_dir: &Path) -> Self {
        Self {
            place: Place::Disk(work_dir.to_owned()),
            store: None,
            pieces: None,
        }
    }

    /// A book in a store that is opened by this.
    pub fn rehearsed(open: OpenStore) -> Self {
        Self {
            place: Place::Rehearsed(open),
            store: None,
            pieces: None,
        }
    }

    fn store(&mut self) -> Result<&mut Box<dyn Store>, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => match &self.place {
                Place::Disk(work_dir) => Box::new(open(work_dir)?),
                Place::Rehearsed(open) => open()?,
            },
        };
        Ok(self.store.insert(store))
    }

    /// Whether there is nothing to open.
    fn is_blank(&self) -> bool {
        match &self.place {
            Place::Disk(work_dir) => self.store.is_none() && !directory(work_dir).exists(),
            Place::Rehearsed(_) => false,
        }
    }

    /// All that is kept; nothing if nothing ever was.
    pub fn read(&mut self) -> Result<Found, StoreError> {
        if self.is_blank() {
            return Ok(Found::default());
        }
        let records = self.store()?.scan(&[])?;
        self.pieces = Some(count(&records));
        let pairs = records.into_iter().map(|record| (record.key, record.value));
        Ok(Found::read(pairs))
    }

    /// How many pieces records have.
    fn counted(&mut self) -> Result<&mut BTreeMap<String, usize>, StoreError> {
        let counted = match self.pieces.take() {
            Some(counted) => counted,
            None => count(&self.store()?.scan(&[])?),
        };
        Ok(self.pieces.insert(counted))
    }

    /// Does all this, in order. It is on the disk when this returns. What is large is not all or nothing; each entry is.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let written = self.try_write(entries);
        self.closed_by(written)
    }

    /// A store that failed is closed, and opened anew the next time: what of the failed commit is on the disk, it says then.
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

    /// Forgets the records of these names, which need not be keys.
    pub fn discard(&mut self, names: &BTreeSet<String>) -> Result<(), StoreError> {
        match names.is_empty() {
            true => Ok(()),
            false => {
                let removed = self.remove_where(|name| names.contains(name));
                self.closed_by(removed)
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        let removed = self.remove_where(|_| true);
        self.closed_by(removed)
    }

    fn remove_where(&mut self, wanted: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        if self.is_blank() {
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
    use storage::forgetful::ForgetfulDisk;

    /// A store whose disk is full: nothing of a commit comes there.
    struct Full(Box<dyn Store>);

    impl Store for Full {
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

    impl Book {
        /// A book in memory, which ends with its owner.
        pub(crate) fn in_memory() -> Self {
            let disk = ForgetfulDisk::new();
            Self::rehearsed(Arc::new(move || Ok(Box::new(disk.open()?))))
        }

        /// The same book, whose next write fails.
        pub(crate) fn failing_once(mut self) -> Self {
            self.store().unwrap();
            let store = self.store.take().unwrap();
            self.store = Some(Box::new(Full(store)));
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
    fn the_next_process_finds_what_was_kept_and_nothing_of_what_was_forgotten() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut book = Book::on_disk(work_dir.path());
        assert_eq!(book.read().unwrap(), Found::default());
        assert!(!work_dir.path().join("meta").exists(), "nothing to keep");
        let entries = [
            Entry::agent(&agent("boot")).unwrap(),
            Entry::container(&id("c"), &container()).unwrap(),
            Entry::task(&id("c"), &large()).unwrap(),
            Entry::task(&id("c"), &task("small")).unwrap(),
        ];
        book.write(&entries).unwrap();
        drop(book);
        let mut next = Book::on_disk(work_dir.path());
        let found = next.read().unwrap();
        let tasks = &found.containers[&id("c")].tasks;
        assert_eq!(tasks[0].0, large());
        assert_eq!((tasks.len(), found.unreadable.len()), (2, 0));
        // A record that has become smaller leaves no piece behind, nor does one that is removed.
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
        let mut last = Book::on_disk(work_dir.path());
        let found = last.read().unwrap();
        let tasks = &found.containers[&id("c")].tasks;
        assert_eq!((tasks.len(), &tasks[0].0), (1, &smaller));
        last.clear().unwrap();
        assert_eq!(last.read().unwrap(), Found::default());
    }

    #[test]
    fn a_write_that_failed_leaves_no_piece_that_nobody_removes() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut book = Book::on_disk(work_dir.path());
        let write = |book: &mut Book, task: &TaskInfo| {
            book.write(&[
                Entry::container(&id("c"), &container()).unwrap(),
                Entry::task(&id("c"), task).unwrap(),
            ])
        };
        let smaller = TaskInfo {
            data: vec![5; 10],
            ..large()
        };
        write(&mut book, &large()).unwrap();
        let mut book = book.failing_once();
        assert!(write(&mut book, &smaller).is_err());
        write(&mut book, &smaller).unwrap();
        let found = book.read().unwrap();
        assert_eq!(found.containers[&id("c")].tasks[0].0, smaller);
        assert_eq!(found.unreadable, []);
        // One that was to become larger is not taken for that.
        let mut book = book.failing_once();
        assert!(write(&mut book, &large()).is_err());
        let key = Key::Task(id("c"), large().task_id);
        book.write(&[Entry::Remove(key)]).unwrap();
        assert!(book.read().unwrap().containers[&id("c")].tasks.is_empty());
        assert_eq!(book.counted().unwrap().len(), 0);
    }

    #[test]
    fn nobody_else_reads_what_is_kept_be_it_set_aside() {
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
        Book::on_disk(dir.path()).write(&entries).unwrap();
        assert_eq!([&meta, &kept, &aside].map(|path| mode(path)), [PRIVATE; 3]);
        // An earlier version left it open.
        open_up(&kept);
        Book::on_disk(dir.path()).read().unwrap();
        assert_eq!(mode(&kept), PRIVATE);
        open_up(&meta);
        crate::start::WorkDir::lock(dir.path()).unwrap();
        assert_eq!(mode(&meta), PRIVATE, "though nothing is opened");
    }

    #[test]
    fn more_than_a_commit_takes_is_written_in_several() {
        let mut book = Book::in_memory();
        let one = |number: usize| TaskInfo {
            data: vec![number as u8; 1024 * 1024],
            ..task(&format!("t{number:02}"))
        };
        let entries: Vec<Entry> = (0..24)
            .map(|number| Entry::task(&id("c"), &one(number)).unwrap())
            .chain([Entry::container(&id("c"), &container()).unwrap()])
            .collect();
        book.write(&entries).unwrap();
        let found = book.read().unwrap();
        assert_eq!(found.containers[&id("c")].tasks.len(), 24);
        assert_eq!(found.containers[&id("c")].tasks[23].0, one(23));
    }
}
