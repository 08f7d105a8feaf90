//! Framework state: a few small values in the masters' registry, available to all schedulers of a
//! framework.
//!
//! Versions come from one counter of the whole registry, so a key that was deleted and written
//! again has a higher version than before.

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use resources::Invalid;

use crate::id::FrameworkId;

/// Maximum length of a key, in bytes.
pub const STATE_KEY_BYTES_MAX: usize = 256;
/// Maximum length of a value, in bytes.
pub const STATE_VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of keys per framework.
pub const STATE_KEYS_MAX: usize = 128;

/// Validates a key: 1 to [`STATE_KEY_BYTES_MAX`] bytes without control characters.
pub fn check_key(key: &str) -> Result<(), Invalid> {
    let expected = match key {
        "" => "at least one character".to_owned(),
        _ if key.len() > STATE_KEY_BYTES_MAX => format!("at most {STATE_KEY_BYTES_MAX} bytes"),
        _ if key.chars().any(char::is_control) => "no control character".to_owned(),
        _ => return Ok(()),
    };
    Err(Invalid::new("key", key.escape_debug(), expected))
}

/// Validates a value: at most [`STATE_VALUE_BYTES_MAX`] bytes.
pub fn check_value(value: &[u8]) -> Result<(), Invalid> {
    if value.len() <= STATE_VALUE_BYTES_MAX {
        return Ok(());
    }
    let found = format!("{} bytes", value.len());
    let expected = format!("at most {STATE_VALUE_BYTES_MAX} bytes");
    Err(Invalid::new("value", found, expected))
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateValue {
    /// Version, set by the registry on each write; never 0.
    pub version: u64,
    /// The bytes.
    #[serde(with = "runtime::wire::codec::octets")]
    pub value: Vec<u8>,
}

/// Reads a key. The answer includes every change that was answered before. Allowed for the leading
/// scheduler and for standbys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetState {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The calling scheduler.
    pub scheduler: Pid,
    /// The key.
    pub key: String,
}

/// Writes or deletes a key. The answer is the new version, or 0 after a deletion. Allowed only for
/// the leading scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeState {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The calling scheduler.
    pub scheduler: Pid,
    /// The key.
    pub key: String,
    /// Required current version, 0 for a missing key; `None` for any.
    pub expected: Option<u64>,
    /// The new value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
}

/// The state was not read or not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StateRefused {
    /// The registry cannot answer now: retry later.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// The version differs from the expected one: read the key again.
    #[error("its version is {found}")]
    Conflict {
        /// The current version; 0 for a missing key.
        found: u64,
    },
    /// Only the leading scheduler may change the state; it and its standbys may read it.
    #[error("{reason}")]
    NotLeading {
        /// The caller and the rejected request.
        reason: String,
    },
    /// The request is invalid and must not be repeated.
    #[error("{reason}")]
    Never {
        /// Field, value and expectation.
        reason: String,
    },
}

remote! { GetState = "state/get" v1 -> Result<Option<StateValue>, StateRefused> }
remote! { ChangeState = "state/change" v1 -> Result<u64, StateRefused> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_keys_and_values_are_invalid() {
        assert_eq!(check_key("progress/α"), Ok(()));
        assert_eq!(check_key(&"k".repeat(STATE_KEY_BYTES_MAX)), Ok(()));
        for key in [String::new(), "k".repeat(257), "a\nb".to_owned()] {
            assert_eq!(check_key(&key).unwrap_err().field, "key", "{key:?}");
        }
        assert_eq!(check_value(&[0; STATE_VALUE_BYTES_MAX]), Ok(()));
        let refused = check_value(&[0; STATE_VALUE_BYTES_MAX + 1]).unwrap_err();
        assert!(refused.to_string().contains("65537 bytes"), "{refused}");
    }
}
