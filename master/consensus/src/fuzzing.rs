//! Decoders of the log, of snapshots and of dump files, only for the fuzz test of the whole tree
//! (`tests/fuzz.rs`).
//!
//! The encodings are private to this crate. Pure, except for a store in memory.

use bytes::Bytes;
use runtime::wire::codec::Garbled;
use storage::simulated::SimulatedDisk;
use storage::{Changes, Store};

use crate::dump::{self, Dump, FileFault};
use crate::log::{Loaded, LogError, LogStore};
use crate::replica::seen::{self, Seen, Ticket};
use crate::store::{StoredLog, fuzzing};

pub use crate::store::fuzzing::{reread_chunk, reread_meta};

/// Loads a log with these bodies under these keys, each with a valid checksum, so that only their
/// content is wrong. Skips keys that are not a log's.
pub fn load(records: &[(Vec<u8>, Vec<u8>)]) -> Result<Loaded, LogError> {
    let disk = SimulatedDisk::new();
    let failed = |error: storage::StoreError| LogError::Disk {
        reason: error.to_string(),
    };
    let mut store = disk.open().map_err(failed)?;
    for (key, body) in records {
        let Some(sealed) = fuzzing::seal(key, body) else {
            continue;
        };
        let mut changes = Changes::new();
        changes.put(key.clone(), sealed);
        store.commit(changes).map_err(failed)?;
    }
    StoredLog::new(store).load()
}

/// A member's snapshot with this many recent proposals and this state of the machine.
pub fn write_snapshot(proposals: u64, machine: &[u8]) -> Result<Bytes, Garbled> {
    let mut seen = Seen::default();
    for sequence in 0..proposals {
        let (member, incarnation) = (1, 1);
        let ticket = Ticket {
            member,
            incarnation,
            sequence,
        };
        seen.add(ticket, sequence + 1);
    }
    write(&seen, machine)
}

fn write(seen: &Seen, machine: &[u8]) -> Result<Bytes, Garbled> {
    seen::pack(seen, |into| {
        into.extend_from_slice(machine);
        Ok(())
    })
}

/// Decodes a snapshot without the machine's part, and encodes it again. Returns the machine's bytes
/// with it.
pub fn reread_snapshot(bytes: &[u8]) -> Result<(Bytes, &[u8]), String> {
    let (seen, machine) = seen::unpack(bytes)?;
    let bytes = write(&seen, machine).map_err(|garbled| garbled.to_string())?;
    Ok((bytes, machine))
}

/// Decodes a dump file and encodes it again.
pub fn reread_dump(bytes: &[u8]) -> Result<Vec<u8>, FileFault> {
    let dump = dump::read_bytes(bytes)?;
    Ok(write_dump(&dump))
}

/// The file of a dump, for tests that damage it.
pub fn write_dump(dump: &Dump) -> Vec<u8> {
    let mut bytes = Vec::new();
    dump::write_bytes(&mut bytes, dump);
    bytes
}

/// Corrects both checksums of a dump file, if it is long enough.
pub fn mend_dump(bytes: &mut [u8]) {
    dump::mend(bytes);
}

/// The checksum of the log and of dumps.
pub fn sum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// The record of a turn with one empty entry, which says that this stands in so many parts.
    fn turn(number: u64, first: u64, parts: u32) -> (Vec<u8>, Vec<u8>) {
        let mut body = [number, 0, 1, 0, 0, first].map(u64::to_be_bytes).concat();
        body.extend(1_u32.to_be_bytes());
        body.extend(parts.to_be_bytes());
        body.extend([0; 12]);
        if parts == 0 {
            body.extend(1_u64.to_be_bytes());
            body.extend([0; 9]);
        }
        ([b"e", &first.to_be_bytes()[..]].concat(), body)
    }

    /// It is damaged, or it would have them; but nobody asks for what counts no more.
    #[test]
    fn stale_turn_with_many_parts_is_cheap() {
        let records = [turn(2, 1, 0), turn(1, 2, u32::MAX)];
        let loaded = load(&records).unwrap();
        assert_eq!(loaded.entries.len(), 1);
        assert_eq!(reread_chunk(&records[0].1), Some(records[0].1.clone()));
        let lacking = load(&[turn(1, 1, u32::MAX)]).unwrap_err();
        assert!(matches!(lacking, LogError::Damaged { .. }), "{lacking}");
    }

    #[test]
    fn corrected_checksums_make_a_dump_readable() {
        let mut bytes = write_dump(&Dump {
            group: 1,
            index: 2,
            term: 3,
            names: Bytes::from_static(b"n"),
            content: Bytes::from_static(b"content"),
        });
        assert_eq!(reread_dump(&bytes), Ok(bytes.clone()));
        bytes[12] ^= 1;
        assert!(matches!(reread_dump(&bytes), Err(FileFault::Header { .. })));
        mend_dump(&mut bytes);
        assert_eq!(reread_dump(&bytes), Ok(bytes));
    }
}
