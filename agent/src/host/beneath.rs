//! Paths below a directory that strangers may have filled with links.
//!
//! The kernel resolves them (`openat2`): links lead to places below the directory, or nowhere.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};

/// A directory below which paths are resolved.
#[derive(Debug)]
pub(crate) struct Beneath(OwnedFd);

/// What a mount covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A file of any other kind.
    File,
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Beneath {
    /// The directory at this path of the host.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self(opened))
    }

    /// What is at this path. An absolute one starts here, too, as do absolute links.
    pub(crate) fn find(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlag::O_PATH, Mode::empty())
    }

    /// The file at this path, to be read.
    pub(crate) fn read(&self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        Ok(File::from(self.resolve(path, flags, Mode::empty())?))
    }

    /// What is at this path; if nothing is, a new directory or empty file, with the directories
    /// above it.
    pub(crate) fn find_or_make(&self, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
        match self.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut made = PathBuf::new();
        let mut names = path.components().filter(|one| *one != Component::RootDir);
        let mut next = names.next();
        while let Some(name) = next {
            next = names.next();
            let parent = match made.as_os_str().is_empty() {
                true => self.0.try_clone()?,
                false => self.find(&made)?,
            };
            made.push(name);
            let is_last = next.is_none();
            match (is_last, kind) {
                (true, Kind::File) => {
                    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW;
                    self.resolve(&made, flags, Mode::from_bits_truncate(0o644))?;
                }
                _ => make_directory(parent.as_fd(), name)?,
            }
        }
        self.find(path)
    }

    fn resolve(&self, path: &Path, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Ok(openat2(&self.0, path, how)?)
    }
}

fn make_directory(parent: BorrowedFd<'_>, name: Component<'_>) -> io::Result<()> {
    // `..` and `.` exist everywhere.
    match mkdirat(parent, name.as_os_str(), Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The path by which system calls that take only paths reach an open file.
pub(crate) fn path_of(fd: &impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_never_lead_out_of_the_directory() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        symlink(outer.path(), inner.join("absolute")).unwrap();
        symlink("..", inner.join("up")).unwrap();
        let beneath = Beneath::open(&inner).unwrap();
        for path in [
            "up/made",
            "absolute/made",
            "../made",
            "/made/deep",
            "a/../b",
        ] {
            let made = beneath.find_or_make(Path::new(path), Kind::Directory);
            assert!(made.is_ok() || path == "absolute/made", "{path}: {made:?}");
        }
        let seen = std::fs::read_dir(outer.path()).unwrap();
        let seen: Vec<_> = seen.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(seen, ["inner"], "nothing was made outside");
        assert!(inner.join("made/deep").is_dir());
    }

    #[test]
    fn missing_files_are_made_with_their_directories() {
        let directory = tempfile::tempdir().unwrap();
        let beneath = Beneath::open(directory.path()).unwrap();
        beneath
            .find_or_make(Path::new("a/b/file"), Kind::File)
            .unwrap();
        beneath
            .find_or_make(Path::new("a/c"), Kind::Directory)
            .unwrap();
        assert!(directory.path().join("a/b/file").is_file());
        assert!(directory.path().join("a/c").is_dir());
        let missing = beneath.find(Path::new("a/d")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
