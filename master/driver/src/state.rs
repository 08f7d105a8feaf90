//! Framework state: requests, answers and errors.
//!
//! A framework can keep up to 128 keys of at most 256 bytes, with values of at most 64 KiB, in the
//! masters' registry. A change is answered when it is on the disks of a majority of the masters.
//! The state survives masters and schedulers, and is deleted with the framework.

use std::time::Duration;

use protocol::message::state::{ChangeState, StateRefused, StateValue, check_key, check_value};
use resources::Invalid;
use runtime::AskError;

/// Time limit of a request, including the wait for a master.
pub const STATE_PATIENCE: Duration = Duration::from_secs(15);

/// A request for the framework's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateCall {
    /// Reads a key. Includes all changes answered before. Standbys may read too.
    Get {
        /// The key.
        key: String,
    },
    /// Writes a key unconditionally.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Writes a key if it has the expected version.
    CompareAndSet {
        /// The key.
        key: String,
        /// Expected version; 0 for a missing key.
        expected: u64,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: String,
        /// Expected version; `None` for any.
        expected: Option<u64>,
    },
}

impl StateCall {
    /// The key of the request.
    pub fn key(&self) -> &str {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::CompareAndSet { key, .. }
            | Self::Delete { key, .. } => key,
        }
    }

    /// Whether the request is a read.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Get { .. })
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_key(self.key())?;
        match self {
            Self::Put { value, .. } | Self::CompareAndSet { value, .. } => check_value(value),
            Self::Get { .. } | Self::Delete { .. } => Ok(()),
        }
    }

    /// The change: expected version and new value; `None` for a read.
    pub(crate) fn change(&self) -> Option<(Option<u64>, Option<Vec<u8>>)> {
        match self {
            Self::Get { .. } => None,
            Self::Put { value, .. } => Some((None, Some(value.clone()))),
            Self::CompareAndSet {
                expected, value, ..
            } => Some((Some(*expected), Some(value.clone()))),
            Self::Delete { expected, .. } => Some((*expected, None)),
        }
    }
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAnswer {
    /// The value, if there is one.
    Found(Option<StateValue>),
    /// The change was made.
    Written {
        /// The new version; 0 after a deletion.
        version: u64,
    },
}

/// Result of a request.
pub type StateOutcome = Result<StateAnswer, StateError>;

/// Why a request failed, or may have failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// No master answered within [`STATE_PATIENCE`]. Nothing was changed: retry.
    #[error("no master: {reason}")]
    Unavailable {
        /// For the log.
        reason: String,
    },
    /// The change may have been made: read the key, or repeat a compare-and-set.
    #[error("unknown whether the change was made: {reason}")]
    Unknown {
        /// For the log.
        reason: String,
    },
    /// The version differs from the expected one. Nothing was changed: read the key again.
    #[error("its version is {found}")]
    Conflict {
        /// The current version; 0 for a missing key.
        found: u64,
    },
    /// This scheduler is not the leading one, which alone may change the state. Nothing was
    /// changed.
    #[error("not leading: {reason}")]
    NotLeading {
        /// For the log.
        reason: String,
    },
    /// The request is invalid and must not be repeated.
    #[error("{reason}")]
    Refused {
        /// Field, value and expectation.
        reason: String,
    },
}

/// Result of one attempt at a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The request is complete.
    Done(StateOutcome),
    /// Nothing was changed: retry.
    Retry {
        /// The cause.
        reason: String,
    },
}

/// Interprets a master's answer.
pub(crate) fn interpret(
    reads: bool,
    answer: Result<Result<StateAnswer, StateRefused>, AskError>,
) -> Attempt {
    let error = match answer {
        Ok(Ok(answer)) => return Attempt::Done(Ok(answer)),
        Ok(Err(StateRefused::NotNow { reason })) => return Attempt::Retry { reason },
        Ok(Err(StateRefused::Conflict { found })) => StateError::Conflict { found },
        Ok(Err(StateRefused::NotLeading { reason })) => StateError::NotLeading { reason },
        Ok(Err(StateRefused::Never { reason })) => StateError::Refused { reason },
        Err(AskError::Refused { reason }) => StateError::Refused { reason },
        Err(error @ (AskError::Gone | AskError::Late { .. } | AskError::Full)) if reads => {
            let reason = error.to_string();
            return Attempt::Retry { reason };
        }
        Err(AskError::Full) => {
            let reason = AskError::Full.to_string();
            return Attempt::Retry { reason };
        }
        Err(error) => StateError::Unknown {
            reason: error.to_string(),
        },
    };
    Attempt::Done(Err(error))
}

/// The message for a change; `None` for a read.
pub(crate) fn change_of(
    call: &StateCall,
    framework_id: protocol::FrameworkId,
    scheduler: runtime::Pid,
) -> Option<ChangeState> {
    let (expected, value) = call.change()?;
    Some(ChangeState {
        framework_id,
        scheduler,
        key: call.key().to_owned(),
        expected,
        value,
    })
}

#[cfg(test)]
mod tests {
    use testkit::assert_matches;

    use super::*;

    #[test]
    fn lost_answer_makes_a_change_unknown() {
        for lost in [
            AskError::Gone,
            AskError::Late {
                after: STATE_PATIENCE,
            },
        ] {
            let unknown = interpret(false, Err(lost.clone()));
            assert_matches!(unknown, Attempt::Done(Err(StateError::Unknown { .. })));
            assert!(matches!(interpret(true, Err(lost)), Attempt::Retry { .. }));
        }
    }

    #[test]
    fn unapplied_calls_are_retried() {
        let reason = "busy".to_owned();
        let not_now = Ok(Err(StateRefused::NotNow { reason }));
        assert!(matches!(interpret(false, not_now), Attempt::Retry { .. }));
        let full = Err(AskError::Full);
        assert!(matches!(interpret(false, full), Attempt::Retry { .. }));
        let conflict = Ok(Err(StateRefused::Conflict { found: 3 }));
        let over = Attempt::Done(Err(StateError::Conflict { found: 3 }));
        assert_eq!(interpret(false, conflict), over);
    }
}
