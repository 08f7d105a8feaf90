//! Registers: named cells that are read, written, and written on a condition. Each is a part of its own.
//!
//! The model on which the search itself is tried, because the literature knows how registers break.

use super::Model;

/// What is asked of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOperation {
    /// What does it hold?
    Read {
        /// Which register.
        register: u64,
    },
    /// It shall hold this.
    Write {
        /// Which register.
        register: u64,
        /// The new value.
        value: u64,
    },
    /// It shall hold `new` if it holds `expected`.
    CompareAndSet {
        /// Which register.
        register: u64,
        /// What it must hold.
        expected: u64,
        /// The new value.
        new: u64,
    },
}

/// What a register answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAnswer {
    /// It holds this.
    Value(u64),
    /// It was written.
    Written,
    /// It did not hold what was expected, and was left alone.
    Differs,
}

/// Registers that all hold the same at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    /// What they hold.
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
