//! The guarantees of a store in memory, and that it and the store on sled have the same content.

use std::fs::File;
use std::io;

use proptest::prelude::*;
use storage::Disk;
use storage::sled_store::SledStore;

use super::*;

fn put(key: &str, value: &str) -> Changes {
    let mut changes = Changes::new();
    changes.put(key, value);
    changes
}

#[test]
fn a_crash_keeps_what_was_committed() {
    let mut store = SimulatedStore::default();
    store.commit(put("term", "7")).unwrap();
    let store = store.crash().unwrap();
    assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
}

#[test]
fn refused_commit_changes_nothing() {
    let mut store = SimulatedStore::default();
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
        disk.crash_with(|_| kept);
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
    let mut store = SimulatedStore::default();
    store.commit(put("term", "7")).unwrap();
    store.disk().fake_syncs(true);
    store.commit(put("term", "8")).unwrap();
    assert_eq!((store.disk().unsynced(), store.disk().syncs()), (1, 1));
    let store = store.crash().unwrap();
    assert_eq!(store.get(b"term"), Ok(Some(b"7".to_vec())));
}

#[test]
fn prepared_records_are_lost_before_the_commit() {
    let mut store = SimulatedStore::default();
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

#[test]
fn content_in_doubt_waits_for_a_good_disk() {
    let disk = SimulatedDisk::new();
    disk.fail();
    // Refused, full, and the third one is written but not synced.
    for _ in 0..3 {
        let mut store = disk.open().unwrap();
        assert!(store.commit(put("term", "7")).is_err());
    }
    assert_eq!((disk.unsynced(), disk.losses()), (1, 3));
    assert!(
        disk.open_named("other").is_ok(),
        "nothing of it is in doubt"
    );
    assert!(matches!(disk.open(), Err(StoreError::Failed { .. })));
    assert!(disk.fails_now());
    assert_eq!(disk.losses(), 5);
    disk.mend();
    assert!(!disk.fails_now());
    assert_eq!(disk.open().unwrap().get(b"term"), Ok(Some(b"7".to_vec())));
}

#[test]
fn crash_point_fires_at_its_commit() {
    for synced in [false, true] {
        let (disk, reached) = (SimulatedDisk::new(), Arc::new(Mutex::new(0)));
        let mut store = disk.open().unwrap();
        let count = reached.clone();
        disk.set_crash_point(2, synced, move || *count.lock().unwrap() += 1);
        for key in ["one", "two", "three"] {
            store.commit(put(key, "value")).unwrap();
        }
        let unsynced = 2 - usize::from(synced);
        assert_eq!((*reached.lock().unwrap(), disk.unsynced()), (1, unsynced));
        let mut store = store.crash().unwrap();
        let keys = store
            .scan(b"")
            .unwrap()
            .into_iter()
            .map(|record| record.key);
        let expected: &[_] = if synced { &["one", "two"] } else { &["one"] };
        assert!(keys.eq(expected.iter().map(|key| key.as_bytes())));
        store.commit(put("four", "value")).unwrap();
        assert_eq!(disk.unsynced(), 0, "it syncs again");
    }
}

#[test]
fn copied_content_is_put_back() {
    let mut store = SimulatedStore::default();
    let disk = store.disk().clone();
    store.commit(put("one", "value")).unwrap();
    disk.copy();
    store.commit(put("two", "value")).unwrap();
    let mut gone = Changes::new();
    gone.remove("one");
    store.commit(gone).unwrap();
    disk.crash();
    assert!(disk.put_back());
    let store = disk.open().unwrap();
    assert!(store.get(b"one").unwrap().is_some());
    assert_eq!(store.get(b"two"), Ok(None));
    disk.copy();
    assert!(!disk.put_back(), "nothing was written");
}

/// Fails after some writes, as if the process were killed there.
struct Ending(u64);

impl Disk for Ending {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn wrote(&mut self) -> io::Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        Ok(())
    }
}

fn any_changes() -> impl Strategy<Value = Changes> {
    let change = (
        "[a-c]{1,2}",
        prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    );
    prop::collection::vec(change, 0..6).prop_map(|list| {
        let mut changes = Changes::new();
        for (key, value) in list {
            match value {
                Some(value) => changes.put(key, value),
                None => changes.remove(key),
            };
        }
        changes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn store_on_sled_has_the_same_content(
        commits in prop::collection::vec(any_changes(), 1..12),
        reopen in prop::collection::vec(any::<bool>(), 12),
        crash in 0..30u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut twin = SimulatedStore::default();
        let mut store = SledStore::open(dir.path()).unwrap();
        for (changes, reopen) in commits.iter().zip(reopen) {
            store.commit(changes.clone()).unwrap();
            twin.commit(changes.clone()).unwrap();
            if reopen {
                drop(store);
                store = SledStore::open(dir.path()).unwrap();
            }
            prop_assert_eq!(store.scan(b""), twin.scan(b""));
            prop_assert_eq!(store.scan(b"b"), twin.scan(b"b"));
        }
        drop(store);
        // The same commits again, and a crash somewhere among their writes.
        let Ok(mut store) = SledStore::open_with(dir.path(), Box::new(Ending(crash))) else {
            return Ok(());
        };
        let mut ended = None;
        for changes in commits {
            if store.commit(changes.clone()).is_err() {
                ended = Some(changes);
                break;
            }
            twin.commit(changes).unwrap();
        }
        drop(store);
        let found = SledStore::open(dir.path()).unwrap().scan(b"").unwrap();
        let before = twin.scan(b"").unwrap();
        twin.commit(ended.unwrap_or_default()).unwrap();
        prop_assert!(found == before || found == twin.scan(b"").unwrap());
    }
}
