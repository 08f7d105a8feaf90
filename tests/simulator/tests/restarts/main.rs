//! The real master over the real allocator and sorter, which crash at any moment of a random
//! history.
//!
//! Each framework is offered one agent only, so that the outcome does not depend on the order of
//! offers. It repeats an action until it succeeds, as a framework does whose offer was rescinded.
//! So a history with crashes must have the same outcome as without.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the lints allow in tests, for the helpers of tests too"
)]

mod crash_schedule;
mod steps;
mod world;

use proptest::prelude::*;
use runtime::testing::simulate_network;

use crash_schedule::{CrashSchedule, crashes};
use steps::{Accident, Falls, Step, accident, step};
use world::{Outcome, STEP, World};

fn play(steps: &[Step], accidents: &[Accident]) -> Outcome {
    run_with_crashes(steps, accidents, &CrashSchedule::default()).0
}

/// Also returns the allocator's received and sent messages, and the sorter's slates.
fn run_with_crashes(
    steps: &[Step],
    accidents: &[Accident],
    crashes: &CrashSchedule,
) -> (Outcome, [u64; 3]) {
    simulate_network(|network| async move {
        let mut world = World::new(&network, crashes).await;
        for (number, step) in steps.iter().enumerate() {
            let due = accidents.iter().filter(|one| one.step == number);
            world.take(step, &mut Falls(due.collect())).await;
            world.pass(STEP).await;
            world.check().await;
        }
        (world.outcome().await, world.counts.all())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// When allocator or sorter restarts, the master replays its state.
    #[test]
    fn crashes_do_not_change_the_outcome(
        steps in proptest::collection::vec(step(), 4..12),
        accidents in proptest::collection::vec(accident(), 1..4),
    ) {
        prop_assert_eq!(play(&steps, &accidents), play(&steps, &[]));
    }

    /// The same for crashes at certain messages, also during a replay.
    #[test]
    fn panic_at_any_message_keeps_state_equal(
        steps in proptest::collection::vec(step(), 4..12),
        crashes in crashes(),
    ) {
        prop_assert_eq!(run_with_crashes(&steps, &[], &crashes).0, play(&steps, &[]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    /// Each message of a history in turn.
    // Covers S98.
    #[test]
    fn panic_at_every_message_keeps_state_equal(steps in proptest::collection::vec(step(), 4..8)) {
        fall_everywhere(&steps);
    }
}

/// The same for a history in which every party sends and receives. Returns the counts.
// Covers S98.
#[test]
fn panic_is_survived_at_every_message() {
    let steps = [
        Step::Quota(3, 5, Some(220)),
        Step::Launch(0, 3),
        Step::Lend(0, 2),
        Step::Reserve(1, 2),
        Step::Create(1),
        Step::Decline(2, 8),
        Step::ReplaceAgent(2),
        Step::End(0),
    ];
    let ([heard, said, asked], told_anew) = fall_everywhere(&steps);
    assert!(
        heard > 20 && said > 5 && asked > 5,
        "{heard} {said} {asked}"
    );
    assert!(told_anew * 2 > heard, "falls are followed by a replay");
}

/// Crashes once at each received or sent message and at each slate. Returns their numbers, and the
/// number of crashes with a replay.
fn fall_everywhere(steps: &[Step]) -> ([u64; 3], u64) {
    let (calm, counts) = run_with_crashes(steps, &[], &CrashSchedule::default());
    let mut told_anew = 0;
    for (which, count) in counts.into_iter().enumerate() {
        for number in 0..count {
            let mut crashes = CrashSchedule::default();
            let sets = [&mut crashes.heard, &mut crashes.said, &mut crashes.slates];
            sets.into_iter().nth(which).unwrap().insert(number);
            let (outcome, heard) = run_with_crashes(steps, &[], &crashes);
            assert_eq!(outcome, calm, "{crashes:?}");
            told_anew += u64::from(heard[0] > counts[0]);
        }
    }
    (counts, told_anew)
}

/// The effects of the steps, so that equal outcomes mean something; a crash in each of them changes
/// nothing.
#[test]
fn history_steps_have_their_effects() {
    let steps = [
        Step::Launch(0, 3),
        Step::Reserve(1, 2),
        Step::Quota(2, 4, Some(20)),
        Step::Quota(3, 5, None),
        Step::Lend(0, 2),
        Step::Weight(2, 3),
        Step::Launch(2, 4),
        Step::End(0),
        Step::Suppress(1),
        Step::Decline(1, 8),
    ];
    let accidents = |turns| {
        let accident = |step| Accident {
            step,
            turns,
            allocator: step % 3 > 0,
        };
        (0..steps.len()).map(accident).collect::<Vec<_>>()
    };
    let calm = play(&steps, &[]);
    let cpus = |at: usize| {
        let held = calm.agents[at].3.values();
        held.map(|held| held.cpus().as_f64()).sum::<f64>()
    };
    assert_eq!([cpus(0), cpus(1), cpus(2)], [0.0, 0.0, 4.0], "{calm:#?}");
    assert_eq!(calm.own[1].0.cpus().as_f64(), 2.0, "reserved: {calm:#?}");
    assert_eq!(calm.own[0].1.cpus().as_f64(), 2.0, "lent: {calm:#?}");
    // All of two agents except reservations, and of the third the rest of its role's limit.
    assert_eq!(
        calm.rest.get(&resources::Name::Cpus).as_f64(),
        100.0 + 98.0 + 16.0
    );
    assert_eq!((calm.quotas.len(), calm.weights["d"]), (2, 3.0));
    for turns in [0, 7, 40] {
        assert_eq!(play(&steps, &accidents(turns)), calm, "{turns}");
    }
}

/// The same for volumes.
#[test]
fn history_steps_create_and_destroy_volumes() {
    let steps = [
        Step::Reserve(1, 2),
        Step::Create(1),
        Step::Unreserve(1),
        Step::Reserve(0, 3),
        Step::Create(0),
        Step::Destroy(0),
        Step::Unreserve(0),
        Step::Launch(0, 1),
    ];
    let calm = play(&steps, &[]);
    let own = |at: usize| calm.own[at].0.to_string();
    let volume = calm.own[1].0.persistent_volumes();
    assert_eq!(volume.quantities().to_string(), "disk:2", "{calm:#?}");
    assert_eq!(
        calm.own[1].0,
        volume,
        "what is no volume is given up: {}",
        own(1)
    );
    assert!(calm.own[0].0.is_empty(), "{}", own(0));
    for turns in [0, 7, 40] {
        let accident = |step| Accident {
            step,
            turns,
            allocator: step % 2 > 0,
        };
        let accidents: Vec<_> = (0..steps.len()).map(accident).collect();
        assert_eq!(play(&steps, &accidents), calm, "{turns}");
    }
}

/// The same for leaving agents and frameworks: nothing of theirs remains, and their successors have
/// all of it.
#[test]
fn history_steps_replace_agents_and_frameworks() {
    let steps = [
        Step::Launch(0, 3),
        Step::Lend(1, 2),
        Step::Launch(1, 2),
        Step::Reserve(1, 2),
        Step::ReplaceAgent(0),
        Step::ReplaceFramework(1),
        Step::Launch(2, 4),
        Step::ReplaceAgent(1),
        Step::Launch(1, 5),
    ];
    let calm = play(&steps, &[]);
    assert_eq!(calm.agents.len(), 3, "{calm:#?}");
    let held = |host: &str| {
        let agent = calm.agents.iter().find(|agent| agent.0 == host).unwrap();
        let held = agent.3.values();
        held.map(|held| held.cpus().as_f64()).sum::<f64>()
    };
    let held = ["agent-0", "agent-1", "agent-2"].map(held);
    assert_eq!(held, [0.0, 5.0, 4.0], "{calm:#?}");
    let (own, lent) = &calm.own[1];
    assert!(own.is_empty() && lent.is_empty(), "{calm:#?}");
    let rest = calm.rest.get(&resources::Name::Cpus).as_f64();
    assert_eq!(rest, 100.0 + 95.0 + 96.0);
    for turns in [0, 7, 40] {
        let accident = |step| Accident {
            step,
            turns,
            allocator: step % 2 > 0,
        };
        let accidents: Vec<_> = (0..steps.len()).map(accident).collect();
        assert_eq!(play(&steps, &accidents), calm, "{turns}");
    }
}
