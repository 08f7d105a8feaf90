//! Networks of containers.

pub mod cni;
pub mod ports;
