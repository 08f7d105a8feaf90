//! Updates: a status update that an executor's driver sent and its agent has confirmed reaches its
//! framework at least once, in order per task.
//!
//! Judged from the executor driver's first sending: from then on its agent, or the agent's next
//! process, must confirm the update while the executor's process lives. It is a violation if the
//! executor lives for [`RECOVERY`] after the faults without it. After the agent's `UpdateStored`
//! the update is owed, whether the executor's process lives or not. An update of a command, which
//! the agent makes itself, is owed from the agent's first sending, since it is stored before; and
//! an agent must report that a command runs while its process lives. An update has reached its
//! framework when the scheduler acknowledges it. An acknowledgement before that of an update stored
//! earlier is a violation at once; an update without one by its deadline is a violation at the end
//! of the recovery. The deadline follows from the agents' resends: the interval is at most the
//! update's age, up to ten minutes.
//!
//! Not owed:
//!
//! - updates of an agent whose process shut down in order, for then it forgets everything, or
//!   crashed on its way there;
//! - updates of frameworks without `checkpoint` when the agent's process ended in any way. The
//!   confirmed updates of others are on the disk, for the next process;
//! - updates of tasks that the master has disowned, and of removed frameworks, as the agent was
//!   told;
//! - updates that an agent had, or stored afterwards, when a master ordered it to shut down or
//!   refused it for good: it was marked gone, and its tasks were reported to their frameworks as
//!   gone;
//! - late updates: after their task's end, or of a container whose process has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agent::container::machine::command::update_id;
use protocol::message::executor::{ExecutorUpdated, SubscribeExecutor, UpdateStored};
use protocol::message::registration::{DisownTasks, ShutDownAgent};
use protocol::message::scheduler::{AcknowledgeStatus, Subscribed, SubscriptionRefused, TearDown};
use protocol::message::task::{RunTasks, ShutDownFramework, TaskUpdated};
use protocol::{ContainerId, FrameworkId, Source, StatusUpdate, TaskId, TaskState, Uuid};

use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{Frameworks, is_refused_for_ever};
use crate::checkers::{RECOVERY, UNDER_WAY, broken};
use crate::event::{CommandTask, Event, EventKind, SeenMessage};
use crate::scenario::FaultKind;

/// Maximum interval before an agent resends an update.
const RESEND_MAX: Duration = Duration::from_secs(600);

/// Time for earlier updates in its task's stream.
const SLACK: Duration = Duration::from_secs(120);

const NAME: &str = "updates";

type Key = (FrameworkId, TaskId);

/// A container with a running process.
struct Container {
    framework: FrameworkId,
    /// Its ended tasks, and the update of the end.
    ended: BTreeMap<TaskId, Uuid>,
}

/// An update that its agent has handled but not confirmed yet.
struct Sent {
    key: Key,
    state: TaskState,
}

/// An update without a confirmation or, of a command, one that its agent has not sent.
struct Unconfirmed {
    key: Key,
    container: ContainerId,
    is_command: bool,
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
    /// Containers of commands.
    commands: BTreeSet<ContainerId>,
    /// Updates of commands that agents have sent.
    of_commands: BTreeSet<Uuid>,
    sent: BTreeMap<Uuid, Sent>,
    /// Updates that drivers of living executors have sent and no agent has confirmed, and since
    /// when.
    unconfirmed: BTreeMap<Uuid, Unconfirmed>,
    owed: BTreeMap<Key, VecDeque<Owed>>,
    /// Updates that schedulers have acknowledged: an executor may repeat them to its agent's next
    /// process.
    acknowledged: BTreeSet<Uuid>,
    /// Frameworks whose executors outlive their agent's process.
    outliving: BTreeSet<FrameworkId>,
    disowned: BTreeSet<Key>,
    over: BTreeSet<FrameworkId>,
    /// Agents that a master has ordered to shut down or refused for good, until their next process.
    dismissed: BTreeSet<String>,
    /// Nodes that a fault has ordered to shut down and that have not ended yet.
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
            return; // its process is gone: late
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

    /// An executor's driver sends it, perhaps repeatedly.
    fn driven(&mut self, update: &ExecutorUpdated, at: Duration) {
        let status = &update.status;
        let (Some(uuid), Some(id)) = (status.uuid, &status.container_id) else {
            return;
        };
        let Some(container) = self.containers.get(id) else {
            return; // no agent knows its executor
        };
        let key = (container.framework.clone(), status.task_id.clone());
        let unwanted = self.disowned.contains(&key) || self.over.contains(&key.0);
        let late = container.ended.contains_key(&status.task_id);
        if !unwanted && !late && !self.acknowledged.contains(&uuid) {
            self.unconfirmed.entry(uuid).or_insert(Unconfirmed {
                key,
                container: id.clone(),
                is_command: false,
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
        let unwanted = self.disowned.contains(&key) || self.over.contains(&key.0);
        if unwanted || self.dismissed.contains(agent) {
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

    /// A command runs, so that its agent must report it as running.
    fn command_started(&mut self, started: CommandTask<'_>, at: Duration) {
        self.commands.insert(started.container.clone());
        let key = (started.framework.clone(), started.task.clone());
        let unwanted = self.disowned.contains(&key) || self.over.contains(&key.0);
        let id = update_id(started.container, TaskState::Running);
        if let Some(uuid) = id.filter(|_| !unwanted) {
            let unsent = Unconfirmed {
                key,
                container: started.container.clone(),
                is_command: true,
                state: TaskState::Running,
                since: at,
            };
            self.unconfirmed.insert(uuid, unsent);
        }
    }

    /// An agent sends an update of a command, perhaps repeatedly.
    fn command_updated(&mut self, update: &StatusUpdate, agent: &str, at: Duration) {
        let status = &update.status;
        if let Some(id) = &status.container_id
            && (status.state.is_terminal() || status.state == TaskState::Killing)
            && let Some(running) = update_id(id, TaskState::Running)
        {
            // A command that is killed while it starts never counts as running.
            self.unconfirmed.remove(&running);
        }
        let is_command = |id: &ContainerId| self.commands.contains(id);
        if let Some(uuid) = status.uuid
            && status.source == Source::Executor
            && status.container_id.as_ref().is_some_and(is_command)
            && self.of_commands.insert(uuid)
        {
            let key = (update.framework_id.clone(), status.task_id.clone());
            let state = status.state;
            self.sent.insert(uuid, Sent { key, state });
            self.stored(uuid, agent, at);
        }
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

    /// Checks that this update was not unconfirmed for too long, at the end of its executor or of
    /// the run.
    fn confirmed(&mut self, uuid: &Uuid, one: &Unconfirmed, at: Duration) -> Result<(), Violation> {
        let Unconfirmed {
            key: (framework, task),
            is_command,
            state,
            since,
            ..
        } = one;
        self.judgements += 1;
        let due = self.recovery.map(|over| over.max(*since) + RECOVERY);
        if due.is_none_or(|due| at < due) {
            return Ok(());
        }
        let what = match is_command {
            true => format!(
                "{state} ({uuid}) of task {task} of {framework}, whose command started at {since:?}, was never sent by its agent"
            ),
            false => format!(
                "{state} ({uuid}) of task {task} of {framework}, sent by its executor at {since:?}, was never confirmed by its agent"
            ),
        };
        broken(NAME, at, what)
    }

    /// Removes updates that are no longer owed.
    fn forgive(&mut self, forgiven: impl Fn(&Key, &Owed) -> bool) {
        self.owed.retain(|key, owed| {
            owed.retain(|owed| !forgiven(key, owed));
            !owed.is_empty()
        });
    }

    /// The agent is gone for its master: its updates, stored and later ones, have no receiver.
    fn dismiss(&mut self, agent: &str) {
        self.forgive(|_, owed| owed.agent == agent);
        self.dismissed.insert(agent.to_owned());
    }

    fn framework_over(&mut self, framework: &FrameworkId) {
        self.over.insert(framework.clone());
        self.unconfirmed.retain(|_, one| one.key.0 != *framework);
        self.forgive(|key, _| key.0 == *framework);
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), String> {
        if let Some(update) = observed.is::<ExecutorUpdated>() {
            self.driven(update, at);
        } else if let Some(updated) = observed.is::<TaskUpdated>() {
            self.command_updated(&updated.update, observed.from, at);
        } else if let Some(stored) = observed.is::<UpdateStored>() {
            self.stored(stored.uuid, observed.from, at);
        } else if let Some(call) = observed.is::<AcknowledgeStatus>() {
            // A master forwards them, and acknowledges for removed frameworks: neither is the
            // scheduler.
            if self.frameworks.of_node(observed.from) == Some(&call.framework_id) {
                return self.acknowledged(call);
            }
        } else if let Some(call) = observed.is::<TearDown>() {
            self.framework_over(&call.framework_id);
        } else if let Some(run) = observed.is::<RunTasks>() {
            let outliving = run.framework.id.iter().filter(|_| run.framework.checkpoint);
            self.outliving.extend(outliving.cloned());
        } else if let Some(gone) = observed.is::<ShutDownFramework>() {
            self.framework_over(&gone.framework_id);
        } else if observed.is::<ShutDownAgent>().is_some() {
            self.dismiss(observed.to);
        } else if observed.reply
            && let Some(Err(SubscriptionRefused::Never { .. })) =
                observed.is::<Result<Subscribed, SubscriptionRefused>>()
            && let Some(framework) = self.frameworks.of_node(observed.to).cloned()
        {
            self.framework_over(&framework);
        }
        Ok(())
    }

    fn on_received(&mut self, observed: &SeenMessage<'_>) {
        if is_refused_for_ever(observed) {
            self.dismiss(observed.to);
        } else if let Some(update) = observed.is::<ExecutorUpdated>() {
            self.updated(update);
        } else if let Some(subscribe) = observed.is::<SubscribeExecutor>() {
            let container = self.containers.entry(subscribe.container_id.clone());
            container.or_insert_with(|| Container {
                framework: subscribe.framework_id.clone(),
                ended: BTreeMap::new(),
            });
        } else if let Some(disowned) = observed.is::<DisownTasks>() {
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

    /// The deadline of an update stored at `stored`, if the faults were over at `recovery`: agents
    /// and schedulers return within [`RECOVERY`]; then the next resend is at most the update's age
    /// away.
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
        match event.kind {
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed, event.at)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            EventKind::Received(observed) => self.on_received(&observed),
            EventKind::CommandStarted(started) => self.command_started(started, event.at),
            EventKind::ProcessEnded { container, .. } => {
                self.containers.remove(container);
                let all = std::mem::take(&mut self.unconfirmed).into_iter();
                let (over, left) = all.partition(|(_, one)| one.container == *container);
                self.unconfirmed = left;
                let over: BTreeMap<Uuid, Unconfirmed> = over;
                for (uuid, one) in &over {
                    self.confirmed(uuid, one, event.at)?;
                }
            }
            EventKind::FaultBegan(fault) => {
                if let FaultKind::Restart { node } = &fault.kind {
                    self.leaving.insert(node.clone());
                }
            }
            EventKind::NodeStarted { node, .. } => {
                self.leaving.remove(node);
                self.dismissed.remove(node);
            }
            EventKind::NodeEnded { node, crashed } => {
                let remembers = crashed && !self.leaving.contains(node);
                let outliving = std::mem::take(&mut self.outliving);
                self.forgive(|key, owed| {
                    owed.agent == node && !(remembers && outliving.contains(&key.0))
                });
                self.outliving = outliving;
            }
            EventKind::FaultsOver => self.recovery = Some(event.at),
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
    use super::*;
    use crate::checkers::fixture::{Fixture, agent, container, framework, seconds, status, task};
    use crate::scenario::Fault;
    use protocol::FrameworkInfo;
    use protocol::message::registration::{RegisterAgent, RegistrationRefused};
    use runtime::Role;

    fn fixture() -> Fixture<Updates> {
        let mut fixture = Fixture::new(Updates::default(), "cpus:4");
        fixture.executor_subscribes().fact(EventKind::FaultsOver);
        fixture
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn stored_update_is_owed_until_acknowledged() {
        let running = status("t", TaskState::Running, Some(1));
        fixture()
            .stored(&running)
            .acknowledges(&running)
            .wait(LONG)
            .is_clean();
        fixture()
            .stored(&running)
            .wait(LONG)
            .is_broken("has not reached");
        let mut fresh = fixture();
        fresh.stored(&running).wait(seconds(1)).is_clean();
    }

    #[test]
    fn living_executors_update_is_confirmed() {
        let status = status("t", TaskState::Running, Some(1));
        let sent = || {
            let mut fixture = fixture();
            let status = status.clone();
            fixture.delivered("executor-1", "agent-1", &ExecutorUpdated { status });
            fixture
        };
        sent().wait(LONG).is_broken("never confirmed");
        sent().wait(seconds(1)).is_clean();
        let mut died = sent();
        died.fact(EventKind::ProcessEnded {
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
        let mut fixture = fixture();
        fixture.stored(&running).stored(&finished);
        fixture
            .acknowledges(&finished)
            .is_broken("before TASK_RUNNING");
    }

    #[test]
    fn ended_agents_updates_are_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        let mut fixture = fixture();
        fixture.stored(&running).fact(EventKind::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        let finished = status("t2", TaskState::Finished, Some(2));
        fixture
            .stored(&finished)
            .acknowledges(&finished)
            .wait(LONG)
            .is_clean();
    }

    #[test]
    fn checkpointed_updates_are_owed_after_a_crash() {
        let framework = FrameworkInfo {
            id: Some(framework()),
            checkpoint: true,
            ..FrameworkInfo::new("user", "f")
        };
        let tasks = vec![task("t", "cpus:1")];
        let run = RunTasks { framework, tasks };
        let running = status("t", TaskState::Running, Some(1));
        let after = |crashed| {
            let mut fixture = fixture();
            fixture
                .delivered("master", "agent-1", &run)
                .stored(&running)
                .fact(EventKind::NodeEnded {
                    node: "agent-1",
                    crashed,
                });
            fixture
        };
        after(true).wait(LONG).is_broken("has not reached");
        // Ordered to shut down, it has begun to forget when it crashes; ordered before it started,
        // it has not.
        let restart = Fault {
            at: seconds(0),
            lasts: seconds(9),
            kind: FaultKind::Restart {
                node: "agent-1".to_owned(),
            },
        };
        let asked = |begun| {
            let mut fixture = fixture();
            fixture
                .delivered("master", "agent-1", &run)
                .fact(EventKind::FaultBegan(&restart));
            if begun {
                fixture.fact(EventKind::NodeStarted {
                    node: "agent-1",
                    role: Role::Agent,
                });
            }
            fixture.stored(&running).fact(EventKind::NodeEnded {
                node: "agent-1",
                crashed: true,
            });
            fixture
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
        // The executor repeats it, to be sure.
        let mut again = after(true);
        again
            .acknowledges(&running)
            .executor_subscribes()
            .stored(&running);
        again.wait(LONG).is_clean();
    }

    #[test]
    fn disowned_tasks_updates_are_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        let finished = status("t", TaskState::Finished, Some(2));
        let disown = DisownTasks {
            tasks: vec![(framework(), running.task_id.clone())],
        };
        let mut fixture = fixture();
        fixture
            .stored(&running)
            .delivered("master", "agent-1", &disown);
        fixture
            .stored(&finished)
            .wait(LONG)
            .fact(EventKind::FaultsOver);
        let other = status("other", TaskState::Running, Some(3));
        fixture.stored(&other).acknowledges(&other).is_clean();
    }

    #[test]
    fn late_and_ended_frameworks_updates_are_not_owed() {
        let finished = status("t", TaskState::Finished, Some(1));
        let late = status("t", TaskState::Failed, Some(2));
        let mut fixture = fixture();
        fixture
            .stored(&finished)
            .stored(&late)
            .acknowledges(&finished);
        fixture.wait(LONG).is_clean();
        let other = status("t2", TaskState::Running, Some(3));
        let gone = ShutDownFramework {
            framework_id: framework(),
        };
        fixture
            .stored(&other)
            .delivered("master", "agent-1", &gone)
            .is_clean();
        let mut fixture = self::fixture();
        fixture.stored(&finished).acknowledges(&finished);
        fixture.fact(EventKind::ProcessEnded {
            agent: agent().as_str(),
            container: &container(),
        });
        fixture.stored(&other).wait(LONG).is_clean();
    }

    /// Found by a simulation (seed 51): it crashed while it ended its tasks, and its next process
    /// was refused.
    #[test]
    fn stopped_agents_updates_are_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        for (told, is_owed) in [("agent-2", true), ("agent-1", false)] {
            let mut fixture = fixture();
            let other = status("other", TaskState::Running, Some(2));
            fixture.stored(&other).acknowledges(&other).stored(&running);
            let reason = "it is marked gone".to_owned();
            fixture.sent("master", told, &ShutDownAgent { reason });
            fixture.wait(LONG);
            match is_owed {
                true => fixture.is_broken("has not reached"),
                false => fixture.is_clean(),
            }
        }
    }

    #[test]
    fn refused_agents_updates_are_not_owed() {
        let running = status("t", TaskState::Running, Some(1));
        for (never, is_owed) in [(false, true), (true, false)] {
            let mut fixture = fixture();
            let other = status("other", TaskState::Running, Some(2));
            fixture.stored(&other).acknowledges(&other).stored(&running);
            let reason = "it is marked gone".to_owned();
            let refused = match never {
                true => RegistrationRefused::Never { reason },
                false => RegistrationRefused::NotNow { reason },
            };
            fixture.replied::<RegisterAgent>("master", "agent-1", &Err(refused));
            fixture.wait(LONG);
            match is_owed {
                true => fixture.is_broken("has not reached"),
                false => fixture.is_clean(),
            }
        }
    }

    /// Found by seed 70204: it crashed after it had stored the ends of the executors that it shut
    /// down.
    #[test]
    fn updates_stored_after_refusal_are_not_owed() {
        let killed = status("t", TaskState::Killed, Some(1));
        let framework = FrameworkInfo {
            id: Some(framework()),
            checkpoint: true,
            ..FrameworkInfo::new("user", "f")
        };
        let tasks = vec![task("t", "cpus:1")];
        let run = RunTasks { framework, tasks };
        for (is_restarted, is_owed) in [(false, false), (true, true)] {
            let mut fixture = fixture();
            let other = status("other", TaskState::Running, Some(2));
            fixture.stored(&other).acknowledges(&other);
            fixture.delivered("master", "agent-1", &run);
            let reason = "it is marked gone".to_owned();
            let refused = Err(RegistrationRefused::Never { reason });
            fixture.replied::<RegisterAgent>("master", "agent-1", &refused);
            if is_restarted {
                fixture.fact(EventKind::NodeStarted {
                    node: "agent-1",
                    role: Role::Agent,
                });
            }
            fixture.stored(&killed).fact(EventKind::NodeEnded {
                node: "agent-1",
                crashed: true,
            });
            fixture.wait(LONG);
            match is_owed {
                true => fixture.is_broken("has not reached"),
                false => fixture.is_clean(),
            }
        }
    }

    #[test]
    fn deadline_grows_with_age_up_to_a_bound() {
        let minute = seconds(60);
        let young = Updates::deadline(minute * 60, minute * 60);
        let old = Updates::deadline(Duration::ZERO, minute * 60);
        assert_eq!(young, minute * 60 + RECOVERY * 2 + SLACK);
        assert_eq!(old, minute * 60 + RECOVERY + RESEND_MAX + SLACK);
    }
}
