//! Bounded waits on real processes, in real time.

use std::time::Duration;

use runtime::{Clock, Timestamp};

/// The bound of every wait: far above the usual time, so that slow machines pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The bound of a whole test, for loops in which other events keep arriving.
pub const LONGEST: Duration = Duration::from_secs(600);

/// The end of the time for a whole test.
pub struct Deadline(Timestamp);

impl Deadline {
    /// [`LONGEST`] from now.
    pub fn of_a_test() -> Self {
        Self(Clock::real().wall() + LONGEST)
    }

    /// Panics with `what` after the deadline.
    pub fn check(&self, what: &str) {
        assert!(
            Clock::real().wall() < self.0,
            "not within {LONGEST:?}: {what}"
        );
    }
}

/// Waits until `condition` returns a value; panics with `what` after [`PATIENCE`].
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, condition).unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}"))
}

/// Waits at most `patience` until `condition` returns a value.
pub fn within<T>(patience: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..patience.as_millis() / STEP.as_millis() {
        if let Some(value) = condition() {
            return Some(value);
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a bounded wait on real processes"
        )]
        std::thread::sleep(STEP);
    }
    None
}
