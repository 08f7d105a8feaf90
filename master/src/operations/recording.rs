//! Recording: how an operation that was accepted is neither lost nor done twice, whoever falls (SPEC 3.5, 5.2; DESIGN 5).
//!
//! Pure decisions on [`Books`]. An operation is in the books at once, in the registry before its agent hears of it, and stays there until its
//! agent has it on the disk. What ended otherwise than done is told when the registry has forgotten it, so that no later master sends it. An agent that comes
//! names the newest serial that is over there: what it has not seen is sent again, in order, if it can still be done with what nobody uses. Nothing here asks the
//! registry or waits for it.

use std::sync::Arc;

use protocol::message::operation::{ApplyOperation, OperationsSettled};
use protocol::{
    AgentId, AgentResources, FrameworkId, OperationId, OperationState, OperationStatus,
    OperationUpdate,
};
use resources::{Conversion, Converted, Invalid, NotConverted};

use super::pending::ON_AGENT_MAX;
use crate::agents::Standing;
use crate::books::Books;
use crate::effects::{Effect, Effects, Tell, ToAgent};
use crate::gate::Release;
use crate::registry::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations, check_accepted};
use crate::size::wire_bytes;

/// The most bytes of an agent's resources that operations may lead to.
pub(super) const RESOURCES_BYTES_MAX: usize = 1 << 20;

/// How an operation has ended, of which its framework hears when the registry has forgotten it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conclusion {
    /// Whose.
    pub framework_id: FrameworkId,
    /// How it ended.
    pub status: OperationStatus,
}

/// Never sent, by the words of the master.
fn dropped(agent: &AgentId, id: OperationId, reason: &str) -> OperationStatus {
    OperationStatus::new(id, OperationState::Dropped, reason).on(agent)
}

fn tells_of(reported: &AgentResources, framework: &FrameworkId, id: &OperationId) -> bool {
    let is_it = |update: &OperationUpdate| {
        update.framework_id == *framework && update.status.operation_id == *id
    };
    reported.operations.iter().any(is_it)
}

impl Books {
    /// Takes over what the registry has at the beginning of a leadership: it is under way.
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

    /// Whether the registry can take one more operation of that size, and the agent one more and what it makes.
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

    /// Whether the agent's resources stay small: the labels of reservations and the ids of volumes are in each offer of them. What
    /// makes them fewer is never refused.
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

    /// The books' total changes, and the agent is told to follow once the registry has the operation; gives its serial there.
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
            total.subtract_what_is_there(&step.consumed.unallocate());
            *total += step.converted.unallocate();
        });
    }

    /// The registry has these. Those that the books have wait in the agent's line; the agent has come anew since the others were accepted.
    pub fn operations_recorded(&mut self, agent_id: &AgentId, serials: &[u64], out: &mut Effects) {
        self.pending.recorded(agent_id, serials);
        if self.agents.connected(agent_id).is_some() && self.resume_operations(agent_id, out) {
            self.renew_agent(agent_id, out);
        }
    }

    /// The registry refuses these: the agent never hears of them, and the books take over anew what it has.
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

    /// What becomes of an operation that is first in its agent's line.
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
                    // It would never say that it is over.
                    self.end(agent_id, serial, out);
                }
                Release::Send(Box::new(apply))
            }
        }
    }

    /// The registry is to forget this one; whether it was not before.
    fn end(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) -> bool {
        let ends = self.pending.end(agent_id, serial);
        if ends {
            out.push(Effect::Forget(agent_id.clone(), serial));
        }
        ends
    }

    /// Nobody sends this one any more.
    fn drop_operation(&mut self, agent_id: &AgentId, serial: u64, reason: &str, out: &mut Effects) {
        let Some(entry) = self.pending.get(agent_id, serial) else {
            return;
        };
        let operation = entry.operation.conversion.name();
        tracing::warn!(agent = %agent_id, operation, reason, "an operation that was accepted is dropped");
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

    /// This one is over at its agent, which has nothing more to say of it: it was done.
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

    /// The registry has forgotten this one.
    pub fn operation_forgotten(&mut self, agent_id: &AgentId, serial: u64, out: &mut Effects) {
        // Of what an agent that is no more was to do all has been told.
        let entry = self.pending.remove(agent_id, serial);
        if let Some(conclusion) = entry.and_then(|entry| entry.conclusion) {
            self.conclude(*conclusion, out);
        }
    }

    /// Tells how an operation has ended.
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
            // Its agent sends it until it is acknowledged.
            (Some(_), Some(agent_id)) => {
                self.operations.put(&framework_id, agent_id, status.clone());
            }
            _ => self.operations.remove(&framework_id, id),
        }
        self.tell_operation(&framework_id, status, out);
    }

    /// An agent says how an operation went; whether that may be told now.
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
        // Until the registry has forgotten it a next leader might tell another end of it.
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

    /// An agent has all operations up to this one behind it.
    pub fn operations_settled(&mut self, message: &OperationsSettled, out: &mut Effects) {
        let agent_id = &message.agent_id;
        for serial in self.pending.up_to(agent_id, message.serial) {
            self.done_before(agent_id, serial, out);
        }
    }

    /// An agent has not done what it was told, or keeps no operations any more: what was built upon that it does not do either.
    pub(crate) fn drop_what_was_built(
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

    /// An agent that comes (back) has this. What neither it nor the registry knows never arrived. The first time that it comes to this
    /// master, operations may have ended that were said to an earlier one: they are counted here.
    pub(crate) fn bring_operations_together(
        &mut self,
        agent_id: &AgentId,
        reported: &AgentResources,
        is_first: bool,
        out: &mut Effects,
    ) {
        self.bring_accepted_together(agent_id, reported, out);
        for (framework, id) in self.operations.under_way(agent_id) {
            if tells_of(reported, &framework, &id) {
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
            // The agent itself sends it until it is acknowledged.
            let (framework, status) = (&update.framework_id, &update.status);
            let id = &status.operation_id;
            let is_told_later = status.state != OperationState::Finished
                && self.pending.knows(agent_id, framework, id);
            if self.frameworks.get(framework).is_some() && !is_told_later {
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

    /// What the registry has for an agent that comes: what is over there is over here, and what it has not seen is to be said again.
    fn bring_accepted_together(
        &mut self,
        agent_id: &AgentId,
        reported: &AgentResources,
        out: &mut Effects,
    ) {
        self.pending.arrived(agent_id, reported.settled);
        for serial in self.pending.of_agent(agent_id) {
            let entry = self.pending.get(agent_id, serial);
            let feedback = entry.and_then(|entry| entry.operation.feedback());
            if feedback.is_some_and(|(framework, id)| tells_of(reported, &framework, &id)) {
                // What the agent has is what it has made of it; how it went, the agent says next.
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

    /// Has a connected agent do what it has not seen and the registry has, if that can still be; whether there was any.
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
            .map_err(|error: NotConverted| error.to_string())?;
        let pid = agent.pid.clone();
        let rescinded = self.in_the_way(agent_id, &step.consumed);
        self.rescind(rescinded, out);
        self.book(agent_id, &step);
        self.pending.booked(agent_id, serial, version);
        tracing::info!(agent = %agent_id, operation = conversion.name(), "an operation is sent again");
        let apply = application(&operation, serial, version);
        out.agent(&pid, ToAgent::Apply(agent_id.clone(), Box::new(apply)));
        Ok(())
    }

    /// The operations on an agent that is out of reach, or gone: they are as `state` says until it is heard of again.
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
