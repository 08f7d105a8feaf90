//! What can go wrong with a store, one variant for each thing a caller does differently.
//!
//! Remembers nothing. It never decides what to do next: the message says what an operator can do.

use std::io;
use std::path::PathBuf;

/// Why a store could not be opened, read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process, or another store of this one, has the directory: choose another one.
    #[error("work_dir {} is in use by another process", dir.display())]
    InUse {
        /// The directory that was asked for.
        dir: PathBuf,
    },
    /// The directory cannot be made, entered or written: correct the path or its rights.
    #[error("work_dir {} cannot be used: {reason}", dir.display())]
    Unusable {
        /// The directory that was asked for.
        dir: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The files are there but cannot be read as a store: set the directory aside (see
    /// [`crate::set_aside`]) and let this node be filled again by its peers.
    #[error("the store in {} is damaged and cannot be opened: {reason}", dir.display())]
    Unreadable {
        /// The directory that was asked for.
        dir: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Records that were synced cannot be read any more: the disk has damaged them. Nothing was written.
    #[error(
        "the store in {} is damaged and has lost records: {reason}; restore it, set it aside, or delete its file `{}` to go on without what is missing",
        dir.display(),
        crate::mark::NAME
    )]
    Lost {
        /// The directory that was asked for.
        dir: PathBuf,
        /// The records that were expected, and those found.
        reason: String,
    },
    /// A record does not pass its checksum or has an impossible shape. It is never handed out.
    #[error("the record {key:?} is damaged: {reason}")]
    Damaged {
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// What was found.
        reason: String,
    },
    /// A record was written by a newer Meros: start that one, or an empty directory.
    #[error("the record {key:?} has format {found}, and this version knows only {known}")]
    Format {
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// The format found in the record.
        found: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// Larger than a store takes: split it. Nothing was changed.
    #[error("the {what} of {key:?} has {bytes} bytes, and at most {limit} are stored")]
    TooLarge {
        /// `key`, `value` or `commit` (then `key` is the commit's first one).
        what: &'static str,
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// What was asked for, in bytes.
        bytes: usize,
        /// The bound, in bytes.
        limit: usize,
    },
    /// A key has at least one byte. Nothing was changed.
    #[error("a key is empty, and a store expects at least one byte")]
    BadKey,
    /// The store does not want this commit now. Nothing was changed; ask again later.
    #[error("the store refused the commit: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The disk is full: make room, then open the store again.
    #[error("the disk of the store is full: make room there and start again")]
    Full,
    /// The disk failed under the store: end the process, for what is on the disk is unknown.
    #[error("the store's disk failed: {reason}")]
    Failed {
        /// What the system said.
        reason: String,
    },
    /// An earlier error closed this store: open it again.
    #[error("the store was closed by an earlier error")]
    Closed,
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
            _ => StoreError::Failed {
                reason: error.to_string(),
            },
        }
    }
}

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => error.into(),
            other => StoreError::Failed {
                reason: other.to_string(),
            },
        }
    }
}

/// A key as an error shows it.
pub(crate) fn key_text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart_from_a_failing_one() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(StoreError::from(sled::Error::Io(full)), StoreError::Full);
        let failed = io::Error::other("input/output error");
        assert!(matches!(
            StoreError::from(failed),
            StoreError::Failed { .. }
        ));
    }

    #[test]
    fn the_message_of_a_taken_directory_says_which_one() {
        let error = StoreError::InUse {
            dir: "/var/lib/meros".into(),
        };
        assert_eq!(
            error.to_string(),
            "work_dir /var/lib/meros is in use by another process"
        );
    }
}
