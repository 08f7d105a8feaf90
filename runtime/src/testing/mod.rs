//! Simulations for tests: nodes on one thread under virtual time.
//!
//! Everything runs on one thread, time stands still until the system is idle and then jumps to the
//! next timer, and randomness comes from fixed seeds, so a simulation is deterministic. [`memory`]
//! is a network without sockets.

#[doc(hidden)]
pub mod memory;

use std::future::Future;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::identity::Role;
use crate::node::{Node, NodeBuilder};
use crate::testing::memory::Network;

/// The seed of simulated nodes.
pub const SEED: u64 = 7;

/// Runs a test with one node, and returns its output.
///
/// ```
/// use std::time::Duration;
/// use runtime::testing::simulate;
///
/// simulate(|node| async move {
///     let started = node.clock().now();
///     node.clock().advance(Duration::from_secs(3600)).await; // takes no real time
///     assert_eq!(node.clock().now() - started, Duration::from_secs(3600));
/// });
/// ```
///
/// # Panics If the test does, or if no runtime can be made.
pub fn simulate<F: Future>(test: impl FnOnce(Node) -> F) -> F::Output {
    run_simulated(async move { test(node("node").accepts(&Role::ALL).build()).await })
}

/// Runs a test with several nodes on a network in memory.
///
/// # Panics If the test does, or if no runtime can be made.
pub fn simulate_network<F: Future>(test: impl FnOnce(Network) -> F) -> F::Output {
    run_simulated(async move { test(Network::new()).await })
}

/// Runs any future on one thread under virtual time.
///
/// # Panics
/// If the future does, or if no runtime can be made.
pub fn run_simulated<F: Future>(future: F) -> F::Output {
    block_on(Builder::new_current_thread().enable_all(), future)
}

/// Runs any future as [`run_simulated`] does, but without I/O events: nothing in it may wait for a
/// socket, a pipe or a process. Polling for those takes two system calls at each step of virtual
/// time, which dominates the cost of a long simulation.
///
/// ```
/// use std::time::Duration;
/// use runtime::Clock;
/// use runtime::testing::run_simulated_without_io;
///
/// let passed = run_simulated_without_io(async {
///     let clock = Clock::paused();
///     let started = clock.now();
///     clock.sleep(Duration::from_secs(3600)).await;
///     clock.now() - started
/// });
/// assert_eq!(passed, Duration::from_secs(3600));
/// ```
///
/// # Panics If the future does, or if no runtime can be made.
pub fn run_simulated_without_io<F: Future>(future: F) -> F::Output {
    block_on(Builder::new_current_thread().enable_time(), future)
}

#[allow(
    clippy::expect_used,
    reason = "a test helper: no runtime means no test"
)]
fn block_on<F: Future>(runtime: &mut Builder, future: F) -> F::Output {
    let runtime = runtime.start_paused(true).build();
    let runtime = runtime.expect("a runtime for the simulation");
    LocalSet::new().block_on(&runtime, future)
}

/// Makes the living actor of this name panic with this message before its next message; false if
/// there is none. For tests of recovery, which need a panic on demand.
pub fn inject_panic(node: &Node, name: &str, words: &str) -> bool {
    let Some(entry) = node.registry().find(0, name) else {
        return false;
    };
    let registry = node.registry();
    registry.crash(entry.pid.incarnation(), &entry.meter, words.to_owned());
    true
}

/// The builder of a simulated node, with the fixed seed and virtual time.
pub fn node(name: &str) -> NodeBuilder {
    Node::builder(name).seed(SEED).clock(Clock::paused())
}
