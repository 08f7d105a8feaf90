//! Rehearsals: nodes on one thread under virtual time, for tests and the simulator.
//!
//! Everything runs on one arbiter, time stands still until all is quiet and then jumps to the next timer,
//! and chance comes from fixed seeds, so that a rehearsal gives the same run every time.

use std::future::Future;

use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::identity::Role;
use crate::memory::Network;
use crate::node::{Node, NodeBuilder};

/// The seed of nodes in rehearsals.
pub const SEED: u64 = 7;

/// Runs a story about one node, and gives what it gives.
///
/// ```
/// use std::time::Duration;
/// use runtime::rehearsal::rehearse;
///
/// rehearse(|node| async move {
///     let started = node.clock().now();
///     node.clock().advance(Duration::from_secs(3600)).await; // takes no time at all
///     assert_eq!(node.clock().now() - started, Duration::from_secs(3600));
/// });
/// ```
///
/// # Panics
/// If the story does, or if no runtime can be made.
pub fn rehearse<F: Future>(story: impl FnOnce(Node) -> F) -> F::Output {
    stage(async move { story(node("node").accepts(&Role::ALL).build()).await })
}

/// Runs a story about several nodes that are joined by a network in memory.
///
/// # Panics
/// If the story does, or if no runtime can be made.
pub fn rehearse_network<F: Future>(story: impl FnOnce(Network) -> F) -> F::Output {
    stage(async move { story(Network::new()).await })
}

/// Runs any future on one thread under virtual time.
///
/// # Panics
/// If the future does, or if no runtime can be made.
#[allow(
    clippy::expect_used,
    reason = "a test that cannot even begin has nothing to say"
)]
pub fn stage<F: Future>(play: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime for the rehearsal");
    LocalSet::new().block_on(&runtime, play)
}

/// The living actor of this name panics with these words before its next message; false if there is none. For tests of what follows
/// from that, since what makes an actor panic is a defect, and nobody keeps one for them.
pub fn let_fall(node: &Node, name: &str, words: &str) -> bool {
    let Some(entry) = node.registry().find(0, name) else {
        return false;
    };
    let registry = node.registry();
    registry.fall(entry.pid.incarnation(), &entry.meter, words.to_owned());
    true
}

/// A node as rehearsals build it, to be changed before it is built.
pub fn node(name: &str) -> NodeBuilder {
    Node::builder(name).seed(SEED).clock(Clock::paused())
}
