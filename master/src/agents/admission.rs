//! Admission: registration, loss, return and departure of agents.
//!
//! Pure decisions on [`MasterState`], each in two halves around the registry: `prepare_...` returns
//! the operation to record first, and the other half changes the state once it is recorded. Reports
//! are compared in [`crate::agents::comparison`]. Neither pings nor waits.

use module_api::allocator::{AgentActivity, AgentAdded, AgentRemoved};
use protocol::message::registration::{AgentRegistered, RegistrationRefused, ShutDownAgent};
use protocol::message::scheduler::Lost;
use protocol::{AgentId, AgentInfo, OperationState, Reason, Source, TaskState, TaskStatus};
use runtime::{Pid, Timestamp};

use crate::agents::comparison::{Agreed, Arrival};
use crate::agents::{Agent, Standing};
use crate::maintenance::draining::GONE;
use crate::registry::RegistryOperation;
use crate::state::effects::{Effect, Effects, SendEffects, ToAgent, ToAllocator, ToScheduler};
use crate::state::{MasterState, master_status};
use crate::tasks::Task;
use crate::validation;

/// The registry operation that admits an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPrepared {
    /// Its id, old or new.
    pub agent_id: AgentId,
    /// The operation to record; `None` if the registry is up to date.
    pub operation: Option<RegistryOperation>,
}

/// Why an agent was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It unregistered.
    Left,
    /// Its node registered again without the id: the earlier process and its tasks are dead.
    Replaced,
    /// Its machine is down. It is told to stop and never admitted again, even when the machine is
    /// back up: its tasks were reported as gone, and it may not know that.
    Maintenance,
    /// An operator marked it gone. It is told to stop and never admitted again.
    Gone,
}

impl Removal {
    /// The state and the reason of the agent's tasks. As in Mesos, only an agent that was marked
    /// gone gives `TASK_GONE_BY_OPERATOR`.
    fn of_tasks(self) -> (TaskState, Reason) {
        match self {
            Self::Gone => (TaskState::GoneByOperator, Reason::AgentRemovedByOperator),
            Self::Left | Self::Replaced | Self::Maintenance => {
                (TaskState::Lost, Reason::AgentRemoved)
            }
        }
    }

    /// The message of these statuses, as in Mesos. The hostname is unknown for an agent of an
    /// earlier master.
    fn message(self, hostname: Option<&str>) -> String {
        let cause = match self {
            Self::Left => "the agent unregistered",
            Self::Replaced => "a new agent registered at the same address",
            Self::Maintenance => "Operator initiated 'Machine DOWN'",
            Self::Gone => return "Agent has been marked gone".to_owned(),
        };
        match hostname {
            Some(hostname) => format!("Agent {hostname} removed: {cause}"),
            None => format!("Agent removed: {cause}"),
        }
    }
}

impl MasterState {
    /// Checks whether this agent may be admitted, and returns the operation to record first.
    pub fn prepare_agent(
        &mut self,
        message: &Arrival,
    ) -> Result<AgentPrepared, RegistrationRefused> {
        self.counters.count(match message.agent.id {
            None => "master/messages_register_slave",
            Some(_) => "master/messages_reregister_slave",
        });
        validation::agent(&message.agent, &message.oversubscribed)
            .and_then(|()| validation::check_report(message))
            .and_then(|()| match &message.resources {
                Some(reported) => validation::held(&message.agent.resources, reported),
                None => Ok(()),
            })
            .map_err(|invalid| RegistrationRefused::Never {
                reason: invalid.to_string(),
            })?;
        if let Some(machine) = self.down_machine(&message.agent.hostname, message.ip.as_deref()) {
            let reason = format!("agent.hostname: machine {machine} is down for maintenance");
            return Err(RegistrationRefused::Never { reason });
        }
        // An agent that asks again because the answer was lost gets the same id.
        let same_process = || self.agents.at(&message.pid).map(|agent| agent.id.clone());
        let Some(agent_id) = message.agent.id.clone().or_else(same_process) else {
            let agent_id = self.ids.agent();
            let info = named(&message.agent, &agent_id);
            let operation = Some(RegistryOperation::AdmitAgent { info });
            return Ok(AgentPrepared {
                agent_id,
                operation,
            });
        };
        if let Some(own) = same_process().filter(|own| *own != agent_id) {
            let reason =
                format!("agent.id is `{agent_id}`: expected the one this agent has, `{own}`");
            return Err(RegistrationRefused::Never { reason });
        }
        let named = || named(&message.agent, &agent_id);
        let admitted = |unchanged: bool| match unchanged {
            true => None,
            false => Some(RegistryOperation::AdmitAgent { info: named() }),
        };
        // The most frequent case first, just after an election.
        if let Some(known) = self.agents.awaited(&agent_id) {
            let unchanged = match &message.agent.id {
                Some(_) => *known == message.agent,
                None => *known == named(),
            };
            let operation = admitted(unchanged);
            return Ok(AgentPrepared {
                agent_id,
                operation,
            });
        }
        let operation = match self.agents.standing(&agent_id) {
            Standing::Registered(agent) => {
                let elsewhere = agent.pid.node().name() != message.pid.node().name();
                // The name in a certificate survives restarts: another name means another agent.
                if elsewhere {
                    let reason = format!(
                        "agent.id is `{agent_id}`: expected one that no other agent has, but the one on node {} does",
                        agent.pid.node().name()
                    );
                    return Err(RegistrationRefused::NotNow { reason });
                }
                admitted(match &message.agent.id {
                    Some(_) => agent.is_described(&message.agent),
                    None => agent.is_described(&named()),
                })
            }
            Standing::Recovered => admitted(false), // Handled above as an awaited agent.
            Standing::Gone => {
                let expected = "an id that is not marked as gone, by an operator or because its machine was taken down";
                let reason = format!("agent.id is `{agent_id}`: expected {expected}");
                return Err(RegistrationRefused::Never { reason });
            }
            Standing::Unreachable(_) | Standing::Unknown => {
                Some(RegistryOperation::MarkAgentReachable { info: named() })
            }
        };
        Ok(AgentPrepared {
            agent_id,
            operation,
        })
    }

    /// The known agent that comes from a down machine: it was unreachable when its machine went
    /// down, and must be removed as well. An id that belongs to another agent does not affect that
    /// one.
    pub fn comes_from_down_machine(&self, message: &Arrival) -> Option<AgentId> {
        self.down_machine(&message.agent.hostname, message.ip.as_deref())?;
        let same_process = self.agents.at(&message.pid).map(|agent| &agent.id);
        let agent_id = message.agent.id.as_ref().or(same_process)?;
        let is_own = match self.agents.standing(agent_id) {
            Standing::Registered(agent) => agent.pid.node().name() == message.pid.node().name(),
            Standing::Recovered | Standing::Unreachable(_) => true,
            Standing::Gone | Standing::Unknown => false,
        };
        let is_other = same_process.is_some_and(|own| own != agent_id);
        (is_own && !is_other).then(|| agent_id.clone())
    }

    /// Earlier incarnations of the agent that has just registered: other ids of the same node.
    pub fn earlier_lives(&self, agent_id: &AgentId) -> Vec<AgentId> {
        let Some(agent) = self.agents.get(agent_id) else {
            return Vec::new();
        };
        let others = self.agents.other_incarnations(agent.pid.node());
        let earlier = others.filter(|other| other.id != *agent_id);
        earlier.map(|other| other.id.clone()).collect()
    }

    /// Registers and connects an agent that the registry knows, and merges its tasks.
    pub fn admit_agent(
        &mut self,
        message: Box<Arrival>,
        agent_id: AgentId,
        agreed: Agreed,
        total_ping_timeout: std::time::Duration,
        now: Timestamp,
        out: &mut Effects,
    ) -> AgentRegistered {
        let Arrival {
            agent: mut info,
            pid,
            version,
            oversubscribed,
            digest_key,
            resources,
            ip,
            scope,
            held,
            ..
        } = *message;
        let before = self.agents.get(&agent_id);
        let before =
            before.map(|agent| (agent.pid.clone(), agent.registered, agent.unavailability));
        self.counters.count(match &info.id {
            None if before.is_none() => "master/slave_registrations",
            _ => "master/slave_reregistrations",
        });
        self.rescind_of_agent(&agent_id, out);
        if let Some((before, ..)) = &before {
            out.push(Effect::Void(before.clone()));
        }
        if let Some((before, ..)) = before.as_ref().filter(|(before, ..)| *before != pid) {
            out.push(Effect::Unlink(before.clone()));
        }
        let is_back = before.is_some() || info.id.is_some();
        let described = info.resources.clone();
        info.id = Some(agent_id.clone());
        if let Some(reported) = &resources {
            info.resources = reported.total.clone();
        }
        let machine = self.machines.of(&info.hostname, ip.as_deref());
        let agent = Agent {
            id: agent_id.clone(),
            described,
            resources_version: resources.as_ref().map(|reported| reported.version),
            pid: pid.clone(),
            version,
            connected: true,
            session: 0,
            registered: before
                .as_ref()
                .map_or(now, |(_, registered, _)| *registered),
            reregistered: is_back.then_some(now),
            oversubscribed,
            unavailability: machine.map(|(_, machine)| machine.unavailability),
            ip,
            orders: Default::default(),
            info,
        };
        // The first registration matters only where operations are merged.
        let is_first = resources.is_some()
            && matches!(
                self.agents.standing(&agent_id),
                Standing::Recovered | Standing::Unknown
            );
        let mut agent = self.agents.register(agent);
        out.push(Effect::Link(pid.clone()));
        out.push(Effect::Watch(agent_id.clone(), agent.session));
        if !self.take_over(&agent_id, digest_key, agreed) {
            self.tasks.rekey(&agent_id, digest_key);
        }
        match &resources {
            Some(reported) => {
                self.merge_operations(&agent_id, reported, is_first, out);
            }
            None => self.drop_dependents(&agent_id, None, out),
        }
        self.merge_report(&agent_id, &pid, scope, held, now, out);
        self.drop_expectations();
        self.answer_early_kills(now, out);
        if self.resume_operations(&agent_id, out) {
            // The merge has changed its resources.
            agent = self.agents.shared(&agent_id).unwrap_or(agent);
        }
        let held = self.tasks.on_agent(&agent_id);
        let held = held.into_iter().flat_map(|on| on.held().iter());
        out.allocator(ToAllocator::AgentAdded(Box::new(AgentAdded {
            agent_id: agent_id.clone(),
            session: self.agents.allocator_session(&agent),
            info: agent.info.clone(),
            oversubscribed: agent.oversubscribed.clone(),
            used: held.map(|(of, held)| (of.clone(), held.clone())).collect(),
        })));
        self.tell_inactive(&agent, out);
        self.send_drain(&agent.orders, &agent.pid, out);
        self.send_changed_plan(&agent, before.and_then(|(.., planned)| planned), out);
        AgentRegistered {
            agent_id,
            master: self.master.clone(),
            total_ping_timeout,
        }
    }

    /// Deactivates a newly added agent in the allocator if it is not to be offered.
    pub(crate) fn tell_inactive(&self, agent: &Agent, out: &mut Effects) {
        if !agent.is_active() {
            out.allocator(ToAllocator::AgentActivity(AgentActivity {
                agent_id: agent.id.clone(),
                active: false,
            }));
        }
    }

    /// The link to an agent broke: it gets no work until it registers again.
    pub fn agent_disconnected(&mut self, pid: &Pid, out: &mut Effects) {
        let Some(agent) = self.agents.at(pid).filter(|agent| agent.connected) else {
            return;
        };
        let agent_id = agent.id.clone();
        self.suspend_agent(&agent_id, out);
    }

    /// Disconnects the agent until it is admitted again: no work, no offers.
    pub(crate) fn suspend_agent(&mut self, agent_id: &AgentId, out: &mut Effects) {
        if self.agents.connected(agent_id).is_none() {
            return;
        }
        self.agents
            .update(agent_id, |agent| agent.connected = false);
        if let Some(agent) = self.agents.get(agent_id) {
            out.push(Effect::Void(agent.pid.clone()));
        }
        out.allocator(ToAllocator::AgentActivity(AgentActivity {
            agent_id: agent_id.clone(),
            active: false,
        }));
        self.rescind_of_agent(agent_id, out);
    }

    /// The agent is recorded as unreachable: its tasks are set aside until it returns.
    pub fn agent_unreachable(&mut self, agent_id: &AgentId, since: Timestamp, out: &mut Effects) {
        if self.agents.is_gone(agent_id) {
            return;
        }
        self.rescind_of_agent(agent_id, out);
        self.counters.count("master/slave_unreachable_completed");
        self.counters.count("master/slave_removals");
        self.counters
            .count("master/slave_removals/reason_unhealthy");
        let (agent, forgotten) = self.agents.mark_unreachable(agent_id, since);
        if let Some(forgotten) = forgotten {
            // As the registry does.
            self.pending.remove_agent(&forgotten);
        }
        match agent {
            Some(agent) => {
                out.push(Effect::Void(agent.pid.clone()));
                out.push(Effect::Unlink(agent.pid.clone()));
            }
            // Known to an earlier master and never registered at this one.
            None => self.counters.count("master/recovery_slave_removals"),
        }
        let status = |task: &Task| {
            let message = "health check timed out";
            let state = TaskState::Unreachable;
            let mut status = TaskStatus::new(task.id.clone(), state, Source::Master, since)
                .with_reason(Reason::AgentRemoved, message)
                .on(agent_id);
            status.unreachable_since = Some(since);
            status
        };
        let aside = self.tasks.set_aside(agent_id, |task| {
            // Updates that only the master has received are resent in order if the agent returns.
            task.state = TaskState::Unreachable;
            let status = status(task);
            task.observe(&status, status.state);
        });
        for task in aside {
            let mut status = status(&task);
            if let Some(framework) = self.frameworks.get(&task.framework_id) {
                status.state = framework.report_state(status.state);
            }
            self.tell_status(&task.framework_id, status, out);
        }
        self.forget_answers_of(agent_id);
        self.operations_of_lost_agent(agent_id, OperationState::Unreachable, out);
        self.agent_lost(agent_id, out);
        self.drop_expectations();
        self.answer_early_kills(since, out);
    }

    /// The agent is removed from the registry, if gone then since this time: its tasks are over.
    pub fn agent_removed(
        &mut self,
        agent_id: &AgentId,
        why: Removal,
        since: Timestamp,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let (words, counter) = match why {
            Removal::Left => (
                "the agent has left",
                "master/slave_removals/reason_unregistered",
            ),
            Removal::Replaced => (
                "the agent was started anew",
                "master/slave_removals/reason_registered",
            ),
            Removal::Maintenance => (
                "the agent's machine is down for maintenance",
                "master/slave_removals/reason_unregistered",
            ),
            Removal::Gone => (GONE, "master/slave_removals/reason_unregistered"),
        };
        self.rescind_of_agent(agent_id, out);
        self.counters.count("master/slave_removals");
        self.counters.count(counter);
        self.forget_answers_of(agent_id);
        let (lost, reason) = why.of_tasks();
        let of_operations = match why {
            Removal::Gone | Removal::Maintenance => OperationState::GoneByOperator,
            Removal::Left | Removal::Replaced => OperationState::Unknown,
        };
        let hostname = self.agents.get(agent_id).map(|agent| &agent.info.hostname);
        let message = why.message(hostname.map(String::as_str));
        let standing = self.agents.standing(agent_id);
        let was_there = matches!(standing, Standing::Registered(_) | Standing::Recovered);
        if let Some(agent) = self.agents.forget(agent_id) {
            out.push(Effect::Void(agent.pid.clone()));
            if matches!(why, Removal::Maintenance | Removal::Gone) {
                let reason = words.to_owned();
                out.agent(&agent.pid, ToAgent::ShutDown(ShutDownAgent { reason }));
            }
            out.push(Effect::Unlink(agent.pid.clone()));
        }
        let frameworks = &self.frameworks;
        let status = |task: &Task| {
            let known = frameworks.get(&task.framework_id);
            let state = task.end_or(lost);
            master_status(known, &task.id, state, reason, message.as_str(), now).on(agent_id)
        };
        let ended = self.tasks.end_all(agent_id, |task| {
            let status = status(task);
            task.observe(&status, status.state);
        });
        let statuses: Vec<_> = ended.iter().map(|task| status(task)).collect();
        for (task, status) in ended.into_iter().zip(statuses) {
            self.task_ended(&task.framework_id, &status);
            self.tell_status(&task.framework_id, status, out);
        }
        if matches!(why, Removal::Maintenance | Removal::Gone) {
            self.agents.mark_gone(agent_id, since);
            self.end_unreachable_tasks(agent_id, lost, reason, &message, now, out);
        }
        self.operations_of_lost_agent(agent_id, of_operations, out);
        // The loss of an unreachable agent has already been reported.
        if was_there {
            self.agent_lost(agent_id, out);
        }
        self.drop_expectations();
        self.answer_early_kills(now, out);
    }

    /// Reports the lost agent to the allocator and every scheduler.
    fn agent_lost(&self, agent_id: &AgentId, out: &mut Effects) {
        out.allocator(ToAllocator::AgentRemoved(AgentRemoved {
            agent_id: agent_id.clone(),
        }));
        for framework in self.frameworks.iter() {
            let lost = Lost {
                agent_id: agent_id.clone(),
                executor_id: None,
                termination: None,
            };
            out.scheduler(framework.scheduler.as_ref(), ToScheduler::Lost(lost));
        }
    }
}

fn named(info: &AgentInfo, id: &AgentId) -> AgentInfo {
    AgentInfo {
        id: Some(id.clone()),
        ..info.clone()
    }
}
