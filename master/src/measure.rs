//! A crowd of agents that come back all at once, for benchmarks: what they say, and what the books decide of it.
//!
//! Pure: no mailbox, no registry and no wire; effects are counted and dropped. Nothing of a real master uses it.

use std::collections::BTreeMap;
use std::ops::Range;

use protocol::digest::{DigestKey, Printer};
use protocol::message::registration::{
    Held, RegisterAgent, ReregisterAgent, Reregistered, RunningTask,
};
use protocol::{
    AgentInfo, CommandInfo, FrameworkId, FrameworkInfo, InvalidId, MasterId, MasterInfo, Reason,
    Source, TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::{Invalid, Resources, Role};
use runtime::{NodeId, Pid, Timestamp};

use crate::books::Books;
use crate::comparison::Arrival;
use crate::config::Config;
use crate::effects::Effects;
use crate::registry::{FrameworkEntry, RegistryOperation, RegistryState};

/// How many frameworks the tasks belong to.
const FRAMEWORKS: u32 = 10;

/// A crowd cannot be made of these.
#[derive(Debug, thiserror::Error)]
pub enum NoCrowd {
    /// Some id is none.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// Some resources or roles are none.
    #[error(transparent)]
    Resources(#[from] Invalid),
    /// Some resources cannot be read.
    #[error(transparent)]
    Text(#[from] resources::ParseError),
}

/// Agents with running tasks, each with what it says when it comes back.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// All that it has.
    pub reports: Vec<RegisterAgent>,
    /// The same in short.
    pub summaries: Vec<ReregisterAgent>,
}

impl Crowd {
    /// So many agents with so many tasks each.
    pub fn new(agents: u32, tasks_each: u32) -> Result<Self, NoCrowd> {
        Self::of(0..agents, tasks_each)
    }

    /// Those of these numbers, as they would be in a crowd of all.
    pub fn of(numbers: Range<u32>, tasks_each: u32) -> Result<Self, NoCrowd> {
        let master = MasterId::new("m")?;
        let resources: Resources = "cpus:32;mem:65536;disk:500000;ports:[31000-32000]".parse()?;
        let task_resources: Resources = "cpus:0.5;mem:64".parse()?;
        let task_resources = task_resources.allocate(&Role::new("*")?);
        let key = DigestKey::new(*b"a crowd of tasks");
        let mut printer = Printer::new(key);
        let mut crowd = Self {
            reports: Vec::new(),
            summaries: Vec::new(),
        };
        for number in numbers {
            let agent = AgentInfo {
                hostname: format!("agent-{number}"),
                port: 5051,
                resources: resources.clone(),
                attributes: Default::default(),
                domain: None,
                id: Some(master.agent(number.into())),
            };
            let info = |task: u32| -> Result<RunningTask, NoCrowd> {
                let name = format!("{number}-{task}");
                Ok(RunningTask {
                    framework_id: whose(&master, number + task),
                    info: TaskInfo {
                        task_id: TaskId::new(&name)?,
                        name,
                        agent_id: master.agent(number.into()),
                        resources: task_resources.clone(),
                        command: Some(CommandInfo::shell("sleep 1000")),
                        executor: None,
                        data: Vec::new(),
                        kill_policy: None,
                        labels: Default::default(),
                    },
                    state: TaskState::Running,
                })
            };
            let mut held = Held {
                tasks: (0..tasks_each).map(info).collect::<Result<_, _>>()?,
                executors: Vec::new(),
                frameworks: (0..FRAMEWORKS).map(|f| framework(&master, f)).collect(),
            };
            held.drop_unused_frameworks();
            let pid = Pid::new("agent", NodeId::new(agent.hostname.as_str(), 1), 1);
            crowd.summaries.push(ReregisterAgent {
                agent: agent.clone(),
                pid: pid.clone(),
                version: "1".to_owned(),
                summary: printer.summary(&held),
                report: None,
                oversubscribed: Resources::default(),
                resources: None,
                term_seen: 0,
            });
            crowd.reports.push(RegisterAgent {
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
        Ok(crowd)
    }

    /// What a master that had them has recorded: the agents, and the frameworks of their tasks.
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

    /// Books of the next master, which has read that record and knows these books of the last one by its mirror.
    pub fn books_after(&self, last: &Books) -> Result<Books, NoCrowd> {
        let mut state = RegistryState::default();
        for operation in self.recorded() {
            match operation {
                RegistryOperation::AdmitAgent { info } => {
                    state.agents.extend(info.id.clone().map(|id| (id, info)));
                }
                RegistryOperation::AdmitFramework { info, deadline } => {
                    let id = info.id.clone();
                    let entry = FrameworkEntry { info, deadline };
                    state.frameworks.extend(id.map(|id| (id, entry)));
                }
                _ => {}
            }
        }
        let mut books = Self::empty_books()?;
        books.recover(state, Timestamp::default(), &mut Effects::new());
        books.expect(last);
        Ok(books)
    }

    /// Books of a master that knows nothing of them.
    pub fn empty_books() -> Result<Books, NoCrowd> {
        let info = MasterInfo {
            id: MasterId::new("m")?,
            hostname: "master".to_owned(),
            port: 5050,
            version: "1".to_owned(),
            term: 0,
            address: None,
            domain: None,
        };
        Ok(Books::new(info, &Config::default(), Timestamp::default()))
    }
}

fn whose(master: &MasterId, number: u32) -> FrameworkId {
    master.framework((number % FRAMEWORKS).into())
}

fn framework(master: &MasterId, number: u32) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(whose(master, number)),
        ..FrameworkInfo::new("nobody", "framework")
    }
}

/// What the books made of a crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Agents registered.
    pub registered: usize,
    /// Agents asked for more.
    pub asked: usize,
    /// Agents refused.
    pub refused: usize,
    /// Things that would have been done: messages, links and timers.
    pub effects: usize,
}

/// Lets the books decide on each agent that comes, as the master does between its mailbox and its registry.
pub fn decide(books: &mut Books, arrivals: impl IntoIterator<Item = Arrival>) -> Decided {
    let (mut decided, mut out) = (Decided::default(), Effects::new());
    let (patience, now) = (std::time::Duration::from_secs(75), Timestamp::default());
    for arrival in arrivals.into_iter().map(Box::new) {
        match books.prepare_agent(&arrival) {
            Err(_) => decided.refused += 1,
            Ok(prepared) => match books.compare(&prepared.agent_id, &arrival, &mut out) {
                Err(Reregistered::Registered(_)) => {}
                Err(Reregistered::Differs { .. } | Reregistered::Unknown) => decided.asked += 1,
                Ok(agreed) => {
                    let id = prepared.agent_id;
                    books.admit_agent(arrival, id.clone(), agreed, patience, now, &mut out);
                    decided.registered += usize::from(books.earlier_lives(&id).is_empty());
                }
            },
        }
        decided.effects += out.len();
        out.clear();
    }
    decided
}

/// All running tasks have told that they run, and so many of them, the same number of each framework, that they have ended, which their
/// frameworks have acknowledged. Gives how many have.
pub fn end_some(books: &mut Books, most: usize) -> usize {
    let each = most / books.tasks.frameworks().count().max(1);
    let of = books.tasks.frameworks();
    let tasks: Vec<(FrameworkId, TaskId, bool)> = of
        .flat_map(|(_, of)| {
            let numbered = of.active().enumerate();
            numbered.map(|(n, task)| (task.framework_id.clone(), task.id.clone(), n < each))
        })
        .collect();
    for (framework, task, ends) in &tasks {
        let mut observe = |state| {
            let status =
                TaskStatus::new(task.clone(), state, Source::Executor, Timestamp::default());
            let status = status.because(Reason::CommandExecutorFailed, "a word of its executor");
            books
                .tasks
                .update(framework, task, |task| task.observe(&status, state));
        };
        observe(TaskState::Running);
        if *ends {
            observe(TaskState::Finished);
            books.tasks.complete(framework, task);
        }
    }
    tasks.iter().filter(|(.., ends)| *ends).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_registered_by_its_reports_and_then_by_its_summaries() {
        let crowd = Crowd::new(20, 5).unwrap();
        let mut books = Crowd::empty_books().unwrap();
        let summaries = || crowd.summaries.iter().cloned().map(Arrival::from);
        let reports = crowd.reports.iter().cloned().map(Arrival::from);
        assert_eq!(decide(&mut books, summaries()).asked, 20);
        assert_eq!(decide(&mut books, reports).registered, 20);
        assert_eq!(decide(&mut books, summaries()).registered, 20);
        let mut next = crowd.books_after(&books).unwrap();
        assert_eq!(decide(&mut next, summaries()).registered, 20);
        assert_eq!(next.tasks.frameworks().count(), FRAMEWORKS as usize);
        let of = |number| books.tasks.of_framework(&whose(&books.master.id, number));
        let tasks = (0..FRAMEWORKS).filter_map(of).map(|of| of.active().count());
        assert_eq!(tasks.sum::<usize>(), 100);
    }
}
