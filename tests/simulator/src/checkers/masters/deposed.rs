//! Deposed: a deposed master changes nothing.
//!
//! Judged by its effect: an agent that was registered by the master of a later term starts no task
//! of a master of an earlier term, whichever master forwards it afterwards. A master's term is that
//! of its member's last election when it became leader. Messages at the very moment of the
//! registration may have been handled before it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::TaskId;
use protocol::message::executor::LaunchTask;
use protocol::message::registration::{AgentRegistered, RegistrationRefused, Reregistered};
use protocol::message::task::RunTasks;

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "deposed";

/// The checker.
#[derive(Default)]
pub struct Deposed {
    /// The last term in which each node's member was elected.
    elected: BTreeMap<String, u64>,
    /// The terms of the leading masters.
    terms: BTreeMap<String, u64>,
    /// The highest term of a master that has registered each agent, and when the agent first
    /// received that.
    welcomed: BTreeMap<String, (u64, Duration)>,
    /// The term in which each task was sent first; a repetition by a later master does not change
    /// it.
    sent: BTreeMap<TaskId, u64>,
    /// Tasks that were sent too late, and their terms.
    late: BTreeMap<TaskId, u64>,
    judgements: u64,
}

fn welcomes(observed: &SeenMessage<'_>) -> bool {
    let anew = observed.is::<Result<AgentRegistered, RegistrationRefused>>();
    let again = observed.is::<Result<Reregistered, RegistrationRefused>>();
    anew.is_some_and(Result::is_ok)
        || again.is_some_and(|answer| matches!(answer, Ok(Reregistered::Registered(_))))
}

impl Deposed {
    fn on_received(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if observed.reply
            && welcomes(observed)
            && let Some(term) = self.terms.get(observed.from)
        {
            let known = self.welcomed.entry(observed.to.to_owned());
            let known = known.or_insert((*term, at));
            if *term > known.0 {
                *known = (*term, at);
            }
        } else if let Some(run) = observed.is::<RunTasks>()
            && let Some((welcomed, since)) = self.welcomed.get(observed.to)
        {
            for task in &run.tasks {
                let sent = self.sent.get(&task.task_id);
                if let Some(sent) = sent.filter(|sent| *sent < welcomed && *since < at) {
                    self.late.insert(task.task_id.clone(), *sent);
                }
            }
        }
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        if let Some(run) = observed.is::<RunTasks>() {
            let term = self.terms.get(observed.from).copied().unwrap_or(0);
            for task in &run.tasks {
                self.sent.entry(task.task_id.clone()).or_insert(term);
            }
        } else if let Some(launch) = observed.is::<LaunchTask>() {
            return self.started(&launch.task.task_id, observed.from);
        }
        Ok(())
    }

    /// An agent starts a task.
    fn started(&mut self, task: &TaskId, agent: &str) -> Result<(), String> {
        self.judgements += 1;
        let Some(term) = self.late.get(task) else {
            return Ok(());
        };
        let (later, since) = self.welcomed.get(agent).copied().unwrap_or_default();
        Err(format!(
            "{agent} starts task {task} for the master of term {term}, but that of term {later} has welcomed it at {since:?}"
        ))
    }
}

impl Checker for Deposed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::Elected { node, term } => {
                self.elected.insert(node.to_owned(), term);
            }
            EventKind::MasterBegan { node } => {
                let term = self.elected.get(node).copied().unwrap_or(0);
                self.terms.insert(node.to_owned(), term);
            }
            // A new process of an agent knows no master.
            EventKind::NodeEnded { node, .. } => {
                self.welcomed.remove(node);
            }
            EventKind::Received(observed) => self.on_received(&observed, event.at),
            EventKind::CommandStarted(started) => {
                return self
                    .started(started.task, started.agent)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            _ => {}
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
    use crate::checkers::fixture::{Fixture, seconds, task};

    /// An agent registered by the master of term 3, while that of term 2 still leads.
    fn fixture() -> Fixture<Deposed> {
        let mut fixture = Fixture::new(Deposed::default(), "cpus:4");
        for (node, term) in [("old", 2), ("master", 3)] {
            fixture.fact(EventKind::Elected { node, term });
            fixture.fact(EventKind::MasterBegan { node });
        }
        fixture.register("cpus:4", "", Vec::new());
        fixture
    }

    fn launches<'a>(fixture: &'a mut Fixture<Deposed>, master: &str) -> &'a mut Fixture<Deposed> {
        fixture
            .sends(master, &[task("t", "cpus:1")])
            .wait(seconds(1));
        let launch = LaunchTask {
            task: task("t", "cpus:1"),
        };
        fixture.sent("agent-1", "executor-1", &launch)
    }

    #[test]
    fn deposed_masters_task_is_not_started() {
        launches(fixture().wait(seconds(1)), "master").is_clean();
        launches(fixture().wait(seconds(1)), "old").is_broken("for the master of term 2");
    }

    #[test]
    fn message_at_registration_may_precede_it() {
        launches(&mut fixture(), "old").is_clean();
    }
}
