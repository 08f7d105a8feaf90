//! Who holds resources of an agent. It never knows how much.

use protocol::digest::{self, Printer};
use protocol::{ExecutorId, FrameworkId, TaskId};

use crate::checkers::census::Part;

/// What holds resources of an agent, beside offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Task(FrameworkId, TaskId),
    Executor(FrameworkId, ExecutorId),
}

impl Holder {
    pub fn framework(&self) -> &FrameworkId {
        match self {
            Self::Task(framework, _) | Self::Executor(framework, _) => framework,
        }
    }

    /// Whether it is in one of the buckets that an agent has told in full.
    pub fn is_in(&self, part: &Part) -> bool {
        let mut printer = Printer::new(part.key);
        let place = match self {
            Self::Task(framework, task) => printer.task_place(framework, task),
            Self::Executor(framework, executor) => printer.executor_place(framework, executor),
        };
        part.which.contains(&digest::bucket(place, part.of))
    }
}
