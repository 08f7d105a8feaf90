//! Tally: what happened in a run, counted, for summaries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{ExecutorRefused, ExecutorSubscribed};
use protocol::message::registration::{AgentRegistered, RegistrationRefused, Reregistered};
use protocol::message::scheduler::{OffersMade, OperationChanged, StatusChanged, TasksRevoked};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{OperationState, Reason, TaskStatus};

use crate::event::{Event, Spoken, What};
use crate::hash::derived;
use crate::linear::RegistryAnswer;
use crate::load;

/// What happened, counted. A summary fails a run in which something is zero that the profile should have caused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Virtual time from the start to the end, with the recovery phase.
    pub virtual_time: Duration,
    /// Events that the hash was taken over.
    pub events: u64,
    /// Messages and replies that nodes gave to the network.
    pub said: u64,
    /// Messages and replies that were handled.
    pub heard: u64,
    /// Agents that registered, again included.
    pub registrations: u64,
    /// Offers that were made to frameworks.
    pub offers: u64,
    /// Tasks that agents were told to run.
    pub launches: u64,
    /// Those of them that were given something revocable.
    pub revocable: u64,
    /// Operations on their resources that agents were told.
    pub conversions: u64,
    /// Those that did not go well, as their frameworks heard.
    pub conversions_failed: u64,
    /// Executor processes that began.
    pub processes: u64,
    /// Executors that a fault killed alone.
    pub executors_killed: u64,
    /// Agents whose process fell alone.
    pub agents_fallen: u64,
    /// Executors that subscribed again at the next process of their agent.
    pub executors_back: u64,
    /// Tasks that had to yield because their machine was busy, as their agents told.
    pub corrections: u64,
    /// Tasks that had to make room for what is guaranteed to others, as their frameworks were warned.
    pub revocations: u64,
    /// Tasks whose terminal state a framework heard, by the first such state's name.
    pub task_ends: BTreeMap<&'static str, u64>,
    /// How often a master began to act.
    pub masters: u64,
    /// How often one began to act after the first.
    pub failovers: u64,
    /// Operations of the registry that were answered.
    pub operations: u64,
    /// Snapshots that a member of the group took from its leader, since what it lacked was no longer in anybody's log.
    pub snapshots: u64,
    /// Nodes that were gone at once.
    pub crashes: u64,
    /// Nodes that were stopped in good order and started again.
    pub restarts: u64,
    /// Packets (or, over plain memory, batches) that the network lost.
    pub lost: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets (or batches) that were held up on purpose.
    pub delayed: u64,
    /// Links to another node that were lost, counted once for each actor that watched one there.
    pub broken_links: u64,
    /// Writes of a disk that failed or were forgotten.
    pub disk_failures: u64,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Judgements, by checker.
    pub judgements: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Notes one event. `noted` are the tasks that are counted as ended already, and the executors that have subscribed.
    pub(crate) fn note(&mut self, event: &Event<'_>, noted: &mut BTreeSet<u64>) {
        self.events += 1;
        match &event.what {
            What::Said(_) => self.said += 1,
            What::Heard(spoken) => {
                self.heard += 1;
                self.note_heard(spoken, noted);
            }
            What::MasterBegan { .. } => self.masters += 1,
            What::RegistryAnswered {
                answer: Some(RegistryAnswer::Applied(_)),
                ..
            } => self.operations += 1,
            What::NodeEnded { crashed: true, .. } => self.crashes += 1,
            What::NodeEnded { .. } => self.restarts += 1,
            What::ProcessStarted { .. } => self.processes += 1,
            What::ExecutorKilled { .. } => self.executors_killed += 1,
            What::AgentFell { .. } => self.agents_fallen += 1,
            What::LogWritten { write, .. } => {
                self.snapshots += u64::from(write.snapshot.is_some());
            }
            What::FaultBegan(fault) => *self.faults.entry(fault.kind.name()).or_default() += 1,
            What::NodeStarted { .. }
            | What::NodeGaveUp { .. }
            | What::ActorFell { .. }
            | What::MasterEnded { .. }
            | What::Elected { .. }
            | What::RegistryAsked { .. }
            | What::RegistryAnswered { .. }
            | What::LogRead { .. }
            | What::MachineBusy { .. }
            | What::DiskPutBack { .. }
            | What::Holds { .. }
            | What::ProcessEnded { .. }
            | What::FaultEnded(_)
            | What::FaultsOver => {}
        }
        self.failovers = self.masters.saturating_sub(1);
    }

    fn note_heard(&mut self, spoken: &Spoken<'_>, noted: &mut BTreeSet<u64>) {
        match (spoken.name, spoken.reply) {
            ("registration/register_agent", true) => {
                let answer = spoken.is::<Result<AgentRegistered, RegistrationRefused>>();
                self.registrations += u64::from(answer.is_some_and(Result::is_ok));
            }
            ("registration/reregister_agent", true) => {
                let answer = spoken.is::<Result<Reregistered, RegistrationRefused>>();
                let registered =
                    answer.is_some_and(|answer| matches!(answer, Ok(Reregistered::Registered(_))));
                self.registrations += u64::from(registered);
            }
            ("scheduler/offers_made", false) => {
                let made = spoken.is::<OffersMade>();
                self.offers += made.map_or(0, |made| made.offers.len() as u64);
            }
            ("task/run_tasks", false) => {
                let run = spoken.is::<RunTasks>();
                let tasks = run.map_or(&[][..], |run| &run.tasks);
                self.launches += tasks.len() as u64;
                let revocable = tasks.iter().filter(|task| load::is_revocable(task));
                self.revocable += revocable.count() as u64;
            }
            ("executor/subscribe_executor", true) => {
                let answer = spoken.is::<Result<ExecutorSubscribed, ExecutorRefused>>();
                if answer.is_some_and(Result::is_ok) {
                    let is_first = noted.insert(derived(1, spoken.to, 0));
                    self.executors_back += u64::from(!is_first);
                }
            }
            ("operation/apply_operation", false) => self.conversions += 1,
            ("scheduler/operation_changed", false) => {
                let changed = spoken.is::<OperationChanged>();
                let failed = changed.is_some_and(|changed| {
                    let state = changed.status.state;
                    state.is_terminal() && state != OperationState::Finished
                });
                self.conversions_failed += u64::from(failed);
            }
            ("task/task_updated", false) => {
                let told = spoken
                    .is::<TaskUpdated>()
                    .map(|updated| &updated.update.status);
                let yields =
                    |status: &&TaskStatus| status.reason == Some(Reason::ContainerPreempted);
                if let Some(status) = told.filter(yields) {
                    let is_first = noted.insert(derived(2, status.task_id.as_str(), 0));
                    self.corrections += u64::from(is_first);
                }
            }
            ("scheduler/tasks_revoked", false) => {
                let revoked = spoken.is::<TasksRevoked>();
                for status in revoked.iter().flat_map(|revoked| &revoked.tasks) {
                    let is_first = noted.insert(derived(3, status.task_id.as_str(), 0));
                    self.revocations += u64::from(is_first);
                }
            }
            ("scheduler/status_changed", false) => {
                let status = spoken.is::<StatusChanged>().map(|told| &told.status);
                if let Some(status) = status.filter(|status| status.state.is_terminal()) {
                    let task = derived(0, status.task_id.as_str(), 0);
                    if noted.insert(task) {
                        *self.task_ends.entry(status.state.name()).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }
}
