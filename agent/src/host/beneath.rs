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
pub(crate) struct Beneath {
    directory: OwnedFd,
    /// Flags for what is made.
    making: ResolveFlag,
}

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
        self.directory.as_fd()
    }
}

impl Beneath {
    /// The directory at this path of the host.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self::of(opened))
    }

    /// An open directory.
    pub(crate) fn of(directory: OwnedFd) -> Self {
        Self {
            directory,
            making: ResolveFlag::empty(),
        }
    }

    /// Makes nothing in file systems that are mounted below it, nor through links.
    pub(crate) fn making_on_one_mount(self) -> Self {
        Self {
            making: ResolveFlag::RESOLVE_NO_XDEV,
            ..self
        }
    }

    /// The directory at this path, made if nothing is there. A link there is an error.
    pub(crate) fn plain_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        drop(self.find_or_make(path, Kind::Directory)?);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        self.resolve(path, flags, Mode::empty(), ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    /// A new directory at this path, of this process' user. Fails if the path exists. Makes the
    /// directories above it.
    pub(crate) fn new_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let parent = match path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            Some(parent) => self.plain_directory(parent)?,
            None => self.directory.try_clone()?,
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        mkdirat(&parent, name, Mode::S_IRWXU)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = nix::fcntl::openat(&parent, name, flags, Mode::empty())?;
        // The owner of the parent may have put another in its place.
        match nix::sys::stat::fstat(&made)?.st_uid == nix::unistd::geteuid().as_raw() {
            true => Ok(made),
            false => Err(io::Error::other("it was replaced")),
        }
    }

    /// What is at this path. An absolute one starts here, too, as do absolute links.
    pub(crate) fn find(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlag::O_PATH, Mode::empty(), ResolveFlag::empty())
    }

    /// The file at this path, to be read.
    pub(crate) fn read(&self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let opened = self.resolve(path, flags, Mode::empty(), ResolveFlag::empty());
        Ok(File::from(opened?))
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
                true => self.directory.try_clone()?,
                false => self.resolve(&made, OFlag::O_PATH, Mode::empty(), self.making)?,
            };
            made.push(name);
            let is_last = next.is_none();
            match (is_last, kind) {
                (true, Kind::File) => {
                    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
                    let mode = Mode::from_bits_truncate(0o644);
                    self.resolve(&made, flags, mode, self.making)?;
                }
                _ => make_directory(parent.as_fd(), name)?,
            }
        }
        self.find(path)
    }

    fn resolve(
        &self,
        path: &Path,
        flags: OFlag,
        mode: Mode,
        more: ResolveFlag,
    ) -> io::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(resolve | more);
        Ok(openat2(&self.directory, path, how)?)
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
