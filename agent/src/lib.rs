//! The agent: containers, executors, status updates, usage.
