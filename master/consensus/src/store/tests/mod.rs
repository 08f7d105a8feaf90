//! The guarantees of the stored log: order, crashes, full disks and damage.

mod crash;
mod damage;
mod model;

use bytes::Bytes;
use testkit::disk::{Failure, SimulatedDisk, SimulatedStore};

use super::*;
use crate::log::{EntryKind, Members};

/// The bytes of an entry; two do not fit into one record, but take three parts.
pub(super) const LONG: usize = 20_000;

pub(super) fn entries(first: u64, term: u64, lengths: &[usize]) -> Vec<Entry> {
    let entry = |(index, &length): (u64, &usize)| Entry {
        term,
        index,
        kind: EntryKind::Operation,
        data: vec![(index ^ term) as u8; length],
        context: index.to_be_bytes().to_vec(),
    };
    (first..).zip(lengths).map(entry).collect()
}

pub(super) fn append(first: u64, term: u64, lengths: &[usize]) -> Write {
    Write {
        entries: entries(first, term, lengths),
        ..Write::default()
    }
}

pub(super) fn promise(term: u64, vote: u64, commit: u64) -> Write {
    Write {
        hard: Some(HardState { term, vote, commit }),
        ..Write::default()
    }
}

pub(super) fn snapshot(index: u64, term: u64, length: usize) -> Snapshot {
    Snapshot {
        index,
        term,
        members: Members::of([1, 2, 3]),
        data: Bytes::from(vec![index as u8; length]),
    }
}

pub(super) fn install(index: u64, term: u64, length: usize) -> Write {
    Write {
        snapshot: Some(snapshot(index, term, length)),
        ..Write::default()
    }
}

pub(super) fn both(mut first: Write, second: Write) -> Write {
    first.entries.extend(second.entries);
    first.hard = second.hard.or(first.hard);
    first
}

/// A log's content in one line.
pub(super) fn summary(loaded: &Loaded) -> String {
    let mut line = format!(
        "t{} v{} c{}",
        loaded.hard.term, loaded.hard.vote, loaded.hard.commit
    );
    if loaded.snapshot.index > 0 {
        line += &format!(" snapshot {}", loaded.snapshot.index);
    }
    for entry in &loaded.entries {
        line += &format!(" {}/{}", entry.index, entry.term);
    }
    line
}

fn opened(disk: &SimulatedDisk) -> StoredLog<SimulatedStore> {
    StoredLog::new(disk.open().unwrap())
}

/// Makes these writes, and reads the log in a new process after each.
fn check(steps: &[(Write, &str)]) {
    let disk = SimulatedDisk::new();
    for (write, expected) in steps {
        opened(&disk).write(write).unwrap();
        assert_eq!(summary(&opened(&disk).load().unwrap()), *expected);
    }
    // The same in one process.
    let mut log = opened(&SimulatedDisk::new());
    for (write, _) in steps {
        log.write(write).unwrap();
    }
    let (_, last) = steps.last().unwrap();
    assert_eq!(summary(&log.load().unwrap()), *last);
}

#[test]
fn turns_are_read_as_written() {
    check(&[
        (promise(1, 1, 0), "t1 v1 c0"),
        (
            both(promise(1, 1, 0), append(1, 1, &[0, 10])),
            "t1 v1 c0 1/1 2/1",
        ),
        (promise(2, 1, 1), "t2 v1 c1 1/1 2/1"),
        (append(3, 2, &[10]), "t2 v1 c1 1/1 2/1 3/2"),
        (promise(2, 1, 3), "t2 v1 c3 1/1 2/1 3/2"),
    ]);
}

#[test]
fn entries_replace_later_ones() {
    check(&[
        (append(1, 1, &[1, 1, 1, 1]), "t0 v0 c0 1/1 2/1 3/1 4/1"),
        (append(5, 1, &[1]), "t0 v0 c0 1/1 2/1 3/1 4/1 5/1"),
        (append(3, 2, &[1]), "t0 v0 c0 1/1 2/1 3/2"),
        (append(4, 2, &[1, 1]), "t0 v0 c0 1/1 2/1 3/2 4/2 5/2"),
        (append(2, 3, &[1]), "t0 v0 c0 1/1 2/3"),
        (append(1, 4, &[1]), "t0 v0 c0 1/4"),
        (append(2, 4, &[1]), "t0 v0 c0 1/4 2/4"),
    ]);
}

#[test]
fn long_turn_is_replaced_like_any_other() {
    check(&[
        (append(1, 1, &[LONG, LONG, 1]), "t0 v0 c0 1/1 2/1 3/1"),
        (append(4, 1, &[5 * LONG]), "t0 v0 c0 1/1 2/1 3/1 4/1"),
        (append(3, 2, &[LONG, LONG]), "t0 v0 c0 1/1 2/1 3/2 4/2"),
        (append(1, 3, &[1]), "t0 v0 c0 1/3"),
    ]);
}

#[test]
fn received_snapshot_replaces_the_log() {
    check(&[
        (append(1, 1, &[1, 1]), "t0 v0 c0 1/1 2/1"),
        (
            both(install(9, 3, 40_000), promise(3, 0, 9)),
            "t3 v0 c9 snapshot 9",
        ),
        (append(10, 3, &[1]), "t3 v0 c9 snapshot 9 10/3"),
        (install(20, 3, 0), "t3 v0 c20 snapshot 20"),
        (
            both(install(30, 3, 10), append(31, 3, &[1, LONG, LONG])),
            "t3 v0 c30 snapshot 30 31/3 32/3 33/3",
        ),
    ]);
}

/// A log of five turns with two entries each, all committed.
fn ten(disk: &SimulatedDisk) -> StoredLog<SimulatedStore> {
    let mut log = opened(disk);
    for first in [1, 3, 5, 7, 9] {
        let commit = first + 1;
        log.write(&both(promise(1, 1, commit), append(first, 1, &[10, LONG])))
            .unwrap();
    }
    log
}

#[test]
fn compaction_removes_whole_turns() {
    let cases = [
        (6, 1, "1/1 2/1 3/1 4/1 5/1 6/1 7/1 8/1 9/1 10/1"),
        (6, 4, "3/1 4/1 5/1 6/1 7/1 8/1 9/1 10/1"),
        (6, 99, "7/1 8/1 9/1 10/1"),
        (7, 8, "7/1 8/1 9/1 10/1"),
        (9, 10, "9/1 10/1"),
    ];
    for (index, keep_from, entries) in cases {
        let disk = SimulatedDisk::new();
        let mut log = ten(&disk);
        let before = log.disk_bytes();
        log.compact(&snapshot(index, 1, 10), keep_from).unwrap();
        let expected = format!("t1 v1 c10 snapshot {index} {entries}");
        assert_eq!(summary(&log.load().unwrap()), expected);
        drop(log);
        let mut log = opened(&disk);
        let loaded = log.load().unwrap();
        assert_eq!(summary(&loaded), expected);
        assert_eq!(loaded.snapshot, snapshot(index, 1, 10));
        assert!(keep_from < 3 || log.disk_bytes() < before);
    }
}

#[test]
fn fully_compacted_log_accepts_entries() {
    let disk = SimulatedDisk::new();
    let mut log = ten(&disk);
    log.compact(&snapshot(10, 1, 60_000), 11).unwrap();
    assert_eq!(summary(&log.load().unwrap()), "t1 v1 c10 snapshot 10");
    log.write(&append(11, 2, &[1])).unwrap();
    drop(log);
    let mut log = opened(&disk);
    assert_eq!(summary(&log.load().unwrap()), "t1 v1 c10 snapshot 10 11/2");
    // Only valid records remain: metadata, snapshot of four parts, one turn.
    assert_eq!(log.store.scan(b"").unwrap().len(), 6);
}

#[test]
fn compactions_keep_the_disk_and_the_memory_bounded() {
    let disk = SimulatedDisk::new();
    let mut log = opened(&disk);
    let mut most = (0, 0);
    for turn in 0..500 {
        log.write(&both(promise(1, 1, turn), append(turn + 1, 1, &[1000])))
            .unwrap();
        if turn % 20 == 19 {
            log.compact(&snapshot(turn, 1, 1000), turn - 10).unwrap();
        }
        let state = log.state.as_ref().unwrap();
        most.0 = most.0.max(state.chunks.len() + state.stale.len());
        most.1 = most.1.max(log.disk_bytes());
    }
    assert!(most.0 <= 40, "{} records are remembered", most.0);
    assert!(most.1 <= 60_000, "{} bytes", most.1);
}

#[test]
fn replaced_entries_are_swept_without_compaction() {
    let mut log = opened(&SimulatedDisk::new());
    for term in 1..30 {
        for index in 1..60 {
            log.write(&append(index, term, &[10])).unwrap();
        }
    }
    assert!(log.store.scan(b"").unwrap().len() < STALE_MAX + 100);
    assert_eq!(log.load().unwrap().entries.len(), 59);
}

#[test]
fn leftovers_are_swept_by_the_next_write() {
    let disk = SimulatedDisk::new();
    let mut log = opened(&disk);
    log.write(&append(1, 1, &[1])).unwrap();
    disk.fail_next(Failure::Full);
    assert!(log.write(&append(2, 1, &[LONG, LONG])).is_err());
    drop(log);
    let mut log = opened(&disk);
    assert_eq!(summary(&log.load().unwrap()), "t0 v0 c0 1/1");
    assert_eq!(log.store.scan(keys::PARTS).unwrap().len(), 3);
    log.write(&append(2, 1, &[LONG, LONG])).unwrap();
    assert_eq!(log.store.scan(keys::PARTS).unwrap().len(), 3);
    assert_eq!(summary(&log.load().unwrap()), "t0 v0 c0 1/1 2/1 3/1");
}

#[test]
fn directory_belongs_to_one_member() {
    let disk = SimulatedDisk::new();
    let own = Identity { id: 2, group: 7 };
    let mut log = opened(&disk);
    log.write(&promise(4, 2, 0)).unwrap();
    assert!(log.claim(Identity { id: 0, group: 7 }).is_err());
    log.claim(own).unwrap();
    let syncs = disk.syncs();
    log.claim(own).unwrap();
    assert_eq!(disk.syncs(), syncs, "the same again changes nothing");
    log.write(&append(1, 4, &[1])).unwrap();
    drop(log);
    let mut log = opened(&disk);
    let foreign = log.claim(Identity { id: 3, group: 7 }).unwrap_err();
    assert_eq!(
        foreign.to_string(),
        "the log belongs to member 2 of group 0000000000000007"
    );
    let loaded = log.load().unwrap();
    assert_eq!(loaded.identity, Some(own));
    assert_eq!(summary(&loaded), "t4 v2 c0 1/4");
}

#[test]
fn turn_costs_one_sync_at_most() {
    let disk = SimulatedDisk::new();
    let mut log = opened(&disk);
    let mut cost = |write: &Write| {
        let before = disk.syncs();
        log.write(write).unwrap();
        disk.syncs() - before
    };
    assert_eq!(cost(&both(promise(1, 1, 0), append(1, 1, &[1; 64]))), 1);
    assert_eq!(cost(&append(65, 1, &[LONG; 10])), 1);
    assert_eq!(cost(&append(70, 2, &[1])), 1);
    assert_eq!(cost(&promise(2, 0, 5)), 1);
    assert_eq!(cost(&promise(2, 0, 5)), 0);
    assert_eq!(cost(&Write::default()), 0);
    assert_eq!(cost(&install(100, 2, 100_000)), 1);
}

#[test]
fn invalid_writes_are_refused() {
    let disk = SimulatedDisk::new();
    let mut log = ten(&disk);
    let wrong = [
        append(12, 1, &[1]),
        append(10, 1, &[1]),
        promise(0, 0, 10),
        promise(1, 1, 11),
        install(9, 1, 10),
    ];
    let expected = summary(&log.load().unwrap());
    for write in wrong {
        assert!(matches!(log.write(&write), Err(LogError::Disk { .. })));
        assert_eq!(summary(&log.load().unwrap()), expected);
    }
    assert!(log.compact(&snapshot(11, 1, 1), 1).is_err());
    log.write(&append(11, 1, &[1])).unwrap();
}

/// A stale turn may declare any number of parts; they are not read.
#[test]
fn stale_turn_with_many_parts_is_cheap() {
    let load = |turns: &[(u64, u64, u32)]| {
        let mut store = SimulatedStore::default();
        for &(number, first, parts) in turns {
            let chunk = Chunk {
                number,
                previous: 0,
                hard: HardState {
                    term: 1,
                    ..HardState::default()
                },
                first,
                count: 1,
                parts: Parts {
                    count: parts,
                    ..Parts::default()
                },
            };
            let inline = match parts {
                0 => record::encode_entries(&entries(first, 1, &[0])).unwrap(),
                _ => Vec::new(),
            };
            let key = keys::chunk(first);
            let mut changes = Changes::new();
            let sealed = record::seal(&key, RecordType::Chunk, &chunk.encode(&inline));
            changes.put(key, sealed);
            store.commit(changes).unwrap();
        }
        StoredLog::new(store).load()
    };
    let loaded = load(&[(2, 1, 0), (1, 2, u32::MAX)]).unwrap();
    assert_eq!(loaded.entries.len(), 1);
    let lacking = load(&[(1, 1, u32::MAX)]).unwrap_err();
    assert!(matches!(lacking, LogError::Damaged { .. }), "{lacking}");
}
