//! Gate: what an agent is told waits behind an operation until the registry has that (SPEC 3.5).
//!
//! Plain data: for each agent that has something to wait for, a line. What comes while there is a line stands at its end, so that a task
//! never reaches its agent before the volume that it uses. A kill waits only for the launch of its own task, and the end of an executor only
//! for launches on it: what runs already has nothing to do with the operation. Who has no line passes, and costs one look at an empty map. Bounded by agent; of
//! one that is full its agent is told nothing more, and must register again. It decides neither what may go nor when.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use protocol::message::operation::ApplyOperation;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskId, TaskInfo};
use runtime::Pid;

use crate::effects::ToAgent;

/// How many messages may wait for one agent.
pub(crate) const LINE_MAX: usize = 10_000;

/// What becomes of an operation that is first in its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Release {
    /// The registry has it not yet.
    Wait,
    /// Its agent is told this.
    Send(Box<ApplyOperation>),
    /// Its agent does not hear of it: it is over, or will be said again.
    Skip,
}

#[derive(Clone, Debug)]
enum Waiting {
    Operation(AgentId, u64),
    Message(Box<ToAgent>),
}

/// What a launch that waits begins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    Task(TaskId),
    /// `None` is the agent's own for a command.
    Executor(Option<ExecutorId>),
}

/// What waits for one agent, first come first.
#[derive(Clone, Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// How often its launches begin each of these, so that a kill need not look through the line.
    begun: BTreeMap<(FrameworkId, Begun), usize>,
}

/// Too many wait for this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// All lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    lines: BTreeMap<Pid, Line>,
}

impl Gate {
    /// An operation of that serial is for this agent, once the registry has it.
    pub fn close(&mut self, pid: &Pid, agent: AgentId, serial: u64) -> Result<(), Full> {
        let line = self.lines.entry(pid.clone()).or_default();
        line.push(Waiting::Operation(agent, serial))
    }

    /// Gives the message back if nothing that it must follow waits for its agent; else it waits as well.
    pub fn pass(&mut self, pid: &Pid, message: ToAgent) -> Result<Option<ToAgent>, Full> {
        if self.lines.is_empty() {
            return Ok(Some(message));
        }
        match self.lines.get_mut(pid) {
            None => Ok(Some(message)),
            Some(line) if !line.holds(&message) => Ok(Some(message)),
            Some(line) => line
                .push(Waiting::Message(Box::new(message)))
                .map(|()| None),
        }
    }

    /// Takes from the front of a line what need not wait any more, in order.
    pub fn release(
        &mut self,
        pid: &Pid,
        mut decide: impl FnMut(&AgentId, u64) -> Release,
    ) -> Vec<ToAgent> {
        let mut released = Vec::new();
        let Some(line) = self.lines.get_mut(pid) else {
            return released;
        };
        while let Some(first) = line.pop() {
            match first {
                Waiting::Message(message) => released.push(*message),
                Waiting::Operation(agent, serial) => match decide(&agent, serial) {
                    Release::Send(apply) => released.push(ToAgent::Apply(agent, apply)),
                    Release::Skip => {}
                    Release::Wait => {
                        line.waiting.push_front(Waiting::Operation(agent, serial));
                        return released;
                    }
                },
            }
        }
        self.lines.remove(pid);
        released
    }

    /// What waits for this agent is void; gives the messages among it.
    pub fn clear(&mut self, pid: &Pid) -> Vec<ToAgent> {
        let line = self.lines.remove(pid).unwrap_or_default();
        let message = |waiting| match waiting {
            Waiting::Message(message) => Some(*message),
            Waiting::Operation(..) => None,
        };
        line.waiting.into_iter().filter_map(message).collect()
    }
}

impl Line {
    /// Whether this message must not reach the agent before something that waits.
    fn holds(&self, message: &ToAgent) -> bool {
        let begins =
            |framework: &FrameworkId, begun| self.begun.contains_key(&(framework.clone(), begun));
        match message {
            ToAgent::Kill(kill) => begins(&kill.framework_id, Begun::Task(kill.task_id.clone())),
            ToAgent::EndExecutor(end) => {
                let own = Begun::Executor(Some(end.executor_id.clone()));
                begins(&end.framework_id, own) || begins(&end.framework_id, Begun::Executor(None))
            }
            _ => !self.waiting.is_empty(),
        }
    }

    fn push(&mut self, waiting: Waiting) -> Result<(), Full> {
        if self.waiting.len() >= LINE_MAX {
            return Err(Full);
        }
        for begun in begun_by(&waiting) {
            *self.begun.entry(begun).or_default() += 1;
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    fn pop(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        for begun in begun_by(&first) {
            if let Entry::Occupied(mut count) = self.begun.entry(begun) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        Some(first)
    }
}

fn begun_by(waiting: &Waiting) -> Vec<(FrameworkId, Begun)> {
    let Waiting::Message(message) = waiting else {
        return Vec::new();
    };
    let ToAgent::Run(launch) = message.as_ref() else {
        return Vec::new();
    };
    let Some(framework) = &launch.framework.id else {
        return Vec::new();
    };
    let begun = |task: &TaskInfo| {
        let executor = task.executor.as_ref();
        let executor = executor.map(|executor| executor.executor_id.clone());
        [Begun::Task(task.task_id.clone()), Begun::Executor(executor)]
    };
    let all = launch.tasks.iter().flat_map(begun);
    all.map(|begun| (framework.clone(), begun)).collect()
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
    fn who_has_no_line_passes_and_nobody_overtakes_in_one() {
        let (mut gate, one, other) = (Gate::default(), pid("one"), pid("other"));
        let message = || ToAgent::RegisterAgain;
        assert_eq!(gate.pass(&one, message()), Ok(Some(message())));
        gate.close(&one, agent(), 1).unwrap();
        assert_eq!(gate.pass(&one, message()), Ok(None));
        assert_eq!(gate.pass(&other, message()), Ok(Some(message())));
        gate.close(&one, agent(), 2).unwrap();
        gate.close(&one, agent(), 3).unwrap();
        gate.pass(&one, message()).unwrap();
        assert_eq!(gate.release(&one, |_, _| Release::Wait), []);
        let first = gate.release(&one, |_, serial| match serial {
            1 => Release::Send(apply(1)),
            _ => Release::Wait,
        });
        assert_eq!(first, [ToAgent::Apply(agent(), apply(1)), message()]);
        let rest = gate.release(&one, |_, serial| match serial {
            2 => Release::Skip,
            _ => Release::Send(apply(serial)),
        });
        assert_eq!(rest, [ToAgent::Apply(agent(), apply(3)), message()]);
        assert_eq!(gate.pass(&one, message()), Ok(Some(message())), "no line");
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
            tasks: vec![TaskInfo {
                name: task.to_owned(),
                task_id: TaskId::new(task).unwrap(),
                agent_id: agent(),
                resources: Resources::new(),
                command: None,
                executor: None,
                data: Vec::new(),
                kill_policy: None,
                labels: Default::default(),
            }],
        })
    }

    #[test]
    fn kill_waits_for_its_own_launch_only() {
        let (mut gate, one) = (Gate::default(), pid("one"));
        gate.close(&one, agent(), 1).unwrap();
        assert_eq!(gate.pass(&one, launch("f", "waits")), Ok(None));
        for (framework, task) in [("f", "runs"), ("g", "waits")] {
            let passed = gate.pass(&one, kill(framework, task));
            assert_eq!(passed, Ok(Some(kill(framework, task))));
        }
        assert_eq!(gate.pass(&one, kill("f", "waits")), Ok(None));
        let released = gate.release(&one, |_, _| Release::Skip);
        assert_eq!(released, [launch("f", "waits"), kill("f", "waits")]);
    }

    #[test]
    fn kill_passes_once_its_launch_is_released() {
        let (mut gate, one) = (Gate::default(), pid("one"));
        gate.close(&one, agent(), 1).unwrap();
        gate.pass(&one, launch("f", "again")).unwrap();
        gate.close(&one, agent(), 2).unwrap();
        gate.pass(&one, launch("f", "again")).unwrap();
        gate.close(&one, agent(), 3).unwrap();
        for (last, passes) in [(1, false), (2, true)] {
            gate.release(&one, |_, serial| match serial <= last {
                true => Release::Skip,
                false => Release::Wait,
            });
            let passed = gate.clone().pass(&one, kill("f", "again")).unwrap();
            assert_eq!(passed.is_some(), passes, "after operation {last}");
        }
    }

    #[test]
    fn a_line_is_bounded_and_void_as_a_whole() {
        let (mut gate, one) = (Gate::default(), pid("one"));
        gate.close(&one, agent(), 1).unwrap();
        for _ in 1..LINE_MAX {
            gate.pass(&one, ToAgent::RegisterAgain).unwrap();
        }
        assert_eq!(gate.pass(&one, ToAgent::RegisterAgain), Err(Full));
        assert_eq!(gate.close(&one, agent(), 2), Err(Full));
        assert_eq!(gate.clear(&one).len(), LINE_MAX - 1);
        let passed = gate.pass(&one, ToAgent::RegisterAgain);
        assert_eq!(passed, Ok(Some(ToAgent::RegisterAgain)));
    }
}
