//! Run: a scenario from its first moment to its end, and what is known of it afterwards.
//!
//! Remembers nothing between two runs, and takes no time from the machine and no chance from anywhere but the scenario's seed.

use std::time::Duration;

use futures_util::future::{Either, select};
use runtime::Clock;
use runtime::rehearsal::stage_apart;

use crate::bug::Bug;
use crate::checker::{Checker, Violation};
use crate::event::What;
use crate::faults;
use crate::ground::Ground;
use crate::hash::derived;
use crate::network::Air;
use crate::network::memory::Memory;
use crate::network::quic::Quic;
use crate::scenario::{Fault, Scenario, Wiring};
use crate::tally::Tally;
use crate::watch::Watch;
use crate::world::World;

/// How long the cluster has, after the last fault, to be as it should: longer than every patience and every period of
/// masters, agents and drivers (the longest is the drivers' reconciliation, 15 minutes).
pub const RECOVERY: Duration = Duration::from_secs(20 * 60);
/// It ends after this time if no checker waits for anything: longer than everybody may take to be back.
pub const RECOVERY_LEAST: Duration = Duration::from_secs(6 * 60);
/// So often the checkers are asked then.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// One seed in so many has all of its recovery, for what goes wrong late.
const WHOLE_RECOVERY_EVERY: u64 = 8;
/// The same where there was no fault.
pub const RECOVERY_CALM: Duration = Duration::from_secs(60);

/// What is known of a run after its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Over every event: its virtual time, who said what to whom, and all its bytes. The same scenario gives the same hash.
    pub hash: u64,
    /// What happened, counted.
    pub tally: Tally,
    /// The faults of the plan, in order of time: what a replay with fewer of them takes away from.
    pub faults: Vec<Fault>,
    /// The first invariant that was broken; the run ended there.
    pub violation: Option<Violation>,
    /// The last events before the end, one line each, oldest first.
    pub recent: Vec<String>,
}

/// Runs the scenario while the checkers watch; stops at the first violation.
///
/// Needs a thread that runs no tokio runtime.
///
/// # Panics
/// If no runtime can be made.
pub fn run(scenario: &Scenario, checkers: Vec<Box<dyn Checker>>, bug: Option<Bug>) -> Run {
    let faults = faults::plan(scenario);
    stage_apart(async {
        let clock = Clock::paused();
        let air = Air::new(derived(scenario.seed, "air", 0));
        let quic = quic(scenario, &air, &clock);
        let ground = Ground {
            seed: scenario.seed,
            quic,
            local: Memory::new(air.clone(), clock.clone()),
            watch: Watch::new(clock.clone(), checkers, bug),
            air,
            clock,
        };
        let world = World::new(ground.clone(), scenario);
        let forging = {
            let (watch, world) = (ground.watch.clone(), world.clone());
            tokio::task::spawn_local(async move { watch.say_forged(|id| world.node(id)).await })
        };
        world.begin();
        world.inject(&faults);
        let course = async {
            ground.clock.sleep(scenario.duration).await;
            ground.watch.fact(What::FaultsOver);
            let least = match faults.is_empty() {
                true => RECOVERY_CALM,
                false => RECOVERY_LEAST,
            };
            ground.clock.sleep(least).await;
            let whole = scenario.seed.is_multiple_of(WHOLE_RECOVERY_EVERY);
            let mut left = RECOVERY.saturating_sub(least);
            while !faults.is_empty() && !left.is_zero() && (whole || ground.watch.is_waiting()) {
                let some = LOOK_EVERY.min(left);
                ground.clock.sleep(some).await;
                left -= some;
            }
            world.last_look().await;
        };
        let (course, violated) = (
            std::pin::pin!(course),
            std::pin::pin!(ground.watch.violated()),
        );
        match select(course, violated).await {
            Either::Left(((), _)) | Either::Right(((), _)) => {}
        }
        let figures = ground.air.figures();
        let disk_failures = world.disk_losses();
        ground.watch.count(|tally| {
            tally.lost = figures.lost;
            tally.duplicated = figures.duplicated;
            tally.delayed = figures.delayed;
            tally.disk_failures = disk_failures;
        });
        let seal = ground.watch.seal();
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

/// The real transport, if the scenario wants it.
#[allow(
    clippy::expect_used,
    reason = "a run that cannot even begin has nothing to say"
)]
fn quic(scenario: &Scenario, air: &Air, clock: &Clock) -> Option<Quic> {
    let seed = derived(scenario.seed, "wire", 0);
    match scenario.wiring {
        Wiring::Memory => None,
        Wiring::Quic => {
            let quic = Quic::new(air.clone(), clock.clone(), seed);
            Some(quic.expect("an authority for the rehearsal"))
        }
    }
}
