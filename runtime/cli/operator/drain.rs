//! `meros maintenance drain --at_a_time`: drains an agent gradually, so that each framework can
//! replace its tasks (W30).
//!
//! Deactivates the agent, then kills its tasks, a limited number per framework at once, the next
//! one when one has ended. Once none is left the agent is drained immediately. Until then a
//! reactivation cancels the drain, and the remaining tasks continue. If the master does not answer,
//! the present leader is asked. An interrupted drain leaves the agent deactivated. Only counts
//! tasks that the operator may see, as in `meros tasks`; the others are killed all at once at the
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::operator::{
    DeactivateAgent, DrainAgent, KillByOperator, OperatorError, UpdateRefused,
};
use protocol::view::TaskView;
use protocol::{AgentOrders, FrameworkId, TaskId, TaskState};
use runtime::{Clock, Instant};

use super::{ClusterFlags, Operator};
use crate::output::error::{CliError, Outcome};
use crate::output::print;

/// The interval of checks for ended tasks, and of retries.
const CHECK: Duration = Duration::from_secs(1);
/// The time for which it retries without an answer of a master.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Why the drain has stopped.
enum Stopped {
    /// A retry may succeed.
    Retryable(CliError),
    Permanent(CliError),
}

impl From<CliError> for Stopped {
    fn from(no_answer: CliError) -> Self {
        Self::Retryable(no_answer)
    }
}

/// A gradual drain in progress.
struct GradualDrain {
    order: DrainAgent,
    at_a_time: u32,
    /// The last time at which the agent was seen deactivated.
    seen: Option<Instant>,
    /// The number of tasks left at that time.
    left: Option<usize>,
    killed: BTreeSet<Key>,
}

/// Drains this agent, at most this many tasks of each framework at a time.
pub async fn drain(cluster: &ClusterFlags, order: DrainAgent, at_a_time: u32) -> Outcome {
    let mut drain = GradualDrain {
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
                let ended = drain.run(&operator, &clock).await;
                operator.close().await;
                ended
            }
            Err(failure) => Err(failure.into()),
        };
        let may_retry = drain
            .seen
            .is_some_and(|since| clock.now() - since <= SILENCE_MAX);
        match ended {
            Ok(()) => return Ok(()),
            Err(Stopped::Retryable(failure)) if may_retry => {
                print::error_line(format_args!("{failure}; retrying"));
            }
            Err(Stopped::Retryable(failure) | Stopped::Permanent(failure)) => {
                return Err(drain.given_up(failure));
            }
        }
        clock.sleep(CHECK).await;
    }
}

impl GradualDrain {
    /// Adds the agent's present state to this error.
    fn given_up(&self, failure: CliError) -> CliError {
        let agent_id = &self.order.agent_id;
        match (self.seen, self.left) {
            (None, _) => failure,
            (Some(_), None) => failure.next(format_args!(
                "agent {agent_id} remains deactivated: repeat the command to continue"
            )),
            (Some(_), Some(left)) => failure.next(format_args!(
                "agent {agent_id} remains deactivated with {left} tasks: repeat the command to continue"
            )),
        }
    }

    async fn run(&mut self, operator: &Operator, clock: &Clock) -> Result<(), Stopped> {
        let agent_id = self.order.agent_id.clone();
        if self.seen.is_none() {
            let deactivate = DeactivateAgent {
                agent_id: agent_id.clone(),
            };
            recorded(operator.ask(deactivate).await?)?;
            self.seen = Some(clock.now());
            print::error_line(format_args!(
                "agent {agent_id} is deactivated; `meros maintenance reactivate {agent_id}` cancels the drain"
            ));
        }
        // A new leader does not know the earlier kill requests.
        let mut repeated = self.killed.clone();
        loop {
            let view = operator.view().await?;
            let agent = view.agents.iter().find(|agent| agent.id == agent_id);
            let all = view.frameworks.iter();
            let all = all.flat_map(|framework| &framework.tasks);
            let here = all.filter(|task| task.agent_id == agent_id);
            let here: BTreeMap<Key, TaskState> = here.map(|task| (key(task), task.state)).collect();
            repeated.retain(|key| here.contains_key(key));
            let orders = agent.map(|agent| agent.orders);
            let next = next(orders, here.into_iter(), self.at_a_time, &self.killed);
            let (tasks, left) = match next {
                Next::Drained => break,
                Next::NotRegistered => {
                    let failure = CliError::new(format!("agent {agent_id} is not registered"));
                    return Err(Stopped::Retryable(failure));
                }
                Next::Cancelled(why) => {
                    self.seen = None; // another operator has changed the agent's state
                    let failure = CliError::new(format!("agent {agent_id} {why}"));
                    return Err(Stopped::Permanent(failure));
                }
                Next::Kill { tasks, left } => (tasks, left),
            };
            if self.left.replace(left) != Some(left) {
                print::error_line(format_args!("tasks left: {left}"));
            }
            self.seen = Some(clock.now());
            for task in std::mem::take(&mut repeated).into_iter().chain(tasks) {
                self.kill(operator, task).await?;
            }
            clock.sleep(CHECK).await;
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
                let failure = CliError::because("a task cannot be killed", &error);
                return Err(Stopped::Permanent(failure));
            }
        }
        Ok(())
    }
}

fn recorded(answer: Result<(), UpdateRefused>) -> Result<(), Stopped> {
    answer.map_err(|refused| {
        let failure = CliError::because("the agent is not drained", &refused);
        match refused {
            UpdateRefused::NotNow { .. } => Stopped::Retryable(failure),
            UpdateRefused::Invalid { .. } | UpdateRefused::Conflict { .. } => {
                Stopped::Permanent(failure)
            }
        }
    })
}

/// A task's key across frameworks.
type Key = (FrameworkId, TaskId);

fn key(task: &TaskView) -> Key {
    (task.framework_id.clone(), task.id.clone())
}

/// The next action.
#[derive(Debug, PartialEq)]
enum Next {
    /// Kill these tasks; `left` is the number of remaining tasks, including these.
    Kill { tasks: Vec<Key>, left: usize },
    /// No task is left.
    Drained,
    /// The agent is not registered, permanently or until it reregisters with a new master.
    NotRegistered,
    /// Another operator has cancelled the drain.
    Cancelled(&'static str),
}

/// Decides the next action from the agent's orders, its tasks, and the tasks killed before.
fn next(
    orders: Option<AgentOrders>,
    here: impl Iterator<Item = (Key, TaskState)>,
    at_a_time: u32,
    killed: &BTreeSet<Key>,
) -> Next {
    match orders {
        None => return Next::NotRegistered,
        Some(orders) if !orders.deactivated => return Next::Cancelled("was reactivated"),
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

    const DEACTIVATED: AgentOrders = AgentOrders {
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
        let next = next(
            Some(DEACTIVATED),
            there,
            2,
            &keys(killed).into_iter().collect(),
        );
        let (tasks, left) = (keys(expected), here.len() + killing.len());
        assert_eq!(next, Next::Kill { tasks, left });
    }

    // Covers W30 in part: without automatic windows.
    #[test]
    fn tasks_are_killed_gradually_per_framework() {
        let all = ["a/1", "a/2", "a/3", "b/1"];
        check(&all, &[], &[], &["a/1", "a/2", "b/1"]);
        check(&all, &[], &["a/1", "a/2", "b/1"], &[]);
        // One of them has ended, so it no longer counts.
        check(&all[1..], &[], &["a/1", "a/2", "b/1"], &["a/3"]);
        // Another client kills one.
        check(&["a/1", "a/3"], &["a/2"], &[], &["a/1"]);
    }

    #[test]
    fn no_kill_on_empty_absent_or_reactivated_agents() {
        let decide = |orders, here: &[&str]| {
            let here = keys(here).into_iter().map(|key| (key, TaskState::Running));
            next(orders, here, 1, &BTreeSet::new())
        };
        assert_eq!(decide(Some(DEACTIVATED), &[]), Next::Drained);
        assert_eq!(decide(None, &["a/1"]), Next::NotRegistered);
        let reactivated = Some(AgentOrders::default());
        assert_eq!(
            decide(reactivated, &["a/1"]),
            Next::Cancelled("was reactivated")
        );
    }
}
