//! Vigil: while one master of several has the framework, others are asked to say when the leader changes.
//!
//! The silence of a master that was killed is noticed only after the transport's idle timeout; its group knows within a second. Two are
//! asked, since one may be away just then: of a group that lives never more than the fewer are. Remembers nothing of its own: a question
//! belongs to the try that subscribed, and is given up with it. Never asks the master that has us, and follows only a later term.

use std::time::Duration;

use protocol::message::registration::AwaitLeader;
use runtime::prelude::*;
use tracing::{debug, info};

use super::{Driver, FIND_PATIENCE, Phase};
use crate::scheduler::Scheduler;

/// How many masters are asked at a time.
const ASKED_AT_ONCE: usize = 2;
/// The pause before another master is asked when one gives no answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a master that was announced is tried before the others, and the pause between.
const TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// How long it may be silent each time before the others are asked after all. A dial to it goes on meanwhile.
pub(super) const ANNOUNCED_PATIENCE: Duration = Duration::from_secs(1);
/// How many masters are remembered, those included that were announced and not named by the user.
const MASTERS_MAX: usize = 64;

impl<S: Scheduler> Driver<S> {
    /// Asks those after the `index`th master, which is at `address` and has us, who leads next.
    pub(super) fn begin_vigil(&mut self, index: usize, address: &str, ctx: &mut Context<Self>) {
        let others = self.plan.masters.iter().filter(|other| *other != address);
        for nth in 1..=others.count().min(ASKED_AT_ONCE) {
            self.keep_vigil(index + nth, address.to_owned(), ctx);
        }
    }

    /// Asks the `asked`th master, or the one after it, who leads once it is not the one at `address`, which has us.
    fn keep_vigil(&mut self, asked: usize, address: String, ctx: &mut Context<Self>) {
        let Some((asked, other)) = other_than(&self.plan.masters, asked, &address) else {
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
                (true, Ok(leader)) if driver.fence.follows(leader.term, true) => {
                    driver.follow(leader.address, ctx);
                }
                (true, answer) => {
                    debug!(
                        ?answer,
                        "a master does not say who leads next; asking another"
                    );
                    ctx.after(PAUSE, move |driver, ctx| {
                        if driver.is_kept(attempt) {
                            driver.keep_vigil(asked + ASKED_AT_ONCE, address, ctx);
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

    /// Another master leads: it is where to subscribe, whatever becomes of ours.
    fn follow(&mut self, address: String, ctx: &mut Context<Self>) {
        info!(master = %address, "another master leads");
        if let Phase::Subscribed { master } | Phase::StandingBy { master } = &self.phase {
            ctx.unlink(&master.clone());
        }
        let masters = &mut self.plan.masters;
        let known = masters.iter().position(|master| *master == address);
        let index = known.unwrap_or(masters.len());
        if known.is_none() && masters.len() < MASTERS_MAX {
            masters.push(address);
        }
        self.lose("another master leads", ctx);
        self.tries = TRIES;
        self.seek(index, ctx);
    }

    /// The `index`th master has not taken us: it is tried again soon if it has just been announced, else it is the next one's turn.
    pub(super) fn seek_after(&mut self, index: usize, ctx: &mut Context<Self>) {
        if self.tries == 0 {
            return self.seek(index + 1, ctx);
        }
        self.tries -= 1;
        let attempt = self.attempt;
        ctx.after(TRY_AGAIN, move |driver, ctx| {
            if driver.attempt == attempt {
                driver.seek(index, ctx);
            }
        });
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

/// The first of these from place `from` on, around, that is not `address`; `None` if there is no other.
fn other_than(masters: &[String], from: usize, address: &str) -> Option<(usize, String)> {
    let around = (0..masters.len()).map(|step| (from + step) % masters.len());
    around
        .map(|index| (index, masters[index].clone()))
        .find(|(_, master)| master != address)
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
        let masters = ["a", "b", "c"].map(str::to_owned);
        let place = |from, ours| other_than(&masters, from, ours).map(|(index, _)| index);
        assert_eq!(place(1, "a"), Some(1));
        assert_eq!(place(1, "b"), Some(2));
        assert_eq!(place(3, "a"), Some(1), "around");
        assert_eq!(other_than(&masters[..1], 0, "a"), None);
        assert_eq!(other_than(&[], 5, "a"), None);
    }
}
