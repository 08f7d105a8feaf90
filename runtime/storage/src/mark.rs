//! The marker beside a store: the number of its newest synced write, and a sum over all records
//! after it.
//!
//! sled takes damage near the end of its log for an incomplete write, and skips the rest of an
//! older segment that it cannot read. After a crash the first is right, because the rest was never
//! synced. If a disk has damaged synced content, both lose records silently. The marker detects
//! that: a store that has less than its marker, or other records at the same write, is damaged.
//!
//! It is written after each sync and not synced itself (except when a store is opened), so it costs
//! only a write to memory. After a loss of power it may be older than the store, and then detects
//! less; it never claims more than was synced. A store without a marker, from an earlier version,
//! gets one when it is opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::record;

/// The name of the marker's file in the store's directory.
pub const NAME: &str = "synced";
/// The first byte of a marker. A marker of 12 bytes is from an earlier version: it counted writes
/// of a group's log.
const FORMAT: u8 = 1;
/// The format, three numbers and a checksum.
const BYTES: usize = 1 + 3 * 8 + 4;

/// The state of a store after its newest synced write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncedState {
    /// The number of that write.
    pub number: u64,
    /// How many records there are.
    pub records: u64,
    /// The checksums of all records, added up modulo 2^64.
    pub sum: u64,
}

impl SyncedState {
    /// Adds a record with this stored form.
    pub(crate) fn add(&mut self, stored: &[u8]) {
        let checksum = u64::from(record::stored_checksum(stored));
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(checksum);
    }

    /// Removes a record that was added.
    pub(crate) fn subtract(&mut self, stored: &[u8]) {
        let checksum = u64::from(record::stored_checksum(stored));
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(checksum);
    }

    /// Describes the loss if a store with the content `found` lacks records of `self`; `None` if it
    /// does not.
    pub(crate) fn missing(&self, found: &SyncedState) -> Option<String> {
        let SyncedState { number, .. } = self;
        if found.number < *number {
            let found = found.number;
            return Some(format!(
                "write {number} was synced, and the newest that can be read is write {found}"
            ));
        }
        if found.number == *number && found != self {
            let (synced, records) = (self.records, found.records);
            return Some(format!(
                "{synced} records were synced up to write {number}, and {records} can be read, or their content is older"
            ));
        }
        None
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [FORMAT; BYTES];
        let numbers = [self.number, self.records, self.sum].map(u64::to_be_bytes);
        bytes[1..BYTES - 4].copy_from_slice(&numbers.concat());
        let checksum = crc32c::crc32c(&bytes[..BYTES - 4]).to_be_bytes();
        bytes[BYTES - 4..].copy_from_slice(&checksum);
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut numbers = bytes[1..BYTES - 4].as_chunks::<8>().0.iter();
        let mut next = || numbers.next().copied().map(u64::from_be_bytes);
        let synced = SyncedState {
            number: next()?,
            records: next()?,
            sum: next()?,
        };
        (synced.encode() == *bytes).then_some(synced)
    }
}

/// The marker's file, open as long as its store is.
#[derive(Debug)]
pub(crate) struct SyncMarker(File);

impl SyncMarker {
    /// The marker of the store in this directory; created if there is none.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        options.open(dir.join(NAME)).map(SyncMarker)
    }

    /// The marker's content; `None` if it is new, from an earlier version, or damaged.
    pub(crate) fn read(&self) -> Option<SyncedState> {
        let mut bytes = [0; BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let synced = SyncedState::decode(&bytes);
        if synced.is_none() {
            tracing::warn!(
                file = NAME,
                "ignoring damaged marker: the store is not checked for lost writes"
            );
        }
        synced
    }

    /// Records this state, which is completely synced.
    pub(crate) fn set(&self, synced: SyncedState) -> io::Result<()> {
        self.0.write_all_at(&synced.encode(), 0)
    }

    /// Syncs the marker, so that it survives a loss of power.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNCED: SyncedState = SyncedState {
        number: 7,
        records: 3,
        sum: 99,
    };

    #[test]
    fn damaged_or_older_marker_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mark = SyncMarker::open(dir.path()).unwrap();
        assert_eq!(mark.read(), None, "a new one");
        mark.0.write_all_at(&[0; 12], 0).unwrap();
        assert_eq!(mark.read(), None, "of an earlier version");
        mark.set(SYNCED).unwrap();
        assert_eq!(mark.read(), Some(SYNCED));
        for at in 0..BYTES {
            let mut bytes = SYNCED.encode();
            bytes[at] ^= 1;
            mark.0.write_all_at(&bytes, 0).unwrap();
            assert_eq!(mark.read(), None, "byte {at}");
        }
    }

    #[test]
    fn only_less_or_other_content_counts_as_missing() {
        let later = SyncedState {
            number: 8,
            ..SyncedState::default()
        };
        assert_eq!(SYNCED.missing(&SYNCED), None);
        assert_eq!(SYNCED.missing(&later), None, "the mark may be older");
        let earlier = SyncedState {
            number: 6,
            ..SYNCED
        };
        let reason = SYNCED.missing(&earlier).unwrap();
        assert_eq!(
            reason,
            "write 7 was synced, and the newest that can be read is write 6"
        );
        for other in [
            SyncedState {
                records: 2,
                ..SYNCED
            },
            SyncedState { sum: 98, ..SYNCED },
        ] {
            let reason = SYNCED.missing(&other).unwrap();
            assert!(reason.contains("up to write 7"), "{reason}");
        }
    }
}
