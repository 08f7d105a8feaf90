//! The tasks and executors that the master knows, and the resources that they hold on each agent.
//!
//! Plain data: the index by framework, the index by agent and the sums of held resources change
//! together, only here. An ended task stays until its framework has acknowledged the end; then it
//! is among the completed tasks, of which the newest are kept. Sends nothing and reads no clock.
//!
//! | module | contents |
//! |---|---|
//! | `active_bytes` | bytes of active tasks and executors by framework |
//! | `agent_tasks` | the tasks and executors on one agent |
//! | `by_id` | a map from task ids to values, ordered by id, for very many tasks |
//! | `framework_tasks` | the tasks of one framework: active, completed, unreachable |
//! | `holdings` | the resources of each framework on one agent |
//! | `kill` | kills of tasks |
//! | `long` | the bound on tasks that run for long, per agent |
//! | `mirrored` | updates of the task tables in a mirror |
//! | `recent` | the newest tasks of some kind, bounded in number and bytes |
//! | `reconcile` | answers a framework's questions about its tasks |
//! | `revocation` | tasks that must end so that a role's guarantee is met |
//! | `status` | status updates: their effect, forwarding and acknowledgement |
//! | `task` | one task as the master remembers it |
//! | `visible` | the tasks and executors that a viewer may see |

mod active_bytes;
mod agent_tasks;
mod by_id;
mod framework_tasks;
mod holdings;
pub mod kill;
pub mod long;
mod mirrored;
mod recent;
pub mod reconcile;
pub mod revocation;
pub mod status;
mod task;
mod visible;

pub use active_bytes::{ACTIVE_BYTES_MAX, FREE_BYTES, counted};
pub use agent_tasks::AgentTasks;
pub use by_id::ById;
pub use framework_tasks::FrameworkTasks;
pub use holdings::Holdings;
pub use mirrored::TaskCondition;
pub use recent::Recent;
pub use task::Task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::digest::DigestKey;
use protocol::{AgentId, ExecutorId, ExecutorInfo, FrameworkId, TaskId, TaskState, Uuid};
use resources::Resources;
use rustc_hash::FxHashSet;

use crate::agents::by_agent::ByAgent;
use crate::agents::expected::Confirmed;
use crate::validation::size::executor_bytes;
use active_bytes::ActiveBytes;
use framework_tasks::of_framework;

/// Maximum ended tasks of a framework that wait for acknowledgement; further tasks are refused.
pub const UNACKNOWLEDGED_MAX: usize = 100_000;

/// Maximum notes that wait for the follower.
const NOTED_MAX: usize = 100_000;

/// How many finished tasks are remembered per framework.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Completed tasks.
    pub completed: usize,
    /// Tasks on unreachable agents.
    pub unreachable: usize,
}

/// Maximum newcomers that are tracked individually; beyond it every known task counts as one.
const NEWCOMERS_MAX: usize = 200_000;

/// All tasks and executors.
#[derive(Clone, Debug)]
pub struct Tasks {
    by_framework: BTreeMap<FrameworkId, Arc<FrameworkTasks>>,
    by_agent: ByAgent<Arc<AgentTasks>>,
    limits: Limits,
    /// Bytes of active tasks and executors; not maintained by a mirror.
    active_bytes: ActiveBytes,
    /// Number of active tasks that are to be killed.
    kills: usize,
    /// Notes since they were last taken, in order; `None` while there is no follower.
    noted: Option<Vec<TaskNote>>,
    /// Tasks that were launched, reported or refused while agents are awaited, and so are not where
    /// the previous leader had them.
    newcomers: Option<FxHashSet<(FrameworkId, TaskId)>>,
}

/// A note for the follower: a task when its framework was sent something about it, or when it was
/// over.
#[derive(Clone, Debug)]
pub struct TaskNote {
    /// The task.
    pub task: Arc<Task>,
    /// Whether it was over: another task may reuse its id afterwards.
    pub is_over: bool,
}

/// Resources that are no longer held.
#[derive(Clone, Debug, PartialEq)]
pub struct Freed {
    /// The former holder.
    pub framework_id: FrameworkId,
    /// The agent.
    pub agent_id: AgentId,
    /// The resources.
    pub resources: Resources,
}

impl Tasks {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Self {
            by_framework: BTreeMap::new(),
            by_agent: ByAgent::default(),
            limits,
            active_bytes: ActiveBytes::default(),
            kills: 0,
            noted: None,
            newcomers: None,
        }
    }

    /// Notes since they were last taken; `None` without a close enough follower.
    pub fn noted(&self) -> Option<&[TaskNote]> {
        self.noted.as_deref()
    }

    /// Takes the notes and starts a new list.
    pub fn take_noted(&mut self) -> Option<Vec<TaskNote>> {
        self.noted.replace(Vec::new())
    }

    /// Stops taking notes.
    pub fn unfollow(&mut self) {
        self.noted = None;
    }

    /// Starts or stops tracking newcomers. Called while there are none.
    pub(crate) fn track_newcomers(&mut self, told: bool) {
        self.newcomers = told.then(FxHashSet::default);
    }

    /// Whether a task with this id has arrived otherwise than by [`Tasks::take_over`]. Usually
    /// there is none, which needs no lookup.
    pub(crate) fn is_newcomer(&self, framework: &FrameworkId, task: &TaskId) -> bool {
        match &self.newcomers {
            Some(newcomers) if newcomers.is_empty() => false,
            Some(newcomers) => newcomers.contains(&(framework.clone(), task.clone())),
            None => self.find(framework, task).is_some(),
        }
    }

    fn note_newcomer(&mut self, task: &Task) {
        match &mut self.newcomers {
            Some(newcomers) if newcomers.len() >= NEWCOMERS_MAX => self.newcomers = None,
            Some(newcomers) => drop(newcomers.insert((task.framework_id.clone(), task.id.clone()))),
            None => {}
        }
    }

    /// An active task: running, or with an unacknowledged end.
    pub fn get(&self, framework: &FrameworkId, task: &TaskId) -> Option<&Task> {
        self.by_framework
            .get(framework)?
            .active
            .get(task)
            .map(Arc::as_ref)
    }

    /// A task in any condition: active, unreachable or completed.
    pub fn find(&self, framework: &FrameworkId, task: &TaskId) -> Option<&Task> {
        let of = self.by_framework.get(framework)?;
        let active = of.active.get(task);
        active
            .or_else(|| of.unreachable.get(task))
            .or_else(|| of.completed.get(task))
            .map(Arc::as_ref)
    }

    /// Whether a new task may not have this id. Unreachable tasks count too.
    pub fn is_taken(&self, framework: &FrameworkId, task: &TaskId) -> bool {
        self.by_framework
            .get(framework)
            .is_some_and(|of| of.active.contains_key(task) || of.unreachable.get(task).is_some())
    }

    /// Number of ended tasks of this framework that wait for acknowledgement.
    pub fn unacknowledged(&self, framework: &FrameworkId) -> usize {
        self.by_framework.get(framework).map_or(0, |of| of.ended)
    }

    /// Counted bytes of the framework's active tasks and executors, see [`ACTIVE_BYTES_MAX`].
    pub fn active_bytes(&self, framework: &FrameworkId) -> usize {
        self.active_bytes.of(framework)
    }

    /// The tasks of a framework, if it ever had one.
    pub fn of_framework(&self, framework: &FrameworkId) -> Option<&Arc<FrameworkTasks>> {
        self.by_framework.get(framework)
    }

    /// The tasks and executors on an agent, if any.
    pub fn on_agent(&self, agent: &AgentId) -> Option<&Arc<AgentTasks>> {
        self.by_agent.get(agent)
    }

    /// The agents that have tasks or executors of that framework.
    pub fn agents_of(&self, framework: &FrameworkId) -> BTreeSet<&AgentId> {
        let of = self.by_framework.get(framework).into_iter();
        let tasks = of.flat_map(|of| of.active()).map(|task| &task.agent_id);
        let own = |on: &AgentTasks| on.executors().any(|(owner, _)| owner == framework);
        let executors = self.by_agent.iter().filter(|(_, on)| own(on));
        tasks.chain(executors.map(|(agent, _)| agent)).collect()
    }

    /// The framework's own executor with that id on the agent.
    pub fn executor(
        &self,
        agent: &AgentId,
        framework: &FrameworkId,
        executor: &ExecutorId,
    ) -> Option<&ExecutorInfo> {
        self.by_agent.get(agent)?.executor(framework, executor)
    }

    /// Number of active tasks that are to be killed.
    pub fn kills(&self) -> usize {
        self.kills
    }

    /// All frameworks that have, or had, tasks.
    pub fn frameworks(&self) -> impl Iterator<Item = (&FrameworkId, &Arc<FrameworkTasks>)> {
        self.by_framework.iter()
    }

    /// Adds a launched task, with its framework's own executor if it has one. Their resources are
    /// held from now on.
    pub fn insert(&mut self, mut task: Task, executor: Option<&ExecutorInfo>) {
        self.remove(&task.framework_id.clone(), &task.id.clone());
        self.note_newcomer(&task);
        task.holds = !task.state.is_terminal();
        let on = Arc::make_mut(self.by_agent.made(&task.agent_id));
        if let Some(info) = executor.filter(|_| task.holds)
            && on.executor(&task.framework_id, &info.executor_id).is_none()
        {
            on.put_executor(&task.framework_id, info);
            self.active_bytes
                .add(&task.framework_id, executor_bytes(info));
        }
        if task.holds {
            on.hold(&task.framework_id, &task.resources);
        }
        on.put_task(&task);
        self.active_bytes.add(&task.framework_id, task.text_bytes());
        self.kills += usize::from(task.kill.is_some());
        let of = of_framework(&mut self.by_framework, &task.framework_id, self.limits);
        of.ended += usize::from(!task.holds);
        of.active.insert(&task.id.clone(), Arc::new(task));
    }

    /// Sets the key of the agent's digests.
    pub fn rekey(&mut self, agent: &AgentId, key: DigestKey) {
        let on = self.by_agent.made(agent);
        if on.key() == Some(key) {
            return;
        }
        let by_framework = &self.by_framework;
        let task = |framework: &FrameworkId, task: &TaskId| {
            let of = by_framework.get(framework)?;
            of.active.get(task).map(Arc::as_ref)
        };
        Arc::make_mut(on).rekey(key, task);
    }

    /// Takes over confirmed tasks and executors of a previously unknown agent, with prints made by
    /// this key. The state last sent to a task's framework is not known for certain: the agent's
    /// state is assumed, as for any reported task.
    pub(crate) fn take_over(&mut self, agent: &AgentId, key: DigestKey, confirmed: Confirmed) {
        let on = Arc::make_mut(self.by_agent.made(agent));
        for (mut task, print) in confirmed.tasks {
            let is_over = task.state.is_terminal();
            let told = if is_over {
                TaskState::Running
            } else {
                task.state
            };
            let as_brought = (told, None, None, !is_over);
            if (task.told, task.last, task.kill, task.holds) != as_brought {
                let task = Arc::make_mut(&mut task);
                (task.told, task.last, task.kill, task.holds) = as_brought;
            }
            if task.holds {
                on.hold(&task.framework_id, &task.resources);
            }
            on.put_print(&task, print);
            self.active_bytes.add(&task.framework_id, task.text_bytes());
            let of = of_framework(&mut self.by_framework, &task.framework_id, self.limits);
            of.ended += usize::from(is_over);
            of.active.insert(&task.id.clone(), task);
        }
        for (framework, info, print) in confirmed.executors {
            on.hold(&framework, &info.resources);
            self.active_bytes.add(&framework, executor_bytes(&info));
            on.executors
                .insert((framework, info.executor_id.clone()), (info, print));
        }
        on.begin(key);
    }

    /// Adds an executor reported by its agent, replacing the previous entry.
    pub fn insert_executor(
        &mut self,
        agent: &AgentId,
        framework: &FrameworkId,
        info: &ExecutorInfo,
    ) {
        let on = self.by_agent.made(agent);
        let known = on.executor(framework, &info.executor_id);
        if known != Some(info) {
            let before = known.map_or(0, executor_bytes);
            self.active_bytes.subtract(framework, before);
            self.active_bytes.add(framework, executor_bytes(info));
            Arc::make_mut(on).put_executor(framework, info);
        }
    }

    /// Changes a task. Returns the resources freed if that ended it.
    pub fn update(
        &mut self,
        framework: &FrameworkId,
        task: &TaskId,
        change: impl FnOnce(&mut Task),
    ) -> Option<Freed> {
        let of = FrameworkTasks::changed(self.by_framework.get_mut(framework)?);
        let known = of.active.get_mut(task)?;
        let newest = self.noted.as_ref().map(|_| known.statuses.last().cloned());
        let task = Arc::make_mut(known);
        let (before, was_killed) = (task.state, task.kill.is_some());
        let bytes = task.text_bytes();
        self.active_bytes.subtract(framework, bytes);
        change(task);
        let after = task.text_bytes();
        if after > bytes && self.active_bytes.of(framework) + counted(after) > ACTIVE_BYTES_MAX {
            task.shorten_newest_status();
        }
        self.active_bytes.add(framework, task.text_bytes());
        let is_killed = task.kill.is_some();
        self.kills = (self.kills + usize::from(is_killed)).saturating_sub(was_killed.into());
        let ended = task.holds && task.state.is_terminal();
        task.holds &= !ended;
        let is_reported = newest.is_some_and(|newest| newest.as_ref() != task.statuses.last());
        if is_reported {
            note(&mut self.noted, known, false);
        }
        let task = &**known;
        if task.state == before && !ended {
            return None;
        }
        of.ended += usize::from(ended);
        let on = Arc::make_mut(self.by_agent.get_mut(&task.agent_id)?);
        // The digest depends only on the task's state.
        on.put_task(task);
        if !ended {
            return None;
        }
        on.free(framework, &task.resources);
        Some(Freed {
            framework_id: framework.clone(),
            agent_id: task.agent_id.clone(),
            resources: task.resources.clone(),
        })
    }

    /// Handles the framework's acknowledgement; completes the task if it was for the last status.
    pub fn acknowledge(&mut self, framework: &FrameworkId, task: &TaskId, uuid: Uuid) {
        let last = |task: &Task| task.last == Some(uuid) && !task.holds;
        if self.get(framework, task).is_some_and(last) {
            self.complete(framework, task);
        }
    }

    /// Completes a task that is over and needs no acknowledgement. Returns the resources it still
    /// held.
    pub fn complete(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<Freed> {
        let (task, freed) = self.remove(framework, task)?;
        self.keep(task);
        freed
    }

    /// Adds a task to the completed ones.
    fn keep(&mut self, task: Arc<Task>) {
        note(&mut self.noted, &task, true);
        let of = of_framework(&mut self.by_framework, &task.framework_id, self.limits);
        of.completed.push(task);
    }

    /// Adds a refused task to the completed ones, unless its id is known, so that reconciliation
    /// gives the same answer.
    pub fn refuse(&mut self, task: Task) {
        if self.find(&task.framework_id, &task.id).is_none() {
            self.note_newcomer(&task);
            self.keep(Arc::new(task));
        }
    }

    /// Removes an active task; returns it with the resources it held.
    fn remove(
        &mut self,
        framework: &FrameworkId,
        task: &TaskId,
    ) -> Option<(Arc<Task>, Option<Freed>)> {
        let of = FrameworkTasks::changed(self.by_framework.get_mut(framework)?);
        let mut task = of.active.remove(task)?;
        of.ended -= usize::from(!task.holds);
        self.active_bytes.subtract(framework, task.text_bytes());
        self.kills = self.kills.saturating_sub(task.kill.is_some().into());
        let mut freed = None;
        if let Some(on) = self.by_agent.get_mut(&task.agent_id) {
            let on = Arc::make_mut(on);
            on.take_task(framework, &task.id);
            if task.holds {
                on.free(framework, &task.resources);
                freed = Some(Freed {
                    framework_id: framework.clone(),
                    agent_id: task.agent_id.clone(),
                    resources: task.resources.clone(),
                });
            }
            if on.is_idle() {
                self.by_agent.remove(&task.agent_id);
            }
        }
        if task.holds {
            Arc::make_mut(&mut task).holds = false;
        }
        Some((task, freed))
    }

    /// Removes an ended executor; returns the resources of its own.
    pub fn remove_executor(
        &mut self,
        agent: &AgentId,
        framework: &FrameworkId,
        executor: &ExecutorId,
    ) -> Option<Freed> {
        let on = Arc::make_mut(self.by_agent.get_mut(agent)?);
        let info = on.take_executor(framework, executor)?;
        self.active_bytes.subtract(framework, executor_bytes(&info));
        if on.is_idle() {
            self.by_agent.remove(agent);
        }
        Some(Freed {
            framework_id: framework.clone(),
            agent_id: agent.clone(),
            resources: info.resources.clone(),
        })
    }

    /// Sets aside the tasks of an unreachable agent, changed by `change`, including those whose end
    /// the agent has not reported to the framework. Completes the tasks whose framework was sent an
    /// end. Returns the others.
    pub fn set_aside(
        &mut self,
        agent: &AgentId,
        mut change: impl FnMut(&mut Task),
    ) -> Vec<Arc<Task>> {
        let mut aside = Vec::new();
        let on = self.by_agent.get(agent).cloned().unwrap_or_default();
        for (framework, id) in on.tasks() {
            let Some((mut task, _)) = self.remove(framework, id) else {
                continue;
            };
            if task.told.is_terminal() {
                self.keep(task);
                continue;
            }
            change(Arc::make_mut(&mut task));
            let of = of_framework(&mut self.by_framework, framework, self.limits);
            of.unreachable.push(task.clone());
            aside.push(task);
        }
        self.remove_agent(agent);
        aside
    }

    /// Forgets an agent after the removal of its tasks.
    fn remove_agent(&mut self, agent: &AgentId) {
        let on = self.by_agent.remove(agent).unwrap_or_default();
        for (framework, info) in on.executors() {
            self.active_bytes.subtract(framework, executor_bytes(info));
        }
    }

    /// Removes a task that was set aside and is reported again.
    pub fn take_unreachable(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<Task> {
        let of = self.by_framework.get_mut(framework)?;
        of.unreachable.get(task)?;
        let task = FrameworkTasks::changed(of).unreachable.remove(task)?;
        Some(Arc::unwrap_or_clone(task))
    }

    /// Removes all tasks that were set aside with this agent.
    pub fn take_all_unreachable(&mut self, agent: &AgentId) -> Vec<Task> {
        let mut aside = Vec::new();
        for (framework, of) in &self.by_framework {
            let there = of.unreachable().filter(|task| task.agent_id == *agent);
            aside.extend(there.map(|task| (framework.clone(), task.id.clone())));
        }
        let taken = aside.iter();
        let taken = taken.filter_map(|(framework, id)| self.take_unreachable(framework, id));
        taken.collect()
    }

    /// Completes all tasks of an agent that is gone for good. `change` is called for those whose
    /// framework was not sent an end, and these are returned.
    pub fn end_all(
        &mut self,
        agent: &AgentId,
        mut change: impl FnMut(&mut Task),
    ) -> Vec<Arc<Task>> {
        let mut ended = Vec::new();
        let on = self.by_agent.get(agent).cloned().unwrap_or_default();
        for (framework, id) in on.tasks() {
            let Some((mut task, _)) = self.remove(framework, id) else {
                continue;
            };
            if !task.told.is_terminal() {
                change(Arc::make_mut(&mut task));
                ended.push(task.clone());
            }
            self.keep(task);
        }
        self.remove_agent(agent);
        ended
    }

    /// Removes a framework's tasks and executors everywhere. `change` is called for each that had
    /// not ended. Returns its tasks, all completed now, the freed resources, and its agents.
    pub fn remove_framework(
        &mut self,
        framework: &FrameworkId,
        mut change: impl FnMut(&mut Task),
    ) -> (Arc<FrameworkTasks>, Vec<Freed>, BTreeSet<AgentId>) {
        let mut freed = Vec::new();
        let mut agents = BTreeSet::new();
        let active: Vec<TaskId> = self
            .by_framework
            .get(framework)
            .map(|of| of.active.keys().cloned().collect())
            .unwrap_or_default();
        for id in active {
            let Some((mut task, free)) = self.remove(framework, &id) else {
                continue;
            };
            agents.insert(task.agent_id.clone());
            freed.extend(free);
            if !task.state.is_terminal() {
                change(Arc::make_mut(&mut task));
            }
            self.keep(task);
        }
        let executors: Vec<(AgentId, ExecutorId)> = self
            .by_agent
            .iter()
            .flat_map(|(agent, on)| {
                let mine = on.executors().filter(|(owner, _)| *owner == framework);
                mine.map(|(_, info)| (agent.clone(), info.executor_id.clone()))
            })
            .collect();
        for (agent, executor) in executors {
            freed.extend(self.remove_executor(&agent, framework, &executor));
            agents.insert(agent);
        }
        let of = self
            .by_framework
            .remove(framework)
            .unwrap_or_else(|| Arc::new(FrameworkTasks::new(self.limits)));
        (of, freed, agents)
    }
}

/// Notes a task if there is a close enough follower.
fn note(noted: &mut Option<Vec<TaskNote>>, task: &Arc<Task>, is_over: bool) {
    if let Some(noted) = noted {
        let task = task.clone();
        noted.push(TaskNote { task, is_over });
    }
    noted.take_if(|noted| noted.len() > NOTED_MAX);
}

#[cfg(test)]
mod tests;
