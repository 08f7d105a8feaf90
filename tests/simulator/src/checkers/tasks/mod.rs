//! Checkers of tasks: states, updates, launches and evictions.

pub(in crate::checkers) mod corrections;
pub(in crate::checkers) mod executors;
pub(in crate::checkers) mod launches;
pub(in crate::checkers) mod revocations;
pub(in crate::checkers) mod states;
pub(in crate::checkers) mod status_origin;
pub(in crate::checkers) mod updates;
