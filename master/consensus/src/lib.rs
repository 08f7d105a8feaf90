//! A replicated state machine for masters: Raft on a synced log.
//!
//! | module | contents |
//! |---|---|
//! | `core` | Raft without I/O, clock or randomness of its own |
//! | `dump` | export and restore of the state, for the loss of a majority |
//! | `log` | the stored data, and the [`LogStore`](log::LogStore) trait of its storage |
//! | `machine` | the trait of the replicated state machine |
//! | `member` | the actor around a replica, with a clock, a disk and a network of peers |
//! | `replica` | core and machine together: typed proposals, reads and snapshots |
//! | `store` | the log on a disk, over crate `storage` |
//! | `wire` | the packets between cores, and chunks of snapshots |
//! | `group` | only in tests: a whole group in one thread, under faults |

pub mod core;
pub mod dump;
pub mod log;
pub mod machine;
pub mod member;
pub mod replica;
pub mod store;
pub mod wire;

#[cfg(test)]
mod group;
