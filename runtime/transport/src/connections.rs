//! How dear connections are: a host with many peers that say nothing, and a storm of them coming back at once, beside
//! a bare quinn endpoint with the same settings.
//!
//! Called by `meros bench connections`, which gives each part a process of its own. A [`Host`] is one node that takes
//! links; a [`Crowd`] is many nodes, each with a socket and a certificate of its own; [`Pingers`] are peers that ask
//! all the time whether the host still answers. [`bare`] holds the same without nodes.
//! Never decides what is good enough: it only measures.

pub mod bare;
mod crowd;
mod host;
mod pingers;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quic::Options;

pub use crowd::{Crowd, Linking};
pub use host::Host;
pub use pingers::{Pingers, Pings};

/// Why there is no figure.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Any free port of this machine.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The actor of the host that answers pings.
const GREETER: &str = "greeter";
/// How long peers wait at most before they try again: as agents do.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Are you there?
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Alive;

runtime::remote! {
    Alive = "connections/alive" v1 lane Ping
}

/// Options of a peer: those of any node, but ten thousand large buffers are more than a machine has.
fn modest() -> Options {
    Options {
        socket_buffer: 64 << 10,
        ..Options::default()
    }
}
