//! Messages about tasks between a master and an agent.
//!
//! The master also relays `KillTask`, `AcknowledgeStatus` and `FrameworkMessage` of
//! [`super::scheduler`] unchanged.

use std::time::Duration;

use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId};
use crate::task::TaskInfo;
use crate::task::status::{StatusUpdate, Termination};

/// Runs validated tasks. Their resources are already allocated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTasks {
    /// The framework, with its id.
    pub framework: FrameworkInfo,
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
}

/// A task has a new state. The agent repeats this until the framework acknowledges it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskUpdated {
    /// The agent.
    pub agent_id: AgentId,
    /// The update.
    pub update: StatusUpdate,
}

/// An executor has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorExited {
    /// The agent.
    pub agent_id: AgentId,
    /// The framework.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its end, if known.
    pub termination: Option<Termination>,
}

/// The framework has ended: kill its tasks and executors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownFramework {
    /// The framework.
    pub framework_id: FrameworkId,
}

/// The framework was updated, or its scheduler has resubscribed. The agent uses the new description
/// from now on and repeats the unacknowledged updates at once. Agents without tasks of the
/// framework do not receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkChanged {
    /// The new description, with its id.
    pub framework: FrameworkInfo,
}

/// Ends an executor with its tasks. It may stop by itself within its grace period; then it is
/// killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndExecutor {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
}

/// Drains the agent: each task must end within its own grace period or this one, whichever is
/// shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainTasks {
    /// Longest grace period; `None` uses each task's own.
    pub max_grace_period: Option<Duration>,
}

remote! { RunTasks = "task/run_tasks" v1 }
remote! { TaskUpdated = "task/task_updated" v1 }
remote! { ExecutorExited = "task/executor_exited" v1 }
remote! { DrainTasks = "task/drain_tasks" v1 }
remote! { ShutDownFramework = "task/shut_down_framework" v1 }
remote! { EndExecutor = "task/end_executor" v1 }
remote! { FrameworkChanged = "task/framework_changed" v1 }
