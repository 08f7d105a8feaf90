//! Space: usage of the work directory's disk, and whether it takes writes.
//!
//! Blocking.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Bytes of a test write: enough for the checkpoints of a few tasks.
const TEST_WRITE: usize = 1 << 20;

/// The used share of the disk with this directory, 0 to 1: of its bytes or inodes, whichever is
/// greater.
pub fn usage(path: &Path) -> io::Result<f64> {
    let disk = statvfs(path)?;
    let share = |total: u64, free: u64| match total {
        0 => 0.0, // The file system does not count them.
        _ => total.saturating_sub(free) as f64 / total as f64,
    };
    let bytes = share(disk.blocks(), disk.blocks_free());
    Ok(bytes.max(share(disk.files(), disk.files_free())))
}

/// Writes, syncs and removes a file in this directory.
pub fn test_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(".write-test");
    // Left by an earlier process, or a foreign link. `create_new` follows no link.
    let _ = fs::remove_file(&path);
    let write = || {
        let mut file = File::create_new(&path)?;
        file.write_all(&vec![0; TEST_WRITE])?;
        file.sync_data()
    };
    let written = write();
    // Even after a failed write, to free its space.
    let removed = fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_write_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        fs::write(&precious, "0123456789").unwrap();
        let link = directory.path().join(".write-test");
        std::os::unix::fs::symlink(&precious, link).unwrap();
        test_write(directory.path()).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"0123456789");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn test_write_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        test_write(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(test_write(&directory.path().join("absent")).is_err());
        let usage = usage(directory.path()).unwrap();
        assert!((0.0..=1.0).contains(&usage), "{usage}");
        assert!(super::usage(&directory.path().join("absent")).is_err());
    }
}
