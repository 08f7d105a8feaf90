//! Removal of entries: those that an entry replaces, and those of lower layers behind a whiteout.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::{DEPTH_MAX, NOFOLLOW, Unpacker, is_directory};

impl Unpacker {
    /// Removes an entry with all below it; nothing if there is none. A whiteout keeps
    /// entries of the present layer. `depth` counts the recursion, which directories bound.
    pub(super) fn remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        is_whiteout: bool,
        depth: u16,
    ) -> Result<(), Errno> {
        let found = match fs::statat(parent, name, NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_kept = is_whiteout && self.added.contains(&found.st_ino);
        if !is_directory(&found) {
            // It may be a link on the path of the last parent.
            self.parent = None;
            return match is_kept {
                true => Ok(()),
                false => fs::unlinkat(parent, name, AtFlags::empty()),
            };
        }
        if depth > DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(parent, name, flags, Mode::empty())?;
        self.remove_children(directory.as_fd(), is_whiteout, depth + 1)?;
        if is_kept {
            return Ok(());
        }
        match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // Something of the present layer is in it.
            Err(Errno::NOTEMPTY) if is_whiteout => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.parent = None;
                self.depths.remove(&found.st_ino);
                if let Some(old) = self.directories.remove(&found.st_ino) {
                    self.directory_names -= old.path.as_os_str().len();
                }
                Ok(())
            }
        }
    }

    /// Removes the entries of a directory.
    pub(super) fn remove_children(
        &mut self,
        directory: BorrowedFd<'_>,
        is_whiteout: bool,
        depth: u16,
    ) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = fs::openat(directory, ".", flags, Mode::empty())?;
        // All names first: the directory changes.
        let names: Result<Vec<CString>, Errno> = Dir::new(readable)?
            .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
            .collect();
        for name in names? {
            let name = OsStr::from_bytes(name.to_bytes());
            if name != "." && name != ".." {
                self.remove(directory, name, is_whiteout, depth)?;
            }
        }
        Ok(())
    }
}
