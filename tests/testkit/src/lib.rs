//! Parts that the tests of several crates share.
//!
//! | module | contents |
//! |---|---|
//! | `agents` | synthetic agents: their reports |
//! | `damage` | damage to the files of a store |
//! | `disk` | a disk in memory, whose crash loses unsynced writes |
//! | `values` | values of the protocol |

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

pub mod agents;
pub mod damage;
pub mod disk;
pub mod values;
