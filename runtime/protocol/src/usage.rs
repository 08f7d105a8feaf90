//! What executors use, and what should be done about it (SPEC 5.7, S4, S27).

use resources::Resources;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ContainerId, ExecutorId, FrameworkId, TaskId};

/// What one container used up to one moment (S4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceStatistics {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// Processes in it.
    pub processes: u32,
    /// Threads in it.
    pub threads: u32,
    /// CPU time spent in user mode since it began, in seconds.
    pub cpus_user_time_secs: f64,
    /// CPU time spent in the kernel since it began, in seconds.
    pub cpus_system_time_secs: f64,
    /// CPUs it was given.
    pub cpus_limit: f64,
    /// Memory resident now, in bytes.
    pub mem_rss_bytes: u64,
    /// Memory it was given, in bytes.
    pub mem_limit_bytes: u64,
}

/// One executor: what it was given and what it uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorUsage {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub executor_id: ExecutorId,
    /// In which container.
    pub container_id: ContainerId,
    /// What it and its tasks were given.
    pub allocated: Resources,
    /// Its tasks that have not ended.
    pub tasks: Vec<TaskId>,
    /// What it uses; `None` when it could not be measured.
    pub statistics: Option<ResourceStatistics>,
}

impl ExecutorUsage {
    /// Whether the whole container is revocable: one revocable resource suffices (S15).
    pub fn is_revocable(&self) -> bool {
        !self.allocated.revocable().is_empty()
    }
}

/// All executors of an agent, measured together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// All that the agent has.
    pub total: Resources,
    /// One entry an executor.
    pub executors: Vec<ExecutorUsage>,
}

impl ResourceUsage {
    /// The revocable resources that executors hold.
    pub fn allocated_revocable(&self) -> Resources {
        let mut sum = Resources::default();
        for executor in &self.executors {
            sum += &executor.allocated.revocable().unallocate();
        }
        sum
    }
}

/// What a QoS controller wants done (S26, S27).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosCorrection {
    /// This executor must yield at once.
    Kill {
        /// Whose executor.
        framework_id: FrameworkId,
        /// Which executor.
        executor_id: ExecutorId,
        /// Which run of it; `None` is whichever runs now.
        container_id: Option<ContainerId>,
    },
}
