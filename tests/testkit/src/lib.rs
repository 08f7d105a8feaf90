//! Parts that the tests of several crates share.
//!
//! | module | contents |
//! |---|---|
//! | `agents` | synthetic agents: their reports |
//! | `asserts` | assertions that show the value when they fail |
//! | `damage` | damage to the files of a store |
//! | `disk` | a disk in memory, whose crash loses unsynced writes |
//! | `http` | a blocking HTTP client: pages, calls of the v1 APIs, event streams |
//! | `recorder` | an actor that records its messages, for tests of transports |
//! | `table` | tables of test cases as text |
//! | `values` | values of the protocol |
//! | `virtual_udp` | a network in memory for endpoints of simulations |
//! | `waits` | bounded waits on real processes |

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

pub mod agents;
pub mod asserts;
pub mod damage;
pub mod disk;
pub mod http;
pub mod recorder;
pub mod table;
pub mod values;
pub mod virtual_udp;
pub mod waits;

pub use table::rows;
