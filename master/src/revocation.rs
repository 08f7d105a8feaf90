//! Revocation: tasks that must go, for the sake of what is guaranteed to a role, or because they should have ended (S115, S121, S122, S123).
//!
//! Pure decisions on [`Books`]. The allocator names the tasks, or says how long one may run; which, and whether any, is its policy. Here each framework is warned, again
//! whenever it subscribes anew, and each task that has not ended by its deadline is killed as its framework would; one that is still there
//! as long afterwards ends with its executor, and that one's other tasks. Where what is guaranteed comes free otherwise, who is not killed
//! yet may stay. Only the leader knows who was warned: the next one begins anew,
//! with a new warning.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{ListedTask, TasksListed, TasksWanted, Victim, VictimsNamed};
use protocol::message::scheduler::{KillTask, TasksRevoked};
use protocol::{AgentId, FrameworkId, Reason, Source, TaskId, TaskState, TaskStatus, marks};
use resources::Resource;
use runtime::Timestamp;

use crate::books::Books;
use crate::effects::{Due, Effect, Effects, Tell, ToAllocator, ToScheduler};
use crate::quota::{self, with_ancestors};
use crate::size::in_frames;
use crate::tasks::Task;

/// What frameworks are told, whyever a task must go.
const REASON: Reason = Reason::ContainerPreempted;
/// The least time between two attempts to end a task.
const STEP_MIN: Duration = Duration::from_secs(1);

/// A task, by its framework and id.
pub type TaskKey = (FrameworkId, TaskId);

/// How far a task's revocation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revocation {
    agent_id: AgentId,
    why: Why,
    /// The time it had, and has again when it is killed.
    grace: Duration,
    /// When it is killed, or what is done next.
    deadline: Timestamp,
    killed: bool,
}

/// Why a task must go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// This role lacks what is guaranteed to it.
    Guarantee(String),
    /// It has run for longer than this without being marked as long.
    Overdue(Duration),
}

impl Why {
    fn role(&self) -> Option<&String> {
        match self {
            Self::Guarantee(role) => Some(role),
            Self::Overdue(_) => None,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Guarantee(role) => write!(f, "role `{role}` lacks what is guaranteed to it"),
            Self::Overdue(most) => {
                let most = protocol::duration::format(*most);
                write!(f, "it has run for {most} and is not marked as long")
            }
        }
    }
}

/// All of them.
pub(crate) type Revocations = BTreeMap<TaskKey, Revocation>;

impl Books {
    /// What runs where the allocator wants to know it, and what must go already anywhere, cut into messages. What is only offered there is
    /// taken back first: no task has to go for what nobody uses. No answer while agents have still to come back after an election: whoever
    /// seems to lack something may have it there.
    pub fn list_tasks(&mut self, wanted: &TasksWanted, out: &mut Effects) {
        if self.agents.recovered().next().is_some() {
            return;
        }
        self.rescind_for(wanted, out);
        let mut listed = Vec::new();
        for agent in &wanted.agents {
            let on = self.tasks.on_agent(agent).into_iter();
            let tasks = on.flat_map(|on| on.tasks());
            listed.extend(tasks.filter_map(|key| self.listed(key)));
        }
        let elsewhere = self.revocations.iter();
        let elsewhere = elsewhere.filter(|(_, one)| !wanted.agents.contains(&one.agent_id));
        listed.extend(elsewhere.filter_map(|(key, _)| self.listed(key)));
        let mut pieces = in_frames(listed);
        let last = pieces.pop().unwrap_or_default();
        let number = wanted.number;
        for tasks in pieces {
            let consumed = None;
            out.allocator(ToAllocator::TasksListed(TasksListed {
                number,
                tasks,
                consumed,
            }));
        }
        let mut consumed = quota::consumed(self);
        consumed.retain(|role, _| self.quotas.contains_key(role));
        out.allocator(ToAllocator::TasksListed(TasksListed {
            number,
            tasks: last,
            consumed: Some(consumed),
        }));
    }

    /// Takes back what is offered on these agents to others than those who lack something, where it has anything of that.
    fn rescind_for(&mut self, wanted: &TasksWanted, out: &mut Effects) {
        let lacks = |role: &str| with_ancestors(role).any(|role| wanted.roles.contains(role));
        let helps = |one: &Resource| !one.is_revocable() && wanted.names.contains(&one.name());
        let agents = wanted.agents.iter();
        let offers = agents.flat_map(|agent| self.offers.of_agent(agent));
        let offers =
            offers.filter(|offer| !lacks(&offer.role) && offer.resources.iter().any(helps));
        let offers = offers.map(|offer| offer.id.clone()).collect();
        self.rescind(offers, out);
    }

    fn listed(&self, key: &TaskKey) -> Option<ListedTask> {
        let task = self.tasks.get(&key.0, &key.1)?;
        if task.state.is_terminal() {
            return None;
        }
        // One that an agent has brought may bear anything.
        let priority = marks::priority(&task.labels).unwrap_or_default();
        Some(ListedTask {
            framework_id: task.framework_id.clone(),
            task_id: task.id.clone(),
            agent_id: task.agent_id.clone(),
            resources: task.resources.clone(),
            // Its framework wants no more of it; but it may take its time, so it must go like any other.
            priority: if task.kill.is_some() {
                i32::MIN
            } else {
                priority
            },
            since: self.since(task),
            leaves: self.revocations.contains_key(key),
        })
    }

    /// Since when a task runs; one that ran under an earlier master since this one leads at the latest.
    pub(crate) fn since(&self, task: &Task) -> Option<Timestamp> {
        let brought = task.statuses.is_empty() && task.state == TaskState::Running;
        task.since().or(brought.then_some(self.elected))
    }

    /// The allocator has named tasks that must make room.
    pub fn victims_named(&mut self, named: VictimsNamed, now: Timestamp, out: &mut Effects) {
        let victim = |victim: Victim| {
            let key = (victim.framework_id, victim.task_id);
            (key, victim.agent_id, Why::Guarantee(victim.role))
        };
        let victims = named.victims.into_iter().map(victim).collect();
        self.revoke(victims, named.grace, now, out);
    }

    /// These tasks must go: their frameworks are warned, and the tasks have their time.
    pub(crate) fn revoke(
        &mut self,
        tasks: Vec<(TaskKey, AgentId, Why)>,
        grace: Duration,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let mut keys = Vec::new();
        for (key, agent_id, why) in tasks {
            if !self.may_be_revoked(&key, &agent_id) {
                continue; // Named before the allocator heard what has changed.
            }
            keys.push(key.clone());
            let revocation = Revocation {
                agent_id,
                why,
                grace,
                deadline: now + grace,
                killed: false,
            };
            self.revocations.insert(key, revocation);
        }
        if keys.is_empty() {
            return;
        }
        self.counters.add("master/tasks_revoked", keys.len());
        self.warn(&keys, now, out);
        out.push(Effect::Later(grace, Due::Revoked(keys, now + grace)));
    }

    /// Only these roles lack something still: tasks that were to make room for any other may stay, unless they are killed already. Their
    /// frameworks are told how they are.
    pub fn spare(&mut self, lacking: &BTreeSet<String>, now: Timestamp, out: &mut Effects) {
        let mut spared = Vec::new();
        self.revocations.retain(|key, one| {
            let role = one
                .why
                .role()
                .filter(|role| !one.killed && !lacking.contains(*role));
            spared.extend(role.map(|role| (key.clone(), role.clone())));
            role.is_none()
        });
        for ((framework, id), role) in spared {
            let task = self.tasks.get(&framework, &id);
            let Some(task) = task.filter(|task| !task.state.is_terminal()) else {
                continue; // Its end has been told, or will be.
            };
            let mut status = self.as_told(&framework, task, now);
            status.message = format!("no longer revoked: role `{role}` lacks nothing any more");
            self.counters.count("master/tasks_spared");
            self.tell_status(&framework, status, out);
        }
        // Who has run for too long meanwhile was passed over, since it had to go already.
        self.revoke_overdue(now, out);
    }

    /// A framework has a scheduler that may not have heard of its tasks that must go: it is warned of those that are not killed yet.
    pub fn warn_again(&self, framework: &FrameworkId, now: Timestamp, out: &mut Effects) {
        let warned = |(key, one): &(&TaskKey, &Revocation)| {
            let task = self.tasks.get(&key.0, &key.1);
            let runs = task.is_some_and(|task| !task.state.is_terminal());
            key.0 == *framework && !one.killed && runs
        };
        let keys = self.revocations.iter().filter(warned);
        let keys: Vec<TaskKey> = keys.map(|(key, _)| key.clone()).collect();
        self.warn(&keys, now, out);
    }

    /// Tells each framework which of its tasks these are, how long they have, and why.
    fn warn(&self, keys: &[TaskKey], now: Timestamp, out: &mut Effects) {
        let mut warned: BTreeMap<(&FrameworkId, &Why, Timestamp), Vec<TaskStatus>> =
            BTreeMap::new();
        for key in keys {
            if let Some(one) = self.revocations.get(key) {
                let of = warned.entry((&key.0, &one.why, one.deadline));
                of.or_default().push(self.warning(key, one, now));
            }
        }
        for ((framework, why, deadline), statuses) in warned {
            let scheduler = self.frameworks.scheduler(framework);
            for tasks in in_frames(statuses) {
                let revoked = TasksRevoked {
                    tasks,
                    deadline,
                    grace: deadline.saturating_since(now),
                    role: why.role().cloned(),
                };
                out.scheduler(scheduler, ToScheduler::Revoked(revoked));
            }
        }
    }

    fn may_be_revoked(&self, key: &TaskKey, agent: &AgentId) -> bool {
        let task = self.tasks.get(&key.0, &key.1);
        let runs = task.is_some_and(|task| !task.state.is_terminal() && task.agent_id == *agent);
        runs && !self.revocations.contains_key(key)
    }

    /// How a task is that must go, and why it must.
    fn warning(
        &self,
        (framework, id): &TaskKey,
        revocation: &Revocation,
        now: Timestamp,
    ) -> TaskStatus {
        let task = self.tasks.get(framework, id);
        let state = task.map_or(TaskState::Running, |task| task.told);
        let left = protocol::duration::format(revocation.deadline.saturating_since(now));
        let why = &revocation.why;
        let message = format!("revoked, since {why}: killed in {left} if it has not ended by then");
        let status = TaskStatus::new(id.clone(), state, Source::Master, now);
        let mut status = status.because(REASON, message);
        status.executor_id = task.map(|task| task.executor_id.clone());
        status.on(&revocation.agent_id)
    }

    /// The time of these tasks is over: those that run are killed, and of those that were killed already and run all the same the executor
    /// ends. What cannot be reached is left until it is back, and what has ended until its framework knows.
    pub fn revocations_due(
        &mut self,
        keys: Vec<TaskKey>,
        deadline: Timestamp,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let mut left: BTreeMap<Duration, Vec<TaskKey>> = BTreeMap::new();
        let mut executors = BTreeSet::new();
        for key in keys {
            let revocation = self.revocations.get(&key).cloned();
            let Some(revocation) = revocation.filter(|one| one.deadline == deadline) else {
                continue; // Another task of that id, which has its own time.
            };
            let is_here = |task: &&Task| task.agent_id == revocation.agent_id;
            let known = self.tasks.find(&key.0, &key.1).filter(is_here);
            let active = self.tasks.get(&key.0, &key.1).filter(is_here);
            let waits = known.is_some_and(|task| !task.state.is_terminal());
            if active.is_none() && !waits {
                self.revocations.remove(&key);
                continue;
            }
            let task = active.filter(|task| !task.state.is_terminal());
            let mut killed = revocation.killed;
            if let Some(task) = task {
                let (framework_id, task_id) = key.clone();
                if killed {
                    executors.insert((
                        framework_id,
                        task.agent_id.clone(),
                        task.executor_id.clone(),
                    ));
                } else {
                    let agent_id = Some(revocation.agent_id);
                    let kill = KillTask {
                        framework_id,
                        task_id,
                        agent_id,
                        kill_policy: None,
                    };
                    self.pass_on_kill(kill, now, out);
                    killed = true;
                }
            }
            let step = revocation.grace.max(STEP_MIN);
            if let Some(revocation) = self.revocations.get_mut(&key) {
                revocation.killed = killed;
                revocation.deadline = now + step;
            }
            left.entry(step).or_default().push(key);
        }
        for (framework, agent, executor) in executors {
            self.end_executor(framework, &agent, executor, out);
        }
        for (step, keys) in left {
            out.push(Effect::Later(step, Due::Revoked(keys, now + step)));
        }
    }

    /// A task is launched: whatever one of its id had to do before was not it.
    pub(crate) fn forget_revocation(&mut self, framework: &FrameworkId, task: &TaskId) {
        if !self.revocations.is_empty() {
            self.revocations.remove(&(framework.clone(), task.clone()));
        }
    }

    /// Why a task ended that was killed to make room.
    pub(crate) fn explain_revoked(&self, framework: &FrameworkId, status: &mut TaskStatus) {
        if self.revocations.is_empty() {
            return;
        }
        let key = (framework.clone(), status.task_id.clone());
        let is_here = |one: &&Revocation| status.agent_id.as_ref() == Some(&one.agent_id);
        let revocation = self.revocations.get(&key).filter(is_here);
        let Some(revocation) = revocation.filter(|revocation| revocation.killed) else {
            return;
        };
        let ended = status.state.is_terminal() && status.state != TaskState::Finished;
        if ended || status.state == TaskState::Killing {
            status.reason = Some(REASON);
            if status.message.is_empty() {
                status.message = format!("revoked, since {}", revocation.why);
            }
        }
    }
}
