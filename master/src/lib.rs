//! The master: frameworks, agents, offers and tasks.
//!
//! [`start`] runs one [`Master`] actor on a node. What it decides is in plain functions on the [`books::Books`], one family a
//! file; what it must not forget is in a [`registry::Registry`]. Pages and metrics are made from snapshots, in [`http`].

pub mod accept;
pub mod admission;
pub mod agents;
pub mod books;
mod by_agent;
pub mod comparison;
pub mod config;
pub mod counters;
pub mod dealings;
pub mod draining;
pub mod effects;
mod error;
pub mod expected;
pub mod explain;
pub mod frameworks;
mod gate;
pub mod health;
pub mod hoarding;
pub mod http;
pub mod ids;
pub mod kill;
pub mod long_tasks;
pub mod maintenance;
mod master;
pub mod measure;
pub mod mirror;
pub mod offering;
pub mod offers;
pub mod office;
pub mod operations;
pub mod over_http;
pub mod permission;
pub mod quota;
pub mod reconcile;
pub mod registry;
pub mod revocation;
pub mod sight;
mod size;
pub mod standby;
pub mod status;
pub mod subscription;
pub mod tasks;
pub mod updating;
pub mod validation;
pub mod view;
pub mod weights;
pub mod whitelist;

pub use config::{Config, InvalidConfig};
pub use error::StartError;
pub use http::{counters as counters_source, routes};
pub use master::{Master, Started, TakeSnapshot, start, start_after};
pub use registry::{LocalRegistry, MemoryRegistry, Registry};
