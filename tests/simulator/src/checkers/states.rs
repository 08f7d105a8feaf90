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
mod tests {
    use super::super::stage::{Stage, agent, container, status};
    use super::*;
    use crate::scenario::Fault;
    use protocol::{FrameworkInfo, Reason, Source};
    use runtime::Timestamp;

    fn stage() -> Stage<States> {
        let mut stage = Stage::new(States::default(), "cpus:4");
        stage.fact(What::ProcessStarted {
            agent: "agent-1",
            container: &container(),
        });
        stage
    }

    fn process_ends(stage: &mut Stage<States>) -> &mut Stage<States> {
        stage.fact(What::ProcessEnded {
            agent: "agent-1",
            container: &container(),
        })
    }

    #[test]
    fn what_a_deposed_master_says_when_it_awakes_its_scheduler_does_not_hear() {
        let finished = status("t", TaskState::Finished, Some(2));
        let status = status("t", TaskState::Running, None);
        let late = StatusChanged { status };
        for (master, falls, clean) in [
            ("master-2", false, true),
            ("master-2", true, true),
            ("master", false, false),
            ("master", true, false), // Said before it fell.
        ] {
            let mut stage = stage();
            stage.changed(&finished);
            if falls {
                stage.fact(What::NodeEnded {
                    node: "master",
                    crashed: true,
                });
            }
            stage.told(master, "framework-1", &late);
            match clean {
                true => stage.is_clean(),
                false => stage.is_broken("TASK_RUNNING"),
            }
        }
    }

    #[test]
    fn what_is_under_way_to_a_scheduler_when_another_leads_is_not_heard_by_its_framework() {
        let killed = status("t", TaskState::Killed, Some(1));
        let gone = StatusChanged {
            status: status("t", TaskState::GoneByOperator, None),
        };
        let late = StatusChanged { status: killed };
        for (hears, clean) in [("framework-1", true), ("standby-1", false)] {
            let mut stage = stage();
            stage.subscribe("standby-1", FrameworkInfo::new("user", "f"));
            stage.told("master", "standby-1", &gone);
            stage.told("master", hears, &late);
            match clean {
                true => stage.is_clean(),
                false => stage.is_broken("TASK_KILLED"),
            }
        }
    }

    #[test]
    fn what_was_called_gone_by_a_master_has_no_other_end_by_its_agents_words() {
        let mut gone = status("t", TaskState::Gone, None);
        gone.source = Source::Master;
        for state in [TaskState::Dropped, TaskState::Failed] {
            let end = status("t", state, Some(1));
            stage()
                .changed(&gone)
                .changed(&end)
                .is_broken("had ended as TASK_GONE");
        }
    }

    #[test]
    fn a_master_that_is_asked_may_know_of_the_agent_alone_that_it_is_gone() {
        let finished = status("t", TaskState::Finished, Some(2));
        let mut gone = status("t", TaskState::GoneByOperator, None);
        gone.source = Source::Master;
        let asked = TaskStatus {
            reason: Some(Reason::Reconciliation),
            ..gone.clone()
        };
        stage().changed(&finished).changed(&asked).is_clean();
        stage()
            .changed(&finished)
            .changed(&gone)
            .is_broken("TASK_GONE_BY_OPERATOR");
    }

    #[test]
    fn an_end_may_be_told_again_but_not_another_state_after_it() {
        let finished = status("t", TaskState::Finished, Some(2));
        let running = status("t", TaskState::Running, Some(1));
        let failed = status("t", TaskState::Failed, Some(3));
        stage()
            .changed(&running)
            .changed(&finished)
            .changed(&finished)
            .is_clean();
        stage()
            .changed(&finished)
            .changed(&running)
            .is_broken("TASK_RUNNING");
        stage()
            .changed(&finished)
            .changed(&failed)
            .is_broken("TASK_FAILED");
    }

    fn disk_fails(stage: &mut Stage<States>) -> &mut Stage<States> {
        let fault: Fault = "0secs+9secs failing_disk agent-1".parse().unwrap();
        stage.fact(What::FaultBegan(&fault))
    }

    fn agent_falls(stage: &mut Stage<States>) -> &mut Stage<States> {
        stage.fact(What::NodeEnded {
            node: "agent-1",
            crashed: true,
        })
    }

    /// The next process of the agent finds that the executor has gone.
    fn failed() -> TaskStatus {
        of_the_next(TaskState::Failed, Reason::ExecutorTerminated)
    }

    /// The same in the words of a master, when an operator has the agent removed before its own have come.
    fn removed() -> TaskStatus {
        let mut end = of_the_next(TaskState::Failed, Reason::AgentRemovedByOperator);
        end.source = Source::Master;
        end
    }

    /// The next process of the agent says how the task ended.
    fn of_the_next(state: TaskState, reason: Reason) -> TaskStatus {
        let mut end = status("t", state, Some(3));
        end.source = Source::Agent;
        end.reason = Some(reason);
        end
    }

    #[test]
    fn an_end_that_its_agent_could_not_keep_may_be_unknown_to_the_next_process_and_no_other() {
        let finished = status("t", TaskState::Finished, Some(2));
        let running = status("t", TaskState::Running, Some(1));
        let cases = [
            (true, false, true),
            (false, false, true),
            (true, true, true),
            (true, false, false),
        ];
        // Seed 3 of one master with five frameworks: the second.
        let told = [failed(), removed()];
        let cases = told.iter().flat_map(|end| cases.map(|case| (end, case)));
        for (end, (refuses, confirms, falls)) in cases {
            let mut stage = stage();
            if refuses {
                disk_fails(&mut stage);
            }
            if confirms {
                stage.stored(&finished);
            }
            stage.changed(&running);
            stage.tells(&finished).changed(&finished);
            if falls {
                agent_falls(&mut stage);
            }
            if refuses && !confirms && falls {
                stage.changed(&running);
            }
            stage.changed(end);
            match (refuses, confirms, falls) {
                (true, false, true) => stage.is_clean(),
                _ => stage.is_broken("TASK_FAILED"),
            }
        }
    }

    /// Found by a rehearsal of a group (seed 697): a slow disk had not yet what was acknowledged when the agent fell.
    #[test]
    fn the_next_process_says_again_what_it_does_not_know_to_be_acknowledged() {
        let of_agent = |state, uuid| status("t", state, Some(uuid)).on(&agent());
        let running = of_agent(TaskState::Running, 1);
        let finished = of_agent(TaskState::Finished, 2);
        for falls in [true, false] {
            let mut stage = stage();
            for status in [&running, &finished] {
                stage.tells(status).changed(status);
            }
            if falls {
                agent_falls(&mut stage);
            }
            stage.changed(&running);
            match falls {
                true => stage.is_clean(),
                false => stage.is_broken("TASK_RUNNING"),
            }
        }
    }

    /// Found by a rehearsal (seed 13): the next process, on a busy machine, made room by killing what had been killed already.
    #[test]
    fn the_next_process_may_make_room_by_killing_what_has_ended() {
        let killed = status("t", TaskState::Killed, Some(2));
        for falls in [true, false] {
            let mut stage = stage();
            disk_fails(&mut stage).tells(&killed).changed(&killed);
            if falls {
                agent_falls(&mut stage);
            }
            stage.changed(&of_the_next(TaskState::Gone, Reason::ContainerPreempted));
            match falls {
                true => stage.is_clean(),
                false => stage.is_broken("TASK_GONE"),
            }
        }
    }

    #[test]
    fn a_master_answers_by_the_books_of_an_agent_that_could_not_keep_the_end() {
        let finished = status("t", TaskState::Finished, Some(2));
        let mut answer = status("t", TaskState::Running, None);
        answer.source = Source::Master;
        answer.reason = Some(Reason::Reconciliation);
        for fails in [true, false] {
            let mut stage = stage();
            if fails {
                disk_fails(&mut stage);
            }
            agent_falls(stage.tells(&finished).changed(&finished)).changed(&answer);
            match fails {
                true => stage.is_clean(),
                false => stage.is_broken("TASK_RUNNING"),
            }
        }
    }

    #[test]
    fn what_the_next_process_confirms_was_not_kept_by_the_one_before() {
        let finished = status("t", TaskState::Finished, Some(2));
        let running = status("t", TaskState::Running, Some(1));
        let mut stage = stage();
        disk_fails(stage.changed(&running)).tells(&finished);
        agent_falls(stage.changed(&finished));
        stage.stored(&finished).changed(&running).is_clean();
    }

    #[test]
    fn an_end_that_a_master_told_in_an_answer_was_its_agents_all_the_same() {
        let finished = status("t", TaskState::Finished, Some(2));
        let mut answer = status("t", TaskState::Finished, None);
        answer.source = Source::Master;
        let mut stage = stage();
        disk_fails(&mut stage).tells(&finished).changed(&answer);
        agent_falls(stage.changed(&finished));
        stage.changed(&failed()).is_clean();
    }

    #[test]
    fn a_master_may_say_that_it_does_not_know_a_task_that_ended_but_not_that_it_lives() {
        let finished = status("t", TaskState::Finished, Some(2));
        let mut of_master = status("t", TaskState::Lost, None);
        of_master.source = Source::Master;
        stage().changed(&finished).changed(&of_master).is_clean();
        of_master.state = TaskState::Unreachable;
        stage().changed(&finished).changed(&of_master).is_clean();
        of_master.state = TaskState::Running;
        stage()
            .changed(&finished)
            .changed(&of_master)
            .is_broken("TASK_RUNNING");
    }

    #[test]
    fn a_task_that_could_not_be_reached_may_come_back() {
        let mut lost = status("t", TaskState::Lost, None);
        let running = status("t", TaskState::Running, None);
        lost.unreachable_since = Some(Timestamp::default());
        stage().changed(&lost).changed(&running).is_clean();
        lost.unreachable_since = None;
        stage()
            .changed(&lost)
            .changed(&running)
            .is_broken("TASK_LOST");
    }

    #[test]
    fn a_task_that_runs_has_a_process_or_the_news_comes() {
        let running = status("t", TaskState::Running, Some(1));
        let finished = status("t", TaskState::Finished, Some(2));
        let mut runs = stage();
        runs.fact(What::FaultsOver)
            .changed(&running)
            .wait(NEWS * 2)
            .is_clean();
        let mut ended = stage();
        process_ends(ended.fact(What::FaultsOver).changed(&running)).wait(NEWS);
        ended.is_broken("no process");
        let mut told = stage();
        process_ends(told.fact(What::FaultsOver).changed(&running)).changed(&finished);
        told.wait(NEWS * 2).is_clean();
    }
}
