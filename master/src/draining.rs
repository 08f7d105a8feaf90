//! Draining: agents that operators have set aside: deactivated, drained, or gone for good (SPEC 3.2).
//!
//! Pure decisions on [`Books`]. What is ordered is recorded first, holds over a master's end, and is told to the agent anew whenever it
//! registers. An agent whose tasks have all ended, each end acknowledged, and on which no operation is under way, is drained. Nothing here
//! looks at a clock: who has the time of a look asks [`Books::emptied`].

use module_api::allocator::AgentActivity;
use protocol::message::operator::{DrainAgent, UpdateRefused};
use protocol::message::task::DrainTasks;
use protocol::{AgentId, AgentOrders, Drain, Reason, TaskState, TaskStatus};
use resources::Invalid;
use runtime::{Pid, Timestamp};

use crate::agents::Standing;
use crate::books::{Books, master_status};
use crate::effects::{Effects, Tell, ToAgent, ToAllocator};
use crate::registry::RegistryOperation;

impl Books {
    /// Whether an operator may give orders about this agent.
    fn check_ordered(&self, agent_id: &AgentId) -> Result<(), UpdateRefused> {
        match self.agents.standing(agent_id) {
            Standing::Registered(_) | Standing::Recovered | Standing::Unreachable(_) => Ok(()),
            Standing::Gone => {
                let expected = "an agent that is not gone for good";
                Err(invalid("agent_id", agent_id, expected))
            }
            Standing::Unknown => Err(invalid(
                "agent_id",
                agent_id,
                "an agent that the master knows",
            )),
        }
    }

    /// Whether the agent may be drained, and what must be recorded for it.
    pub fn prepare_drain(
        &self,
        drain: &DrainAgent,
        now: Timestamp,
    ) -> Result<RegistryOperation, UpdateRefused> {
        self.check_ordered(&drain.agent_id)?;
        Ok(RegistryOperation::DrainAgent {
            agent_id: drain.agent_id.clone(),
            drain: Drain {
                max_grace_period: drain.max_grace_period,
                mark_gone: drain.mark_gone,
                since: now,
                drained: false,
            },
        })
    }

    /// Whether the agent may be deactivated, and what must be recorded for it.
    pub fn prepare_deactivation(
        &self,
        agent_id: &AgentId,
    ) -> Result<RegistryOperation, UpdateRefused> {
        self.check_ordered(agent_id)?;
        let agent_id = agent_id.clone();
        Ok(RegistryOperation::DeactivateAgent { agent_id })
    }

    /// Whether the agent may be reactivated, and what must be recorded for it.
    pub fn prepare_reactivation(
        &self,
        agent_id: &AgentId,
    ) -> Result<RegistryOperation, UpdateRefused> {
        self.check_ordered(agent_id)?;
        let drain = self.agents.orders(agent_id).and_then(|orders| orders.drain);
        if drain.is_some_and(|drain| !drain.drained) {
            let expected =
                "an agent that is not being drained any more: draining is not taken back";
            return Err(invalid("agent_id", agent_id, expected));
        }
        let agent_id = agent_id.clone();
        Ok(RegistryOperation::ReactivateAgent { agent_id })
    }

    /// Whether the agent may be given up for good, and what must be recorded for it; nothing if it is gone already.
    pub fn prepare_gone(
        &self,
        agent_id: &AgentId,
        now: Timestamp,
    ) -> Result<Option<RegistryOperation>, UpdateRefused> {
        if self.agents.standing(agent_id) == Standing::Gone {
            return Ok(None);
        }
        self.check_ordered(agent_id)?;
        Ok(Some(RegistryOperation::MarkAgentGone {
            agent_id: agent_id.clone(),
            since: now,
        }))
    }

    /// It is recorded that the agent is set aside, and perhaps drained: nothing of it is offered.
    pub fn agent_set_aside(&mut self, agent_id: &AgentId, drain: Option<Drain>, out: &mut Effects) {
        let mut orders = self.agents.orders(agent_id).unwrap_or_default();
        orders.deactivated = true;
        orders.drain = drain.or(orders.drain);
        self.agents.order(agent_id, Some(orders));
        self.rescind_of_agent(agent_id, out);
        let Some(agent) = self.agents.connected(agent_id) else {
            return;
        };
        out.allocator(ToAllocator::AgentActivity(AgentActivity {
            agent_id: agent_id.clone(),
            active: false,
        }));
        if drain.is_some() {
            let pid = agent.pid.clone();
            self.tell_drain(&orders, &pid, out);
        }
    }

    /// Tells an agent that has to be drained that its tasks are to end.
    pub(crate) fn tell_drain(&self, orders: &AgentOrders, pid: &Pid, out: &mut Effects) {
        if let Some(drain) = orders.drain {
            let max_grace_period = drain.max_grace_period;
            out.agent(pid, ToAgent::Drain(DrainTasks { max_grace_period }));
        }
    }

    /// It is recorded that the agent is offered again.
    pub fn agent_reactivated(&mut self, agent_id: &AgentId, out: &mut Effects) {
        let before = self.agents.orders(agent_id);
        self.agents.order(agent_id, None);
        if before.is_some() && self.agents.connected(agent_id).is_some() {
            out.allocator(ToAllocator::AgentActivity(AgentActivity {
                agent_id: agent_id.clone(),
                active: true,
            }));
        }
    }

    /// It is recorded that nothing is left on the agent; gives whether it is to be given up for good now.
    pub fn agent_drained(&mut self, agent_id: &AgentId) -> bool {
        let Some(mut orders) = self.agents.orders(agent_id) else {
            return false;
        };
        let Some(drain) = &mut orders.drain else {
            return false;
        };
        drain.drained = true;
        let mark_gone = drain.mark_gone;
        self.agents.order(agent_id, Some(orders));
        mark_gone
    }

    /// The agents that are being drained and on which nothing is left.
    pub fn emptied(&self) -> Vec<AgentId> {
        let draining = self.agents.draining();
        let empty = draining.filter(|id| {
            let on = self.tasks.on_agent(id);
            let tasks = on.is_some_and(|on| on.tasks().next().is_some());
            let connected = self.agents.connected(id).is_some();
            connected && !tasks && self.operations.under_way(id).is_empty()
        });
        empty.cloned().collect()
    }

    /// The tasks of an agent that is gone for good and was out of reach are over as well.
    pub(crate) fn unreachable_tasks_gone(
        &mut self,
        agent_id: &AgentId,
        now: Timestamp,
        out: &mut Effects,
    ) {
        for mut task in self.tasks.take_all_unreachable(agent_id) {
            let known = self.frameworks.get(&task.framework_id);
            let (state, reason) = (TaskState::GoneByOperator, Reason::AgentRemovedByOperator);
            let status = master_status(known, &task.id, state, reason, GONE, now).on(agent_id);
            task.observe(&status, status.state);
            self.counters.task_ended(&status);
            let framework = task.framework_id.clone();
            self.tasks.refuse(task);
            self.tell_status(&framework, status, out);
        }
    }

    /// Why a task ended that its agent has killed: because the agent is being drained, if it is and nothing else is said.
    pub(crate) fn explain_drained(&self, agent_id: &AgentId, status: &mut TaskStatus) {
        let killed = matches!(status.state, TaskState::Killed | TaskState::Killing);
        if killed && status.reason.is_none() && self.agents.is_draining(agent_id) {
            status.reason = Some(Reason::AgentDraining);
        }
    }
}

/// Why the tasks of an agent that is gone for good are over.
pub(crate) const GONE: &str = "an operator has declared the agent gone";

fn invalid(field: &str, found: impl std::fmt::Display, expected: &str) -> UpdateRefused {
    let reason = Invalid::new(field, found, expected).to_string();
    UpdateRefused::Invalid { reason }
}
