//! The registry's content, as plain data with one pure transition.
//!
//! The owner calls [`RegistryState::change`]. Reads no clock: times come with the operations.

use std::collections::{BTreeMap, VecDeque};

use protocol::{AgentId, AgentInfo, AgentOrders, FrameworkId, FrameworkInfo, Quota};
use resources::Invalid;
use runtime::{Pid, Timestamp};
use serde::{Deserialize, Serialize};

use super::accepted::AcceptedOperations;
use super::framework_state::{Change, FrameworkStates};
use super::machines::Machines;
use super::{Applied, RegistryError, RegistryOperation, roles};

/// Maximum unreachable agents, and maximum gone agents, that are remembered.
const LOST_AGENTS_MAX: usize = 102_400;
/// Maximum removed frameworks that are remembered, so that their ids are refused.
pub(super) const REMOVED_MAX: usize = 10_000;

/// The durable state of a master.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegistryState {
    /// Admitted agents that are reachable.
    pub agents: BTreeMap<AgentId, AgentInfo>,
    /// Unreachable agents, and since when.
    pub unreachable: BTreeMap<AgentId, Timestamp>,
    /// Admitted frameworks, connected or not.
    pub frameworks: BTreeMap<FrameworkId, FrameworkEntry>,
    /// Removed frameworks, newest last.
    pub removed_frameworks: VecDeque<FrameworkId>,
    /// The current or last leading scheduler of each framework with standbys.
    pub leading: BTreeMap<FrameworkId, Pid>,
    /// The state that frameworks store.
    pub framework_states: FrameworkStates,
    /// Quotas set by operators.
    pub quotas: BTreeMap<String, Quota>,
    /// Weights set by operators.
    pub weights: BTreeMap<String, f64>,
    /// The maintenance schedule, and the machines that are down.
    pub machines: Machines,
    /// Agents that are gone for good, and since when.
    pub gone: BTreeMap<AgentId, Timestamp>,
    /// Operators' orders for agents, reachable or not.
    pub orders: BTreeMap<AgentId, AgentOrders>,
    /// Accepted operations, of reachable and unreachable agents.
    pub accepted: AcceptedOperations,
    /// Number of applied operations.
    pub version: u64,
}

/// A framework in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkEntry {
    /// Its description, with the id set.
    pub info: FrameworkInfo,
    /// When it is removed unless a scheduler subscribes; `None` while one is connected.
    pub deadline: Option<Timestamp>,
}

impl RegistryState {
    /// Applies an operation, or refuses it without effect.
    pub fn change(&mut self, operation: &RegistryOperation) -> Result<Applied, RegistryError> {
        match operation {
            RegistryOperation::AdmitAgent { info }
            | RegistryOperation::MarkAgentReachable { info } => {
                let id = info.id.clone().ok_or_else(|| refused("agent.id"))?;
                if self.gone.contains_key(&id) {
                    let reason =
                        format!("agent.id is `{id}`: expected an agent that is not marked as gone");
                    return Err(RegistryError::Refused { reason });
                }
                self.unreachable.remove(&id);
                self.agents.insert(id, info.clone());
            }
            // It was marked as gone in the meantime.
            RegistryOperation::MarkAgentUnreachable { agent_id, .. }
                if self.gone.contains_key(agent_id) => {}
            RegistryOperation::MarkAgentUnreachable { agent_id, since } => {
                self.agents.remove(agent_id);
                self.unreachable.insert(agent_id.clone(), *since);
                if let Some(oldest) = Self::one_too_many(&self.unreachable) {
                    self.forget_agent(&oldest);
                }
            }
            RegistryOperation::RemoveAgent { agent_id } => self.forget_agent(agent_id),
            RegistryOperation::MarkAgentGone { agent_id, since } => {
                self.forget_agent(agent_id);
                Self::remember_gone(&mut self.gone, agent_id, *since);
            }
            RegistryOperation::DrainAgent { agent_id, .. }
            | RegistryOperation::MarkAgentDrained { agent_id }
            | RegistryOperation::DeactivateAgent { agent_id }
            | RegistryOperation::ReactivateAgent { agent_id }
            | RegistryOperation::CancelDrain { agent_id } => self.order(agent_id, operation)?,
            RegistryOperation::AcceptOperations {
                agent_id,
                operations,
            } => {
                self.check_known(agent_id)?;
                self.accepted.accept(agent_id, operations)?;
            }
            RegistryOperation::ForgetOperations { operations } => {
                for (agent_id, serial) in operations {
                    self.accepted.forget(agent_id, *serial);
                }
            }
            RegistryOperation::AdmitFramework { info, deadline } => {
                self.admit_framework(info, *deadline)?;
            }
            RegistryOperation::RemoveFramework { framework_id } => {
                self.frameworks.remove(framework_id);
                self.leading.remove(framework_id);
                self.framework_states.remove_framework(framework_id);
                if !self.removed_frameworks.contains(framework_id) {
                    self.removed_frameworks.push_back(framework_id.clone());
                }
                if self.removed_frameworks.len() > REMOVED_MAX {
                    self.removed_frameworks.pop_front();
                }
            }
            RegistryOperation::AppointScheduler { info, scheduler } => {
                let id = self.admit_framework(info, None)?;
                self.leading.insert(id, scheduler.clone());
            }
            RegistryOperation::ChangeFrameworkState {
                framework_id,
                key,
                expected,
                value,
            } => {
                if !self.frameworks.contains_key(framework_id) {
                    let reason =
                        format!("framework_id is `{framework_id}`: expected one that is admitted");
                    return Err(RegistryError::Refused { reason });
                }
                let version = self.version + 1;
                let change = Change {
                    key,
                    expected: *expected,
                    value: value.as_deref(),
                };
                self.framework_states
                    .change(framework_id, change, version)?;
            }
            RegistryOperation::UpdateQuotas { quotas } => {
                let quotas = quotas.iter().map(|(role, quota)| {
                    let quota = (!quota.is_default()).then(|| quota.clone());
                    (role.clone(), quota)
                });
                roles::set("quotas", &mut self.quotas, quotas.collect())?;
            }
            RegistryOperation::UpdateWeights { weights } => {
                roles::check_weights(weights)?;
                roles::set("weights", &mut self.weights, weights.clone())?;
            }
            RegistryOperation::UpdateMaintenanceSchedule { windows } => {
                self.machines.schedule(windows)?;
            }
            RegistryOperation::StartMaintenance { machines } => self.machines.start(machines),
            RegistryOperation::StopMaintenance { machines } => self.machines.stop(machines),
        }
        self.version += 1;
        let version = self.version;
        Ok(Applied { version })
    }

    fn admit_framework(
        &mut self,
        info: &FrameworkInfo,
        deadline: Option<Timestamp>,
    ) -> Result<FrameworkId, RegistryError> {
        let id = info.id.clone().ok_or_else(|| refused("framework.id"))?;
        if self.removed_frameworks.contains(&id) {
            let reason = crate::frameworks::ending::REMOVED.to_owned();
            return Err(RegistryError::Refused { reason });
        }
        let info = info.clone();
        let entry = FrameworkEntry { info, deadline };
        self.frameworks.insert(id.clone(), entry);
        Ok(id)
    }

    fn forget_agent(&mut self, id: &AgentId) {
        self.agents.remove(id);
        self.unreachable.remove(id);
        self.orders.remove(id);
        self.accepted.forget_agent(id);
    }

    fn check_known(&self, id: &AgentId) -> Result<(), RegistryError> {
        match self.agents.contains_key(id) || self.unreachable.contains_key(id) {
            true => Ok(()),
            false => {
                let expected = "one that is part of the cluster";
                Err(refused_value("agent_id", id, expected))
            }
        }
    }

    /// Applies an order for a known agent. Empty orders are not stored.
    fn order(&mut self, id: &AgentId, order: &RegistryOperation) -> Result<(), RegistryError> {
        self.check_known(id)?;
        let orders = order.ordered(self.orders.get(id).copied())?;
        match orders {
            Some(orders) => drop(self.orders.insert(id.clone(), orders)),
            None => drop(self.orders.remove(id)),
        }
        Ok(())
    }

    /// The agent to forget if there are too many: the oldest. The master's state uses it as well.
    pub(crate) fn one_too_many(since: &BTreeMap<AgentId, Timestamp>) -> Option<AgentId> {
        let oldest = || since.iter().min_by_key(|(_, since)| **since);
        let too_many = since.len() > LOST_AGENTS_MAX;
        too_many.then(oldest).flatten().map(|(id, _)| id.clone())
    }

    /// Marks an agent as gone, since its first mark, and forgets the oldest one if there are too
    /// many. The master's state uses it as well.
    pub(crate) fn remember_gone(
        gone: &mut BTreeMap<AgentId, Timestamp>,
        id: &AgentId,
        since: Timestamp,
    ) {
        gone.entry(id.clone()).or_insert(since);
        if let Some(oldest) = Self::one_too_many(gone) {
            gone.remove(&oldest);
        }
    }
}

impl RegistryOperation {
    /// The orders for an agent after this operation, or why it is not allowed; other operations
    /// change nothing. Users that keep a copy of the orders call it after the registry has accepted
    /// the operation, so that the effect is defined only here.
    pub fn ordered(
        &self,
        before: Option<AgentOrders>,
    ) -> Result<Option<AgentOrders>, RegistryError> {
        let mut orders = before.unwrap_or_default();
        match self {
            Self::DrainAgent { drain, .. } => {
                orders.deactivated = true;
                orders.drain = Some(*drain);
            }
            Self::MarkAgentDrained { .. } => {
                if let Some(drain) = &mut orders.drain {
                    drain.drained = true;
                }
            }
            Self::DeactivateAgent { .. } => orders.deactivated = true,
            Self::ReactivateAgent { .. } => {
                if orders.drain.is_some_and(|drain| !drain.drained) {
                    // As in Mesos.
                    let reason = "Agent is still in the DRAINING state".to_owned();
                    return Err(RegistryError::Refused { reason });
                }
                orders = AgentOrders::default();
            }
            Self::CancelDrain { agent_id } => {
                if orders.drain.is_none_or(|drain| drain.drained) {
                    let expected = "an agent that is being drained, and is not drained yet";
                    return Err(refused_value("agent_id", agent_id, expected));
                }
                orders = AgentOrders::default();
            }
            _ => {}
        }
        Ok((orders != AgentOrders::default()).then_some(orders))
    }
}

fn refused(field: &str) -> RegistryError {
    RegistryError::Refused {
        reason: format!("{field} is not set: expected the id the master gave"),
    }
}

fn refused_value(field: &str, found: impl std::fmt::Display, expected: &str) -> RegistryError {
    RegistryError::Refused {
        reason: Invalid::new(field, found, expected).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Drain;

    use super::super::samples::agent;
    use super::*;
    use crate::agents::Agents;

    fn refused_by(state: &mut RegistryState, operation: &RegistryOperation, words: &str) {
        let before = state.clone();
        let refused = state.change(operation).unwrap_err();
        let is_refused = matches!(&refused, RegistryError::Refused { .. });
        assert!(
            is_refused && refused.to_string().contains(words),
            "{refused}"
        );
        assert_eq!(*state, before);
    }

    #[test]
    fn oldest_gone_agent_is_forgotten_in_registry_and_state() {
        let mut stored = RegistryState::default();
        let mut state = Agents::default();
        for nth in 0..LOST_AGENTS_MAX + 3 {
            let agent_id = AgentId::new(format!("a{nth}")).unwrap();
            // The first two are repeated later, and keep their age.
            let again = (nth < 2).then_some(nth + 1_000);
            for said in [nth].into_iter().chain(again) {
                let (id, since) = (agent_id.clone(), Timestamp::from_nanos(said as u64));
                let gone = RegistryOperation::MarkAgentGone {
                    agent_id: id,
                    since,
                };
                stored.change(&gone).unwrap();
                state.mark_gone(&agent_id, since);
            }
        }
        let is_gone = |nth: usize| {
            let id = AgentId::new(format!("a{nth}")).unwrap();
            let kept = stored.gone.contains_key(&id);
            assert_eq!(kept, state.is_gone(&id), "{id}");
            kept
        };
        assert_eq!(stored.gone.len(), LOST_AGENTS_MAX);
        assert_eq!([0, 1, 2, 3].map(is_gone), [false, false, false, true]);
    }

    /// The master's earlier validation may be outdated when an order is recorded.
    #[test]
    fn orders_are_judged_when_they_are_recorded() {
        let agent_id = AgentId::new("a").unwrap();
        let drain = RegistryOperation::DrainAgent {
            agent_id: agent_id.clone(),
            drain: Drain {
                max_grace_period: None,
                mark_gone: false,
                since: Timestamp::from_nanos(7),
                drained: false,
            },
        };
        let id = || agent_id.clone();
        let drained = RegistryOperation::MarkAgentDrained { agent_id: id() };
        let off = RegistryOperation::DeactivateAgent { agent_id: id() };
        let on = RegistryOperation::ReactivateAgent { agent_id: id() };
        let cancel = RegistryOperation::CancelDrain { agent_id: id() };
        let mut state = RegistryState::default();
        for order in [&drain, &drained, &off, &on, &cancel] {
            refused_by(&mut state, order, "agent_id is `a`: expected one that is");
        }
        let info = agent("a");
        state
            .change(&RegistryOperation::AdmitAgent { info })
            .unwrap();
        state.change(&drain).unwrap();
        refused_by(&mut state, &on, "still in the DRAINING state");
        state.change(&off).unwrap();
        refused_by(&mut state, &on, "still in the DRAINING state");
        state.change(&drained).unwrap();
        refused_by(&mut state, &cancel, "not drained yet");
        state.change(&on).unwrap();
        assert!(state.orders.is_empty());
        refused_by(&mut state, &cancel, "that is being drained");
        state.change(&drain).unwrap();
        state.change(&cancel).unwrap();
        // It may have been found empty just before that.
        state.change(&drained).unwrap();
        assert!(state.orders.is_empty());
    }
}
