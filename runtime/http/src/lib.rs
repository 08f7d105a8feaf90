//! The HTTP listener of masters and agents: health, version, metrics and the list of actors, and
//! the parts that their v1 APIs share.
//!
//! [`common_routes`] builds the routes of every service; a service merges its own into them,
//! [`files`] among them. [`serve`] runs them on an already bound listener, behind a [`Guard`] that
//! identifies the caller. This crate does not distinguish masters from agents, opens no sockets,
//! and gives each question to an actor a timeout.

mod admission;
pub mod api;
mod body_bytes;
mod bounded_body;
mod browsers;
pub mod build;
mod connections;
pub mod files;
mod help;
mod large_calls;
pub mod logging;
mod methods;
pub mod metrics;
pub mod pages;
mod path;
mod postprocess;
pub mod processes;
mod query;
pub mod realm;
pub mod server;
mod shared_body;
mod stream_principals;
mod system;
pub mod testing;

pub use browsers::AllowedHosts;
pub use connections::{ConnectionMetrics, ConnectionNumber, ConnectionTimeouts, Source};
pub use help::Help;
pub use metrics::{Counters, CountersSource};
pub use pages::{ServiceInfo, common_routes};
pub use query::{MesosQuery, fields};
pub use realm::{DeclaredPrincipal, Guard, Realms};
pub use server::{HttpOptions, serve};
pub use shared_body::SharedBody;
pub use stream_principals::StreamPrincipals;
