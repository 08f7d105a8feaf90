//! States (invariant 5): a task is in a terminal state once and for ever, and one that its framework was told is running runs, or a
//! later update says otherwise.
//!
//! Judged by what each framework's scheduler hears, in its order. The first terminal state that it hears of a task is the last: the
//! same state may come again (an update sent again, an answer to reconciliation), another one may not, but for a master's own words
//! that it does not know the task, or not any more: it forgets ends that were acknowledged (S131), and the driver, which remembers them,
//! does not pass such words on. `TASK_UNREACHABLE` is not
//! terminal, nor is the `TASK_LOST` that stands for it to frameworks that are not partition-aware (it says since when).
//!
//! An agent whose disk refuses an end sends it all the same, unconfirmed: better heard now than never. If it falls then, and the executor that
//! should say it again is gone, its next process knows only that the executor is, nor what the framework has acknowledged meanwhile. So such an
//! end, and no other, may be followed by that of a task whose executor has gone, from the agent, by what was told before it, and by a master's answer.
//!
//! Nor may an agent have written down what was acknowledged when it falls: its next process says that again, from the first update of which it does
//! not know that it arrived, and the driver passes over what it has heard.
//!
//! At the end of the recovery a task whose newest state is running must have a process; if its process has ended, the news must
//! have come within [`NEWS`] of that end or of the end of the faults, whichever was later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::UpdateStored;
use protocol::message::scheduler::StatusChanged;
use protocol::message::task::TaskUpdated;
use protocol::{
    AgentId, ContainerId, FrameworkId, StatusUpdate, TaskId, TaskState, TaskStatus, Uuid,
};

use super::census::Frameworks;
use super::words::{is_an_answer, is_ignorance, is_of_the_next};
use super::{UNDER_WAY, broken};
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};
use crate::scenario::FaultKind;

/// How long the news of an end may take at most, once no fault comes any more: a master that was started anew waits ten minutes for
/// agents that it knew, and a driver asks about silent tasks at ever longer intervals.
pub const NEWS: Duration = Duration::from_secs(15 * 60);

const NAME: &str = "states";

/// When the ends of processes that no running task is in are let go.
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

/// This end of this task.
type EndOf = (FrameworkId, TaskId, TaskState);

/// The ends that one agent may lose: its disk has failed before it told of them.
#[derive(Default)]
struct Unkept {
    /// Those it has told of and not confirmed to their executors, with the update where it is known.
    told: BTreeMap<EndOf, Option<Uuid>>,
    /// Those of them that it had told of when its process ended: the next may not know them.
    lost: BTreeSet<EndOf>,
}

/// The checker.
#[derive(Default)]
pub struct States {
    frameworks: Frameworks,
    live: BTreeMap<(FrameworkId, TaskId), Live>,
    ended: BTreeMap<(FrameworkId, TaskId), End>,
    /// Updates that frameworks have heard of tasks that had not ended.
    told: BTreeSet<Uuid>,
    /// The nodes of the agents that have told any, and when their last processes ended.
    nodes: BTreeMap<AgentId, String>,
    nodes_ended: BTreeMap<String, Duration>,
    /// What each agent whose disk has failed may lose.
    unkept: BTreeMap<String, Unkept>,
    /// Updates that those agents have confirmed.
    confirmed: BTreeSet<Uuid>,
    processes: BTreeSet<ContainerId>,
    process_ends: BTreeMap<ContainerId, Duration>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl States {
    fn heard(
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
                || is_retold && self.has_fallen(status, since)
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

    /// An agent has told a master of this update, or that there is a later one.
    fn told(&mut self, agent: &str, update: &StatusUpdate) {
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

    /// An agent has confirmed this update: its disk has it.
    fn stored(&mut self, agent: &str, uuid: Uuid) {
        if let Some(unkept) = self.unkept.get_mut(agent) {
            unkept.told.retain(|_, told| *told != Some(uuid));
            self.confirmed.insert(uuid);
        }
    }

    /// Whether the process of this status' agent has ended since then.
    fn has_fallen(&self, status: &TaskStatus, since: Duration) -> bool {
        let node = status.agent_id.as_ref().and_then(|id| self.nodes.get(id));
        let ended = node.and_then(|node| self.nodes_ended.get(node));
        ended.is_some_and(|ended| *ended >= since)
    }

    /// Since when the container of a task that is said to run is known to have no process, if it has none.
    fn without_process(&self, live: &Live) -> Option<Duration> {
        let running = live.state == TaskState::Running;
        let container = live.container.as_ref().filter(|_| running)?;
        let ended = self.process_ends.get(container).copied();
        let has_none = !self.processes.contains(container);
        has_none.then_some(ended.unwrap_or(live.heard))
    }

    /// Whether its agent may not know this end any more: its disk had refused it when the process ended that told of it.
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
        match event.what {
            What::Heard(spoken) => {
                if let Some(changed) = spoken.is::<StatusChanged>()
                    && let Some(framework) = self.frameworks.hearing(&spoken).cloned()
                {
                    return self
                        .heard(framework, &changed.status, event.at)
                        .or_else(|what| broken(NAME, event.at, what));
                }
            }
            What::Said(spoken) => {
                if let Some(stored) = spoken.is::<UpdateStored>() {
                    self.stored(spoken.from, stored.uuid);
                }
                if let Some(updated) = spoken.is::<TaskUpdated>() {
                    let (agent, node) = (updated.agent_id.clone(), spoken.from.to_owned());
                    self.nodes.insert(agent, node);
                    self.told(spoken.from, &updated.update);
                }
            }
            What::ProcessStarted { container, .. } => {
                self.processes.insert(container.clone());
            }
            What::FaultBegan(fault) => {
                if let FaultKind::FailingDisk { node } = &fault.kind {
                    self.unkept.entry(node.clone()).or_default();
                }
            }
            What::NodeEnded { node, .. } => {
                self.nodes_ended.insert(node.to_owned(), event.at);
                if let Some(unkept) = self.unkept.get_mut(node) {
                    let told = std::mem::take(&mut unkept.told);
                    unkept.lost.extend(told.into_keys());
                }
            }
            What::ProcessEnded { container, .. } => self.process_ended(container, event.at),
            What::FaultsOver => self.recovery = Some(event.at),
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
