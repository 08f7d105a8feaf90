//! Errors of modules, one variant for each reaction of the caller.
//!
//! A failed module never stops the service that uses it.

use std::fmt;
use std::time::Duration;

use runtime::AskError;
use serde::{Deserialize, Serialize};

/// The kinds of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ModuleKind {
    /// Tracks allocations and makes grants.
    Allocator,
    /// Orders clients by share.
    Sorter,
    /// Estimates the resources that an agent can lend.
    ResourceEstimator,
    /// Decides which revocable executors must yield.
    QosController,
    /// Limits what containers can use and see.
    Isolator,
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocator => "allocator",
            Self::Sorter => "sorter",
            Self::ResourceEstimator => "resource estimator",
            Self::QosController => "QoS controller",
            Self::Isolator => "isolator",
        })
    }
}

/// A module's negative reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// The module got a request before its source of usage data.
    #[error("it was used before it was initialized")]
    NotInitialized,
    /// The module was initialized twice.
    #[error("it was initialized before")]
    InitializedTwice,
    /// The module could not get the agent's usage.
    #[error("no usage to judge from: {reason}")]
    NoUsage {
        /// Why there is none.
        reason: String,
    },
    /// Any other failure.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}

impl Fault {
    /// A failure for this reason.
    pub fn failed(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Failed { reason }
    }
}

/// Why a request to a module failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// Gone or being restarted: try again at the next interval.
    #[error("the {kind} is down")]
    Down {
        /// Which kind of module.
        kind: ModuleKind,
    },
    /// Alive but slow or overloaded: go on with the previous reply.
    #[error("the {kind} gave no answer within {after:?}")]
    Late {
        /// Kind of the module.
        kind: ModuleKind,
        /// The timeout that passed; zero if the mailbox was full.
        after: Duration,
    },
    /// The module replied with a fault: log it and try again at the next interval.
    #[error("the {kind} {}: {fault}", verb(*kind))]
    Fault {
        /// Kind of the module.
        kind: ModuleKind,
        /// The module's reply.
        fault: Fault,
    },
    /// The reply is invalid: log it and ignore it.
    #[error("the {kind} gave an unusable answer: {reason}")]
    Unusable {
        /// Kind of the module.
        kind: ModuleKind,
        /// The violated rule.
        reason: String,
    },
    /// No module of that kind has this name: correct the configuration.
    #[error("there is no {kind} called `{name}`{}: expected one of {known}", nearest(name, known.split(", ")))]
    Unknown {
        /// Kind of the module.
        kind: ModuleKind,
        /// The configured name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The module of that name is of another kind: correct the configuration.
    #[error("`{name}` is a module of the kind {actual}, not {kind}: expected one of {known}")]
    WrongKind {
        /// The expected kind.
        kind: ModuleKind,
        /// The configured name.
        name: String,
        /// Its kind, or those that it can be.
        actual: String,
        /// The names of the expected kind.
        known: String,
    },
    /// A parameter is missing or invalid: correct the configuration.
    #[error("module `{module}`, parameter `{key}` is {value}: expected {expected}")]
    Parameter {
        /// Name of the module.
        module: String,
        /// Key of the parameter.
        key: String,
        /// The configured value, quoted, or `missing`.
        value: String,
        /// The expected value.
        expected: String,
    },
    /// The module could not be started.
    #[error("the {kind} `{name}` cannot be started: {reason}")]
    NotStarted {
        /// Kind of the module.
        kind: ModuleKind,
        /// Name of the module.
        name: String,
        /// Why.
        reason: String,
    },
}

/// A suggestion for a misspelt name; empty if no known name resembles it.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    /// Similarity from 0 to 1 of names that are suggested, as in clap.
    const SIMILAR: f64 = 0.8;
    let rated = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let nearest = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((similarity, known)) if similarity >= SIMILAR => {
            format!(" (did you mean `{known}`?)")
        }
        _ => String::new(),
    }
}

/// An isolator is asked to act, the others for an answer.
fn verb(kind: ModuleKind) -> &'static str {
    match kind {
        ModuleKind::Isolator => "failed",
        _ => "has no answer",
    }
}

impl ModuleError {
    /// Converts the error of a request to a module of this kind.
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
