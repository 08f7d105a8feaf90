//! What an agent that is there does not confirm is said again, for it may not have been heard: a mailbox has a bound, and a tell that finds no
//! room behind a link is counted there and dropped.
//!
//! Only the oldest are said, and more slowly each time. An agent whose disk is slow has heard them all, and knows them by their uuids.

use std::time::Duration;

use protocol::Uuid;
use protocol::message::executor::ExecutorUpdated;
use runtime::prelude::*;

use super::Driver;

/// The first wait for the oldest update's confirmation; doubled each time. A driver that was told to stop waits twice as
/// long.
const AFTER_MIN: Duration = Duration::from_secs(5);
/// The longest.
const AFTER_MAX: Duration = Duration::from_secs(60);
/// So many are said again at once. Confirmations come in order, so the others follow.
const AT_ONCE: usize = 64;

/// Whether the agent confirms.
pub(super) struct Repeating {
    /// The wait until the next look.
    after: Duration,
    /// The next look, while something is not confirmed.
    timer: Option<Errand>,
}

impl Default for Repeating {
    fn default() -> Self {
        Self {
            after: AFTER_MIN,
            timer: None,
        }
    }
}

impl Repeating {
    /// Whether to say the oldest again: it is still that which it was at the last look.
    fn look(&mut self, before: Option<Uuid>, now: Option<Uuid>) -> bool {
        let again = now.is_some() && now == before;
        self.after = match again {
            true => (self.after * 2).min(AFTER_MAX),
            false => AFTER_MIN,
        };
        again
    }
}

impl Driver {
    /// Looks before long whether the agent has confirmed what it was told. It ends with the last confirmation.
    pub(super) fn watch_confirmations(&mut self, ctx: &mut Context<Self>) {
        let is_there = self.away.is_none() && self.end.is_none();
        if self.unconfirmed.is_empty() {
            if let Some(timer) = self.repeating.timer.take() {
                ctx.cancel(timer);
            }
            self.repeating.after = AFTER_MIN;
            return;
        }
        if !is_there || self.repeating.timer.is_some() {
            return;
        }
        let (agent, oldest) = (self.agent.clone(), self.unconfirmed.oldest());
        let look = ctx.after(self.repeating.after, move |driver, ctx| {
            driver.repeating.timer = None;
            let again = driver.repeating.look(oldest, driver.unconfirmed.oldest());
            // Another agent was told all of them when it had this executor.
            if again && driver.away.is_none() && driver.agent == agent {
                driver.say_oldest_again(ctx);
            }
            driver.watch_confirmations(ctx);
        });
        self.repeating.timer = Some(look);
    }

    fn say_oldest_again(&self, ctx: &Context<Self>) {
        for status in self.unconfirmed.iter().take(AT_ONCE) {
            let status = status.clone();
            if let Err(error) = ctx.node().tell(&self.agent, ExecutorUpdated { status }) {
                tracing::warn!(%error, "update not sent again");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_confirmed_is_said_again_more_slowly_each_time_until_it_is() {
        let uuid = |number| Some(Uuid([number; 16]));
        let mut repeating = Repeating::default();
        let mut look = |before, now| {
            let again = repeating.look(before, now);
            (again, repeating.after.as_secs())
        };
        let seconds = [10, 20, 40, 60, 60];
        for expected in seconds {
            assert_eq!(look(uuid(1), uuid(1)), (true, expected));
        }
        assert_eq!(look(uuid(1), uuid(2)), (false, 5), "it is another now");
        assert_eq!(look(uuid(2), uuid(2)), (true, 10));
        assert_eq!(look(uuid(2), None), (false, 5));
        assert_eq!(look(None, None), (false, 5));
    }
}
