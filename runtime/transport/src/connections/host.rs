//! The host: one node that takes links and answers pings.
//!
//! Hears [`Alive`] from its peers. Remembers nothing of them: what a peer costs is what its link costs.

use std::net::SocketAddr;

use runtime::prelude::*;

use super::{ANY, Alive, Failure, GREETER};
use crate::certificates::Authority;
use crate::quic::{Endpoint, Handshakes, Options};

/// One node that takes links. Dropping it ends them.
pub struct Host {
    endpoint: Endpoint,
    _node: Node,
    _greeter: Handle<Greeter>,
}

struct Greeter;

impl Actor for Greeter {
    type Context = Context<Self>;
}

impl Process for Greeter {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Alive>(&[Role::Agent]);
    }
}

impl Handler<Alive> for Greeter {
    type Result = ();
    fn handle(&mut self, _: Alive, _: &mut Context<Self>) {}
}

impl Host {
    /// Serves on the calling thread, with at most so many handshakes at once.
    pub fn start(authority: &Authority, handshakes_max: usize) -> Result<Self, Failure> {
        let node = Node::builder("host")
            .role(Role::Master)
            .accepts(&[Role::Agent])
            .build();
        let greeter = node.spawn(GREETER, Greeter)?;
        let identity = authority.issue(Role::Master, "host")?;
        let options = Options {
            handshakes_max,
            ..Options::default()
        };
        let endpoint = Endpoint::bind(node.clone(), &identity, ANY, options)?;
        Ok(Self {
            endpoint,
            _node: node,
            _greeter: greeter,
        })
    }

    /// Where it can be reached.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.endpoint.address()?)
    }

    /// How many peers are linked now.
    #[must_use]
    pub fn links(&self) -> usize {
        self.endpoint.links()
    }

    /// What has become of the connections that peers began.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.endpoint.handshakes()
    }
}
