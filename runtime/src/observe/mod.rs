//! Observation: state, counters and history of a node's actors, and the tap on its messages.

pub mod host;
pub(crate) mod info;
pub(crate) mod series;
pub(crate) mod tally;
pub mod tap;
pub(crate) mod watchdog;
