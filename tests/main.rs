//! Integration tests of the whole: real binaries, real sockets, real processes. One module a capability.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod api;
mod authority;
mod clients;
mod commands;
mod damage;
mod disks;
mod door;
mod examples;
mod explain;
mod failover;
mod faults;
mod group;
mod http_agent;
mod http_executor;
mod http_scheduler;
mod in_time;
mod load;
mod machine;
mod maintenance;
mod masters;
mod modules;
mod offers;
mod operations;
mod operator_api;
mod operators;
mod outages;
mod oversubscription;
mod owners;
mod pages;
mod partitions;
mod privacy;
mod puppet;
mod recovery;
mod renewal;
mod roles;
mod standby;
mod streams;
mod support;
mod tasks;
mod writes;
