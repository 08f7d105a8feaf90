//! The tasks and executors that the master knows of, and the resources they hold on each agent.
//!
//! Plain data: the index by framework, the index by agent and the sums of what is held change together, here only.
//! A task that has ended stays until its framework has acknowledged that, then it is among the completed ones, of which
//! the newest are kept. It never tells anybody anything and never reads a clock.

mod active_bytes;
mod by_id;
mod holdings;
mod mirrored;
mod of_framework;
mod on_agent;
mod recent;
mod seen;
mod task;

pub use active_bytes::{ACTIVE_BYTES_MAX, FREE_BYTES, counted};
pub use by_id::ById;
pub use holdings::Holdings;
pub use mirrored::Place;
pub use of_framework::OfFramework;
pub use on_agent::OnAgent;
pub use recent::Recent;
pub use task::Task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::digest::DigestKey;
use protocol::{AgentId, ExecutorId, ExecutorInfo, FrameworkId, TaskId, TaskState, Uuid};
use resources::Resources;
use rustc_hash::FxHashSet;

use crate::by_agent::ByAgent;
use crate::expected::Confirmed;
use crate::validation::size::executor_bytes;
use active_bytes::ActiveBytes;
use of_framework::of_framework;

/// How many ended tasks of one framework may wait for their acknowledgement; more tasks are refused then.
pub const UNACKNOWLEDGED_MAX: usize = 100_000;

/// How many notes may wait for who follows the books.
const NOTED_MAX: usize = 100_000;

/// How many tasks that are over are remembered for each framework.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ended ones.
    pub completed: usize,
    /// Ones whose agents cannot be reached.
    pub unreachable: usize,
}

/// How many newcomers are told apart; of more, all that are known are taken for such.
const NEWCOMERS_MAX: usize = 200_000;

/// All tasks and executors.
#[derive(Clone, Debug)]
pub struct Tasks {
    by_framework: BTreeMap<FrameworkId, Arc<OfFramework>>,
    by_agent: ByAgent<Arc<OnAgent>>,
    limits: Limits,
    /// Of active tasks and of executors; not kept by a mirror.
    active_bytes: ActiveBytes,
    /// How many of the active ones are to be killed.
    kills: usize,
    /// What was noted since it was last taken, in its order; none while nobody follows.
    noted: Option<Vec<Noted>>,
    /// Those that were placed, brought or refused while agents are awaited, and so are not where the last leader had them.
    newcomers: Option<FxHashSet<(FrameworkId, TaskId)>>,
}

/// What is noted for who follows: how a task was when its framework was told something of it, or when it was over.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The task.
    pub task: Arc<Task>,
    /// Whether it was over: another one may have its id after that.
    pub is_over: bool,
}

/// Resources that nobody holds any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Freed {
    /// Who held them.
    pub framework_id: FrameworkId,
    /// Where.
    pub agent_id: AgentId,
    /// What.
    pub resources: Resources,
}

impl Tasks {
    /// None yet.
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

    /// What was noted since it was last taken; none if nobody follows, or not closely enough.
    pub fn noted(&self) -> Option<&[Noted]> {
        self.noted.as_deref()
    }

    /// Takes what was noted, and notes what happens from now on.
    pub fn take_noted(&mut self) -> Option<Vec<Noted>> {
        self.noted.replace(Vec::new())
    }

    /// Nobody follows any more.
    pub fn unfollow(&mut self) {
        self.noted = None;
    }

    /// From now on it is known which tasks are newcomers, or not any more. Done while there are none.
    pub(crate) fn tell_newcomers(&mut self, told: bool) {
        self.newcomers = told.then(FxHashSet::default);
    }

    /// Whether one of that id has come otherwise than by [`Tasks::take_over`]: seldom one has, and then no tree is looked into.
    pub(crate) fn is_newcomer(&self, framework: &FrameworkId, task: &TaskId) -> bool {
        match &self.newcomers {
            Some(newcomers) if newcomers.is_empty() => false,
            Some(newcomers) => newcomers.contains(&(framework.clone(), task.clone())),
            None => self.find(framework, task).is_some(),
        }
    }

    fn comes(&mut self, task: &Task) {
        match &mut self.newcomers {
            Some(newcomers) if newcomers.len() >= NEWCOMERS_MAX => self.newcomers = None,
            Some(newcomers) => drop(newcomers.insert((task.framework_id.clone(), task.id.clone()))),
            None => {}
        }
    }

    /// A task that runs, or whose end is not acknowledged.
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

    /// Whether a new task may not have this id (SPEC 3.3: also unreachable ones count).
    pub fn is_taken(&self, framework: &FrameworkId, task: &TaskId) -> bool {
        self.by_framework
            .get(framework)
            .is_some_and(|of| of.active.contains_key(task) || of.unreachable.get(task).is_some())
    }

    /// How many ended tasks of this framework wait for their acknowledgement.
    pub fn unacknowledged(&self, framework: &FrameworkId) -> usize {
        self.by_framework.get(framework).map_or(0, |of| of.ended)
    }

    /// Counted bytes of the framework's active tasks and executors: see [`ACTIVE_BYTES_MAX`].
    pub fn active_bytes(&self, framework: &FrameworkId) -> usize {
        self.active_bytes.of(framework)
    }

    /// The tasks of one framework, if it ever had one.
    pub fn of_framework(&self, framework: &FrameworkId) -> Option<&Arc<OfFramework>> {
        self.by_framework.get(framework)
    }

    /// What is held on one agent, if anything.
    pub fn on_agent(&self, agent: &AgentId) -> Option<&Arc<OnAgent>> {
        self.by_agent.get(agent)
    }

    /// The agents that have something of that framework.
    pub fn agents_of(&self, framework: &FrameworkId) -> BTreeSet<&AgentId> {
        let of = self.by_framework.get(framework).into_iter();
        let tasks = of.flat_map(|of| of.active()).map(|task| &task.agent_id);
        let own = |on: &OnAgent| on.executors().any(|(owner, _)| owner == framework);
        let executors = self.by_agent.iter().filter(|(_, on)| own(on));
        tasks.chain(executors.map(|(agent, _)| agent)).collect()
    }

    /// The framework's own executor of that id there.
    pub fn executor(
        &self,
        agent: &AgentId,
        framework: &FrameworkId,
        executor: &ExecutorId,
    ) -> Option<&ExecutorInfo> {
        self.by_agent.get(agent)?.executor(framework, executor)
    }

    /// How many tasks that are active, or have ended, are to be killed.
    pub fn kills(&self) -> usize {
        self.kills
    }

    /// All frameworks that have, or had, tasks.
    pub fn frameworks(&self) -> impl Iterator<Item = (&FrameworkId, &Arc<OfFramework>)> {
        self.by_framework.iter()
    }

    /// A task has been placed, with its framework's own executor if it has one. What they use is held from now on.
    pub fn insert(&mut self, mut task: Task, executor: Option<&ExecutorInfo>) {
        self.remove(&task.framework_id.clone(), &task.id.clone());
        self.comes(&task);
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

    /// The agent has told the key of its digests: they are kept by it from now on.
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

    /// An agent of which nothing was known has confirmed that it has this, by prints with this key. What its framework was told of a task
    /// is not known for certain: as of any task that an agent brings, it is what the agent knows.
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

    /// An executor runs there, as its agent says, in place of what was known of it.
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

    /// Changes a task; if that ended it, what it held is free.
    pub fn update(
        &mut self,
        framework: &FrameworkId,
        task: &TaskId,
        change: impl FnOnce(&mut Task),
    ) -> Option<Freed> {
        let of = OfFramework::changed(self.by_framework.get_mut(framework)?);
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
        let is_told = newest.is_some_and(|newest| newest.as_ref() != task.statuses.last());
        if is_told {
            note(&mut self.noted, known, false);
        }
        let task = &**known;
        if task.state == before && !ended {
            return None;
        }
        of.ended += usize::from(ended);
        let on = Arc::make_mut(self.by_agent.get_mut(&task.agent_id)?);
        // Of all that a digest sees only the state of a task changes.
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

    /// The framework has this status in hand; if it was the task's last, the task is completed.
    pub fn acknowledge(&mut self, framework: &FrameworkId, task: &TaskId, uuid: Uuid) {
        let last = |task: &Task| task.last == Some(uuid) && !task.holds;
        if self.get(framework, task).is_some_and(last) {
            self.complete(framework, task);
        }
    }

    /// The task is over and nobody needs to hear of it any more. What it still held is free.
    pub fn complete(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<Freed> {
        let (task, freed) = self.remove(framework, task)?;
        self.keep(task);
        freed
    }

    /// Puts a task among the completed ones.
    fn keep(&mut self, task: Arc<Task>) {
        note(&mut self.noted, &task, true);
        let of = of_framework(&mut self.by_framework, &task.framework_id, self.limits);
        of.completed.push(task);
    }

    /// A task was refused and will not run: it is among the completed ones, unless another of that id is known, so that
    /// its framework hears the same of it whenever it asks.
    pub fn refuse(&mut self, task: Task) {
        if self.find(&task.framework_id, &task.id).is_none() {
            self.comes(&task);
            self.keep(Arc::new(task));
        }
    }

    /// Takes a task out of the active ones, with what it held.
    fn remove(
        &mut self,
        framework: &FrameworkId,
        task: &TaskId,
    ) -> Option<(Arc<Task>, Option<Freed>)> {
        let of = OfFramework::changed(self.by_framework.get_mut(framework)?);
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

    /// An executor has ended; what it held itself is free.
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

    /// The agent cannot be reached: its tasks are set aside as `change` leaves them, until it comes back, also those whose
    /// end it has still to tell. Those whose framework was told an end are completed. Gives the others.
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

    /// Forgets what is on an agent, whose tasks have been taken out.
    fn remove_agent(&mut self, agent: &AgentId) {
        let on = self.by_agent.remove(agent).unwrap_or_default();
        for (framework, info) in on.executors() {
            self.active_bytes.subtract(framework, executor_bytes(info));
        }
    }

    /// A task that was set aside is heard of again: takes it out.
    pub fn take_unreachable(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<Task> {
        let of = self.by_framework.get_mut(framework)?;
        of.unreachable.get(task)?;
        let task = OfFramework::changed(of).unreachable.remove(task)?;
        Some(Arc::unwrap_or_clone(task))
    }

    /// Takes out all tasks that were set aside with this agent.
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

    /// The agent has gone for good: all its tasks are completed as `change` leaves them, which is called for those, and
    /// gives those, whose framework had not been told an end.
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

    /// The framework is no more: its tasks and executors are taken out everywhere. `change` is called for each that had
    /// not ended. Gives what it had (all completed now), what is free, and the agents it was on.
    pub fn remove_framework(
        &mut self,
        framework: &FrameworkId,
        mut change: impl FnMut(&mut Task),
    ) -> (Arc<OfFramework>, Vec<Freed>, BTreeSet<AgentId>) {
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
            .unwrap_or_else(|| Arc::new(OfFramework::new(self.limits)));
        (of, freed, agents)
    }
}

/// Notes a task, if somebody follows closely enough.
fn note(noted: &mut Option<Vec<Noted>>, task: &Arc<Task>, is_over: bool) {
    if let Some(noted) = noted {
        let task = task.clone();
        noted.push(Noted { task, is_over });
    }
    noted.take_if(|noted| noted.len() > NOTED_MAX);
}

#[cfg(test)]
mod tests;
