//! Operators' orders for single agents: drain, deactivate, reactivate, mark as gone.
//!
//! Each order is validated by [`crate::maintenance::draining`], recorded, and then carried out.
//! Draining agents are checked for remaining tasks every second.

use std::time::Duration;

use authority::Action;
use protocol::AgentId;
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, MarkAgentGone, ReactivateAgent, UpdateRefused,
};
use runtime::prelude::*;

use crate::agents::admission::Removal;
use crate::master::Master;
use crate::master::verbs::InTurn;
use crate::registry::{RegistryError, RegistryOperation};

/// Interval of the check whether a draining agent is empty.
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
        let prepared = may.and_then(|()| self.state.prepare_drain(&call, now));
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
        let prepared = may.and_then(|()| self.state.prepare_deactivation(&call.agent_id));
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
        let prepared = may.and_then(|()| self.state.prepare_reactivation(&call.agent_id));
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
        let prepared = may.and_then(|()| self.state.prepare_cancelled_drain(&call.agent_id));
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
        match may.and_then(|()| self.state.may_be_gone(&agent_id)) {
            Err(refused) => promise.answer(Err(refused)),
            Ok(false) => promise.answer(Ok(())),
            Ok(true) => {
                tracing::info!(agent = %agent_id, "operator marks an agent as gone");
                self.declare_gone(agent_id, Some(promise), ctx);
            }
        }
        reply
    }
}

impl Master {
    /// Marks an agent as gone for good. Recorded once, for any number of requests.
    fn declare_gone(
        &mut self,
        agent_id: AgentId,
        operator: Option<Promise<Answer>>,
        ctx: &mut Context<Self>,
    ) {
        let is_under_way = self.marking_gone.contains_key(&agent_id);
        let waiting = self.marking_gone.entry(agent_id.clone()).or_default();
        waiting.retain(Promise::is_awaited);
        waiting.extend(operator);
        if !is_under_way {
            self.remove_agent(agent_id, Removal::Gone, ctx);
        }
    }

    /// Records an order for an agent, and then carries it out.
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
                    tracing::info!(agent = %agent_id, ?order, "recorded an operator's order for an agent");
                    master.change(ctx, |state, _, out| state.ordered(&agent_id, &order, out));
                    master.check_draining(ctx);
                }
                promise.answer(answer);
            }
        });
        reply
    }

    /// Checks which draining agents are empty, now and every second while there are any.
    pub(in crate::master) fn check_draining(&mut self, ctx: &mut Context<Self>) {
        for agent in self.state.emptied() {
            if self.leaving.contains(&agent) {
                continue;
            }
            if !self.state.agents.is_draining(&agent) {
                // An earlier master recorded the drain and crashed after that.
                self.declare_gone(agent, None, ctx);
            } else if self.drained.insert(agent.clone()) {
                self.record_drained(agent, ctx);
            }
        }
        if self.state.agents.draining().next().is_some() && self.drain_look.is_none() {
            self.drain_look = Some(ctx.after(DRAIN_LOOK, |master, ctx| {
                master.drain_look = None;
                master.check_draining(ctx);
            }));
        }
    }

    fn record_drained(&mut self, agent_id: AgentId, ctx: &mut Context<Self>) {
        let order = RegistryOperation::MarkAgentDrained {
            agent_id: agent_id.clone(),
        };
        let applied = self.registry.apply(order.clone());
        ctx.then(applied, move |master: &mut Self, applied, ctx| {
            // If the registry refused, the next check tries again.
            master.drained.remove(&agent_id);
            match applied {
                Ok(_) => {
                    tracing::info!(agent = %agent_id, "agent drained");
                    master.change(ctx, |state, _, out| state.ordered(&agent_id, &order, out));
                    let gone = master.state.is_to_be_gone(&agent_id);
                    if gone && !master.leaving.contains(&agent_id) {
                        master.declare_gone(agent_id, None, ctx);
                    }
                }
                Err(RegistryError::NotNow { reason }) => {
                    tracing::warn!(agent = %agent_id, %reason, "cannot record an agent as drained yet");
                }
                Err(RegistryError::Refused { reason }) => {
                    tracing::info!(agent = %agent_id, %reason, "agent left before it was recorded as drained");
                }
                Err(error) => {
                    tracing::error!(agent = %agent_id, %error, "cannot record an agent as drained");
                    master.step_down_if_over(&error, ctx);
                }
            }
        });
    }
}
