//! How the agent ends when its operator wants it to: for good, or to be started again (SPEC 5.1, 5.3).
//!
//! What ends with it and what waits for its next process is the containerizer's to say. Never kills anything itself.

use protocol::message::registration::UnregisterAgent;
use runtime::prelude::*;

use super::{Agent, AgentEnd, Leave, WhenEnded};
use crate::container::events::EndEverything;
use crate::container::keeping::Depart;
use crate::ledger::{ForgetEverything, Ledger};
use crate::operations;
use crate::status::Waiting;

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
    /// The same agent, which ends with this ledger, if there is one: what could not be kept any more would be lost with its process, so another
    /// must go on with what is kept.
    pub fn keeping(mut self, ledger: Option<Handle<Ledger>>) -> Self {
        self.ledger = ledger;
        self
    }

    /// Its master is told that it leaves once the disk has forgotten it, and not before: a next process that finds what it kept goes on as this
    /// agent, and its tasks may not have been called gone.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        self.containerizer.tell_always(EndEverything);
        let Some(ledger) = &self.ledger else {
            return self.unregister(ctx);
        };
        let forgotten = ledger.ask(ForgetEverything, operations::PATIENCE);
        ctx.then(forgotten, |this, forgotten, ctx| {
            let problem = match forgotten {
                Ok(Ok(())) => return this.say_last(ctx),
                Ok(Err(unwritten)) => unwritten.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(
                problem,
                "the master is not told that this agent leaves: its disk does not forget it"
            );
            this.finish(AgentEnd::Left, ctx);
        });
    }

    /// What waited for the disk like this is told before: how tasks have ended, of which the master would else only hear that they are gone.
    fn say_last(&mut self, ctx: &mut Context<Self>) {
        let said = self.status.ask(Waiting, operations::PATIENCE);
        ctx.then(said, |this, _, ctx| this.unregister(ctx));
    }

    fn unregister(&mut self, ctx: &mut Context<Self>) {
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
