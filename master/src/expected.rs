//! Expected: what the last leader knew to be on the agents, as this master's mirror of its books has it (DESIGN 5).
//!
//! Plain data. A new leader knows from the registry which agents there are, and from here what each of them is likely to have: one whose
//! digest says so is taken at once, and one that has something else is asked only for where it differs. Nothing of it is in the books, is
//! offered or is shown before the agent itself has confirmed it so. It never asks anybody, and is forgotten when no agent is awaited.

use std::sync::Arc;

use protocol::digest::{DigestKey, Print, Printer};
use protocol::{AgentId, ExecutorInfo, FrameworkId};
use rustc_hash::FxHashMap;

use crate::books::Books;
use crate::tasks::Task;

/// What is expected of all agents.
#[derive(Debug, Default)]
pub struct Expected {
    by_agent: FxHashMap<AgentId, Load>,
}

/// What is expected to be on one agent.
#[derive(Debug, Default)]
pub struct Load {
    tasks: Vec<Arc<Task>>,
    /// The frameworks' own executors.
    executors: Vec<(FrameworkId, Arc<ExecutorInfo>)>,
}

/// What an agent has of what was expected, each with its print: it has confirmed so much.
#[derive(Clone, Debug, Default)]
pub struct Confirmed {
    /// Its tasks.
    pub(crate) tasks: Vec<(Arc<Task>, Print)>,
    /// The frameworks' own executors there.
    pub(crate) executors: Vec<(FrameworkId, Arc<ExecutorInfo>, Print)>,
}

impl Expected {
    /// What was on the agents by these books. Tasks of agents out of reach are not among it: those tell all when they are back.
    pub fn of(books: &Books) -> Self {
        let mut by_agent: FxHashMap<AgentId, Load> = FxHashMap::default();
        for task in books.tasks.frameworks().flat_map(|(_, of)| of.active()) {
            match by_agent.get_mut(&task.agent_id) {
                Some(load) => load.tasks.push(task.clone()),
                None => {
                    let load = by_agent.entry(task.agent_id.clone()).or_default();
                    load.tasks.push(task.clone());
                }
            }
        }
        for (agent, on) in books.tasks.agents() {
            let executors = on.executors_by_id().iter();
            let executors = executors.map(|((whose, _), (info, _))| (whose.clone(), info.clone()));
            let executors: Vec<_> = executors.collect();
            if !executors.is_empty() {
                by_agent.entry(agent.clone()).or_default().executors = executors;
            }
        }
        Self { by_agent }
    }

    /// What is expected on this agent, if anything.
    pub fn on(&self, agent: &AgentId) -> Option<&Load> {
        self.by_agent.get(agent)
    }
}

impl Load {
    /// The frameworks that it belongs to, each as often as something of it is there.
    pub fn frameworks(&self) -> impl Iterator<Item = &FrameworkId> {
        let of_executors = self.executors.iter().map(|(framework, _)| framework);
        let of_tasks = self.tasks.iter().map(|task| &task.framework_id);
        of_tasks.chain(of_executors)
    }

    /// The tasks.
    pub fn tasks(&self) -> &[Arc<Task>] {
        &self.tasks
    }

    /// All of it, as the agent would print it.
    pub fn printed(&self, key: DigestKey) -> Confirmed {
        let mut printer = Printer::new(key);
        let tasks = self.tasks.iter().map(|task| {
            let print = printer.task(&task.framework_id, &task.id, task.sketch());
            (task.clone(), print)
        });
        let tasks = tasks.collect();
        let executors = self.executors.iter().map(|(framework, info)| {
            let print = printer.executor(framework, info);
            (framework.clone(), info.clone(), print)
        });
        let executors = executors.collect();
        Confirmed { tasks, executors }
    }
}

impl Confirmed {
    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.executors.is_empty()
    }

    /// The prints, in no particular order.
    pub fn prints(&self) -> impl Iterator<Item = Print> {
        let of_executors = self.executors.iter().map(|(.., print)| *print);
        let of_tasks = self.tasks.iter().map(|(_, print)| *print);
        of_tasks.chain(of_executors)
    }

    /// The part of it that has such places.
    pub fn only(mut self, is_part: impl Fn(u64) -> bool) -> Self {
        self.tasks.retain(|(_, print)| is_part(print.place));
        self.executors.retain(|(.., print)| is_part(print.place));
        self
    }
}
