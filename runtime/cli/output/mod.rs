//! Output: logs, lines and tables for people, and errors.

pub mod error;
pub mod logging;
pub mod print;
pub mod table;
