//! The agent: containers, executors, status updates, usage.

pub mod command;
pub mod procfs;
pub mod status;
pub mod sys;
pub mod zygote;
