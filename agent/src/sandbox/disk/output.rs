//! Output: bounds a task's `stdout` and `stderr`, like `logrotate` with `copytruncate`.
//!
//! Blocking. When a file exceeds the bound, its last bytes are copied to `stdout.1` and the file is
//! truncated, since tasks append through their own descriptor. Lines written between the two steps
//! are lost. The directory belongs to the task, so links are not followed and files with several
//! names are left alone.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::host::beneath::path_of;

/// The bounded files and their rotated copies.
const FILES: [(&str, &str); 2] = [("stdout", "stdout.1"), ("stderr", "stderr.1")];
/// A rotated copy while it is being written.
const UNFINISHED: &str = ".output.unfinished";

/// Bounds each output file of this sandbox to `max` bytes. Absent files are no error, and an error
/// with one file does not stop the others.
pub fn bound(sandbox: &Path, max: u64) -> io::Result<()> {
    let directory = match File::open(sandbox) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let rotated = FILES.map(|(name, older)| rotate(&directory, name, older, max));
    rotated.into_iter().collect()
}

fn rotate(directory: &File, name: &str, older: &str, max: u64) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = match openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(found) => File::from(found),
        Err(Errno::ENOENT) => return Ok(()), // Removed by the task.
        Err(error) => return Err(error.into()),
    };
    let metadata = found.metadata()?;
    // The task may have put anything in its place; to open a device may have an effect on it.
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.len() <= max {
        return Ok(());
    }
    // A task that holds a lease on the file would make a usual open wait for most of a minute.
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path_of(&found));
    let file = match opened {
        // The next pass tries again.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        opened => opened?,
    };
    let copied = copy(directory, &file, older, max);
    // Even if the copy failed: the bound comes first.
    file.set_len(0)?;
    copied
}

/// Copies the last `max` bytes. The task chooses the length, and a sparse file may claim a
/// petabyte.
fn copy(directory: &File, mut file: &File, older: &str, max: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let remove = || unlinkat(directory.as_fd(), UNFINISHED, UnlinkatFlags::NoRemoveDir);
    let _ = remove();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let made = openat(
        directory.as_fd(),
        UNFINISHED,
        flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?;
    let mut made = File::from(made);
    let mut whole = || {
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(max)))?;
        io::copy(&mut file.take(max), &mut made)?;
        made.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))?;
        fchown(&made, Some(metadata.uid()), Some(metadata.gid()))?;
        renameat(directory.as_fd(), UNFINISHED, directory.as_fd(), older)?;
        Ok(())
    };
    let copied = whole();
    if copied.is_err() {
        let _ = remove();
    }
    copied
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn sandbox() -> tempfile::TempDir {
        let sandbox = tempfile::tempdir().unwrap();
        fs::write(sandbox.path().join("stderr"), "").unwrap();
        sandbox
    }

    #[test]
    fn output_beyond_the_bound_becomes_the_older_part() {
        let sandbox = sandbox();
        let path = |name: &str| sandbox.path().join(name);
        let mut task = File::options()
            .append(true)
            .create(true)
            .open(path("stdout"))
            .unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        task.write_all(b"0123456789").unwrap();
        bound(sandbox.path(), 10).unwrap();
        assert_eq!(
            (read("stdout").as_str(), read("stdout.1").as_str()),
            ("0123456789", "")
        );
        task.write_all(b"a").unwrap();
        bound(sandbox.path(), 10).unwrap();
        assert_eq!(
            (read("stdout").as_str(), read("stdout.1").as_str()),
            ("", "123456789a")
        );
        task.write_all(b"and so on, beyond").unwrap();
        assert_eq!(
            read("stdout"),
            "and so on, beyond",
            "the task goes on at the start"
        );
        bound(sandbox.path(), 10).unwrap();
        assert_eq!(
            read("stdout.1"),
            "on, beyond",
            "the oldest part is gone, and what exceeds the bound"
        );
        let mode = fs::metadata(path("stdout.1")).unwrap().mode();
        assert_eq!(mode, fs::metadata(path("stdout")).unwrap().mode());
        assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 3);
    }

    #[test]
    fn files_outside_the_sandbox_are_never_cut() {
        let (sandbox, outside) = (sandbox(), tempfile::tempdir().unwrap());
        let precious = outside.path().join("precious");
        fs::write(&precious, "0123456789").unwrap();
        symlink(&precious, sandbox.path().join("stdout")).unwrap();
        fs::remove_file(sandbox.path().join("stderr")).unwrap();
        fs::hard_link(&precious, sandbox.path().join("stderr")).unwrap();
        bound(sandbox.path(), 1).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"0123456789");
        // The rotated copy's name is a link too.
        fs::remove_file(sandbox.path().join("stderr")).unwrap();
        fs::write(sandbox.path().join("stderr"), "own").unwrap();
        symlink(&precious, sandbox.path().join("stderr.1")).unwrap();
        symlink(&precious, sandbox.path().join(UNFINISHED)).unwrap();
        bound(sandbox.path(), 1).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"0123456789");
        assert_eq!(fs::read(sandbox.path().join("stderr.1")).unwrap(), b"n");
    }

    #[test]
    fn one_files_failure_leaves_no_other_unbounded() {
        let sandbox = sandbox();
        let path = |name: &str| sandbox.path().join(name);
        fs::create_dir(path("stdout.1")).unwrap();
        fs::write(path("stdout"), "0123456789").unwrap();
        fs::write(path("stderr"), "0123456789").unwrap();
        assert!(bound(sandbox.path(), 4).is_err());
        assert_eq!(fs::metadata(path("stdout")).unwrap().len(), 0);
        assert_eq!(fs::metadata(path("stderr")).unwrap().len(), 0);
        assert_eq!(fs::read(path("stderr.1")).unwrap(), b"6789");
    }

    #[test]
    fn a_sparse_file_is_copied_up_to_the_bound() {
        let sandbox = sandbox();
        let sparse = File::create(sandbox.path().join("stdout")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        bound(sandbox.path(), 10).unwrap();
        assert_eq!(sparse.metadata().unwrap().len(), 0);
        assert_eq!(fs::read(sandbox.path().join("stdout.1")).unwrap(), [0; 10]);
    }

    #[test]
    fn non_files_are_left_alone() {
        let sandbox = sandbox();
        nix::unistd::mkfifo(&sandbox.path().join("stdout"), Mode::S_IRWXU).unwrap();
        fs::remove_file(sandbox.path().join("stderr")).unwrap();
        fs::create_dir(sandbox.path().join("stderr")).unwrap();
        bound(sandbox.path(), 0).unwrap();
        bound(&sandbox.path().join("removed"), 0).unwrap();
    }
}
