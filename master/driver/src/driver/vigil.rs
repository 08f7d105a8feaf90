//! Vigil: while one master of several has the framework, others are asked to say when the leader changes.
//!
//! The silence of a master that was killed is noticed only after the transport's idle timeout; its group knows within a second. Two are
//! asked, since one may be away just then: of a group that lives never more than the fewer are. Remembers nothing of its own: a question
//! belongs to the try that subscribed, and is given up with it. Never asks the master that has us, and follows only a later term.

use std::time::Duration;

use protocol::message::registration::{AwaitLeader, LeaderAnnounced};
use protocol::seek::{SPREAD_MAX, find_announced, find_leader};
use rand::Rng;
use runtime::Sought;
use runtime::prelude::*;
use tracing::{debug, info, warn};

use super::{Driver, FIND_PATIENCE, Phase};
use crate::scheduler::Scheduler;

/// How many masters are asked at a time.
const ASKED_AT_ONCE: usize = 2;
/// The pause before another master is asked when one gives no answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a master that was announced is tried before the others, and the pause between, which chance shortens by up to half.
const TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// How long it may be silent each time before the others are asked after all. A dial to it goes on meanwhile.
pub(super) const ANNOUNCED_PATIENCE: Duration = Duration::from_secs(1);
/// How many masters are remembered, those included that had us and were not named by the user, or were announced.
const MASTERS_MAX: usize = 64;

impl<S: Scheduler> Driver<S> {
    /// Asks those after the `index`th master, which is at `address` and has us, who leads next.
    pub(super) fn begin_vigil(&mut self, index: usize, address: &str, ctx: &mut Context<Self>) {
        let others = self.plan.masters.iter().filter(|other| *other != address);
        for nth in 0..others.count().min(ASKED_AT_ONCE) {
            self.keep_vigil(index, nth, address.to_owned(), ctx);
        }
    }

    /// Asks the `nth` of the masters behind the `index`th who leads once it is not the one at `address`, which has us.
    fn keep_vigil(&mut self, index: usize, nth: usize, address: String, ctx: &mut Context<Self>) {
        let Some(other) = other_than(&self.plan.masters, index, nth, &address) else {
            return;
        };
        let (attempt, node) = (self.attempt, ctx.node().clone());
        let term = self.fence.seen();
        let asking = async move {
            let office = node.find(&other, "office", FIND_PATIENCE).await?;
            node.ask(&office, AwaitLeader { term }, Patience::WhileLinked)
                .await
        };
        ctx.then(asking, move |driver: &mut Self, answer, ctx| {
            match (driver.is_kept(attempt), answer) {
                (false, _) => {}
                (true, Ok(leader))
                    if leader.names_a_place() && driver.fence.follows(leader.term, true) =>
                {
                    driver.follow(leader, ctx);
                }
                (true, answer) => {
                    debug!(
                        ?answer,
                        "a master does not say who leads next; asking another"
                    );
                    ctx.after(PAUSE, move |driver, ctx| {
                        if driver.is_kept(attempt) {
                            driver.keep_vigil(index, nth + ASKED_AT_ONCE, address, ctx);
                        }
                    });
                }
            }
        });
    }

    /// Whether the subscription of that try still holds.
    fn is_kept(&self, attempt: u64) -> bool {
        let has = matches!(
            self.phase,
            Phase::Subscribed { .. } | Phase::StandingBy { .. }
        );
        self.attempt == attempt && has
    }

    /// Another master leads: it is where to subscribe, whatever becomes of ours. All its group's drivers hear of it in the same moment, so
    /// each goes there after a pause of its own.
    fn follow(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        info!(master = %leader.address, term = leader.term, "another master leads");
        if let Phase::Subscribed { master } | Phase::StandingBy { master } = &self.phase {
            ctx.unlink(&master.clone());
        }
        let index = self.place_of(&leader.address);
        self.lose("another master leads", ctx);
        self.tries = TRIES;
        let chance: f64 = ctx.node().rng().random();
        self.seek_in(SPREAD_MAX.mul_f64(chance), index, ctx);
    }

    /// The place of the master at this address among those that are known. One that was not is added to them, if there is room: those that
    /// the user has named stay, and come first.
    pub(super) fn place_of(&mut self, address: &str) -> usize {
        let masters = &mut self.plan.masters;
        let known = masters.iter().position(|master| master == address);
        let index = known.unwrap_or(masters.len());
        if known.is_none() {
            match masters.len() < MASTERS_MAX {
                true => masters.push(address.to_owned()),
                false => warn!(master = %address, "too many masters are known to remember another"),
            }
        }
        index
    }

    /// The `index`th master has not taken us: it is tried again soon if it has just been announced, else it is the next one's turn.
    pub(super) fn seek_after(&mut self, index: usize, ctx: &mut Context<Self>) {
        if self.tries == 0 {
            return self.seek(index + 1, ctx);
        }
        self.tries -= 1;
        let chance: f64 = ctx.node().rng().random();
        self.seek_in(TRY_AGAIN.mul_f64(0.5 + 0.5 * chance), index, ctx);
    }

    /// Seeks from the `index`th master on after this pause, unless something else is tried before.
    fn seek_in(&mut self, pause: Duration, index: usize, ctx: &mut Context<Self>) {
        self.attempt += 1;
        let attempt = self.attempt;
        ctx.after(pause, move |driver, ctx| {
            if driver.attempt == attempt {
                driver.seek(index, ctx);
            }
        });
    }
}

/// Looks for the master that leads: among these and where they say that it is, or, if it was announced, `alone` where it was said to be.
pub(super) fn search(
    node: &Node,
    masters: Vec<String>,
    patience: Duration,
    alone: bool,
) -> impl Future<Output = Result<Sought, AskError>> + Send + use<> {
    let (node, chance) = (node.clone(), node.rng().random());
    async move {
        match masters.first().filter(|_| alone) {
            None => find_leader(&node, masters, patience, chance).await,
            Some(announced) => find_announced(&node, announced, patience).await,
        }
    }
}

/// Who is asked whether it leads: those from place `from` on, or the one there alone.
pub(super) fn asked(masters: &[String], from: usize, alone: bool) -> &[String] {
    let left = masters.get(from..).unwrap_or_default();
    match alone {
        true => left.get(..1).unwrap_or_default(),
        false => left,
    }
}

/// The `nth` of these behind place `index`, around and around, without the one at `address`; `None` if there is no other. A node waits once at
/// each master, so those who ask at a time must not meet at one: where there are as many others as ask, each goes on with its own.
fn other_than(masters: &[String], index: usize, nth: usize, address: &str) -> Option<String> {
    let around = (1..=masters.len()).map(|step| (index + step) % masters.len());
    let others = around.filter(|at| masters[*at] != address);
    let others: Vec<usize> = others.collect();
    let at = nth.checked_rem(others.len())?;
    Some(masters[others[at]].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_are_left_are_asked_or_the_one_that_was_announced() {
        let masters = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(asked(&masters, 0, false), masters);
        assert_eq!(asked(&masters, 1, false), ["b", "c"]);
        assert_eq!(asked(&masters, 1, true), ["b"]);
        assert!(asked(&masters, 3, true).is_empty());
        assert!(asked(&masters, usize::MAX, false).is_empty());
    }

    #[test]
    fn another_master_than_ours_is_asked_each_in_turn() {
        let masters = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let asked = |index, nth: [usize; 4], ours| {
            nth.map(|nth| other_than(&masters, index, nth, ours).unwrap())
        };
        assert_eq!(asked(0, [0, 1, 2, 3], "a"), ["b", "c", "d", "e"]);
        assert_eq!(asked(3, [0, 1, 2, 3], "d"), ["e", "a", "b", "c"]);
        assert_eq!(asked(3, [4, 5, 6, 7], "d"), ["e", "a", "b", "c"], "around");
        assert_eq!(asked(1, [0, 1, 2, 3], "c"), ["d", "e", "a", "b"]);
        assert_eq!(other_than(&masters[..1], 0, 0, "a"), None);
        assert_eq!(other_than(&[], 5, 0, "a"), None);
    }

    /// One of three is away: whoever asks it asks it again, and lets the other question stand.
    #[test]
    fn of_three_masters_each_of_the_other_two_is_asked_by_one() {
        let masters = ["a", "b", "c"].map(str::to_owned);
        let asked = |nth| other_than(&masters, 1, nth, "b").unwrap();
        let mut nth = (0, 1);
        for _ in 0..5 {
            assert_eq!((asked(nth.0).as_str(), asked(nth.1).as_str()), ("c", "a"));
            nth = (nth.0 + ASKED_AT_ONCE, nth.1 + ASKED_AT_ONCE);
        }
    }
}
