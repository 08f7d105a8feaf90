//! The mark beside a store: which write was the newest that was synced, and a sum over all records as they were after it.
//!
//! sled takes damage near the end of its log for a write that never ended, and skips the rest of an older segment whose
//! content it cannot read. After a crash the first is right, because what follows was never synced. Where a disk has damaged
//! synced content, both lose records silently. The mark tells the two apart: a store that is opened and has less than its
//! mark, or other records than its mark at the same write, is damaged.
//!
//! It is written after each sync and not synced itself (except at an opening), so it costs a write into memory. After a loss
//! of power it may be older than the store, and then notices less; it never claims more than was synced. A store without a
//! mark, as an earlier version leaves it, gets one when it is opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::record;

/// The name of its file in the store's directory.
pub const NAME: &str = "synced";
/// The first byte of a mark. A mark of 12 bytes is of an earlier version: it counted writes of a group's log.
const FORMAT: u8 = 1;
/// The format, three numbers and a checksum.
const BYTES: usize = 1 + 3 * 8 + 4;

/// The state of a store after its newest synced write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    /// The number of that write.
    pub number: u64,
    /// How many records there are.
    pub records: u64,
    /// The checksums of all records, added up modulo 2^64.
    pub sum: u64,
}

impl Synced {
    /// Counts one more record, stored as these bytes.
    pub(crate) fn add(&mut self, stored: &[u8]) {
        let checksum = u64::from(record::stored_checksum(stored));
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(checksum);
    }

    /// A record that was counted is there no more.
    pub(crate) fn subtract(&mut self, stored: &[u8]) {
        let checksum = u64::from(record::stored_checksum(stored));
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(checksum);
    }

    /// Why a store with this content, `found`, has lost something since `self`; `None` if it has not.
    pub(crate) fn missing(&self, found: &Synced) -> Option<String> {
        let Synced { number, .. } = self;
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
        let synced = Synced {
            number: next()?,
            records: next()?,
            sum: next()?,
        };
        (synced.encode() == *bytes).then_some(synced)
    }
}

/// The file, open for as long as its store is.
#[derive(Debug)]
pub(crate) struct Mark(File);

impl Mark {
    /// The mark of the store in this directory; made if there is none.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        options.open(dir.join(NAME)).map(Mark)
    }

    /// What it says; nothing where it is new, of an earlier version, or damaged.
    pub(crate) fn read(&self) -> Option<Synced> {
        let mut bytes = [0; BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let synced = Synced::decode(&bytes);
        if synced.is_none() {
            tracing::warn!(
                file = NAME,
                "the mark beside a store is damaged: the store is not checked against it"
            );
        }
        synced
    }

    /// The store is in this state, and everything of it is synced.
    pub(crate) fn set(&self, synced: Synced) -> io::Result<()> {
        self.0.write_all_at(&synced.encode(), 0)
    }

    /// Makes the mark survive a loss of power.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNCED: Synced = Synced {
        number: 7,
        records: 3,
        sum: 99,
    };

    #[test]
    fn a_damaged_or_older_mark_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mark = Mark::open(dir.path()).unwrap();
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
    fn only_less_or_other_content_is_missing_something() {
        let later = Synced {
            number: 8,
            ..Synced::default()
        };
        assert_eq!(SYNCED.missing(&SYNCED), None);
        assert_eq!(SYNCED.missing(&later), None, "the mark may be older");
        let earlier = Synced {
            number: 6,
            ..SYNCED
        };
        let reason = SYNCED.missing(&earlier).unwrap();
        assert_eq!(
            reason,
            "write 7 was synced, and the newest that can be read is write 6"
        );
        for other in [
            Synced {
                records: 2,
                ..SYNCED
            },
            Synced { sum: 98, ..SYNCED },
        ] {
            let reason = SYNCED.missing(&other).unwrap();
            assert!(reason.contains("up to write 7"), "{reason}");
        }
    }
}
