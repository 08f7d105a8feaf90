//! Damage to a log: altered records are named, and never returned.

use std::fs;

use storage::Record;

use super::*;

/// A log with a record of every kind; everything except the last entries is committed.
fn rich() -> (SimulatedDisk, Loaded) {
    let disk = SimulatedDisk::new();
    let mut log = opened(&disk);
    log.claim(Identity { id: 1, group: 2 }).unwrap();
    log.write(&append(1, 1, &[10, 10])).unwrap();
    log.write(&both(promise(1, 1, 3), append(3, 1, &[10, 10, 10, 10])))
        .unwrap();
    log.compact(&snapshot(3, 1, 40_000), 3).unwrap();
    log.write(&both(promise(2, 0, 4), append(6, 2, &[10])))
        .unwrap();
    log.write(&append(7, 2, &[LONG, LONG])).unwrap();
    log.write(&append(9, 2, &[10])).unwrap();
    log.write(&promise(2, 1, 9)).unwrap();
    let loaded = log.load().unwrap();
    assert_eq!(
        summary(&loaded),
        "t2 v1 c9 snapshot 3 3/1 4/1 5/1 6/2 7/2 8/2 9/2"
    );
    drop(log);
    (disk, loaded)
}

fn records(disk: &SimulatedDisk) -> Vec<Record> {
    disk.open().unwrap().scan(b"").unwrap()
}

/// Changes the store under the log, reads it, and changes it back.
fn read_after(
    disk: &SimulatedDisk,
    record: &Record,
    value: Option<Vec<u8>>,
) -> Result<Loaded, LogError> {
    let mut store = disk.open().unwrap();
    let mut changes = Changes::new();
    match value {
        Some(value) => changes.put(record.key.clone(), value),
        None => changes.remove(record.key.clone()),
    };
    store.commit(changes).unwrap();
    let mut log = StoredLog::new(store);
    let found = log.load();
    let mut changes = Changes::new();
    changes.put(record.key.clone(), record.value.clone());
    log.store.commit(changes).unwrap();
    found
}

#[test]
fn flipped_byte_is_reported_with_its_record() {
    let (disk, loaded) = rich();
    let records = records(&disk);
    // Metadata, snapshot of three parts, five turns and the next one's record, three parts of one
    // turn.
    assert_eq!(records.len(), 1 + 3 + 5 + 3);
    for record in &records {
        let step = 1 + record.value.len() / 300;
        for at in (0..record.value.len()).step_by(step) {
            let mut value = record.value.clone();
            value[at] ^= 0x40;
            let error = read_after(&disk, record, Some(value)).unwrap_err();
            let LogError::Damaged { place, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(*place, keys::name(&record.key));
            assert!(error.to_string().contains("meros masters remove"));
        }
    }
    assert_eq!(opened(&disk).load().unwrap(), loaded);
}

#[test]
fn truncated_record_is_reported() {
    let (disk, _) = rich();
    for record in records(&disk) {
        for length in [0, 1, 5, 6, record.value.len() / 2, record.value.len() - 1] {
            let value = record.value[..length].to_vec();
            let error = read_after(&disk, &record, Some(value)).unwrap_err();
            assert!(
                error.to_string().contains(&keys::name(&record.key)),
                "{error}"
            );
        }
    }
}

#[test]
fn missing_record_is_noticed_by_its_successor() {
    let (disk, _) = rich();
    for record in records(&disk) {
        // No record follows the very last one, so its loss goes unnoticed, with its hard state.
        let last = record.key == keys::chunk(10);
        match read_after(&disk, &record, None) {
            Ok(found) => assert!(last, "{}: {}", keys::name(&record.key), summary(&found)),
            Err(error) => assert!(matches!(error, LogError::Damaged { .. }), "{error}"),
        }
    }
}

#[test]
fn swapped_records_are_damage() {
    let (disk, _) = rich();
    let records = records(&disk);
    for (record, other) in records.iter().zip(&records[1..]) {
        let error = read_after(&disk, record, Some(other.value.clone())).unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }
}

#[test]
fn missing_committed_end_is_damage() {
    let disk = SimulatedDisk::new();
    let mut log = opened(&disk);
    log.write(&append(1, 1, &[1])).unwrap();
    log.write(&both(promise(1, 1, 2), append(2, 1, &[1])))
        .unwrap();
    log.claim(Identity { id: 1, group: 1 }).unwrap();
    drop(log);
    let mut store = disk.open().unwrap();
    let mut changes = Changes::new();
    changes.remove(keys::chunk(2));
    store.commit(changes).unwrap();
    let error = StoredLog::new(store).load().unwrap_err().to_string();
    let expected = "the log is damaged at the record of the entries from 2 on: it is missing, and the log was \
                    committed up to 2";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn after_damage_nothing_is_written() {
    let (disk, _) = rich();
    let mut store = disk.open().unwrap();
    let mut changes = Changes::new();
    changes.put(keys::META, "not ours");
    store.commit(changes).unwrap();
    let mut log = StoredLog::new(store);
    for _ in 0..2 {
        let error = log.write(&append(10, 2, &[1])).unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }
}

#[test]
fn damaged_file_gives_an_error_or_an_earlier_turn() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = StoredLog::open(dir.path()).unwrap();
    let mut turns = vec![summary(&log.load().unwrap())];
    for index in 1..40 {
        log.write(&both(promise(1, 1, index - 1), append(index, 1, &[3000])))
            .unwrap();
        turns.push(summary(&log.load().unwrap()));
    }
    drop(log);
    let whole = fs::read(dir.path().join("db")).unwrap();
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for round in 0..24 {
        let mut bytes = whole.clone();
        match round % 2 {
            0 => bytes.truncate(used * (round + 1) / 25),
            _ => bytes[used * round / 24] ^= 0x11,
        }
        let spoilt = tempfile::tempdir().unwrap();
        fs::copy(dir.path().join("conf"), spoilt.path().join("conf")).unwrap();
        fs::write(spoilt.path().join("db"), bytes).unwrap();
        let opened = StoredLog::open(spoilt.path()).and_then(|mut log| log.load());
        if let Ok(found) = opened {
            assert!(
                turns.contains(&summary(&found)),
                "round {round}: {}",
                summary(&found)
            );
        }
    }
}

fn titled(index: u64) -> Write {
    Write {
        entries: vec![Entry {
            term: 1,
            index,
            kind: EntryKind::Operation,
            data: format!("this is what entry {index} says").into_bytes(),
            context: Vec::new(),
        }],
        ..Write::default()
    }
}

/// A flipped bit of synced data either has no effect or is reported as damage.
#[test]
fn damaged_log_never_looks_shorter() {
    for damaged in 1..=5 {
        let dir = tempfile::tempdir().unwrap();
        let mut log = StoredLog::open(dir.path()).unwrap();
        log.claim(Identity { id: 1, group: 9 }).unwrap();
        for index in 1..=5 {
            log.write(&titled(index)).unwrap();
        }
        let whole = log.load().unwrap();
        drop(log);
        let file = dir.path().join("db");
        let mut bytes = std::fs::read(&file).unwrap();
        let text = format!("entry {damaged} says");
        let found = bytes
            .windows(text.len())
            .position(|some| some == text.as_bytes());
        bytes[found.unwrap()] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let loaded = StoredLog::<SledStore>::open(dir.path()).and_then(|mut log| log.load());
        match loaded {
            Ok(loaded) => assert_eq!(loaded, whole, "entry {damaged}"),
            Err(LogError::Damaged { .. }) => {}
            Err(other) => panic!("entry {damaged}: {other}"),
        }
    }
}
