//! Checker: watches events from outside and says when an invariant of the house is broken.

use std::time::Duration;

use crate::event::Event;

/// Watches one invariant. It is shown every event in order, and judges by what it has seen.
pub trait Checker: Send {
    /// The invariant in a word or two, as summaries and failures name it.
    fn name(&self) -> &'static str;

    /// Looks at one event.
    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation>;

    /// Whether something is open that more time may close, or show to be broken: the recovery goes on for its sake, to its end at most.
    fn is_waiting(&mut self, _at: Duration) -> bool {
        false
    }

    /// Looks at the end of the run, after the recovery phase.
    fn finish(&mut self, _at: Duration) -> Result<(), Violation> {
        Ok(())
    }

    /// How many judgements it has made: a checker that never had anything to judge proves nothing.
    fn judgements(&self) -> u64;
}

/// An invariant was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker} is broken at {at:?}: {what}")]
pub struct Violation {
    /// Who saw it.
    pub checker: &'static str,
    /// When, in virtual time.
    pub at: Duration,
    /// What was seen, and what was expected.
    pub what: String,
}
