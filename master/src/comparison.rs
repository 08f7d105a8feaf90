//! Comparison: what an agent that comes has against what the books say of it (SPEC 3.2, Re-register; DESIGN 5).
//!
//! Pure decisions on [`Books`]. An agent that comes back tells what it has in short. If the books sum it up to the same, the two
//! agree; else it is told the books' sums and comes again with all that it has where its own differ. Nothing is remembered between the
//! two: whatever has changed meanwhile on either side, a report is taken only if the books, with that part replaced, sum up to
//! what the agent says that it has as a whole. An agent that tells all is not summed up. Meanwhile nothing of it is offered.
//!
//! Then both are brought together: what only the books have did not survive, what only the agent has is adopted if its
//! framework is known, else ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::digest::{self, Digest, DigestKey, FORM, Print, Printer, Summary};
use protocol::message::registration::{
    DisownTasks, Held, RegisterAgent, ReregisterAgent, Reregistered, RunningExecutor, RunningTask,
};
use protocol::message::scheduler::{KillTask, Lost};
use protocol::message::task::ShutDownFramework;
use protocol::{
    AgentId, AgentInfo, AgentResources, ExecutorId, FrameworkId, Reason, Source, TaskId, TaskState,
    TaskStatus,
};
use resources::{Resources, Role as ResourceRole};
use runtime::{Pid, Timestamp};

use crate::books::{Books, master_status};
use crate::effects::{Effects, Tell, ToAgent, ToScheduler};
use crate::expected::{Confirmed, Load};
use crate::tasks::Task;

/// An agent that comes, whichever way it says so.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Who it is.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version.
    pub version: String,
    /// What it lends.
    pub oversubscribed: Resources,
    /// The key of its digests.
    pub digest_key: DigestKey,
    /// What it has as a whole, in short; `None` if it tells all of it.
    pub summary: Option<Summary>,
    /// What of it is told in full.
    pub scope: Scope,
    /// That part.
    pub held: Held,
    /// The newest term of a master that it has seen.
    pub term_seen: u64,
    /// What operations have made of its resources.
    pub resources: Option<AgentResources>,
    /// The address that it comes from, if it comes over a network.
    pub ip: Option<String>,
}

/// The two agree. What the agent has confirmed of what was expected of it, if the books had nothing, comes with it.
#[derive(Clone, Debug, Default)]
pub struct Agreed(pub(crate) Confirmed);

/// What part of an agent is told in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    All,
    /// What is in these of so many buckets.
    Buckets {
        /// How many there are.
        of: u32,
        /// Which, in rising order.
        which: Vec<u32>,
    },
}

impl Scope {
    /// Whether nothing is in it.
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Buckets { which, .. } if which.is_empty())
    }

    /// Whether what has that place is in it.
    pub fn covers(&self, place: u64) -> bool {
        match self {
            Self::All => true,
            Self::Buckets { of, which } => {
                let bucket = digest::bucket(place, *of as usize);
                which.binary_search(&bucket).is_ok()
            }
        }
    }
}

impl From<RegisterAgent> for Arrival {
    fn from(message: RegisterAgent) -> Self {
        Self {
            agent: message.agent,
            pid: message.pid,
            version: message.version,
            oversubscribed: message.oversubscribed,
            digest_key: message.digest_key,
            summary: None,
            scope: Scope::All,
            held: message.held,
            term_seen: message.term_seen,
            resources: message.resources,
            ip: None,
        }
    }
}

impl From<ReregisterAgent> for Arrival {
    fn from(message: ReregisterAgent) -> Self {
        let (of, which, held) = match message.report {
            Some(report) => (report.buckets, report.differing, report.held),
            None => (1, Vec::new(), Held::default()),
        };
        Self {
            agent: message.agent,
            pid: message.pid,
            version: message.version,
            oversubscribed: message.oversubscribed,
            digest_key: message.summary.key,
            summary: Some(message.summary),
            scope: Scope::Buckets { of, which },
            held,
            term_seen: message.term_seen,
            resources: message.resources,
            ip: None,
        }
    }
}

impl Books {
    /// Whether the books agree with what the agent says that it has. If not, what it is to be answered, and nothing of it is
    /// offered until it comes again.
    pub fn compare(
        &mut self,
        agent_id: &AgentId,
        arrival: &Arrival,
        out: &mut Effects,
    ) -> Result<Agreed, Reregistered> {
        let Some(summary) = &arrival.summary else {
            return Ok(Agreed::default());
        };
        let differs = match self.sums(agent_id, arrival, summary) {
            Ok(agreed) => return Ok(agreed),
            Err(differs) => differs,
        };
        self.suspend_agent(agent_id, out);
        self.counters.count(match differs {
            Reregistered::Unknown => "master/slave_digests_unknown",
            _ => "master/slave_digests_differing",
        });
        Err(differs)
    }

    fn sums(
        &mut self,
        agent_id: &AgentId,
        arrival: &Arrival,
        summary: &Summary,
    ) -> Result<Agreed, Reregistered> {
        if summary.form != FORM {
            return Err(Reregistered::Unknown);
        }
        let key = match self.tasks.on_agent(agent_id) {
            Some(on) => on.key(),
            // An agent that has as little as the books is no other one.
            None if (summary.items, summary.sum) == (0, 0) => return Ok(Agreed::default()),
            None => return self.sums_expected(agent_id, arrival, summary),
        };
        if key != Some(summary.key) {
            self.tasks.rekey(agent_id, summary.key);
        }
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return Err(Reregistered::Unknown);
        };
        agree(on.digest(), || on.prints(), arrival, summary).map(|()| Agreed::default())
    }

    /// As [`Books::sums`], with what the last leader knew of an agent that has not been here yet.
    fn sums_expected(
        &self,
        agent_id: &AgentId,
        arrival: &Arrival,
        summary: &Summary,
    ) -> Result<Agreed, Reregistered> {
        let load = self.expected_on(agent_id).ok_or(Reregistered::Unknown)?;
        let confirmed = load.printed(summary.key);
        // Its buckets are counted only if it differs.
        let digest = Digest::of(confirmed.prints(), 1);
        agree(&digest, || confirmed.prints(), arrival, summary)?;
        // What is told in full is taken from there.
        Ok(Agreed(confirmed.only(|place| !arrival.scope.covers(place))))
    }

    /// What is expected of an agent that is awaited: nothing if its frameworks are not known, or if others have its tasks.
    fn expected_on(&self, agent_id: &AgentId) -> Option<&Load> {
        let load = self.expected.as_ref()?.on(agent_id)?;
        let is_known = |framework| self.frameworks.get(framework).is_some();
        let is_elsewhere = |task: &Arc<Task>| self.tasks.is_newcomer(&task.framework_id, &task.id);
        let fits = self.agents.awaited(agent_id).is_some()
            && load.frameworks().all(is_known)
            && !load.tasks().iter().any(is_elsewhere);
        fits.then_some(load)
    }

    /// The agent has confirmed that it has this, as the last leader knew it: it is in the books from now on. `false` if nothing was, or
    /// if its books are its own.
    pub(crate) fn take_over(&mut self, agent_id: &AgentId, key: DigestKey, agreed: Agreed) -> bool {
        let Agreed(confirmed) = agreed;
        if confirmed.is_empty() || self.tasks.on_agent(agent_id).is_some() {
            return false;
        }
        let mut kills = BTreeMap::new();
        if !self.early_kills.is_empty() {
            for (task, _) in &confirmed.tasks {
                if let Some(policy) = self.take_early_kill(agent_id, &task.framework_id, &task.id) {
                    kills.insert((task.framework_id.clone(), task.id.clone()), policy);
                }
            }
        }
        self.tasks.take_over(agent_id, key, confirmed);
        for ((framework, id), policy) in kills {
            self.tasks
                .update(&framework, &id, |task| task.kill = Some(policy));
        }
        true
    }

    /// Brings the books and what the agent has told together.
    pub(crate) fn bring_together(
        &mut self,
        agent_id: &AgentId,
        pid: &Pid,
        scope: Scope,
        held: Held,
        now: Timestamp,
        out: &mut Effects,
    ) {
        if scope.is_nothing() && held == Held::default() {
            self.tell_of_changes(agent_id, pid, BTreeSet::new(), out);
            return self.kill_late(agent_id, pid, out); // They agree.
        }
        let mut otherwise = BTreeSet::new();
        for info in held.frameworks {
            let Some(id) = info.id.clone() else { continue };
            match self.frameworks.get(&id) {
                Some(known) if known.info != info => drop(otherwise.insert(id)),
                None if !self.frameworks.is_removed(&id) => {
                    self.recover_framework(id, info, None, now, out);
                }
                Some(_) | None => {}
            }
        }
        let mut over = self.bring_executors_together(agent_id, &scope, held.executors, out);
        let mut reported = BTreeSet::new();
        let mut disowned = Vec::new();
        for running in held.tasks {
            let key = (running.framework_id.clone(), running.info.task_id.clone());
            if self.frameworks.get(&key.0).is_none() {
                over.insert(key.0);
            } else if self.adopt(agent_id, running, now, out) {
                reported.insert(key);
            } else {
                disowned.push(key);
            }
        }
        disowned.extend(self.miss(agent_id, &scope, &reported, now, out));
        for framework_id in over {
            let gone = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
            out.agent(pid, gone);
        }
        if !disowned.is_empty() {
            let tasks = disowned;
            out.agent(pid, ToAgent::Disown(DisownTasks { tasks }));
        }
        self.tell_of_changes(agent_id, pid, otherwise, out);
        self.kill_late(agent_id, pid, out);
    }

    /// What the agent's executors use is held, and what those have that it does not name is free: their ends were lost on the
    /// way. Gives the frameworks that are no more.
    fn bring_executors_together(
        &mut self,
        agent_id: &AgentId,
        scope: &Scope,
        executors: Vec<RunningExecutor>,
        out: &mut Effects,
    ) -> BTreeSet<FrameworkId> {
        let (mut over, mut reported) = (BTreeSet::new(), BTreeSet::new());
        for RunningExecutor {
            framework_id,
            mut info,
        } in executors
        {
            if self.frameworks.get(&framework_id).is_none() {
                over.insert(framework_id);
                continue;
            }
            info.resources = allocated(&info.resources);
            self.tasks.insert_executor(agent_id, &framework_id, &info);
            reported.insert((framework_id, info.executor_id));
        }
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return over;
        };
        let missed: Vec<(FrameworkId, ExecutorId)> = on
            .placed_executors()
            .filter(|(key, place)| scope.covers(*place) && !reported.contains(key))
            .map(|(key, _)| key.clone())
            .collect();
        for (framework_id, executor_id) in missed {
            // The allocator is told all that is held when the agent is admitted.
            self.tasks
                .remove_executor(agent_id, &framework_id, &executor_id);
            let lost = Lost {
                agent_id: agent_id.clone(),
                executor_id: Some(executor_id),
                termination: None,
            };
            let scheduler = self.frameworks.scheduler(&framework_id);
            out.scheduler(scheduler, ToScheduler::Lost(lost));
        }
        over
    }

    /// An agent has this task of a known framework: takes over its state. `false` if the books hold it for over.
    fn adopt(
        &mut self,
        agent_id: &AgentId,
        running: RunningTask,
        now: Timestamp,
        out: &mut Effects,
    ) -> bool {
        let RunningTask {
            framework_id,
            mut info,
            state,
        } = running;
        info.agent_id = agent_id.clone();
        if let Some(known) = self.tasks.get(&framework_id, &info.task_id) {
            if known.agent_id != *agent_id {
                return false;
            }
            let freed = self.tasks.update(&framework_id, &info.task_id, |task| {
                if !task.state.is_terminal() {
                    task.state = state;
                }
            });
            if let Some(freed) = freed {
                self.recovered(freed, None, out);
            }
            return true;
        }
        let whose = self.tasks.find(&framework_id, &info.task_id);
        if whose
            .is_some_and(|task| task.agent_id != *agent_id && task.state == TaskState::Unreachable)
        {
            // It was set aside with another agent, which alone can bring it back.
            return false;
        }
        if let Some(mut task) = self.tasks.take_unreachable(&framework_id, &info.task_id) {
            if state.is_terminal() {
                // Its agent tells of the end itself, after the updates that come before it.
                (task.agent_id, task.state) = (agent_id.clone(), state);
                self.tasks.insert(task, info.executor.as_ref());
                return true;
            }
            let status = TaskStatus::new(task.id.clone(), state, Source::Master, now)
                .because(
                    Reason::AgentReregistered,
                    "Unreachable agent re-reregistered",
                )
                .on(agent_id);
            task.agent_id = agent_id.clone();
            task.observe(&status, state);
            self.tasks.insert(task, info.executor.as_ref());
            self.tell_status(&framework_id, status, out);
            return true;
        }
        let over = self
            .tasks
            .find(&framework_id, &info.task_id)
            .is_some_and(|task| task.agent_id == *agent_id);
        if over {
            // It ended here already: an end that the agent still reports only waits for its acknowledgement.
            return state.is_terminal();
        }
        let resources = allocated(&info.resources);
        let early = self.take_early_kill(agent_id, &framework_id, &info.task_id);
        let mut task = Task::placed(framework_id, &info, resources, state);
        task.kill = early;
        if state.is_terminal() {
            // Its framework has not acknowledged the end, and may not have heard what came before it.
            task.told = TaskState::Running;
        }
        self.tasks.insert(task, info.executor.as_ref());
        true
    }

    /// The agent has not got these tasks of the books, where it has told what it has: those that ended are completed, the
    /// others are over now. Gives the latter, so that the agent ends them should they still be on their way to it.
    fn miss(
        &mut self,
        agent_id: &AgentId,
        scope: &Scope,
        reported: &BTreeSet<(FrameworkId, TaskId)>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Vec<(FrameworkId, TaskId)> {
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return Vec::new();
        };
        let missed: Vec<_> = on
            .placed_tasks()
            .filter(|(key, place)| scope.covers(*place) && !reported.contains(key))
            .map(|(key, _)| key.clone())
            .collect();
        let mut disowned = Vec::new();
        for (framework, id) in missed {
            let Some(task) = self.tasks.get(&framework, &id) else {
                continue;
            };
            if !task.told.is_terminal() {
                let state = task.end_or(TaskState::Dropped);
                let message = "Reconciliation: task unknown to the agent";
                let reason = Reason::Reconciliation;
                let known = self.frameworks.get(&framework);
                let mut status =
                    master_status(known, &id, state, reason, message, now).on(agent_id);
                // In Mesos the agent itself answers so, when its master asks for the task.
                status.source = Source::Agent;
                self.task_ended(&framework, &status);
                let observed = status.clone();
                self.tasks.update(&framework, &id, |task| {
                    task.observe(&observed, observed.state);
                });
                self.tell_status(&framework, status, out);
                disowned.push((framework.clone(), id.clone()));
            }
            self.tasks.complete(&framework, &id);
        }
        disowned
    }

    /// Passes on the kills of tasks that still live: they came while the agent was not connected, or may have been lost.
    fn kill_late(&self, agent_id: &AgentId, pid: &Pid, out: &mut Effects) {
        if self.tasks.kills() == 0 {
            return;
        }
        let Some(on) = self.tasks.on_agent(agent_id) else {
            return;
        };
        for (framework, id) in on.tasks() {
            let task = self.tasks.get(framework, id);
            let living = task.filter(|task| !task.state.is_terminal());
            let Some(kill) = living.and_then(|task| task.kill) else {
                continue;
            };
            let kill = KillTask {
                framework_id: framework.clone(),
                task_id: id.clone(),
                agent_id: Some(agent_id.clone()),
                kill_policy: kill,
            };
            out.agent(pid, ToAgent::Kill(kill));
        }
    }
}

/// Whether these are what the agent has, once the part of it that it tells in full is put in place of theirs. If not, their sums.
fn agree<P: Iterator<Item = Print>>(
    digest: &Digest,
    prints: impl Fn() -> P,
    arrival: &Arrival,
    summary: &Summary,
) -> Result<(), Reregistered> {
    let Scope::Buckets { which, .. } = &arrival.scope else {
        return Ok(());
    };
    let agrees = match which.is_empty() {
        true => digest.summary(summary.key) == *summary,
        false => {
            let told = Printer::new(summary.key).held(&arrival.held);
            let astray = told.iter().any(|print| !arrival.scope.covers(print.place));
            let rest = prints().filter(|print| !arrival.scope.covers(print.place));
            !astray && Digest::of(rest.chain(told), 1).summary(summary.key) == *summary
        }
    };
    if agrees {
        return Ok(());
    }
    if digest.items() == 0 {
        return Err(Reregistered::Unknown);
    }
    let items = digest.items().max(summary.items);
    let buckets = digest::buckets_for(items as usize);
    let buckets = match buckets == digest.buckets().len() {
        true => digest.buckets().to_vec(),
        false => Digest::of(prints(), buckets).buckets().to_vec(),
    };
    Err(Reregistered::Differs { buckets })
}

/// The resources with an allocation role in any case: an agent that was told none reports none.
fn allocated(resources: &Resources) -> Resources {
    let bare = resources.iter().any(|r| r.allocation_role().is_none());
    match (bare, ResourceRole::new("*")) {
        (true, Ok(star)) => resources
            .iter()
            .map(|resource| {
                let one = Resources::from(resource.clone());
                match resource.allocation_role() {
                    Some(_) => one,
                    None => one.allocate(&star),
                }
            })
            .collect(),
        _ => resources.clone(),
    }
}
