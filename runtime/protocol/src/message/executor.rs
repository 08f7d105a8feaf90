//! Messages between an executor and its agent, over a Unix socket.
//!
//! The agent also relays `FrameworkMessage` of [`super::scheduler`] unchanged.

use std::time::Duration;

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use crate::agent::AgentInfo;
use crate::framework::FrameworkInfo;
use crate::id::{ContainerId, ExecutorId, FrameworkId, TaskId, Uuid};
use crate::task::status::TaskStatus;
use crate::task::{ExecutorInfo, KillPolicy, TaskInfo};

/// Subscribes an executor at its agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscribeExecutor {
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its container.
    pub container_id: ContainerId,
    /// Token from the agent, which proves the executor's identity.
    pub token: String,
    /// Actor that receives the agent's messages.
    pub pid: Pid,
}

/// The executor is subscribed; its tasks follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorSubscribed {
    /// The executor's description.
    pub executor: ExecutorInfo,
    /// The framework's description.
    pub framework: FrameworkInfo,
    /// The agent's description.
    pub agent: AgentInfo,
}

/// The agent does not expect this executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("executor refused: {reason}")]
pub struct ExecutorRefused {
    /// Reason, for the log.
    pub reason: String,
}

/// Launches a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchTask {
    /// The task.
    pub task: TaskInfo,
}

/// Kills a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndTask {
    /// The task.
    pub task_id: TaskId,
    /// Kill policy; `None` uses the task's own.
    pub kill_policy: Option<KillPolicy>,
}

/// The executor must kill its tasks and exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownExecutor {
    /// Time until the agent kills the executor.
    pub grace_period: Duration,
}

/// A task has a new state. The executor repeats this until [`UpdateStored`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorUpdated {
    /// The status, with a uuid.
    pub status: TaskStatus,
}

/// The agent has stored this update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateStored {
    /// The task.
    pub task_id: TaskId,
    /// Uuid of the status.
    pub uuid: Uuid,
}

remote! { SubscribeExecutor = "executor/subscribe_executor" v1 -> Result<ExecutorSubscribed, ExecutorRefused> }
// Sent only once: if the executor's mailbox is full, the link is closed. Then the executor ends
// with its tasks, and the framework receives their final states.
remote! { LaunchTask = "executor/launch_task" v1 full CloseLink }
remote! { EndTask = "executor/end_task" v1 full CloseLink }
remote! { ShutDownExecutor = "executor/shut_down_executor" v1 full CloseLink }
remote! { ExecutorUpdated = "executor/executor_updated" v1 }
remote! { UpdateStored = "executor/update_stored" v1 }
