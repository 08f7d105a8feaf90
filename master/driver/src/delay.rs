//! Delay scheduling: a framework waits a bounded time for an agent that holds its data (S112).
//!
//! Pure: it is told the time and whether an offer is of such an agent. The waiting is done by declining: what this framework refuses others
//! are offered at once. Knows no data, no agent and no offer.

use std::time::Duration;

use runtime::Instant;

/// Whether to take offers of agents without the data.
///
/// ```
/// use runtime::Instant;
/// use scheduler_driver::DelayScheduling;
/// use std::time::Duration;
///
/// let mut delay = DelayScheduling::new(Duration::from_secs(1));
/// let at = |millis| Instant::default() + Duration::from_millis(millis);
/// assert!(!delay.takes(false, at(0)), "it begins to wait");
/// assert!(delay.takes(true, at(500)), "the data is there: it waits no more");
/// assert!(!delay.takes(false, at(900)), "it begins to wait anew");
/// assert!(delay.takes(false, at(1_900)), "it has waited for long enough");
/// ```
///
/// Decline what it does not take with a filter of about the time that is waited; with the default of five seconds those agents may not be
/// offered again before the wait is over.
#[derive(Clone, Debug)]
pub struct DelayScheduling {
    wait: Duration,
    since: Option<Instant>,
}

impl DelayScheduling {
    /// One that waits so long for the right agent; zero is not to wait at all.
    pub fn new(wait: Duration) -> Self {
        Self { wait, since: None }
    }

    /// Whether to launch a task on the agent that is offered. `is_local`: whether a task that waits has its data there.
    ///
    /// Once it has waited for long enough it takes any agent, until there is a right one again.
    pub fn takes(&mut self, is_local: bool, now: Instant) -> bool {
        if is_local {
            self.since = None;
            return true;
        }
        now - *self.since.get_or_insert(now) >= self.wait
    }
}
