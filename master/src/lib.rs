//! The master: frameworks, agents, offers and tasks.
//!
//! [`start`] runs one [`Master`] actor on a node. Its decisions are plain methods of
//! [`state::MasterState`], one family per file; durable facts are in a [`registry::Registry`].
//! Pages and metrics are rendered from snapshots, in [`http`].

pub mod accept;
pub mod admission;
pub mod agents;
mod by_agent;
mod commit_barrier;
pub mod comparison;
pub mod config;
pub mod counters;
pub mod draining;
pub mod effects;
mod error;
pub mod expected;
pub mod explain;
pub mod framework_counters;
pub mod frameworks;
pub mod health;
pub mod http;
pub mod ids;
pub mod kill;
pub mod leadership;
pub mod long_tasks;
pub mod maintenance;
mod master;
pub mod measure;
pub mod mirror;
pub mod offer_expiry;
pub mod offering;
pub mod offers;
pub mod operations;
pub mod over_http;
pub mod permission;
pub mod quota;
pub mod reconcile;
pub mod registry;
pub mod revocation;
mod size;
pub mod standby;
pub mod state;
pub mod status;
pub mod subscription;
pub mod tasks;
pub mod updating;
pub mod validation;
pub mod view;
pub mod visibility;
pub mod weights;
pub mod whitelist;

pub use config::{Config, InvalidConfig};
pub use error::StartError;
pub use http::{counters as counters_source, routes};
pub use master::{Master, Started, TakeSnapshot, start, start_after};
pub use registry::{LocalRegistry, MemoryRegistry, Registry};
