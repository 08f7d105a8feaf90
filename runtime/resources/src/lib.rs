//! The Resources algebra: what an agent has and a task needs.
