//! Crashes of a log on sled at every step of every kind of write; full disks.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use storage::Disk;

use super::super::memory_log::MemoryLog;
use super::*;

/// One call of a log.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Claim(Identity),
    Write(Write),
    Compact(Snapshot, u64),
}

impl Call {
    pub(super) fn make(&self, log: &mut impl LogStore) -> Result<(), LogError> {
        match self {
            Call::Claim(identity) => log.claim(*identity),
            Call::Write(write) => log.write(write),
            Call::Compact(snapshot, keep_from) => log.compact(snapshot, *keep_from),
        }
    }
}

/// A log's content after these calls.
pub(super) fn after(calls: &[Call]) -> Loaded {
    let mut log = MemoryLog::default();
    for call in calls {
        call.make(&mut log).unwrap();
    }
    log.load().unwrap()
}

/// Whether these are equal, except for compacted entries that share a turn with later ones.
pub(super) fn same(found: &Loaded, expected: &Loaded) -> bool {
    let more = found.entries.len().checked_sub(expected.entries.len());
    more.is_some_and(|more| {
        found.entries[more..] == expected.entries
            && found.entries[..more]
                .iter()
                .all(|entry| entry.index <= expected.snapshot.index)
            && (found.identity, found.hard) == (expected.identity, expected.hard)
            && found.snapshot == expected.snapshot
    })
}

/// Every kind of write, each after several others.
fn story() -> Vec<Call> {
    let write = Call::Write;
    vec![
        Call::Claim(Identity { id: 1, group: 9 }),
        write(promise(1, 1, 0)),
        write(both(promise(1, 1, 0), append(1, 1, &[10, 10]))),
        write(append(3, 1, &[10, LONG, LONG])),
        write(both(promise(2, 0, 2), append(4, 2, &[10]))),
        write(append(5, 2, &[3 * LONG, 10])),
        write(promise(2, 3, 6)),
        Call::Compact(snapshot(5, 2, 50_000), 3),
        write(append(7, 2, &[LONG, LONG])),
        write(append(7, 3, &[1])),
        Call::Compact(snapshot(6, 2, 10), 7),
        write(both(install(50, 4, 60_000), promise(4, 0, 50))),
        write(append(51, 4, &[10])),
        write(both(
            install(70, 5, 10),
            both(append(71, 5, &[10, LONG, LONG]), promise(5, 2, 70)),
        )),
        write(append(73, 5, &[10; 3])),
        write(promise(5, 2, 75)),
        Call::Compact(snapshot(75, 5, 20_000), 76),
    ]
}

/// A disk that fails after some steps: records written, and syncs.
#[derive(Clone, Default)]
struct Ending {
    steps: Arc<AtomicU64>,
    last: u64,
    kind: Option<io::ErrorKind>,
}

impl Ending {
    fn step(&self) -> io::Result<()> {
        match self.steps.fetch_add(1, SeqCst) {
            step if step >= self.last => Err(self.kind.unwrap_or(io::ErrorKind::Other).into()),
            _ => Ok(()),
        }
    }
}

impl Disk for Ending {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.step()?;
        file.sync_data()
    }

    fn wrote(&mut self) -> io::Result<()> {
        self.step()
    }
}

#[test]
fn crash_at_any_step_keeps_turns_atomic() {
    let story = story();
    let mut last = 0;
    loop {
        let dir = tempfile::tempdir().unwrap();
        let ending = Ending {
            last,
            ..Ending::default()
        };
        let mut made = 0;
        if let Ok(store) = SledStore::open_with(dir.path(), Box::new(ending)) {
            let mut log = StoredLog::new(store);
            made = story
                .iter()
                .take_while(|call| call.make(&mut log).is_ok())
                .count();
        }
        let mut log = StoredLog::open(dir.path()).unwrap();
        let found = log.load().unwrap();
        let whole = |calls: usize| calls <= story.len() && same(&found, &after(&story[..calls]));
        assert!(
            whole(made) || whole(made + 1),
            "after {last} steps and {made} calls: {}",
            summary(&found)
        );
        if made == story.len() {
            break;
        }
        // It continues from there.
        let done = if whole(made) { made } else { made + 1 };
        for (at, call) in story.iter().enumerate().skip(done) {
            call.make(&mut log)
                .unwrap_or_else(|error| panic!("call {at}: {error}"));
        }
        assert!(same(&log.load().unwrap(), &after(&story)));
        last += 1;
    }
    assert!(last > 80, "the story has only {last} steps");
}

#[test]
fn full_disk_loses_nothing() {
    let story = story();
    for last in (3..60).step_by(7) {
        let dir = tempfile::tempdir().unwrap();
        let ending = Ending {
            last,
            kind: Some(io::ErrorKind::StorageFull),
            ..Ending::default()
        };
        let store = SledStore::open_with(dir.path(), Box::new(ending)).unwrap();
        let mut log = StoredLog::new(store);
        let mut results = story.iter().map(|call| call.make(&mut log));
        let made = results.by_ref().take_while(Result::is_ok).count();
        drop(results);
        let error = log.write(&append(1, 1, &[1])).unwrap_err();
        assert!(matches!(error, LogError::Disk { .. }), "{error}");
        drop(log);
        let mut log = StoredLog::open(dir.path()).unwrap();
        let found = log.load().unwrap();
        let whole = |calls: usize| same(&found, &after(&story[..calls]));
        assert!(
            whole(made) || whole(made + 1),
            "{last}: {}",
            summary(&found)
        );
        drop(log);
    }
}

#[test]
fn full_disk_error_is_clear() {
    let dir = tempfile::tempdir().unwrap();
    let ending = Ending {
        last: 3,
        kind: Some(io::ErrorKind::StorageFull),
        ..Ending::default()
    };
    let store = SledStore::open_with(dir.path(), Box::new(ending)).unwrap();
    let mut log = StoredLog::new(store);
    let errors = (1..9).filter_map(|index| log.write(&append(index, 1, &[1])).err());
    assert_eq!(
        errors.take(1).next().unwrap().to_string(),
        "the log cannot be written: the disk of the store is full: make room there and start again"
    );
}
