//! Texts with a form: durations and reserved labels.

pub mod duration;
pub mod reserved_labels;
