//! Framework state, as an author sees it: what can be asked, what is answered, and what may go wrong (DESIGN section 9).
//!
//! A framework keeps up to 128 keys of at most 256 bytes with values of at most 64 KiB in the masters' registry. They are on a
//! majority of the masters' disks before anybody is answered, survive the master and every scheduler, and end with the framework. Plain
//! data; the driver carries it out.

use std::time::Duration;

use protocol::message::state::{ChangeState, StateRefused, StateValue, check_key, check_value};
use resources::Invalid;
use runtime::AskError;

/// How long a call waits for a master that answers it.
pub const STATE_PATIENCE: Duration = Duration::from_secs(15);

/// What can be asked of the framework's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateCall {
    /// What stands under this key? Reads see all that was answered before; standbys may ask too.
    Get {
        /// Which key.
        key: String,
    },
    /// Write this, whatever is there.
    Put {
        /// Which key.
        key: String,
        /// What to write.
        value: Vec<u8>,
    },
    /// Write this if the version is still the one expected.
    CompareAndSet {
        /// Which key.
        key: String,
        /// The version; 0 for a key that is not there.
        expected: u64,
        /// What to write.
        value: Vec<u8>,
    },
    /// Keep nothing there any more.
    Delete {
        /// Which key.
        key: String,
        /// Only if this is its version; `None` in any case.
        expected: Option<u64>,
    },
}

impl StateCall {
    /// The key that is asked for.
    pub fn key(&self) -> &str {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::CompareAndSet { key, .. }
            | Self::Delete { key, .. } => key,
        }
    }

    /// Whether it only looks.
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

    /// The change in a master's words: the version expected and the new value; `None` for a question.
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

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAnswer {
    /// What stands there.
    Found(Option<StateValue>),
    /// It was written, and has this version; 0 if it was deleted.
    Written {
        /// What the next change may expect.
        version: u64,
    },
}

/// What has become of a call.
pub type StateOutcome = Result<StateAnswer, StateError>;

/// Why a call was not, or may not have been, carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// No master answered within [`STATE_PATIENCE`]. Nothing was changed: try again.
    #[error("no master: {reason}")]
    Unavailable {
        /// For the log.
        reason: String,
    },
    /// The change may have been made or not: read the key, or say a compare-and-set again.
    #[error("it may have been changed or not: {reason}")]
    Unknown {
        /// For the log.
        reason: String,
    },
    /// The key has another version than expected. Nothing was changed: read it again.
    #[error("its version is {found}")]
    Conflict {
        /// The version it has; 0 when it is not there.
        found: u64,
    },
    /// This scheduler does not lead, and only the one that does may change the state. Nothing was changed.
    #[error("not leading: {reason}")]
    NotLeading {
        /// For the log.
        reason: String,
    },
    /// It will never be done as it is.
    #[error("{reason}")]
    Refused {
        /// Names the field, the value and what was expected.
        reason: String,
    },
}

/// What follows from a master's answer, or from none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The call is over.
    Over(StateOutcome),
    /// Nothing was changed: it can be said again.
    Again {
        /// Why it has to be.
        reason: String,
    },
}

/// What follows from what a master said.
pub(crate) fn heard(
    reads: bool,
    answer: Result<Result<StateAnswer, StateRefused>, AskError>,
) -> Heard {
    let error = match answer {
        Ok(Ok(answer)) => return Heard::Over(Ok(answer)),
        Ok(Err(StateRefused::NotNow { reason })) => return Heard::Again { reason },
        Ok(Err(StateRefused::Conflict { found })) => StateError::Conflict { found },
        Ok(Err(StateRefused::NotLeading { reason })) => StateError::NotLeading { reason },
        Ok(Err(StateRefused::Never { reason })) => StateError::Refused { reason },
        Err(AskError::Refused { reason }) => StateError::Refused { reason },
        Err(error @ (AskError::Gone | AskError::Late { .. } | AskError::Full)) if reads => {
            let reason = error.to_string();
            return Heard::Again { reason };
        }
        Err(AskError::Full) => {
            let reason = AskError::Full.to_string();
            return Heard::Again { reason };
        }
        Err(error) => StateError::Unknown {
            reason: error.to_string(),
        },
    };
    Heard::Over(Err(error))
}

/// What the call is to a master, if it is a change.
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
    use super::*;

    #[test]
    fn a_lost_answer_leaves_a_change_unknown_and_a_question_open() {
        for lost in [
            AskError::Gone,
            AskError::Late {
                after: STATE_PATIENCE,
            },
        ] {
            let unknown = heard(false, Err(lost.clone()));
            assert!(
                matches!(unknown, Heard::Over(Err(StateError::Unknown { .. }))),
                "{unknown:?}"
            );
            assert!(matches!(heard(true, Err(lost)), Heard::Again { .. }));
        }
    }

    #[test]
    fn what_was_certainly_not_done_is_said_again() {
        let reason = "busy".to_owned();
        let not_now = Ok(Err(StateRefused::NotNow { reason }));
        assert!(matches!(heard(false, not_now), Heard::Again { .. }));
        let full = Err(AskError::Full);
        assert!(matches!(heard(false, full), Heard::Again { .. }));
        let conflict = Ok(Err(StateRefused::Conflict { found: 3 }));
        let over = Heard::Over(Err(StateError::Conflict { found: 3 }));
        assert_eq!(heard(false, conflict), over);
    }
}
