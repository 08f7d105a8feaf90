//! Space: how full the disk of the work directory is, and whether it takes writes.
//!
//! Blocking functions. Decides nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// The bytes of a test write: enough for the records of a few tasks.
const TEST_WRITE: usize = 1 << 20;

/// The share in use of the disk with this directory, 0 to 1: of its bytes or of its inodes, whichever is greater.
pub fn usage(path: &Path) -> io::Result<f64> {
    let disk = statvfs(path)?;
    let share = |total: u64, free: u64| match total {
        0 => 0.0, // The file system does not count them.
        _ => total.saturating_sub(free) as f64 / total as f64,
    };
    let bytes = share(disk.blocks(), disk.blocks_free());
    Ok(bytes.max(share(disk.files(), disk.files_free())))
}

/// Writes a file in this directory, has it on the disk, and removes it.
pub fn test_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(".write-test");
    // Of an earlier process, or a stranger's link: a new file is made in any case, which follows none.
    let _ = fs::remove_file(&path);
    let write = || {
        let mut file = File::create_new(&path)?;
        file.write_all(&vec![0; TEST_WRITE])?;
        file.sync_data()
    };
    let written = write();
    // What was written of it takes room.
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
    fn a_directory_that_takes_writes_keeps_nothing_of_the_test() {
        let directory = tempfile::tempdir().unwrap();
        test_write(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(test_write(&directory.path().join("absent")).is_err());
        let usage = usage(directory.path()).unwrap();
        assert!((0.0..=1.0).contains(&usage), "{usage}");
        assert!(super::usage(&directory.path().join("absent")).is_err());
    }
}
