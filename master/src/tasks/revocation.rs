//! Revocation: tasks that must end so that a role's guarantee is met, or because they have run too
//! long.
//!
//! Pure decisions on [`MasterState`]. The allocator names the tasks or the maximum run time; the
//! choice is its policy. Here each framework is warned, again at every subscription, and each task
//! that runs past its deadline is killed as its framework would kill it. If it still runs after the
//! same time again, its executor is ended with all its tasks. If the guarantee is met otherwise,
//! tasks that are not killed yet are spared. Warnings are known to the leader only: the next leader
//! starts over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{ListedTask, TasksListed, TasksWanted, Victim, VictimsNamed};
use protocol::message::scheduler::{KillTask, TasksRevoked};
use protocol::text::reserved_labels;
use protocol::{AgentId, FrameworkId, Reason, Source, TaskId, TaskState, TaskStatus};
use resources::Resource;
use runtime::Timestamp;

use crate::roles::quota::{self, with_ancestors};
use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAllocator, ToScheduler};
use crate::state::size::in_frames;
use crate::tasks::Task;

/// The reason in the status of every revoked task.
const REASON: Reason = Reason::ContainerPreempted;
/// Minimum time between two attempts to end a task.
const STEP_MIN: Duration = Duration::from_secs(1);

/// A task by framework and id.
pub type TaskKey = (FrameworkId, TaskId);

/// Progress of a task's revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revocation {
    agent_id: AgentId,
    why: RevocationCause,
    /// The grace period, which starts again at the kill.
    grace: Duration,
    /// When it is killed, or when the next attempt follows.
    deadline: Timestamp,
    killed: bool,
}

/// Why a task must end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RevocationCause {
    /// This role is below its guarantee.
    Guarantee(String),
    /// It has run longer than this without the label of a long task.
    Overdue(Duration),
}

impl RevocationCause {
    fn role(&self) -> Option<&String> {
        match self {
            Self::Guarantee(role) => Some(role),
            Self::Overdue(_) => None,
        }
    }
}

impl std::fmt::Display for RevocationCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Guarantee(role) => write!(f, "role `{role}` lacks what is guaranteed to it"),
            Self::Overdue(most) => {
                let most = protocol::text::duration::format(*most);
                write!(f, "it has run for {most} and is not marked as long")
            }
        }
    }
}

/// All revocations.
pub(crate) type Revocations = BTreeMap<TaskKey, Revocation>;

impl MasterState {
    /// Sends the allocator the tasks on the agents that it asks about, and all tasks under
    /// revocation, in pieces. Offers there are rescinded first: no task is revoked for resources
    /// that nobody uses. Gives no answer while agents are awaited after an election, since a role
    /// may have its guarantee there.
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

    /// Rescinds offers on these agents, with any of the missing resources, to roles other than the
    /// ones below guarantee.
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
        // A task reported by an agent may have any label.
        let priority = reserved_labels::priority(&task.labels).unwrap_or_default();
        Some(ListedTask {
            framework_id: task.framework_id.clone(),
            task_id: task.id.clone(),
            agent_id: task.agent_id.clone(),
            resources: task.resources.clone(),
            // Its framework has killed it, but it may take its time, so it must go like any other.
            priority: if task.kill.is_some() {
                i32::MIN
            } else {
                priority
            },
            since: self.since(task),
            leaves: self.revocations.contains_key(key),
        })
    }

    /// When a task began to run; for a task of an earlier master at the latest this master's
    /// election.
    pub(crate) fn since(&self, task: &Task) -> Option<Timestamp> {
        let brought = task.statuses.is_empty() && task.state == TaskState::Running;
        task.since().or(brought.then_some(self.elected))
    }

    /// Handles the allocator's choice of tasks to revoke.
    pub fn victims_named(&mut self, named: VictimsNamed, now: Timestamp, out: &mut Effects) {
        let victim = |victim: Victim| {
            let key = (victim.framework_id, victim.task_id);
            (
                key,
                victim.agent_id,
                RevocationCause::Guarantee(victim.role),
            )
        };
        let victims = named.victims.into_iter().map(victim).collect();
        self.revoke(victims, named.grace, now, out);
    }

    /// Revokes these tasks: warns their frameworks and starts the grace period.
    pub(crate) fn revoke(
        &mut self,
        tasks: Vec<(TaskKey, AgentId, RevocationCause)>,
        grace: Duration,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let mut keys = Vec::new();
        for (key, agent_id, why) in tasks {
            if !self.may_be_revoked(&key, &agent_id) {
                continue; // Chosen before the allocator knew the latest changes.
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

    /// Only these roles are still below guarantee: spares tasks that were to end for any other
    /// role, unless killed already, and notifies their frameworks.
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
                continue; // Its end has been reported, or will be.
            };
            let mut status = self.last_sent_status(&framework, task, now);
            status.message = format!("no longer revoked: role `{role}` lacks nothing any more");
            self.counters.count("master/tasks_spared");
            self.tell_status(&framework, status, out);
        }
        // Overdue tasks that were under revocation have been skipped so far.
        self.revoke_overdue(now, out);
    }

    /// Warns the new scheduler of a framework about its tasks under revocation that are not killed
    /// yet.
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

    /// Sends each framework its revoked tasks, the remaining time and the cause.
    fn warn(&self, keys: &[TaskKey], now: Timestamp, out: &mut Effects) {
        let mut warned: BTreeMap<(&FrameworkId, &RevocationCause, Timestamp), Vec<TaskStatus>> =
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

    /// The status with which a framework is warned.
    fn warning(
        &self,
        (framework, id): &TaskKey,
        revocation: &Revocation,
        now: Timestamp,
    ) -> TaskStatus {
        let task = self.tasks.get(framework, id);
        let state = task.map_or(TaskState::Running, |task| task.told);
        let left = protocol::text::duration::format(revocation.deadline.saturating_since(now));
        let why = &revocation.why;
        let message = format!("revoked, since {why}: killed in {left} if it has not ended by then");
        let status = TaskStatus::new(id.clone(), state, Source::Master, now);
        let mut status = status.with_reason(REASON, message);
        status.executor_id = task.map(|task| task.executor_id.clone());
        status.on(&revocation.agent_id)
    }

    /// The deadline of these tasks has passed: kills running ones, and ends the executors of those
    /// that were killed and still run. Unreachable tasks wait for their agent, and ended ones for
    /// their framework's acknowledgement.
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
                continue; // A new task with that id and its own deadline.
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

    /// A new task with that id is launched: forgets the old one's revocation.
    pub(crate) fn forget_revocation(&mut self, framework: &FrameworkId, task: &TaskId) {
        if !self.revocations.is_empty() {
            self.revocations.remove(&(framework.clone(), task.clone()));
        }
    }

    /// Adds the cause to the last status of a killed task.
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
