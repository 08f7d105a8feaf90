//! Expectations: the previous leader's knowledge of each agent, from the mirror.
//!
//! Plain data. A new leader knows the agents from the registry, and their likely tasks and
//! executors from here. An agent with a matching digest is admitted at once, and another is asked
//! only for the differences. Nothing of it is in the state, offered or shown before the agent has
//! confirmed it. Kills are not taken over: drivers send them again. Dropped when no agent is
//! awaited.

use std::sync::Arc;

use protocol::digest::{DigestKey, Fingerprint, Fingerprinter};
use protocol::{AgentId, ExecutorInfo, FrameworkId};
use rustc_hash::FxHashMap;

use crate::state::MasterState;
use crate::tasks::Task;

/// Expectations of all agents.
#[derive(Debug, Default)]
pub struct Expected {
    by_agent: FxHashMap<AgentId, Load>,
}

/// Expected tasks and executors of one agent.
#[derive(Debug, Default)]
pub struct Load {
    tasks: Vec<Arc<Task>>,
    /// The frameworks' own executors.
    executors: Vec<(FrameworkId, Arc<ExecutorInfo>)>,
}

/// The expected entries that an agent has confirmed, each with its fingerprint.
#[derive(Clone, Debug, Default)]
pub struct Confirmed {
    /// Its tasks.
    pub(crate) tasks: Vec<(Arc<Task>, Fingerprint)>,
    /// The frameworks' own executors there.
    pub(crate) executors: Vec<(FrameworkId, Arc<ExecutorInfo>, Fingerprint)>,
}

impl Expected {
    /// The expectations from this state. Tasks on unreachable agents are left out: these agents
    /// send a full report.
    pub fn of(state: &MasterState) -> Self {
        let mut by_agent: FxHashMap<AgentId, Load> = FxHashMap::default();
        for task in state.tasks.frameworks().flat_map(|(_, of)| of.active()) {
            match by_agent.get_mut(&task.agent_id) {
                Some(load) => load.tasks.push(task.clone()),
                None => {
                    let load = by_agent.entry(task.agent_id.clone()).or_default();
                    load.tasks.push(task.clone());
                }
            }
        }
        for (agent, on) in state.tasks.agents() {
            let executors = on.executors_by_id().iter();
            let executors = executors.map(|((whose, _), (info, _))| (whose.clone(), info.clone()));
            let executors: Vec<_> = executors.collect();
            if !executors.is_empty() {
                by_agent.entry(agent.clone()).or_default().executors = executors;
            }
        }
        Self { by_agent }
    }

    /// The expectations of an agent, if any.
    pub fn on(&self, agent: &AgentId) -> Option<&Load> {
        self.by_agent.get(agent)
    }
}

impl Load {
    /// The owners of its entries, with repetitions.
    pub fn frameworks(&self) -> impl Iterator<Item = &FrameworkId> {
        let of_executors = self.executors.iter().map(|(framework, _)| framework);
        let of_tasks = self.tasks.iter().map(|task| &task.framework_id);
        of_tasks.chain(of_executors)
    }

    /// The tasks.
    pub fn tasks(&self) -> &[Arc<Task>] {
        &self.tasks
    }

    /// All entries with the fingerprints that the agent would compute.
    pub fn printed(&self, key: DigestKey) -> Confirmed {
        let mut printer = Fingerprinter::new(key);
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
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.executors.is_empty()
    }

    /// The fingerprints, in no particular order.
    pub fn prints(&self) -> impl Iterator<Item = Fingerprint> {
        let of_executors = self.executors.iter().map(|(.., print)| *print);
        let of_tasks = self.tasks.iter().map(|(_, print)| *print);
        of_tasks.chain(of_executors)
    }

    /// The entries with such places.
    pub fn only(mut self, is_part: impl Fn(u64) -> bool) -> Self {
        self.tasks.retain(|(_, print)| is_part(print.name_hash));
        self.executors
            .retain(|(.., print)| is_part(print.name_hash));
        self
    }
}
