//! Synthetic agents that all register again at once, for benchmarks: their reports, and the
//! decisions.
//!
//! Pure: no mailbox, no registry and no wire; effects are counted and dropped. Not used by a real
//! master.

use std::collections::BTreeMap;
use std::ops::Range;

use protocol::digest::{DigestKey, Fingerprinter};
use protocol::message::registration::{
    AgentInventory, RegisterAgent, ReregisterAgent, Reregistered, RunningTask,
};
use protocol::{
    AgentInfo, CommandInfo, FrameworkId, FrameworkInfo, InvalidId, MasterId, MasterInfo, Reason,
    Source, TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::{Invalid, Resources, Role};
use runtime::{NodeId, Pid, Timestamp};

use crate::agents::comparison::Arrival;
use crate::config::Config;
use crate::registry::{FrameworkEntry, RegistryOperation, RegistryState};
use crate::state::MasterState;
use crate::state::effects::Effects;

/// The number of frameworks that own the tasks.
const FRAMEWORKS: u32 = 10;

/// Invalid parameters of synthetic agents.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticAgentsError {
    /// An invalid id.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// Invalid resources or roles.
    #[error(transparent)]
    Resources(#[from] Invalid),
    /// Resources that cannot be parsed.
    #[error(transparent)]
    Text(#[from] resources::ParseError),
}

/// Agents with running tasks, each with its reports.
#[derive(Clone, Debug)]
pub struct SyntheticAgents {
    /// Full reports.
    pub reports: Vec<RegisterAgent>,
    /// Summaries.
    pub summaries: Vec<ReregisterAgent>,
}

impl SyntheticAgents {
    /// This many agents with this many tasks each.
    pub fn new(agents: u32, tasks_each: u32) -> Result<Self, SyntheticAgentsError> {
        Self::of(0..agents, tasks_each)
    }

    /// The agents with these numbers.
    pub fn of(numbers: Range<u32>, tasks_each: u32) -> Result<Self, SyntheticAgentsError> {
        let master = MasterId::new("m")?;
        let resources: Resources = "cpus:32;mem:65536;disk:500000;ports:[31000-32000]".parse()?;
        let task_resources: Resources = "cpus:0.5;mem:64".parse()?;
        let task_resources = task_resources.allocate(&Role::new("*")?);
        let key = DigestKey::new(*b"a crowd of tasks");
        let mut printer = Fingerprinter::new(key);
        let mut synthetic = Self {
            reports: Vec::new(),
            summaries: Vec::new(),
        };
        for number in numbers {
            let agent = AgentInfo {
                id: Some(master.agent(number.into())),
                ..AgentInfo::new(format!("agent-{number}"), resources.clone())
            };
            let info = |task: u32| -> Result<RunningTask, SyntheticAgentsError> {
                let name = format!("{number}-{task}");
                Ok(RunningTask {
                    framework_id: owner_of(&master, number + task),
                    info: TaskInfo::new(
                        TaskId::new(&name)?,
                        master.agent(number.into()),
                        task_resources.clone(),
                    )
                    .with_command(CommandInfo::shell("sleep 1000")),
                    state: TaskState::Running,
                })
            };
            let mut held = AgentInventory {
                tasks: (0..tasks_each).map(info).collect::<Result<_, _>>()?,
                executors: Vec::new(),
                frameworks: (0..FRAMEWORKS).map(|f| framework(&master, f)).collect(),
            };
            held.drop_unused_frameworks();
            let pid = Pid::new("agent", NodeId::new(agent.hostname.as_str(), 1), 1);
            synthetic.summaries.push(ReregisterAgent {
                agent: agent.clone(),
                pid: pid.clone(),
                version: "1".to_owned(),
                summary: printer.summary(&held),
                report: None,
                oversubscribed: Resources::default(),
                resources: None,
                term_seen: 0,
            });
            synthetic.reports.push(RegisterAgent {
                agent,
                pid,
                version: "1".to_owned(),
                held,
                digest_key: key,
                oversubscribed: Resources::default(),
                resources: None,
                term_seen: 0,
            });
        }
        Ok(synthetic)
    }

    /// The registry's content for these agents and their frameworks.
    pub fn recorded(&self) -> Vec<RegistryOperation> {
        let admit = |info: &AgentInfo| RegistryOperation::AdmitAgent { info: info.clone() };
        let agents = self.reports.iter().map(|report| admit(&report.agent));
        let frameworks = self
            .reports
            .iter()
            .flat_map(|report| &report.held.frameworks);
        let by_id = frameworks.map(|info| (info.id.clone(), info.clone()));
        let by_id: BTreeMap<_, _> = by_id.collect();
        let frameworks = by_id.into_values().map(|info| {
            let deadline = None;
            RegistryOperation::AdmitFramework { info, deadline }
        });
        agents.chain(frameworks).collect()
    }

    /// The state of the next master, which has read that registry and has a mirror of this previous
    /// state.
    pub fn state_after(&self, last: &MasterState) -> Result<MasterState, SyntheticAgentsError> {
        let mut stored = RegistryState::default();
        for operation in self.recorded() {
            match operation {
                RegistryOperation::AdmitAgent { info } => {
                    stored.agents.extend(info.id.clone().map(|id| (id, info)));
                }
                RegistryOperation::AdmitFramework { info, deadline } => {
                    let id = info.id.clone();
                    let entry = FrameworkEntry { info, deadline };
                    stored.frameworks.extend(id.map(|id| (id, entry)));
                }
                _ => {}
            }
        }
        let mut state = Self::empty_state()?;
        state.recover(stored, Timestamp::default(), &mut Effects::new());
        state.expect(last);
        Ok(state)
    }

    /// The state of a master that knows none of them.
    pub fn empty_state() -> Result<MasterState, SyntheticAgentsError> {
        let info = MasterInfo {
            id: MasterId::new("m")?,
            hostname: "master".to_owned(),
            port: 5050,
            version: "1".to_owned(),
            term: 0,
            address: None,
            domain: None,
        };
        Ok(MasterState::new(
            info,
            &Config::default(),
            Timestamp::default(),
        ))
    }
}

fn owner_of(master: &MasterId, number: u32) -> FrameworkId {
    master.framework((number % FRAMEWORKS).into())
}

fn framework(master: &MasterId, number: u32) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(owner_of(master, number)),
        ..FrameworkInfo::new("nobody", "framework")
    }
}

/// The results for a set of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Agents registered.
    pub registered: usize,
    /// Agents asked for more.
    pub asked: usize,
    /// Agents refused.
    pub refused: usize,
    /// Effects: messages, links and timers.
    pub effects: usize,
}

/// Runs the decisions for each registering agent, as the master does between its mailbox and its
/// registry.
pub fn decide(state: &mut MasterState, arrivals: impl IntoIterator<Item = Arrival>) -> Decisions {
    let (mut decided, mut out) = (Decisions::default(), Effects::new());
    let (patience, now) = (std::time::Duration::from_secs(75), Timestamp::default());
    for arrival in arrivals.into_iter().map(Box::new) {
        match state.prepare_agent(&arrival) {
            Err(_) => decided.refused += 1,
            Ok(prepared) => match state.compare(&prepared.agent_id, &arrival, &mut out) {
                Err(Reregistered::Registered(_)) => {}
                Err(Reregistered::Differs { .. } | Reregistered::Unknown) => decided.asked += 1,
                Ok(agreed) => {
                    let id = prepared.agent_id;
                    state.admit_agent(arrival, id.clone(), agreed, patience, now, &mut out);
                    decided.registered += usize::from(state.earlier_lives(&id).is_empty());
                }
            },
        }
        decided.effects += out.len();
        out.clear();
    }
    decided
}

/// Reports all tasks as running, and ends `most` of them, equally many per framework, with
/// acknowledgement. Returns how many have ended.
pub fn end_some(state: &mut MasterState, most: usize) -> usize {
    let each = most / state.tasks.frameworks().count().max(1);
    let of = state.tasks.frameworks();
    let tasks: Vec<(FrameworkId, TaskId, bool)> = of
        .flat_map(|(_, of)| {
            let numbered = of.active().enumerate();
            numbered.map(|(n, task)| (task.framework_id.clone(), task.id.clone(), n < each))
        })
        .collect();
    for (framework, task, ends) in &tasks {
        let mut observe = |task_state| {
            let status = TaskStatus::new(
                task.clone(),
                task_state,
                Source::Executor,
                Timestamp::default(),
            );
            let status =
                status.with_reason(Reason::CommandExecutorFailed, "a word of its executor");
            state
                .tasks
                .update(framework, task, |task| task.observe(&status, task_state));
        };
        observe(TaskState::Running);
        if *ends {
            observe(TaskState::Finished);
            state.tasks.complete(framework, task);
        }
    }
    tasks.iter().filter(|(.., ends)| *ends).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_agents_register_by_report_and_by_summary() {
        let synthetic = SyntheticAgents::new(20, 5).unwrap();
        let mut state = SyntheticAgents::empty_state().unwrap();
        let summaries = || synthetic.summaries.iter().cloned().map(Arrival::from);
        let reports = synthetic.reports.iter().cloned().map(Arrival::from);
        assert_eq!(decide(&mut state, summaries()).asked, 20);
        assert_eq!(decide(&mut state, reports).registered, 20);
        assert_eq!(decide(&mut state, summaries()).registered, 20);
        let mut next = synthetic.state_after(&state).unwrap();
        assert_eq!(decide(&mut next, summaries()).registered, 20);
        assert_eq!(next.tasks.frameworks().count(), FRAMEWORKS as usize);
        let of = |number| {
            state
                .tasks
                .of_framework(&owner_of(&state.master.id, number))
        };
        let tasks = (0..FRAMEWORKS).filter_map(of).map(|of| of.active().count());
        assert_eq!(tasks.sum::<usize>(), 100);
    }
}
