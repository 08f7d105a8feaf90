//! Operations: what the registry has accepted is done, or given up in so many words, whoever falls; and never both.
//!
//! Judged by what masters ask their registries and are answered, by what agents say that is over, and by what frameworks are told:
//!
//! - no agent is told of an operation that the registry was not known to have;
//! - an operation whose framework was told that it is finished is never told to have ended otherwise, nor the other way round;
//! - at the end of a run that was quiet for long enough ([`RECOVERY`], [`CALM`] where there was no fault), what was accepted before that is over: its agent
//!   says so, or the registry has forgotten it, with its agent or alone. Of an agent that is out of reach for good nothing is said.
//!
//! The load names its operations, and no two alike. What the registry was asked and did not answer may have been done, and is not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::master::registry::RegistryOperation;
use protocol::message::operation::{ApplyOperation, OperationsSettled, ResourcesReported};
use protocol::message::registration::{RegisterAgent, ReregisterAgent};
use protocol::message::scheduler::OperationChanged;
use protocol::{AgentId, AgentResources, OperationId, OperationState};

use super::records::{Answered, Questions};
use super::recovery::{CALM, RECOVERY};
use super::{UNDER_WAY, broken};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::linear::{RegistryAnswer, RegistryRequest};

const NAME: &str = "operations";

/// The checker.
#[derive(Default)]
pub struct Operations {
    questions: Questions,
    /// What was accepted and is not over, and when.
    open: BTreeMap<(AgentId, u64), (Option<OperationId>, Duration)>,
    /// What the registry is known to have had.
    recorded: BTreeSet<OperationId>,
    /// Up to which serial all is over, by agent.
    settled: BTreeMap<AgentId, u64>,
    unreachable: BTreeSet<AgentId>,
    /// How each has ended, as its framework was told.
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

    /// What other agents were to do is over.
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
                // That an agent is removed may not have been answered.
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

    fn told(&mut self, agent: Option<&AgentId>, told: Option<&AgentResources>) {
        let settled = told.and_then(|told| told.settled);
        if let (Some(agent), Some(settled)) = (agent, settled) {
            self.settled(agent, settled);
        }
    }

    fn said(&mut self, spoken: &Spoken<'_>) -> Result<(), String> {
        if let Some(settled) = spoken.is::<OperationsSettled>() {
            self.settled(&settled.agent_id, settled.serial);
        } else if let Some(report) = spoken.is::<ResourcesReported>() {
            self.told(Some(&report.agent_id), Some(&report.resources));
        } else if let Some(arrives) = spoken.is::<RegisterAgent>() {
            self.told(arrives.agent.id.as_ref(), arrives.resources.as_ref());
        } else if let Some(returns) = spoken.is::<ReregisterAgent>() {
            self.told(returns.agent.id.as_ref(), returns.resources.as_ref());
        } else if let Some(apply) = spoken.is::<ApplyOperation>() {
            return self.sent(apply, spoken.to);
        } else if let Some(changed) = spoken.is::<OperationChanged>() {
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
        match event.what {
            What::Said(spoken) if !spoken.reply => {
                return self
                    .said(&spoken)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            What::FaultBegan(_) => self.had_faults = true,
            What::FaultsOver => self.quiet_since = Some(event.at),
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

    use super::super::stage::{Stage, agent, framework, seconds};
    use super::*;

    fn id() -> OperationId {
        OperationId::new("o").unwrap()
    }

    fn conversion() -> Conversion {
        Conversion::Reserve {
            resources: Resources::new(),
        }
    }

    /// The registry has one operation.
    fn stage() -> Stage<Operations> {
        let mut stage = Stage::new(Operations::default(), "cpus:4");
        let operation = AcceptedOperation {
            framework_id: Some(framework()),
            operation_id: Some(id()),
            conversion: conversion(),
        };
        let accept = RegistryOperation::AcceptOperations {
            agent_id: agent(),
            operations: vec![(1, operation)],
        };
        stage.recorded(accept);
        stage.fact(What::FaultsOver);
        stage
    }

    fn tells(stage: &mut Stage<Operations>, state: OperationState) {
        let status = OperationStatus::new(id(), state, "");
        stage.said("master", "framework-1", &OperationChanged { status });
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
        let mut left = stage();
        left.wait(CALM + seconds(1));
        left.is_broken("neither done nor given up");
        let mut done = stage();
        done.said("agent-1", "master", &settled);
        let (mut forgotten, mut gone, mut found_gone) = (stage(), stage(), stage());
        forgotten.recorded(forget);
        gone.recorded(remove);
        found_gone.reads(RegistryState::default());
        for mut stage in [done, forgotten, gone, found_gone] {
            stage.wait(CALM + seconds(1)).is_clean();
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
            let mut stage = stage();
            for state in states {
                tells(&mut stage, state);
            }
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("and then"),
            }
        }
    }

    #[test]
    fn no_agent_hears_of_what_the_registry_has_not() {
        for (name, is_clean) in [("o", true), ("other", false)] {
            let mut stage = stage();
            let apply = ApplyOperation {
                feedback: Some((framework(), OperationId::new(name).unwrap())),
                conversion: conversion(),
                version: Uuid([1; 16]),
                serial: Some(1),
            };
            stage.said("master", "agent-1", &apply);
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("before the registry has it"),
            }
        }
    }
}
