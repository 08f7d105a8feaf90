//! Corrections: what runs on revocable resources yields when its machine is busy, and nothing else ever does.
//!
//! Judged by what schedulers asked for and by the machines. A task is revocable if its scheduler accepted an offer with it on anything
//! revocable; a container is, if it was given such a task (S15).
//!
//! - A task that an agent gives up as preempted was in a revocable container, and its machine was busy when that ended, or shortly before.
//! - A revocable container on a busy machine is gone within [`YIELD`]. That counts from the moment when the machine was busy, the task was
//!   given, and nothing hampered agents: where processes are paused, or disks are so slow that usage cannot be measured, nothing is demanded.
//!   Nor is it of one that outlives the process of its agent, until it has subscribed at the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::executor::{LaunchTask, SubscribeExecutor};
use protocol::message::scheduler::AcceptOffers;
use protocol::message::task::TaskUpdated;
use protocol::{ContainerId, Operation, Reason, TaskId};

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::executor;
use crate::load;
use crate::scenario::{Fault, FaultKind};

/// How long a container may stay on a busy machine: controllers look every five seconds, measure for at most five, and repeat their advice
/// after ten.
pub const YIELD: Duration = Duration::from_secs(30);
/// So long after a machine was busy a correction may still be carried out.
const SLACK: Duration = Duration::from_secs(10);
/// An agent with a slower disk cannot measure its usage in time.
const SLOW: Duration = Duration::from_secs(3);

const NAME: &str = "corrections";

/// A revocable container that runs.
struct Borrower {
    agent: String,
    /// Whether it has lost its agent, and not subscribed at the next one.
    astray: bool,
    /// When it must be gone.
    due: Option<Duration>,
}

/// The checker.
#[derive(Default)]
pub struct Corrections {
    /// Tasks that were accepted on something revocable.
    revocable: BTreeSet<TaskId>,
    /// Those containers that run, by their nodes.
    borrowers: BTreeMap<String, Borrower>,
    /// The first moment at which one of them must be gone.
    first_due: Option<Duration>,
    /// When those that ended did so.
    ended: BTreeMap<ContainerId, Duration>,
    /// When each machine was busy, or since when it is: an end may be told long after, when it is busy anew.
    busy: BTreeMap<String, Vec<Busy>>,
    /// How many faults keep agents from doing what they should.
    hampered: u32,
    /// What was judged once is not judged again when it is sent again.
    judged: BTreeSet<TaskId>,
    judgements: u64,
}

#[derive(Clone, Copy)]
struct Busy {
    since: Duration,
    until: Option<Duration>,
}

impl Corrections {
    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), String> {
        if let Some(accept) = spoken.is::<AcceptOffers>() {
            let tasks = accept.operations.iter().flat_map(Operation::tasks);
            let revocable = tasks.filter(|task| load::is_revocable(task));
            self.revocable
                .extend(revocable.map(|task| task.task_id.clone()));
        } else if let Some(launch) = spoken.is::<LaunchTask>() {
            if self.revocable.contains(&launch.task.task_id) {
                let due = self.due(spoken.from, at);
                let borrower = Borrower {
                    agent: spoken.from.to_owned(),
                    astray: false,
                    due,
                };
                self.borrowers
                    .entry(spoken.to.to_owned())
                    .or_insert(borrower);
                self.find_first_due();
            }
        } else if let Some(updated) = spoken.is::<TaskUpdated>() {
            let status = &updated.update.status;
            let preempted = status.reason == Some(Reason::ContainerPreempted);
            if preempted && self.judged.insert(status.task_id.clone()) {
                return self.preempted(spoken.from, &status.task_id, status.container_id.as_ref());
            }
        }
        Ok(())
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
            return Ok(()); // It had no process yet.
        };
        let mut times = self.busy.get(agent).into_iter().flatten();
        let was_busy = times.any(|busy| {
            busy.since <= *ended && busy.until.is_none_or(|until| *ended <= until + SLACK)
        });
        was_busy.then_some(()).ok_or_else(|| {
            format!("{agent} has task {task} yield at {ended:?}, but its machine was not busy")
        })
    }

    /// When a container that runs there from now on must be gone.
    fn due(&self, agent: &str, at: Duration) -> Option<Duration> {
        let last = self.busy.get(agent).and_then(|times| times.last());
        let busy = last.is_some_and(|busy| busy.until.is_none());
        (busy && self.hampered == 0).then(|| at + YIELD)
    }

    /// What must be gone by when, judged anew.
    fn reckon(&mut self, at: Duration) {
        let mut borrowers = std::mem::take(&mut self.borrowers);
        for borrower in borrowers.values_mut() {
            let due = self.due(&borrower.agent, at);
            let due = due.filter(|_| !borrower.astray);
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

/// Whether an agent under this fault may be unable to correct anything.
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
        match event.what {
            What::Said(spoken) => judged = judged.and_then(|()| self.said(&spoken, at)),
            What::MachineBusy { agent, busy: true } => {
                let busy = Busy {
                    since: at,
                    until: None,
                };
                self.busy.entry(agent.to_owned()).or_default().push(busy);
                self.reckon(at);
            }
            What::MachineBusy { agent, .. } => {
                let last = self.busy.get_mut(agent).and_then(|times| times.last_mut());
                if let Some(busy) = last {
                    busy.until = Some(at);
                }
                self.reckon(at);
            }
            What::FaultBegan(fault) if hampers(fault) => {
                self.hampered += 1;
                self.reckon(at);
            }
            What::FaultEnded(fault) if hampers(fault) => {
                self.hampered -= 1;
                self.reckon(at);
            }
            What::ProcessEnded { container, .. } => self.process_ended(container, at),
            What::NodeEnded { node, .. } => {
                let of_agent = self.borrowers.values_mut();
                for borrower in of_agent.filter(|one| one.agent == node) {
                    borrower.astray = true;
                }
                self.reckon(at);
            }
            What::Heard(spoken) if spoken.is::<SubscribeExecutor>().is_some() => {
                if let Some(borrower) = self.borrowers.get_mut(spoken.from) {
                    borrower.astray = false;
                    self.reckon(at);
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
    use super::super::stage::{Stage, agent, container, framework, pid, seconds, status, task};
    use super::*;
    use protocol::{ExecutorId, StatusUpdate, TaskState};
    use resources::Revocable;

    const AGENT: &str = "agent-1";

    /// A task that runs, on revocable resources or not.
    fn stage(revocable: bool) -> Stage<Corrections> {
        let mut stage = Stage::new(Corrections::default(), "cpus:4");
        let mut task = task("t", "cpus:1");
        if revocable {
            task.resources = task
                .resources
                .to_revocable(Revocable::Throttleable)
                .unwrap();
        }
        stage.accepts("framework-1", &["o"], &[task.clone()]);
        let node = executor::node_of(&container());
        stage.said(AGENT, &node, &LaunchTask { task });
        stage
    }

    fn busy(stage: &mut Stage<Corrections>, busy: bool) -> &mut Stage<Corrections> {
        stage.fact(What::MachineBusy { agent: AGENT, busy })
    }

    fn yields(stage: &mut Stage<Corrections>) -> &mut Stage<Corrections> {
        let mut status = status("t", TaskState::Gone, Some(9));
        status.reason = Some(Reason::ContainerPreempted);
        let update = StatusUpdate {
            framework_id: framework(),
            latest_state: status.state,
            status,
        };
        let agent_id = agent();
        let ended = What::ProcessEnded {
            agent: AGENT,
            container: &container(),
        };
        stage
            .fact(ended)
            .said(AGENT, "master", &TaskUpdated { agent_id, update })
    }

    #[test]
    fn only_what_is_revocable_yields_and_only_where_it_is_busy() {
        yields(busy(&mut stage(true), true)).is_clean();
        yields(busy(&mut stage(false), true)).is_broken("nothing revocable");
        yields(&mut stage(true)).is_broken("was not busy");
        let mut late = stage(true);
        busy(busy(&mut late, true), false).wait(SLACK * 2);
        yields(&mut late).is_broken("was not busy");
    }

    /// Found by a rehearsal of 100 agents: a link that was cut held the status back until the machine was busy for the second time.
    #[test]
    fn an_end_that_is_told_late_is_judged_by_when_it_was() {
        let mut late = stage(true);
        let ended = What::ProcessEnded {
            agent: AGENT,
            container: &container(),
        };
        busy(&mut late, true).fact(ended);
        busy(&mut late, false).wait(SLACK * 2);
        yields(busy(&mut late, true)).is_clean();
    }

    #[test]
    fn what_is_revocable_yields_soon_where_it_is_busy() {
        let mut stays = stage(true);
        busy(&mut stays, true).wait(YIELD + seconds(1));
        stays.fact(What::FaultsOver).is_broken("has not yielded");
        let mut quiet = stage(true);
        busy(busy(&mut quiet, true), false).wait(YIELD * 2);
        quiet.fact(What::FaultsOver);
        yields(busy(&mut quiet, true)).is_clean();
    }

    #[test]
    fn nothing_is_demanded_of_an_agent_that_fell_until_its_executor_is_back() {
        let subscribe = SubscribeExecutor {
            framework_id: framework(),
            executor_id: ExecutorId::new("e").unwrap(),
            container_id: container(),
            token: String::new(),
            pid: pid("executor-1"),
        };
        let node = executor::node_of(&container());
        let back = || {
            let mut fallen = stage(true);
            busy(&mut fallen, true).fact(What::NodeEnded {
                node: AGENT,
                crashed: true,
            });
            fallen.wait(YIELD * 2).fact(What::FaultsOver);
            fallen.told(&node, AGENT, &subscribe);
            fallen
        };
        yields(back().wait(YIELD)).is_clean();
        let mut stays = back();
        stays.wait(YIELD + seconds(1)).fact(What::FaultsOver);
        stays.is_broken("has not yielded");
    }

    #[test]
    fn nothing_is_demanded_of_who_is_hampered() {
        let fault: Fault = "0secs+9secs pause agent-1".parse().unwrap();
        let mut paused = stage(true);
        busy(paused.fact(What::FaultBegan(&fault)), true).wait(YIELD * 2);
        paused.fact(What::FaultEnded(&fault)).wait(seconds(1));
        yields(&mut paused).is_clean();
    }
}
