//! `meros maintenance drain --at_a_time`: an agent is drained task by task, so that each framework can replace what it loses (W30).
//!
//! The agent is deactivated; then its tasks are killed, so many of each framework at once, and the next one when one has ended. When none
//! is left the agent is drained in a moment. Until then it can be reactivated, which is the end of this: what was not killed goes on. Where the
//! master does not answer, another that leads is asked. Remembers what it has killed; who interrupts it leaves the agent deactivated. It counts
//! what the operator may see, as `meros tasks` shows it; what he may not see ends with the last of it, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::operator::{
    DeactivateAgent, DrainAgent, KillByOperator, OperatorError, UpdateRefused,
};
use protocol::view::TaskView;
use protocol::{AgentOrders, FrameworkId, TaskId, TaskState};
use runtime::{Clock, Instant};

use super::{ClusterFlags, Operator};
use crate::failure::{Failure, Outcome};
use crate::print;

/// How often it is looked which tasks have ended, and tried again.
const LOOK: Duration = Duration::from_secs(1);
/// How long it is tried again where no master answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why it has not come to its end.
enum Stopped {
    /// It may go on when it is tried again.
    ForNow(Failure),
    ForGood(Failure),
}

impl From<Failure> for Stopped {
    fn from(no_answer: Failure) -> Self {
        Self::ForNow(no_answer)
    }
}

/// A drain under way.
struct Paced {
    order: DrainAgent,
    at_a_time: u32,
    /// When it was last seen that the agent is deactivated.
    seen: Option<Instant>,
    /// How many tasks were left then.
    left: Option<usize>,
    killed: BTreeSet<Key>,
}

/// Drains this agent, at most so many tasks of each framework at a time.
pub async fn drain(cluster: &ClusterFlags, order: DrainAgent, at_a_time: u32) -> Outcome {
    let mut drain = Paced {
        order,
        at_a_time,
        seen: None,
        left: None,
        killed: BTreeSet::new(),
    };
    let clock = Clock::real();
    loop {
        let ended = match Operator::connect(cluster).await {
            Ok(operator) => {
                let ended = drain.go_on(&operator, &clock).await;
                operator.close().await;
                ended
            }
            Err(failure) => Err(failure.into()),
        };
        let may_go_on = drain
            .seen
            .is_some_and(|since| clock.now() - since <= PATIENCE);
        match ended {
            Ok(()) => return Ok(()),
            Err(Stopped::ForNow(failure)) if may_go_on => {
                print::complain(format_args!("{failure}; it is tried again"));
            }
            Err(Stopped::ForNow(failure) | Stopped::ForGood(failure)) => {
                return Err(drain.given_up(failure));
            }
        }
        clock.sleep(LOOK).await;
    }
}

impl Paced {
    /// This failure, with what the agent is left as.
    fn given_up(&self, failure: Failure) -> Failure {
        let agent_id = &self.order.agent_id;
        match (self.seen, self.left) {
            (None, _) => failure,
            (Some(_), None) => failure.next(format_args!(
                "agent {agent_id} was deactivated: say it again to go on"
            )),
            (Some(_), Some(left)) => failure.next(format_args!(
                "agent {agent_id} was deactivated, and {left} of its tasks were left: say it again to go on"
            )),
        }
    }

    async fn go_on(&mut self, operator: &Operator, clock: &Clock) -> Result<(), Stopped> {
        let agent_id = self.order.agent_id.clone();
        if self.seen.is_none() {
            let deactivate = DeactivateAgent {
                agent_id: agent_id.clone(),
            };
            recorded(operator.ask(deactivate).await?)?;
            self.seen = Some(clock.now());
            print::complain(format_args!(
                "agent {agent_id} is deactivated; `meros maintenance reactivate {agent_id}` ends this before its tasks have"
            ));
        }
        // A master that leads since a moment ago does not know what the last one was told.
        let mut again = self.killed.clone();
        loop {
            let view = operator.view().await?;
            let agent = view.agents.iter().find(|agent| agent.id == agent_id);
            let all = view.frameworks.iter();
            let all = all.flat_map(|framework| &framework.tasks);
            let here = all.filter(|task| task.agent_id == agent_id);
            let here: BTreeMap<Key, TaskState> = here.map(|task| (key(task), task.state)).collect();
            again.retain(|key| here.contains_key(key));
            let orders = agent.map(|agent| agent.orders);
            let next = next(orders, here.into_iter(), self.at_a_time, &self.killed);
            let (tasks, left) = match next {
                Next::Drained => break,
                Next::Away => {
                    let failure = Failure::new(format!("agent {agent_id} is not registered"));
                    return Err(Stopped::ForNow(failure));
                }
                Next::Over(why) => {
                    self.seen = None; // What the agent is, somebody else has said.
                    let failure = Failure::new(format!("agent {agent_id} {why}"));
                    return Err(Stopped::ForGood(failure));
                }
                Next::Kill { tasks, left } => (tasks, left),
            };
            if self.left.replace(left) != Some(left) {
                print::complain(format_args!("tasks left: {left}"));
            }
            self.seen = Some(clock.now());
            for task in std::mem::take(&mut again).into_iter().chain(tasks) {
                self.kill(operator, task).await?;
            }
            clock.sleep(LOOK).await;
        }
        recorded(operator.ask(self.order.clone()).await?)
    }

    async fn kill(&mut self, operator: &Operator, task: Key) -> Result<(), Stopped> {
        let (framework_id, task_id) = task.clone();
        let kill = KillByOperator {
            task_id,
            framework_id: Some(framework_id),
        };
        match operator.ask(kill).await? {
            Ok(_) => drop(self.killed.insert(task)),
            // It has just ended.
            Err(OperatorError::NotFound { .. }) => {}
            Err(error) => {
                let failure = Failure::because("a task cannot be killed", &error);
                return Err(Stopped::ForGood(failure));
            }
        }
        Ok(())
    }
}

fn recorded(answer: Result<(), UpdateRefused>) -> Result<(), Stopped> {
    answer.map_err(|refused| {
        let failure = Failure::because("the agent is not drained", &refused);
        match refused {
            UpdateRefused::NotNow { .. } => Stopped::ForNow(failure),
            UpdateRefused::Invalid { .. } | UpdateRefused::Conflict { .. } => {
                Stopped::ForGood(failure)
            }
        }
    })
}

/// A task among those of all frameworks.
type Key = (FrameworkId, TaskId);

fn key(task: &TaskView) -> Key {
    (task.framework_id.clone(), task.id.clone())
}

/// What is to be done.
#[derive(Debug, PartialEq)]
enum Next {
    /// These tasks are killed now, and so many are left, those included.
    Kill { tasks: Vec<Key>, left: usize },
    /// Nothing runs there any more.
    Drained,
    /// It is not there, for good or until a new master has heard of it.
    Away,
    /// Somebody has decided otherwise.
    Over(&'static str),
}

/// Decides what is next, where operators have ordered this about the agent, these tasks are there, and those were killed before.
fn next(
    orders: Option<AgentOrders>,
    here: impl Iterator<Item = (Key, TaskState)>,
    at_a_time: u32,
    killed: &BTreeSet<Key>,
) -> Next {
    match orders {
        None => return Next::Away,
        Some(orders) if !orders.deactivated => return Next::Over("was reactivated"),
        Some(_) => {}
    }
    let (ending, mut live): (Vec<_>, Vec<_>) =
        here.partition(|(key, state)| *state == TaskState::Killing || killed.contains(key));
    let left = ending.len() + live.len();
    if left == 0 {
        return Next::Drained;
    }
    let mut of_framework = BTreeMap::<_, u32>::new();
    for ((framework, _), _) in &ending {
        *of_framework.entry(framework.clone()).or_default() += 1;
    }
    live.retain(|((framework, _), _)| {
        let ending = of_framework.entry(framework.clone()).or_default();
        *ending += 1;
        *ending <= at_a_time
    });
    let tasks = live.into_iter().map(|(key, _)| key).collect();
    Next::Kill { tasks, left }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASIDE: AgentOrders = AgentOrders {
        deactivated: true,
        drain: None,
    };

    fn keys(tasks: &[&str]) -> Vec<Key> {
        let key = |task: &&str| {
            let (framework, task) = task.split_once('/').unwrap();
            (framework.parse().unwrap(), task.parse().unwrap())
        };
        tasks.iter().map(key).collect()
    }

    fn check(here: &[&str], killing: &[&str], killed: &[&str], expected: &[&str]) {
        let of = |tasks, state| keys(tasks).into_iter().map(move |key| (key, state));
        let there = of(here, TaskState::Running).chain(of(killing, TaskState::Killing));
        let next = next(Some(ASIDE), there, 2, &keys(killed).into_iter().collect());
        let (tasks, left) = (keys(expected), here.len() + killing.len());
        assert_eq!(next, Next::Kill { tasks, left });
    }

    /// W30.
    #[test]
    fn so_many_tasks_of_each_framework_end_at_a_time_and_the_next_when_one_has_ended() {
        let all = ["a/1", "a/2", "a/3", "b/1"];
        check(&all, &[], &[], &["a/1", "a/2", "b/1"]);
        check(&all, &[], &["a/1", "a/2", "b/1"], &[]);
        // One of them has ended, and what ended is no budget.
        check(&all[1..], &[], &["a/1", "a/2", "b/1"], &["a/3"]);
        // Somebody else kills one.
        check(&["a/1", "a/3"], &["a/2"], &[], &["a/1"]);
    }

    #[test]
    fn nothing_is_killed_of_an_agent_that_is_empty_has_left_or_was_reactivated() {
        let decide = |orders, here: &[&str]| {
            let here = keys(here).into_iter().map(|key| (key, TaskState::Running));
            next(orders, here, 1, &BTreeSet::new())
        };
        assert_eq!(decide(Some(ASIDE), &[]), Next::Drained);
        assert_eq!(decide(None, &["a/1"]), Next::Away);
        let reactivated = Some(AgentOrders::default());
        assert_eq!(decide(reactivated, &["a/1"]), Next::Over("was reactivated"));
    }
}
