//! The machine: its processes, accounts, resources and system calls.

pub(crate) mod accounts;
pub mod detect;
pub mod procfs;
pub mod sys;
