//! Properties of the allocator under any facts in any order, and any advice of the sorter (SPEC 4).
//!
//! - No resource is granted twice or beyond the total, or to a framework that must not get it, does
//!   not want it, or has a filter.
//! - No grant exceeds a limit of its role or a role above, or uses resources that must stay free
//!   for a guarantee.
//! - All sums equal those of an independent ledger.
//! - The changes of a slate make the sorter's state equal to the allocator's.
//! - Charged idle reservations count for their role, and nothing else does (W24).
//! - Each holder of resources on an agent with a planned downtime gets one inverse offer until it
//!   answers, and no other framework does.
//! - All of this holds for each order of the sorter: fair shares, strict priority, lottery.
//! - At rest, no resource is withheld without a reason, and considering every agent would change
//!   nothing.

mod facts;
mod history;
mod ledger;
mod tenants;
mod words;

use modules::sorter::{Lottery, Order, Priority};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use facts::Fact;
use history::{Step, World, steps};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// S47, S50: regular and revocable resources are accounted separately.
    // Covers S47; S50; S53 in part: that shares and books agree after it; W16; W24.
    #[test]
    fn no_history_and_no_sorter_over_commits_an_agent(
        steps in steps(),
        charges in any::<bool>(),
    ) {
        let mut world = World::default();
        if charges {
            world.charge_reservations();
        }
        for step in steps {
            world.take(step);
        }
        world.take(Step::Settle);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// S113: the properties hold for any order.
    // Covers S113.
    #[test]
    fn strict_priority_over_commits_no_agent(steps in steps()) {
        play_in(World::ordered_by(|| Priority), steps);
    }

    #[test]
    fn no_lottery_over_commits_an_agent(
        steps in steps(),
        seed in any::<u64>(),
    ) {
        let lottery = || Lottery::new(SmallRng::seed_from_u64(seed));
        play_in(World::ordered_by(lottery).by_dice(), steps);
    }
}

fn play_in<O: Order>(mut world: World<O>, steps: Vec<Step>) {
    steps.into_iter().for_each(|step| world.take(step));
    world.take(Step::Settle);
}

fn play(steps: Vec<Step>) {
    let mut world = World::default();
    steps.into_iter().for_each(|step| world.take(step));
}

/// The sorter charges a client that leaves while the advice is pending, until the next slate. That
/// must not count as a met guarantee.
#[test]
fn advice_for_a_departed_client_is_accounted_alike() {
    play(vec![
        Step::Tell(Fact::AgentAdded(0, 1)),
        Step::Tell(Fact::Quota(0, 1, None)),
        Step::Tell(Fact::FrameworkAdded(0, 4, 0, None)),
        Step::Honest(true, vec![Fact::FrameworkAdded(0, 1, 0, None)]),
        Step::Tell(Fact::FrameworkAdded(1, 0, 0, None)),
        Step::Settle,
    ]);
}

/// A filter on an offer cut by quota hides the next offer with the same cut, and the quota goes to
/// other agents.
#[test]
fn filter_hides_offers_cut_by_quota() {
    play(vec![
        Step::Tell(Fact::Quota(2, 1, None)),
        Step::Tell(Fact::Quota(0, 0, Some(1))),
        Step::Tell(Fact::FrameworkAdded(0, 2, 0, None)),
        Step::Tell(Fact::AgentAdded(0, 1)),
        Step::Honest(true, vec![Fact::AgentAdded(1, 3)]),
        Step::Tell(Fact::Recovered(0, false, Some(1))),
        Step::Settle,
    ]);
}

/// A parent's reservation is considered again when the limit of a child below leaves more, though
/// nothing else is free there.
#[test]
fn raised_limit_releases_a_parent_reservation() {
    play(vec![
        Step::Tell(Fact::Quota(1, 0, Some(1))),
        Step::Tell(Fact::AgentAdded(0, 3)),
        Step::Tell(Fact::FrameworkAdded(0, 1, 0, None)),
        Step::Settle,
        Step::Tell(Fact::AgentAdded(1, 1)),
        Step::Tell(Fact::FrameworkAdded(1, 3, 0, None)),
        Step::Settle,
        Step::Tell(Fact::AgentRemoved(0)),
        Step::Settle,
    ]);
}

/// Checks that histories contain shared volumes with several users.
#[test]
fn a_shared_volume_of_a_history_has_several_users() {
    let mut world = World::default();
    let steps = [
        Step::Tell(Fact::Created(0)),
        Step::Tell(Fact::FrameworkAdded(0, 0, 16, None)),
        Step::Tell(Fact::AgentAdded(0, 2)),
        Step::Settle,
        Step::Tell(Fact::Reserved(0)),
        Step::Tell(Fact::Created(0)),
        Step::Tell(Fact::Suppressed(0, None)),
        Step::Tell(Fact::Recovered(0, true, None)),
        Step::Tell(Fact::FrameworkAdded(1, 0, 0, None)),
        Step::Tell(Fact::FrameworkAdded(2, 0, 16, None)),
        Step::Tell(Fact::Suppressed(1, None)),
        Step::Settle,
        Step::Tell(Fact::UsedAgain(1)),
    ];
    steps.into_iter().for_each(|step| world.take(step));
    let hosts = world.ledger.hosts.values();
    let users = hosts.flat_map(|host| host.held.iter());
    let users = users.map(|((framework, _), held)| {
        let copies: u32 = held.shared().iter().map(|one| one.copies()).sum();
        format!("{framework} {copies}")
    });
    assert_eq!(users.collect::<Vec<_>>(), ["f0 1", "f2 2"]);
}
