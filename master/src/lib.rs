//! The master: frameworks, agents, offers and tasks.
//!
//! [`start`] runs one [`Master`] actor on a node. Its decisions are plain methods of
//! [`state::MasterState`], one family per file; durable facts are in a [`registry::Registry`].
//! Pages and metrics are rendered from snapshots, in [`http`].

pub mod agents;
pub mod api;
pub mod config;
mod error;
pub mod frameworks;
pub mod leadership;
pub mod maintenance;
mod master;
pub mod offers;
pub mod operations;
pub mod registry;
pub mod roles;
pub mod state;
pub mod tasks;
pub mod validation;

pub use api::{counters as counters_source, routes};
pub use config::{Config, InvalidConfig};
pub use error::StartError;
pub use master::{Master, Started, TakeSnapshot, start, start_after};
pub use registry::{LocalRegistry, MemoryRegistry, Registry};
