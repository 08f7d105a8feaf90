//! A synced, checksummed key-value store on sled.
//!
//! Callers hold a [`Store`]: in service a [`sled_store::SledStore`], in tests a store in memory
//! with simulated crashes (`tests/testkit`).
//!
//! Everything here is synchronous and independent of actors: callers run it through the runtime's
//! blocking calls. The store never interprets or compresses a value, and never repairs a damaged
//! record: it names the key and leaves the decision to the caller.
//!
//! | module | contents |
//! |---|---|
//! | `changes` | a commit: an ordered list of puts and removals, with bounds |
//! | `disk` | the directory: its lock, the cleanup before opening, and its sync |
//! | `error` | the errors of a store, one variant for each reaction of a caller |
//! | `journal` | the write-ahead journal, which makes a commit of several changes atomic |
//! | `mark` | the marker, by which lost records are noticed |
//! | `record` | the encoding of a value: format, epoch, CRC32C, bytes |
//! | `sled_store` | the store of masters and agents: sled 0.34.7, with additions |
//!
//! # Guarantees
//!
//! - **Durable.** When [`Store::commit`] returns `Ok`, all its changes have been through
//!   `fdatasync`.
//! - **Atomic.** After a crash at any point, a reopened store shows either every change of a commit
//!   or none of them. Commits are visible in the order in which they were made.
//! - **Refused means unchanged.** [`StoreError::TooLarge`], [`StoreError::BadKey`] and
//!   [`StoreError::Refused`] leave the store unchanged and usable.
//! - **Read means durable.** Opening syncs all records that it finds before it returns: a commit
//!   whose sync failed, or whose process was killed before it, is never lost once it has been read.
//! - **Failed means closed.** After any other error the outcome of that commit is unknown (nothing
//!   or all of it), and the store answers [`StoreError::Closed`] until it is reopened.
//! - **Lost means refused.** A store whose disk has damaged synced records is not opened without
//!   them ([`StoreError::Lost`]), except after a loss of power that left a marker older than the
//!   damaged write.
//!
//! [`Store::prepare`] writes bulk data ahead of the commit that refers to it. It avoids the copy in
//! the journal, and syncs only where sled would otherwise reuse space too early. Prepared records
//! are durable when the next commit returns `Ok`, and exist wherever that commit does; before that
//! they may be lost, the newest first.

mod changes;
mod disk;
mod error;
pub mod journal;
mod mark;
pub mod record;
pub mod sled_store;

pub use changes::{COMMIT_BYTES_MAX, Change, Changes, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use disk::{Disk, RealDisk, in_use, make_private, set_aside};
pub use error::StoreError;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The complete key, including the prefix.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// A synced key-value store. The crate's documentation lists its guarantees.
pub trait Store: Send {
    /// The value under this key; `None` if there is none.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// At most `limit` records with this key prefix, in key order, from the first one after the key
    /// `after` (from the first of all if `None`). Fewer than `limit` records mean that the prefix
    /// has been read to its end.
    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// All records with this key prefix, in key order. They are in memory at once: read a prefix
    /// that may grow large with [`Store::page`].
    fn scan(&self, prefix: &[u8]) -> Result<Vec<Record>, StoreError> {
        self.page(prefix, None, usize::MAX)
    }

    /// Makes these changes, all or none, and returns when they are on the disk.
    fn commit(&mut self, changes: Changes) -> Result<(), StoreError>;

    /// Puts one record ahead of the commit that will refer to it. It is visible at once, and
    /// durable when the next commit returns `Ok`; a crash before that may lose it. Use it only for
    /// keys that no record refers to yet: the previous value of the key is lost in any case.
    fn prepare(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut changes = Changes::new();
        changes.put(key, value);
        self.commit(changes)
    }

    /// Bytes of the store on its disk; 0 if unknown.
    fn disk_bytes(&self) -> u64 {
        0
    }
}
