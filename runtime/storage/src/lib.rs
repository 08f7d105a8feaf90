//! A synced, checksummed key-value store on sled, and its twin that forgets what was not synced.
//!
//! Callers hold a [`Store`]: the registry's and the agent's books in service are a
//! [`sled_store::SledStore`], in tests a [`forgetful::ForgetfulStore`].
//!
//! Everything here is synchronous and knows nothing of actors: a caller runs it through the
//! runtime's blocking seam. It never interprets a value, never compresses one, and never repairs a
//! damaged record by itself: it names the key and leaves the decision to the caller.
//!
//! # What a commit promises
//!
//! * **Durable.** When [`Store::commit`] returns `Ok`, all its changes have been through `fdatasync`.
//! * **All or nothing.** After a crash at any point, a store that is opened again shows either every
//!   change of a commit or none of them. Commits are seen in the order in which they were made.
//! * **Refused means untouched.** [`StoreError::TooLarge`], [`StoreError::BadKey`] and
//!   [`StoreError::Refused`] leave the store as it was, and it can still be used.
//! * **Found means kept.** An opening syncs what it finds before it returns: what a commit wrote whose sync failed, or was never
//!   reached because its process was killed, is not forgotten any more once somebody has read it.
//! * **Failed means closed.** After any other error the outcome of that commit is unknown (nothing or
//!   all of it), and the store answers [`StoreError::Closed`] until it is opened again.
//! * **Lost means refused.** A store whose disk has damaged what was synced is not opened with the rest of it
//!   ([`StoreError::Lost`]), except after a loss of power that made the mark beside it older than the damaged write.
//!
//! [`Store::prepare`] is for the bulk that a commit will speak of: it costs no copy in a journal, and no sync but those
//! without which sled would use space again too early. It promises as little. Whatever was prepared before a commit is on the disk when that commit returns `Ok`,
//! and is there wherever the commit is found; before that it may be lost, the newest first.

mod changes;
mod disk;
mod error;
pub mod forgetful;
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod mark;
mod record;
pub mod sled_store;

pub use changes::{COMMIT_BYTES_MAX, Change, Changes, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use disk::{Disk, RealDisk, in_use, make_private, set_aside};
pub use error::StoreError;

/// A key and its value, as they were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The whole key, prefix included.
    pub key: Vec<u8>,
    /// The value, as it was put.
    pub value: Vec<u8>,
}

/// A synced key-value store. See the crate's page for what a commit promises.
pub trait Store: Send {
    /// The value under this key; `None` if there is none.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// At most `limit` records whose key begins with `prefix`, in key order, from the first one after
    /// the key `after` (from the first of all if `None`). Fewer than `limit` records mean that the
    /// prefix is read to its end.
    fn page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// All records whose key begins with `prefix`, in key order. It holds them all in memory at
    /// once: a caller whose prefix may grow large reads it by [`Store::page`].
    fn scan(&self, prefix: &[u8]) -> Result<Vec<Record>, StoreError> {
        self.page(prefix, None, usize::MAX)
    }

    /// Makes these changes, all or none, and returns when they are on the disk.
    fn commit(&mut self, changes: Changes) -> Result<(), StoreError>;

    /// Puts one record ahead of the commit that will speak of it. It is seen at once, and is on the disk when
    /// the next commit returns `Ok`; a crash before that may forget it. So it is meant for keys that nothing
    /// speaks of yet: what stood under the key before is lost either way.
    fn prepare(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut changes = Changes::new();
        changes.put(key, value);
        self.commit(changes)
    }

    /// Bytes that the store takes on its disk; 0 if it does not know.
    fn disk_bytes(&self) -> u64 {
        0
    }
}
