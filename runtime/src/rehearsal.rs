//! Rehearsals: nodes on one thread under virtual time, for tests and the simulator.
//!
//! Everything runs on one arbiter, time stands still until all is quiet and then jumps to the next timer,
//! and chance comes from fixed seeds, so that a rehearsal gives the same run every time.

use std::future::Future;

use tokio::runtime::Builder;
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
pub fn stage<F: Future>(play: F) -> F::Output {
    play_on(Builder::new_current_thread().enable_all(), play)
}

/// Runs any future as [`stage`] does, but without the machine's events: nothing in it may wait for a socket, a pipe or a process. To look
/// for those takes two calls of the system at each moment of virtual time, which is most of what a long play with many moments costs.
///
/// ```
/// use std::time::Duration;
/// use runtime::Clock;
/// use runtime::rehearsal::stage_apart;
///
/// let passed = stage_apart(async {
///     let clock = Clock::paused();
///     let started = clock.now();
///     clock.sleep(Duration::from_secs(3600)).await;
///     clock.now() - started
/// });
/// assert_eq!(passed, Duration::from_secs(3600));
/// ```
///
/// # Panics
/// If the future does, or if no runtime can be made.
pub fn stage_apart<F: Future>(play: F) -> F::Output {
    play_on(Builder::new_current_thread().enable_time(), play)
}

#[allow(
    clippy::expect_used,
    reason = "what cannot even begin has nothing to say"
)]
fn play_on<F: Future>(runtime: &mut Builder, play: F) -> F::Output {
    let runtime = runtime.start_paused(true).build();
    let runtime = runtime.expect("a runtime for the rehearsal");
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
