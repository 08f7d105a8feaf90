//! A host with many idle peers, and all of them reconnecting at once, beside a bare quinn endpoint
//! with the same settings.
//!
//! Each part runs in its own process. A [`Host`] is
//! one node that accepts links; a [`PeerFleet`] is many nodes, each with its own socket and
//! certificate; [`Pingers`] are linked peers that measure the host's answers. [`bare`] has the same
//! without nodes.

pub mod bare;
mod fleet;
mod host;
mod pingers;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use transport::Options;

pub use fleet::{PeerFleet, ReconnectReport};
pub use host::Host;
pub use pingers::Pingers;

/// An error that prevents a measurement.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Any free port of this machine.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The host's actor that answers pings.
const GREETER: &str = "greeter";
/// Bounds of the peers' back-off, as agents have them.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// A ping.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Alive;

runtime::remote! {
    Alive = "connections/alive" v1 lane Ping
}

/// A peer's options: the defaults with small socket buffers, because a machine has no memory for
/// ten thousand large ones.
fn small_buffers() -> Options {
    Options {
        socket_buffer: 64 << 10,
        ..Options::default()
    }
}
