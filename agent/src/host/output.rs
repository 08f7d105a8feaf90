//! Opens the files of a container's output, in a directory that its task may change.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag};

/// Mode of the files.
pub const FILE_MODE: u32 = 0o640;

/// Opens a file for a container's output. The directory may belong to the task's user already, and
/// the caller may be root: a link, a pipe, a device or a file with another name elsewhere is
/// refused, and opening does not wait.
pub fn open_output(path: &Path) -> io::Result<fs::File> {
    let refused = || io::Error::other("not a regular file with one name");
    // To open a device may have an effect on it.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(refused());
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .custom_flags(flags.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 {
        return Err(refused());
    }
    // Only the opening must not wait.
    nix::fcntl::fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a reviewer: the zygote, as root, wrote through a link of a task.
    #[test]
    fn output_goes_into_a_file_of_its_own_only() {
        let sandbox = tempfile::tempdir().unwrap();
        let at = |name: &str| sandbox.path().join(name);
        fs::write(at("victim"), "").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        fs::hard_link(at("victim"), at("second")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "second", "pipe"] {
            assert!(open_output(&at(name)).is_err(), "{name}");
        }
        let mut output = open_output(&at("stdout")).unwrap();
        std::io::Write::write_all(&mut output, b"a").unwrap();
        std::io::Write::write_all(&mut open_output(&at("stdout")).unwrap(), b"b").unwrap();
        assert_eq!(fs::read(at("stdout")).unwrap(), b"ab");
    }
}
