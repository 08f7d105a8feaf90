//! Leader watch: while subscribed, waits for other masters to announce a new leader.
//!
//! Without it, a killed master is noticed only after the idle timeout of the transport, while its
//! group elects a new leader within a second. The driver asks two masters at a time, because one of
//! them may be down; in a working group only a minority is. Requests belong to one subscription and
//! end with it. Never asks the current master, and follows only a later term.

use std::time::Duration;

use protocol::discovery::{SPREAD_MAX, find_announced, find_leader};
use protocol::message::registration::{AwaitLeader, LeaderAnnounced};
use rand::Rng;
use runtime::Discovered;
use runtime::prelude::*;
use tracing::{debug, info, warn};

use super::{Driver, FIND_PATIENCE, Phase};
use crate::scheduler::Scheduler;

/// Number of masters to ask at the same time.
const ASKED_AT_ONCE: usize = 2;
/// Pause before the next master is asked after a failed request.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of attempts at an announced master before others are tried, and the pause between them,
/// which jitter shortens by up to half.
const TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Time limit of each attempt. The dial continues in the meantime.
pub(super) const ANNOUNCED_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of known masters, including announced ones and those found through others.
const MASTERS_MAX: usize = 64;

impl<S: Scheduler> Driver<S> {
    /// Asks the masters after the `index`th, which is at `address` and subscribed us, for the next
    /// leader.
    pub(super) fn watch_for_leader(
        &mut self,
        index: usize,
        address: &str,
        ctx: &mut Context<Self>,
    ) {
        let others = self.plan.masters.iter().filter(|other| *other != address);
        for nth in 0..others.count().min(ASKED_AT_ONCE) {
            self.watch_nth(index, nth, address.to_owned(), ctx);
        }
    }

    /// Asks the `nth` master after the `index`th for a leader other than the current master at
    /// `address`.
    fn watch_nth(&mut self, index: usize, nth: usize, address: String, ctx: &mut Context<Self>) {
        let Some(other) = other_than(&self.plan.masters, index, nth, &address) else {
            return;
        };
        let (attempt, node) = (self.attempt, ctx.node().clone());
        let term = self.fence.newest_term();
        let asking = async move {
            let office = node.find(&other, "office", FIND_PATIENCE).await?;
            node.ask(&office, AwaitLeader { term }, Patience::WhileLinked)
                .await
        };
        ctx.then(asking, move |driver: &mut Self, answer, ctx| {
            match (driver.is_current(attempt), answer) {
                (false, _) => {}
                (true, Ok(leader))
                    if leader.has_dialable_address()
                        && driver.fence.try_follow(leader.term, true) =>
                {
                    driver.follow(leader, ctx);
                }
                (true, answer) => {
                    debug!(?answer, "no leader announced; asking another master");
                    ctx.after(PAUSE, move |driver, ctx| {
                        if driver.is_current(attempt) {
                            driver.watch_nth(index, nth + ASKED_AT_ONCE, address, ctx);
                        }
                    });
                }
            }
        });
    }

    /// Whether the subscription of this attempt is still current.
    fn is_current(&self, attempt: u64) -> bool {
        let has = matches!(
            self.phase,
            Phase::Subscribed { .. } | Phase::StandingBy { .. }
        );
        self.attempt == attempt && has
    }

    /// Leaves the current master for the announced one. All drivers learn of it at the same time,
    /// so each waits a random time first.
    fn follow(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        info!(master = %leader.address, term = leader.term, "another master leads");
        if let Phase::Subscribed { master } | Phase::StandingBy { master } = &self.phase {
            ctx.unlink(&master.clone());
        }
        let index = self.index_of(&leader.address);
        self.lose_master("another master leads", ctx);
        self.tries = TRIES;
        let chance: f64 = ctx.node().rng().random();
        self.find_master_later(SPREAD_MAX.mul_f64(chance), index, ctx);
    }

    /// Index of the master at this address. Adds an unknown one if there is room; the configured
    /// masters stay, and come first.
    pub(super) fn index_of(&mut self, address: &str) -> usize {
        let masters = &mut self.plan.masters;
        let known = masters.iter().position(|master| master == address);
        let index = known.unwrap_or(masters.len());
        if known.is_none() {
            match masters.len() < MASTERS_MAX {
                true => masters.push(address.to_owned()),
                false => warn!(master = %address, "too many known masters; ignoring this one"),
            }
        }
        index
    }

    /// The `index`th master did not subscribe us. Tries it again soon if it was just announced,
    /// otherwise the next one.
    pub(super) fn find_master_after(&mut self, index: usize, ctx: &mut Context<Self>) {
        if self.tries == 0 {
            return self.find_master(index + 1, ctx);
        }
        self.tries -= 1;
        let chance: f64 = ctx.node().rng().random();
        self.find_master_later(TRY_AGAIN.mul_f64(0.5 + 0.5 * chance), index, ctx);
    }

    /// Searches from the `index`th master after this pause, unless another attempt starts before.
    fn find_master_later(&mut self, pause: Duration, index: usize, ctx: &mut Context<Self>) {
        self.attempt += 1;
        let attempt = self.attempt;
        ctx.after(pause, move |driver, ctx| {
            if driver.attempt == attempt {
                driver.find_master(index, ctx);
            }
        });
    }
}

/// Finds the leading master: through these masters, or, if it was announced, `alone` at its
/// address.
pub(super) fn search(
    node: &Node,
    masters: Vec<String>,
    patience: Duration,
    alone: bool,
) -> impl Future<Output = Result<Discovered, AskError>> + Send + use<> {
    let (node, chance) = (node.clone(), node.rng().random());
    async move {
        match masters.first().filter(|_| alone) {
            None => find_leader(&node, masters, patience, chance).await,
            Some(announced) => find_announced(&node, announced, patience).await,
        }
    }
}

/// Addresses to ask: all from index `from` on, or `alone` that one.
pub(super) fn addresses_to_ask(masters: &[String], from: usize, alone: bool) -> &[String] {
    let left = masters.get(from..).unwrap_or_default();
    match alone {
        true => left.get(..1).unwrap_or_default(),
        false => left,
    }
}

/// The `nth` master after `index`, cyclic, without the one at `address`; `None` if there is no
/// other. A master accepts one waiting request per node, so parallel requests must go to different
/// masters: with as many others as requests, each request stays with its own master.
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
    fn search_covers_the_rest_or_one_announced_master() {
        let masters = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(addresses_to_ask(&masters, 0, false), masters);
        assert_eq!(addresses_to_ask(&masters, 1, false), ["b", "c"]);
        assert_eq!(addresses_to_ask(&masters, 1, true), ["b"]);
        assert!(addresses_to_ask(&masters, 3, true).is_empty());
        assert!(addresses_to_ask(&masters, usize::MAX, false).is_empty());
    }

    #[test]
    fn other_masters_are_asked_in_turn() {
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

    /// With three masters and one down, the request to it is repeated and the other one stays.
    #[test]
    fn two_watchers_ask_different_masters() {
        let masters = ["a", "b", "c"].map(str::to_owned);
        let asked = |nth| other_than(&masters, 1, nth, "b").unwrap();
        let mut nth = (0, 1);
        for _ in 0..5 {
            assert_eq!((asked(nth.0).as_str(), asked(nth.1).as_str()), ("c", "a"));
            nth = (nth.0 + ASKED_AT_ONCE, nth.1 + ASKED_AT_ONCE);
        }
    }
}
