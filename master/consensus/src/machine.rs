//! What a group replicates: a state machine that all members drive through the same operations.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A state that changes only by operations, each of which changes it in the same way on every member: no clock, no chance, no I/O,
/// no order of a hash map.
pub trait StateMachine {
    /// What changes it. Encoded by our codec; an operation that this version does not understand stops the member.
    type Operation: Serialize + DeserializeOwned;
    /// What the proposer is told. It is not replicated.
    type Answer;

    /// Carries out the operation at this index of the log. Never called twice for one proposal.
    fn apply(&mut self, index: u64, operation: Self::Operation) -> Self::Answer;

    /// The whole state.
    fn snapshot(&self) -> Bytes;

    /// Replaces the state by one that [`snapshot`](Self::snapshot) wrote.
    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore>;
}

/// These bytes are no state that this version understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be read: {reason}")]
pub struct CannotRestore {
    /// What is wrong with it.
    pub reason: String,
}
