//! Absence of the agent, for an executor with checkpointing: reconnects to the next agent process
//! and repeats unconfirmed updates.
//!
//! The executor does not notice: its tasks keep running and its updates are kept. After
//! `MESOS_RECOVERY_TIMEOUT` the agent is gone for good. Agents identify repeated updates by uuid.

use std::time::Duration;

use protocol::message::executor::ExecutorUpdated;
use rand::Rng;
use runtime::Instant;
use runtime::prelude::*;

use super::{AGENT_ACTOR, Driver, DriverEnd, ExecutorConnectError};

/// First wait between two reconnections; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait, regardless of the environment: an attempt on a local socket is cheap, and a
/// restarted agent waits only `--executor_reregistration_timeout` for its executors.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// Time limit of one attempt to find the agent.
const FIND_PATIENCE: Duration = Duration::from_secs(5);

/// Finds the agent's actor for executors.
pub(super) async fn reach(
    node: &Node,
    address: &str,
    patience: Duration,
) -> Result<Pid, ExecutorConnectError> {
    node.connect(address).await?;
    Ok(node.find(address, AGENT_ACTOR, patience).await?)
}

/// An absence of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentAbsence {
    /// Its time limit.
    until: Instant,
    /// Wait before the next attempt.
    backoff: Duration,
    /// Number of attempts; identifies stale timers.
    attempt: u64,
}

impl AgentAbsence {
    pub(super) fn since(now: Instant, patience: Duration) -> Self {
        Self {
            until: now + patience,
            backoff: BACKOFF_MIN,
            attempt: 0,
        }
    }

    /// The wait before the next attempt, or `None` after the time limit. `chance` in `0..1` is the
    /// jitter: all executors of an agent lose it at once.
    pub(super) fn pause(&mut self, now: Instant, chance: f64) -> Option<Duration> {
        let left = (self.until > now).then(|| self.until - now)?;
        let pause = self.backoff.mul_f64(0.5 + 0.5 * chance).min(left);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        self.attempt += 1;
        Some(pause)
    }
}

impl Driver {
    /// Whether this executor survives its agent.
    pub(super) fn survives_agent(&self) -> bool {
        !self.environment.recovery_timeout.is_zero()
    }

    /// The agent is lost; reconnects to the next one.
    pub(super) fn lose_agent(&mut self, ctx: &mut Context<Self>) {
        if self.end.is_some() {
            return;
        }
        ctx.unlink(&self.agent);
        self.subscribed = false;
        let (now, patience) = (ctx.clock().now(), self.environment.recovery_timeout);
        self.absence
            .get_or_insert_with(|| AgentAbsence::since(now, patience));
        self.reconnect_later(ctx);
    }

    fn reconnect_later(&mut self, ctx: &mut Context<Self>) {
        let (now, chance) = (ctx.clock().now(), self.rng.random());
        let Some(absence) = &mut self.absence else {
            return;
        };
        match absence.pause(now, chance) {
            Some(pause) => {
                let attempt = absence.attempt;
                ctx.after(pause, move |driver, ctx| driver.reconnect(attempt, ctx));
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

    /// Tries to reconnect.
    fn reconnect(&mut self, attempt: u64, ctx: &mut Context<Self>) {
        if !self.is_current(attempt) {
            return;
        }
        let (node, address) = (ctx.node().clone(), self.environment.address());
        let found = async move { reach(&node, &address, FIND_PATIENCE).await };
        ctx.then(found, move |driver, found, ctx| match found {
            _ if !driver.is_current(attempt) => {}
            Ok(agent) => {
                driver.agent = agent;
                driver.subscribe(ctx);
            }
            Err(error) => {
                tracing::debug!(%error, "agent not back yet");
                driver.reconnect_later(ctx);
            }
        });
    }

    /// Whether this is the newest attempt, and the absence has not ended.
    fn is_current(&self, attempt: u64) -> bool {
        let absence = self.absence.filter(|_| self.end.is_none());
        absence.is_some_and(|absence| absence.attempt == attempt)
    }

    /// The agent is back: repeats all unconfirmed updates.
    pub(super) fn resend_updates(&mut self, ctx: &mut Context<Self>) {
        for status in self.unconfirmed.iter() {
            let status = status.clone();
            if let Err(error) = ctx.node().tell(&self.agent, ExecutorUpdated { status }) {
                tracing::warn!(%error, "update not sent");
            }
        }
        self.watch_confirmations(ctx);
        if self.stopping {
            self.finish_if_done(ctx);
            self.start_stop_timeout(ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 5.3: the shortest time that an agent waits by default is 2 s.
    #[test]
    fn reconnect_backoff_ends_at_the_timeout() {
        let pauses = |chance: f64| {
            let mut now = Instant::default();
            let mut absence = AgentAbsence::since(now, Duration::from_secs(2));
            let mut pauses = Vec::new();
            while let Some(pause) = absence.pause(now, chance) {
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
