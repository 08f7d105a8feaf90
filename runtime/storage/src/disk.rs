//! The directory of a store: its lock, the cleanup before opening, and its sync.
//!
//! The lock is held as long as the store lives. Nothing is deleted but sled's incomplete snapshots.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// How often sled's lock is tried before it counts as held by another process: some tenths of a
/// second.
const RELEASE_TRIES: usize = 200_000;

/// The two points at which a store touches its disk: in service a [`RealDisk`], in tests a
/// substitute that counts, fails, or crashes between two writes.
pub trait Disk: Send {
    /// Returns when everything written to this file is on the disk.
    fn sync(&mut self, file: &File) -> io::Result<()>;

    /// Called after each record passed to sled. An error ends the commit here, as a crash would.
    fn wrote(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Syncs by `fdatasync`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// An exclusive lock on a directory, held until it is dropped.
///
/// The lock belongs to the open file: a child that is forked without exec shares it as long as it
/// lives, so fork such children before the store is opened.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing, and locks it.
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        make(dir).map_err(|error| unusable(dir, error))?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join("lock"))
            .map_err(|error| unusable(dir, error))?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
                dir: dir.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(unusable(dir, error)),
        }
    }
}

/// Waits until sled has released its file `db`: a worker of its thread pool may hold a store's file
/// a little longer than the store lives. The caller has the directory's lock, so no other holder is
/// expected; if there is one, the wait ends and sled's own lock fails.
pub(crate) fn await_release(dir: &Path) -> Result<(), StoreError> {
    let file = match File::open(dir.join("db")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(dir, error)),
    };
    for _ in 0..RELEASE_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            _ => break,
        }
    }
    Ok(())
}

/// Deletes snapshots that sled had not finished when its process ended: it would take the newest of
/// them for a complete one, and fail to open.
pub(crate) fn sweep(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(|error| unusable(dir, error))? {
        let path = entry.map_err(|error| unusable(dir, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::warn!(path = %path.display(), "deleting incomplete snapshot");
            fs::remove_file(&path).map_err(|error| unusable(dir, error))?;
        }
    }
    Ok(())
}

/// The mode of a directory with state.
const PRIVATE: u32 = 0o700;

/// The mode of the directories created above it: other users may pass through.
const WAY: u32 = 0o711;

/// Creates this directory, private to its user, and its missing parents. An existing one is left
/// unchanged: it may be the operator's, with other files.
pub fn make_private(dir: &Path) -> io::Result<()> {
    let builder = |mode| {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(mode);
        builder
    };
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        builder(WAY).create(above)?;
    }
    builder(PRIVATE).create(dir)
}

/// Closes a store's own directory to other users; an earlier version may have left it open.
fn close_to_others(dir: &Path) {
    let closed = fs::metadata(dir).and_then(|metadata| match metadata.mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(dir, Permissions::from_mode(PRIVATE)),
    });
    if let Err(error) = closed {
        tracing::warn!(dir = %dir.display(), %error, "store directory stays open to other users");
    }
}

/// Creates this directory and its missing parents, and syncs their names.
fn make(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    make_private(dir)?;
    close_to_others(dir);
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Syncs the names of new files in this directory, and its own name.
pub(crate) fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()?;
    match dir.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Bytes that the files of this directory occupy on the disk, without holes. Unreadable files count
/// as zero.
pub(crate) fn bytes_allocated(dir: &Path) -> u64 {
    let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    // sled keeps its blobs, of which there should be none, one folder below.
    files(dir.to_owned())
        .chain(files(dir.join("blobs")))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

/// Whether a store, of this process or another one, has this directory open. Read-only.
pub fn in_use(dir: &Path) -> bool {
    match File::open(dir.join("lock")) {
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    }
}

/// Renames a closed store to `NAME.WORD.1` or the next free number, and returns the new path: so
/// that an operator can examine it, and this node can start with an empty directory.
pub fn set_aside(dir: &Path, word: &str) -> Result<PathBuf, StoreError> {
    let lock = DirectoryLock::take(dir)?;
    let name = dir
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // Ends at the first free number: the directory holds finitely many.
    let aside = (1u32..)
        .map(|number| dir.with_file_name(format!("{name}.{word}.{number}")))
        .find(|path| !path.exists())
        .ok_or_else(|| unusable(dir, io::Error::other("there is no free name beside it")))?;
    fs::rename(dir, &aside).map_err(|error| unusable(dir, error))?;
    drop(lock);
    Ok(aside)
}

pub(crate) fn unusable(dir: &Path, error: io::Error) -> StoreError {
    StoreError::Unusable {
        dir: dir.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    #[test]
    fn a_store_is_closed_to_other_users() {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let fresh = root.path().join("above/fresh");
        let _lock = DirectoryLock::take(&fresh).unwrap();
        assert_eq!(
            (mode(&fresh), mode(fresh.parent().unwrap())),
            (0o700, 0o711)
        );
        assert_eq!(mode(&fresh.join("lock")), 0o600);

        let earlier = root.path().join("earlier");
        fs::create_dir(&earlier).unwrap();
        fs::set_permissions(&earlier, Permissions::from_mode(0o755)).unwrap();
        let _lock = DirectoryLock::take(&earlier).unwrap();
        assert_eq!(mode(&earlier), 0o700);
    }

    #[test]
    fn directory_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(dir.path()).unwrap();
        let second = DirectoryLock::take(dir.path()).unwrap_err();
        assert_eq!(
            second,
            StoreError::InUse {
                dir: dir.path().to_owned()
            }
        );
        assert!(in_use(dir.path()));
        drop(first);
        assert!(!in_use(dir.path()));
        DirectoryLock::take(dir.path()).unwrap();
    }

    #[test]
    fn file_in_place_of_the_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        fs::write(&path, "not a directory").unwrap();
        let error = DirectoryLock::take(&path).unwrap_err().to_string();
        assert_contains!(error, format!("work_dir {} cannot be used", path.display()));
    }

    #[test]
    fn only_unfinished_snapshots_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "snap.00000000000000AA",
            "snap.00000000000000BB.generating",
            "db",
        ] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        sweep(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["db", "snap.00000000000000AA"]);
    }

    #[test]
    fn set_aside_keeps_files_and_older_copies() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        for number in 1..=2 {
            fs::create_dir(&store).unwrap();
            fs::write(store.join("db"), number.to_string()).unwrap();
            let aside = set_aside(&store, "damaged").unwrap();
            assert_eq!(aside, dir.path().join(format!("store.damaged.{number}")));
            assert_eq!(
                fs::read_to_string(aside.join("db")).unwrap(),
                number.to_string()
            );
            assert!(!store.exists());
        }
    }
}
