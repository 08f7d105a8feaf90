//! How the agent ends on its operator's order: for good, or to be restarted.
//!
//! The containerizer decides which containers end and which wait for the next process. Kills
//! nothing itself.

use protocol::message::registration::UnregisterAgent;
use runtime::prelude::*;

use super::{Agent, AgentEnd, Leave, WhenEnded};
use crate::container::checkpointing::PrepareToStop;
use crate::container::events::ShutDownAll;
use crate::ledger::{DeleteCheckpoints, Ledger};
use crate::operations;
use crate::status::CountUnacknowledged;

/// Orders the agent to stop for a restart: it ends without unregistering, and the next process of
/// its work directory continues under its id. Without checkpoints it leaves.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct StopAgent;

impl Handler<StopAgent> for Agent {
    type Result = ();
    fn handle(&mut self, _: StopAgent, ctx: &mut Context<Self>) {
        let staying = self.containerizer.ask(PrepareToStop, operations::PATIENCE);
        ctx.then(staying, |this, staying, ctx| match staying {
            // The id is not stored: unregister at once.
            Ok(_) if this.ledger.is_none() => this.leave(ctx),
            Ok(waiting) => this.finish(AgentEnd::Stopped { waiting }, ctx),
            // Unknown, so something may be waiting.
            Err(error) => {
                let name = "containerizer".to_owned();
                let reason = format!("it does not answer: {error}");
                this.finish(AgentEnd::ActorFailed { name, reason }, ctx);
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
    /// Sets the ledger. The agent ends when its ledger does: later changes could not be
    /// checkpointed, so another process must continue from the disk.
    pub fn with_ledger(mut self, ledger: Option<Handle<Ledger>>) -> Self {
        self.ledger = ledger;
        self
    }

    /// Deletes the checkpoints, then unregisters. In that order: a next process that found
    /// checkpoints would continue as this agent, although the master has declared its tasks gone.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        self.containerizer.tell_always(ShutDownAll);
        let Some(ledger) = &self.ledger else {
            return self.unregister(ctx);
        };
        let forgotten = ledger.ask(DeleteCheckpoints, operations::PATIENCE);
        ctx.then(forgotten, |this, forgotten, ctx| {
            let problem = match forgotten {
                Ok(Ok(())) => return this.deliver_last_updates(ctx),
                Ok(Err(unwritten)) => unwritten.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(problem, "not unregistering: checkpoints cannot be deleted");
            this.finish(AgentEnd::Unregistered, ctx);
        });
    }

    /// Delivers terminal updates that waited for the disk first; the master would otherwise report
    /// these tasks only as gone.
    fn deliver_last_updates(&mut self, ctx: &mut Context<Self>) {
        let said = self.status.ask(CountUnacknowledged, operations::PATIENCE);
        ctx.then(said, |this, _, ctx| this.unregister(ctx));
    }

    fn unregister(&mut self, ctx: &mut Context<Self>) {
        if let (Some(master), Some(agent_id)) = (&self.master, self.info.id.clone())
            && let Err(error) = ctx.node().tell(&master.pid, UnregisterAgent { agent_id })
        {
            tracing::warn!(%error, "cannot send unregistration to the master");
        }
        self.finish(AgentEnd::Unregistered, ctx);
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
