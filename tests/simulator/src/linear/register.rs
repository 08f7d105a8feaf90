//! Registers: named cells that are read, written, and compared and set. Each is a separate part.
//!
//! The model for tests of the search, since the literature describes how registers break.

use super::Model;

/// A request to a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOperation {
    /// Reads it.
    Read {
        /// The register.
        register: u64,
    },
    /// Sets this value.
    Write {
        /// The register.
        register: u64,
        /// The new value.
        value: u64,
    },
    /// Sets `new` if the value is `expected`.
    CompareAndSet {
        /// The register.
        register: u64,
        /// The expected value.
        expected: u64,
        /// The new value.
        new: u64,
    },
}

/// A register's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAnswer {
    /// The value.
    Value(u64),
    /// It was written.
    Written,
    /// The value was another one, and is unchanged.
    Differs,
}

/// Registers with the same initial value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    /// The initial value.
    pub initial: u64,
}

impl Model for Registers {
    type Operation = RegisterOperation;
    type Answer = RegisterAnswer;
    type State = u64;
    type Part = u64;

    fn part(&self, operation: &RegisterOperation) -> u64 {
        match operation {
            RegisterOperation::Read { register }
            | RegisterOperation::Write { register, .. }
            | RegisterOperation::CompareAndSet { register, .. } => *register,
        }
    }

    fn initial(&self, _: &u64) -> u64 {
        self.initial
    }

    fn step(
        &self,
        state: &u64,
        operation: &RegisterOperation,
        answer: Option<&RegisterAnswer>,
    ) -> Option<u64> {
        let (true_answer, after) = match *operation {
            RegisterOperation::Read { .. } => (RegisterAnswer::Value(*state), *state),
            RegisterOperation::Write { value, .. } => (RegisterAnswer::Written, value),
            RegisterOperation::CompareAndSet { expected, new, .. } if expected == *state => {
                (RegisterAnswer::Written, new)
            }
            RegisterOperation::CompareAndSet { .. } => (RegisterAnswer::Differs, *state),
        };
        answer
            .is_none_or(|answer| *answer == true_answer)
            .then_some(after)
    }

    fn only_looks(&self, operation: &RegisterOperation, answer: &RegisterAnswer) -> bool {
        matches!(operation, RegisterOperation::Read { .. }) || *answer == RegisterAnswer::Differs
    }
}
