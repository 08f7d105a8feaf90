//! Corrections: containers with revocable resources yield on a busy machine, and no others ever do.
//!
//! Judged by the schedulers' requests and the machines. A task is revocable if its scheduler
//! accepted an offer with any revocable resource for it; a container is, if it has such a task
//! (S15).
//!
//! - A task that an agent reports as preempted was in a revocable container, and its machine was
//!   busy at the container's end or shortly before.
//! - A revocable container on a busy machine ends within [`YIELD`]. The time runs from when the
//!   machine was busy, the task was given, and no fault hampered agents: where processes are
//!   paused, or disks are too slow to measure usage, nothing is required. Nor is it for a container
//!   that outlives its agent's process, until its executor has reregistered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{LaunchTask, SubscribeExecutor};
use protocol::message::scheduler::AcceptOffers;
use protocol::message::task::TaskUpdated;
use protocol::{ContainerId, Operation, Reason, TaskId};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};
use crate::load;
use crate::scenario::{Fault, FaultKind};
use crate::world::executor;

/// Maximum time of a container on a busy machine: controllers check every five seconds, measure for
/// at most five, and repeat their advice after ten.
pub const YIELD: Duration = Duration::from_secs(30);
/// A correction may still be executed this long after the machine was busy.
const SLACK: Duration = Duration::from_secs(10);
/// With slower writes an agent cannot measure its usage in time.
const SLOW: Duration = Duration::from_secs(3);

const NAME: &str = "corrections";

/// A running revocable container.
struct Borrower {
    agent: String,
    /// Whether it has lost its agent and not reregistered yet.
    lost_agent: bool,
    /// Its deadline.
    due: Option<Duration>,
}

/// The checker.
#[derive(Default)]
pub struct Corrections {
    /// Tasks accepted with revocable resources.
    revocable: BTreeSet<TaskId>,
    /// Their running containers by nodes.
    borrowers: BTreeMap<String, Borrower>,
    /// The first deadline.
    first_due: Option<Duration>,
    /// The ends of containers.
    ended: BTreeMap<ContainerId, Duration>,
    /// The busy periods of each machine: an end may be reported long after, when it is busy again.
    busy: BTreeMap<String, Vec<Busy>>,
    /// The number of faults that hamper agents.
    hampered: u32,
    /// Judged tasks: their updates may be repeated.
    judged: BTreeSet<TaskId>,
    judgements: u64,
}

#[derive(Clone, Copy)]
struct Busy {
    since: Duration,
    until: Option<Duration>,
}

impl Corrections {
    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), String> {
        if let Some(accept) = observed.is::<AcceptOffers>() {
            let tasks = accept.operations.iter().flat_map(Operation::tasks);
            let revocable = tasks.filter(|task| load::is_revocable(task));
            self.revocable
                .extend(revocable.map(|task| task.task_id.clone()));
        } else if let Some(launch) = observed.is::<LaunchTask>() {
            self.started(&launch.task.task_id, observed.from, observed.to, at);
        } else if let Some(updated) = observed.is::<TaskUpdated>() {
            let status = &updated.update.status;
            let preempted = status.reason == Some(Reason::ContainerPreempted);
            if preempted && self.judged.insert(status.task_id.clone()) {
                return self.preempted(
                    observed.from,
                    &status.task_id,
                    status.container_id.as_ref(),
                );
            }
        }
        Ok(())
    }

    /// An agent starts a task in the container of this executor's node.
    fn started(&mut self, task: &TaskId, agent: &str, node: &str, at: Duration) {
        if self.revocable.contains(task) {
            let borrower = Borrower {
                agent: agent.to_owned(),
                lost_agent: false,
                due: self.due(agent, at),
            };
            self.borrowers.entry(node.to_owned()).or_insert(borrower);
            self.find_first_due();
        }
    }

    fn preempted(
        &mut self,
        agent: &str,
        task: &TaskId,
        container: Option<&ContainerId>,
    ) -> Result<(), String> {
        self.judgements += 1;
        let ended = container.and_then(|container| self.ended.get(container));
        if !self.revocable.contains(task) && ended.is_none() {
            return Err(format!(
                "{agent} has task {task} yield, which has nothing revocable"
            ));
        }
        let Some(ended) = ended else {
            return Ok(()); // it had no process yet
        };
        let mut times = self.busy.get(agent).into_iter().flatten();
        let was_busy = times.any(|busy| {
            busy.since <= *ended && busy.until.is_none_or(|until| *ended <= until + SLACK)
        });
        was_busy.then_some(()).ok_or_else(|| {
            format!("{agent} has task {task} yield at {ended:?}, but its machine was not busy")
        })
    }

    /// The deadline of a container that runs there from now on.
    fn due(&self, agent: &str, at: Duration) -> Option<Duration> {
        let last = self.busy.get(agent).and_then(|times| times.last());
        let busy = last.is_some_and(|busy| busy.until.is_none());
        (busy && self.hampered == 0).then(|| at + YIELD)
    }

    /// Recomputes the deadlines.
    fn recompute_deadlines(&mut self, at: Duration) {
        let mut borrowers = std::mem::take(&mut self.borrowers);
        for borrower in borrowers.values_mut() {
            let due = self.due(&borrower.agent, at);
            let due = due.filter(|_| !borrower.lost_agent);
            borrower.due = due.and(borrower.due).or(due);
        }
        self.borrowers = borrowers;
        self.find_first_due();
    }

    fn find_first_due(&mut self) {
        self.first_due = self.borrowers.values().filter_map(|one| one.due).min();
    }

    fn process_ended(&mut self, container: &ContainerId, at: Duration) {
        let ended = self.borrowers.remove(&executor::node_of(container));
        if let Some(borrower) = ended {
            self.judgements += u64::from(borrower.due.is_some());
            self.ended.insert(container.clone(), at);
            self.find_first_due();
        }
    }

    fn overdue(&self, at: Duration) -> Result<(), String> {
        if self.first_due.is_none_or(|due| at <= due) {
            return Ok(());
        }
        let mut borrowers = self.borrowers.iter();
        let late = borrowers.find(|(_, one)| one.due.is_some_and(|due| due < at));
        late.map_or(Ok(()), |(node, borrower)| {
            Err(format!(
                "{node} runs on revocable resources of {}, whose machine is busy, and has not yielded within {YIELD:?}",
                borrower.agent
            ))
        })
    }
}

/// Whether an agent under this fault may be unable to correct.
fn hampers(fault: &Fault) -> bool {
    match &fault.kind {
        FaultKind::Pause { .. } => true,
        FaultKind::SlowDisk { by, .. } => *by > SLOW,
        _ => false,
    }
}

impl Checker for Corrections {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let at = event.at;
        let mut judged = self.overdue(at);
        match event.kind {
            EventKind::Sent(observed) => judged = judged.and_then(|()| self.on_sent(&observed, at)),
            EventKind::MachineBusy { agent, busy: true } => {
                let busy = Busy {
                    since: at,
                    until: None,
                };
                self.busy.entry(agent.to_owned()).or_default().push(busy);
                self.recompute_deadlines(at);
            }
            EventKind::MachineBusy { agent, .. } => {
                let last = self.busy.get_mut(agent).and_then(|times| times.last_mut());
                if let Some(busy) = last {
                    busy.until = Some(at);
                }
                self.recompute_deadlines(at);
            }
            EventKind::FaultBegan(fault) if hampers(fault) => {
                self.hampered += 1;
                self.recompute_deadlines(at);
            }
            EventKind::FaultEnded(fault) if hampers(fault) => {
                self.hampered -= 1;
                self.recompute_deadlines(at);
            }
            EventKind::CommandStarted(started) => {
                let node = executor::node_of(started.container);
                self.started(started.task, started.agent, &node, at);
            }
            EventKind::ProcessEnded { container, .. } => self.process_ended(container, at),
            EventKind::NodeEnded { node, .. } => {
                let of_agent = self.borrowers.values_mut();
                for borrower in of_agent.filter(|one| one.agent == node) {
                    borrower.lost_agent = true;
                }
                self.recompute_deadlines(at);
            }
            EventKind::Received(observed) if observed.is::<SubscribeExecutor>().is_some() => {
                if let Some(borrower) = self.borrowers.get_mut(observed.from) {
                    borrower.lost_agent = false;
                    self.recompute_deadlines(at);
                }
            }
            _ => {}
        }
        judged.or_else(|what| broken(NAME, at, what))
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{
        Fixture, agent, container, framework, pid, seconds, status, task,
    };
    use protocol::{ExecutorId, StatusUpdate, TaskState};
    use resources::Revocable;

    const AGENT: &str = "agent-1";

    /// A running task, on revocable resources or not.
    fn fixture(revocable: bool) -> Fixture<Corrections> {
        let mut fixture = Fixture::new(Corrections::default(), "cpus:4");
        let mut task = task("t", "cpus:1");
        if revocable {
            task.resources = task
                .resources
                .to_revocable(Revocable::Throttleable)
                .unwrap();
        }
        fixture.accepts("framework-1", &["o"], &[task.clone()]);
        let node = executor::node_of(&container());
        fixture.sent(AGENT, &node, &LaunchTask { task });
        fixture
    }

    fn busy(fixture: &mut Fixture<Corrections>, busy: bool) -> &mut Fixture<Corrections> {
        fixture.fact(EventKind::MachineBusy { agent: AGENT, busy })
    }

    fn yields(fixture: &mut Fixture<Corrections>) -> &mut Fixture<Corrections> {
        let mut status = status("t", TaskState::Gone, Some(9));
        status.reason = Some(Reason::ContainerPreempted);
        let update = StatusUpdate {
            framework_id: framework(),
            latest_state: status.state,
            status,
        };
        let agent_id = agent();
        let ended = EventKind::ProcessEnded {
            agent: AGENT,
            container: &container(),
        };
        fixture
            .fact(ended)
            .sent(AGENT, "master", &TaskUpdated { agent_id, update })
    }

    #[test]
    fn only_revocable_tasks_yield_on_busy_machines() {
        yields(busy(&mut fixture(true), true)).is_clean();
        yields(busy(&mut fixture(false), true)).is_broken("nothing revocable");
        yields(&mut fixture(true)).is_broken("was not busy");
        let mut late = fixture(true);
        busy(busy(&mut late, true), false).wait(SLACK * 2);
        yields(&mut late).is_broken("was not busy");
    }

    /// Found by a simulation of 100 agents: a cut link delayed the status until the machine was
    /// busy again.
    #[test]
    fn late_report_is_judged_by_the_time_of_the_end() {
        let mut late = fixture(true);
        let ended = EventKind::ProcessEnded {
            agent: AGENT,
            container: &container(),
        };
        busy(&mut late, true).fact(ended);
        busy(&mut late, false).wait(SLACK * 2);
        yields(busy(&mut late, true)).is_clean();
    }

    #[test]
    fn revocable_tasks_yield_in_time() {
        let mut stays = fixture(true);
        busy(&mut stays, true).wait(YIELD + seconds(1));
        stays
            .fact(EventKind::FaultsOver)
            .is_broken("has not yielded");
        let mut quiet = fixture(true);
        busy(busy(&mut quiet, true), false).wait(YIELD * 2);
        quiet.fact(EventKind::FaultsOver);
        yields(busy(&mut quiet, true)).is_clean();
    }

    #[test]
    fn crashed_agent_need_not_correct() {
        let subscribe = SubscribeExecutor {
            framework_id: framework(),
            executor_id: ExecutorId::new("e").unwrap(),
            container_id: container(),
            token: String::new(),
            pid: pid("executor-1"),
        };
        let node = executor::node_of(&container());
        let back = || {
            let mut fallen = fixture(true);
            busy(&mut fallen, true).fact(EventKind::NodeEnded {
                node: AGENT,
                crashed: true,
            });
            fallen.wait(YIELD * 2).fact(EventKind::FaultsOver);
            fallen.delivered(&node, AGENT, &subscribe);
            fallen
        };
        yields(back().wait(YIELD)).is_clean();
        let mut stays = back();
        stays.wait(YIELD + seconds(1)).fact(EventKind::FaultsOver);
        stays.is_broken("has not yielded");
    }

    #[test]
    fn hampered_agent_need_not_correct() {
        let fault: Fault = "0secs+9secs pause agent-1".parse().unwrap();
        let mut paused = fixture(true);
        busy(paused.fact(EventKind::FaultBegan(&fault)), true).wait(YIELD * 2);
        paused.fact(EventKind::FaultEnded(&fault)).wait(seconds(1));
        yields(&mut paused).is_clean();
    }
}
