//! Revocations: a revoked task is announced to its framework, and gets its grace period (S115,
//! S121, S122).
//!
//! Judged when a master makes an agent kill a task without anybody's request: the task was revoked.
//! The master must have warned the task's framework, and the announced time must be over by the
//! run's clock; the master's clock may be off by [`SLACK`] of that time. A warning counts until the
//! task is spared or has ended.
//!
//! A framework without a scheduler receives nothing, and a broken link has no sign. So a kill
//! without a warning is only recorded. It becomes a violation when the master sends to a scheduler
//! that has been subscribed since [`SUBSCRIBED`] before the kill: its link has held all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::scheduler::{KillTask, StatusChanged, TasksRevoked};
use protocol::{FrameworkId, TaskId, TaskState, TaskStatus};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{Frameworks, is_for_scheduler};
use crate::event::{Event, EventKind, SeenMessage};
use crate::load;

/// A scheduler that was subscribed this long before a kill must have been warned.
const SUBSCRIBED: Duration = load::REVOCATION_GRACE.saturating_mul(2);
/// One in this number of parts of the grace period may be missing: clocks drift.
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
    /// Tasks that their framework wants to kill, until they have ended.
    asked: BTreeSet<Key>,
    /// Revoked and judged tasks, until they are spared or have ended: the kill may be repeated.
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

    /// The master sends to a scheduler: in its view the link has held since the subscription.
    fn proven(&mut self, observed: &SeenMessage<'_>) -> Result<(), (Duration, String)> {
        if self.charges.is_empty()
            || !is_for_scheduler(observed)
            || self.frameworks.asking(observed.to).next().is_some()
        {
            return Ok(());
        }
        let framework = self.frameworks.of_node(observed.to);
        let proven = |charge: &&mut Charge| Some(&charge.framework) == framework;
        match self.charges.iter_mut().find(proven) {
            Some(charge) => Err((charge.at, std::mem::take(&mut charge.what))),
            None => Ok(()),
        }
    }

    fn on_sent(
        &mut self,
        observed: &SeenMessage<'_>,
        at: Duration,
    ) -> Result<(), (Duration, String)> {
        self.proven(observed)?;
        let of_node = self.frameworks.of_node(observed.to).cloned();
        if let Some(kill) = observed.is::<KillTask>() {
            if self.node.as_deref() == Some(observed.from) {
                return self.killed(kill, at).map_err(|what| (at, what));
            }
        } else if let Some(revoked) = observed.is::<TasksRevoked>()
            && let Some(framework) = of_node
        {
            for status in &revoked.tasks {
                let key = (framework.clone(), status.task_id.clone());
                let grace = revoked.grace;
                self.warned.entry(key).or_insert(Warned { at, grace });
            }
        } else if let Some(StatusChanged { status }) = observed.is::<StatusChanged>()
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

/// Whether this task will never run again. A lost one may: its agent reregisters with it, and
/// receives the missed kill.
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
        match event.kind {
            EventKind::Sent(observed) => self
                .on_sent(&observed, event.at)
                .or_else(|(at, what)| broken(NAME, at, what)),
            EventKind::MasterBegan { node } => {
                self.node = Some(node.to_owned());
                Ok(())
            }
            EventKind::Received(observed) if self.node.as_deref() == Some(observed.to) => {
                if let Some(kill) = observed.is::<KillTask>() {
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
    use super::*;
    use crate::checkers::fixture::{Fixture, agent, framework, status};
    use protocol::FrameworkInfo;

    const GRACE: Duration = load::REVOCATION_GRACE;

    /// Long after the subscription.
    fn fixture() -> Fixture<Revocations> {
        let mut fixture = Fixture::new(Revocations::default(), "cpus:4");
        fixture.wait(SUBSCRIBED);
        fixture
    }

    fn kill() -> KillTask {
        KillTask {
            framework_id: framework(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: Some(agent()),
            kill_policy: None,
        }
    }

    fn warns(fixture: &mut Fixture<Revocations>) -> &mut Fixture<Revocations> {
        let revoked = TasksRevoked {
            tasks: vec![status("t", TaskState::Running, None)],
            deadline: Default::default(),
            grace: GRACE,
            role: Some("web".to_owned()),
        };
        fixture.delivered("master", "framework-1", &revoked)
    }

    fn kills(fixture: &mut Fixture<Revocations>) -> &mut Fixture<Revocations> {
        fixture.delivered("master", "agent-1", &kill());
        fixture.changed(&status("other", TaskState::Running, None))
    }

    #[test]
    fn task_is_killed_only_after_its_grace_period() {
        kills(warns(&mut fixture()).wait(GRACE)).is_clean();
        kills(warns(&mut fixture()).wait(GRACE / 2)).is_broken("is killed after");
    }

    #[test]
    fn kill_without_warning_needs_a_request() {
        kills(&mut fixture()).is_broken("was not warned");
        let mut asked = fixture();
        asked.delivered("framework-1", "master", &kill());
        kills(warns(kills(&mut asked).wait(GRACE))).wait(GRACE);
        assert_eq!(asked.checker.judgements(), 0);
    }

    #[test]
    fn missed_kill_is_sent_at_reregistration() {
        let mut asked = fixture();
        asked.delivered("framework-1", "master", &kill());
        kills(asked.changed(&status("t", TaskState::Lost, None)));
        assert_eq!(asked.checker.judgements(), 0);
        let mut ended = fixture();
        ended.delivered("framework-1", "master", &kill());
        kills(ended.changed(&status("t", TaskState::Killed, None))).is_broken("was not warned");
    }

    #[test]
    fn framework_without_scheduler_needs_no_warning() {
        let mut fresh = Fixture::new(Revocations::default(), "cpus:4");
        kills(&mut fresh).is_clean();
        let mut anew = fixture();
        anew.delivered("master", "agent-1", &kill());
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
    fn spared_task_needs_a_new_warning() {
        let mut fixture = fixture();
        kills(warns(&mut fixture).changed(&spared()).wait(GRACE)).is_broken("was not warned");
    }

    #[test]
    fn requested_kill_stays_after_sparing() {
        let mut asked = fixture();
        asked.delivered("framework-1", "master", &kill());
        kills(warns(&mut asked).changed(&spared()));
        assert_eq!(asked.checker.judgements(), 0);
    }
}
