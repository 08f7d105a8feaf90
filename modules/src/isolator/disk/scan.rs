//! The space that a directory takes.
//!
//! Blocking. Its content belongs to a task, which may change it meanwhile: no link is followed, no
//! mount entered, and a file with several names counts once.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// Maximum depth, since each level takes a descriptor.
const DEPTH_MAX: usize = 256;
/// Bytes of a block in `st_blocks`.
const BLOCK: u64 = 512;

/// The bytes on disk of this directory with all below it. Zero if it does not exist. Folders deeper
/// than 256 levels are an error: nobody knows what is below.
pub(super) fn usage(directory: &Path) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match openat(CWD, directory, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        opened => opened?,
    };
    let stat = fstat(&root)?;
    let mut scan = Scan {
        device: stat.st_dev,
        bytes: blocks(&stat),
        seen: BTreeSet::new(),
    };
    let mut open = vec![Dir::new(root)?];
    while let Some(directory) = open.last_mut() {
        let Some(entry) = directory.next() else {
            open.pop();
            continue;
        };
        // A directory that is being removed ends early.
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if let Some(inner) = scan.count(directory.fd()?, name)? {
            if open.len() >= DEPTH_MAX {
                return Err(io::Error::other(format!("folders deeper than {DEPTH_MAX}")));
            }
            open.push(Dir::new(inner)?);
        }
    }
    Ok(scan.bytes)
}

struct Scan {
    device: u64,
    bytes: u64,
    /// Files with several names.
    seen: BTreeSet<u64>,
}

impl Scan {
    /// Counts an entry. A directory is returned open.
    fn count(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
        let gone = |error: Errno| match error {
            // Removed or replaced meanwhile.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Ok(None),
            other => Err(io::Error::from(other)),
        };
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => return gone(error),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if stat.st_dev != self.device {
            return Ok(None);
        }
        if is_directory || stat.st_nlink == 1 || self.seen.insert(stat.st_ino) {
            self.bytes += blocks(&stat);
        }
        if !is_directory {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags, Mode::empty()) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => gone(error),
        }
    }
}

fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn space_of_a_tree_is_counted_once_and_without_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let empty = usage(path).unwrap();
        std::fs::write(path.join("a"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(path.join("a"), path.join("again")).unwrap();
        symlink("/", path.join("link")).unwrap();
        std::fs::create_dir_all(path.join("b/c")).unwrap();
        std::fs::write(path.join("b/c/d"), vec![1; 50_000]).unwrap();
        let used = usage(path).unwrap() - empty;
        assert!((150_000..300_000).contains(&used), "{used}");
        // A sparse file takes no space.
        let sparse = std::fs::File::create(path.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(usage(path).unwrap() - empty < 300_000);
        assert_eq!(usage(&path.join("missing")).unwrap(), 0);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directory.path().to_owned();
        for _ in 0..DEPTH_MAX {
            path.push("d");
        }
        std::fs::create_dir_all(&path).unwrap();
        let error = usage(directory.path()).unwrap_err();
        assert!(error.to_string().contains("deeper than 256"), "{error}");
    }
}
