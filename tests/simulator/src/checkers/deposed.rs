//! Deposed (invariant 1, its third part): a master that leads no more changes nothing.
//!
//! Judged where it would show: an agent that has been welcomed by the master of a later term starts no task that a master of an earlier
//! one has sent it, whoever passes it on after that. A master's term is that of its member's last election when it began to act. What came at the very moment of
//! the welcome may have been handled before it. Alone, a master has term 0, and nothing to be judged.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::TaskId;
use protocol::message::executor::LaunchTask;
use protocol::message::registration::{AgentRegistered, RegistrationRefused, Reregistered};
use protocol::message::task::RunTasks;

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

const NAME: &str = "deposed";

/// The checker.
#[derive(Default)]
pub struct Deposed {
    /// The last term in which each node's member was elected.
    elected: BTreeMap<String, u64>,
    /// The terms of the masters that act.
    reigns: BTreeMap<String, u64>,
    /// The highest term of a master that has welcomed each agent, and when the agent heard that first.
    welcomed: BTreeMap<String, (u64, Duration)>,
    /// In which term each task was sent first: whoever sends it again does not make it the later master's.
    sent: BTreeMap<TaskId, u64>,
    /// Tasks that came too late, and from which term.
    late: BTreeMap<TaskId, u64>,
    judgements: u64,
}

fn welcomes(spoken: &Spoken<'_>) -> bool {
    let anew = spoken.is::<Result<AgentRegistered, RegistrationRefused>>();
    let again = spoken.is::<Result<Reregistered, RegistrationRefused>>();
    anew.is_some_and(Result::is_ok)
        || again.is_some_and(|answer| matches!(answer, Ok(Reregistered::Registered(_))))
}

impl Deposed {
    fn heard(&mut self, spoken: &Spoken<'_>, at: Duration) {
        if spoken.reply
            && welcomes(spoken)
            && let Some(term) = self.reigns.get(spoken.from)
        {
            let known = self.welcomed.entry(spoken.to.to_owned());
            let known = known.or_insert((*term, at));
            if *term > known.0 {
                *known = (*term, at);
            }
        } else if let Some(run) = spoken.is::<RunTasks>()
            && let Some((welcomed, since)) = self.welcomed.get(spoken.to)
        {
            for task in &run.tasks {
                let sent = self.sent.get(&task.task_id);
                if let Some(sent) = sent.filter(|sent| *sent < welcomed && *since < at) {
                    self.late.insert(task.task_id.clone(), *sent);
                }
            }
        }
    }

    fn said(&mut self, spoken: &Spoken<'_>) -> Result<(), String> {
        if let Some(run) = spoken.is::<RunTasks>() {
            let term = self.reigns.get(spoken.from).copied().unwrap_or(0);
            for task in &run.tasks {
                self.sent.entry(task.task_id.clone()).or_insert(term);
            }
        } else if let Some(launch) = spoken.is::<LaunchTask>() {
            self.judgements += 1;
            let task = &launch.task.task_id;
            if let Some(term) = self.late.get(task) {
                let (later, since) = self.welcomed.get(spoken.from).copied().unwrap_or_default();
                return Err(format!(
                    "{} starts task {task} for the master of term {term}, but that of term {later} has welcomed it at {since:?}",
                    spoken.from
                ));
            }
        }
        Ok(())
    }
}

impl Checker for Deposed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::Elected { node, term } => {
                self.elected.insert(node.to_owned(), term);
            }
            What::MasterBegan { node } => {
                let term = self.elected.get(node).copied().unwrap_or(0);
                self.reigns.insert(node.to_owned(), term);
            }
            // A new life of an agent knows no master.
            What::NodeEnded { node, .. } => {
                self.welcomed.remove(node);
            }
            What::Heard(spoken) => self.heard(&spoken, event.at),
            What::Said(spoken) => {
                return self
                    .said(&spoken)
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
    use super::super::stage::{Stage, seconds, task};
    use super::*;

    /// An agent that the master of term 3 has welcomed, while that of term 2 still acts.
    fn stage() -> Stage<Deposed> {
        let mut stage = Stage::new(Deposed::default(), "cpus:4");
        for (node, term) in [("old", 2), ("master", 3)] {
            stage.fact(What::Elected { node, term });
            stage.fact(What::MasterBegan { node });
        }
        stage.register("cpus:4", "", Vec::new());
        stage
    }

    fn launches<'a>(stage: &'a mut Stage<Deposed>, master: &str) -> &'a mut Stage<Deposed> {
        stage.sends(master, &[task("t", "cpus:1")]).wait(seconds(1));
        let launch = LaunchTask {
            task: task("t", "cpus:1"),
        };
        stage.said("agent-1", "executor-1", &launch)
    }

    #[test]
    fn a_task_of_a_deposed_master_is_not_started() {
        launches(stage().wait(seconds(1)), "master").is_clean();
        launches(stage().wait(seconds(1)), "old").is_broken("for the master of term 2");
    }

    #[test]
    fn what_came_with_the_welcome_may_have_been_before_it() {
        launches(&mut stage(), "old").is_clean();
    }
}
