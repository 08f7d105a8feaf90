//! Operations: conversions of resources for frameworks and operators.
//!
//! Pure decisions on [`MasterState`]. A conversion is applied to the state at once, recorded
//! (`recording`) and sent to its agent with the state's version of the agent's resources. The agent
//! rejects it if its own version differs, and reports its resources instead. Status updates of
//! operations that a framework has named are forwarded until acknowledged; the agent resends them.
//! Nothing here waits for an agent. `table` has the operations with an id, `pending` all accepted
//! ones, and `commit_barrier` holds back later messages to the agent.

pub(crate) mod commit_barrier;
mod pending;
mod recording;
mod table;

pub(crate) use pending::Pending;
pub use table::{OPERATIONS_BYTES_MAX, OPERATIONS_MAX, Operations, TrackedOperation};

use std::collections::BTreeMap;
use std::sync::Arc;

use module_api::allocator::{AgentAdded, Converted as ConvertedFact};
use protocol::message::operation::{OperationUpdated, ResourcesReported};
use protocol::message::operator::{Operate, OperationRefused};
use protocol::message::scheduler::{AcknowledgeOperation, OperationChanged, ReconcileOperations};
use protocol::{
    AgentId, FrameworkId, Offer, OfferId, OperationId, OperationState, OperationStatus,
};
use resources::{Conversion, ConversionError, Converted, Invalid, Resource, Resources, Role};

use crate::agents::{Agent, Standing};
use crate::frameworks::Framework;
use crate::permission::Caller;
use crate::registry::AcceptedOperation;
use crate::state::effects::{Effect, Effects, SendEffects, ToAgent, ToAllocator, ToScheduler};
use crate::state::size::wire_bytes;
use crate::state::{MasterState, sum};
use crate::validation::{self, OperationRules};

/// A conversion of offered resources that a framework requests.
pub(crate) struct ConversionRequest<'a> {
    pub framework_id: &'a FrameworkId,
    pub agent_id: &'a AgentId,
    pub role: &'a Role,
    pub id: Option<OperationId>,
    pub conversion: Conversion,
}

impl MasterState {
    /// Applies a conversion to the remaining offered resources, or reports its failure to the
    /// framework. Returns the consumed and created resources.
    pub(crate) fn convert(
        &mut self,
        wish: ConversionRequest<'_>,
        remaining: &mut Resources,
        out: &mut Effects,
    ) -> Option<Converted> {
        self.counters.count("master/messages_operations");
        let (framework_id, agent_id) = (wish.framework_id, wish.agent_id);
        let operation = AcceptedOperation {
            framework_id: Some(framework_id.clone()),
            operation_id: wish.id.clone(),
            conversion: wish.conversion.allocated(None),
        };
        match self.try_convert(&wish, &operation, remaining) {
            Ok(step) => {
                let shared = step.consumed.shared();
                if !shared.is_empty() {
                    let offers = self.offers_with(agent_id, &shared.unallocate());
                    self.rescind(offers, out);
                }
                out.allocator(ToAllocator::Converted(ConvertedFact {
                    framework_id: framework_id.clone(),
                    agent_id: agent_id.clone(),
                    consumed: step.consumed.clone(),
                    converted: step.converted.clone(),
                }));
                if let Some(id) = wish.id {
                    let state = OperationState::Pending;
                    let pending = OperationStatus::new(id, state, "").on(agent_id);
                    let conversion = &wish.conversion;
                    self.operations
                        .begin(framework_id, agent_id, conversion, pending);
                }
                self.apply_on_agent(agent_id, operation, &step, out);
                Some(step)
            }
            Err(invalid) => {
                tracing::info!(framework = %framework_id, agent = %agent_id, %invalid, "refusing an operation");
                let kind = Some(wish.conversion.name());
                self.refuse_operation(framework_id, Some(agent_id), (wish.id, kind), &invalid, out);
                None
            }
        }
    }

    /// Counts a refused operation of this kind, if the kind is known, and sends its framework a
    /// status if the operation has an id.
    pub(crate) fn refuse_operation(
        &mut self,
        framework: &FrameworkId,
        agent: Option<&AgentId>,
        (id, kind): (Option<OperationId>, Option<&str>),
        reason: &str,
        out: &mut Effects,
    ) {
        self.counters.count("master/operations_refused");
        self.counters.operation_ended(kind, OperationState::Error);
        let Some(id) = id else { return };
        let mut status = OperationStatus::new(id, OperationState::Error, reason);
        status.agent_id = agent.cloned();
        self.tell_operation(framework, status, out);
    }

    fn try_convert(
        &self,
        wish: &ConversionRequest<'_>,
        operation: &AcceptedOperation,
        remaining: &mut Resources,
    ) -> Result<Converted, String> {
        let text = |invalid: Invalid| invalid.to_string();
        let (framework, agent) = self.framework_and_agent(wish).map_err(text)?;
        let conversion = wish.conversion.allocated(Some(wish.role));
        if let Some(broken) = self.broken_rule(agent, Some(framework), &conversion) {
            return Err(format!("{broken}; on agent {}", agent.display_name()));
        }
        let conversion = self
            .check_permitted(wish, framework, operation)
            .map_err(text)?;
        // A volume's name must be unique among the volumes of all roles in the total, whoever holds
        // them.
        conversion
            .apply(remaining, &agent.info.resources)
            .map_err(|error| match (error, conversion.step()) {
                (ConversionError::Lacking(_), Ok(step)) => {
                    validation::lacking(remaining, &step.consumed)
                }
                (error, _) => error.to_string(),
            })
    }

    /// The framework and the agent of an operation; fails if its id is in use.
    fn framework_and_agent(
        &self,
        wish: &ConversionRequest<'_>,
    ) -> Result<(&Framework, &Agent), Invalid> {
        let framework = self.frameworks.get(wish.framework_id).ok_or_else(|| {
            let expected = "a framework that is subscribed";
            Invalid::new("framework_id", wish.framework_id, expected)
        })?;
        let agent = |expected| Invalid::new("agent_id", wish.agent_id, expected);
        let Some(known) = self.agents.connected(wish.agent_id) else {
            return Err(agent("an agent that is connected"));
        };
        if known.resources_version.is_none() {
            return Err(agent("an agent that keeps operations"));
        }
        if let Some(id) = &wish.id {
            if self.operations.get(wish.framework_id, id).is_some() {
                let expected = "an id that no operation has that is under way or unacknowledged";
                return Err(Invalid::new("operation.id", id, expected));
            }
            if self.operations.of(wish.framework_id).len() >= OPERATIONS_MAX {
                let expected = format!(
                    "fewer than {OPERATIONS_MAX} operations that are under way or unacknowledged"
                );
                return Err(Invalid::new("operation.id", id, expected));
            }
        }
        Ok((framework, known))
    }

    /// Checks that this framework may request the conversion, and that its agent can be sent it.
    fn check_permitted(
        &self,
        wish: &ConversionRequest<'_>,
        framework: &Framework,
        operation: &AcceptedOperation,
    ) -> Result<Conversion, Invalid> {
        if wish.id.is_some() {
            let others = self.operations.bytes(wish.framework_id);
            let own = wire_bytes(&operation.conversion);
            if others + own > OPERATIONS_BYTES_MAX {
                let expected = format!(
                    "at most {OPERATIONS_BYTES_MAX} bytes in all operations of the framework that are under way or unacknowledged, which have {others}"
                );
                return Err(Invalid::new("operation", format!("{own} bytes"), expected));
            }
        }
        let conversion = validation::conversion(&framework.info, wish.role, &wish.conversion)?;
        Caller::framework(&self.policy.acls, &framework.info).convert(&conversion)?;
        self.check_unused(wish.agent_id, &conversion)?;
        self.check_recordable(wish.agent_id, operation)?;
        Ok(conversion)
    }

    /// Mesos' message for the first rule that an operation on this agent breaks, by a framework or
    /// else by an operator.
    fn broken_rule(
        &self,
        agent: &Agent,
        framework: Option<&Framework>,
        conversion: &Conversion,
    ) -> Option<String> {
        let on = match conversion {
            Conversion::Destroy { .. } => self.tasks.on_agent(&agent.id),
            _ => None,
        };
        let rules = OperationRules {
            framework: framework.map(|framework| (&framework.id, &framework.info)),
            total: &agent.info.resources,
            held: &on.map(|on| sum(on.held().values())).unwrap_or_default(),
        };
        rules.broken_by(conversion)
    }

    /// Checks that no task uses a volume that is destroyed or resized. A volume that is not shared
    /// is never offered while a task uses it.
    fn check_unused(&self, agent_id: &AgentId, conversion: &Conversion) -> Result<(), Invalid> {
        let volumes = match conversion {
            Conversion::Destroy { volumes } => volumes,
            _ => return Ok(()),
        };
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return Ok(());
        };
        let held = on.held().values().flat_map(Resources::iter);
        let same = |held: &Resource| volumes.iter().any(|volume| is_same_volume(held, volume));
        match held
            .filter(|held| held.is_persistent_volume())
            .find(|held| same(held))
        {
            None => Ok(()),
            Some(used) => {
                let expected = "volumes that no task uses";
                Err(Invalid::new("destroy.volumes", used, expected))
            }
        }
    }

    /// An operation could not be sent to its agent, whose resources now differ from the state: the
    /// agent must register again.
    pub fn not_applied(&mut self, agent_id: &AgentId, out: &mut Effects) {
        self.suspend_agent(agent_id, out);
        if let Some(agent) = self.agents.get(agent_id) {
            out.agent(&agent.pid, ToAgent::RegisterAgain);
        }
    }

    /// Handles an agent's report about an operation.
    pub fn operation_updated(&mut self, message: OperationUpdated, out: &mut Effects) {
        self.counters
            .count("master/messages_operation_status_update");
        let OperationUpdated { agent_id, update } = message;
        let framework = update.framework_id;
        let mut status = update.status;
        status.agent_id = Some(agent_id.clone());
        let is_known = self.frameworks.get(&framework).is_some();
        self.counters.count(match is_known {
            true => "master/valid_operation_status_updates",
            false => "master/invalid_operation_status_updates",
        });
        if !self.ended_at_agent(&agent_id, &framework, &status, out) {
            return; // The status is sent when the registry has forgotten the operation.
        }
        if !is_known {
            // The framework will not acknowledge it; the master does so instead.
            return self.acknowledge_operation_for(&framework, &agent_id, &status, out);
        }
        self.count_end(&framework, &status);
        self.operations.put(&framework, &agent_id, status.clone());
        self.tell_operation(&framework, status, out);
    }

    /// Counts the end of an operation whose status the table does not have yet, if it was under
    /// way. An operation that is not in the table is over and acknowledged, or never existed: its
    /// end is repeated.
    fn count_end(&mut self, framework: &FrameworkId, status: &OperationStatus) {
        let id = &status.operation_id;
        let before = self.operations.get(framework, id);
        if status.state.is_terminal() && before.is_some_and(|before| !before.state.is_terminal()) {
            let kind = self.operations.kind(framework, id);
            self.counters.operation_ended(kind, status.state);
        }
    }

    fn acknowledge_operation_for(
        &self,
        framework: &FrameworkId,
        agent_id: &AgentId,
        status: &OperationStatus,
        out: &mut Effects,
    ) {
        if let (Some(agent), Some(uuid)) = (self.agents.connected(agent_id), status.uuid) {
            let acknowledged = AcknowledgeOperation {
                framework_id: framework.clone(),
                agent_id: agent_id.clone(),
                operation_id: status.operation_id.clone(),
                uuid,
            };
            out.agent(&agent.pid, ToAgent::AcknowledgeOperation(acknowledged));
        }
    }

    /// Handles a framework's acknowledgement of an operation status.
    pub fn acknowledge_operation(&mut self, call: AcknowledgeOperation, out: &mut Effects) {
        self.counters
            .count("master/messages_operation_status_update_acknowledgement");
        let id = &call.operation_id;
        let known = self.operations.get(&call.framework_id, id);
        let counted = match known.is_some_and(|status| status.uuid == Some(call.uuid)) {
            true => {
                self.operations.remove(&call.framework_id, id);
                "master/valid_operation_status_update_acknowledgements"
            }
            false => "master/invalid_operation_status_update_acknowledgements",
        };
        self.counters.count(counted);
        // A disconnected agent sends the status again, and that is acknowledged again.
        if let Some(agent) = self.agents.connected(&call.agent_id) {
            out.agent(&agent.pid, ToAgent::AcknowledgeOperation(call));
        }
    }

    /// Answers a framework's question about the named operations, or about all that the master
    /// knows.
    pub fn reconcile_operations(&mut self, call: ReconcileOperations, out: &mut Effects) {
        self.counters.count("master/messages_reconcile_operations");
        let framework = &call.framework_id;
        let answers: Vec<OperationStatus> = match call.operations.is_empty() {
            true => self.operations.of(framework).map(without_uuid).collect(),
            false => {
                let asked = call.operations.iter();
                let answer = |(id, agent): &(OperationId, Option<AgentId>)| {
                    let known = self.operations.get(framework, id);
                    known.map_or_else(|| self.unknown_operation(id, agent.as_ref()), without_uuid)
                };
                asked.map(answer).collect()
            }
        };
        for status in answers {
            self.tell_operation(framework, status, out);
        }
    }

    /// Sends the status of an operation that an earlier master, which made the offers, may have
    /// accepted: the operation is known, or its agent (any agent if none is named) has not returned
    /// to report it. Returns whether it did.
    pub(crate) fn report_if_accepted(
        &self,
        framework: &FrameworkId,
        id: &Option<OperationId>,
        agent: Option<&AgentId>,
        out: &mut Effects,
    ) -> bool {
        let Some(id) = id else { return false };
        let away = || match agent.map(|agent| self.agents.standing(agent)) {
            Some(standing) => {
                matches!(standing, Standing::Recovered | Standing::Unreachable(_))
            }
            None => {
                self.agents.recovered().next().is_some() || !self.agents.unreachable().is_empty()
            }
        };
        let status = match self.operations.get(framework, id) {
            Some(known) => without_uuid(known),
            None if away() => self.unknown_operation(id, agent),
            None => return false,
        };
        self.tell_operation(framework, status, out);
        true
    }

    /// The status of an unknown operation, derived from the agent's status.
    fn unknown_operation(&self, id: &OperationId, agent: Option<&AgentId>) -> OperationStatus {
        let awaited = self.agents.recovered().next().is_some();
        let standing = agent.map(|agent| self.agents.standing(agent));
        let message = match &standing {
            None => "Reconciliation: Operation is unknown and no 'agent_id' was provided",
            Some(Standing::Recovered) => {
                "Reconciliation: Agent is recovered but has not re-registered"
            }
            Some(Standing::Registered(_)) => "Reconciliation: Operation is unknown",
            Some(Standing::Unreachable(_)) => "Reconciliation: Agent is unreachable",
            Some(Standing::Gone) => "Reconciliation: Agent marked gone by operator",
            Some(Standing::Unknown) => "Reconciliation: Both operation and agent are unknown",
        };
        let state = unknown_state(standing, awaited);
        let mut status = OperationStatus::new(id.clone(), state, message);
        status.agent_id = agent.cloned();
        status
    }

    fn tell_operation(&self, framework: &FrameworkId, status: OperationStatus, out: &mut Effects) {
        let scheduler = self.frameworks.scheduler(framework);
        let changed = Box::new(OperationChanged { status });
        out.scheduler(scheduler, ToScheduler::Operation(changed));
    }

    /// An agent has rejected an operation and reports its resources: offers and grants that are
    /// based on the state become invalid.
    pub fn resources_reported(
        &mut self,
        message: ResourcesReported,
        out: &mut Effects,
    ) -> Result<(), Invalid> {
        let ResourcesReported {
            agent_id,
            resources,
        } = message;
        let Some(agent) = self.agents.connected(&agent_id) else {
            let expected = "an agent that is connected";
            return Err(Invalid::new("agent_id", agent_id, expected));
        };
        validation::held(&agent.described, &resources)?;
        self.rescind_of_agent(&agent_id, out);
        self.agents.update(&agent_id, |agent| {
            agent.info.resources = resources.total;
            agent.resources_version = Some(resources.version);
        });
        self.drop_dependents(&agent_id, resources.settled, out);
        self.renew_agent(&agent_id, out);
        Ok(())
    }

    /// Gives the allocator an agent and its allocations anew, which invalidates earlier grants.
    fn renew_agent(&mut self, agent_id: &AgentId, out: &mut Effects) {
        let Some(agent) = self.agents.get(agent_id).cloned() else {
            return;
        };
        let agent = self.agents.register(agent);
        out.push(Effect::Watch(agent_id.clone(), agent.session));
        out.allocator(ToAllocator::AgentAdded(Box::new(AgentAdded {
            agent_id: agent_id.clone(),
            session: self.agents.allocator_session(&agent),
            info: agent.info.clone(),
            oversubscribed: agent.oversubscribed.clone(),
            used: self.used_on(agent_id).into_iter().collect(),
        })));
        self.tell_inactive(&agent, out);
    }

    /// The resources of each framework on an agent, in tasks and in offers.
    fn used_on(&self, agent_id: &AgentId) -> BTreeMap<FrameworkId, Resources> {
        let on = self.tasks.on_agent(agent_id);
        let held = on.into_iter().flat_map(|on| on.held().iter());
        let mut used: BTreeMap<FrameworkId, Resources> =
            held.map(|(of, held)| (of.clone(), held.clone())).collect();
        for offer in self.offers.of_agent(agent_id) {
            *used.entry(offer.framework_id.clone()).or_default() += &offer.resources;
        }
        used
    }

    /// The offers of an agent that contain any of these resources, given without allocation.
    fn offers_with(&self, agent_id: &AgentId, wanted: &Resources) -> Vec<OfferId> {
        let has = |offer: &&Arc<Offer>| {
            let rest = wanted.saturating_sub(&offer.resources.unallocate());
            rest != *wanted
        };
        let offers = self.offers.of_agent(agent_id).filter(has);
        offers.map(|offer| offer.id.clone()).collect()
    }

    /// Applies an operator's operation to unused resources. Offered resources are rescinded, with
    /// as few offers as possible. Returns the operation's serial; it is accepted once the registry
    /// has it.
    pub fn operate(&mut self, call: Operate, out: &mut Effects) -> Result<u64, OperationRefused> {
        self.counters.count("master/messages_operate");
        let agent_id = call.agent_id;
        let agent = self
            .agents
            .connected(&agent_id)
            .filter(|agent| agent.resources_version.is_some());
        let Some(agent) = agent else {
            return Err(OperationRefused::NoAgent { agent_id });
        };
        if let Some(broken) = self.broken_rule(agent, None, &call.conversion) {
            let message = refused_on(&call.conversion, agent, &broken);
            return Err(OperationRefused::Invalid(Invalid::message(message)));
        }
        let conversion = call.conversion.allocated(None);
        let operation = AcceptedOperation {
            framework_id: None,
            operation_id: None,
            conversion: conversion.clone(),
        };
        self.check_unused(&agent_id, &conversion)
            .and_then(|()| self.check_recordable(&agent_id, &operation))
            .map_err(OperationRefused::Invalid)?;
        let mut unused = self.unused(agent);
        let step = match conversion.apply(&mut unused, &agent.info.resources) {
            Ok(step) => step,
            Err(ConversionError::Invalid(invalid)) => {
                return Err(OperationRefused::Invalid(invalid));
            }
            Err(ConversionError::Lacking(shortage)) => {
                let needed = conversion.step().map(|step| step.consumed);
                let needed = needed.unwrap_or_else(|_| Resources::from(*shortage.lacking));
                return Err(OperationRefused::NotFree {
                    lacking: validation::texts(&needed),
                    free: Box::new(self.unused(agent)),
                });
            }
        };
        let rescinded = self.offers_to_rescind(&agent_id, &step.consumed);
        self.rescind(rescinded, out);
        let serial = self.apply_on_agent(&agent_id, operation, &step, out);
        self.renew_agent(&agent_id, out);
        serial.ok_or(OperationRefused::NoAgent { agent_id })
    }

    /// Applies an operator's operations in order, each to the result of the ones before. Nothing
    /// changes if any of them fails. Returns the last serial; they are accepted together.
    pub fn operate_all(
        &mut self,
        agent_id: AgentId,
        conversions: Vec<Conversion>,
        out: &mut Effects,
    ) -> Result<u64, OperationRefused> {
        let (mut thought, mut effects) = (self.clone(), Effects::new());
        let mut last = Err(OperationRefused::NoAgent {
            agent_id: agent_id.clone(),
        });
        for conversion in conversions {
            let agent_id = agent_id.clone();
            let call = Operate {
                agent_id,
                conversion,
            };
            last = Ok(thought.operate(call, &mut effects)?);
        }
        *self = thought;
        out.append(&mut effects);
        last
    }

    /// The resources of an agent that no task holds, offered or not.
    pub(crate) fn unused(&self, agent: &Agent) -> Resources {
        let on = self.tasks.on_agent(&agent.id);
        let held = on.map(|on| sum(on.held().values())).unwrap_or_default();
        let total = &agent.info.resources;
        total.saturating_sub(&held.unallocate())
    }

    /// The offers to rescind so that all of `wanted` is free: largest part of the missing resources
    /// first, and none without any.
    fn offers_to_rescind(&self, agent_id: &AgentId, wanted: &Resources) -> Vec<OfferId> {
        let Some(agent) = self.agents.get(agent_id) else {
            return Vec::new();
        };
        let offers: Vec<&Arc<Offer>> = self.offers.of_agent(agent_id).collect();
        let offered = sum(offers.iter().map(|offer| &offer.resources)).unallocate();
        let mut free = self.unused(agent).saturating_sub(&offered);
        let shared = wanted.shared();
        let mut chosen = self.offers_with(agent_id, &shared);
        let mut rest: Vec<&Arc<Offer>> = Vec::new();
        for offer in offers {
            match chosen.contains(&offer.id) {
                true => free += offer.resources.unallocate(),
                false => rest.push(offer),
            }
        }
        loop {
            let lacking = wanted.saturating_sub(&free);
            if lacking.is_empty() {
                return chosen;
            }
            let gain = |offer: &Arc<Offer>| {
                let after = lacking.saturating_sub(&offer.resources.unallocate());
                lacking.len() - after.len()
            };
            let helps = |offer: &Arc<Offer>| {
                lacking.saturating_sub(&offer.resources.unallocate()) != lacking
            };
            let best = (0..rest.len())
                .filter(|at| helps(rest[*at]))
                .max_by_key(|at| gain(rest[*at]));
            let Some(best) = best else { return chosen };
            let offer = rest.swap_remove(best);
            free += offer.resources.unallocate();
            chosen.push(offer.id.clone());
        }
    }
}

/// The status as reconciliation reports it: not to be acknowledged.
fn without_uuid(status: &OperationStatus) -> OperationStatus {
    OperationStatus {
        uuid: None,
        ..status.clone()
    }
}

/// The state of an unknown operation, from the status of the named agent, if there is one.
/// `awaited`: some agents have not returned since the master's restart.
fn unknown_state(agent: Option<Standing<'_>>, awaited: bool) -> OperationState {
    match agent {
        Some(Standing::Recovered) => OperationState::Recovering,
        None if awaited => OperationState::Recovering,
        Some(Standing::Registered(_)) => OperationState::Dropped,
        Some(Standing::Unreachable(_)) => OperationState::Unreachable,
        Some(Standing::Gone) => OperationState::GoneByOperator,
        Some(Standing::Unknown) | None => OperationState::Unknown,
    }
}

/// The message to an operator whose operation breaks a rule. Mesos names the agent of some kinds
/// only.
fn refused_on(conversion: &Conversion, agent: &Agent, broken: &str) -> String {
    let kind = conversion.name().to_uppercase();
    match conversion {
        Conversion::Unreserve { .. } | Conversion::Destroy { .. } => {
            format!("Invalid {kind} operation: {broken}")
        }
        _ => format!(
            "Invalid {kind} operation on agent {}: {broken}",
            agent.display_name()
        ),
    }
}

/// Whether both are the same persistent volume, regardless of allocation.
fn is_same_volume(one: &Resource, other: &Resource) -> bool {
    let name = |volume: &Resource| {
        let disk = volume.annotations().disk.as_ref()?;
        Some(disk.persistence.as_ref()?.id.clone())
    };
    one.role() == other.role() && name(one) == name(other)
}

#[cfg(test)]
mod tests {
    use runtime::Timestamp;

    use super::*;

    /// SPEC 2.2, RECONCILE_OPERATIONS. Operations on registered agents are tested with the actor.
    // Covers 2.2 RECONCILE_OPERATIONS.
    #[test]
    fn unknown_operation_state_follows_its_agent() {
        let since = Timestamp::from_nanos(1);
        for (agent, awaited, expected) in [
            (Some(Standing::Recovered), false, OperationState::Recovering),
            (None, true, OperationState::Recovering),
            (None, false, OperationState::Unknown),
            (Some(Standing::Unknown), true, OperationState::Unknown),
            (Some(Standing::Gone), true, OperationState::GoneByOperator),
            (
                Some(Standing::Unreachable(since)),
                true,
                OperationState::Unreachable,
            ),
        ] {
            assert_eq!(unknown_state(agent, awaited), expected, "{agent:?}");
        }
    }
}
