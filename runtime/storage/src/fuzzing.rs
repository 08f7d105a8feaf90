//! The readers of records and journal entries, for the fuzz test of the whole tree (`tests/fuzz.rs`) and for nobody else.
//!
//! The forms on the disk are this crate's own affair, and the test stands on another floor. Pure: bytes in, bytes out.

use crate::{StoreError, journal, record};

/// Opens a record stored under this key and seals again what was in it. Whatever opens comes back as the same bytes.
pub fn reseal(key: &[u8], bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let opened = record::open(key, bytes)?;
    Ok(record::seal(key, opened.epoch, opened.value))
}

/// Seals a value, so that a test has records to spoil.
pub fn seal(key: &[u8], epoch: u64, value: &[u8]) -> Vec<u8> {
    record::seal(key, epoch, value)
}

/// Reads the journal slot whose only part holds this body, and gives the body of what was read. `None`: the slot is empty.
pub fn reread_journal(body: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    const NUMBER: u64 = 2;
    let slot = journal::slot(NUMBER);
    let key = journal::part_key(slot, 0);
    let sealed = record::seal(&key, NUMBER, body);
    let entry = journal::read(slot, |asked| Ok((asked == key).then(|| sealed.clone())))?;
    let Some(entry) = entry else {
        return Ok(None);
    };
    let parts = journal::parts(entry.number, &entry.changes);
    let head = parts.last().map_or(&[][..], |(_, sealed)| sealed);
    Ok(Some(record::open(&key, head)?.value.to_vec()))
}
