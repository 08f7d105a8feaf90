//! The errors of a store, one variant for each reaction of a caller. The message tells an operator
//! the next step.

use std::io;
use std::path::PathBuf;

/// Why a store could not be opened, read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process, or another store of this one, uses the directory: choose another one.
    #[error("work_dir {} is in use by another process", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be created, entered or written: correct the path or its permissions.
    #[error("work_dir {} cannot be used: {reason}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The files exist but cannot be read as a store: set the directory aside (see
    /// [`crate::set_aside`]) and let the peers refill this node.
    #[error("the store in {} is damaged and cannot be opened: {reason}", dir.display())]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Synced records cannot be read any more: the disk has damaged them. Nothing was written.
    #[error(
        "the store in {} is damaged and has lost records: {reason}; restore it, set it aside, or delete its file `{}` to continue without the missing records",
        dir.display(),
        crate::mark::NAME
    )]
    Lost {
        /// The directory.
        dir: PathBuf,
        /// The expected and the actual records.
        reason: String,
    },
    /// A record fails its checksum or is malformed. Its value is never returned.
    #[error("the record {key:?} is damaged: {reason}")]
    Damaged {
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// The damage.
        reason: String,
    },
    /// A record was written by a newer Meros: start that version, or an empty directory.
    #[error("the record {key:?} has format {found}, and this version knows only {known}")]
    Format {
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// The format found in the record.
        found: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// Too large for a store: split it. Nothing was changed.
    #[error("the {what} of {key:?} has {bytes} bytes, and at most {limit} are stored")]
    TooLarge {
        /// `key`, `value` or `commit` (then `key` is the commit's first one).
        what: &'static str,
        /// The key, with bytes that are not printable ASCII escaped.
        key: String,
        /// The actual size, in bytes.
        bytes: usize,
        /// The bound, in bytes.
        limit: usize,
    },
    /// A key has at least one byte. Nothing was changed.
    #[error("a key is empty, and a store expects at least one byte")]
    BadKey,
    /// The store refuses this commit now. Nothing was changed; retry later.
    #[error("the store refused the commit: {reason}")]
    Refused {
        /// The cause.
        reason: String,
    },
    /// The disk is full: free space, then reopen the store.
    #[error("the disk of the store is full: make room there and start again")]
    Full,
    /// The disk failed: end the process, because the disk's content is unknown.
    #[error("the store's disk failed: {reason}")]
    Failed {
        /// The error of the operating system.
        reason: String,
    },
    /// An earlier error closed this store: reopen it.
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

/// The printable form of a key.
pub(crate) fn key_text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use testkit::assert_matches;

    use super::*;

    #[test]
    fn full_disk_differs_from_a_failing_one() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(StoreError::from(sled::Error::Io(full)), StoreError::Full);
        let failed = io::Error::other("input/output error");
        assert_matches!(StoreError::from(failed), StoreError::Failed { .. });
    }

    #[test]
    fn in_use_error_names_the_directory() {
        let error = StoreError::InUse {
            dir: "/var/lib/meros".into(),
        };
        assert_eq!(
            error.to_string(),
            "work_dir /var/lib/meros is in use by another process"
        );
    }
}
