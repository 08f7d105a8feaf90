//! Repeats unconfirmed updates, because they may be lost: mailboxes are bounded, and a full one
//! behind a link drops messages.
//!
//! Only the oldest updates are repeated, with increasing intervals. An agent with a slow disk has
//! them already, and identifies them by uuid.

use std::time::Duration;

use protocol::Uuid;
use protocol::message::executor::ExecutorUpdated;
use runtime::prelude::*;

use super::Driver;

/// First wait for the confirmation of the oldest update; doubled each time. A stopped driver waits
/// twice as long.
const REPEAT_MIN: Duration = Duration::from_secs(5);
/// Longest wait.
const REPEAT_MAX: Duration = Duration::from_secs(60);
/// Number of updates to repeat at a time. Confirmations arrive in order, so the others follow.
const REPEAT_COUNT: usize = 64;

/// State of the repetition.
pub(super) struct UpdateRepeater {
    /// Wait before the next check.
    after: Duration,
    /// The next check, while there are unconfirmed updates.
    timer: Option<TimerHandle>,
}

impl Default for UpdateRepeater {
    fn default() -> Self {
        Self {
            after: REPEAT_MIN,
            timer: None,
        }
    }
}

impl UpdateRepeater {
    /// Whether to repeat the oldest update: it has not changed since the last check.
    fn should_repeat(&mut self, before: Option<Uuid>, now: Option<Uuid>) -> bool {
        let again = now.is_some() && now == before;
        self.after = match again {
            true => (self.after * 2).min(REPEAT_MAX),
            false => REPEAT_MIN,
        };
        again
    }
}

impl Driver {
    /// Schedules the next check, unless everything is confirmed.
    pub(super) fn watch_confirmations(&mut self, ctx: &mut Context<Self>) {
        let is_there = self.absence.is_none() && self.end.is_none();
        if self.unconfirmed.is_empty() {
            if let Some(timer) = self.repeating.timer.take() {
                ctx.cancel(timer);
            }
            self.repeating.after = REPEAT_MIN;
            return;
        }
        if !is_there || self.repeating.timer.is_some() {
            return;
        }
        let (agent, oldest) = (self.agent.clone(), self.unconfirmed.oldest());
        let look = ctx.after(self.repeating.after, move |driver, ctx| {
            driver.repeating.timer = None;
            let again = driver
                .repeating
                .should_repeat(oldest, driver.unconfirmed.oldest());
            // After a change of agents, all updates were sent with the subscription.
            if again && driver.absence.is_none() && driver.agent == agent {
                driver.repeat_oldest(ctx);
            }
            driver.watch_confirmations(ctx);
        });
        self.repeating.timer = Some(look);
    }

    fn repeat_oldest(&self, ctx: &Context<Self>) {
        for status in self.unconfirmed.iter().take(REPEAT_COUNT) {
            let status = status.clone();
            if let Err(error) = ctx.node().tell(&self.agent, ExecutorUpdated { status }) {
                tracing::warn!(%error, "update not repeated");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfirmed_updates_repeat_with_backoff() {
        let uuid = |number| Some(Uuid([number; 16]));
        let mut repeating = UpdateRepeater::default();
        let mut look = |before, now| {
            let again = repeating.should_repeat(before, now);
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
