//! Comparison of a registering agent's report with the state.
//!
//! Pure decisions on [`MasterState`]. An agent that registers again sends a summary. If the state
//! has the same summary, both agree; otherwise the agent gets the state's bucket sums and sends the
//! content of the buckets that differ. Nothing is remembered between the two messages: a report is
//! accepted only if the state, with that part replaced, matches the agent's summary of the whole. A
//! full report is not summarized. Until then nothing of the agent is offered.
//!
//! Then both are merged: entries only in the state were lost; entries only at the agent are adopted
//! if their framework is known, and ended otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::digest::{self, Digest, DigestKey, DigestSummary, FORM, Fingerprint, Fingerprinter};
use protocol::message::registration::{
    AgentInventory, DisownTasks, RegisterAgent, ReregisterAgent, Reregistered, RunningExecutor,
    RunningTask,
};
use protocol::message::scheduler::{KillTask, Lost};
use protocol::message::task::ShutDownFramework;
use protocol::{
    AgentId, AgentInfo, AgentResources, ExecutorId, FrameworkId, Reason, Source, TaskId, TaskState,
    TaskStatus,
};
use resources::{Resources, Role as ResourceRole};
use runtime::{Pid, Timestamp};

use crate::agents::expected::{Confirmed, Load};
use crate::state::effects::{Effects, SendEffects, ToAgent, ToScheduler};
use crate::state::{MasterState, master_status};
use crate::tasks::Task;

/// A registering agent, with or without an id.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its description.
    pub agent: AgentInfo,
    /// Its address.
    pub pid: Pid,
    /// Its version.
    pub version: String,
    /// Its revocable resources.
    pub oversubscribed: Resources,
    /// The key of its digests.
    pub digest_key: DigestKey,
    /// DigestSummary of all its tasks and executors; `None` if the report is full.
    pub summary: Option<DigestSummary>,
    /// The part that is reported in full.
    pub scope: Scope,
    /// That part.
    pub held: AgentInventory,
    /// The newest master term that it has seen.
    pub term_seen: u64,
    /// Its resources after operations.
    pub resources: Option<AgentResources>,
    /// Its address, if it connected over a network.
    pub ip: Option<String>,
}

/// The report matches. Contains the entries of the previous leader that the agent has confirmed, if
/// the state had none.
#[derive(Clone, Debug, Default)]
pub struct Agreed(pub(crate) Confirmed);

/// The part of an agent's entries that a report contains in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    All,
    /// These of the `of` buckets.
    Buckets {
        /// The number of all buckets.
        of: u32,
        /// The buckets, ascending.
        which: Vec<u32>,
    },
}

impl Scope {
    /// Whether it is empty.
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Buckets { which, .. } if which.is_empty())
    }

    /// Whether an entry with that place is in it.
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
            None => (1, Vec::new(), AgentInventory::default()),
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

impl MasterState {
    /// Whether the state matches the agent's report. If not, the answer for the agent; nothing of
    /// it is offered until it returns.
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
        summary: &DigestSummary,
    ) -> Result<Agreed, Reregistered> {
        if summary.form != FORM {
            return Err(Reregistered::Unknown);
        }
        let key = match self.tasks.on_agent(agent_id) {
            Some(on) => on.key(),
            // Both are empty.
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

    /// As [`MasterState::sums`], with the previous leader's knowledge of an agent that has not
    /// registered here yet.
    fn sums_expected(
        &self,
        agent_id: &AgentId,
        arrival: &Arrival,
        summary: &DigestSummary,
    ) -> Result<Agreed, Reregistered> {
        let load = self.expected_on(agent_id).ok_or(Reregistered::Unknown)?;
        let confirmed = load.printed(summary.key);
        // The buckets are summed only if the digest differs.
        let digest = Digest::of(confirmed.prints(), 1);
        agree(&digest, || confirmed.prints(), arrival, summary)?;
        // Entries that the report contains in full are taken from the report.
        Ok(Agreed(confirmed.only(|place| !arrival.scope.covers(place))))
    }

    /// The expected entries of an awaited agent: none if a framework is unknown, or if another
    /// agent has a task.
    fn expected_on(&self, agent_id: &AgentId) -> Option<&Load> {
        let load = self.expected.as_ref()?.on(agent_id)?;
        let is_known = |framework| self.frameworks.get(framework).is_some();
        let is_elsewhere = |task: &Arc<Task>| self.tasks.is_newcomer(&task.framework_id, &task.id);
        let fits = self.agents.awaited(agent_id).is_some()
            && load.frameworks().all(is_known)
            && !load.tasks().iter().any(is_elsewhere);
        fits.then_some(load)
    }

    /// Takes over the entries that the agent has confirmed. `false` if there are none, or if the
    /// state has its own.
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

    /// Merges the agent's report into the state.
    pub(crate) fn merge_report(
        &mut self,
        agent_id: &AgentId,
        pid: &Pid,
        scope: Scope,
        held: AgentInventory,
        now: Timestamp,
        out: &mut Effects,
    ) {
        if scope.is_nothing() && held == AgentInventory::default() {
            self.send_missed_changes(agent_id, pid, BTreeSet::new(), out);
            return self.resend_kills(agent_id, pid, out);
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
        let mut over = self.merge_executors(agent_id, &scope, held.executors, out);
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
        disowned.extend(self.complete_missing(agent_id, &scope, &reported, now, out));
        for framework_id in over {
            let gone = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
            out.agent(pid, gone);
        }
        if !disowned.is_empty() {
            let tasks = disowned;
            out.agent(pid, ToAgent::Disown(DisownTasks { tasks }));
        }
        self.send_missed_changes(agent_id, pid, otherwise, out);
        self.resend_kills(agent_id, pid, out);
    }

    /// Merges executors: reported ones hold resources; missing ones are freed, because their end
    /// was lost on the way. Returns the frameworks that have ended.
    fn merge_executors(
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
            // The allocator gets all held resources when the agent is admitted.
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

    /// Takes over the state of a reported task of a known framework. `false` if the task is over
    /// here.
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
        let elsewhere = self.tasks.find(&framework_id, &info.task_id);
        if elsewhere
            .is_some_and(|task| task.agent_id != *agent_id && task.state == TaskState::Unreachable)
        {
            // It was set aside with another agent, which alone can report it.
            return false;
        }
        if let Some(mut task) = self.tasks.take_unreachable(&framework_id, &info.task_id) {
            if state.is_terminal() {
                // The agent reports the end itself, after the updates before it.
                (task.agent_id, task.state) = (agent_id.clone(), state);
                self.tasks.insert(task, info.executor.as_ref());
                return true;
            }
            let status = TaskStatus::new(task.id.clone(), state, Source::Master, now)
                .with_reason(
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
            // It has ended here: an end that the agent still reports only waits for
            // acknowledgement.
            return state.is_terminal();
        }
        let resources = allocated(&info.resources);
        let early = self.take_early_kill(agent_id, &framework_id, &info.task_id);
        let mut task = Task::placed(framework_id, &info, resources, state);
        task.kill = early;
        if state.is_terminal() {
            // Its framework has not acknowledged the end, and may not have received earlier
            // updates.
            task.told = TaskState::Running;
        }
        self.tasks.insert(task, info.executor.as_ref());
        true
    }

    /// Handles tasks that the report should contain but does not: ended ones are completed, the
    /// others are over. Returns the latter, so that the agent ends them if they still arrive.
    fn complete_missing(
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
                // In Mesos the agent itself sends this answer when its master asks for the task.
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

    /// Sends the kills of running tasks again: they were requested while the agent was
    /// disconnected, or may have been lost.
    fn resend_kills(&self, agent_id: &AgentId, pid: &Pid, out: &mut Effects) {
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

/// Whether these entries, with the fully reported part replaced, match the agent's summary. If not,
/// their sums.
fn agree<P: Iterator<Item = Fingerprint>>(
    digest: &Digest,
    prints: impl Fn() -> P,
    arrival: &Arrival,
    summary: &DigestSummary,
) -> Result<(), Reregistered> {
    let Scope::Buckets { which, .. } = &arrival.scope else {
        return Ok(());
    };
    let agrees = match which.is_empty() {
        true => digest.summary(summary.key) == *summary,
        false => {
            let reported = Fingerprinter::new(summary.key).fingerprints(&arrival.held);
            let astray = reported
                .iter()
                .any(|print| !arrival.scope.covers(print.name_hash));
            let rest = prints().filter(|print| !arrival.scope.covers(print.name_hash));
            !astray && Digest::of(rest.chain(reported), 1).summary(summary.key) == *summary
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

/// The resources with an allocation role: an agent that was sent none reports none.
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
