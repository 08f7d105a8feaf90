//! Checkers: observers of events that report a violated invariant.

use std::time::Duration;

use crate::event::Event;

/// Watches one invariant. It sees every event in order.
pub trait Checker: Send {
    /// The invariant in a word or two, for summaries and failures.
    fn name(&self) -> &'static str;

    /// Handles one event.
    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation>;

    /// Whether more time could settle an open question: the recovery phase continues for it, up to
    /// its end.
    fn is_waiting(&mut self, _at: Duration) -> bool {
        false
    }

    /// Judges at the end of the run, after the recovery phase.
    fn finish(&mut self, _at: Duration) -> Result<(), Violation> {
        Ok(())
    }

    /// The number of judgements: zero means that the run proves nothing for this checker.
    fn judgements(&self) -> u64;
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker} is broken at {at:?}: {what}")]
pub struct Violation {
    /// The checker that found it.
    pub checker: &'static str,
    /// Virtual time of the violation.
    pub at: Duration,
    /// The observation, and the expected one.
    pub what: String,
}
