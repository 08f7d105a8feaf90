//! A typed state machine that a majority of masters holds: raft on a synced log.
//!
//! [`log`] names what is kept, and the [`LogStore`](log::LogStore) that keeps it; [`store`] keeps it on a disk, and [`dump`]
//! carries it through the loss of a majority. [`core`] is raft itself, without I/O, clock or chance of its own; [`wire`] is what
//! one core says to another. [`machine`] is what a group replicates, and [`replica`] puts both together: typed proposals with
//! answers, reads, snapshots. [`member`] is the actor around it all: with a clock, a disk, and a network of peers.

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
