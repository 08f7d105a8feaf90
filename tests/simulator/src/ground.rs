//! Ground: what every part of a rehearsed world stands on: its time, its chance, its network, and the watch over it.
//!
//! Cheap to clone; all clones are the same ground. It decides nothing.

use std::time::Duration;

use runtime::{Clock, Instant, Node, NodeId, Role};
use transport::Endpoint;

use crate::event::What;
use crate::hash::derived;
use crate::network::Air;
use crate::network::memory::Memory;
use crate::network::quic::{self, NoPlace, Quic};
use crate::watch::Watch;

/// What a world stands on.
#[derive(Clone)]
pub struct Ground {
    /// The world's own clock, which began with the run.
    pub clock: Clock,
    /// Where all chance comes from.
    pub seed: u64,
    /// The real transport between machines, unless streams in memory carry messages there too.
    pub quic: Option<Quic>,
    /// The weather between machines.
    pub air: Air,
    /// Streams in memory: within machines, and between them if the wiring says so.
    pub local: Memory,
    /// Sees everything.
    pub watch: Watch,
}

impl Ground {
    /// Virtual time since the start of the run.
    pub fn now(&self) -> Duration {
        self.clock.now() - Instant::default()
    }

    /// A clock for a node that starts now, whose wall time is the true one.
    pub fn fresh_clock(&self) -> Clock {
        let clock = Clock::paused();
        self.set_wall(&clock, 0);
        clock
    }

    /// Sets a node's wall time so many seconds away from the true one.
    pub fn set_wall(&self, clock: &Clock, seconds: i64) {
        let nanos = |clock: &Clock| {
            let lived = clock.now() - Instant::default();
            i64::try_from(lived.as_nanos()).unwrap_or(i64::MAX)
        };
        // Negative if the node's clock has run too fast for longer than the node was late.
        let late = nanos(&self.clock) - nanos(clock);
        clock.set_wall_offset(late.saturating_add(seconds.saturating_mul(1_000_000_000)));
    }

    /// A node in its `life`th life, watched, with chance of its own. To be called in its process.
    pub fn node(&self, name: &str, life: u64, role: Role, accepts: &[Role], clock: &Clock) -> Node {
        let (fallen, watch) = (name.to_owned(), self.watch.clone());
        let node = Node::builder(name)
            .role(role)
            .accepts(accepts)
            .seed(derived(self.seed, name, life))
            .clock(clock.clone())
            .end_process(move |reason| {
                tracing::error!(node = fallen, reason, "would end its process");
                let gave_up = What::NodeGaveUp {
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

    /// Puts a node on the network between machines, under its own name.
    pub fn join(&self, node: &Node, name: &str) -> Result<Place, NoPlace> {
        match &self.quic {
            Some(quic) => Ok(Place(Some(quic.place(node, name)?))),
            None => {
                node.set_dialer(self.local.place(node, name, &self.address(name)));
                Ok(Place(None))
            }
        }
    }

    /// Where a node is found.
    pub fn address(&self, name: &str) -> String {
        let (host, port) = self.place(name);
        format!("{host}:{port}")
    }

    /// The host and the port where a node is found.
    pub fn place(&self, name: &str) -> (String, u16) {
        let address = quic::address(name);
        match self.quic {
            Some(_) => (address.ip().to_string(), address.port()),
            None => (name.to_owned(), address.port()),
        }
    }

    /// A node has said farewell; what it said last may still be on its way.
    pub fn leave(&self, node: &NodeId) {
        if let Some(quic) = &self.quic {
            quic.unplug(node.name());
        }
        self.local.leave(node);
    }

    /// Nothing is left of a node that has said farewell.
    pub fn forget(&self, node: &NodeId) {
        self.local.gone(node);
    }

    /// A node is gone without a word.
    pub fn gone(&self, node: &Node) {
        node.clear_tap();
        if let Some(quic) = &self.quic {
            quic.unplug(node.id().name());
        }
        self.local.gone(node.id());
    }
}

/// A node's place on the network.
pub struct Place(Option<Endpoint>);

impl Place {
    /// Gives the place back, once what was written before has left.
    pub async fn close(self) {
        if let Some(endpoint) = self.0 {
            endpoint.close().await;
        }
    }
}
