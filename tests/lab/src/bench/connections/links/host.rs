//! The host: one node that accepts links and answers pings ([`Alive`]).
//!
//! It keeps no state of its peers: the cost of a peer is the cost of its link.

use std::net::SocketAddr;

use runtime::prelude::*;

use super::{ANY, Alive, Failure, GREETER};
use transport::Authority;
use transport::{Endpoint, Handshakes, Options};

/// One node that accepts links. Dropping it ends them.
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
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Alive>(&[Role::Agent]);
    }
}

impl Handler<Alive> for Greeter {
    type Result = ();
    fn handle(&mut self, _: Alive, _: &mut Context<Self>) {}
}

impl Host {
    /// Starts on the calling thread, with at most `handshakes_max` handshakes at once.
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

    /// The bound address.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.endpoint.address()?)
    }

    /// The number of linked peers.
    #[must_use]
    pub fn links(&self) -> usize {
        self.endpoint.links()
    }

    /// Counters of the accepted connections.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.endpoint.handshakes()
    }
}
