//! Admission: how agents come, fall silent, come back and leave (SPEC 3.2).
//!
//! Pure decisions on [`Books`]. Each has two halves, because the registry stands between them: `prepare_...` says which
//! operation must be recorded first, the other half changes the books once it has been. It never pings and never waits.

use std::collections::BTreeSet;

use module_api::allocator::{AgentActivity, AgentAdded, AgentRemoved};
use protocol::message::registration::{
    AgentRegistered, DisownTasks, RegisterAgent, RegistrationRefused, RunningTask,
};
use protocol::message::scheduler::{KillTask, Lost};
use protocol::message::task::ShutDownFramework;
use protocol::{AgentId, AgentInfo, FrameworkId, Reason, Source, TaskId, TaskState, TaskStatus};
use resources::Role as ResourceRole;
use runtime::{Pid, Timestamp};

use crate::agents::{Agent, Standing};
use crate::books::{Books, master_status};
use crate::effects::{Effect, Effects, Tell, ToAgent, ToAllocator, ToScheduler};
use crate::registry::RegistryOperation;
use crate::tasks::Task;
use crate::validation;

/// What must be recorded before an agent is admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPrepared {
    /// Its id, old or new.
    pub agent_id: AgentId,
    /// What to record; `None` if the registry knows all of it.
    pub operation: Option<RegistryOperation>,
}

/// Why an agent is no longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It said that it leaves.
    Left,
    /// Its node has registered anew, without its id: the earlier process is dead, and its tasks with it.
    Replaced,
}

impl Books {
    /// Whether this agent may be admitted or come back, and what must be recorded first.
    pub fn prepare_agent(
        &mut self,
        message: &RegisterAgent,
    ) -> Result<AgentPrepared, RegistrationRefused> {
        self.counters.count(match message.agent.id {
            None => "master/messages_register_slave",
            Some(_) => "master/messages_reregister_slave",
        });
        validation::agent(&message.agent, &message.oversubscribed).map_err(|invalid| {
            RegistrationRefused::Never {
                reason: invalid.to_string(),
            }
        })?;
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
        let info = named(&message.agent, &agent_id);
        let unchanged = |known: &AgentInfo| *known == info;
        let operation = match self.agents.standing(&agent_id) {
            Standing::Registered(agent) => {
                let elsewhere = agent.pid.node().name() != message.pid.node().name();
                // A certificate's name outlives an agent's restarts: who comes by another is another agent.
                if elsewhere {
                    let reason = format!(
                        "agent.id is `{agent_id}`: expected one that no other agent has, but the one on node {} does",
                        agent.pid.node().name()
                    );
                    return Err(RegistrationRefused::NotNow { reason });
                }
                (!unchanged(&agent.info)).then_some(RegistryOperation::AdmitAgent { info })
            }
            Standing::Recovered => {
                let known = self.agents.recovered().find(|(id, _)| **id == agent_id);
                let known = known.is_some_and(|(_, known)| unchanged(known));
                (!known).then_some(RegistryOperation::AdmitAgent { info })
            }
            Standing::Unreachable(_) | Standing::Unknown => {
                Some(RegistryOperation::MarkAgentReachable { info })
            }
        };
        Ok(AgentPrepared {
            agent_id,
            operation,
        })
    }

    /// Earlier lives of the agent that has just registered with this id: others of the same node, which is no longer theirs.
    pub fn earlier_lives(&self, agent_id: &AgentId) -> Vec<AgentId> {
        let Some(agent) = self.agents.get(agent_id) else {
            return Vec::new();
        };
        let node = agent.pid.node();
        let others = self.agents.iter().filter(|other| other.id != *agent_id);
        let earlier = others.filter(|other| {
            let theirs = other.pid.node();
            theirs.name() == node.name() && theirs != node
        });
        earlier.map(|other| other.id.clone()).collect()
    }

    /// The registry knows the agent: it is registered and connected from now on, and its tasks are compared with the books.
    pub fn admit_agent(
        &mut self,
        message: RegisterAgent,
        agent_id: AgentId,
        total_ping_timeout: std::time::Duration,
        now: Timestamp,
        out: &mut Effects,
    ) -> AgentRegistered {
        let before = self.agents.get(&agent_id).cloned();
        self.counters.count(match &message.agent.id {
            None if before.is_none() => "master/slave_registrations",
            _ => "master/slave_reregistrations",
        });
        self.rescind_of_agent(&agent_id, out);
        if let Some(before) = before.as_ref().filter(|before| before.pid != message.pid) {
            out.push(Effect::Unlink(before.pid.clone()));
        }
        let agent = Agent {
            id: agent_id.clone(),
            info: named(&message.agent, &agent_id),
            pid: message.pid.clone(),
            version: message.version.clone(),
            connected: true,
            session: 0,
            registered: before.as_ref().map_or(now, |before| before.registered),
            reregistered: (before.is_some() || message.agent.id.is_some()).then_some(now),
            oversubscribed: message.oversubscribed.clone(),
        };
        let added = AgentAdded {
            agent_id: agent_id.clone(),
            session: 0,
            info: agent.info.clone(),
            oversubscribed: agent.oversubscribed.clone(),
            used: Vec::new(),
        };
        let session = self.agents.register(agent);
        out.push(Effect::Link(message.pid.clone()));
        out.push(Effect::Watch(agent_id.clone(), session));
        self.compare_tasks(&agent_id, message, now, out);
        self.answer_early_kills(now, out);
        let held = self.tasks.on_agent(&agent_id).map(|on| on.held().clone());
        out.allocator(ToAllocator::AgentAdded(Box::new(AgentAdded {
            session,
            used: held.unwrap_or_default().into_iter().collect(),
            ..added
        })));
        AgentRegistered {
            agent_id,
            master: self.master.clone(),
            total_ping_timeout,
        }
    }

    /// Brings the books and the agent's report together: what only the books have did not survive, what only the agent has
    /// is adopted if its framework is known, else ended.
    fn compare_tasks(
        &mut self,
        agent_id: &AgentId,
        message: RegisterAgent,
        now: Timestamp,
        out: &mut Effects,
    ) {
        for info in message.frameworks {
            let Some(id) = info.id.clone() else { continue };
            if self.frameworks.get(&id).is_none() && !self.frameworks.is_removed(&id) {
                self.recover_framework(id, info, None, now, out);
            }
        }
        let mut reported = BTreeSet::new();
        let mut disowned = Vec::new();
        let mut over: BTreeSet<FrameworkId> = BTreeSet::new();
        for running in message.tasks {
            let key = (running.framework_id.clone(), running.info.task_id.clone());
            if self.frameworks.get(&key.0).is_none() {
                over.insert(key.0);
            } else if self.adopt(agent_id, running, now, out) {
                reported.insert(key);
            } else {
                disowned.push(key);
            }
        }
        disowned.extend(self.miss(agent_id, &reported, now, out));
        for framework_id in over {
            let gone = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
            out.agent(&message.pid, gone);
        }
        if !disowned.is_empty() {
            let tasks = disowned;
            out.agent(&message.pid, ToAgent::Disown(DisownTasks { tasks }));
        }
        self.kill_late(agent_id, &message.pid, out);
    }

    /// An agent has this task of a known framework: takes over its state. `false` if the books hold it for over.
    fn adopt(
        &mut self,
        agent_id: &AgentId,
        running: RunningTask,
        now: Timestamp,
        out: &mut Effects,
    ) -> bool {
        let RunningTask {
            framework_id,
            mut info,
            state,
        } = running;
        info.agent_id = agent_id.clone();
        if let Some(known) = self.tasks.get(&framework_id, &info.task_id) {
            if known.agent_id != *agent_id {
                return false;
            }
            let freed = self.tasks.update(&framework_id, &info.task_id, |task| {
                if !task.state.is_terminal() {
                    task.state = state;
                }
            });
            if let Some(freed) = freed {
                self.recovered(freed, None, out);
            }
            return true;
        }
        let whose = self.tasks.find(&framework_id, &info.task_id);
        if whose
            .is_some_and(|task| task.agent_id != *agent_id && task.state == TaskState::Unreachable)
        {
            // It was set aside with another agent, which alone can bring it back.
            return false;
        }
        if let Some(mut task) = self.tasks.take_unreachable(&framework_id, &info.task_id) {
            if state.is_terminal() {
                // Its agent tells of the end itself, after the updates that come before it.
                (task.agent_id, task.state) = (agent_id.clone(), state);
                self.tasks.insert(task, info.executor.as_ref());
                return true;
            }
            let status = TaskStatus::new(task.id.clone(), state, Source::Master, now)
                .because(Reason::AgentReregistered, "the agent is back")
                .on(agent_id);
            task.agent_id = agent_id.clone();
            task.observe(&status, state);
            self.tasks.insert(task, info.executor.as_ref());
            self.tell_status(&framework_id, status, out);
            return true;
        }
        let over = self
            .tasks
            .find(&framework_id, &info.task_id)
            .is_some_and(|task| task.agent_id == *agent_id);
        if over {
            // It ended here already: an end that the agent still reports only waits for its acknowledgement.
            return state.is_terminal();
        }
        let resources = allocated(&info.resources);
        let early = self
            .early_kills
            .remove(&(framework_id.clone(), info.task_id.clone()))
            .map(|(_, policy)| policy);
        let mut task = Task::placed(framework_id, &info, resources, state);
        task.kill = early;
        if state.is_terminal() {
            // Its framework has not acknowledged the end, and may not have heard what came before it.
            task.told = TaskState::Running;
        }
        self.tasks.insert(task, info.executor.as_ref());
        true
    }

    /// The agent has not got these tasks of the books: those that ended are completed, the others are over now. Gives the
    /// latter, so that the agent ends them should they still be on their way to it.
    fn miss(
        &mut self,
        agent_id: &AgentId,
        reported: &BTreeSet<(FrameworkId, TaskId)>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Vec<(FrameworkId, TaskId)> {
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return Vec::new();
        };
        let missed: Vec<_> = on
            .tasks()
            .filter(|key| !reported.contains(key))
            .cloned()
            .collect();
        let mut disowned = Vec::new();
        for (framework, id) in missed {
            let Some(task) = self.tasks.get(&framework, &id) else {
                continue;
            };
            if !task.told.is_terminal() {
                let state = task.end_or(match task.told {
                    TaskState::Staging => TaskState::Dropped,
                    _ => TaskState::Gone,
                });
                let message = "the agent came back without this task";
                let reason = Reason::Reconciliation;
                let known = self.frameworks.get(&framework);
                let status = master_status(known, &id, state, reason, message, now).on(agent_id);
                self.counters.task_ended(&status);
                let observed = status.clone();
                self.tasks.update(&framework, &id, |task| {
                    task.observe(&observed, observed.state);
                });
                self.tell_status(&framework, status, out);
                disowned.push((framework.clone(), id.clone()));
            }
            self.tasks.complete(&framework, &id);
        }
        disowned
    }

    /// Passes on the kills of tasks that still live: they came while the agent was not connected, or may have been lost.
    fn kill_late(&self, agent_id: &AgentId, pid: &Pid, out: &mut Effects) {
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return;
        };
        for (framework, id) in on.tasks() {
            let task = self.tasks.get(framework, id);
            let living = task.filter(|task| !task.state.is_terminal());
            let Some(kill) = living.and_then(|task| task.kill) else {
                continue;
            };
            let kill = KillTask {
                framework_id: framework.clone(),
                task_id: id.clone(),
                agent_id: Some(agent_id.clone()),
                kill_policy: kill,
            };
            out.agent(pid, ToAgent::Kill(kill));
        }
    }

    /// The link to an agent broke: it gets no work until it registers again.
    pub fn agent_disconnected(&mut self, pid: &Pid, out: &mut Effects) {
        let Some(agent) = self.agents.at(pid).filter(|agent| agent.connected) else {
            return;
        };
        let agent_id = agent.id.clone();
        self.agents
            .update(&agent_id, |agent| agent.connected = false);
        out.allocator(ToAllocator::AgentActivity(AgentActivity {
            agent_id: agent_id.clone(),
            active: false,
        }));
        self.rescind_of_agent(&agent_id, out);
    }

    /// The registry holds the agent for unreachable: its tasks are set aside until it comes back.
    pub fn agent_unreachable(&mut self, agent_id: &AgentId, since: Timestamp, out: &mut Effects) {
        self.rescind_of_agent(agent_id, out);
        self.counters.count("master/slave_unreachable_completed");
        self.counters.count("master/slave_removals");
        self.counters
            .count("master/slave_removals/reason_unhealthy");
        if let Some(agent) = self.agents.mark_unreachable(agent_id, since) {
            out.push(Effect::Unlink(agent.pid.clone()));
        }
        let status = |task: &Task| {
            let message = "the agent has not answered for too long";
            let state = TaskState::Unreachable;
            let mut status = TaskStatus::new(task.id.clone(), state, Source::Master, since)
                .because(Reason::AgentRemoved, message)
                .on(agent_id);
            status.unreachable_since = Some(since);
            status
        };
        let aside = self.tasks.set_aside(agent_id, |task| {
            // What the agent has told the master only, it tells again, in order, if it comes back.
            task.state = TaskState::Unreachable;
            let status = status(task);
            task.observe(&status, status.state);
        });
        for task in aside {
            let mut status = status(&task);
            if let Some(framework) = self.frameworks.get(&task.framework_id) {
                status.state = framework.told(status.state);
            }
            self.tell_status(&task.framework_id, status, out);
        }
        self.agent_lost(agent_id, out);
        self.answer_early_kills(since, out);
    }

    /// The registry has forgotten the agent, which is gone for good: its tasks are over.
    pub fn agent_removed(
        &mut self,
        agent_id: &AgentId,
        why: Removal,
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
        };
        self.rescind_of_agent(agent_id, out);
        self.counters.count("master/slave_removals");
        self.counters.count(counter);
        if let Some(agent) = self.agents.forget(agent_id) {
            out.push(Effect::Unlink(agent.pid.clone()));
        }
        let frameworks = &self.frameworks;
        let status = |task: &Task| {
            let known = frameworks.get(&task.framework_id);
            let state = task.end_or(TaskState::Gone);
            master_status(known, &task.id, state, Reason::AgentRemoved, words, now).on(agent_id)
        };
        let ended = self.tasks.end_all(agent_id, |task| {
            let status = status(task);
            task.observe(&status, status.state);
        });
        let told: Vec<_> = ended.iter().map(|task| status(task)).collect();
        for (task, status) in ended.into_iter().zip(told) {
            self.counters.task_ended(&status);
            self.tell_status(&task.framework_id, status, out);
        }
        self.agent_lost(agent_id, out);
        self.answer_early_kills(now, out);
    }

    /// Tells the allocator and every scheduler that the agent is no more (S133).
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

/// The resources with an allocation role in any case: an agent that was told none reports none.
fn allocated(resources: &resources::Resources) -> resources::Resources {
    let bare = resources.iter().any(|r| r.allocation_role().is_none());
    match (bare, ResourceRole::new("*")) {
        (true, Ok(star)) => resources
            .iter()
            .map(|resource| {
                let one = resources::Resources::from(resource.clone());
                match resource.allocation_role() {
                    Some(_) => one,
                    None => one.allocate(&star),
                }
            })
            .collect(),
        _ => resources.clone(),
    }
}
