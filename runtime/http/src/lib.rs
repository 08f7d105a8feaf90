//! The HTTP listener of masters and agents: health, version, metrics and the list of actors, and
//! the parts that their v1 APIs share.
//!
//! [`common_routes`] builds the routes of every service; a service merges its own into them,
//! [`files`] among them. [`serve`] runs them on an already bound listener, behind a [`Guard`] that
//! identifies the caller. This crate does not distinguish masters from agents, opens no sockets,
//! and gives each question to an actor a timeout.
//!
//! | module | contents |
//! |---|---|
//! | `admission` | bounds of requests served at a time, and of the bytes of their bodies |
//! | `api` | shared parts of all v1 endpoints: calls, refusals, event streams |
//! | `body` | bounded reading, shared bytes, and large calls in turn |
//! | `build` | build information, in the form of Mesos |
//! | `connections` | the listener's connections, their bounds and timeouts |
//! | `files` | `/files/*` and the file calls of the v1 API |
//! | `pages` | the routes that every service has |
//! | `postprocess` | compression, JSONP and other work on a finished answer |
//! | `realm` | authentication and rate limits |
//! | `request` | paths, queries, methods and the checks against other sites' pages |
//! | `server` | runs routes on an already bound listener until the node shuts down |
//! | `system` | help, the log level, metrics, `/__processes__` and figures of the machine |
//! | `testing` | sends requests to a service's routes without a connection |

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
