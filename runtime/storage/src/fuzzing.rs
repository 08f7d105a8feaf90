//! The readers of records and journal entries, and damage to a store's files, exported only for the
//! workspace's tests (`tests/fuzz.rs`, `tests/damage.rs`). The readers are pure: bytes in, bytes
//! out.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{StoreError, journal, record};

/// Damages one file of the closed store in this directory: flips a bit, truncates it, or removes
/// it. Describes the damage. `below` draws a number from 0 to its argument, exclusive.
pub fn damage(dir: &Path, mut below: impl FnMut(u64) -> u64) -> io::Result<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    // Nearly all bytes of a store are in its log, so half of all damage is there.
    let log = files.iter().position(|path| path.ends_with("db"));
    let chosen = match (below(2), log) {
        (0, Some(log)) => log,
        _ => below(files.len().max(1) as u64) as usize,
    };
    let Some(path) = files.get(chosen) else {
        return Ok("there is no file".to_owned());
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = fs::read(path)?;
    // The log is allocated ahead: the zeros at its end are unused.
    let used = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    if used == 0 || below(6) == 0 {
        fs::remove_file(path)?;
        return Ok(format!("{name} is removed"));
    }
    let (at, bit) = (below(used as u64) as usize, below(8));
    let damage = match below(5) {
        0 => {
            bytes.truncate(at);
            format!("{name} is cut off at byte {at} of {used}")
        }
        _ => {
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} of {used} of {name} is flipped")
        }
    };
    fs::write(path, bytes)?;
    Ok(damage)
}

/// Opens a record stored under this key and seals its content again. A valid record comes back as
/// the same bytes.
pub fn reseal(key: &[u8], bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let opened = record::open(key, bytes)?;
    Ok(record::seal(key, opened.epoch, opened.value))
}

/// Seals a value, for tests that damage records.
pub fn seal(key: &[u8], epoch: u64, value: &[u8]) -> Vec<u8> {
    record::seal(key, epoch, value)
}

/// Reads a journal slot with this body as its only part, and returns the body of the entry.
/// `None`: the slot is empty.
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
