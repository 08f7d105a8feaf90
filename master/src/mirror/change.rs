//! Changes: what a mirror is told of the leader's books, one thing at a time.
//!
//! Plain data, and how each change is put into a mirror's books. The order matters only between changes of one thing. Nothing is
//! decided here, and a change of something that is not there changes nothing.

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
use crate::books::Books;
use crate::counters::Counted;
use crate::frameworks::Framework;
use crate::tasks::{OfFramework, Place, Task};
use crate::weights;

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// An agent is registered, or another than it was.
    Agent(Arc<Agent>),
    /// An agent is not registered any more.
    NoAgent(AgentId),
    /// The registry knows this agent, and it has not come back yet.
    Awaited(AgentId, Box<AgentInfo>),
    /// It has, or is given up.
    NotAwaited(AgentId),
    /// An agent cannot be reached, since then.
    Unreachable(AgentId, Timestamp),
    /// It can, or is forgotten.
    NotUnreachable(AgentId),
    /// What each framework holds on an agent.
    Held(AgentId, BTreeMap<FrameworkId, Resources>),
    /// A framework's own executor is on an agent.
    Executor(AgentId, FrameworkId, Arc<ExecutorInfo>),
    /// It is not there any more.
    NoExecutor(AgentId, FrameworkId, ExecutorId),
    /// Nothing is on an agent any more.
    Nothing(AgentId),
    /// A framework has not ended, and is new or another than it was.
    Framework(Arc<Framework>),
    /// A framework has ended or is not known any more.
    NoFramework(FrameworkId),
    /// A framework has ended, later than all others of which that was told. Its tasks follow.
    Completed(Arc<Framework>),
    /// A framework that has ended is forgotten.
    NotCompleted(FrameworkId),
    /// A task is there, or another than it was; one that is over is the newest there.
    Task(Whose, Place, Arc<Task>),
    /// A task is not there any more.
    NoTask(FrameworkId, Place, TaskId),
    /// No task of a framework is known any more, but for those of one that has ended.
    NoTasks(FrameworkId),
    /// An offer is out.
    Offer(Arc<Offer>),
    /// An offer is not out any more.
    NoOffer(OfferId),
    /// So many of this were counted.
    Count(Counted, u64),
    /// A role's quota; the default is none.
    Quota(String, Quota),
    /// A role's weight; 1 is the default.
    Weight(String, f64),
    /// What has passed between the leader and a framework that has not ended.
    Dealings(FrameworkId, Vec<u64>),
}

/// Where a framework's tasks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// With those of all frameworks.
    Known,
    /// With the framework, which has ended.
    Completed,
}

impl Change {
    /// Puts it into a mirror's books.
    pub fn apply(self, books: &mut Books) {
        let (agents, frameworks, tasks) =
            (&mut books.agents, &mut books.frameworks, &mut books.tasks);
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
            Self::Task(Whose::Known, place, task) => {
                let task = located(agents, task);
                tasks.mirrored(&task.framework_id).mirror(place, task);
            }
            Self::Task(Whose::Completed, place, task) => {
                let task = located(agents, task);
                if let Some(of) = frameworks.completed_tasks(&task.framework_id) {
                    Arc::make_mut(of).mirror(place, task);
                }
            }
            Self::NoTask(framework, place, id) => {
                tasks.mirrored(&framework).mirror_gone(place, &id);
            }
            Self::NoTasks(framework) => tasks.mirror_no_framework(&framework),
            Self::Offer(offer) => {
                // One that is put again must not stay in the index of another agent or framework.
                books.offers.remove(&offer.id);
                books.offers.insert(offer);
            }
            Self::NoOffer(id) => drop(books.offers.remove(&id)),
            Self::Count(counted, count) => books.counters.mirror(&counted, count),
            Self::Quota(role, quota) => {
                let quota = (!quota.is_default()).then_some(quota);
                keep(Arc::make_mut(&mut books.quotas), role, quota);
            }
            Self::Weight(role, weight) => {
                let weight = (weight != weights::DEFAULT).then_some(weight);
                keep(Arc::make_mut(&mut books.weights), role, weight);
            }
            Self::Dealings(id, counts) => frameworks.mirror_dealings(id, &counts),
        }
    }

    /// A task of this framework's, wherever they are kept.
    pub(super) fn tasks(whose: Whose, of: &OfFramework) -> impl Iterator<Item = Change> {
        let told = move |place| move |task: &Arc<Task>| Self::Task(whose, place, task.clone());
        let active = of.active().map(told(Place::Active));
        let completed = of.completed().map(told(Place::Completed));
        let unreachable = of.unreachable().map(told(Place::Unreachable));
        active.chain(completed).chain(unreachable)
    }
}

/// A task with the addresses of its containers, which no link tells: they are its agent's, as far as that is known by now.
fn located(agents: &Agents, mut task: Arc<Task>) -> Arc<Task> {
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
