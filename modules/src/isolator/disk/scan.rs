//! The space that a directory takes, and a walk through all below it.
//!
//! Blocking. Its content belongs to a task, which may change it meanwhile: no link is followed, no
//! mount entered, and a file with several names counts once.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// Maximum depth, since each level takes a descriptor.
const DEPTH_MAX: usize = 256;
/// Bytes of a block in `st_blocks`.
const BLOCK: u64 = 512;
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A thing that a walk has reached.
pub(super) enum Found<'a> {
    /// An open directory.
    Directory(BorrowedFd<'a>),
    /// Anything else, by its directory and name.
    Other(BorrowedFd<'a>, &'a CStr),
}

/// Opens a directory that is not a link.
pub(super) fn open(directory: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, directory, DIRECTORY, Mode::empty())?)
}

/// Whether this is the error for an entry that was removed or replaced meanwhile.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// The bytes on disk of this directory with all below it. Zero if it does not exist. Folders deeper
/// than 256 levels are an error: nobody knows what is below.
pub(super) fn usage(directory: &Path) -> io::Result<u64> {
    let root = match open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    // Files with several names.
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    walk(root, |stat, found| {
        let is_directory = matches!(found, Found::Directory(_));
        if is_directory || stat.st_nlink == 1 || seen.insert(stat.st_ino) {
            bytes += blocks(stat);
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Visits this directory, then all below it. An error ends the walk.
pub(super) fn walk(
    root: OwnedFd,
    mut visit: impl FnMut(&Stat, Found<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let stat = fstat(&root)?;
    let device = stat.st_dev;
    visit(&stat, Found::Directory(root.as_fd()))?;
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
        let parent = directory.fd()?;
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(error) if is_gone(error) => continue,
            stat => stat?,
        };
        if stat.st_dev != device {
            continue;
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            visit(&stat, Found::Other(parent, name))?;
            continue;
        }
        let inner = match openat(parent, name, DIRECTORY, Mode::empty()) {
            Err(error) if is_gone(error) => continue,
            opened => opened?,
        };
        if open.len() >= DEPTH_MAX {
            return Err(io::Error::other(format!("folders deeper than {DEPTH_MAX}")));
        }
        visit(&stat, Found::Directory(inner.as_fd()))?;
        open.push(Dir::new(inner)?);
    }
    Ok(())
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
