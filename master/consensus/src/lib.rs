//! A typed state machine that a majority of masters holds: raft on a synced log.
//!
//! [`log`] names what is kept, and the [`LogStore`](log::LogStore) that keeps it.

pub mod log;
