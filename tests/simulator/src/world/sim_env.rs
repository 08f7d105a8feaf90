//! The environment shared by all parts of a simulation: clock, seed, network and event watch.

use std::time::Duration;

use runtime::{Clock, Instant, Node, NodeId, Role};
use transport::Endpoint;

use crate::event::EventKind;
use crate::report::hash::derived;
use crate::watch::Watch;
use crate::world::network::SharedNetwork;
use crate::world::network::memory::Memory;
use crate::world::network::quic::{self, NoPlace, Quic};

/// The environment. Clones share it.
#[derive(Clone)]
pub struct SimEnv {
    /// The simulation's clock, which began with the run.
    pub clock: Clock,
    /// The seed of all randomness.
    pub seed: u64,
    /// The real transport between machines, unless the in-memory streams carry those messages too.
    pub quic: Option<Quic>,
    /// The network between machines, with its faults.
    pub shared_network: SharedNetwork,
    /// In-memory streams: within machines, and between them if the wiring says so.
    pub local: Memory,
    /// Observes everything.
    pub watch: Watch,
}

impl SimEnv {
    /// Virtual time since the start of the run.
    pub fn now(&self) -> Duration {
        self.clock.now() - Instant::default()
    }

    /// A clock for a node that starts now, with the true wall time.
    pub fn fresh_clock(&self) -> Clock {
        let clock = Clock::paused();
        self.set_wall(&clock, 0);
        clock
    }

    /// Sets a node's wall time this many seconds off the true one.
    pub fn set_wall(&self, clock: &Clock, seconds: i64) {
        let nanos = |clock: &Clock| {
            let lived = clock.now() - Instant::default();
            i64::try_from(lived.as_nanos()).unwrap_or(i64::MAX)
        };
        // Negative if the node's clock has been too fast for longer than the node was late.
        let late = nanos(&self.clock) - nanos(clock);
        clock.set_wall_offset(late.saturating_add(seconds.saturating_mul(1_000_000_000)));
    }

    /// A node in its `life`th life, with a tap and its own randomness. Call it in its process.
    pub fn node(&self, name: &str, life: u64, role: Role, accepts: &[Role], clock: &Clock) -> Node {
        let (fallen, watch) = (name.to_owned(), self.watch.clone());
        let node = Node::builder(name)
            .role(role)
            .accepts(accepts)
            .seed(derived(self.seed, name, life))
            .clock(clock.clone())
            .end_process(move |reason| {
                tracing::error!(node = fallen, reason, "would end its process");
                let gave_up = EventKind::NodeExited {
                    node: &fallen,
                    role,
                    words: reason,
                    disk_failed: false,
                };
                watch.fact_of(&fallen, gave_up);
            })
            .build();
        self.watch.tap(&node);
        node
    }

    /// Attaches a node to the network between machines, under its own name.
    pub fn join(&self, node: &Node, name: &str) -> Result<Place, NoPlace> {
        match &self.quic {
            Some(quic) => Ok(Place(Some(quic.place(node, name)?))),
            None => {
                node.set_dialer(self.local.place(node, name, &self.address(name)));
                Ok(Place(None))
            }
        }
    }

    /// A node's address.
    pub fn address(&self, name: &str) -> String {
        let (host, port) = self.place(name);
        format!("{host}:{port}")
    }

    /// A node's host and port.
    pub fn place(&self, name: &str) -> (String, u16) {
        let address = quic::address(name);
        match self.quic {
            Some(_) => (address.ip().to_string(), address.port()),
            None => (name.to_owned(), address.port()),
        }
    }

    /// Detaches a node after its shutdown; its last messages may still be in flight.
    pub fn leave(&self, node: &NodeId) {
        if let Some(quic) = &self.quic {
            quic.power_off(node.name());
        }
        self.local.leave(node);
    }

    /// Removes a node after its shutdown.
    pub fn forget(&self, node: &NodeId) {
        self.local.gone(node);
    }

    /// Removes a crashed node.
    pub fn gone(&self, node: &Node) {
        node.clear_tap();
        if let Some(quic) = &self.quic {
            quic.power_off(node.id().name());
        }
        self.local.gone(node.id());
    }
}

/// A node's attachment to the network.
pub struct Place(Option<Endpoint>);

impl Place {
    /// Detaches, after written messages have left.
    pub async fn close(self) {
        if let Some(endpoint) = self.0 {
            endpoint.close().await;
        }
    }
}
