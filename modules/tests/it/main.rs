//! The in-tree modules seen from outside: worked examples of sharing, stories in virtual time, and laws of the books.

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
