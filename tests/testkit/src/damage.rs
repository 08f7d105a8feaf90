//! Damage to the files of a closed store.

use std::path::{Path, PathBuf};
use std::{fs, io};

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
