//! Networks of containers.

pub mod ports;
