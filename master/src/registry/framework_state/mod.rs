//! State of frameworks in the registry: a few small, versioned values each.
//!
//! Pure. Three bounds: bytes of a key and a value ([`protocol::message::state`]), keys per
//! framework, and total bytes. Access control is in [`crate::frameworks::standby`].

use std::collections::BTreeMap;

use protocol::FrameworkId;
use protocol::message::state::{STATE_KEYS_MAX, StateValue};

use super::RegistryError;

/// Maximum bytes of keys and values of all frameworks.
pub const STATE_BYTES_MAX: usize = 64 << 20;

/// A change of one key.
pub(super) struct Change<'a> {
    pub key: &'a str,
    /// Required current version; 0 for a missing key.
    pub expected: Option<u64>,
    /// `None` deletes the key.
    pub value: Option<&'a [u8]>,
}

/// The state of all frameworks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameworkStates {
    of: BTreeMap<FrameworkId, BTreeMap<String, StateValue>>,
    /// Bytes of all keys and values.
    bytes: usize,
}

impl FrameworkStates {
    /// The value of a key.
    pub fn get(&self, framework_id: &FrameworkId, key: &str) -> Option<&StateValue> {
        self.of.get(framework_id)?.get(key)
    }

    /// All values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &str, &StateValue)> {
        self.of.iter().flat_map(|(id, keys)| {
            keys.iter()
                .map(move |(key, value)| (id, key.as_str(), value))
        })
    }

    /// Applies a change, which gives the key this version, or refuses it without effect.
    pub(super) fn change(
        &mut self,
        framework_id: &FrameworkId,
        change: Change<'_>,
        version: u64,
    ) -> Result<(), RegistryError> {
        let before = self.get(framework_id, change.key);
        let found = before.map_or(0, |before| before.version);
        if change.expected.is_some_and(|expected| expected != found) {
            return Err(RegistryError::Conflict { found });
        }
        if let Some(value) = change.value {
            let keys = self.of.get(framework_id).map_or(0, BTreeMap::len);
            if before.is_none() && keys >= STATE_KEYS_MAX {
                let reason = format!(
                    "framework `{framework_id}` has {keys} keys: expected at most {STATE_KEYS_MAX}"
                );
                return Err(RegistryError::Refused { reason });
            }
            let freed = before.map_or(0, |before| size(change.key, &before.value));
            let bytes = self.bytes - freed + size(change.key, value);
            if bytes > STATE_BYTES_MAX {
                let reason = format!(
                    "all frameworks would keep {bytes} bytes: expected at most {STATE_BYTES_MAX}"
                );
                return Err(RegistryError::Refused { reason });
            }
        }
        let value = change.value.map(|value| StateValue {
            version,
            value: value.to_vec(),
        });
        self.set(framework_id, change.key, value);
        Ok(())
    }

    /// Sets or removes a value.
    pub(super) fn set(&mut self, framework_id: &FrameworkId, key: &str, value: Option<StateValue>) {
        let added = value.as_ref().map_or(0, |value| size(key, &value.value));
        let keys = self.of.entry(framework_id.clone()).or_default();
        let before = match value {
            Some(value) => keys.insert(key.to_owned(), value),
            None => keys.remove(key),
        };
        if keys.is_empty() {
            self.of.remove(framework_id);
        }
        self.bytes += added;
        self.bytes -= before.map_or(0, |before| size(key, &before.value));
    }

    /// Removes a framework.
    pub(super) fn remove_framework(&mut self, framework_id: &FrameworkId) {
        let keys = self.of.remove(framework_id).unwrap_or_default();
        for (key, value) in keys {
            self.bytes -= size(&key, &value.value);
        }
    }
}

fn size(key: &str, value: &[u8]) -> usize {
    key.len() + value.len()
}

#[cfg(test)]
mod tests;
