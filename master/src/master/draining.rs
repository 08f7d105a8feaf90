//! What the master hears about single agents from operators: they are drained, deactivated, reactivated, or gone for good (SPEC 3.2).
//!
//! Each order is judged by [`crate::draining`], recorded, and then carried out. While agents are being drained it is looked each second
//! whether anything is left on them.

use std::time::Duration;

use authority::Action;
use protocol::AgentId;
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, MarkAgentGone, ReactivateAgent, UpdateRefused,
};
use runtime::prelude::*;

use super::Master;
use super::verbs::InTurn;
use crate::admission::Removal;
use crate::registry::{RegistryError, RegistryOperation};

/// How often it is looked whether an agent that is being drained is empty.
const DRAIN_LOOK: Duration = Duration::from_secs(1);

type Answer = Result<(), UpdateRefused>;

impl Handler<InTurn<DrainAgent>> for Master {
    type Result = Reply<Answer>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<DrainAgent>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let now = ctx.clock().wall();
        let may = self.may_maintain(Action::DrainAgents, ctx);
        let prepared = may.and_then(|()| self.books.prepare_drain(&call, now));
        self.order(call.agent_id, prepared, ctx)
    }
}

impl Handler<InTurn<DeactivateAgent>> for Master {
    type Result = Reply<Answer>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<DeactivateAgent>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let may = self.may_maintain(Action::DeactivateAgents, ctx);
        let prepared = may.and_then(|()| self.books.prepare_deactivation(&call.agent_id));
        self.order(call.agent_id, prepared, ctx)
    }
}

impl Handler<InTurn<ReactivateAgent>> for Master {
    type Result = Reply<Answer>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<ReactivateAgent>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let may = self.may_maintain(Action::ReactivateAgents, ctx);
        let prepared = may.and_then(|()| self.books.prepare_reactivation(&call.agent_id));
        self.order(call.agent_id, prepared, ctx)
    }
}

impl Handler<InTurn<CancelDrain>> for Master {
    type Result = Reply<Answer>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<CancelDrain>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let may = self.may_maintain(Action::ReactivateAgents, ctx);
        let prepared = may.and_then(|()| self.books.prepare_cancelled_drain(&call.agent_id));
        self.order(call.agent_id, prepared, ctx)
    }
}

impl Handler<InTurn<MarkAgentGone>> for Master {
    type Result = Reply<Answer>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<MarkAgentGone>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let (promise, reply) = promise();
        let may = self.may_maintain(Action::MarkAgentsGone, ctx);
        let agent_id = call.agent_id;
        match may.and_then(|()| self.books.may_be_gone(&agent_id)) {
            Err(refused) => promise.answer(Err(refused)),
            Ok(false) => promise.answer(Ok(())),
            Ok(true) => {
                tracing::info!(agent = %agent_id, "an operator declares an agent gone");
                self.declare_gone(agent_id, Some(promise), ctx);
            }
        }
        reply
    }
}

impl Master {
    /// An agent is to be gone for good. It is recorded once, however many want it and wherever they have asked.
    fn declare_gone(
        &mut self,
        agent_id: AgentId,
        operator: Option<Promise<Answer>>,
        ctx: &mut Context<Self>,
    ) {
        let is_under_way = self.going.contains_key(&agent_id);
        let waiting = self.going.entry(agent_id.clone()).or_default();
        waiting.retain(Promise::is_awaited);
        waiting.extend(operator);
        if !is_under_way {
            self.remove_agent(agent_id, Removal::Gone, ctx);
        }
    }

    /// Records what is ordered about an agent, and then carries it out.
    fn order(
        &mut self,
        agent_id: AgentId,
        prepared: Result<RegistryOperation, UpdateRefused>,
        ctx: &mut Context<Self>,
    ) -> Reply<Answer> {
        let (promise, reply) = promise();
        let order = match prepared {
            Ok(order) => order,
            Err(refused) => {
                promise.answer(Err(refused));
                return reply;
            }
        };
        let applied = self.registry.apply(order.clone());
        ctx.then(applied, move |master: &mut Self, applied, ctx| {
            if let Some(answer) = master.recorded(applied, ctx) {
                if answer.is_ok() {
                    tracing::info!(agent = %agent_id, ?order, "an operator's order about an agent is recorded");
                    master.change(ctx, |books, _, out| books.ordered(&agent_id, &order, out));
                    master.look_at_draining(ctx);
                }
                promise.answer(answer);
            }
        });
        reply
    }

    /// Looks which of the agents that are being drained are empty, now and each second while there are any.
    pub(super) fn look_at_draining(&mut self, ctx: &mut Context<Self>) {
        for agent in self.books.emptied() {
            if self.leaving.contains(&agent) {
                continue;
            }
            if !self.books.agents.is_draining(&agent) {
                // An earlier master has recorded so much, and has then ended.
                self.declare_gone(agent, None, ctx);
            } else if self.drained.insert(agent.clone()) {
                self.record_drained(agent, ctx);
            }
        }
        if self.books.agents.draining().next().is_some() && self.drain_look.is_none() {
            self.drain_look = Some(ctx.after(DRAIN_LOOK, |master, ctx| {
                master.drain_look = None;
                master.look_at_draining(ctx);
            }));
        }
    }

    fn record_drained(&mut self, agent_id: AgentId, ctx: &mut Context<Self>) {
        let order = RegistryOperation::MarkAgentDrained {
            agent_id: agent_id.clone(),
        };
        let applied = self.registry.apply(order.clone());
        ctx.then(applied, move |master: &mut Self, applied, ctx| {
            // If the registry did not take it, the next look asks it again.
            master.drained.remove(&agent_id);
            match applied {
                Ok(_) => {
                    tracing::info!(agent = %agent_id, "an agent is drained");
                    master.change(ctx, |books, _, out| books.ordered(&agent_id, &order, out));
                    let gone = master.books.is_to_be_gone(&agent_id);
                    if gone && !master.leaving.contains(&agent_id) {
                        master.declare_gone(agent_id, None, ctx);
                    }
                }
                Err(RegistryError::NotNow { reason }) => {
                    tracing::warn!(agent = %agent_id, %reason, "cannot be recorded as drained yet");
                }
                Err(RegistryError::Refused { reason }) => {
                    tracing::info!(agent = %agent_id, %reason, "has left before it was recorded as drained");
                }
                Err(error) => {
                    tracing::error!(agent = %agent_id, %error, "cannot be recorded as drained");
                    master.step_down_if_over(&error, ctx);
                }
            }
        });
    }
}
