//! What a master and an agent say to each other about tasks (SPEC 5.2, 3.13).
//!
//! `KillTask`, `AcknowledgeStatus` and `FrameworkMessage` of [`super::scheduler`] are passed on as they are.

use std::time::Duration;

use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId};
use crate::status::{StatusUpdate, Termination};
use crate::task::TaskInfo;

/// These tasks have been validated and their resources booked: run them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTasks {
    /// Whose; its id is set.
    pub framework: FrameworkInfo,
    /// Which.
    pub tasks: Vec<TaskInfo>,
}

/// A task has a new state. Sent again until the framework has acknowledged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskUpdated {
    /// On which agent.
    pub agent_id: AgentId,
    /// The update.
    pub update: StatusUpdate,
}

/// An executor has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorExited {
    /// On which agent.
    pub agent_id: AgentId,
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub executor_id: ExecutorId,
    /// How, where known.
    pub termination: Option<Termination>,
}

/// The framework is no more: kill what runs for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownFramework {
    /// Which.
    pub framework_id: FrameworkId,
}

/// The framework is this from now on, as it has become or as its scheduler has subscribed again: what is still to be done for it is done as for this
/// (SPEC 3.2), and what it has not acknowledged is told again at once. An agent that has nothing of it has nothing to learn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkChanged {
    /// What it is; its id is set.
    pub framework: FrameworkInfo,
}

/// The executor should end, with its tasks (SPEC 2.2 SHUTDOWN): by itself within its grace period, or it is killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndExecutor {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub executor_id: ExecutorId,
}

/// The agent is being drained: each of its tasks should end, within its own grace period or this one if that is shorter (SPEC 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainTasks {
    /// The longest time that a task has; `None` is each task's own.
    pub max_grace_period: Option<Duration>,
}

remote! { RunTasks = "task/run_tasks" v1 }
remote! { TaskUpdated = "task/task_updated" v1 }
remote! { ExecutorExited = "task/executor_exited" v1 }
remote! { DrainTasks = "task/drain_tasks" v1 }
remote! { ShutDownFramework = "task/shut_down_framework" v1 }
remote! { EndExecutor = "task/end_executor" v1 }
remote! { FrameworkChanged = "task/framework_changed" v1 }
