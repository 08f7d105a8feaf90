//! Damage by a disk: a store opened afterwards has every acknowledged record, or is refused.

use super::power::Chance;
use super::*;

/// The acknowledged records of a store with commits of each kind, in one segment of the log or in
/// several.
fn stored(dir: &Path, segments: bool) -> Vec<Record> {
    let mut store = SledStore::open(dir).unwrap();
    for round in 0..if segments { 40u8 } else { 3 } {
        for changes in story() {
            store.commit(changes).unwrap();
        }
        store
            .commit(put(&format!("weights/{round}"), vec![round; 300]))
            .unwrap();
        let large = vec![round; if segments { VALUE_BYTES_MAX / 2 } else { 10 }];
        store
            .prepare(format!("parts/{round}").as_bytes(), &large)
            .unwrap();
        store
            .commit(put(&format!("whole/{round}"), "one part"))
            .unwrap();
    }
    store.scan(b"").unwrap()
}

fn damages(segments: bool, seeds: std::ops::Range<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = stored(dir.path(), segments);
    let reopened = SledStore::open(dir.path()).unwrap();
    assert_eq!(reopened.scan(b"").unwrap(), acknowledged);
    drop(reopened);
    let mut refused = 0;
    for seed in seeds {
        let copy = copy_of(dir.path());
        let mut chance = Chance(seed);
        let damage = testkit::damage::damage(copy.path(), |bound| chance.below(bound)).unwrap();
        for opening in 1..=2 {
            let found = SledStore::open(copy.path()).and_then(|store| store.scan(b""));
            match found {
                Ok(found) => assert!(
                    found == acknowledged,
                    "seed {seed}, {damage}, opening {opening}: {} of {} records, silently",
                    found.len(),
                    acknowledged.len()
                ),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 0, "no damage was noticed");
}

#[test]
fn damaged_store_loses_nothing_silently() {
    damages(false, 0..150);
}

#[test]
fn damaged_store_of_several_segments_loses_nothing_silently() {
    damages(true, 0..40);
}

#[test]
fn lost_records_are_refused_with_directory_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    for number in 1..=5 {
        store
            .commit(put(&number.to_string(), "acknowledged"))
            .unwrap();
    }
    drop(store);
    fs::remove_file(dir.path().join("db")).unwrap();
    let expected = format!(
        "the store in {} is damaged and has lost records: write 5 was synced, and the newest that can be read is write 0; \
         restore it, set it aside, or delete its file `synced` to continue without the missing records",
        dir.path().display()
    );
    for _ in 0..2 {
        let error = SledStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Lost { .. }));
        assert_eq!(error.to_string(), expected);
    }
    // An operator who deletes the marker continues with the remaining records.
    fs::remove_file(dir.path().join("synced")).unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.scan(b""), Ok(Vec::new()));
}

#[test]
fn store_with_lost_records_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let one_write = Watched {
        writes_left: Some(1),
        ..Watched::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(one_write)).unwrap();
    // It is in the journal, and not applied.
    store.commit(several(1, 10)).unwrap_err();
    let lost = SyncedState {
        number: 100,
        ..SyncedState::default()
    };
    store.mark.set(lost).unwrap();
    drop(store);
    let disk = Watched::default();
    let error = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap_err();
    assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    assert_eq!(*disk.seen.lock().unwrap(), "");
}

#[test]
fn store_without_a_mark_opens_and_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = stored(dir.path(), false);
    let mark = dir.path().join("synced");
    // As an earlier version left it.
    for older in [None, Some([0; 12])] {
        fs::remove_file(&mark).unwrap();
        if let Some(bytes) = older {
            fs::write(&mark, bytes).unwrap();
        }
        let store = SledStore::open(dir.path()).unwrap();
        assert_eq!(store.scan(b"").unwrap(), acknowledged);
        drop(store);
        assert!(SyncMarker::open(dir.path()).unwrap().read().is_some());
    }
}

/// Stores of earlier versions stamped single puts with the number of the journalled commit before
/// them.
#[test]
fn records_with_repeated_numbers_are_not_taken_for_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    store.commit(several(1, 10)).unwrap();
    for key in ["x", "y"] {
        let sealed = record::seal(key.as_bytes(), 1, b"older");
        store.records.insert(key, sealed).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    fs::remove_file(dir.path().join("synced")).unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    store.commit(several(2, 10)).unwrap();
    store.commit(put("x", "newer")).unwrap();
    drop(store);
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.get(b"x"), Ok(Some(b"newer".to_vec())));
    assert_eq!(store.get(b"y"), Ok(Some(b"older".to_vec())));
}
