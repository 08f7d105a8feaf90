//! Tests of the in-tree modules through their public interfaces: worked examples of sharing,
//! scenarios in virtual time, and properties of the allocator.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the lints allow in tests, for the helpers of tests too"
)]

mod choosing;
mod cluster;
mod departing;
mod examples;
mod explain;
mod laws;
mod operations;
mod oracle;
mod pace;
mod policies;
mod quota;
mod revoking;
mod shapes;
mod shared;
mod sorters;
mod stories;
mod suite;
mod volumes;
#[allow(
    dead_code,
    reason = "a fixture of several crates, which each use a part of it"
)]
mod workload;
