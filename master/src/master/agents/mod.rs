//! Messages from agents.
//!
//! Each handler checks that the agent's own node is the sender, and lets the state decide.

pub(in crate::master) mod draining;
pub(in crate::master) mod maintenance;
pub(in crate::master) mod pings;

use std::net::SocketAddr;

use authority::Action;
use protocol::AgentId;
use protocol::message::operation::{OperationUpdated, OperationsSettled, ResourcesReported};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentRegistered, AgentResumed, AgentSuspended, RegisterAgent, RegistrationRefused,
    ReregisterAgent, Reregistered, UnregisterAgent,
};
use protocol::message::task::{ExecutorExited, TaskUpdated};
use resources::Resources;
use runtime::prelude::*;

use super::Master;
use crate::agents::Agent;
use crate::agents::admission::Removal;
use crate::agents::comparison::{Agreed, Arrival};
use crate::permission::Caller;
use crate::registry::RegistryError;
use crate::state::effects::{Effects, SendEffects, ToAgent};

type Registered = Result<AgentRegistered, RegistrationRefused>;
type Answer = Result<Reregistered, RegistrationRefused>;

impl Handler<RegisterAgent> for Master {
    type Result = Reply<Registered>;

    fn handle(&mut self, message: RegisterAgent, ctx: &mut Context<Self>) -> Reply<Registered> {
        let (promise, reply) = promise();
        self.handle_arrival(Box::new(message.into()), ctx, |answer| {
            promise.answer(answer.and_then(|answer| match answer {
                Reregistered::Registered(registered) => Ok(registered),
                // A full report is never asked for more.
                Reregistered::Differs { .. } | Reregistered::Unknown => {
                    let reason = "the agent's report could not be compared".to_owned();
                    Err(RegistrationRefused::NotNow { reason })
                }
            }));
        });
        reply
    }
}

impl Handler<ReregisterAgent> for Master {
    type Result = Reply<Answer>;

    fn handle(&mut self, message: ReregisterAgent, ctx: &mut Context<Self>) -> Reply<Answer> {
        let (promise, reply) = promise();
        self.handle_arrival(Box::new(message.into()), ctx, |answer| {
            promise.answer(answer)
        });
        reply
    }
}

impl Handler<UnregisterAgent> for Master {
    type Result = ();

    fn handle(&mut self, UnregisterAgent { agent_id }: UnregisterAgent, ctx: &mut Context<Self>) {
        if self.is_from_agent(&agent_id, ctx) {
            self.change(ctx, |state, _, _| {
                state.counters.count("master/messages_unregister_slave");
            });
            self.remove_agent(agent_id, Removal::Left, ctx);
        }
    }
}

impl Handler<AgentSuspended> for Master {
    type Result = ();

    fn handle(&mut self, message: AgentSuspended, ctx: &mut Context<Self>) {
        let AgentSuspended { agent_id, reason } = message;
        if self.is_from_agent(&agent_id, ctx) {
            tracing::warn!(agent = %agent_id, reason, "agent suspended itself: not offered");
            self.change(ctx, |state, _, out| state.suspended(&agent_id, true, out));
        }
    }
}

impl Handler<AgentResumed> for Master {
    type Result = ();

    fn handle(&mut self, AgentResumed { agent_id }: AgentResumed, ctx: &mut Context<Self>) {
        if self.is_from_agent(&agent_id, ctx) {
            tracing::info!(agent = %agent_id, "agent resumed");
            self.change(ctx, |state, _, out| state.suspended(&agent_id, false, out));
        }
    }
}

impl Handler<TaskUpdated> for Master {
    type Result = ();

    fn handle(&mut self, message: TaskUpdated, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            self.change(ctx, |state, _, out| state.task_updated(message, out));
        } else {
            self.change(ctx, |state, _, _| {
                state.counters.count("master/invalid_status_updates");
            });
        }
    }
}

impl Handler<ExecutorExited> for Master {
    type Result = ();

    fn handle(&mut self, message: ExecutorExited, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            self.change(ctx, |state, _, out| state.executor_exited(message, out));
        }
    }
}

impl Handler<OperationUpdated> for Master {
    type Result = ();

    fn handle(&mut self, message: OperationUpdated, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            self.change(ctx, |state, _, out| state.operation_updated(message, out));
        }
    }
}

impl Handler<OperationsSettled> for Master {
    type Result = ();

    fn handle(&mut self, message: OperationsSettled, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            self.change(ctx, |state, _, out| {
                state.operations_settled(&message, out);
            });
        }
    }
}

impl Handler<ResourcesReported> for Master {
    type Result = ();

    fn handle(&mut self, message: ResourcesReported, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            let agent_id = message.agent_id.clone();
            let done = self.change(ctx, |state, _, out| state.resources_reported(message, out));
            match done {
                Ok(()) => {
                    tracing::warn!(agent = %agent_id, "agent's resources differ from the state")
                }
                Err(reason) => {
                    tracing::warn!(agent = %agent_id, %reason, "ignoring an agent's resources");
                }
            }
        }
    }
}

impl Handler<OversubscribedChanged> for Master {
    type Result = ();

    fn handle(&mut self, message: OversubscribedChanged, ctx: &mut Context<Self>) {
        if self.is_from_agent(&message.agent_id, ctx) {
            let agent_id = message.agent_id.clone();
            let total = message.total.clone();
            let done = self.change(ctx, |state, _, out| state.oversubscribed(message, out));
            match done {
                Ok(()) => log_lent(&agent_id, &total),
                Err(reason) => {
                    tracing::warn!(agent = %agent_id, %reason, "ignoring an agent's oversubscribed total");
                }
            }
        }
    }
}

fn log_lent(agent: &AgentId, total: &Resources) {
    tracing::info!(%agent, total = %total.brief(), "an agent lends");
}

/// The IP address of a peer's dial address, if it has one.
fn ip_of(address: &str) -> Option<String> {
    let address = address.rsplit_once('@').map_or(address, |(_, rest)| rest);
    let address: SocketAddr = address.parse().ok()?;
    Some(address.ip().to_canonical().to_string())
}

impl Master {
    /// Handles a registering agent: admitted once its report matches the state and the registry has
    /// recorded it.
    fn handle_arrival(
        &mut self,
        mut arrival: Box<Arrival>, // Large, and moved often.
        ctx: &mut Context<Self>,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        arrival.ip = ctx.sender().and_then(|sender| ip_of(&sender.peer.address));
        if let Err(refused) = self.check_sender(&arrival, ctx) {
            return answer(Err(refused));
        }
        self.unless_deposed(arrival.term_seen, ctx, |master, led, ctx| match led {
            Ok(()) => master.admit_after_comparison(arrival, ctx, answer),
            Err(error) => answer(Err(master.registration_refused(error, ctx))),
        });
    }

    fn admit_after_comparison(
        &mut self,
        arrival: Box<Arrival>,
        ctx: &mut Context<Self>,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        let prepared = match self.prepare(&arrival, ctx) {
            Ok(prepared) => prepared,
            Err(refused) => return answer(Err(refused)),
        };
        let id = prepared.agent_id;
        let agreed = match self.compare(&id, &arrival, ctx) {
            Ok(agreed) => agreed,
            Err(differs) => return answer(Ok(differs)),
        };
        let Some(operation) = prepared.operation else {
            let registered = self.admit(arrival, id, agreed, ctx);
            let answer = || answer(Ok(Reregistered::Registered(registered)));
            return self.answer_at_end_of_turn(answer, ctx);
        };
        let pid = arrival.pid.clone();
        self.admitting.insert(pid.clone());
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| {
            master.admitting.remove(&pid);
            answer(match applied {
                Err(error) => Err(master.registration_refused(error, ctx)),
                // The state may have changed while the registry wrote.
                Ok(_) => Ok(match master.compare(&id, &arrival, ctx) {
                    Err(differs) => differs,
                    Ok(agreed) => Reregistered::Registered(master.admit(arrival, id, agreed, ctx)),
                }),
            });
        });
    }

    fn compare(
        &mut self,
        id: &AgentId,
        arrival: &Arrival,
        ctx: &mut Context<Self>,
    ) -> Result<Agreed, Reregistered> {
        let compared = self.change(ctx, |state, _, out| state.compare(id, arrival, out));
        if compared.is_err() {
            tracing::info!(agent = %id, "agent's report differs from the state; asking for the differences");
        }
        compared
    }

    fn check_sender(
        &self,
        message: &Arrival,
        ctx: &Context<Self>,
    ) -> Result<(), RegistrationRefused> {
        if let Some(sender) = ctx.sender()
            && sender.peer.node != *message.pid.node()
        {
            let reason = format!(
                "pid is `{}`: expected an actor of the agent's own node, {}",
                message.pid, sender.peer.node
            );
            return Err(RegistrationRefused::Never { reason });
        }
        let agents = ctx
            .sender()
            .map(|sender| Caller::sender(&self.config.acls, sender));
        let may = agents.map_or(Ok(()), |agent| {
            agent.authorize(Action::RegisterAgents, None)
        });
        may.map_err(|forbidden| RegistrationRefused::Never {
            reason: forbidden.to_string(),
        })
    }

    fn prepare(
        &mut self,
        message: &Arrival,
        ctx: &mut Context<Self>,
    ) -> Result<crate::agents::admission::AgentPrepared, RegistrationRefused> {
        if let Some(reason) = self.not_leading() {
            return Err(RegistrationRefused::NotNow { reason });
        }
        let leaving = |id: &AgentId| self.leaving.contains(id);
        if self.admitting.contains(&message.pid) || message.agent.id.as_ref().is_some_and(leaving) {
            let reason = "a registration of this agent is being recorded".to_owned();
            return Err(RegistrationRefused::NotNow { reason });
        }
        let prepared = self.change(ctx, |state, _, _| state.prepare_agent(message));
        if let Some(id) = self.state.comes_from_down_machine(message)
            && !self.leaving.contains(&id)
        {
            tracing::info!(agent = %id, "removing an agent of a down machine");
            self.remove_agent(id, Removal::Maintenance, ctx);
        }
        prepared
    }

    fn admit(
        &mut self,
        message: Box<Arrival>,
        id: AgentId,
        agreed: Agreed,
        ctx: &mut Context<Self>,
    ) -> AgentRegistered {
        tracing::info!(agent = %id, pid = %message.pid, "agent registered");
        if !message.oversubscribed.is_empty() {
            log_lent(&id, &message.oversubscribed);
        }
        let patience = self.config.total_ping_timeout();
        let registered = self.change(ctx, |state, now, out| {
            state.admit_agent(message, id.clone(), agreed, patience, now, out)
        });
        for earlier in self.state.earlier_lives(&id) {
            if !self.leaving.contains(&earlier) {
                tracing::info!(agent = %earlier, by = %id, "agent restarted and has lost its id");
                self.remove_agent(earlier, Removal::Replaced, ctx);
            }
        }
        let is_down = |agent: &Agent| {
            let (hostname, ip) = (&agent.info.hostname, agent.ip.as_deref());
            self.state.down_machine(hostname, ip).is_some()
        };
        let is_down = !self.state.machines.is_empty()
            && self.state.agents.get(&id).is_some_and(is_down)
            && !self.leaving.contains(&id);
        if is_down {
            // Its machine went down while the registry wrote.
            self.remove_agent(id, Removal::Maintenance, ctx);
        }
        registered
    }

    fn registration_refused(
        &mut self,
        error: RegistryError,
        ctx: &mut Context<Self>,
    ) -> RegistrationRefused {
        let reason = error.to_string();
        match error {
            RegistryError::Refused { .. } | RegistryError::Conflict { .. } => {
                RegistrationRefused::Never { reason }
            }
            RegistryError::NotNow { .. } => RegistrationRefused::NotNow { reason },
            RegistryError::LostLeadership | RegistryError::Broken { .. } => {
                self.step_down(&error, ctx);
                RegistrationRefused::NotNow { reason }
            }
        }
    }

    /// Whether the current message comes from the node of that registered agent. An agent that is
    /// disconnected or unknown here is told to register again.
    fn is_from_agent(&mut self, id: &AgentId, ctx: &mut Context<Self>) -> bool {
        let Some(sender) = ctx.sender().cloned() else {
            return self.state.agents.get(id).is_some();
        };
        let agent = self.state.agents.get(id);
        let own = |agent: &&Agent| *agent.pid.node() == sender.peer.node;
        if agent.filter(own).is_some_and(|agent| agent.connected) {
            return true;
        }
        if agent.is_some_and(|agent| !own(&agent)) {
            tracing::warn!(agent = %id, node = %sender.peer.node, "ignoring a message for an agent of another node");
            return false;
        }
        // The name of the registering actor, whichever actor of the agent sent this.
        let registrant = Pid::new("agent", sender.peer.node, 0);
        let mut effects = Effects::new();
        effects.agent(&registrant, ToAgent::RegisterAgain);
        self.perform(effects, ctx);
        false
    }
}
