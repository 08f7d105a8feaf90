//! A run: executes a scenario from its first moment to its end.
//!
//! Runs are independent. Time is virtual, and all randomness comes from the scenario's seed.

use std::time::Duration;

use futures_util::future::{Either, select};
use runtime::Clock;
use runtime::testing::run_simulated_without_io;

use crate::bug::Bug;
use crate::checkers::checker::{Checker, Violation};
use crate::event::EventKind;
use crate::report::hash::derived;
use crate::report::tally::Tally;
use crate::scenario::faults;
use crate::scenario::{Fault, Scenario, Wiring};
use crate::watch::Watch;
use crate::world::World;
use crate::world::network::SharedNetwork;
use crate::world::network::memory::Memory;
use crate::world::network::quic::Quic;
use crate::world::sim_env::SimEnv;

/// Maximum recovery time after the last fault: longer than every timeout and period of masters,
/// agents and drivers (the longest is the drivers' reconciliation, 15 minutes).
pub const RECOVERY: Duration = Duration::from_secs(20 * 60);
/// Minimum recovery time, after which the run ends if no checker waits: longer than any node needs
/// to return.
pub const RECOVERY_LEAST: Duration = Duration::from_secs(6 * 60);
/// Interval at which the checkers are asked.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// One in this number of seeds uses the maximum, for late failures.
const WHOLE_RECOVERY_EVERY: u64 = 8;
/// The recovery time of a run without faults.
pub const RECOVERY_CALM: Duration = Duration::from_secs(60);

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Hash over every event: its virtual time, sender, receiver and all bytes. The same scenario
    /// gives the same hash.
    pub hash: u64,
    /// Counts of events.
    pub tally: Tally,
    /// The planned faults in order of time, of which a replay may omit some.
    pub faults: Vec<Fault>,
    /// The first violation, which ended the run.
    pub violation: Option<Violation>,
    /// The last events before the end, one line each, oldest first.
    pub recent: Vec<String>,
}

/// Runs the scenario with these checkers; stops at the first violation.
///
/// Needs a thread without a tokio runtime.
///
/// # Panics
/// If no runtime can be made.
pub fn run(scenario: &Scenario, checkers: Vec<Box<dyn Checker>>, bug: Option<Bug>) -> Run {
    let faults = faults::plan(scenario);
    run_simulated_without_io(async {
        let clock = Clock::paused();
        let shared_network = SharedNetwork::new(derived(scenario.seed, "air", 0));
        let quic = quic(scenario, &shared_network, &clock);
        let env = SimEnv {
            seed: scenario.seed,
            quic,
            local: Memory::new(shared_network.clone(), clock.clone()),
            watch: Watch::new(clock.clone(), checkers, bug),
            shared_network,
            clock,
        };
        let world = World::new(env.clone(), scenario);
        let forging = {
            let (watch, world) = (env.watch.clone(), world.clone());
            tokio::task::spawn_local(async move { watch.say_forged(|id| world.node(id)).await })
        };
        world.begin();
        world.inject(&faults);
        let course = async {
            env.clock.sleep(scenario.duration).await;
            env.watch.fact(EventKind::FaultsOver);
            let least = match faults.is_empty() {
                true => RECOVERY_CALM,
                false => RECOVERY_LEAST,
            };
            env.clock.sleep(least).await;
            let whole = scenario.seed.is_multiple_of(WHOLE_RECOVERY_EVERY);
            let mut left = RECOVERY.saturating_sub(least);
            while !faults.is_empty() && !left.is_zero() && (whole || env.watch.is_waiting()) {
                let some = LOOK_EVERY.min(left);
                env.clock.sleep(some).await;
                left -= some;
            }
            world.last_look().await;
        };
        let (course, violated) = (std::pin::pin!(course), std::pin::pin!(env.watch.violated()));
        match select(course, violated).await {
            Either::Left(((), _)) | Either::Right(((), _)) => {}
        }
        let figures = env.shared_network.figures();
        let disk_failures = world.disk_losses();
        env.watch.count(|tally| {
            tally.lost = figures.lost;
            tally.duplicated = figures.duplicated;
            tally.delayed = figures.delayed;
            tally.disk_failures = disk_failures;
        });
        let seal = env.watch.finish();
        forging.abort();
        world.end();
        Run {
            hash: seal.hash,
            tally: seal.tally,
            faults: faults.clone(),
            violation: seal.violation,
            recent: seal.recent,
        }
    })
}

/// The real transport, if the scenario uses it.
#[allow(
    clippy::expect_used,
    reason = "a run that cannot even begin has nothing to say"
)]
fn quic(scenario: &Scenario, shared_network: &SharedNetwork, clock: &Clock) -> Option<Quic> {
    let seed = derived(scenario.seed, "wire", 0);
    match scenario.wiring {
        Wiring::Memory => None,
        Wiring::Quic => {
            let quic = Quic::new(shared_network.clone(), clock.clone(), seed);
            Some(quic.expect("an authority for the rehearsal"))
        }
    }
}
