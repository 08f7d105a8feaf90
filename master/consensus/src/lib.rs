//! A typed state machine that a majority of masters holds: raft on a synced log.
//!
//! [`log`] names what is kept, and the [`LogStore`](log::LogStore) that keeps it; [`store`] keeps it on a disk, and [`dump`]
//! carries it through the loss of a majority.

pub mod dump;
pub mod log;
pub mod store;
