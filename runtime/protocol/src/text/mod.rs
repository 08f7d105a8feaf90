//! Texts with a fixed form: `bytes` has amounts (`96MB`) and `duration` durations (`15secs`) as in
//! Mesos, and `reserved_labels` the labels that have a meaning for Meros.

pub mod bytes;
pub mod duration;
pub mod reserved_labels;
