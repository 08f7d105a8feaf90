//! Tally: counts of a run's events, for summaries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{ExecutorRefused, ExecutorSubscribed};
use protocol::message::registration::{AgentRegistered, RegistrationRefused, Reregistered};
use protocol::message::scheduler::{OffersMade, OperationChanged, StatusChanged, TasksRevoked};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{OperationState, Reason, TaskStatus};

use crate::event::{Event, EventKind, IsolationStep, SeenMessage};
use crate::linear::RegistryAnswer;
use crate::load;
use crate::report::hash::derived;

/// Counts of events. A summary fails a run in which a count is zero that the profile should have
/// caused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Virtual time from the start to the end, recovery included.
    pub virtual_time: Duration,
    /// Events in the hash.
    pub events: u64,
    /// Messages and replies sent.
    pub said: u64,
    /// Messages and replies handled.
    pub heard: u64,
    /// Registrations of agents, repeated ones included.
    pub registrations: u64,
    /// Offers to frameworks.
    pub offers: u64,
    /// Tasks sent to agents.
    pub launches: u64,
    /// Those of them with revocable resources.
    pub revocable: u64,
    /// Operations on resources sent to agents.
    pub conversions: u64,
    /// Failed operations, as their frameworks received.
    pub conversions_failed: u64,
    /// Executor processes started.
    pub processes: u64,
    /// Executors killed alone by a fault.
    pub executors_killed: u64,
    /// Agents whose process crashed while the machine continued.
    pub agents_fallen: u64,
    /// Containers whose isolators found a limit exceeded.
    pub limited: u64,
    /// Executors and commands that outlived the process of their agent.
    pub containers_back: u64,
    /// Tasks that had to yield on a busy machine, as their agents reported.
    pub corrections: u64,
    /// Tasks revoked for guarantees of others, as their frameworks were warned.
    pub revocations: u64,
    /// Tasks whose terminal state a framework received, by the name of the first such state.
    pub task_ends: BTreeMap<&'static str, u64>,
    /// How often a master became leader.
    pub masters: u64,
    /// How often one did after the first.
    pub failovers: u64,
    /// Answered operations of the registry.
    pub operations: u64,
    /// Snapshots that a group member took from its leader, because the missing entries were in no
    /// log any more.
    pub snapshots: u64,
    /// Crashed nodes.
    pub crashes: u64,
    /// Nodes that shut down in order and restarted.
    pub restarts: u64,
    /// Packets (over plain memory: batches) that the network lost.
    pub lost: u64,
    /// Duplicated packets.
    pub duplicated: u64,
    /// Delayed packets (or batches).
    pub delayed: u64,
    /// Lost links, counted once for each actor that watched one.
    pub broken_links: u64,
    /// Disk writes that failed or were lost.
    pub disk_failures: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Judgements by checker.
    pub judgements: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts one event. `noted` contains the tasks already counted as ended, and the executors
    /// that have registered.
    pub(crate) fn note(&mut self, event: &Event<'_>, noted: &mut BTreeSet<u64>) {
        self.events += 1;
        match &event.kind {
            EventKind::Sent(_) => self.said += 1,
            EventKind::Received(observed) => {
                self.heard += 1;
                self.count_received(observed, noted);
            }
            EventKind::MasterBegan { .. } => self.masters += 1,
            EventKind::RegistryAnswered {
                answer: Some(RegistryAnswer::Applied(_)),
                ..
            } => self.operations += 1,
            EventKind::NodeEnded { crashed: true, .. } => self.crashes += 1,
            EventKind::NodeEnded { .. } => self.restarts += 1,
            EventKind::ProcessStarted { .. } => self.processes += 1,
            EventKind::CommandOutlived { .. } => self.containers_back += 1,
            EventKind::ExecutorKilled { .. } => self.executors_killed += 1,
            EventKind::AgentCrashed { .. } => self.agents_fallen += 1,
            EventKind::Isolated {
                step: IsolationStep::Limited,
                ..
            } => self.limited += 1,
            EventKind::LogWritten { write, .. } => {
                self.snapshots += u64::from(write.snapshot.is_some());
            }
            EventKind::FaultBegan(fault) => *self.faults.entry(fault.kind.name()).or_default() += 1,
            EventKind::NodeStarted { .. }
            | EventKind::NodeExited { .. }
            | EventKind::ActorPanicked { .. }
            | EventKind::MasterEnded { .. }
            | EventKind::Elected { .. }
            | EventKind::RegistryRequested { .. }
            | EventKind::RegistryAnswered { .. }
            | EventKind::LogRead { .. }
            | EventKind::Isolated { .. }
            | EventKind::IsolatorRecovered { .. }
            | EventKind::MachineBusy { .. }
            | EventKind::DiskReset { .. }
            | EventKind::MemberState { .. }
            | EventKind::CommandStarted(_)
            | EventKind::CommandEnded(_)
            | EventKind::ProcessEnded { .. }
            | EventKind::FaultEnded(_)
            | EventKind::FaultsOver => {}
        }
        self.failovers = self.masters.saturating_sub(1);
    }

    fn count_received(&mut self, observed: &SeenMessage<'_>, noted: &mut BTreeSet<u64>) {
        match (observed.name, observed.reply) {
            ("registration/register_agent", true) => {
                let answer = observed.is::<Result<AgentRegistered, RegistrationRefused>>();
                self.registrations += u64::from(answer.is_some_and(Result::is_ok));
            }
            ("registration/reregister_agent", true) => {
                let answer = observed.is::<Result<Reregistered, RegistrationRefused>>();
                let registered =
                    answer.is_some_and(|answer| matches!(answer, Ok(Reregistered::Registered(_))));
                self.registrations += u64::from(registered);
            }
            ("scheduler/offers_made", false) => {
                let made = observed.is::<OffersMade>();
                self.offers += made.map_or(0, |made| made.offers.len() as u64);
            }
            ("task/run_tasks", false) => {
                let run = observed.is::<RunTasks>();
                let tasks = run.map_or(&[][..], |run| &run.tasks);
                self.launches += tasks.len() as u64;
                let revocable = tasks.iter().filter(|task| load::is_revocable(task));
                self.revocable += revocable.count() as u64;
            }
            ("executor/subscribe_executor", true) => {
                let answer = observed.is::<Result<ExecutorSubscribed, ExecutorRefused>>();
                if answer.is_some_and(Result::is_ok) {
                    let is_first = noted.insert(derived(1, observed.to, 0));
                    self.containers_back += u64::from(!is_first);
                }
            }
            ("operation/apply_operation", false) => self.conversions += 1,
            ("scheduler/operation_changed", false) => {
                let changed = observed.is::<OperationChanged>();
                let failed = changed.is_some_and(|changed| {
                    let state = changed.status.state;
                    state.is_terminal() && state != OperationState::Finished
                });
                self.conversions_failed += u64::from(failed);
            }
            ("task/task_updated", false) => {
                let told = observed
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
                let revoked = observed.is::<TasksRevoked>();
                for status in revoked.iter().flat_map(|revoked| &revoked.tasks) {
                    let is_first = noted.insert(derived(3, status.task_id.as_str(), 0));
                    self.revocations += u64::from(is_first);
                }
            }
            ("scheduler/status_changed", false) => {
                let status = observed.is::<StatusChanged>().map(|told| &told.status);
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
