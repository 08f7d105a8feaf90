//! States: a task has one terminal state for ever, and a task reported as running runs, or a later
//! update says otherwise.
//!
//! Judged by what each framework's scheduler receives, in order. The first terminal state of a task
//! is the last: the same state may be repeated (a resent update, a reconciliation), another one may
//! not. Exception: a master's own status that it does not know the task, since it forgets
//! acknowledged ends (S131); the driver, which remembers them, drops such a status.
//! `TASK_UNREACHABLE` is not terminal, nor is the `TASK_LOST` in its place for frameworks that are
//! not partition-aware.
//!
//! An agent whose disk rejects an end sends it all the same, unconfirmed. If it crashes then, and
//! the executor that should repeat the end is gone, its next process knows only that the executor
//! is gone, and not the framework's acknowledgement. So such an end, and no other, may be followed
//! by the end for a gone executor from the agent, by states sent before it, and by a master's
//! answer.
//!
//! An agent may also crash before it has stored an acknowledgement: its next process repeats
//! updates from the first one that it does not know to be acknowledged, and the driver drops known
//! ones.
//!
//! At the end of the recovery a task whose newest state is running must have a process. If the
//! process has ended, the state must arrive within [`NEWS`] of that end or of the end of the
//! faults, whichever is later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::UpdateStored;
use protocol::message::scheduler::StatusChanged;
use protocol::message::task::TaskUpdated;
use protocol::{
    AgentId, ContainerId, FrameworkId, StatusUpdate, TaskId, TaskState, TaskStatus, Uuid,
};

use super::status_origin::{is_an_answer, is_ignorance, is_of_the_next};
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::Frameworks;
use crate::checkers::{UNDER_WAY, broken};
use crate::event::{Event, EventKind};
use crate::scenario::FaultKind;

/// Maximum time until the end of a task arrives after the last fault: a restarted master waits ten
/// minutes for known agents, and a driver reconciles silent tasks at growing intervals.
pub const NEWS: Duration = Duration::from_secs(15 * 60);

const NAME: &str = "states";

/// Number of ended processes above which those without running tasks are dropped.
const ENDS_KEPT: usize = 4096;

struct Live {
    state: TaskState,
    container: Option<ContainerId>,
    heard: Duration,
}

struct End {
    state: TaskState,
    heard: Duration,
}

/// One end of one task.
type EndOf = (FrameworkId, TaskId, TaskState);

/// The ends that one agent may lose, because its disk failed before it sent them.
#[derive(Default)]
struct Unkept {
    /// Ends that were sent and not confirmed to the executors, with the update where it is known.
    told: BTreeMap<EndOf, Option<Uuid>>,
    /// Those of them that were sent when its process ended: the next process may not know them.
    lost: BTreeSet<EndOf>,
}

/// The checker.
#[derive(Default)]
pub struct States {
    frameworks: Frameworks,
    live: BTreeMap<(FrameworkId, TaskId), Live>,
    ended: BTreeMap<(FrameworkId, TaskId), End>,
    /// Updates that frameworks have received for tasks that had not ended.
    told: BTreeSet<Uuid>,
    /// The nodes of the agents that have sent any, and when their last processes ended.
    nodes: BTreeMap<AgentId, String>,
    nodes_ended: BTreeMap<String, Duration>,
    /// The ends that each agent with a failed disk may lose.
    unkept: BTreeMap<String, Unkept>,
    /// Updates that those agents have confirmed.
    confirmed: BTreeSet<Uuid>,
    processes: BTreeSet<ContainerId>,
    process_ends: BTreeMap<ContainerId, Duration>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl States {
    fn on_status(
        &mut self,
        framework: FrameworkId,
        status: &TaskStatus,
        at: Duration,
    ) -> Result<(), String> {
        self.judgements += 1;
        let key = (framework, status.task_id.clone());
        if let Some(end) = self.ended.get(&key) {
            let is_same = end.state == status.state || is_ignorance(status);
            let is_retold = status.uuid.is_some_and(|uuid| self.told.contains(&uuid));
            let is_again = is_retold || is_an_answer(status);
            let (framework, task) = key;
            let (end, since) = ((framework, task, end.state), end.heard);
            if is_same
                || (is_again || is_of_the_next(status)) && self.may_be_unknown(&end)
                || is_retold && self.has_ended_since(status, since)
            {
                return Ok(());
            }
            return Err(format!(
                "task {} of {} had ended as {}, but its scheduler hears {} ({:?}, {:?})",
                end.1, end.0, end.2, status.state, status.source, status.reason
            ));
        }
        if status.state.is_terminal() && status.unreachable_since.is_none() {
            self.live.remove(&key);
            let end = End {
                state: status.state,
                heard: at,
            };
            self.ended.insert(key, end);
            return Ok(());
        }
        self.told.extend(status.uuid);
        let before = self.live.remove(&key).and_then(|live| live.container);
        let live = Live {
            state: status.state,
            container: status.container_id.clone().or(before),
            heard: at,
        };
        self.live.insert(key, live);
        Ok(())
    }

    /// An agent has sent this update to a master, or a later one.
    fn on_agent_update(&mut self, agent: &str, update: &StatusUpdate) {
        let Some(unkept) = self.unkept.get_mut(agent) else {
            return;
        };
        let status = &update.status;
        let is_news = status.state == update.latest_state;
        let uuid = status.uuid.filter(|_| is_news);
        let is_kept = uuid.is_some_and(|uuid| self.confirmed.contains(&uuid));
        if update.latest_state.is_terminal() && !is_kept {
            let framework = update.framework_id.clone();
            let end = (framework, status.task_id.clone(), update.latest_state);
            unkept.told.insert(end, uuid);
        }
    }

    /// An agent has confirmed this update: it is on its disk.
    fn on_confirmation(&mut self, agent: &str, uuid: Uuid) {
        if let Some(unkept) = self.unkept.get_mut(agent) {
            unkept.told.retain(|_, told| *told != Some(uuid));
            self.confirmed.insert(uuid);
        }
    }

    /// Whether the process of this status' agent has ended since then.
    fn has_ended_since(&self, status: &TaskStatus, since: Duration) -> bool {
        let node = status.agent_id.as_ref().and_then(|id| self.nodes.get(id));
        let ended = node.and_then(|node| self.nodes_ended.get(node));
        ended.is_some_and(|ended| *ended >= since)
    }

    /// Since when the container of a task reported as running has had no process, if so.
    fn without_process(&self, live: &Live) -> Option<Duration> {
        let running = live.state == TaskState::Running;
        let container = live.container.as_ref().filter(|_| running)?;
        let ended = self.process_ends.get(container).copied();
        let has_none = !self.processes.contains(container);
        has_none.then_some(ended.unwrap_or(live.heard))
    }

    /// Whether its agent may not know this end: its disk rejected it before the process that sent
    /// it ended.
    fn may_be_unknown(&self, end: &EndOf) -> bool {
        let mut unkept = self.unkept.values();
        unkept.any(|unkept| unkept.lost.contains(end))
    }

    fn process_ended(&mut self, container: &ContainerId, at: Duration) {
        self.processes.remove(container);
        self.process_ends.insert(container.clone(), at);
        if self.process_ends.len() >= ENDS_KEPT {
            let of_live = self
                .live
                .values()
                .filter_map(|live| live.container.as_ref());
            let wanted: BTreeSet<_> = of_live.collect();
            self.process_ends.retain(|id, _| wanted.contains(id));
        }
    }
}

impl Checker for States {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.frameworks.see(event);
        match event.kind {
            EventKind::Received(observed) => {
                if let Some(changed) = observed.is::<StatusChanged>()
                    && let Some(framework) = self.frameworks.hearing(&observed).cloned()
                {
                    return self
                        .on_status(framework, &changed.status, event.at)
                        .or_else(|what| broken(NAME, event.at, what));
                }
            }
            EventKind::Sent(observed) => {
                if let Some(stored) = observed.is::<UpdateStored>() {
                    self.on_confirmation(observed.from, stored.uuid);
                }
                if let Some(updated) = observed.is::<TaskUpdated>() {
                    let (agent, node) = (updated.agent_id.clone(), observed.from.to_owned());
                    self.nodes.insert(agent, node);
                    self.on_agent_update(observed.from, &updated.update);
                }
            }
            EventKind::ProcessStarted { container, .. } => {
                self.processes.insert(container.clone());
            }
            EventKind::FaultBegan(fault) => {
                if let FaultKind::FailingDisk { node } = &fault.kind {
                    self.unkept.entry(node.clone()).or_default();
                }
            }
            EventKind::NodeEnded { node, .. } => {
                self.nodes_ended.insert(node.to_owned(), event.at);
                if let Some(unkept) = self.unkept.get_mut(node) {
                    let told = std::mem::take(&mut unkept.told);
                    unkept.lost.extend(told.into_keys());
                }
            }
            EventKind::ProcessEnded { container, .. } => self.process_ended(container, event.at),
            EventKind::FaultsOver => self.recovery = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let mut without = self
            .live
            .values()
            .filter_map(|live| self.without_process(live));
        without.any(|since| since + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let recovery = self.recovery.unwrap_or(at);
        let runs = |live: &&Live| live.state == TaskState::Running && live.container.is_some();
        self.judgements += self.live.values().filter(runs).count() as u64;
        for ((framework, task), live) in &self.live {
            let since = self.without_process(live);
            let (Some(since), Some(container)) = (since, &live.container) else {
                continue;
            };
            if since.max(recovery) + NEWS <= at {
                let what = format!(
                    "task {task} of {framework} runs, as its scheduler last heard at {:?}, but its container {container} has no process since {since:?} at the latest",
                    live.heard,
                );
                return broken(NAME, at, what);
            }
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests;
