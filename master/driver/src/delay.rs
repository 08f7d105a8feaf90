//! Delay scheduling: waits a bounded time for an offer of an agent that has the data of a task.
//!
//! A pure decision. The framework waits by declining other offers, whose resources go to other
//! frameworks at once.

use std::time::Duration;

use runtime::Instant;

/// Decides whether to accept offers of agents without the data.
///
/// ```
/// use runtime::Instant;
/// use scheduler_driver::DelayScheduling;
/// use std::time::Duration;
///
/// let mut delay = DelayScheduling::new(Duration::from_secs(1));
/// let at = |millis| Instant::default() + Duration::from_millis(millis);
/// assert!(!delay.takes(false, at(0)), "starts to wait");
/// assert!(delay.takes(true, at(500)), "a local offer ends the wait");
/// assert!(!delay.takes(false, at(900)), "starts to wait again");
/// assert!(delay.takes(false, at(1_900)), "has waited long enough");
/// ```
///
/// Decline other offers with a filter of about the same length as the wait: with the default of 5 s
/// they might not return in time.
#[derive(Clone, Debug)]
pub struct DelayScheduling {
    wait: Duration,
    since: Option<Instant>,
}

impl DelayScheduling {
    /// Waits this long for a local offer; zero accepts any offer.
    pub fn new(wait: Duration) -> Self {
        Self { wait, since: None }
    }

    /// Whether to accept the offer. `is_local` means that a waiting task has its data on this
    /// agent.
    ///
    /// After the wait it accepts any agent, until the next local offer.
    pub fn takes(&mut self, is_local: bool, now: Instant) -> bool {
        if is_local {
            self.since = None;
            return true;
        }
        now - *self.since.get_or_insert(now) >= self.wait
    }
}
