//! The v0 pages that Mesos' tools read.

pub(crate) mod constraints;
pub mod explain;
pub(crate) mod help;
pub(crate) mod leader;
pub(crate) mod maintenance;
pub(crate) mod registrar;
pub mod role_json;
pub(crate) mod state;
pub(crate) mod tasks;
