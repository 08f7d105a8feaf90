//! The changes of one commit: an ordered list of puts and removals, with bounds.
//!
//! Plain data and pure functions. Of several changes of one key the last one counts.

use std::collections::BTreeMap;

use crate::error::{StoreError, key_text};

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Maximum length of a value, in bytes: 96 KiB. Callers split larger values.
pub const VALUE_BYTES_MAX: usize = 96 * 1024;
/// Maximum size of a commit: 16 MiB of keys, values and 16 bytes for each change.
pub const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the key's value.
    Put {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: Vec<u8>,
        /// 0 to [`VALUE_BYTES_MAX`] bytes.
        value: Vec<u8>,
    },
    /// Removes the key; a missing key is no error.
    Remove {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: Vec<u8>,
    },
}

impl Change {
    /// The key that is changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Change::Put { key, .. } | Change::Remove { key } => key,
        }
    }

    fn bytes(&self) -> usize {
        let value = match self {
            Change::Put { value, .. } => value.len(),
            Change::Remove { .. } => 0,
        };
        16 + self.key().len() + value
    }
}

/// The changes of one commit, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    list: Vec<Change>,
}

impl Changes {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.list.push(Change::Put {
            key: key.into(),
            value: value.into(),
        });
        self
    }

    /// Adds a removal.
    pub fn remove(&mut self, key: impl Into<Vec<u8>>) -> &mut Self {
        self.list.push(Change::Remove { key: key.into() });
        self
    }

    /// The changes in the order in which they were added.
    pub fn list(&self) -> &[Change] {
        &self.list
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// For implementations of a store: one change per key, the last one, in key order; or the
    /// reason for a refusal.
    pub fn settled(self) -> Result<Vec<Change>, StoreError> {
        for change in &self.list {
            check(change)?;
        }
        let mut last = BTreeMap::new();
        for change in self.list {
            last.insert(change.key().to_vec(), change);
        }
        let settled: Vec<Change> = last.into_values().collect();
        let bytes: usize = settled.iter().map(Change::bytes).sum();
        match settled.first() {
            Some(first) if bytes > COMMIT_BYTES_MAX => {
                Err(too_large("commit", first.key(), bytes, COMMIT_BYTES_MAX))
            }
            _ => Ok(settled),
        }
    }
}

/// Checks the bounds of one change.
fn check(change: &Change) -> Result<(), StoreError> {
    let key = change.key();
    if key.is_empty() {
        return Err(StoreError::BadKey);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(too_large("key", &key[..64], key.len(), KEY_BYTES_MAX));
    }
    match change {
        Change::Put { value, .. } if value.len() > VALUE_BYTES_MAX => {
            Err(too_large("value", key, value.len(), VALUE_BYTES_MAX))
        }
        _ => Ok(()),
    }
}

fn too_large(what: &'static str, key: &[u8], bytes: usize, limit: usize) -> StoreError {
    StoreError::TooLarge {
        what,
        key: key_text(key),
        bytes,
        limit,
    }
}

#[cfg(test)]
mod tests {
    use testkit::assert_matches;

    use super::*;

    #[test]
    fn last_change_of_a_key_counts() {
        let mut changes = Changes::new();
        changes
            .put("b", "1")
            .put("a", "1")
            .remove("b")
            .remove("a")
            .put("a", "2");
        let settled = changes.settled().unwrap();
        assert_eq!(
            settled,
            [
                Change::Put {
                    key: b"a".to_vec(),
                    value: b"2".to_vec()
                },
                Change::Remove { key: b"b".to_vec() },
            ]
        );
    }

    #[test]
    fn too_large_changes_are_refused_with_size_and_bound() {
        let mut value = Changes::new();
        value.put("snapshot", vec![0; VALUE_BYTES_MAX + 1]);
        assert_eq!(
            value.settled().unwrap_err().to_string(),
            "the value of \"snapshot\" has 98305 bytes, and at most 98304 are stored"
        );
        let mut key = Changes::new();
        key.remove(vec![b'k'; KEY_BYTES_MAX + 1]);
        assert_matches!(
            key.settled(),
            Err(StoreError::TooLarge {
                what: "key",
                bytes: 1025,
                ..
            })
        );
        let mut commit = Changes::new();
        for number in 0..=COMMIT_BYTES_MAX / VALUE_BYTES_MAX {
            commit.put(format!("{number:04}"), vec![0; VALUE_BYTES_MAX]);
        }
        assert_matches!(
            commit.settled(),
            Err(StoreError::TooLarge { what: "commit", .. })
        );
    }

    #[test]
    fn empty_key_is_refused_and_empty_value_accepted() {
        let mut empty_key = Changes::new();
        empty_key.put("", "value");
        assert_eq!(empty_key.settled(), Err(StoreError::BadKey));
        let mut empty_value = Changes::new();
        empty_value.put("key", "");
        assert!(empty_value.settled().is_ok());
    }
}
