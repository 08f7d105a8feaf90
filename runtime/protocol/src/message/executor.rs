//! What an executor and its agent say to each other, over a Unix socket (SPEC 2.5).
//!
//! `FrameworkMessage` of [`super::scheduler`] is passed on as it is.

use std::time::Duration;

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use crate::agent::AgentInfo;
use crate::framework::FrameworkInfo;
use crate::id::{ContainerId, ExecutorId, FrameworkId, TaskId, Uuid};
use crate::status::TaskStatus;
use crate::task::{ExecutorInfo, KillPolicy, TaskInfo};

/// This executor is up and would like its tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscribeExecutor {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub executor_id: ExecutorId,
    /// Which run of it.
    pub container_id: ContainerId,
    /// What the agent gave it to prove that it is who it says.
    pub token: String,
    /// Where it hears.
    pub pid: Pid,
}

/// The executor is subscribed; its tasks follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorSubscribed {
    /// What it is.
    pub executor: ExecutorInfo,
    /// Whose it is.
    pub framework: FrameworkInfo,
    /// Where it is.
    pub agent: AgentInfo,
}

/// The executor is not expected here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("executor refused: {reason}")]
pub struct ExecutorRefused {
    /// Why.
    pub reason: String,
}

/// Run this task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchTask {
    /// The task.
    pub task: TaskInfo,
}

/// End this task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndTask {
    /// Which.
    pub task_id: TaskId,
    /// How; `None` leaves it to the task's own policy.
    pub kill_policy: Option<KillPolicy>,
}

/// End all tasks and then yourself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownExecutor {
    /// After so long the executor is killed.
    pub grace_period: Duration,
}

/// A task of this executor has a new state. Kept by the executor until [`UpdateStored`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorUpdated {
    /// The state; its uuid is set.
    pub status: TaskStatus,
}

/// The agent has this update in its care.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateStored {
    /// Whose status.
    pub task_id: TaskId,
    /// Which status.
    pub uuid: Uuid,
}

remote! { SubscribeExecutor = "executor/subscribe_executor" v1 -> Result<ExecutorSubscribed, ExecutorRefused> }
// Said once: an executor that has no room for one is cut off, and ends with its tasks, which their framework hears.
remote! { LaunchTask = "executor/launch_task" v1 full CloseLink }
remote! { EndTask = "executor/end_task" v1 full CloseLink }
remote! { ShutDownExecutor = "executor/shut_down_executor" v1 full CloseLink }
remote! { ExecutorUpdated = "executor/executor_updated" v1 }
remote! { UpdateStored = "executor/update_stored" v1 }
