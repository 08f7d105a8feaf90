//! Integration tests with real binaries, sockets and processes. One module per capability.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod authority;
mod clients;
mod commands;
mod crashes;
mod damage;
mod disks;
mod door;
mod examples;
mod exec;
mod explain;
mod failover;
mod faults;
mod foreign_modules;
mod group;
mod hostile;
mod http_agent;
mod http_executor;
mod http_scheduler;
mod images;
mod in_time;
mod isolation;
mod load;
mod machine;
mod maintenance;
mod masters;
mod modules;
mod nested;
mod networks;
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
mod recovery;
mod renewal;
mod roles;
mod scripted_framework;
mod standby;
mod streams;
mod support;
mod task_groups;
mod tasks;
mod writes;
