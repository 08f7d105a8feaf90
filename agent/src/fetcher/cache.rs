//! The cache of fetched files. Pure: it decides, and does no I/O.
//!
//! The key of a file is its URI with the user, so no user gets another's files, and with the digest
//! that it must have, so a new digest finds no old content.
//! Containers that want a file that is being downloaded wait for it. A file in use stays; of the
//! others, those that were not used for the longest time are evicted while all together exceed the
//! cache's size. A file that is alone too large goes with its last user.

use std::collections::BTreeMap;

use super::digest::Digest;

/// A user, a URI and the digest of the content, if any is expected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CacheKey {
    /// The user's id; `None` means the agent's user.
    pub(super) uid: Option<u32>,
    pub(super) uri: String,
    pub(super) digest: Option<Digest>,
}

/// The next step of a container that wants a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheAnswer {
    /// It uses this file, until [`Cache::release`].
    Use(FileNumber),
    /// It downloads this file, until [`Cache::downloaded`] or [`Cache::failed`].
    Download(FileNumber),
    /// It asks again when a download has ended.
    Wait,
}

/// The name of a cached file. Not used again.
pub(super) type FileNumber = u64;

/// The files of the cache.
#[derive(Debug)]
pub(super) struct Cache {
    size: u64,
    entries: BTreeMap<CacheKey, Entry>,
    next_file: FileNumber,
    /// Counts uses, to order them.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    file: FileNumber,
    /// `None` while it is being downloaded.
    bytes: Option<u64>,
    users: usize,
    last_use: u64,
}

impl Cache {
    /// An empty cache of this many bytes.
    pub(super) fn new(size: u64) -> Self {
        Self {
            size,
            entries: BTreeMap::new(),
            next_file: 0,
            uses: 0,
        }
    }

    /// The bytes that it may have.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of all its files.
    pub(super) fn used(&self) -> u64 {
        // A user may make a sparse file of any length.
        let bytes = self.entries.values().filter_map(|entry| entry.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// A container wants a file.
    pub(super) fn ask(&mut self, key: &CacheKey) -> CacheAnswer {
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            if entry.bytes.is_none() {
                return CacheAnswer::Wait;
            }
            entry.users += 1;
            entry.last_use = self.uses;
            return CacheAnswer::Use(entry.file);
        }
        let file = self.next_file;
        self.next_file += 1;
        let entry = Entry {
            file,
            bytes: None,
            users: 1,
            last_use: self.uses,
        };
        self.entries.insert(key.clone(), entry);
        CacheAnswer::Download(file)
    }

    /// A download has ended; its container now uses the file. Returns the evicted files.
    pub(super) fn downloaded(&mut self, key: &CacheKey, bytes: u64) -> Vec<(CacheKey, FileNumber)> {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.bytes = Some(bytes);
        }
        self.evict()
    }

    /// A download has failed.
    pub(super) fn failed(&mut self, key: &CacheKey) {
        self.entries.remove(key);
    }

    /// A container no longer uses a file. One with a digest goes with its last user if the fetch
    /// failed: the file may have lost its content. Returns the evicted files.
    pub(super) fn release(
        &mut self,
        key: &CacheKey,
        is_fetched: bool,
    ) -> Vec<(CacheKey, FileNumber)> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Vec::new();
        };
        entry.users -= 1;
        if entry.users == 0 && !is_fetched && key.digest.is_some() {
            let file = entry.file;
            self.entries.remove(key);
            return vec![(key.clone(), file)];
        }
        self.evict()
    }

    fn evict(&mut self) -> Vec<(CacheKey, FileNumber)> {
        let mut evicted = Vec::new();
        // Terminates: each round removes an entry.
        loop {
            let small = { self.entries.values() }.filter_map(|entry| entry.bytes);
            let used: u64 = small.filter(|bytes| *bytes <= self.size).sum();
            let unused = self.entries.iter().filter(|(_, entry)| entry.users == 0);
            // Those that are too large first.
            let order = |entry: &Entry| (entry.bytes <= Some(self.size), entry.last_use);
            let Some((key, entry)) = unused.min_by_key(|(_, entry)| order(entry)) else {
                return evicted;
            };
            if entry.bytes <= Some(self.size) && used <= self.size {
                return evicted;
            }
            let key = key.clone();
            if let Some(entry) = self.entries.remove(&key) {
                evicted.push((key, entry.file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str) -> CacheKey {
        CacheKey {
            uid: Some(1000),
            uri: uri.to_owned(),
            digest: None,
        }
    }

    fn evicted(files: Vec<(CacheKey, FileNumber)>) -> Vec<String> {
        files.into_iter().map(|(key, _)| key.uri).collect()
    }

    /// A container downloads a file and has used it.
    fn used(cache: &mut Cache, uri: &str, bytes: u64) -> Vec<String> {
        assert!(matches!(cache.ask(&key(uri)), CacheAnswer::Download(_)));
        let mut all = evicted(cache.downloaded(&key(uri), bytes));
        all.extend(evicted(cache.release(&key(uri), true)));
        all
    }

    #[test]
    fn one_downloads_and_others_wait() {
        let mut cache = Cache::new(100);
        assert_eq!(cache.ask(&key("a")), CacheAnswer::Download(0));
        assert_eq!(cache.ask(&key("a")), CacheAnswer::Wait);
        cache.failed(&key("a"));
        assert_eq!(cache.ask(&key("a")), CacheAnswer::Download(1));
        assert!(cache.downloaded(&key("a"), 10).is_empty());
        assert_eq!(cache.ask(&key("a")), CacheAnswer::Use(1));
        assert_eq!(cache.used(), 10);
    }

    #[test]
    fn users_do_not_share_files() {
        let mut cache = Cache::new(100);
        used(&mut cache, "a", 10);
        let bobs = CacheKey {
            uid: Some(1001),
            ..key("a")
        };
        assert!(matches!(cache.ask(&bobs), CacheAnswer::Download(_)));
    }

    #[test]
    fn digest_finds_only_its_own_content() {
        let mut cache = Cache::new(100);
        used(&mut cache, "a", 10);
        let checked = CacheKey {
            digest: Some(Digest::of(b"new")),
            ..key("a")
        };
        assert!(matches!(cache.ask(&checked), CacheAnswer::Download(_)));
        assert!(cache.downloaded(&checked, 10).is_empty());
        assert!(matches!(cache.ask(&checked), CacheAnswer::Use(_)));
        assert!(cache.release(&checked, false).is_empty(), "it has a user");
        assert_eq!(evicted(cache.release(&checked, false)), ["a"]);
        assert_eq!(cache.used(), 10);
    }

    #[test]
    fn longest_unused_files_are_evicted_first() {
        let mut cache = Cache::new(100);
        used(&mut cache, "a", 40);
        used(&mut cache, "b", 40);
        assert!(matches!(cache.ask(&key("a")), CacheAnswer::Use(_)));
        assert_eq!(used(&mut cache, "c", 40), ["b"]);
        assert_eq!(cache.used(), 80);
        assert!(cache.release(&key("a"), true).is_empty());
    }

    #[test]
    fn file_in_use_stays_even_if_too_large() {
        let mut cache = Cache::new(100);
        used(&mut cache, "a", 40);
        assert!(matches!(cache.ask(&key("large")), CacheAnswer::Download(_)));
        assert!(cache.downloaded(&key("large"), 200).is_empty());
        assert!(matches!(cache.ask(&key("large")), CacheAnswer::Use(_)));
        assert!(cache.release(&key("large"), true).is_empty());
        assert_eq!(evicted(cache.release(&key("large"), true)), ["large"]);
        assert_eq!(cache.used(), 40);
    }
}
