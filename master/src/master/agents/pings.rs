//! Pings: when each agent is pinged (every 15 s, unreachable after five misses).
//!
//! One queue of agents by due time, with one timer: each is pinged one interval after its
//! registration or last ping, so the order never changes. A newly registered agent is not pinged at
//! once, least of all when thousands return together. Answers are evaluated in
//! [`crate::agents::health`].

use std::collections::VecDeque;

use protocol::AgentId;
use protocol::message::registration::PingAgent;
use runtime::Instant;
use runtime::prelude::*;
use rustc_hash::FxHashMap;

use crate::agents::health::{Due, Health};
use crate::master::Master;

/// Agents pinged in one go before the actor handles other messages.
const AT_ONCE: usize = 128;

/// The agents to ping, and their answers.
#[derive(Default)]
pub(in crate::master) struct Pings {
    /// By agent: the session and the answers.
    health: FxHashMap<AgentId, (u64, Health)>,
    /// Agents with their sessions, by due time.
    queue: VecDeque<(Instant, AgentId, u64)>,
    /// Whether the timer of the first one is running.
    is_awaited: bool,
}

impl Pings {
    /// Forgets an agent that was removed or is unreachable.
    pub fn forget(&mut self, id: &AgentId) {
        self.health.remove(id);
    }

    fn of(&mut self, id: &AgentId, session: u64) -> Option<&mut Health> {
        let (watched, health) = self.health.get_mut(id)?;
        (*watched == session).then_some(health)
    }
}

impl Master {
    /// Starts to ping an agent, unless it has registered again since or is gone.
    pub(in crate::master) fn watch(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let agent = self.state.agents.get(&id);
        if agent.is_some_and(|agent| agent.session == session) {
            let unasked = (session, Health::default());
            let before = self.pings.health.insert(id.clone(), unasked);
            match before {
                // It has just sent a message.
                None => self.ping_later(id, session, ctx),
                // Only the allocator may have caused the new session, which must not delay a ping.
                Some(_) => self.ping_due(id, session, ctx),
            }
        }
    }

    fn ping_later(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let due = ctx.clock().now() + self.config.agent_ping_timeout;
        self.pings.queue.push_back((due, id, session));
        self.await_pings(ctx);
    }

    /// Starts the one timer.
    fn await_pings(&mut self, ctx: &mut Context<Self>) {
        let Some((due, ..)) = self.pings.queue.front() else {
            return;
        };
        if std::mem::replace(&mut self.pings.is_awaited, true) {
            return;
        }
        ctx.after(*due - ctx.clock().now(), |master, ctx| {
            let now = ctx.clock().now();
            // The agents pinged now are queued again at the end.
            for _ in 0..AT_ONCE {
                let is_due = |(due, ..): &(Instant, AgentId, u64)| *due <= now;
                if !master.pings.queue.front().is_some_and(is_due) {
                    break;
                }
                if let Some((_, id, session)) = master.pings.queue.pop_front() {
                    master.ping_due(id, session, ctx);
                }
            }
            master.pings.is_awaited = false;
            master.await_pings(ctx);
        });
    }

    /// Pings an agent, unless it has registered again since or is gone.
    fn ping_due(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let misses_max = self.config.max_agent_ping_timeouts;
        let agent = self.state.agents.get(&id);
        let Some(agent) = agent.filter(|agent| agent.session == session) else {
            return;
        };
        let Some(health) = self.pings.of(&id, session) else {
            return;
        };
        match health.due(misses_max) {
            Due::Unreachable => {
                tracing::warn!(agent = %id, "agent has not answered {misses_max} pings");
                let counters = &mut self.state_mut().counters;
                counters.count("master/slave_unreachable_scheduled");
                let since = ctx.clock().wall();
                self.mark_unreachable(id, since, ctx);
            }
            Due::Ping => {
                let ping = PingAgent {
                    connected: agent.connected,
                };
                // No timer for each: there are few pings before the agent is unreachable, and they
                // end with the link.
                let asked = ctx.node().ask(&agent.pid, ping, Patience::WhileLinked);
                let pinged = id.clone();
                ctx.then(asked, move |master, answer, _| {
                    if let (Ok(_), Some(health)) = (answer, master.pings.of(&pinged, session)) {
                        health.answered();
                    }
                });
                self.ping_later(id, session, ctx);
            }
        }
    }
}
