//! Integration tests of the whole: real binaries, real sockets, real processes. One module a capability.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod commands;
mod faults;
mod pages;
mod support;
mod tasks;
