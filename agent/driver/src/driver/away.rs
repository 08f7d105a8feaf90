//! An executor that outlives its agent while that is away: it looks for the next one, and says to it what may not have been heard.
//!
//! The executor itself does not notice: its tasks run on, and what it reports is kept. After `MESOS_RECOVERY_TIMEOUT` the agent is gone for
//! good. What the next agent is told twice it knows by its uuid.

use std::time::Duration;

use protocol::message::executor::ExecutorUpdated;
use rand::Rng;
use runtime::Instant;
use runtime::prelude::*;

use super::{AGENT_ACTOR, Driver, DriverEnd, ExecutorConnectError};

/// The first wait between two attempts to subscribe again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest one, whatever the environment says of it: an attempt costs next to nothing on a machine's own socket, and an agent that was
/// started again waits for its executors no longer than `--executor_reregistration_timeout`.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// How long one attempt to find the agent may take.
const FIND_PATIENCE: Duration = Duration::from_secs(5);

/// Finds the agent's actor that hears executors.
pub(super) async fn reach(
    node: &Node,
    address: &str,
    patience: Duration,
) -> Result<Pid, ExecutorConnectError> {
    node.connect(address).await?;
    Ok(node.find(address, AGENT_ACTOR, patience).await?)
}

/// The agent is gone and may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away {
    /// Until then.
    until: Instant,
    /// The wait before the next attempt.
    backoff: Duration,
    /// Counts attempts, so that only the newest goes on.
    attempt: u64,
}

impl Away {
    pub(super) fn since(now: Instant, patience: Duration) -> Self {
        Self {
            until: now + patience,
            backoff: BACKOFF_MIN,
            attempt: 0,
        }
    }

    /// How long to wait before the next attempt; `None` when it is too late for one. `chance` is between 0 and 1: all executors of an agent
    /// lose it at once, and should not come back at once.
    pub(super) fn pause(&mut self, now: Instant, chance: f64) -> Option<Duration> {
        let left = (self.until > now).then(|| self.until - now)?;
        let pause = self.backoff.mul_f64(0.5 + 0.5 * chance).min(left);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        self.attempt += 1;
        Some(pause)
    }
}

impl Driver {
    /// Whether this executor outlives its agent.
    pub(super) fn outlives(&self) -> bool {
        !self.environment.recovery_timeout.is_zero()
    }

    /// The agent is gone, and the next is looked for.
    pub(super) fn lose_agent(&mut self, ctx: &mut Context<Self>) {
        if self.end.is_some() {
            return;
        }
        ctx.unlink(&self.agent);
        self.subscribed = false;
        let (now, patience) = (ctx.clock().now(), self.environment.recovery_timeout);
        self.away.get_or_insert_with(|| Away::since(now, patience));
        self.look_later(ctx);
    }

    fn look_later(&mut self, ctx: &mut Context<Self>) {
        let (now, chance) = (ctx.clock().now(), self.rng.random());
        let Some(away) = &mut self.away else { return };
        match away.pause(now, chance) {
            Some(pause) => {
                let attempt = away.attempt;
                ctx.after(pause, move |driver, ctx| driver.look(attempt, ctx));
            }
            None => {
                let end = match (self.stopping, self.unconfirmed.len()) {
                    (true, count) => DriverEnd::UpdatesLost { count },
                    (false, _) => DriverEnd::Disconnected,
                };
                self.finish(end, ctx);
            }
        }
    }

    /// Looks for the next agent.
    fn look(&mut self, attempt: u64, ctx: &mut Context<Self>) {
        if !self.is_at(attempt) {
            return;
        }
        let (node, address) = (ctx.node().clone(), self.environment.address());
        let found = async move { reach(&node, &address, FIND_PATIENCE).await };
        ctx.then(found, move |driver, found, ctx| match found {
            _ if !driver.is_at(attempt) => {}
            Ok(agent) => {
                driver.agent = agent;
                driver.subscribe(ctx);
            }
            Err(error) => {
                tracing::debug!(%error, "the agent is not back");
                driver.look_later(ctx);
            }
        });
    }

    /// Whether this is the newest attempt, and still wanted.
    fn is_at(&self, attempt: u64) -> bool {
        let away = self.away.filter(|_| self.end.is_none());
        away.is_some_and(|away| away.attempt == attempt)
    }

    /// The agent is back: it hears all that the earlier one has not confirmed.
    pub(super) fn say_again(&mut self, ctx: &mut Context<Self>) {
        for status in self.unconfirmed.iter() {
            let status = status.clone();
            if let Err(error) = ctx.node().tell(&self.agent, ExecutorUpdated { status }) {
                tracing::warn!(%error, "update not sent");
            }
        }
        self.watch_confirmations(ctx);
        if self.stopping {
            self.finish_if_done(ctx);
            self.say_farewell(ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 5.3: the shortest time that an agent waits by default is 2 s.
    #[test]
    fn attempts_come_more_slowly_up_to_four_a_second_until_it_is_too_late() {
        let pauses = |chance: f64| {
            let mut now = Instant::default();
            let mut away = Away::since(now, Duration::from_secs(2));
            let mut pauses = Vec::new();
            while let Some(pause) = away.pause(now, chance) {
                pauses.push(pause.as_millis());
                now = now + pause;
            }
            pauses
        };
        let longest = [50, 100, 200, 250, 250, 250, 250, 250, 250, 150];
        assert_eq!(pauses(1.0), longest);
        assert_eq!(pauses(0.0)[..5], [25, 50, 100, 125, 125]);
    }
}
