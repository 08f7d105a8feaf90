//! Framework state: a few small values that a framework keeps in the master's registry, so that whichever of its schedulers leads
//! finds them (DESIGN section 9).
//!
//! Versions come from one counter of the whole registry: a key that was deleted and written again has a higher one than before.

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use resources::Invalid;

use crate::id::FrameworkId;

/// The longest key, in bytes.
pub const STATE_KEY_BYTES_MAX: usize = 256;
/// The largest value, in bytes.
pub const STATE_VALUE_BYTES_MAX: usize = 64 << 10;
/// How many keys one framework may have.
pub const STATE_KEYS_MAX: usize = 128;

/// Whether this can be a key: 1 to [`STATE_KEY_BYTES_MAX`] bytes without control characters.
pub fn check_key(key: &str) -> Result<(), Invalid> {
    let expected = match key {
        "" => "at least one character".to_owned(),
        _ if key.len() > STATE_KEY_BYTES_MAX => format!("at most {STATE_KEY_BYTES_MAX} bytes"),
        _ if key.chars().any(char::is_control) => "no control character".to_owned(),
        _ => return Ok(()),
    };
    Err(Invalid::new("key", key.escape_debug(), expected))
}

/// Whether this can be a value: at most [`STATE_VALUE_BYTES_MAX`] bytes.
pub fn check_value(value: &[u8]) -> Result<(), Invalid> {
    if value.len() <= STATE_VALUE_BYTES_MAX {
        return Ok(());
    }
    let found = format!("{} bytes", value.len());
    let expected = format!("at most {STATE_VALUE_BYTES_MAX} bytes");
    Err(Invalid::new("value", found, expected))
}

/// A value, and the version that a change of it may expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateValue {
    /// Given by the registry when it was written; never 0.
    pub version: u64,
    /// The bytes.
    #[serde(with = "runtime::codec::octets")]
    pub value: Vec<u8>,
}

/// What stands under this key now? Answered with all that was answered before. The leading scheduler may ask, and standbys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetState {
    /// Of which framework.
    pub framework_id: FrameworkId,
    /// Who asks.
    pub scheduler: Pid,
    /// Which key.
    pub key: String,
}

/// This shall stand under this key from now on. Answered with its version, 0 when it was deleted. The leading scheduler alone may
/// say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeState {
    /// Of which framework.
    pub framework_id: FrameworkId,
    /// Who says it.
    pub scheduler: Pid,
    /// Which key.
    pub key: String,
    /// Only if this is its version now, 0 for a key that is not there; `None` in any case.
    pub expected: Option<u64>,
    /// The new value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
}

/// The state was not read, or not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StateRefused {
    /// The registry cannot answer just now: try again after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// The key has another version than expected: read it again.
    #[error("its version is {found}")]
    Conflict {
        /// The version it has; 0 when it is not there.
        found: u64,
    },
    /// Only the leading scheduler may change the state, and only it and its standbys may read it.
    #[error("{reason}")]
    NotLeading {
        /// Who asked, and for what.
        reason: String,
    },
    /// It will never be done as it is.
    #[error("{reason}")]
    Never {
        /// Names the field, the value and what was expected.
        reason: String,
    },
}

remote! { GetState = "state/get" v1 -> Result<Option<StateValue>, StateRefused> }
remote! { ChangeState = "state/change" v1 -> Result<u64, StateRefused> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_value_that_is_too_long_is_refused_with_its_bound() {
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
