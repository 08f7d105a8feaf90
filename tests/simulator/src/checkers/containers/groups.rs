//! Groups: a task that fails or is killed takes its task group along.
//!
//! Judged by what agents send and by the machines. When an agent sends that a task of a group has
//! failed or was killed, the commands of the others end within [`END_MAX`] while that process of the
//! agent lives, and in any case by the end of the recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::container::machine::command::GRACE_DEFAULT;
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{ContainerId, FrameworkId, TaskId, TaskState};

use crate::checkers::checker::{Checker, Violation};
use crate::checkers::{UNDER_WAY, broken};
use crate::event::{CommandTask, Event, EventKind, SeenMessage};

/// Maximum time of the other tasks: their grace period, and some for the launcher.
const END_MAX: Duration = Duration::from_secs(GRACE_DEFAULT.as_secs() + 10);

const NAME: &str = "groups";

/// A group: the framework and the first task.
type Group = (FrameworkId, TaskId);

/// A running command of a task in a group.
struct Member {
    agent: String,
    task: TaskId,
    group: Group,
}

/// A failed group.
struct Failure {
    agent: String,
    task: TaskId,
    at: Duration,
    /// When its commands have to be gone, while its agent lives.
    due: Option<Duration>,
}

/// The checker.
#[derive(Default)]
pub struct TaskGroups {
    /// The groups of all tasks in groups.
    groups: BTreeMap<(FrameworkId, TaskId), Group>,
    running: BTreeMap<ContainerId, Member>,
    failed: BTreeMap<Group, Failure>,
    /// Failed groups whose agents have lived since.
    due: BTreeSet<Group>,
    judgements: u64,
}

impl TaskGroups {
    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if let Some(run) = observed.is::<RunTasks>() {
            let framework = run.framework.id.iter();
            let tasks = framework.flat_map(|id| run.tasks.iter().map(move |task| (id, task)));
            for (framework, task) in tasks {
                if let Some(group) = &task.group {
                    let group = (framework.clone(), group.clone());
                    let key = (framework.clone(), task.task_id.clone());
                    self.groups.insert(key, group);
                }
            }
        } else if let Some(updated) = observed.is::<TaskUpdated>()
            && let TaskState::Failed | TaskState::Killed = updated.update.latest_state
        {
            let update = &updated.update;
            let task = update.status.task_id.clone();
            let key = (update.framework_id.clone(), task.clone());
            let Some(group) = self.groups.get(&key) else {
                return;
            };
            if !self.failed.contains_key(group) {
                let due = Some(at + END_MAX);
                let agent = observed.from.to_owned();
                let failure = Failure {
                    agent,
                    task,
                    at,
                    due,
                };
                self.failed.insert(group.clone(), failure);
                self.due.insert(group.clone());
            }
        }
    }

    fn started(&mut self, started: CommandTask<'_>) {
        let key = (started.framework.clone(), started.task.clone());
        if let Some(group) = self.groups.get(&key) {
            let member = Member {
                agent: started.agent.to_owned(),
                task: started.task.clone(),
                group: group.clone(),
            };
            self.running.insert(started.container.clone(), member);
        }
    }

    /// The running commands of failed groups, with the failure.
    fn outliving(&self) -> impl Iterator<Item = (&Member, &Failure)> {
        let running = self.running.values();
        running.filter_map(|member| Some((member, self.failed.get(&member.group)?)))
    }

    /// Judges the groups that have failed long enough ago.
    fn judge_due(&mut self, at: Duration) -> Result<(), String> {
        let is_due = |failure: &Failure| failure.due.is_some_and(|due| due < at);
        let mut outliving = self.outliving();
        if let Some((member, failure)) = outliving.find(|(_, failure)| is_due(failure)) {
            return Err(Self::words(member, failure));
        }
        drop(outliving);
        let (failed, before) = (&self.failed, self.due.len());
        self.due
            .retain(|group| !failed.get(group).is_some_and(is_due));
        self.judgements += (before - self.due.len()) as u64;
        Ok(())
    }

    fn words(member: &Member, failure: &Failure) -> String {
        format!(
            "task {} runs on {}, but {} sent at {:?} that task {} of its group has failed or was killed",
            member.task, member.agent, failure.agent, failure.at, failure.task
        )
    }
}

impl Checker for TaskGroups {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if !self.due.is_empty() {
            self.judge_due(event.at)
                .or_else(|what| broken(NAME, event.at, what))?;
        }
        match event.kind {
            EventKind::Sent(observed) => self.on_sent(&observed, event.at),
            EventKind::CommandStarted(started) => self.started(started),
            EventKind::ProcessEnded { container, .. } => drop(self.running.remove(container)),
            EventKind::NodeEnded { node, .. } => {
                for failure in self.failed.values_mut().filter(|one| one.agent == node) {
                    failure.due = None;
                }
                let failed = &self.failed;
                self.due
                    .retain(|group| failed.get(group).is_some_and(|one| one.due.is_some()));
            }
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        self.outliving()
            .any(|(_, failure)| failure.at + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let late = |(_, failure): &(&Member, &Failure)| failure.at + END_MAX <= at;
        let late = self.outliving().find(late);
        let words = late.map(|(member, failure)| Self::words(member, failure));
        words.map_or(Ok(()), |what| broken(NAME, at, what))
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{Fixture, framework, status, task};
    use protocol::TaskInfo;

    const AGENT: &str = "agent-1";

    /// Two running tasks of a group, and a third one beside it.
    fn fixture() -> Fixture<TaskGroups> {
        let mut fixture = Fixture::new(TaskGroups::default(), "cpus:4");
        let member = |name| TaskInfo {
            group: Some(TaskId::new("a").unwrap()),
            ..task(name, "cpus:1")
        };
        fixture.runs(&[member("a"), member("b"), task("c", "cpus:1")]);
        for name in ["a", "b", "c"] {
            fixture.fact(EventKind::CommandStarted(CommandTask {
                agent: AGENT,
                container: &ContainerId::new(name).unwrap(),
                framework: &framework(),
                task: &TaskId::new(name).unwrap(),
            }));
        }
        fixture
    }

    fn ends<'a>(
        fixture: &'a mut Fixture<TaskGroups>,
        name: &str,
        state: TaskState,
    ) -> &'a mut Fixture<TaskGroups> {
        let (agent, container) = (AGENT, &ContainerId::new(name).unwrap());
        fixture.fact(EventKind::ProcessEnded { agent, container });
        fixture.tells(&status(name, state, Some(1)))
    }

    /// Some event after a while.
    fn later(fixture: &mut Fixture<TaskGroups>) -> &mut Fixture<TaskGroups> {
        fixture.wait(END_MAX * 2).fact(EventKind::FaultsOver)
    }

    #[test]
    fn failed_task_ends_the_others() {
        for state in [TaskState::Failed, TaskState::Killed] {
            let mut alone = fixture();
            later(ends(&mut alone, "a", state)).is_broken("task b runs");
            let mut together = fixture();
            ends(&mut together, "a", state);
            later(ends(&mut together, "b", TaskState::Killed)).is_clean();
        }
        let mut finished = fixture();
        later(ends(&mut finished, "a", TaskState::Finished));
        ends(&mut finished, "b", TaskState::Failed);
        later(&mut finished).is_clean();
    }

    #[test]
    fn next_process_of_the_agent_ends_the_others_too() {
        let mut fixture = fixture();
        ends(&mut fixture, "a", TaskState::Failed);
        let (node, crashed) = (AGENT, true);
        fixture.fact(EventKind::NodeEnded { node, crashed });
        later(&mut fixture).is_broken("task b runs");
    }
}
