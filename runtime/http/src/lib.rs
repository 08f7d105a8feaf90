//! The HTTP listener that masters and agents share: health, version, metrics and the list of actors, and what their v1 APIs have in common.
//!
//! [`common_routes`] makes what every service serves; a service merges its own routes into it, [`files`] among them; [`serve`] runs them on a
//! listener that the roof has bound, behind a [`Guard`] that finds out who asks. Nothing here knows a master from an agent, opens a socket, or
//! asks an actor anything without a patience.

pub mod api;
mod bodies;
mod body;
mod browsers;
pub mod build;
mod declared;
mod door;
pub mod files;
mod gate;
mod help;
mod large;
pub mod logging;
mod methods;
pub mod metrics;
mod outgoing;
pub mod pages;
mod path;
pub mod processes;
mod query;
pub mod realm;
pub mod rehearsal;
pub mod server;
mod shared;
mod system;

pub use browsers::AllowedHosts;
pub use declared::Declared;
pub use door::{Connection, Figures, Patience, Source};
pub use help::Help;
pub use metrics::{Counters, CountersSource};
pub use pages::{About, common_routes};
pub use query::{Given, fields};
pub use realm::{Declaring, Guard, Realms};
pub use server::{HttpOptions, serve};
pub use shared::Shared;
