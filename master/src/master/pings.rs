//! Pings: which agent is asked when whether it is there (SPEC 3.2: every 15 s, five misses).
//!
//! Remembers one line of agents in the order of their times, with one timer: each is pinged so long after its registration or its last
//! ping, so whoever comes first is first again. Who registers has just spoken and is not asked at once, least of all when thousands come
//! back together. What is known of answers is in [`crate::health`].

use std::collections::VecDeque;

use protocol::AgentId;
use protocol::message::registration::PingAgent;
use runtime::Instant;
use runtime::prelude::*;
use rustc_hash::FxHashMap;

use super::Master;
use crate::health::{Due, Health};

/// So many agents are pinged before others get their turn.
const AT_ONCE: usize = 128;

/// Whom to ping, and what is known of their answers.
#[derive(Default)]
pub(super) struct Pings {
    /// By agent: in which session, and how it has answered.
    health: FxHashMap<AgentId, (u64, Health)>,
    /// Agents with their sessions, in the order of their times.
    line: VecDeque<(Instant, AgentId, u64)>,
    /// Whether the first of them is awaited.
    is_awaited: bool,
}

impl Pings {
    /// The agent is no more, or out of reach.
    pub fn forget(&mut self, id: &AgentId) {
        self.health.remove(id);
    }

    fn of(&mut self, id: &AgentId, session: u64) -> Option<&mut Health> {
        let (watched, health) = self.health.get_mut(id)?;
        (*watched == session).then_some(health)
    }
}

impl Master {
    /// Begins to ping an agent, unless it has registered again since or is gone.
    pub(super) fn watch(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let agent = self.books.agents.get(&id);
        if agent.is_some_and(|agent| agent.session == session) {
            let unasked = (session, Health::default());
            let before = self.pings.health.insert(id.clone(), unasked);
            match before {
                // It has just spoken.
                None => self.ping_later(id, session, ctx),
                // Its session may be another only for the allocator, and has to put off no ping.
                Some(_) => self.ping_due(id, session, ctx),
            }
        }
    }

    fn ping_later(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let due = ctx.clock().now() + self.config.agent_ping_timeout;
        self.pings.line.push_back((due, id, session));
        self.await_pings(ctx);
    }

    /// One timer for all.
    fn await_pings(&mut self, ctx: &mut Context<Self>) {
        let Some((due, ..)) = self.pings.line.front() else {
            return;
        };
        if std::mem::replace(&mut self.pings.is_awaited, true) {
            return;
        }
        ctx.after(*due - ctx.clock().now(), |master, ctx| {
            let now = ctx.clock().now();
            // Those that are pinged now come again at the end, later than now.
            for _ in 0..AT_ONCE {
                let is_due = |(due, ..): &(Instant, AgentId, u64)| *due <= now;
                if !master.pings.line.front().is_some_and(is_due) {
                    break;
                }
                if let Some((_, id, session)) = master.pings.line.pop_front() {
                    master.ping_due(id, session, ctx);
                }
            }
            master.pings.is_awaited = false;
            master.await_pings(ctx);
        });
    }

    /// The time of a ping has come, unless the agent has registered again since or is gone.
    fn ping_due(&mut self, id: AgentId, session: u64, ctx: &mut Context<Self>) {
        let misses_max = self.config.max_agent_ping_timeouts;
        let agent = self.books.agents.get(&id);
        let Some(agent) = agent.filter(|agent| agent.session == session) else {
            return;
        };
        let Some(health) = self.pings.of(&id, session) else {
            return;
        };
        match health.due(misses_max) {
            Due::Unreachable => {
                tracing::warn!(agent = %id, "the agent has left {misses_max} pings unanswered");
                let counters = &mut self.books_mut().counters;
                counters.count("master/slave_unreachable_scheduled");
                let since = ctx.clock().wall();
                self.mark_unreachable(id, since, ctx);
            }
            Due::Ping => {
                let ping = PingAgent {
                    connected: agent.connected,
                };
                // No clock for each: there are few before the agent is held for unreachable, and they end with the link.
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
