//! Draining: agents that operators have deactivated, drained, or marked as gone.
//!
//! Pure decisions on [`MasterState`]. An order is recorded first, survives the master, and is sent
//! to the agent at each registration. An agent is drained when all its tasks have ended, each end
//! is acknowledged, and no operation is under way. Reads no clock: the caller polls
//! [`MasterState::emptied`].

use module_api::allocator::AgentActivity;
use protocol::message::operator::{DrainAgent, UpdateRefused};
use protocol::message::task::DrainTasks;
use protocol::{
    AgentId, AgentOrders, Capability, Drain, FrameworkId, Reason, TaskState, TaskStatus,
};
use runtime::{Pid, Timestamp};

use crate::agents::{Agent, Agents, Standing};
use crate::registry::RegistryOperation;
use crate::state::effects::{Effects, SendEffects, ToAgent, ToAllocator};
use crate::state::{MasterState, master_status};

impl MasterState {
    /// Whether an operator may give orders for this agent.
    fn check_ordered(&self, agent_id: &AgentId) -> Result<(), UpdateRefused> {
        match self.agents.standing(agent_id) {
            Standing::Registered(_) | Standing::Recovered | Standing::Unreachable(_) => Ok(()),
            // As in Mesos, an agent that is marked as gone is not known.
            Standing::Gone | Standing::Unknown => Err(UpdateRefused::Invalid {
                reason: "Unknown agent".to_owned(),
            }),
        }
    }

    /// Checks whether the agent may be drained; returns the operation to record.
    pub fn prepare_drain(
        &self,
        drain: &DrainAgent,
        now: Timestamp,
    ) -> Result<RegistryOperation, UpdateRefused> {
        let agent_id = &drain.agent_id;
        self.prepared(
            agent_id,
            RegistryOperation::DrainAgent {
                agent_id: agent_id.clone(),
                drain: Drain {
                    max_grace_period: drain.max_grace_period,
                    mark_gone: drain.mark_gone,
                    since: now,
                    drained: false,
                },
            },
        )
    }

    /// Checks whether the agent may be deactivated; returns the operation to record.
    pub fn prepare_deactivation(
        &self,
        agent_id: &AgentId,
    ) -> Result<RegistryOperation, UpdateRefused> {
        let id = agent_id.clone();
        self.prepared(
            agent_id,
            RegistryOperation::DeactivateAgent { agent_id: id },
        )
    }

    /// Checks whether the agent may be reactivated; returns the operation to record.
    pub fn prepare_reactivation(
        &self,
        agent_id: &AgentId,
    ) -> Result<RegistryOperation, UpdateRefused> {
        let id = agent_id.clone();
        self.prepared(
            agent_id,
            RegistryOperation::ReactivateAgent { agent_id: id },
        )
    }

    /// Checks whether the agent's drain may be cancelled; returns the operation to record.
    pub fn prepare_cancelled_drain(
        &self,
        agent_id: &AgentId,
    ) -> Result<RegistryOperation, UpdateRefused> {
        let id = agent_id.clone();
        self.prepared(agent_id, RegistryOperation::CancelDrain { agent_id: id })
    }

    /// The order, if it is valid now. The registry decides again when it records it.
    fn prepared(
        &self,
        agent_id: &AgentId,
        order: RegistryOperation,
    ) -> Result<RegistryOperation, UpdateRefused> {
        self.check_ordered(agent_id)?;
        match order.ordered(self.agents.orders(agent_id)) {
            Ok(_) => Ok(order),
            Err(refused) => Err(UpdateRefused::Invalid {
                reason: refused.to_string(),
            }),
        }
    }

    /// Whether the agent may be marked as gone; `false` if it is already.
    pub fn may_be_gone(&self, agent_id: &AgentId) -> Result<bool, UpdateRefused> {
        if self.agents.standing(agent_id) == Standing::Gone {
            return Ok(false);
        }
        self.check_ordered(agent_id)?;
        Ok(true)
    }

    /// The registry has recorded this order: carries it out. A deactivated agent is not offered.
    pub fn ordered(&mut self, agent_id: &AgentId, order: &RegistryOperation, out: &mut Effects) {
        let Ok(orders) = order.ordered(self.agents.orders(agent_id)) else {
            return; // The registry has accepted it.
        };
        self.change_activity(agent_id, |agents| agents.order(agent_id, orders), out);
        let Some(agent) = self.agents.connected(agent_id) else {
            return;
        };
        if matches!(order, RegistryOperation::DrainAgent { .. }) {
            self.send_drain(&agent.orders, &agent.pid, out);
        }
    }

    /// The agent suspends itself or resumes. Its tasks continue, and its updates are accepted.
    pub fn suspended(&mut self, agent_id: &AgentId, suspended: bool, out: &mut Effects) {
        let suspend = |agents: &mut Agents| agents.suspend(agent_id, suspended);
        self.change_activity(agent_id, suspend, out);
    }

    /// Makes a change that may activate or deactivate the agent.
    fn change_activity(
        &mut self,
        agent_id: &AgentId,
        change: impl FnOnce(&mut Agents),
        out: &mut Effects,
    ) {
        let is_active = |agents: &Agents| agents.get(agent_id).is_some_and(Agent::is_active);
        let before = is_active(&self.agents);
        change(&mut self.agents);
        let active = is_active(&self.agents);
        if !active {
            self.rescind_of_agent(agent_id, out);
        }
        if active != before {
            out.allocator(ToAllocator::AgentActivity(AgentActivity {
                agent_id: agent_id.clone(),
                active,
            }));
        }
    }

    /// Sends a draining agent the order to end its tasks.
    pub(crate) fn send_drain(&self, orders: &AgentOrders, pid: &Pid, out: &mut Effects) {
        if let Some(drain) = orders.drain {
            let max_grace_period = drain.max_grace_period;
            out.agent(pid, ToAgent::Drain(DrainTasks { max_grace_period }));
        }
    }

    /// Whether the agent is drained and is to be marked as gone now.
    pub fn is_to_be_gone(&self, agent_id: &AgentId) -> bool {
        let drain = self.agents.orders(agent_id).and_then(|orders| orders.drain);
        drain.is_some_and(|drain| drain.drained && drain.mark_gone)
    }

    /// Draining agents with nothing left.
    pub fn emptied(&self) -> Vec<AgentId> {
        let draining = self.agents.draining();
        let empty = draining.filter(|id| {
            let on = self.tasks.on_agent(id);
            let tasks = on.is_some_and(|on| on.tasks().next().is_some());
            let connected = self.agents.connected(id).is_some();
            let idle =
                self.operations.under_way(id).is_empty() && self.pending.of_agent(id).is_empty();
            connected && !tasks && idle
        });
        empty.cloned().collect()
    }

    /// Ends the tasks of a removed agent that was unreachable.
    pub(crate) fn end_unreachable_tasks(
        &mut self,
        agent_id: &AgentId,
        state: TaskState,
        reason: Reason,
        words: &str,
        now: Timestamp,
        out: &mut Effects,
    ) {
        for mut task in self.tasks.take_all_unreachable(agent_id) {
            let known = self.frameworks.get(&task.framework_id);
            let status = master_status(known, &task.id, state, reason, words, now).on(agent_id);
            task.observe(&status, status.state);
            let framework = task.framework_id.clone();
            self.task_ended(&framework, &status);
            self.tasks.refuse(task);
            self.tell_status(&framework, status, out);
        }
    }

    /// Sets the state and the reason that Mesos uses for a task killed by a draining agent.
    pub(crate) fn explain_drained(
        &self,
        agent_id: &AgentId,
        framework_id: &FrameworkId,
        status: &mut TaskStatus,
    ) {
        let orders = self.agents.orders(agent_id);
        let drain = orders.and_then(|orders| orders.drain);
        let Some(drain) = drain.filter(|drain| !drain.drained) else {
            return;
        };
        let framework = self.frameworks.get(framework_id);
        let is_aware = framework.is_some_and(|known| known.info.can(Capability::PartitionAware));
        if let Some((state, reason)) = of_drained(status.state, drain.mark_gone && is_aware) {
            status.state = state;
            status.reason = Some(reason);
        }
    }
}

/// State and reason of an update from a draining agent's task, if they differ from its executor's.
/// `mark_gone`: the agent will be marked as gone, and the framework knows `TASK_GONE_BY_OPERATOR`.
/// Mesos uses that state for `TASK_KILLING` too, but the task still runs.
fn of_drained(state: TaskState, mark_gone: bool) -> Option<(TaskState, Reason)> {
    let state = match state {
        TaskState::Killed if mark_gone => TaskState::GoneByOperator,
        TaskState::Killed | TaskState::Killing => state,
        _ => return None,
    };
    Some((state, Reason::AgentDraining))
}

/// The message of tasks on an agent that is gone for good.
pub(crate) const GONE: &str = "an operator has declared the agent gone";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_killed_before_marking_gone_are_gone() {
        use TaskState::{Failed, Finished, GoneByOperator, Killed, Killing, Running};
        for (state, mark_gone, expected) in [
            (Killed, true, Some(GoneByOperator)),
            (Killed, false, Some(Killed)),
            (Killing, true, Some(Killing)),
            (Killing, false, Some(Killing)),
            (Running, true, None),
            (Finished, true, None),
            (Failed, true, None),
        ] {
            let expected = expected.map(|state| (state, Reason::AgentDraining));
            assert_eq!(
                of_drained(state, mark_gone),
                expected,
                "{state:?} {mark_gone}"
            );
        }
    }
}
