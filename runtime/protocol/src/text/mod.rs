//! Texts with a fixed form: `duration` has durations as in Mesos (`15secs`), and `reserved_labels`
//! the labels that have a meaning for Meros.

pub mod duration;
pub mod reserved_labels;
