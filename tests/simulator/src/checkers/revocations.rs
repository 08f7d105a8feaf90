//! Revocations: a task that must go is announced to its framework, and has the time that it was given (S115, S121, S122).
//!
//! Judged whenever a master tells an agent to kill a task that nobody has asked it to kill: it was revoked. The master must have warned the
//! task's framework, and the time that it named then must be over, by the clock of the run; the master's own may be wrong by [`SLACK`] of
//! that time. A warning counts until the task is spared or has ended.
//!
//! A framework that has no scheduler at the moment hears of nothing, and a broken link has no sign. So a kill without a warning is only
//! noted, and it is a violation once the master speaks to a scheduler that has been subscribed since [`SUBSCRIBED`] before the kill: its
//! link has held all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::scheduler::{KillTask, StatusChanged, TasksRevoked};
use protocol::{FrameworkId, TaskId, TaskState, TaskStatus};

use super::broken;
use super::census::{Frameworks, is_for_scheduler};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::load;

/// A scheduler that has been subscribed for so long when a task is killed must have been warned.
const SUBSCRIBED: Duration = load::REVOCATION_GRACE.saturating_mul(2);
/// One part in so many of the time that a task has may be missing: clocks drift.
const SLACK: u32 = 10;

const NAME: &str = "revocations";

type Key = (FrameworkId, TaskId);

struct Warned {
    at: Duration,
    grace: Duration,
}

/// A kill without a warning.
struct Charge {
    framework: FrameworkId,
    at: Duration,
    what: String,
}

/// The checker.
#[derive(Default)]
pub struct Revocations {
    frameworks: Frameworks,
    /// The master's node.
    node: Option<String>,
    /// Tasks whose framework has asked for a kill, until they have ended.
    asked: BTreeSet<Key>,
    /// Tasks that were killed by revocation and judged, until they are spared or have ended: the kill may be sent again.
    judged: BTreeSet<Key>,
    warned: BTreeMap<Key, Warned>,
    charges: Vec<Charge>,
    judgements: u64,
}

impl Revocations {
    fn killed(&mut self, kill: &KillTask, at: Duration) -> Result<(), String> {
        let key = (kill.framework_id.clone(), kill.task_id.clone());
        if self.asked.contains(&key) || !self.judged.insert(key.clone()) {
            return Ok(());
        }
        self.judgements += 1;
        let (framework, task) = &key;
        let Some(warned) = self.warned.get(&key) else {
            let subscribed = self.frameworks.get(framework);
            let long = subscribed.is_some_and(|newest| newest.since + SUBSCRIBED <= at);
            if long {
                let what = format!(
                    "task {task} of {framework} is killed at {at:?}, which nobody has asked for, and it was not warned"
                );
                let framework = framework.clone();
                self.charges.push(Charge {
                    framework,
                    at,
                    what,
                });
            }
            return Ok(());
        };
        let had = at - warned.at;
        if had + warned.grace / SLACK < warned.grace {
            return Err(format!(
                "task {task} of {framework} was given {:?} at {:?}, and is killed after {had:?}",
                warned.grace, warned.at
            ));
        }
        Ok(())
    }

    /// The master speaks to a scheduler: in its books the link has held since the subscription.
    fn proven(&mut self, spoken: &Spoken<'_>) -> Result<(), (Duration, String)> {
        if self.charges.is_empty()
            || !is_for_scheduler(spoken)
            || self.frameworks.asking(spoken.to).next().is_some()
        {
            return Ok(());
        }
        let framework = self.frameworks.of_node(spoken.to);
        let proven = |charge: &&mut Charge| Some(&charge.framework) == framework;
        match self.charges.iter_mut().find(proven) {
            Some(charge) => Err((charge.at, std::mem::take(&mut charge.what))),
            None => Ok(()),
        }
    }

    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), (Duration, String)> {
        self.proven(spoken)?;
        let of_node = self.frameworks.of_node(spoken.to).cloned();
        if let Some(kill) = spoken.is::<KillTask>() {
            if self.node.as_deref() == Some(spoken.from) {
                return self.killed(kill, at).map_err(|what| (at, what));
            }
        } else if let Some(revoked) = spoken.is::<TasksRevoked>()
            && let Some(framework) = of_node
        {
            for status in &revoked.tasks {
                let key = (framework.clone(), status.task_id.clone());
                let grace = revoked.grace;
                self.warned.entry(key).or_insert(Warned { at, grace });
            }
        } else if let Some(StatusChanged { status }) = spoken.is::<StatusChanged>()
            && let Some(framework) = of_node
            && (is_over(status) || status.message.starts_with("no longer revoked"))
        {
            let key = (framework, status.task_id.clone());
            self.warned.remove(&key);
            self.judged.remove(&key);
            if is_over(status) {
                self.asked.remove(&key);
            }
        }
        Ok(())
    }
}

/// Whether this task will never run again. A lost one may: its agent comes back with it, and hears of the kill that it has missed.
fn is_over(status: &TaskStatus) -> bool {
    status.state.is_terminal() && status.state != TaskState::Lost
}

impl Checker for Revocations {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(framework) = self.frameworks.see(event) {
            self.charges.retain(|charge| charge.framework != framework);
        }
        match event.what {
            What::Said(spoken) => self
                .said(&spoken, event.at)
                .or_else(|(at, what)| broken(NAME, at, what)),
            What::MasterBegan { node } => {
                self.node = Some(node.to_owned());
                Ok(())
            }
            What::Heard(spoken) if self.node.as_deref() == Some(spoken.to) => {
                if let Some(kill) = spoken.is::<KillTask>() {
                    let key = (kill.framework_id.clone(), kill.task_id.clone());
                    self.asked.insert(key);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, agent, framework, status};
    use super::*;
    use protocol::FrameworkInfo;

    const GRACE: Duration = load::REVOCATION_GRACE;

    /// Long after the subscription.
    fn stage() -> Stage<Revocations> {
        let mut stage = Stage::new(Revocations::default(), "cpus:4");
        stage.wait(SUBSCRIBED);
        stage
    }

    fn kill() -> KillTask {
        KillTask {
            framework_id: framework(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: Some(agent()),
            kill_policy: None,
        }
    }

    fn warns(stage: &mut Stage<Revocations>) -> &mut Stage<Revocations> {
        let revoked = TasksRevoked {
            tasks: vec![status("t", TaskState::Running, None)],
            deadline: Default::default(),
            grace: GRACE,
            role: Some("web".to_owned()),
        };
        stage.told("master", "framework-1", &revoked)
    }

    fn kills(stage: &mut Stage<Revocations>) -> &mut Stage<Revocations> {
        stage.told("master", "agent-1", &kill());
        stage.changed(&status("other", TaskState::Running, None))
    }

    #[test]
    fn a_task_is_killed_when_the_time_of_its_warning_is_over_and_not_before() {
        kills(warns(&mut stage()).wait(GRACE)).is_clean();
        kills(warns(&mut stage()).wait(GRACE / 2)).is_broken("is killed after");
    }

    #[test]
    fn a_kill_without_a_warning_is_one_that_somebody_asked_for() {
        kills(&mut stage()).is_broken("was not warned");
        let mut asked = stage();
        asked.told("framework-1", "master", &kill());
        kills(warns(kills(&mut asked).wait(GRACE))).wait(GRACE);
        assert_eq!(asked.checker.judgements(), 0);
    }

    #[test]
    fn a_kill_that_its_agent_has_missed_is_told_when_that_comes_back() {
        let mut asked = stage();
        asked.told("framework-1", "master", &kill());
        kills(asked.changed(&status("t", TaskState::Lost, None)));
        assert_eq!(asked.checker.judgements(), 0);
        let mut ended = stage();
        ended.told("framework-1", "master", &kill());
        kills(ended.changed(&status("t", TaskState::Killed, None))).is_broken("was not warned");
    }

    #[test]
    fn who_had_no_scheduler_could_not_be_warned() {
        let mut fresh = Stage::new(Revocations::default(), "cpus:4");
        kills(&mut fresh).is_clean();
        let mut anew = stage();
        anew.told("master", "agent-1", &kill());
        anew.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        anew.changed(&status("other", TaskState::Running, None));
        anew.is_clean();
    }

    fn spared() -> TaskStatus {
        let mut spared = status("t", TaskState::Running, None);
        spared.message = "no longer revoked: role `web` lacks nothing any more".to_owned();
        spared
    }

    #[test]
    fn a_task_that_was_spared_is_warned_again() {
        let mut stage = stage();
        kills(warns(&mut stage).changed(&spared()).wait(GRACE)).is_broken("was not warned");
    }

    #[test]
    fn requested_kill_is_still_requested_after_a_task_is_spared() {
        let mut asked = stage();
        asked.told("framework-1", "master", &kill());
        kills(warns(&mut asked).changed(&spared()));
        assert_eq!(asked.checker.judgements(), 0);
    }
}
