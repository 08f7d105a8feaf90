//! The content of dumps, and refusals.

use std::collections::BTreeMap;

use testkit::assert_contains;

use super::*;
use crate::log::{EntryKind, Loaded};
use crate::store::memory_log::MemoryLog;

/// A state machine that counts: an operation names a key, and the content is the counts.
#[derive(Default)]
struct Counts(BTreeMap<u8, u8>);

impl Counts {
    fn of(content: &[u8]) -> Result<Self, String> {
        match content.len().is_multiple_of(2) {
            true => Ok(Counts(
                content.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
            )),
            false => Err("half a pair".to_owned()),
        }
    }

    fn apply(&mut self, entry: &Entry) {
        if entry.kind == EntryKind::Operation {
            for key in &entry.data {
                *self.0.entry(*key).or_default() += 1;
            }
        }
    }

    fn content(&self) -> Bytes {
        self.0
            .iter()
            .flat_map(|(key, count)| [*key, *count])
            .collect()
    }
}

fn replay(snapshot: &Snapshot, entries: &[Entry]) -> Result<Replayed, String> {
    let mut counts = Counts::of(&snapshot.data)?;
    entries.iter().for_each(|entry| counts.apply(entry));
    Ok(Replayed {
        content: counts.content(),
        names: Bytes::from_static(b"1=a 2=b 3=c"),
    })
}

fn write(first: u64, commit: u64, operations: &[&str]) -> Write {
    let entry = |(index, operation): (u64, &&str)| Entry {
        term: 2,
        index,
        kind: match operation.is_empty() {
            true => EntryKind::Membership,
            false => EntryKind::Operation,
        },
        data: operation.as_bytes().to_vec(),
        context: Vec::new(),
    };
    Write {
        snapshot: None,
        entries: (first..).zip(operations).map(entry).collect(),
        hard: Some(HardState {
            term: 2,
            vote: 1,
            commit,
        }),
    }
}

/// The log of one of three members: `a`, `b` and a membership change are in its snapshot, two more
/// are committed, one is not.
fn survive(log: &mut impl LogStore) {
    log.claim(Identity { id: 3, group: 0xa }).unwrap();
    log.write(&write(1, 0, &["a", "b", ""])).unwrap();
    log.write(&write(4, 3, &["a", "c"])).unwrap();
    let mut counts = Counts::default();
    let loaded = log.load().unwrap();
    loaded.entries[..3]
        .iter()
        .for_each(|entry| counts.apply(entry));
    let snapshot = Snapshot {
        index: 3,
        term: 2,
        members: Members::of([1, 2, 3]),
        data: counts.content(),
    };
    log.compact(&snapshot, 2).unwrap();
    log.write(&write(6, 5, &["d"])).unwrap();
}

fn survivor() -> MemoryLog {
    let mut log = MemoryLog::default();
    survive(&mut log);
    log
}

fn dump() -> Dump {
    take(&mut survivor(), Reach::Committed, replay)
        .unwrap()
        .dump
}

fn new_member() -> Identity {
    Identity { id: 1, group: 0xb }
}

fn check_restored(loaded: &Loaded) {
    assert_eq!(loaded.identity, Some(new_member()));
    assert_eq!((loaded.snapshot.index, loaded.snapshot.term), (5, 2));
    assert_eq!(loaded.snapshot.data, &b"\x61\x02\x62\x01\x63\x01"[..]);
    let alone = Members::of([1]);
    assert_eq!(loaded.snapshot.members, alone);
    let hard = HardState {
        term: 2,
        vote: 0,
        commit: 5,
    };
    assert_eq!(loaded.hard, hard);
    assert!(loaded.entries.is_empty());
}

#[test]
fn dump_has_the_snapshot_and_later_commits() {
    let taken = take(&mut survivor(), Reach::Committed, replay).unwrap();
    let dump = Dump {
        group: 0xa,
        index: 5,
        term: 2,
        names: Bytes::from_static(b"1=a 2=b 3=c"),
        content: Bytes::from_static(b"\x61\x02\x62\x01\x63\x01"),
    };
    assert_eq!(taken, Taken { dump, uncertain: 1 });
}

#[test]
fn whole_dump_has_uncommitted_entries() {
    let taken = take(&mut survivor(), Reach::Whole, replay).unwrap();
    assert_eq!((taken.dump.index, taken.uncertain), (6, 1));
    assert_eq!(taken.dump.content, &b"\x61\x02\x62\x01\x63\x01\x64\x01"[..]);
}

#[test]
fn taking_a_dump_changes_nothing() {
    let mut log = survivor();
    let before = log.load().unwrap();
    take(&mut log, Reach::Whole, replay).unwrap();
    assert_eq!(log.load().unwrap(), before);
}

#[test]
fn unclaimed_log_has_no_dump() {
    let mut empty = MemoryLog::default();
    let error = take(&mut empty, Reach::Committed, replay).unwrap_err();
    assert!(matches!(error, DumpError::NoLog));
}

#[test]
fn replay_error_is_reported() {
    let mut log = survivor();
    let bad = |_: &Snapshot, _: &[Entry]| Err("half a pair".to_owned());
    let error = take(&mut log, Reach::Committed, bad).unwrap_err();
    assert_eq!(error.to_string(), "the log cannot be replayed: half a pair");
}

#[test]
fn one_survivor_becomes_a_new_group() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let mut log = StoredLog::open(at("survivor")).unwrap();
    survive(&mut log);
    drop(log);
    let mut log = StoredLog::open(at("survivor")).unwrap();
    let taken = take(&mut log, Reach::Committed, replay).unwrap();
    write_file(&at("registry.dump"), &taken.dump).unwrap();
    let read = read_file(&at("registry.dump")).unwrap();
    assert_eq!(read, taken.dump);
    restore(&at("new"), &read, new_member()).unwrap();
    let mut restored = StoredLog::open(at("new")).unwrap();
    check_restored(&restored.load().unwrap());
    // It continues as the first member of its group.
    let mut next = write(6, 5, &["e"]);
    next.hard = None;
    restored.write(&next).unwrap();
    let mut names: Vec<_> = fs::read_dir(root.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["new", "registry.dump", "survivor"]);
}

#[test]
fn unused_group_is_restored_empty() {
    let mut log = MemoryLog::default();
    log.claim(Identity { id: 1, group: 0xa }).unwrap();
    let dump = take(&mut log, Reach::Committed, replay).unwrap().dump;
    assert_eq!((dump.index, dump.content.len()), (0, 0));
    let mut log = MemoryLog::default();
    fill(&mut log, &dump, new_member()).unwrap();
    let loaded = log.load().unwrap();
    assert_eq!((loaded.snapshot.index, loaded.hard.commit), (1, 1));
}

#[test]
fn restore_refuses_a_used_directory() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let refused = |expected: &str| {
        let error = restore(&dir, &dump(), new_member())
            .unwrap_err()
            .to_string();
        let tail = format!("already exists ({expected}): expected an empty directory, or none");
        assert!(error.ends_with(&tail), "{error}");
    };
    fs::write(&dir, "a file").unwrap();
    refused("it is a file");
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("notes"), "an operator's").unwrap();
    refused("notes");
    fs::remove_file(dir.join("notes")).unwrap();
    restore(&dir, &dump(), new_member()).unwrap();
    let open = StoredLog::open(&dir).unwrap();
    let error = restore(&dir, &dump(), new_member())
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is in use by another process"), "{error}");
    drop(open);
    let error = restore(&dir, &dump(), new_member())
        .unwrap_err()
        .to_string();
    assert!(!error.contains("in use"), "{error}");
    check_restored(&StoredLog::open(&dir).unwrap().load().unwrap());
}

#[test]
fn interrupted_restore_is_cleaned_up() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let making = root.path().join("log.restoring");
    let mut half = StoredLog::open(&making).unwrap();
    let error = restore(&dir, &dump(), new_member())
        .unwrap_err()
        .to_string();
    assert_contains!(error, "another process is restoring there");
    half.claim(Identity { id: 7, group: 7 }).unwrap();
    drop(half);
    restore(&dir, &dump(), new_member()).unwrap();
    check_restored(&StoredLog::open(&dir).unwrap().load().unwrap());
    assert!(!making.exists());
}

#[test]
fn fill_refuses_a_used_log() {
    let error = fill(&mut survivor(), &dump(), new_member()).unwrap_err();
    assert!(error.to_string().contains("a member's log"), "{error}");
}

#[test]
fn new_group_needs_a_new_identity() {
    let check = |id, group, expected: &str| {
        let mut log = MemoryLog::default();
        let error = fill(&mut log, &dump(), Identity { id, group }).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(log.load().unwrap(), Loaded::default());
    };
    check(
        0,
        0xb,
        "the new member cannot have raft id 0x0: it is at least 1",
    );
    check(
        1,
        0xa,
        "the new member cannot have group 0xa: it is the old group's, whose members may still come back",
    );
}

#[test]
fn oversized_dump_is_refused_before_writing() {
    let root = tempfile::tempdir().unwrap();
    let mut large = dump();
    large.names = Bytes::from(vec![0; NAMES_BYTES_MAX as usize + 1]);
    let error = write_file(&root.path().join("d"), &large).unwrap_err();
    assert_eq!(
        error.to_string(),
        "names of 1048577 bytes: a dump holds at most 1048576"
    );
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
