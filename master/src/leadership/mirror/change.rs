//! Changes of the leader's state that a mirror receives, one object each.
//!
//! Plain data, and the effect of each change on a mirror's state. The order matters only between
//! changes of the same object. Nothing is decided here, and a change of a missing object has no
//! effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{
    AgentId, AgentInfo, ExecutorId, ExecutorInfo, FrameworkId, Offer, OfferId, Quota, TaskId,
    TaskStatus,
};
use resources::Resources;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agents::{Agent, Agents, keep};
use crate::frameworks::Framework;
use crate::roles::weights;
use crate::state::MasterState;
use crate::state::counters::Counted;
use crate::tasks::{FrameworkTasks, Task, TaskCondition};

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A registered agent, new or changed.
    Agent(Arc<Agent>),
    /// An agent is not registered any more.
    NoAgent(AgentId),
    /// An agent of the registry that has not returned.
    Awaited(AgentId, Box<AgentInfo>),
    /// It has returned, or was given up.
    NotAwaited(AgentId),
    /// An agent is unreachable since then.
    Unreachable(AgentId, Timestamp),
    /// It is reachable again, or forgotten.
    NotUnreachable(AgentId),
    /// Resources held on an agent, by framework.
    Held(AgentId, BTreeMap<FrameworkId, Resources>),
    /// A framework's own executor on an agent.
    Executor(AgentId, FrameworkId, Arc<ExecutorInfo>),
    /// It is removed.
    NoExecutor(AgentId, FrameworkId, ExecutorId),
    /// An agent's tasks, executors and resources are removed.
    Nothing(AgentId),
    /// A framework that has not ended, new or changed.
    Framework(Arc<Framework>),
    /// A framework has ended or is forgotten.
    NoFramework(FrameworkId),
    /// The newest ended framework. Its tasks follow.
    Completed(Arc<Framework>),
    /// An ended framework is forgotten.
    NotCompleted(FrameworkId),
    /// A task, new or changed; a completed one is the newest there.
    Task(TaskTable, TaskCondition, Arc<Task>),
    /// A task is removed.
    NoTask(FrameworkId, TaskCondition, TaskId),
    /// All tasks of a framework are removed, except those of an ended one.
    NoTasks(FrameworkId),
    /// An open offer.
    Offer(Arc<Offer>),
    /// An offer has ended.
    NoOffer(OfferId),
    /// The value of a counter.
    Count(Counted, u64),
    /// A role's quota; the default means none.
    Quota(String, Quota),
    /// A role's weight; 1 is the default.
    Weight(String, f64),
    /// The counters of a framework that has not ended.
    Dealings(FrameworkId, Vec<u64>),
}

/// Where a framework's tasks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskTable {
    /// In the table of all frameworks.
    Known,
    /// With the ended framework.
    Completed,
}

impl Change {
    /// Applies the change to a mirror's state.
    pub fn apply(self, state: &mut MasterState) {
        let (agents, frameworks, tasks) =
            (&mut state.agents, &mut state.frameworks, &mut state.tasks);
        match self {
            Self::Agent(agent) => agents.mirror(agent.id.clone(), Some(agent)),
            Self::NoAgent(id) => agents.mirror(id, None),
            Self::Awaited(id, info) => agents.mirror_awaited(id, Some(*info)),
            Self::NotAwaited(id) => agents.mirror_awaited(id, None),
            Self::Unreachable(id, since) => agents.mirror_unreachable(id, Some(since)),
            Self::NotUnreachable(id) => agents.mirror_unreachable(id, None),
            Self::Held(agent, held) => tasks.mirror_held(agent, held),
            Self::Executor(agent, framework, info) => {
                let key = (framework, info.executor_id.clone());
                tasks.mirror_executor(agent, key, Some(info));
            }
            Self::NoExecutor(agent, framework, id) => {
                tasks.mirror_executor(agent, (framework, id), None);
            }
            Self::Nothing(agent) => tasks.mirror_no_agent(&agent),
            Self::Framework(framework) => {
                frameworks.mirror(framework.id.clone(), Some(framework));
            }
            Self::NoFramework(id) => frameworks.mirror(id, None),
            Self::Completed(framework) => {
                frameworks.mirror_completed(framework, tasks.nothing());
            }
            Self::NotCompleted(id) => frameworks.mirror_forgotten(&id),
            Self::Task(TaskTable::Known, place, task) => {
                let task = mesos_pid(agents, task);
                tasks.mirrored(&task.framework_id).mirror(place, task);
            }
            Self::Task(TaskTable::Completed, place, task) => {
                let task = mesos_pid(agents, task);
                if let Some(of) = frameworks.completed_tasks(&task.framework_id) {
                    Arc::make_mut(of).mirror(place, task);
                }
            }
            Self::NoTask(framework, place, id) => {
                tasks.mirrored(&framework).mirror_gone(place, &id);
            }
            Self::NoTasks(framework) => tasks.mirror_no_framework(&framework),
            Self::Offer(offer) => {
                // When an offer is set again it must leave the indexes of its old agent or
                // framework.
                state.offers.remove(&offer.id);
                state.offers.insert(offer);
            }
            Self::NoOffer(id) => drop(state.offers.remove(&id)),
            Self::Count(counted, count) => state.counters.mirror(&counted, count),
            Self::Quota(role, quota) => {
                let quota = (!quota.is_default()).then_some(quota);
                keep(Arc::make_mut(&mut state.quotas), role, quota);
            }
            Self::Weight(role, weight) => {
                let weight = (weight != weights::DEFAULT).then_some(weight);
                keep(Arc::make_mut(&mut state.weights), role, weight);
            }
            Self::Dealings(id, counts) => frameworks.mirror_dealings(id, &counts),
        }
    }

    /// All tasks of this framework as changes.
    pub(super) fn tasks(whose: TaskTable, of: &FrameworkTasks) -> impl Iterator<Item = Change> {
        let told = move |place| move |task: &Arc<Task>| Self::Task(whose, place, task.clone());
        let active = of.active().map(told(TaskCondition::Active));
        let completed = of.completed().map(told(TaskCondition::Completed));
        let unreachable = of.unreachable().map(told(TaskCondition::Unreachable));
        active.chain(completed).chain(unreachable)
    }
}

/// Adds the addresses of a task's containers, which are not sent: they are its agent's, if known.
fn mesos_pid(agents: &Agents, mut task: Arc<Task>) -> Arc<Task> {
    let agent = agents.get(&task.agent_id);
    if let Some(address) = agent.and_then(|agent| agent.address()) {
        let contained = |status: &&mut TaskStatus| status.container_id.is_some();
        let statuses = &mut Arc::make_mut(&mut task).statuses;
        for status in statuses.iter_mut().filter(contained) {
            status.address = Some(address);
        }
    }
    task
}
