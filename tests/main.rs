//! Integration tests of the whole: real binaries, real sockets, real processes. One module a capability.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod commands;
mod examples;
mod failover;
mod faults;
mod masters;
mod offers;
mod operators;
mod oversubscription;
mod pages;
mod puppet;
mod renewal;
mod simulate;
mod standby;
mod support;
mod tasks;
