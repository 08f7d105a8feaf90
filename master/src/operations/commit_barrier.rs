//! Commit barrier: messages for an agent that must wait behind an operation until the registry has
//! it.
//!
//! Plain data: a queue for each agent with a waiting operation. Later messages go to its end, so
//! that a task never reaches its agent before the volume that it uses. A kill waits only for the
//! launch of its own task, and the end of an executor only for launches on it: running tasks are
//! independent of the operation. Agents without a queue cost one lookup in an empty map. Bounded
//! per agent; above the bound the agent must register again. The caller decides what is released
//! and when.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use protocol::message::operation::ApplyOperation;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskId, TaskInfo};
use runtime::Pid;

use crate::state::effects::ToAgent;

/// Maximum messages that wait for one agent.
pub(crate) const QUEUE_MAX: usize = 10_000;

/// The action for an operation that is first in its queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Release {
    /// The registry does not have it yet.
    Wait,
    /// Send this to its agent.
    Send(Box<ApplyOperation>),
    /// Skip it: it is over, or will be sent again.
    Skip,
}

#[derive(Clone, Debug)]
enum QueuedItem {
    Operation(AgentId, u64),
    Message(Box<ToAgent>),
}

/// The start of a task or an executor by a waiting launch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Started {
    Task(TaskId),
    /// `None` is the agent's own executor for commands.
    Executor(Option<ExecutorId>),
}

/// The queue of one agent.
#[derive(Clone, Debug, Default)]
struct AgentQueue {
    waiting: VecDeque<QueuedItem>,
    /// How many waiting launches start each of these, so that a kill need not search the queue.
    starts: BTreeMap<(FrameworkId, Started), usize>,
}

/// The queue of this agent is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// All queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitBarrier {
    queues: BTreeMap<Pid, AgentQueue>,
}

impl CommitBarrier {
    /// Queues an operation for this agent until the registry has it.
    pub fn close(&mut self, pid: &Pid, agent: AgentId, serial: u64) -> Result<(), Full> {
        let queue = self.queues.entry(pid.clone()).or_default();
        queue.push(QueuedItem::Operation(agent, serial))
    }

    /// Returns the message if it need not wait for anything in the agent's queue; otherwise queues
    /// it.
    pub fn pass(&mut self, pid: &Pid, message: ToAgent) -> Result<Option<ToAgent>, Full> {
        if self.queues.is_empty() {
            return Ok(Some(message));
        }
        match self.queues.get_mut(pid) {
            None => Ok(Some(message)),
            Some(queue) if !queue.holds(&message) => Ok(Some(message)),
            Some(queue) => queue
                .push(QueuedItem::Message(Box::new(message)))
                .map(|()| None),
        }
    }

    /// Removes the messages at the front of a queue that need not wait any more, in order.
    pub fn release(
        &mut self,
        pid: &Pid,
        mut decide: impl FnMut(&AgentId, u64) -> Release,
    ) -> Vec<ToAgent> {
        let mut released = Vec::new();
        let Some(queue) = self.queues.get_mut(pid) else {
            return released;
        };
        while let Some(first) = queue.pop() {
            match first {
                QueuedItem::Message(message) => released.push(*message),
                QueuedItem::Operation(agent, serial) => match decide(&agent, serial) {
                    Release::Send(apply) => released.push(ToAgent::Apply(agent, apply)),
                    Release::Skip => {}
                    Release::Wait => {
                        queue
                            .waiting
                            .push_front(QueuedItem::Operation(agent, serial));
                        return released;
                    }
                },
            }
        }
        self.queues.remove(pid);
        released
    }

    /// Drops the queue of this agent; returns its messages.
    pub fn clear(&mut self, pid: &Pid) -> Vec<ToAgent> {
        let queue = self.queues.remove(pid).unwrap_or_default();
        let message = |waiting| match waiting {
            QueuedItem::Message(message) => Some(*message),
            QueuedItem::Operation(..) => None,
        };
        queue.waiting.into_iter().filter_map(message).collect()
    }
}

impl AgentQueue {
    /// Whether this message must not overtake something in the queue.
    fn holds(&self, message: &ToAgent) -> bool {
        let begins = |framework: &FrameworkId, starts| {
            self.starts.contains_key(&(framework.clone(), starts))
        };
        match message {
            ToAgent::Kill(kill) => begins(&kill.framework_id, Started::Task(kill.task_id.clone())),
            ToAgent::EndExecutor(end) => {
                let own = Started::Executor(Some(end.executor_id.clone()));
                begins(&end.framework_id, own) || begins(&end.framework_id, Started::Executor(None))
            }
            _ => !self.waiting.is_empty(),
        }
    }

    fn push(&mut self, waiting: QueuedItem) -> Result<(), Full> {
        if self.waiting.len() >= QUEUE_MAX {
            return Err(Full);
        }
        for starts in started_by(&waiting) {
            *self.starts.entry(starts).or_default() += 1;
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    fn pop(&mut self) -> Option<QueuedItem> {
        let first = self.waiting.pop_front()?;
        for starts in started_by(&first) {
            if let Entry::Occupied(mut count) = self.starts.entry(starts) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        Some(first)
    }
}

fn started_by(waiting: &QueuedItem) -> Vec<(FrameworkId, Started)> {
    let QueuedItem::Message(message) = waiting else {
        return Vec::new();
    };
    let ToAgent::Run(launch) = message.as_ref() else {
        return Vec::new();
    };
    let Some(framework) = &launch.framework.id else {
        return Vec::new();
    };
    let starts = |task: &TaskInfo| {
        let executor = task.executor.as_ref();
        let executor = executor.map(|executor| executor.executor_id.clone());
        [
            Started::Task(task.task_id.clone()),
            Started::Executor(executor),
        ]
    };
    let all = launch.tasks.iter().flat_map(starts);
    all.map(|starts| (framework.clone(), starts)).collect()
}

#[cfg(test)]
mod tests {
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::KillTask;
    use protocol::message::task::RunTasks;
    use resources::{Conversion, Resources};
    use runtime::NodeId;

    use super::*;

    fn pid(name: &str) -> Pid {
        Pid::new("agent", NodeId::new(name, 1), 1)
    }

    fn agent() -> AgentId {
        AgentId::new("a").unwrap()
    }

    fn apply(serial: u64) -> Box<ApplyOperation> {
        Box::new(ApplyOperation {
            feedback: None,
            conversion: Conversion::Reserve {
                resources: Resources::new(),
            },
            version: protocol::Uuid([1; 16]),
            serial: Some(serial),
        })
    }

    #[test]
    fn messages_pass_without_a_queue_and_keep_order_in_one() {
        let (mut barrier, one, other) = (CommitBarrier::default(), pid("one"), pid("other"));
        let message = || ToAgent::RegisterAgain;
        assert_eq!(barrier.pass(&one, message()), Ok(Some(message())));
        barrier.close(&one, agent(), 1).unwrap();
        assert_eq!(barrier.pass(&one, message()), Ok(None));
        assert_eq!(barrier.pass(&other, message()), Ok(Some(message())));
        barrier.close(&one, agent(), 2).unwrap();
        barrier.close(&one, agent(), 3).unwrap();
        barrier.pass(&one, message()).unwrap();
        assert_eq!(barrier.release(&one, |_, _| Release::Wait), []);
        let first = barrier.release(&one, |_, serial| match serial {
            1 => Release::Send(apply(1)),
            _ => Release::Wait,
        });
        assert_eq!(first, [ToAgent::Apply(agent(), apply(1)), message()]);
        let rest = barrier.release(&one, |_, serial| match serial {
            2 => Release::Skip,
            _ => Release::Send(apply(serial)),
        });
        assert_eq!(rest, [ToAgent::Apply(agent(), apply(3)), message()]);
        assert_eq!(
            barrier.pass(&one, message()),
            Ok(Some(message())),
            "no line"
        );
    }

    fn kill(framework: &str, task: &str) -> ToAgent {
        ToAgent::Kill(KillTask {
            framework_id: FrameworkId::new(framework).unwrap(),
            task_id: TaskId::new(task).unwrap(),
            agent_id: None,
            kill_policy: None,
        })
    }

    fn launch(framework: &str, task: &str) -> ToAgent {
        ToAgent::Run(RunTasks {
            framework: FrameworkInfo {
                id: Some(FrameworkId::new(framework).unwrap()),
                ..FrameworkInfo::new("", framework)
            },
            tasks: vec![TaskInfo::new(
                TaskId::new(task).unwrap(),
                agent(),
                Resources::new(),
            )],
        })
    }

    #[test]
    fn kill_waits_for_its_own_launch_only() {
        let (mut barrier, one) = (CommitBarrier::default(), pid("one"));
        barrier.close(&one, agent(), 1).unwrap();
        assert_eq!(barrier.pass(&one, launch("f", "waits")), Ok(None));
        for (framework, task) in [("f", "runs"), ("g", "waits")] {
            let passed = barrier.pass(&one, kill(framework, task));
            assert_eq!(passed, Ok(Some(kill(framework, task))));
        }
        assert_eq!(barrier.pass(&one, kill("f", "waits")), Ok(None));
        let released = barrier.release(&one, |_, _| Release::Skip);
        assert_eq!(released, [launch("f", "waits"), kill("f", "waits")]);
    }

    #[test]
    fn kill_passes_once_its_launch_is_released() {
        let (mut barrier, one) = (CommitBarrier::default(), pid("one"));
        barrier.close(&one, agent(), 1).unwrap();
        barrier.pass(&one, launch("f", "again")).unwrap();
        barrier.close(&one, agent(), 2).unwrap();
        barrier.pass(&one, launch("f", "again")).unwrap();
        barrier.close(&one, agent(), 3).unwrap();
        for (last, passes) in [(1, false), (2, true)] {
            barrier.release(&one, |_, serial| match serial <= last {
                true => Release::Skip,
                false => Release::Wait,
            });
            let passed = barrier.clone().pass(&one, kill("f", "again")).unwrap();
            assert_eq!(passed.is_some(), passes, "after operation {last}");
        }
    }

    #[test]
    fn agent_queue_is_bounded_and_dropped_as_a_whole() {
        let (mut barrier, one) = (CommitBarrier::default(), pid("one"));
        barrier.close(&one, agent(), 1).unwrap();
        for _ in 1..QUEUE_MAX {
            barrier.pass(&one, ToAgent::RegisterAgain).unwrap();
        }
        assert_eq!(barrier.pass(&one, ToAgent::RegisterAgain), Err(Full));
        assert_eq!(barrier.close(&one, agent(), 2), Err(Full));
        assert_eq!(barrier.clear(&one).len(), QUEUE_MAX - 1);
        let passed = barrier.pass(&one, ToAgent::RegisterAgain);
        assert_eq!(passed, Ok(Some(ToAgent::RegisterAgain)));
    }
}
