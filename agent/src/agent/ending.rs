//! How the agent ends when its operator wants it to: for good, or to be started again (SPEC 5.1, 5.3).
//!
//! What ends with it and what waits for its next process is the containerizer's to say. Never kills anything itself.

use protocol::message::registration::UnregisterAgent;
use runtime::prelude::*;

use super::{Agent, AgentEnd, Leave, WhenEnded};
use crate::container::keeping::Depart;
use crate::ledger::WhenBroken;
use crate::operations;

/// The agent should stop. If executors wait for it to come back, or ends of tasks that nobody has acknowledged, it goes without a word, else it
/// leaves.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct GoAway;

impl Handler<GoAway> for Agent {
    type Result = ();
    fn handle(&mut self, _: GoAway, ctx: &mut Context<Self>) {
        let staying = self.containerizer.ask(Depart, operations::PATIENCE);
        ctx.then(staying, |this, staying, ctx| match staying {
            // Nothing would wait for it: its master and frameworks are told at once.
            Ok(0) => this.leave(ctx),
            Ok(waiting) => this.finish(AgentEnd::Departed { waiting }, ctx),
            // Something may wait.
            Err(error) => {
                let name = "containerizer".to_owned();
                let reason = format!("it does not say what waits for the agent: {error}");
                this.finish(AgentEnd::Broken { name, reason }, ctx);
            }
        });
    }
}

impl Handler<Leave> for Agent {
    type Result = ();
    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        self.leave(ctx);
    }
}

impl Agent {
    /// What cannot be kept any more would be lost with this process, so another must go on with what is kept: it ends.
    pub(super) fn watch_ledger(&mut self, ctx: &mut Context<Self>) {
        let Some(ledger) = &self.ledger else { return };
        ctx.link(&ledger.pid());
        let broken = ledger.ask(WhenBroken, Patience::WhileLinked);
        ctx.then(broken, |this, broken, ctx| {
            // One that falls is told by its link.
            if let (Ok(reason), false) = (broken, ctx.node().is_shutting_down()) {
                let name = "ledger".to_owned();
                this.finish(AgentEnd::Broken { name, reason }, ctx);
            }
        });
    }

    fn leave(&mut self, ctx: &mut Context<Self>) {
        if let (Some(master), Some(agent_id)) = (&self.master, self.info.id.clone())
            && let Err(error) = ctx.node().tell(&master.pid, UnregisterAgent { agent_id })
        {
            tracing::warn!(%error, "the master was not told that this agent leaves");
        }
        self.finish(AgentEnd::Left, ctx);
    }
}

impl Handler<WhenEnded> for Agent {
    type Result = Reply<AgentEnd>;
    fn handle(&mut self, _: WhenEnded, _: &mut Context<Self>) -> Reply<AgentEnd> {
        let (promise, reply) = promise();
        match &self.end {
            Some(end) => promise.answer(end.clone()),
            None => self.waiting.push(promise),
        }
        reply
    }
}
