//! The forms of the log's records.
