//! The guarantees of a store on sled, tested over crashes between any two of its writes.

mod damage;
mod power;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tempfile::TempDir;
use testkit::{assert_matches, assert_starts};

use super::*;
use crate::COMMIT_BYTES_MAX;

/// A disk that counts its syncs, fails after some writes, and copies the directory.
#[derive(Clone, Default)]
struct Watched {
    dir: PathBuf,
    syncs: Arc<AtomicU64>,
    /// `w` for each write, `s` for each sync.
    seen: Arc<Mutex<String>>,
    synced_inode: Arc<AtomicU64>,
    /// The remaining number of successful writes; `None`: unlimited.
    writes_left: Option<u64>,
    sync_error: Arc<Mutex<Option<io::ErrorKind>>>,
    copies: Option<Arc<Mutex<Vec<TempDir>>>>,
}

impl Watched {
    /// The state that another process would find if this one were killed now.
    fn copy(&self) {
        if let Some(copies) = &self.copies {
            copies.lock().unwrap().push(copy_of(&self.dir));
        }
    }
}

impl Disk for Watched {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        if let Some(kind) = *self.sync_error.lock().unwrap() {
            return Err(kind.into());
        }
        file.sync_data()?;
        self.synced_inode.store(file.metadata()?.ino(), SeqCst);
        self.syncs.fetch_add(1, SeqCst);
        self.seen.lock().unwrap().push('s');
        self.copy();
        Ok(())
    }

    fn wrote(&mut self) -> io::Result<()> {
        self.seen.lock().unwrap().push('w');
        self.copy();
        match &mut self.writes_left {
            Some(0) => Err(io::Error::other("the process was killed here")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_file() {
            true => drop(fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap()),
            false => fs::create_dir(copy.path().join(entry.file_name())).unwrap(),
        }
    }
    copy
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> Changes {
    let mut changes = Changes::new();
    changes.put(key, value);
    changes
}

/// A commit over several keys, of some length.
fn several(fill: u8, bytes: usize) -> Changes {
    let mut changes = Changes::new();
    changes
        .put("a", vec![fill; bytes])
        .put("b", vec![fill; bytes]);
    match fill % 3 {
        0 => changes.remove("c").remove("d"),
        1 => changes.put("c", vec![fill; bytes]).remove("d"),
        _ => changes
            .put("c", vec![fill; bytes])
            .put("d", vec![fill; bytes]),
    };
    changes
}

/// A sequence with each kind of commit: journalled ones, short and long, single puts and removals.
fn story() -> Vec<Changes> {
    let mut removal = Changes::new();
    removal.remove("a");
    let long = VALUE_BYTES_MAX;
    vec![
        several(1, 10),
        put("a", "alone"),
        several(2, long),
        removal.clone(),
        put("a", "again"),
        several(3, 10),
        several(4, long),
        put("d", "alone"),
        removal,
        several(5, 10),
    ]
}

/// The records after the first `commits` of the sequence.
fn told(commits: usize) -> Vec<Record> {
    let mut records = BTreeMap::new();
    for change in story().iter().take(commits).flat_map(Changes::list) {
        match change.clone() {
            Change::Put { key, value } => records.insert(key, value),
            Change::Remove { key } => records.remove(&key),
        };
    }
    let record = |(key, value)| Record { key, value };
    records.into_iter().map(record).collect()
}

#[test]
fn commits_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    for commits in 0..story().len() {
        let mut store = SledStore::open(dir.path()).unwrap();
        assert_eq!(store.scan(b"").unwrap(), told(commits));
        store.commit(story().swap_remove(commits)).unwrap();
        assert_eq!(store.scan(b"").unwrap(), told(commits + 1));
    }
}

#[test]
fn commit_syncs_the_log_before_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Watched::default();
    let mut store = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap();
    for changes in story() {
        let before = disk.syncs.load(SeqCst);
        store.commit(changes).unwrap();
        assert!(disk.syncs.load(SeqCst) > before);
    }
    let log = fs::metadata(dir.path().join("db")).unwrap();
    assert_eq!(disk.synced_inode.load(SeqCst), log.ino());
}

#[test]
fn journal_is_synced_before_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Watched::default();
    let mut store = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap();
    let mut commit = |changes, expected: &str| {
        disk.seen.lock().unwrap().clear();
        store.commit(changes).unwrap();
        assert_eq!(*disk.seen.lock().unwrap(), expected);
    };
    commit(put("a", "one put needs no journal"), "ws");
    commit(several(2, 10), "wswwww");
    // Large records are also synced one by one, except the last, which the next commit's sync
    // covers.
    commit(several(2, VALUE_BYTES_MAX), "wwswswswswswswsw");
}

#[test]
fn an_empty_commit_costs_no_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Watched::default();
    let mut store = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap();
    let before = disk.syncs.load(SeqCst);
    store.commit(Changes::new()).unwrap();
    assert_eq!(disk.syncs.load(SeqCst), before);
}

#[test]
fn commit_is_atomic_across_any_crash() {
    let mut crashes = 0;
    loop {
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched {
            writes_left: Some(crashes),
            ..Watched::default()
        };
        let mut store = SledStore::open_with(dir.path(), Box::new(disk)).unwrap();
        let made = story()
            .into_iter()
            .take_while(|changes| store.commit(changes.clone()).is_ok());
        let made = made.count();
        drop(store);
        let store = SledStore::open(dir.path()).unwrap();
        let found = store.scan(b"").unwrap();
        assert!(
            found == told(made) || found == told(made + 1),
            "after {crashes} writes and {made} commits"
        );
        if made == story().len() {
            break;
        }
        crashes += 1;
    }
    assert!(
        crashes > 40,
        "the story has only {crashes} places to crash at"
    );
}

#[test]
fn killed_process_loses_no_acknowledged_commit() {
    let dir = tempfile::tempdir().unwrap();
    let copies = Arc::<Mutex<Vec<TempDir>>>::default();
    let (dir_path, kept) = (dir.path().to_owned(), Some(copies.clone()));
    let disk = Watched {
        dir: dir_path,
        copies: kept,
        ..Watched::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(disk)).unwrap();
    copies.lock().unwrap().clear();
    for (made, changes) in story().into_iter().enumerate() {
        store.commit(changes).unwrap();
        copies.lock().unwrap().push(copy_of(dir.path()));
        let taken = std::mem::take(&mut *copies.lock().unwrap());
        let last = taken.len() - 1;
        for (at, copy) in taken.into_iter().enumerate() {
            let found = SledStore::open(copy.path()).unwrap().scan(b"").unwrap();
            let whole = found == told(made + 1);
            assert!(
                whole || (at < last && found == told(made)),
                "commit {made}, copy {at}"
            );
        }
    }
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    let dir = tempfile::tempdir().unwrap();
    // The journal's entry is the first write of this commit, and the last that reaches the disk.
    let disk = Watched {
        writes_left: Some(1),
        ..Watched::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(disk)).unwrap();
    assert_matches!(store.commit(several(2, 10)), Err(StoreError::Failed { .. }));
    drop(store);
    for writes in 0..2 {
        let disk = Watched {
            writes_left: Some(writes),
            ..Watched::default()
        };
        assert!(SledStore::open_with(dir.path(), Box::new(disk)).is_err());
    }
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.scan(b"").unwrap().len(), 4);
}

#[test]
fn damage_is_never_handed_out_and_names_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    store.commit(put("agents/1", "one")).unwrap();
    store.commit(put("agents/2", "two")).unwrap();
    let mut bytes = store.records.get("agents/2").unwrap().unwrap().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    store.records.insert("agents/2", bytes).unwrap();
    let error = store.get(b"agents/2").unwrap_err();
    assert_starts!(
        error.to_string(),
        "the record \"agents/2\" is damaged: its checksum is"
    );
    assert_eq!(store.scan(b"agents/"), Err(error));
    assert_eq!(
        store.get(b"agents/1"),
        Ok(Some(b"one".to_vec())),
        "the others can still be read"
    );
    store.commit(put("agents/2", "two again")).unwrap();
    assert_eq!(
        store.scan(b"agents/").unwrap().len(),
        2,
        "a put makes it whole again"
    );
}

#[test]
fn a_damaged_journal_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    store.commit(several(2, 10)).unwrap();
    let key = journal::part_key(journal::slot(1), 0);
    let mut bytes = store.journal.get(key).unwrap().unwrap().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    store.journal.insert(key, bytes).unwrap();
    drop(store);
    assert_matches!(SledStore::open(dir.path()), Err(StoreError::Damaged { .. }));
}

#[test]
fn unreadable_files_fail_and_can_be_set_aside() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let mut store = SledStore::open(&dir).unwrap();
    store.commit(put("term", "7")).unwrap();
    drop(store);
    fs::write(dir.join("conf"), "not sled's").unwrap();
    let error = SledStore::open(&dir).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    crate::set_aside(&dir, "unreadable").unwrap();
    assert_eq!(SledStore::open(&dir).unwrap().get(b"term"), Ok(None));
}

#[test]
fn unfinished_snapshot_does_not_block_opening() {
    let dir = tempfile::tempdir().unwrap();
    SledStore::open(dir.path())
        .unwrap()
        .commit(put("term", "7"))
        .unwrap();
    fs::write(
        dir.path().join("snap.FFFFFFFFFFFFFFFF.generating"),
        "half a snap",
    )
    .unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
}

#[test]
fn second_store_in_a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = SledStore::open(dir.path()).unwrap();
    let error = SledStore::open(dir.path()).unwrap_err();
    let expected = format!(
        "work_dir {} is in use by another process",
        dir.path().display()
    );
    assert_eq!(error.to_string(), expected);
    drop(first);
    SledStore::open(dir.path()).unwrap();
}

#[test]
fn a_failing_disk_closes_the_store() {
    let cases = [
        (io::ErrorKind::StorageFull, StoreError::Full),
        (
            io::ErrorKind::Other,
            StoreError::Failed {
                reason: "other error".into(),
            },
        ),
    ];
    for (kind, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched::default();
        let mut store = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap();
        *disk.sync_error.lock().unwrap() = Some(kind);
        assert_eq!(store.commit(put("term", "7")), Err(expected));
        *disk.sync_error.lock().unwrap() = None;
        assert_eq!(store.commit(put("term", "8")), Err(StoreError::Closed));
        assert_eq!(store.get(b"term"), Err(StoreError::Closed));
    }
}

#[test]
fn too_large_commit_leaves_the_store_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    let mut changes = put("a", "fits");
    changes.put("b", vec![0; VALUE_BYTES_MAX + 1]);
    assert_matches!(store.commit(changes), Err(StoreError::TooLarge { .. }));
    assert_eq!(store.scan(b""), Ok(Vec::new()));
    store.commit(put("a", "fits")).unwrap();
}

#[test]
fn no_page_becomes_a_blob_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    for round in 0..12u8 {
        for half in 0..2 {
            let mut changes = Changes::new();
            for number in 0..20 {
                let mut key = vec![b'k'; KEY_BYTES_MAX];
                key.push(half * 20 + number);
                changes.put(key[1..].to_vec(), vec![round ^ number; VALUE_BYTES_MAX]);
            }
            store.commit(changes).unwrap();
        }
    }
    assert_eq!(fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0);
    assert_eq!(store.scan(b"k").unwrap().len(), 40);
}

#[test]
fn the_largest_commit_fits_and_its_journal_shrinks_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    let mut largest = Changes::new();
    for number in 0..COMMIT_BYTES_MAX / (VALUE_BYTES_MAX + 20) {
        largest.put(format!("{number:04}"), vec![1; VALUE_BYTES_MAX]);
    }
    store.commit(largest).unwrap();
    assert!(store.journal.len() > 160);
    store.commit(several(2, 10)).unwrap();
    store.commit(several(2, 10)).unwrap();
    assert_eq!(store.journal.len(), 2);
}

#[test]
fn pages_put_together_are_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    let mut changes = Changes::new();
    for number in 0..25 {
        changes.put(format!("task/{number:02}"), number.to_string());
    }
    changes.put("tasks", "another prefix").put("tas", "shorter");
    store.commit(changes).unwrap();
    let mut pages = Vec::new();
    loop {
        let after = pages.last().map(|record: &Record| record.key.clone());
        let page = store.page(b"task/", after.as_deref(), 10).unwrap();
        let last = page.len() < 10;
        pages.extend(page);
        if last {
            break;
        }
    }
    assert_eq!(pages.len(), 25);
    assert_eq!(pages, store.scan(b"task/").unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic_or_invent_records(
        at in any::<prop::sample::Index>(),
        file in prop::sample::select(vec!["db", "conf", "snap"]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SledStore::open(dir.path()).unwrap();
        for changes in story() {
            store.commit(changes).unwrap();
        }
        drop(store);
        drop(SledStore::open(dir.path()).unwrap());
        let named = |entry: io::Result<fs::DirEntry>| {
            let path = entry.unwrap().path();
            path.file_name().unwrap().to_string_lossy().starts_with(file).then_some(path)
        };
        if let Some(path) = fs::read_dir(dir.path()).unwrap().find_map(named) {
            let mut bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len().min(1_500_000));
            bytes[at] ^= 0x55;
            fs::write(&path, bytes).unwrap();
        }
        let put: Vec<Record> = (0..=story().len()).flat_map(told).collect();
        if let Ok(store) = SledStore::open(dir.path()) {
            for record in store.scan(b"").unwrap_or_default() {
                prop_assert!(put.contains(&record), "{:?}", record.key);
            }
        }
    }
}
