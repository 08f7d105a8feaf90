//! A replicated state machine for masters: Raft on a synced log.
//!
//! - [`log`]: the stored data, and the [`LogStore`](log::LogStore) trait. [`store`] implements it
//!   on a disk.
//! - [`dump`]: export and restore of the state, for the loss of a majority.
//! - [`core`]: Raft without I/O, clock or randomness of its own. [`wire`]: the packets between
//!   cores.
//! - [`machine`]: the replicated state machine. [`replica`]: core and machine together, with typed
//!   proposals, reads and snapshots.
//! - [`member`]: the actor around a replica, with a clock, a disk and a network of peers.

pub mod core;
pub mod dump;
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
pub mod machine;
pub mod member;
pub mod replica;
pub mod store;
pub mod wire;

#[cfg(test)]
mod group;
