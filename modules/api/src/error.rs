//! What can go wrong with a module, told apart by what its user does next.
//!
//! A module's failure is never a failure of the service: every variant leaves its user able to go on.

use std::fmt;
use std::time::Duration;

use runtime::AskError;
use serde::{Deserialize, Serialize};

/// What kind of work a module does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ModuleKind {
    /// Keeps the books and makes grants.
    Allocator,
    /// Says who is next.
    Sorter,
    /// Says what an agent may lend.
    ResourceEstimator,
    /// Says which revocable executors must yield.
    QosController,
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocator => "allocator",
            Self::Sorter => "sorter",
            Self::ResourceEstimator => "resource estimator",
            Self::QosController => "QoS controller",
        })
    }
}

/// What a module answers when it cannot answer what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// It was asked before it was told where usage comes from (S22).
    #[error("it was used before it was initialized")]
    NotInitialized,
    /// It was initialized twice (S22).
    #[error("it was initialized before")]
    InitializedTwice,
    /// It needs the agent's usage, and that could not be had.
    #[error("no usage to judge from: {reason}")]
    NoUsage {
        /// Why there is none.
        reason: String,
    },
    /// It could not do its work.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}

/// Why a module did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// Gone or being restarted: ask again at the next interval.
    #[error("the {kind} is down")]
    Down {
        /// Which kind of module.
        kind: ModuleKind,
    },
    /// Alive but slow, or drowned in questions: go on with the previous answer.
    #[error("the {kind} gave no answer within {after:?}")]
    Late {
        /// Which kind of module.
        kind: ModuleKind,
        /// The patience spent.
        after: Duration,
    },
    /// It answered that it cannot: log it and ask again at the next interval.
    #[error("the {kind} has no answer: {fault}")]
    Fault {
        /// Which kind of module.
        kind: ModuleKind,
        /// Its own words.
        fault: Fault,
    },
    /// Its answer cannot be used: log it, and never act on it.
    #[error("the {kind} gave an unusable answer: {reason}")]
    Unusable {
        /// Which kind of module.
        kind: ModuleKind,
        /// What is wrong with it.
        reason: String,
    },
    /// No module of that kind has this name: mend the configuration.
    #[error("there is no {kind} called `{name}`: expected one of {known}")]
    Unknown {
        /// Which kind of module.
        kind: ModuleKind,
        /// The name as given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A parameter is missing or wrong: mend the configuration.
    #[error("module `{module}`, parameter `{key}` is {value}: expected {expected}")]
    Parameter {
        /// Whose.
        module: String,
        /// Which.
        key: String,
        /// What stood there, quoted, or `missing`.
        value: String,
        /// What would have been taken.
        expected: String,
    },
    /// It could not be started.
    #[error("the {kind} `{name}` cannot be started: {reason}")]
    NotStarted {
        /// Which kind of module.
        kind: ModuleKind,
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl ModuleError {
    /// A failed question to a module of this kind, as its user should see it.
    pub fn of_ask(kind: ModuleKind, error: AskError) -> Self {
        match error {
            AskError::Late { after } => Self::Late { kind, after },
            AskError::Full => Self::Late {
                kind,
                after: Duration::ZERO,
            },
            AskError::Gone => Self::Down { kind },
            AskError::Refused { reason } | AskError::Garbled { reason } => {
                Self::Unusable { kind, reason }
            }
        }
    }
}
