//! Ground: what every part of a rehearsed world stands on: its time, its chance, its network, and the watch over it.
//!
//! Cheap to clone; all clones are the same ground. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use runtime::{Clock, Dialer, Instant, Node, NodeId, Role};

use crate::hash::derived;
use crate::network::Air;
use crate::network::memory::Memory;
use crate::scenario::Wiring;
use crate::watch::Watch;

/// What a world stands on.
#[derive(Clone)]
pub struct Ground {
    /// The world's own clock, which began with the run.
    pub clock: Clock,
    /// Where all chance comes from.
    pub seed: u64,
    /// What carries messages between machines.
    pub wiring: Wiring,
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
        let begun = self.clock.now() - Instant::default();
        let lived = clock.now() - Instant::default();
        let late = i64::try_from((begun - lived).as_nanos()).unwrap_or(i64::MAX);
        clock.set_wall_offset(late.saturating_add(seconds.saturating_mul(1_000_000_000)));
    }

    /// A node in its `life`th life, watched, with chance of its own. To be called in its process.
    pub fn node(&self, name: &str, life: u64, role: Role, accepts: &[Role], clock: &Clock) -> Node {
        let fallen = name.to_owned();
        let node = Node::builder(name)
            .role(role)
            .accepts(accepts)
            .seed(derived(self.seed, name, life))
            .clock(clock.clone())
            .end_process(move |reason| {
                tracing::error!(node = fallen, reason, "would end its process")
            })
            .build();
        self.watch.tap(&node);
        node
    }

    /// Puts a node on the network between machines, under its own name.
    pub fn join(&self, node: &Node, name: &str) -> Arc<dyn Dialer> {
        self.local.place(node, name, &self.address(name))
    }

    /// Where a node is found.
    pub fn address(&self, name: &str) -> String {
        name.to_owned()
    }

    /// A node has said farewell; what it said last may still be on its way.
    pub fn leave(&self, node: &NodeId) {
        self.local.leave(node);
    }

    /// A node is gone without a word.
    pub fn gone(&self, node: &NodeId) {
        self.local.gone(node);
    }
}
