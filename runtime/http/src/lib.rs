//! The HTTP listener of masters and agents: health, version, metrics and the list of actors, and
//! the parts that their v1 APIs share.
//!
//! [`common_routes`] builds the routes of every service; a service merges its own into them,
//! [`files`] among them. [`serve`] runs them on an already bound listener, behind a [`Guard`] that
//! identifies the caller. This crate does not distinguish masters from agents, opens no sockets,
//! and gives each question to an actor a timeout.

mod admission;
pub mod api;
mod body;
pub mod build;
mod connections;
pub mod files;
pub mod pages;
mod postprocess;
pub mod realm;
mod request;
pub mod server;
pub mod system;
pub mod testing;

pub use body::shared::SharedBody;
pub use connections::{ConnectionMetrics, ConnectionNumber, ConnectionTimeouts, Source};
pub use pages::{ServiceInfo, common_routes};
pub use realm::stream_principals::StreamPrincipals;
pub use realm::{DeclaredPrincipal, Guard, Realms};
pub use request::browsers::AllowedHosts;
pub use request::query::{MesosQuery, fields};
pub use server::{HttpOptions, serve};
pub use system::help::Help;
pub use system::metrics::{Counters, CountersSource};
