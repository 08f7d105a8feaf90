//! Laws of the books: whatever is told in whatever order, and whatever a sorter says (SPEC 4; DESIGN 10, invariants 2, 3 and 6 as far as
//! the allocator answers for them).
//!
//! - Nothing is granted twice, nor more than there is, nor to anybody who may not have it, wants none or has just refused it.
//! - No grant exceeds a limit, of its role or one above, nor takes what must stay free for a guarantee.
//! - The sums of the books are those of a ledger that is kept by hand.
//! - What a slate tells makes the sorter believe what the books say.
//! - Where reservations are charged, what is idle of them counts for its role, and nothing else does (W24).
//! - Whoever has something on an agent that will be away is asked to leave it, once until it has answered, and nobody else is.
//! - All of that holds by whatever order the sorter goes: by fair shares, by strict priority, by lot.
//! - When all is quiet, nothing is withheld without a reason, and to look at everybody would change nothing.

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

    /// S47, S50: regular and revocable resources have books of their own.
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

    /// S113: the laws are the allocator's, whoever goes first.
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

/// What the sorter spent on a framework that left while it thought, it believes spent until it is told otherwise: a guarantee is not
/// taken for met by it.
#[test]
fn what_was_advised_for_a_client_that_left_counts_as_the_sorter_counts_it() {
    play(vec![
        Step::Tell(Fact::AgentAdded(0, 1)),
        Step::Tell(Fact::Quota(0, 1, None)),
        Step::Tell(Fact::FrameworkAdded(0, 4, 0, None)),
        Step::Honest(true, vec![Fact::FrameworkAdded(0, 1, 0, None)]),
        Step::Tell(Fact::FrameworkAdded(1, 0, 0, None)),
        Step::Settle,
    ]);
}

/// A refused offer that quota had cut hides the next one that it would cut as far, and what quota leaves goes to other agents.
#[test]
fn a_filter_hides_what_quota_would_cut_to_what_was_refused() {
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

/// What is reserved for a role above one with a limit is looked at again when the limit leaves more, though nothing else is left there.
#[test]
fn a_reservation_that_a_limit_below_it_kept_back_is_given_once_the_limit_leaves_more() {
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

/// So that shared volumes are in these histories: who has one keeps it while another is granted a copy, which is used twice.
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
