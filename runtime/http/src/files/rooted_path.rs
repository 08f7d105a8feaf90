//! Files and directories below a root that cannot be left.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::PART_MAX;

/// Maximum entries of a listing.
const ENTRIES_MAX: usize = 16_384;

/// Maximum bytes of a name and of a path on Linux.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4_095;

/// A path below a root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootedPath {
    /// The root directory. It is trusted, including symbolic links on the way to it.
    pub root: PathBuf,
    /// The path below it; empty for the root itself.
    pub inside: PathBuf,
}

/// Why a file is not served.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path would leave its root.
    #[error("path `{path}` leaves its root directory")]
    Outside {
        /// The path below its root.
        path: String,
    },
    /// No file can have such a name.
    #[error(
        "path `{path}`: expected names without NUL, of {NAME_MAX} bytes at most, and {PATH_MAX} bytes in all"
    )]
    Unnameable {
        /// The path below its root.
        path: String,
    },
    /// The service's user may not read it.
    #[error("path `{path}`: permission denied for the service's user")]
    Denied {
        /// The path below its root.
        path: String,
    },
    /// There is no such file.
    #[error("path `{path}`: no such file or directory")]
    NotFound {
        /// The path below its root.
        path: String,
    },
    /// It is a directory, a pipe, a socket or a device.
    #[error("path `{path}` is not a regular file")]
    NotAFile {
        /// The path below its root.
        path: String,
    },
    /// It is not a directory.
    #[error("path `{path}` is not a directory")]
    NotADirectory {
        /// The path below its root.
        path: String,
    },
    /// The directory has too many entries.
    #[error("path `{path}` has more than {ENTRIES_MAX} entries")]
    TooMany {
        /// The path below its root.
        path: String,
    },
    /// Another error of the operating system.
    #[error("path `{path}` cannot be read: {source}")]
    System {
        /// The path below its root.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name in the directory.
    pub name: String,
    /// Number of hard links.
    pub links: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, since 1970-01-01 UTC.
    pub modified: Duration,
    /// Kind and permissions, as from `stat`.
    pub mode: u32,
    /// Owner's name, or uid if there is none.
    pub user: String,
    /// Group's name, or gid if there is none.
    pub group: String,
}

impl DirectoryEntry {
    /// Kind and permissions as `ls -l` writes them.
    pub fn mode_text(&self) -> String {
        let kind = match self.mode & 0o170_000 {
            0o040_000 => 'd',
            0o120_000 => 'l',
            0o010_000 => 'p',
            0o140_000 => 's',
            0o060_000 => 'b',
            0o020_000 => 'c',
            _ => '-',
        };
        let bits = "rwxrwxrwx".char_indices();
        let bits = bits.map(|(place, bit)| match self.mode >> (8 - place) & 1 {
            1 => bit,
            _ => '-',
        });
        std::iter::once(kind).chain(bits).collect()
    }
}

/// A chunk of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Size of the whole file.
    pub size: u64,
}

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Size in bytes when opened.
    pub size: u64,
    /// File name.
    pub name: String,
}

impl OpenFile {
    /// Up to `length` bytes from `offset` on, fewer at the end of the file.
    pub fn read_at(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let left = self.size.saturating_sub(offset).min(length);
        let mut data = vec![0; usize::try_from(left).unwrap_or(0)];
        let mut filled = 0;
        // Ends: each round fills more of the buffer or is the last.
        while filled < data.len() {
            let at = offset.saturating_add(filled as u64);
            match self.file.read_at(&mut data[filled..], at)? {
                0 => break,
                count => filled += count,
            }
        }
        data.truncate(filled);
        Ok(data)
    }
}

impl RootedPath {
    fn path(&self) -> String {
        self.inside.to_string_lossy().chars().take(200).collect()
    }

    fn error(&self, source: io::Error) -> FileError {
        let path = self.path();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::NotFound { path },
            io::ErrorKind::PermissionDenied => FileError::Denied { path },
            // A NUL byte is refused before the system call, so it has no errno.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
                FileError::Unnameable { path }
            }
            _ => FileError::System { path, source },
        }
    }

    /// Opens a file or a directory below its root. Anything else is not opened at all: that may
    /// wait, or have an effect on a device.
    fn open(&self) -> Result<File, FileError> {
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let path = match self.inside.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.inside,
        };
        if !path.components().all(inside) {
            return Err(FileError::Outside { path: self.path() });
        }
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let root = File::open(&self.root).map_err(|error| self.error(error))?;
        let found = match openat2(&root, path, how) {
            Ok(found) => File::from(found),
            Err(Errno::EXDEV | Errno::ELOOP) => {
                return Err(FileError::Outside { path: self.path() });
            }
            Err(error) => return Err(self.error(error.into())),
        };
        let metadata = found.metadata().map_err(|error| self.error(error))?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(FileError::NotAFile { path: self.path() });
        }
        let found = format!("/proc/self/fd/{}", found.as_raw_fd());
        // A task that holds a lease on the file would make a usual open wait for most of a minute.
        let mut options = File::options();
        let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        options.open(found).map_err(|error| self.error(error))
    }
}

/// Lists this directory by name. Symbolic links are shown, not followed.
pub fn browse(place: &RootedPath) -> Result<Vec<DirectoryEntry>, FileError> {
    let path = || place.path();
    let directory = place.open()?;
    let metadata = directory.metadata().map_err(|error| place.error(error))?;
    if !metadata.is_dir() {
        return Err(FileError::NotADirectory { path: path() });
    }
    // Through the descriptor, so that it is the directory that was opened.
    let listed = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let mut names = Names::default();
    let mut entries = Vec::new();
    for entry in listed.map_err(|error| place.error(error))? {
        if entries.len() >= ENTRIES_MAX {
            return Err(FileError::TooMany { path: path() });
        }
        let entry = entry.map_err(|error| place.error(error))?;
        let Ok(metadata) = entry.metadata() else {
            continue; // Removed since.
        };
        entries.push(DirectoryEntry {
            name: entry.file_name().to_string_lossy().into_owned(),
            links: metadata.nlink(),
            size: metadata.size(),
            modified: Duration::from_secs(u64::try_from(metadata.mtime()).unwrap_or(0)),
            mode: metadata.mode(),
            user: names.user(metadata.uid()),
            group: names.group(metadata.gid()),
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Reads at most `length` and [`PART_MAX`] bytes from `offset` on; empty beyond the end.
pub fn read(place: &RootedPath, offset: u64, length: Option<u64>) -> Result<FilePart, FileError> {
    let opened = open(place)?;
    let length = length.unwrap_or(PART_MAX).min(PART_MAX);
    let data = opened.read_at(offset, length);
    Ok(FilePart {
        data: data.map_err(|error| place.error(error))?,
        offset,
        size: opened.size,
    })
}

/// Opens this file for reading.
pub fn open(place: &RootedPath) -> Result<OpenFile, FileError> {
    let file = place.open()?;
    let metadata = file.metadata().map_err(|error| place.error(error))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile { path: place.path() });
    }
    let name = place.inside.file_name().or(place.root.file_name());
    Ok(OpenFile {
        file,
        size: metadata.size(),
        name: name.unwrap_or_default().to_string_lossy().into_owned(),
    })
}

/// Names of users and groups, each looked up once.
#[derive(Default)]
struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    fn user(&mut self, id: u32) -> String {
        let look_up = || {
            let found = nix::unistd::User::from_uid(id.into()).ok().flatten();
            found.map_or_else(|| id.to_string(), |user| user.name)
        };
        self.users.entry(id).or_insert_with(look_up).clone()
    }

    fn group(&mut self, id: u32) -> String {
        let look_up = || {
            let found = nix::unistd::Group::from_gid(id.into()).ok().flatten();
            found.map_or_else(|| id.to_string(), |group| group.name)
        };
        self.groups.entry(id).or_insert_with(look_up).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn sandbox() -> (tempfile::TempDir, impl Fn(&str) -> RootedPath) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("sandbox");
        fs::create_dir_all(root.join("inner")).unwrap();
        fs::write(root.join("stdout"), "hello world").unwrap();
        fs::write(directory.path().join("secret"), "s").unwrap();
        let place = move |inside: &str| RootedPath {
            root: root.clone(),
            inside: inside.into(),
        };
        (directory, place)
    }

    /// SPEC 3.9: at most 16 pages.
    #[test]
    fn a_read_is_bounded_and_empty_beyond_the_end() {
        let (directory, place) = sandbox();
        let large = vec![b'x'; PART_MAX as usize + 10];
        fs::write(directory.path().join("sandbox/large"), &large).unwrap();
        let piece = |inside: &str, offset, length| {
            let piece = read(&place(inside), offset, length).unwrap();
            (
                String::from_utf8(piece.data).unwrap(),
                piece.offset,
                piece.size,
            )
        };
        assert_eq!(piece("stdout", 6, Some(3)), ("wor".into(), 6, 11));
        assert_eq!(
            piece("./stdout", 6, Some(u64::MAX)),
            ("world".into(), 6, 11)
        );
        assert_eq!(piece("stdout", u64::MAX, None).0, "");
        let (first, _, size) = piece("large", 0, Some(u64::MAX));
        assert_eq!((first.len() as u64, size), (PART_MAX, large.len() as u64));
        assert_eq!(piece("large", PART_MAX, None).0.len(), 10);
        let opened = open(&place("large")).unwrap();
        assert_eq!((opened.size, opened.name.as_str()), (size, "large"));
    }

    #[test]
    fn no_file_outside_the_root_is_served() {
        let (directory, place) = sandbox();
        let root = directory.path().join("sandbox");
        symlink("/etc", root.join("absolute")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../secret", root.join("secret")).unwrap();
        symlink("stdout", root.join("inside")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for path in [
            "../secret",
            "..",
            "/etc/passwd",
            "absolute/passwd",
            "up/secret",
            "secret",
            "inner/../../secret",
            "loop",
        ] {
            let refused = read(&place(path), 0, None).unwrap_err();
            assert!(
                matches!(refused, FileError::Outside { .. }),
                "{path}: {refused}"
            );
            let refused = browse(&place(path)).unwrap_err();
            assert!(
                matches!(refused, FileError::Outside { .. }),
                "{path}: {refused}"
            );
        }
        assert_eq!(read(&place("inside"), 0, None).unwrap().size, 11);
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in ["pipe", "socket"] {
            let refused = browse(&place(path)).unwrap_err().to_string();
            assert!(refused.contains("not a regular file"), "{path}: {refused}");
        }
        for (path, words) in [
            ("missing", "no such file"),
            ("stdout/x", "no such file"),
            ("pipe", "not a regular file"),
            ("socket", "not a regular file"),
            ("stdout\0", "without NUL"),
            (&*"x".repeat(256), "255 bytes at most"),
            (&*"x/".repeat(2_048), "4095 bytes in all"),
            ("inner", "not a regular file"),
            ("", "not a regular file"),
        ] {
            let refused = read(&place(path), 0, None).unwrap_err().to_string();
            assert!(refused.contains(words), "{path}: {refused}");
        }
        let refused = browse(&place("stdout")).unwrap_err().to_string();
        assert!(refused.contains("not a directory"), "{refused}");
        let gone = RootedPath {
            root: root.join("\0"),
            inside: "".into(),
        };
        let refused = browse(&gone).unwrap_err().to_string();
        assert!(refused.contains("without NUL"), "{refused}");
        // Root may read every file.
        let denied = place("stdout").error(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(denied, FileError::Denied { .. }), "{denied}");
    }

    #[test]
    fn a_listing_is_sorted_and_matches_ls() {
        let (directory, place) = sandbox();
        let root = directory.path().join("sandbox");
        symlink("/nowhere", root.join("dangling")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(root.join("stdout"), mode).unwrap();
        let entries = browse(&place("")).unwrap();
        let seen: Vec<(&str, String)> = entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.mode_text()))
            .collect();
        assert_eq!(seen[0], ("dangling", "lrwxrwxrwx".to_owned()));
        assert!(
            seen[1].0 == "inner" && seen[1].1.starts_with("drwx"),
            "{seen:?}"
        );
        assert_eq!(seen[2], ("stdout", "-rw-r-----".to_owned()));
        let stdout = &entries[2];
        assert_eq!((stdout.size, stdout.links), (11, 1));
        assert!(stdout.modified > Duration::ZERO && !stdout.user.is_empty());
    }
}
