//! Policies of sharing, each in a small cluster: the real master, allocator, sorter and drivers in
//! virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the lints allow in tests, for the helpers of tests too"
)]

mod guarantees;
mod hoarding;
mod locality;
mod long;
mod mini_cluster;
mod turnover;
mod versions;
