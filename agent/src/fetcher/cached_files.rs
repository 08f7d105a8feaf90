//! The files of the cache, each in a directory of its user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::cache::{Cache, CacheAnswer, CacheKey, FileNumber};

/// The only directory that the cache uses of the one that the operator has named.
const FILES: &str = "files";
/// The files of an earlier agent process, while they are removed.
const OLD_FILES: &str = "files.old";
/// The files of the agent's own user.
const OWN: &str = "agent";
/// Mode of the directories above: a user reaches the own files and cannot list others.
const PARENT_MODE: u32 = 0o711;
/// Mode of a user's directory.
const USER_MODE: u32 = 0o700;

fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// The files, and the decisions about them.
#[derive(Debug)]
pub(super) struct CachedFiles {
    root: PathBuf,
    cache: Mutex<Cache>,
    /// Woken at the end of each download.
    ended: Notify,
}

impl CachedFiles {
    /// Removes the files of an earlier agent process. Blocking.
    pub(super) fn open(directory: &Path, size: u64) -> io::Result<Self> {
        let (root, old) = (directory.join(FILES), directory.join(OLD_FILES));
        // Tasks may still write there, so that it cannot be emptied: the agent starts all the same.
        let set_aside = fs::remove_dir_all(&old)
            .or_else(absent)
            .and_then(|()| fs::rename(&root, &old));
        let removed = set_aside
            .and_then(|()| fs::remove_dir_all(&old))
            .or_else(absent);
        if let Err(error) = removed {
            let path = directory.display();
            tracing::warn!(%path, %error, "files of an earlier agent are not removed");
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PARENT_MODE).create(&root)?;
        Ok(Self {
            root,
            cache: Mutex::new(Cache::new(size)),
            ended: Notify::new(),
        })
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its size and its used bytes.
    pub(super) fn figures(&self) -> (u64, u64) {
        let cache = self.cache();
        (cache.size(), cache.used())
    }

    /// Waits while another container downloads the file. Whether the caller must download it.
    pub(super) async fn ask(&self, key: &CacheKey) -> (FileNumber, bool) {
        // Terminates with the downloads.
        loop {
            // Before the question, so that no end is missed.
            let ended = self.ended.notified();
            let answer = self.cache().ask(key);
            match answer {
                CacheAnswer::Use(file) => return (file, false),
                CacheAnswer::Download(file) => return (file, true),
                CacheAnswer::Wait => ended.await,
            }
        }
    }

    /// The directory of the key's user. Blocking.
    pub(super) fn make_directory(&self, key: &CacheKey, gid: Option<u32>) -> io::Result<PathBuf> {
        let directory = self.directory(key);
        match DirBuilder::new().mode(USER_MODE).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => chown(&directory, key.uid, gid)?,
        }
        Ok(directory)
    }

    /// A download has ended. Blocking.
    pub(super) fn downloaded(&self, key: &CacheKey, file: FileNumber) -> io::Result<()> {
        // The user may have replaced it.
        let size = fs::symlink_metadata(self.path(key, file)).map(|found| found.len());
        let evicted = match &size {
            Ok(size) => self.cache().downloaded(key, *size),
            Err(_) => {
                self.cache().failed(key);
                Vec::new()
            }
        };
        self.ended.notify_waiters();
        self.remove(evicted);
        size.map(drop)
    }

    /// A download has failed. Blocking.
    pub(super) fn failed(&self, key: &CacheKey, file: FileNumber) {
        self.cache().failed(key);
        self.ended.notify_waiters();
        self.remove(vec![(key.clone(), file)]);
    }

    /// A container no longer uses a file. Blocking.
    pub(super) fn release(&self, key: &CacheKey, is_fetched: bool) {
        let evicted = self.cache().release(key, is_fetched);
        self.remove(evicted);
    }

    fn remove(&self, files: Vec<(CacheKey, FileNumber)>) {
        for (key, file) in files {
            let path = self.path(&key, file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cached file not removed");
                }
                _ => {}
            }
        }
    }

    fn directory(&self, key: &CacheKey) -> PathBuf {
        let user = key.uid.map(|uid| uid.to_string());
        self.root.join(user.as_deref().unwrap_or(OWN))
    }

    /// The path of a file.
    pub(super) fn path(&self, key: &CacheKey, file: FileNumber) -> PathBuf {
        self.directory(key).join(file.to_string())
    }
}
