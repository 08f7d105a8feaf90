//! The replicated state machine: all members apply the same operations.

use bytes::{Bytes, BytesMut};
use runtime::wire::codec::{self, Garbled};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The operation format of every new group.
pub const FIRST_FORMAT: u16 = 1;

/// A state that changes only by operations, deterministically on every member: no clock, randomness
/// or I/O, and no dependency on the order of a hash map.
pub trait StateMachine {
    /// A change of the state. An operation that this version cannot decode stops the member.
    type Operation: Serialize + DeserializeOwned;
    /// The answer to the proposer. Not replicated.
    type Answer;

    /// The newest operation format that this version writes and reads; it also reads all earlier
    /// ones, from [`FIRST_FORMAT`] on. A new operation, or one with other bytes or another effect,
    /// needs a new format: members of two versions must agree on every entry.
    fn newest_format(&self) -> u16 {
        FIRST_FORMAT
    }

    /// The format in which operations are proposed now, which all members read. Part of the state.
    fn format(&self) -> u16 {
        FIRST_FORMAT
    }

    /// Encodes an operation in this format (at most the newest). The error names the missing
    /// feature of the format.
    fn encode(&self, operation: &Self::Operation, format: u16) -> Result<Vec<u8>, Untranslatable> {
        codec::encode(operation).map_err(|error| Untranslatable::new(format, error))
    }

    /// Decodes an operation of this format (at most the newest).
    fn decode(&self, bytes: &[u8], format: u16) -> Result<Self::Operation, Untranslatable> {
        codec::decode(bytes).map_err(|error| Untranslatable::new(format, error))
    }

    /// Applies the operation at this index of the log. Never called twice for one proposal.
    fn apply(&mut self, index: u64, operation: Self::Operation) -> Self::Answer;

    /// Appends the whole state. On an error the appended bytes are discarded, and the log is not
    /// truncated.
    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled>;

    /// The whole state.
    fn snapshot(&self) -> Result<Bytes, Garbled> {
        let mut bytes = BytesMut::new();
        self.snapshot_into(&mut bytes)?;
        Ok(bytes.freeze())
    }

    /// Replaces the state by one that [`snapshot_into`](Self::snapshot_into) wrote.
    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore>;
}

/// An operation cannot be encoded or decoded in this format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in format {format}: {reason}")]
pub struct Untranslatable {
    /// The format.
    pub format: u16,
    /// The cause.
    pub reason: String,
}

impl Untranslatable {
    /// Creates the error.
    pub fn new(format: u16, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        Self { format, reason }
    }
}

/// The bytes are not a state that this version can decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be read: {reason}")]
pub struct CannotRestore {
    /// The cause.
    pub reason: String,
}
