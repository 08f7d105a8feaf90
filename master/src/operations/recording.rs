//! Recording: an accepted operation is neither lost nor applied twice, whichever process crashes.
//!
//! Pure decisions on [`MasterState`]. An operation is applied to the state at once and recorded in
//! the registry before it is sent to its agent; it stays recorded until the agent has it on disk. A
//! failure is reported only after the registry has forgotten the operation, so that no later master
//! sends it. A registering agent names the newest serial that it has finished: later operations are
//! sent again, in order, if unused resources still allow them. Nothing here calls the registry or
//! waits for it.

use std::sync::Arc;

use protocol::message::operation::{ApplyOperation, OperationsSettled};
use protocol::{
    AgentId, AgentResources, FrameworkId, OperationId, OperationState, OperationStatus,
    OperationUpdate,
};
use resources::{Conversion, ConversionError, Converted, Invalid};

use super::pending::ON_AGENT_MAX;
use crate::agents::Standing;
use crate::operations::commit_barrier::Release;
use crate::registry::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations, check_accepted};
use crate::state::MasterState;
use crate::state::effects::{Effect, Effects, SendEffects, ToAgent};
use crate::state::size::wire_bytes;

/// Maximum bytes of an agent's resources after an operation.
pub(super) const RESOURCES_BYTES_MAX: usize = 1 << 20;

/// The final status of an operation, sent when the registry has forgotten it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conclusion {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The status.
    pub status: OperationStatus,
}

/// A status made by the master for an operation that is never sent.
fn dropped(agent: &AgentId, id: OperationId, reason: &str) -> OperationStatus {
    OperationStatus::new(id, OperationState::Dropped, reason).on(agent)
}

fn reports_operation(reported: &AgentResources, framework: &FrameworkId, id: &OperationId) -> bool {
    let is_it = |update: &OperationUpdate| {
        update.framework_id == *framework && update.status.operation_id == *id
    };
    reported.operations.iter().any(is_it)
}

impl MasterState {
    /// Takes over the registry's operations at the start of a leadership, as under way.
    pub(crate) fn recover_operations(&mut self, accepted: &AcceptedOperations) {
        self.pending.recover(accepted);
        for (agent, _, operation) in accepted.iter() {
            let Some((framework, id)) = operation.feedback() else {
                continue;
            };
            if self.frameworks.get(&framework).is_some() {
                let state = match self.agents.standing(agent) {
                    Standing::Unreachable(_) => OperationState::Unreachable,
                    _ => OperationState::Pending,
                };
                let status = OperationStatus::new(id, state, "").on(agent);
                let conversion = &operation.conversion;
                self.operations.begin(&framework, agent, conversion, status);
            }
        }
    }

    /// Checks the bounds of the registry and of the agent for one more operation of that size.
    pub(super) fn check_recordable(
        &self,
        agent: &AgentId,
        operation: &AcceptedOperation,
    ) -> Result<(), Invalid> {
        let name = operation.conversion.name();
        if self.pending.is_full() {
            let expected = format!("fewer than {ACCEPTED_MAX} operations under way in the cluster");
            return Err(Invalid::new("operation", name, expected));
        }
        if self.pending.is_full_on(agent) {
            let expected = format!("fewer than {ON_AGENT_MAX} operations under way on the agent");
            return Err(Invalid::new("operation", name, expected));
        }
        self.check_agent_bytes(agent, &operation.conversion)?;
        let serial = self.pending.next_serial(agent);
        check_accepted(agent, serial, operation).map_err(|error| {
            let expected = format!("one that the registry can keep: {error}");
            Invalid::new("operation", name, expected)
        })
    }

    /// Checks the bound on the bytes of the agent's resources: labels of reservations and ids of
    /// volumes are part of each offer. Operations that shrink them are never refused.
    fn check_agent_bytes(&self, agent: &AgentId, conversion: &Conversion) -> Result<(), Invalid> {
        let grows = matches!(
            conversion,
            Conversion::Reserve { .. } | Conversion::Create { .. }
        );
        let Some(agent) = self.agents.get(agent).filter(|_| grows) else {
            return Ok(());
        };
        let before = wire_bytes(&agent.info.resources);
        let own = wire_bytes(conversion);
        if before + own <= RESOURCES_BYTES_MAX {
            return Ok(());
        }
        let expected = format!(
            "at most {RESOURCES_BYTES_MAX} bytes in all resources of the agent with their labels and ids, which have {before}"
        );
        Err(Invalid::new(
            conversion.name(),
            format!("{own} bytes"),
            expected,
        ))
    }

    /// Changes the agent's total; the agent is sent the operation once the registry has it. Returns
    /// its serial.
    pub(super) fn apply_on_agent(
        &mut self,
        agent_id: &AgentId,
        operation: AcceptedOperation,
        step: &Converted,
        out: &mut Effects,
    ) -> Option<u64> {
        self.counters.count("master/operations_applied");
        self.book(agent_id, step);
        let agent = self.agents.get(agent_id)?;
        let (pid, version) = (agent.pid.clone(), agent.resources_version?);
        let serial = self.pending.begin(agent_id, operation, version);
        out.push(Effect::Record(pid, agent_id.clone(), serial));
        Some(serial)
    }

    fn book(&mut self, agent_id: &AgentId, step: &Converted) {
        self.agents.update(agent_id, |agent| {
            let total = &mut agent.info.resources;
            total.saturating_sub_assign(&step.consumed.unallocate());
            *total += step.converted.unallocate();
        });
    }

    /// The registry has recorded these. Operations that are applied wait in the agent's queue; the
    /// others were accepted before the agent registered again.
    pub fn operations_recorded(&mut self, agent_id: &AgentId, serials: &[u64], out: &mut Effects) {
        self.pending.recorded(agent_id, serials);
        if self.agents.connected(agent_id).is_some() && self.resume_operations(agent_id, out) {
            self.renew_agent(agent_id, out);
        }
    }

    /// The registry refuses these: they are never sent, and the agent's resources replace the
    /// state's.
    pub fn operations_not_recorded(
        &mut self,
        agent_id: &AgentId,
        serials: &[u64],
        reason: &str,
        out: &mut Effects,
    ) {
        for serial in serials {
            let entry = self.pending.get(agent_id, *serial);
            let Some(entry) = entry.filter(|entry| !entry.over) else {
                continue;
            };
            let feedback = entry.operation.feedback();
            self.pending.remove(agent_id, *serial);
            if let Some((framework_id, id)) = feedback {
                let status = dropped(agent_id, id, reason);
                let conclusion = Conclusion {
                    framework_id,
                    status,
                };
                self.conclude(conclusion, out);
            }
        }
        self.not_applied(agent_id, out);
    }

    /// The action for an operation that is first in its agent's queue.
    pub(crate) fn released(
        &mut self,
        agent_id: &AgentId,
        serial: u64,
        out: &mut Effects,
    ) -> Release {
        let entry = self.pending.get(agent_id, serial);
        let Some(entry) = entry.filter(|entry| !entry.over) else {
            return Release::Skip;
        };
        if !self.pending.is_ready(agent_id, serial) {
            return Release::Wait;
        }
        let agent = self.agents.connected(agent_id);
        let version = agent.and_then(|agent| agent.resources_version);
        match version.filter(|version| entry.booked == Some(*version)) {
            None => Release::Skip,
            Some(version) => {
                let apply = application(&entry.operation, serial, version);
                if !self.pending.knows_serials(agent_id) {
                    // The agent would never report its end.
                    self.end(agent_id, serial, out);
                }
                Release::Send(Box::new(apply))
            }
        }
    }

    /// Makes the registry forget an operation; returns whether it was not over before.
    fn end(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) -> bool {
        let ends = self.pending.end(agent_id, serial);
        if ends {
            out.push(Effect::Forget(agent_id.clone(), serial));
        }
        ends
    }

    /// Drops an operation: it is not sent any more.
    fn drop_operation(&mut self, agent_id: &AgentId, serial: u64, reason: &str, out: &mut Effects) {
        let Some(entry) = self.pending.get(agent_id, serial) else {
            return;
        };
        let operation = entry.operation.conversion.name();
        tracing::warn!(agent = %agent_id, operation, reason, "dropping an accepted operation");
        let feedback = entry.operation.feedback();
        if let (true, Some((framework_id, id))) = (self.end(agent_id, serial, out), feedback) {
            let status = dropped(agent_id, id, reason);
            let conclusion = Conclusion {
                framework_id,
                status,
            };
            self.pending.conclude(agent_id, serial, conclusion);
        }
    }

    /// The agent has finished this operation and has nothing more to report: it succeeded.
    fn done_before(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) {
        let entry = self.pending.get(agent_id, serial);
        let feedback = entry.and_then(|entry| entry.operation.feedback());
        self.end(agent_id, serial, out);
        let Some((framework_id, id)) = feedback else {
            return;
        };
        let known = self.operations.get(&framework_id, &id);
        if known.is_some_and(|status| !status.state.is_terminal()) {
            let status = OperationStatus::new(id, OperationState::Finished, "").on(agent_id);
            let conclusion = Conclusion {
                framework_id,
                status,
            };
            self.pending.conclude(agent_id, serial, conclusion);
        }
    }

    /// The registry has forgotten this operation.
    pub fn operation_forgotten(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) {
        // The operations of a removed agent have been reported.
        let entry = self.pending.remove(agent_id, serial);
        if let Some(conclusion) = entry.and_then(|entry| entry.conclusion) {
            self.conclude(*conclusion, out);
        }
    }

    /// Sends the final status of an operation.
    fn conclude(&mut self, conclusion: Conclusion, out: &mut Effects) {
        let Conclusion {
            framework_id,
            status,
        } = conclusion;
        let id = &status.operation_id;
        if self.frameworks.get(&framework_id).is_none() {
            if let Some(agent_id) = &status.agent_id {
                self.acknowledge_operation_for(&framework_id, agent_id, &status, out);
            }
            return;
        }
        self.count_end(&framework_id, &status);
        match (&status.uuid, &status.agent_id) {
            // Its agent resends it until it is acknowledged.
            (Some(_), Some(agent_id)) => {
                self.operations.put(&framework_id, agent_id, status.clone());
            }
            _ => self.operations.remove(&framework_id, id),
        }
        self.tell_operation(&framework_id, status, out);
    }

    /// Handles an agent's report of an operation; returns whether its status may be sent now.
    pub(super) fn ended_at_agent(
        &mut self,
        agent_id: &AgentId,
        framework: &FrameworkId,
        status: &OperationStatus,
        out: &mut Effects,
    ) -> bool {
        if !status.state.is_terminal() {
            return true;
        }
        // Until the registry has forgotten it, a next leader might report a different end.
        let id = &status.operation_id;
        let Some(serial) = self.pending.find(agent_id, framework, id) else {
            return true;
        };
        self.end(agent_id, serial, out);
        let conclusion = Conclusion {
            framework_id: framework.clone(),
            status: status.clone(),
        };
        self.pending.conclude(agent_id, serial, conclusion);
        false
    }

    /// The agent has finished all operations up to this serial.
    pub fn operations_settled(&mut self, message: &OperationsSettled, out: &mut Effects) {
        let agent_id = &message.agent_id;
        for serial in self.pending.up_to(agent_id, message.serial) {
            self.done_before(agent_id, serial, out);
        }
    }

    /// The agent has rejected an operation, or no longer keeps operations: drops the operations
    /// that build on it.
    pub(crate) fn drop_dependents(
        &mut self,
        agent_id: &AgentId,
        settled: Option<u64>,
        out: &mut Effects,
    ) {
        for serial in self.pending.of_agent(agent_id) {
            if settled.is_none_or(|settled| serial > settled) {
                let reason = "it was meant for what the agent has no longer";
                self.drop_operation(agent_id, serial, reason, out);
            }
        }
    }

    /// Merges the operations of a registering agent. Operations that neither the agent nor the
    /// registry knows never arrived. At the first registration with this master, operations of an
    /// earlier master may have ended: they are counted here.
    pub(crate) fn merge_operations(
        &mut self,
        agent_id: &AgentId,
        reported: &AgentResources,
        is_first: bool,
        out: &mut Effects,
    ) {
        self.merge_accepted(agent_id, reported, out);
        for (framework, id) in self.operations.under_way(agent_id) {
            if reports_operation(reported, &framework, &id) {
                continue;
            }
            if self.pending.knows(agent_id, &framework, &id) {
                let status = OperationStatus::new(id, OperationState::Pending, "").on(agent_id);
                self.operations.put(&framework, agent_id, status);
                continue;
            }
            let reason = "the agent came back without this operation";
            let status = dropped(agent_id, id.clone(), reason);
            self.count_end(&framework, &status);
            self.operations.remove(&framework, &id);
            self.tell_operation(&framework, status, out);
        }
        for update in &reported.operations {
            // The agent itself resends it until it is acknowledged.
            let (framework, status) = (&update.framework_id, &update.status);
            let id = &status.operation_id;
            let is_sent_later = status.state != OperationState::Finished
                && self.pending.knows(agent_id, framework, id);
            if self.frameworks.get(framework).is_some() && !is_sent_later {
                let status = status.clone().on(agent_id);
                self.count_end(framework, &status);
                let is_new = self.operations.get(framework, id).is_none();
                if is_first && is_new && status.state.is_terminal() {
                    self.counters.operation_ended(None, status.state);
                }
                self.operations.put(framework, agent_id, status);
            }
        }
    }

    /// Merges the registry's operations for a registering agent: finished ones are over, and
    /// missing ones are sent again.
    fn merge_accepted(&mut self, agent_id: &AgentId, reported: &AgentResources, out: &mut Effects) {
        self.pending.arrived(agent_id, reported.settled);
        for serial in self.pending.of_agent(agent_id) {
            let entry = self.pending.get(agent_id, serial);
            let feedback = entry.and_then(|entry| entry.operation.feedback());
            if feedback.is_some_and(|(framework, id)| reports_operation(reported, &framework, &id))
            {
                // The agent's resources include it; the agent reports the outcome next.
                self.pending.booked(agent_id, serial, reported.version);
                continue;
            }
            match reported.settled {
                Some(settled) if serial <= settled => self.done_before(agent_id, serial, out),
                Some(_) => {}
                None => {
                    let reason = "the agent came back without this operation";
                    self.drop_operation(agent_id, serial, reason, out);
                }
            }
        }
    }

    /// Resends recorded operations to a connected agent, as far as they can still be applied;
    /// returns whether there were any.
    pub(crate) fn resume_operations(&mut self, agent_id: &AgentId, out: &mut Effects) -> bool {
        let mut any = false;
        while let Some(serial) = self.pending.next_unbooked(agent_id) {
            match self.resume(agent_id, serial, out) {
                Ok(()) => any = true,
                Err(reason) => self.drop_operation(agent_id, serial, &reason, out),
            }
        }
        any
    }

    fn resume(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) -> Result<(), String> {
        let gone = || "its agent keeps no operations any more".to_owned();
        let agent = self.agents.connected(agent_id).ok_or_else(gone)?;
        let version = agent.resources_version.ok_or_else(gone)?;
        let entry = self.pending.get(agent_id, serial).ok_or_else(gone)?;
        let operation = Arc::clone(&entry.operation);
        let conversion = &operation.conversion;
        self.check_unused(agent_id, conversion)
            .map_err(|invalid| invalid.to_string())?;
        let mut unused = self.unused(agent);
        let step = conversion
            .apply(&mut unused, &agent.info.resources)
            .map_err(|error: ConversionError| error.to_string())?;
        let pid = agent.pid.clone();
        let rescinded = self.offers_to_rescind(agent_id, &step.consumed);
        self.rescind(rescinded, out);
        self.book(agent_id, &step);
        self.pending.booked(agent_id, serial, version);
        tracing::info!(agent = %agent_id, operation = conversion.name(), "sending an operation again");
        let apply = application(&operation, serial, version);
        out.agent(&pid, ToAgent::Apply(agent_id.clone(), Box::new(apply)));
        Ok(())
    }

    /// Sets the operations on an unreachable or gone agent to `state` until the agent returns.
    pub(crate) fn operations_of_lost_agent(
        &mut self,
        agent_id: &AgentId,
        state: OperationState,
        out: &mut Effects,
    ) {
        for (framework, id) in self.operations.under_way(agent_id) {
            let status = OperationStatus::new(id.clone(), state, "the agent is lost").on(agent_id);
            self.count_end(&framework, &status);
            match state {
                OperationState::Unreachable => {
                    self.operations.put(&framework, agent_id, status.clone());
                }
                _ => self.operations.remove(&framework, &id),
            }
            self.tell_operation(&framework, status, out);
        }
        if state != OperationState::Unreachable {
            // The registry has forgotten them with the agent.
            self.pending.remove_agent(agent_id);
        }
    }
}

fn application(
    operation: &AcceptedOperation,
    serial: u64,
    version: protocol::Uuid,
) -> ApplyOperation {
    ApplyOperation {
        feedback: operation.feedback(),
        conversion: operation.conversion.clone(),
        version,
        serial: Some(serial),
    }
}
