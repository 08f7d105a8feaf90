//! What a group replicates: a state machine that all members drive through the same operations.

use bytes::{Bytes, BytesMut};
use runtime::codec::{self, Garbled};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The form of operations with which every group begins.
pub const FIRST_FORM: u16 = 1;

/// A state that changes only by operations, each of which changes it in the same way on every member: no clock, no chance, no I/O,
/// no order of a hash map.
pub trait StateMachine {
    /// What changes it. One that this version cannot read stops the member.
    type Operation: Serialize + DeserializeOwned;
    /// What the proposer is told. It is not replicated.
    type Answer;

    /// The newest form of operations that this version writes and reads; it reads all before it as well. Forms count from [`FIRST_FORM`]. A new operation,
    /// or one of other bytes or of another effect, is a new form: members of two versions must agree on every entry.
    fn newest_form(&self) -> u16 {
        FIRST_FORM
    }

    /// The form in which operations are proposed now, which all members read. It is part of the state.
    fn form(&self) -> u16 {
        FIRST_FORM
    }

    /// An operation's bytes in this form, which is one up to the newest; an error says what the form lacks.
    fn encode(&self, operation: &Self::Operation, form: u16) -> Result<Vec<u8>, Untranslatable> {
        codec::encode(operation).map_err(|error| Untranslatable::new(form, error))
    }

    /// The operation of these bytes, in this form, which is one up to the newest.
    fn decode(&self, bytes: &[u8], form: u16) -> Result<Self::Operation, Untranslatable> {
        codec::decode(bytes).map_err(|error| Untranslatable::new(form, error))
    }

    /// Carries out the operation at this index of the log. Never called twice for one proposal.
    fn apply(&mut self, index: u64, operation: Self::Operation) -> Self::Answer;

    /// Appends the whole state. If that cannot be, whatever was appended means nothing, and the log is kept as it is.
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

/// An operation cannot be written in this form, or read as one of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in form {form}: {reason}")]
pub struct Untranslatable {
    /// Which form.
    pub form: u16,
    /// What is wrong.
    pub reason: String,
}

impl Untranslatable {
    /// For this reason.
    pub fn new(form: u16, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        Self { form, reason }
    }
}

/// These bytes are no state that this version understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be read: {reason}")]
pub struct CannotRestore {
    /// What is wrong with it.
    pub reason: String,
}
