//! Operations: an operation that the registry has accepted is done or reported as failed, across
//! crashes; and never both.
//!
//! Judged by the masters' registry requests and answers, by the agents' settled operations, and by
//! the statuses that frameworks receive:
//!
//! - no agent receives an operation that is not known to be in the registry;
//! - an operation that was reported to its framework as finished is never reported otherwise, nor
//!   the reverse;
//! - at the end of a run with a long enough quiet phase ([`RECOVERY`], [`CALM`] without faults)
//!   operations accepted before it are over: the agent reports so, or the registry has removed it,
//!   with its agent or alone. Agents that stay unreachable are not judged.
//!
//! The load names its operations uniquely. A registry request without an answer may have been done,
//! and is not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::master::registry::RegistryOperation;
use protocol::message::operation::{ApplyOperation, OperationsSettled, ResourcesReported};
use protocol::message::registration::{RegisterAgent, ReregisterAgent};
use protocol::message::scheduler::OperationChanged;
use protocol::{AgentId, AgentResources, OperationId, OperationState};

use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::records::{Answered, Questions};
use crate::checkers::recovery::{CALM, RECOVERY};
use crate::checkers::{UNDER_WAY, broken};
use crate::event::{Event, EventKind, SeenMessage};
use crate::linear::{RegistryAnswer, RegistryRequest};

const NAME: &str = "operations";

/// The checker.
#[derive(Default)]
pub struct Operations {
    questions: Questions,
    /// Accepted operations that are not over, and when.
    open: BTreeMap<(AgentId, u64), (Option<OperationId>, Duration)>,
    /// Operations that are known to have been in the registry.
    recorded: BTreeSet<OperationId>,
    /// The settled serial of each agent.
    settled: BTreeMap<AgentId, u64>,
    unreachable: BTreeSet<AgentId>,
    /// The result of each operation that its framework received.
    ended: BTreeMap<OperationId, OperationState>,
    had_faults: bool,
    quiet_since: Option<Duration>,
    judgements: u64,
}

impl Operations {
    fn applied(&mut self, operation: RegistryOperation, at: Duration) {
        match operation {
            RegistryOperation::AcceptOperations {
                agent_id,
                operations,
            } => {
                let settled = self.settled.get(&agent_id).copied().unwrap_or(0);
                for (serial, operation) in operations {
                    self.recorded.extend(operation.operation_id.clone());
                    if serial > settled {
                        let opened = (operation.operation_id, at);
                        self.open.insert((agent_id.clone(), serial), opened);
                    }
                }
            }
            RegistryOperation::ForgetOperations { operations } => {
                for key in operations {
                    self.judgements += u64::from(self.open.remove(&key).is_some());
                }
            }
            RegistryOperation::RemoveAgent { agent_id }
            | RegistryOperation::MarkAgentGone { agent_id, .. } => {
                self.keep(|agent| *agent != agent_id);
            }
            RegistryOperation::MarkAgentUnreachable { agent_id, .. } => {
                self.unreachable.insert(agent_id);
            }
            RegistryOperation::AdmitAgent { info }
            | RegistryOperation::MarkAgentReachable { info } => {
                if let Some(id) = info.id {
                    self.unreachable.remove(&id);
                }
            }
            _ => {}
        }
    }

    /// Removes the operations of other agents.
    fn keep(&mut self, is_there: impl Fn(&AgentId) -> bool) {
        let before = self.open.len();
        self.open.retain(|(agent, _), _| is_there(agent));
        self.judgements += (before - self.open.len()) as u64;
    }

    fn answered(&mut self, answered: Answered<'_>, at: Duration) {
        match (answered.request, answered.answer) {
            (RegistryRequest::Apply(operation), RegistryAnswer::Applied(_)) => {
                self.applied(*operation, at);
            }
            (RegistryRequest::Read, RegistryAnswer::Content(content)) => {
                let held = content.accepted.iter();
                let named = held.filter_map(|(.., one)| one.operation_id.clone());
                self.recorded.extend(named);
                // The removal of an agent may have no answer.
                let is_there = |agent: &AgentId| {
                    content.agents.contains_key(agent) || content.unreachable.contains_key(agent)
                };
                self.keep(is_there);
            }
            _ => {}
        }
    }

    fn settled(&mut self, agent: &AgentId, serial: u64) {
        let known = self.settled.entry(agent.clone()).or_default();
        *known = serial.max(*known);
        self.judgements += 1;
        self.open
            .retain(|(of, open), _| of != agent || *open > serial);
    }

    fn on_report(&mut self, agent: Option<&AgentId>, told: Option<&AgentResources>) {
        let settled = told.and_then(|told| told.settled);
        if let (Some(agent), Some(settled)) = (agent, settled) {
            self.settled(agent, settled);
        }
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        if let Some(settled) = observed.is::<OperationsSettled>() {
            self.settled(&settled.agent_id, settled.serial);
        } else if let Some(report) = observed.is::<ResourcesReported>() {
            self.on_report(Some(&report.agent_id), Some(&report.resources));
        } else if let Some(arrives) = observed.is::<RegisterAgent>() {
            self.on_report(arrives.agent.id.as_ref(), arrives.resources.as_ref());
        } else if let Some(returns) = observed.is::<ReregisterAgent>() {
            self.on_report(returns.agent.id.as_ref(), returns.resources.as_ref());
        } else if let Some(apply) = observed.is::<ApplyOperation>() {
            return self.sent(apply, observed.to);
        } else if let Some(changed) = observed.is::<OperationChanged>() {
            let status = &changed.status;
            return self.changed(&status.operation_id, status.state);
        }
        Ok(())
    }

    fn sent(&mut self, apply: &ApplyOperation, agent: &str) -> Result<(), String> {
        let Some((_, id)) = &apply.feedback else {
            return Ok(());
        };
        self.judgements += 1;
        match self.recorded.contains(id) {
            true => Ok(()),
            false => Err(format!(
                "{agent} is told of operation {id} before the registry has it"
            )),
        }
    }

    fn changed(&mut self, id: &OperationId, state: OperationState) -> Result<(), String> {
        if !state.is_terminal() {
            return Ok(());
        }
        self.judgements += 1;
        let before = *self.ended.entry(id.clone()).or_insert(state);
        let is_done = |state| state == OperationState::Finished;
        match is_done(before) == is_done(state) {
            true => Ok(()),
            false => Err(format!("operation {id} was {before} and then {state}")),
        }
    }
}

impl Checker for Operations {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(answered) = self.questions.see(event) {
            self.answered(answered, event.at);
        }
        match event.kind {
            EventKind::Sent(observed) if !observed.reply => {
                return self
                    .on_sent(&observed)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            EventKind::FaultBegan(_) => self.had_faults = true,
            EventKind::FaultsOver => self.quiet_since = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let mut open = self.open.iter();
        open.any(|((agent, _), (_, since))| {
            !self.unreachable.contains(agent) && *since + UNDER_WAY < at
        })
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let patience = match self.had_faults {
            true => RECOVERY,
            false => CALM,
        };
        let Some(quiet_since) = self.quiet_since else {
            return Ok(());
        };
        for ((agent, serial), (id, since)) in &self.open {
            if self.unreachable.contains(agent) || quiet_since.max(*since) + patience > at {
                continue;
            }
            let id = id.as_ref().map_or("without a name", OperationId::as_str);
            let what = format!(
                "operation {id}, {serial} of agent {agent}, was accepted at {since:?} and is neither done nor given up"
            );
            return broken(NAME, at, what);
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use ::master::registry::{AcceptedOperation, RegistryState};
    use protocol::{OperationStatus, Uuid};
    use resources::{Conversion, Resources};

    use super::*;
    use crate::checkers::fixture::{Fixture, agent, framework, seconds};

    fn id() -> OperationId {
        OperationId::new("o").unwrap()
    }

    fn conversion() -> Conversion {
        Conversion::Reserve {
            resources: Resources::new(),
        }
    }

    /// The registry has one operation.
    fn fixture() -> Fixture<Operations> {
        let mut fixture = Fixture::new(Operations::default(), "cpus:4");
        let operation = AcceptedOperation {
            framework_id: Some(framework()),
            operation_id: Some(id()),
            conversion: conversion(),
        };
        let accept = RegistryOperation::AcceptOperations {
            agent_id: agent(),
            operations: vec![(1, operation)],
        };
        fixture.recorded(accept);
        fixture.fact(EventKind::FaultsOver);
        fixture
    }

    fn tells(fixture: &mut Fixture<Operations>, state: OperationState) {
        let status = OperationStatus::new(id(), state, "");
        fixture.sent("master", "framework-1", &OperationChanged { status });
    }

    #[test]
    fn what_was_accepted_is_done_or_given_up() {
        let settled = OperationsSettled {
            agent_id: agent(),
            serial: 1,
        };
        let forget = RegistryOperation::ForgetOperations {
            operations: vec![(agent(), 1)],
        };
        let agent_id = agent();
        let remove = RegistryOperation::RemoveAgent { agent_id };
        let mut left = fixture();
        left.wait(CALM + seconds(1));
        left.is_broken("neither done nor given up");
        let mut done = fixture();
        done.sent("agent-1", "master", &settled);
        let (mut forgotten, mut gone, mut found_gone) = (fixture(), fixture(), fixture());
        forgotten.recorded(forget);
        gone.recorded(remove);
        found_gone.reads(RegistryState::default());
        for mut fixture in [done, forgotten, gone, found_gone] {
            fixture.wait(CALM + seconds(1)).is_clean();
        }
    }

    #[test]
    fn what_is_done_has_not_failed() {
        use OperationState::{Dropped, Failed, Finished, Pending};
        for (states, is_clean) in [
            ([Finished, Pending, Finished], true),
            ([Dropped, Failed, Dropped], true),
            ([Pending, Failed, Finished], false),
            ([Finished, Pending, Dropped], false),
        ] {
            let mut fixture = fixture();
            for state in states {
                tells(&mut fixture, state);
            }
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("and then"),
            }
        }
    }

    #[test]
    fn agents_get_only_recorded_operations() {
        for (name, is_clean) in [("o", true), ("other", false)] {
            let mut fixture = fixture();
            let apply = ApplyOperation {
                feedback: Some((framework(), OperationId::new(name).unwrap())),
                conversion: conversion(),
                version: Uuid([1; 16]),
                serial: Some(1),
            };
            fixture.sent("master", "agent-1", &apply);
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("before the registry has it"),
            }
        }
    }
}
