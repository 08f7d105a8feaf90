//! Updates (invariant 4): a status update that an executor's driver sent and its agent has confirmed reaches its framework at least
//! once, in order per task.
//!
//! Judged from the executor's driver's first sending: from then on its agent, or the next process of it, must confirm the update for as long
//! as the executor's process lives: it is a violation if that lives for [`RECOVERY`] after the faults without it. From the agent's
//! `UpdateStored` on the update is owed, whether that process lives or not. It has reached its framework when the framework's
//! scheduler acknowledges it. An acknowledgement that comes before the one of an update stored earlier is a violation at once; one
//! that has not come by a deadline is a violation at the end of the recovery. The deadline follows from how agents send again: the
//! wait grows no faster than the age of what waits, up to ten minutes.
//!
//! What is not owed, because it cannot be or nobody wants it:
//!
//! - all that an agent's process had when it ended in good order, for then it forgets everything, or when it crashed on its way there;
//! - what it had of frameworks without `checkpoint` when it ended in whatever way. Of the others its next process has all that this one has
//!   confirmed, for that was on the disk before, be it that the machine went too;
//! - updates of tasks that the master has disowned, and of frameworks that are over, as the agent has been told;
//! - what an agent had when a master told it to stop, or refused it for ever, for it was marked gone, and so have been its tasks to their frameworks;
//! - late updates: after their task's end, or of a container whose process has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::message::executor::{ExecutorUpdated, SubscribeExecutor, UpdateStored};
use protocol::message::registration::{DisownTasks, ShutDownAgent};
use protocol::message::scheduler::{AcknowledgeStatus, Subscribed, SubscriptionRefused, TearDown};
use protocol::message::task::{RunTasks, ShutDownFramework};
use protocol::{ContainerId, FrameworkId, TaskId, TaskState, Uuid};

use super::census::{Frameworks, is_refused_for_ever};
use super::{RECOVERY, UNDER_WAY, broken};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::scenario::FaultKind;

/// The longest wait before an agent sends an update again.
const RESEND_MAX: Duration = Duration::from_secs(600);

/// The time that updates before it in its task's stream may take.
const SLACK: Duration = Duration::from_secs(120);

const NAME: &str = "updates";

type Key = (FrameworkId, TaskId);

/// A container whose process runs.
struct Container {
    framework: FrameworkId,
    /// Its tasks that have ended, and the update that said so.
    ended: BTreeMap<TaskId, Uuid>,
}

/// An update that its agent has handled and not confirmed yet.
struct Sent {
    key: Key,
    state: TaskState,
}

/// An update that no agent has confirmed.
struct Unconfirmed {
    key: Key,
    container: ContainerId,
    state: TaskState,
    since: Duration,
}

/// An update that its agent has confirmed.
struct Owed {
    uuid: Uuid,
    state: TaskState,
    agent: String,
    stored: Duration,
}

/// The checker.
#[derive(Default)]
pub struct Updates {
    frameworks: Frameworks,
    containers: BTreeMap<ContainerId, Container>,
    sent: BTreeMap<Uuid, Sent>,
    /// What the drivers of executors that live have sent and no agent has confirmed, and since when.
    unconfirmed: BTreeMap<Uuid, Unconfirmed>,
    owed: BTreeMap<Key, VecDeque<Owed>>,
    /// What schedulers have acknowledged: an executor may say it again to the next process of its agent.
    acknowledged: BTreeSet<Uuid>,
    /// Frameworks whose executors outlive the process of their agent.
    outliving: BTreeSet<FrameworkId>,
    disowned: BTreeSet<Key>,
    over: BTreeSet<FrameworkId>,
    /// Nodes that a fault has asked to end in good order, and that have not ended yet.
    leaving: BTreeSet<String>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl Updates {
    fn updated(&mut self, update: &ExecutorUpdated) {
        let status = &update.status;
        let (Some(uuid), Some(id)) = (status.uuid, &status.container_id) else {
            return;
        };
        let Some(container) = self.containers.get_mut(id) else {
            return; // Its process is gone: late.
        };
        let end = container.ended.get(&status.task_id);
        if end.is_some_and(|end| *end != uuid) {
            return;
        }
        if status.state.is_terminal() {
            container.ended.insert(status.task_id.clone(), uuid);
        }
        let sent = Sent {
            key: (container.framework.clone(), status.task_id.clone()),
            state: status.state,
        };
        self.sent.insert(uuid, sent);
    }

    /// An executor's driver sends it, perhaps again.
    fn driven(&mut self, update: &ExecutorUpdated, at: Duration) {
        let status = &update.status;
        let (Some(uuid), Some(id)) = (status.uuid, &status.container_id) else {
            return;
        };
        let Some(container) = self.containers.get(id) else {
            return; // No agent knows of its executor.
        };
        let key = (container.framework.clone(), status.task_id.clone());
        let unwanted = self.disowned.contains(&key) || self.over.contains(&key.0);
        let late = container.ended.contains_key(&status.task_id);
        if !unwanted && !late && !self.acknowledged.contains(&uuid) {
            self.unconfirmed.entry(uuid).or_insert(Unconfirmed {
                key,
                container: id.clone(),
                state: status.state,
                since: at,
            });
        }
    }

    fn stored(&mut self, uuid: Uuid, agent: &str, at: Duration) {
        self.unconfirmed.remove(&uuid);
        let Some(Sent { key, state }) = self.sent.remove(&uuid) else {
            return;
        };
        if self.disowned.contains(&key) || self.over.contains(&key.0) {
            return;
        }
        let of_task = self.owed.entry(key.clone()).or_default();
        let is_known = of_task.iter().any(|owed| owed.uuid == uuid);
        if is_known || self.acknowledged.contains(&uuid) {
            return;
        }
        of_task.push_back(Owed {
            uuid,
            state,
            agent: agent.to_owned(),
            stored: at,
        });
    }

    fn acknowledged(&mut self, call: &AcknowledgeStatus) -> Result<(), String> {
        let key = (call.framework_id.clone(), call.task_id.clone());
        if self.outliving.contains(&key.0) {
            self.acknowledged.insert(call.uuid);
        }
        let Some(owed) = self.owed.get_mut(&key) else {
            return Ok(());
        };
        let Some(place) = owed.iter().position(|owed| owed.uuid == call.uuid) else {
            return Ok(());
        };
        self.judgements += 1;
        if place > 0 {
            let (this, first) = (&owed[place], &owed[0]);
            return Err(format!(
                "task {} of {}: {} ({}) has reached its scheduler before {} ({}), which its agent stored earlier, at {:?}",
                key.1, key.0, this.state, this.uuid, first.state, first.uuid, first.stored
            ));
        }
        owed.pop_front();
        if owed.is_empty() {
            self.owed.remove(&key);
        }
        Ok(())
    }

    /// Whether this has not been without a word of its agent for too long, now that its executor ends, or the run does.
    fn confirmed(&mut self, uuid: &Uuid, one: &Unconfirmed, at: Duration) -> Result<(), Violation> {
        let Unconfirmed {
            key: (framework, task),
            state,
            since,
            ..
        } = one;
        self.judgements += 1;
        let due = self.recovery.map(|over| over.max(*since) + RECOVERY);
        if due.is_none_or(|due| at < due) {
            return Ok(());
        }
        let what = format!(
            "{state} ({uuid}) of task {task} of {framework}, sent by its executor at {since:?}, was never confirmed by its agent"
        );
        broken(NAME, at, what)
    }

    /// What is not owed any more.
    fn forgive(&mut self, forgiven: impl Fn(&Key, &Owed) -> bool) {
        self.owed.retain(|key, owed| {
            owed.retain(|owed| !forgiven(key, owed));
            !owed.is_empty()
        });
    }

    fn framework_over(&mut self, framework: &FrameworkId) {
        self.over.insert(framework.clone());
        self.unconfirmed.retain(|_, one| one.key.0 != *framework);
        self.forgive(|key, _| key.0 == *framework);
    }

    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), String> {
        if let Some(update) = spoken.is::<ExecutorUpdated>() {
            self.driven(update, at);
        } else if let Some(stored) = spoken.is::<UpdateStored>() {
            self.stored(stored.uuid, spoken.from, at);
        } else if let Some(call) = spoken.is::<AcknowledgeStatus>() {
            // A master passes them on, and acknowledges in the stead of frameworks that are over: neither is the scheduler.
            if self.frameworks.of_node(spoken.from) == Some(&call.framework_id) {
                return self.acknowledged(call);
            }
        } else if let Some(call) = spoken.is::<TearDown>() {
            self.framework_over(&call.framework_id);
        } else if let Some(run) = spoken.is::<RunTasks>() {
            let outliving = run.framework.id.iter().filter(|_| run.framework.checkpoint);
            self.outliving.extend(outliving.cloned());
        } else if let Some(gone) = spoken.is::<ShutDownFramework>() {
            self.framework_over(&gone.framework_id);
        } else if spoken.is::<ShutDownAgent>().is_some() {
            self.forgive(|_, owed| owed.agent == spoken.to);
        } else if spoken.reply
            && let Some(Err(SubscriptionRefused::Never { .. })) =
                spoken.is::<Result<Subscribed, SubscriptionRefused>>()
            && let Some(framework) = self.frameworks.of_node(spoken.to).cloned()
        {
            self.framework_over(&framework);
        }
        Ok(())
    }

    fn heard(&mut self, spoken: &Spoken<'_>) {
        if is_refused_for_ever(spoken) {
            self.forgive(|_, owed| owed.agent == spoken.to);
        } else if let Some(update) = spoken.is::<ExecutorUpdated>() {
            self.updated(update);
        } else if let Some(subscribe) = spoken.is::<SubscribeExecutor>() {
            let container = self.containers.entry(subscribe.container_id.clone());
            container.or_insert_with(|| Container {
                framework: subscribe.framework_id.clone(),
                ended: BTreeMap::new(),
            });
        } else if let Some(disowned) = spoken.is::<DisownTasks>() {
            self.disowned.extend(disowned.tasks.iter().cloned());
            let Self {
                owed,
                disowned,
                unconfirmed,
                ..
            } = self;
            owed.retain(|key, _| !disowned.contains(key));
            unconfirmed.retain(|_, one| !disowned.contains(&one.key));
        }
    }

    /// By when an update stored at `stored` must have come, if the faults were over at `recovery`: agents and schedulers are back
    /// within [`RECOVERY`]; then the next time it is sent again is no further away than its age.
    fn deadline(stored: Duration, recovery: Duration) -> Duration {
        let back = stored.max(recovery) + RECOVERY;
        let age = back.saturating_sub(stored);
        back + age.min(RESEND_MAX) + SLACK
    }
}

impl Checker for Updates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.frameworks.see(event);
        match event.what {
            What::Said(spoken) => {
                return self
                    .said(&spoken, event.at)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            What::Heard(spoken) => self.heard(&spoken),
            What::ProcessEnded { container, .. } => {
                self.containers.remove(container);
                let all = std::mem::take(&mut self.unconfirmed).into_iter();
                let (over, left) = all.partition(|(_, one)| one.container == *container);
                self.unconfirmed = left;
                let over: BTreeMap<Uuid, Unconfirmed> = over;
                for (uuid, one) in &over {
                    self.confirmed(uuid, one, event.at)?;
                }
            }
            What::FaultBegan(fault) => {
                if let FaultKind::Restart { node } = &fault.kind {
                    self.leaving.insert(node.clone());
                }
            }
            What::NodeStarted { node, .. } => {
                self.leaving.remove(node);
            }
            What::NodeEnded { node, crashed } => {
                let remembers = crashed && !self.leaving.contains(node);
                let outliving = std::mem::take(&mut self.outliving);
                self.forgive(|key, owed| {
                    owed.agent == node && !(remembers && outliving.contains(&key.0))
                });
                self.outliving = outliving;
            }
            What::FaultsOver => self.recovery = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let mut unconfirmed = self.unconfirmed.values();
        let mut owed = self.owed.values().flatten();
        unconfirmed.any(|one| one.since + UNDER_WAY < at)
            || owed.any(|owed| owed.stored + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let recovery = self.recovery.unwrap_or(at);
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        for (uuid, one) in &unconfirmed {
            self.confirmed(uuid, one, at)?;
        }
        for ((framework, task), owed) in &self.owed {
            for owed in owed {
                self.judgements += 1;
                if Self::deadline(owed.stored, recovery) <= at {
                    let what = format!(
                        "{} ({}) of task {task} of {framework}, stored by {} at {:?}, has not reached its scheduler",
                        owed.state, owed.uuid, owed.agent, owed.stored
                    );
                    return broken(NAME, at, what);
                }
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
    use super::super::stage::{Stage, agent, container, framework, seconds, status, task};
    use super::*;
    use crate::scenario::Fault;
    use protocol::FrameworkInfo;
    use protocol::message::registration::{RegisterAgent, RegistrationRefused};
    use runtime::Role;

    fn stage() -> Stage<Updates> {
        let mut stage = Stage::new(Updates::default(), "cpus:4");
        stage.executor_subscribes().fact(What::FaultsOver);
        stage
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn an_update_that_was_stored_is_owed_until_its_scheduler_acknowledges() {
        let running = status("t", TaskState::Running, Some(1));
        stage()
            .stored(&running)
            .acknowledges(&running)
            .wait(LONG)
            .is_clean();
        stage()
            .stored(&running)
            .wait(LONG)
            .is_broken("has not reached");
        let mut fresh = stage();
        fresh.stored(&running).wait(seconds(1)).is_clean();
    }

    #[test]
    fn what_an_executor_sends_is_confirmed_as_long_as_it_lives() {
        let status = status("t", TaskState::Running, Some(1));
        let sent = || {
            let mut stage = stage();
            let status = status.clone();
            stage.told("executor-1", "agent-1", &ExecutorUpdated { status });
            stage
        };
        sent().wait(LONG).is_broken("never confirmed");
        sent().wait(seconds(1)).is_clean();
        let mut died = sent();
        died.fact(What::ProcessEnded {
            agent: agent().as_str(),
            container: &container(),
        });
        died.wait(LONG);
        assert_eq!(died.checker.finish(LONG * 2), Ok(()));
    }

    #[test]
    fn updates_of_a_task_come_in_order() {
        let running = status("t", TaskState::Running, Some(1));
        let finished = status("t", TaskState::Finished, Some(2));
        let mut stage = stage();
        stage.stored(&running).stored(&finished);
        stage
            .acknowledges(&finished)
            .is_broken("before TASK_RUNNING");
    }

    #[test]
    fn what_an_agent_had_when_it_ended_is_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        let mut stage = stage();
        stage.stored(&running).fact(What::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        let finished = status("t2", TaskState::Finished, Some(2));
        stage
            .stored(&finished)
            .acknowledges(&finished)
            .wait(LONG)
            .is_clean();
    }

    #[test]
    fn what_outlives_an_agent_is_owed_by_its_next_process_unless_it_ended_in_good_order() {
        let framework = FrameworkInfo {
            id: Some(framework()),
            checkpoint: true,
            ..FrameworkInfo::new("user", "f")
        };
        let tasks = vec![task("t", "cpus:1")];
        let run = RunTasks { framework, tasks };
        let running = status("t", TaskState::Running, Some(1));
        let after = |crashed| {
            let mut stage = stage();
            stage
                .told("master", "agent-1", &run)
                .stored(&running)
                .fact(What::NodeEnded {
                    node: "agent-1",
                    crashed,
                });
            stage
        };
        after(true).wait(LONG).is_broken("has not reached");
        // Asked to end, it has begun to forget when it crashes; asked before it began, it has not.
        let restart = Fault {
            at: seconds(0),
            lasts: seconds(9),
            kind: FaultKind::Restart {
                node: "agent-1".to_owned(),
            },
        };
        let asked = |begun| {
            let mut stage = stage();
            stage
                .told("master", "agent-1", &run)
                .fact(What::FaultBegan(&restart));
            if begun {
                stage.fact(What::NodeStarted {
                    node: "agent-1",
                    role: Role::Agent,
                });
            }
            stage.stored(&running).fact(What::NodeEnded {
                node: "agent-1",
                crashed: true,
            });
            stage
        };
        let other = status("t2", TaskState::Running, Some(2));
        asked(false)
            .stored(&other)
            .acknowledges(&other)
            .wait(LONG)
            .is_clean();
        asked(true).wait(LONG).is_broken("has not reached");
        let other = status("t2", TaskState::Running, Some(2));
        after(false)
            .stored(&other)
            .acknowledges(&other)
            .wait(LONG)
            .is_clean();
        // The executor says it again, to be sure.
        let mut again = after(true);
        again
            .acknowledges(&running)
            .executor_subscribes()
            .stored(&running);
        again.wait(LONG).is_clean();
    }

    #[test]
    fn updates_of_a_task_that_the_agent_was_told_to_disown_are_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        let finished = status("t", TaskState::Finished, Some(2));
        let disown = DisownTasks {
            tasks: vec![(framework(), running.task_id.clone())],
        };
        let mut stage = stage();
        stage.stored(&running).told("master", "agent-1", &disown);
        stage.stored(&finished).wait(LONG).fact(What::FaultsOver);
        let other = status("other", TaskState::Running, Some(3));
        stage.stored(&other).acknowledges(&other).is_clean();
    }

    #[test]
    fn late_updates_and_those_of_ended_frameworks_are_not_owed() {
        let finished = status("t", TaskState::Finished, Some(1));
        let late = status("t", TaskState::Failed, Some(2));
        let mut stage = stage();
        stage
            .stored(&finished)
            .stored(&late)
            .acknowledges(&finished);
        stage.wait(LONG).is_clean();
        let other = status("t2", TaskState::Running, Some(3));
        let gone = ShutDownFramework {
            framework_id: framework(),
        };
        stage
            .stored(&other)
            .told("master", "agent-1", &gone)
            .is_clean();
        let mut stage = self::stage();
        stage.stored(&finished).acknowledges(&finished);
        stage.fact(What::ProcessEnded {
            agent: agent().as_str(),
            container: &container(),
        });
        stage.stored(&other).wait(LONG).is_clean();
    }

    /// Found by a rehearsal (seed 51): it fell while it was ending what it ran, and its next process was refused.
    #[test]
    fn what_an_agent_had_that_is_told_to_stop_is_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        for (told, is_owed) in [("agent-2", true), ("agent-1", false)] {
            let mut stage = stage();
            let other = status("other", TaskState::Running, Some(2));
            stage.stored(&other).acknowledges(&other).stored(&running);
            let reason = "it is marked gone".to_owned();
            stage.said("master", told, &ShutDownAgent { reason });
            stage.wait(LONG);
            match is_owed {
                true => stage.is_broken("has not reached"),
                false => stage.is_clean(),
            }
        }
    }

    #[test]
    fn what_an_agent_had_that_is_refused_for_ever_is_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        for (never, is_owed) in [(false, true), (true, false)] {
            let mut stage = stage();
            let other = status("other", TaskState::Running, Some(2));
            stage.stored(&other).acknowledges(&other).stored(&running);
            let reason = "it is marked gone".to_owned();
            let refused = match never {
                true => RegistrationRefused::Never { reason },
                false => RegistrationRefused::NotNow { reason },
            };
            stage.replied::<RegisterAgent>("master", "agent-1", &Err(refused));
            stage.wait(LONG);
            match is_owed {
                true => stage.is_broken("has not reached"),
                false => stage.is_clean(),
            }
        }
    }

    #[test]
    fn a_deadline_grows_with_the_age_of_what_waits_and_ends() {
        let minute = seconds(60);
        let young = Updates::deadline(minute * 60, minute * 60);
        let old = Updates::deadline(Duration::ZERO, minute * 60);
        assert_eq!(young, minute * 60 + RECOVERY * 2 + SLACK);
        assert_eq!(old, minute * 60 + RECOVERY + RESEND_MAX + SLACK);
    }
}
