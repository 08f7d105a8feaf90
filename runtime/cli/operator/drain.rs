//! `meros maintenance drain --at_a_time`: an agent is drained task by task, so that each framework can replace what it loses (W30).
//!
//! The agent is deactivated; then its tasks are killed, so many of each framework at once, and the next one when one has ended. When none
//! is left the agent is drained in a moment. Until then it can be reactivated, which is the end of this: what was not killed goes on. Remembers
//! what it has killed; who interrupts it leaves the agent deactivated. It counts what the operator may see, as `meros tasks` shows it; what he may
//! not see ends with the last of it, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::operator::{
    DeactivateAgent, DrainAgent, KillByOperator, OperatorError, UpdateRefused,
};
use protocol::view::TaskView;
use protocol::{AgentOrders, FrameworkId, TaskId, TaskState};

use super::Operator;
use crate::failure::{Failure, Outcome};
use crate::print;

/// How often it is looked which tasks have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Drains this agent, at most so many tasks of each framework at a time.
pub async fn drain(operator: &Operator, order: DrainAgent, at_a_time: u32) -> Outcome {
    let agent_id = order.agent_id.clone();
    let deactivate = DeactivateAgent {
        agent_id: agent_id.clone(),
    };
    recorded(operator.ask(deactivate).await?)?;
    print::complain(format_args!(
        "agent {agent_id} is deactivated; `meros maintenance reactivate {agent_id}` ends this before its tasks have"
    ));
    let mut killed = BTreeSet::new();
    let mut left = None;
    loop {
        let view = operator.view().await?;
        let agent = view.agents.iter().find(|agent| agent.id == agent_id);
        let all = view
            .frameworks
            .iter()
            .flat_map(|framework| &framework.tasks);
        let here = all.filter(|task| task.agent_id == agent_id);
        let here = here.map(|task| (key(task), task.state));
        let next = match next(agent.map(|agent| agent.orders), here, at_a_time, &killed) {
            Next::Drained => break,
            Next::Over(why) => return Err(Failure::new(format!("agent {agent_id} {why}"))),
            Next::Kill { tasks, left: now } => {
                if left.replace(now) != Some(now) {
                    print::complain(format_args!("{now} tasks are left"));
                }
                tasks
            }
        };
        for (framework_id, task_id) in next {
            let kill = KillByOperator {
                task_id: task_id.clone(),
                framework_id: Some(framework_id.clone()),
            };
            match operator.ask(kill).await? {
                Ok(_) => drop(killed.insert((framework_id, task_id))),
                // It has just ended.
                Err(OperatorError::NotFound { .. }) => {}
                Err(error) => return Err(Failure::because("a task cannot be killed", &error)),
            }
        }
        operator.node().clock().sleep(LOOK).await;
    }
    recorded(operator.ask(order).await?)
}

fn recorded(answer: Result<(), UpdateRefused>) -> Outcome {
    answer.map_err(|refused| Failure::because("the agent is not drained", &refused))
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
        None => return Next::Over("has left"),
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
        assert_eq!(decide(None, &["a/1"]), Next::Over("has left"));
        let reactivated = Some(AgentOrders::default());
        assert_eq!(decide(reactivated, &["a/1"]), Next::Over("was reactivated"));
    }
}
