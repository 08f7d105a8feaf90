//! Removal of directories that belong to tasks.
//!
//! Blocking. Follows no links and enters no mounts, so linked volumes and mounted file systems
//! stay.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Maximum open directories while a tree is removed. Tasks choose the depth; deeper directories are
/// moved up first.
const DEPTH_MAX: usize = 32;

/// Removes a directory tree of any depth.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let tree = Tree::open(path)?;
    // Terminates: each round removes up to `DEPTH_MAX` levels and moves the rest up as far.
    loop {
        let before = tree.moved.get();
        tree.empty(&tree.root, 0)?;
        if tree.moved.get() == before {
            return fs::remove_dir(path);
        }
    }
}

/// A directory tree being removed.
struct Tree {
    root: File,
    /// The mount of the root's parent. Other mounts are not entered.
    mount: String,
    moved: Cell<u64>,
}

impl Tree {
    fn open(path: &Path) -> io::Result<Self> {
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        let parent = File::open(path.parent().ok_or_else(not_found)?)?;
        let mount = mount(&parent)?;
        let name = path.file_name().ok_or_else(not_found)?;
        Ok(Self {
            root: directory_in(&parent, name, &mount)?,
            mount,
            moved: Cell::new(0),
        })
    }

    /// Empties a directory, or moves entries that are too deep to the root.
    fn empty(&self, directory: &File, depth: usize) -> io::Result<()> {
        let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
        for entry in fs::read_dir(opened)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_os_str();
            if !entry.file_type()?.is_dir() {
                unlinkat(directory.as_fd(), name, UnlinkatFlags::NoRemoveDir)?;
            } else if depth == DEPTH_MAX {
                self.move_up(directory, name)?;
            } else {
                let below = directory_in(directory, name, &self.mount)?;
                self.empty(&below, depth + 1)?;
                unlinkat(directory.as_fd(), name, UnlinkatFlags::RemoveDir)?;
            }
        }
        Ok(())
    }

    /// Moves an entry to the root of the tree, under the next free name.
    fn move_up(&self, directory: &File, name: &OsStr) -> io::Result<()> {
        loop {
            self.moved.update(|moved| moved + 1);
            let up = format!(".removed-{}", self.moved.get());
            match renameat(directory.as_fd(), name, self.root.as_fd(), up.as_str()) {
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                renamed => return Ok(renamed?),
            }
        }
    }
}

/// Opens a subdirectory. Does not follow links; another mount is an error.
fn directory_in(parent: &File, name: &OsStr, expected: &str) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = File::from(openat(parent.as_fd(), name, flags, Mode::empty())?);
    if mount(&directory)? != expected {
        let name = name.display();
        return Err(io::Error::other(format!(
            "a file system is mounted at `{name}` in it: unmount that"
        )));
    }
    Ok(directory)
}

/// The mount id of a directory. Distinguishes bind mounts of one device; available since Linux
/// 3.15.
fn mount(directory: &File) -> io::Result<String> {
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd()))?;
    let id = facts.lines().find(|line| line.starts_with("mnt_id:"));
    id.map(str::to_owned)
        .ok_or_else(|| io::Error::other("/proc/self/fdinfo has no mnt_id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_never_entered() {
        let error = Tree::open(Path::new("/proc")).err().unwrap();
        assert!(error.to_string().contains("mounted at `proc`"), "{error}");
    }
}
