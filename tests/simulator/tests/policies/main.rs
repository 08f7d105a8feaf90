//! Policies of sharing, each as a story of a small town: the real master, allocator, sorter and drivers in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the lints allow in tests, for the helpers of tests too"
)]

mod guarantees;
mod hoarding;
mod locality;
mod long;
mod town;
mod turnover;
mod versions;
