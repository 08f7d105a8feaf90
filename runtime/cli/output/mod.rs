//! The output of the command: text and tables, the log, and errors.
//!
//! `print` writes to standard output and standard error without a panic, `table` aligns columns,
//! `logging` writes the log, and `error` is the error of a command: its cause and the next step.

pub mod error;
pub mod logging;
pub mod print;
pub mod table;
