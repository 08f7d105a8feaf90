//! The holders of an agent's resources, without amounts.

use protocol::digest::{self, Fingerprinter};
use protocol::{ExecutorId, FrameworkId, TaskId};

use crate::checkers::masters::membership::Part;

/// A holder of an agent's resources that is not an offer.
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

    /// Whether it is in one of the buckets that an agent has reported in full.
    pub fn is_in(&self, part: &Part) -> bool {
        let mut printer = Fingerprinter::new(part.key);
        let place = match self {
            Self::Task(framework, task) => printer.task_name_hash(framework, task),
            Self::Executor(framework, executor) => printer.executor_name_hash(framework, executor),
        };
        part.which.contains(&digest::bucket(place, part.of))
    }
}
