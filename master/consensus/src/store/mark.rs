//! The mark beside a log: the number of the newest write that was synced.
//!
//! sled takes the first thing that it cannot read near the end of its file for the end. After a crash that is right, for
//! what follows was never synced; but where a disk has damaged what was, it silently forgets all later writes, votes among them. The
//! mark tells the two apart: whoever reads less than was synced has a damaged log.
//!
//! It is written after each sync and not synced itself, so that it costs a write into memory: after a loss of power it may be older than the
//! log, and then notices less. It never says more than was synced. Without a readable mark nothing is noticed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::log::LogError;

/// Its name in the log's directory.
const NAME: &str = "synced";
/// The number and its checksum.
const BYTES: usize = 12;

/// The file, open for as long as its log is.
#[derive(Debug)]
pub(super) struct Mark(File);

impl Mark {
    /// The mark of the log in this directory; made if there is none.
    pub(super) fn open(dir: &Path) -> Result<Self, LogError> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        options
            .open(dir.join(NAME))
            .map(Mark)
            .map_err(|error| cannot(&error))
    }

    /// Everything up to this write has been synced.
    pub(super) fn set(&self, number: u64) -> Result<(), LogError> {
        let written = self.0.write_all_at(&encode(number), 0);
        written.map_err(|error| cannot(&error))
    }

    /// An error if what was read ends before the mark.
    pub(super) fn check(&self, newest: u64) -> Result<(), LogError> {
        let mut bytes = [0; BYTES];
        let read = self.0.read_exact_at(&mut bytes, 0);
        let synced = read.ok().and_then(|()| decode(&bytes)).unwrap_or(0);
        if newest >= synced {
            return Ok(());
        }
        Err(LogError::Damaged {
            place: format!("write {}", newest + 1),
            reason: format!(
                "writes up to {synced} were synced, and nothing can be read after write {newest}"
            ),
        })
    }
}

fn cannot(error: &io::Error) -> LogError {
    LogError::Disk {
        reason: format!("the mark beside it: {error}"),
    }
}

fn encode(number: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (front, back) = bytes.split_at_mut(8);
    front.copy_from_slice(&number.to_be_bytes());
    back.copy_from_slice(&crc32c::crc32c(front).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> Option<u64> {
    let (front, _) = bytes.split_first_chunk()?;
    let number = u64::from_be_bytes(*front);
    (encode(number) == *bytes).then_some(number)
}

#[cfg(test)]
mod tests {
    use storage::sled_store::SledStore;

    use super::*;
    use crate::log::{Entry, EntryKind, Identity, LogStore, Write};
    use crate::store::StoredLog;

    #[test]
    fn a_mark_that_is_not_whole_says_nothing() {
        assert_eq!(decode(&encode(7)), Some(7));
        let mut torn = encode(7);
        torn[7] ^= 1;
        assert_eq!(decode(&torn), None);
        let dir = tempfile::tempdir().unwrap();
        let mark = Mark::open(dir.path()).unwrap();
        assert_eq!(mark.check(0), Ok(()), "a new one");
        mark.set(3).unwrap();
        assert_eq!(mark.check(3), Ok(()));
        mark.0.write_all_at(&torn, 0).unwrap();
        assert_eq!(mark.check(0), Ok(()));
    }

    fn entry(index: u64) -> Write {
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

    /// Wherever a disk turns over a bit of what was synced, the log either is whole all the same or says that it is damaged.
    #[test]
    fn a_log_that_a_disk_has_damaged_is_never_taken_for_a_shorter_one() {
        for damaged in 1..=5 {
            let dir = tempfile::tempdir().unwrap();
            let mut log = StoredLog::open(dir.path()).unwrap();
            log.claim(Identity { id: 1, group: 9 }).unwrap();
            for index in 1..=5 {
                log.write(&entry(index)).unwrap();
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
}
