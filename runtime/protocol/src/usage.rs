//! Resource usage of executors, and QoS corrections.

use resources::Resources;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ContainerId, ExecutorId, FrameworkId, TaskId};

/// Usage of one container at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceStatistics {
    /// Time of the measurement.
    pub timestamp: Timestamp,
    /// Number of processes.
    pub processes: u32,
    /// Number of threads.
    pub threads: u32,
    /// CPU time in user mode since the container's start, in seconds.
    pub cpus_user_time_secs: f64,
    /// CPU time in kernel mode since the container's start, in seconds.
    pub cpus_system_time_secs: f64,
    /// Allocated CPUs.
    pub cpus_limit: f64,
    /// Resident memory, in bytes.
    pub mem_rss_bytes: u64,
    /// Allocated memory, in bytes.
    pub mem_limit_bytes: u64,
}

/// Allocation and usage of one executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorUsage {
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its container.
    pub container_id: ContainerId,
    /// Resources allocated to the executor and its tasks.
    pub allocated: Resources,
    /// Active tasks.
    pub tasks: Vec<TaskId>,
    /// Usage; `None` if the measurement failed.
    pub statistics: Option<ResourceStatistics>,
}

impl ExecutorUsage {
    /// Whether the container is revocable: one revocable resource is enough.
    pub fn is_revocable(&self) -> bool {
        !self.allocated.revocable().is_empty()
    }
}

/// Usage of all executors on an agent, measured together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// All resources of the agent.
    pub total: Resources,
    /// One entry per executor.
    pub executors: Vec<ExecutorUsage>,
}

impl ResourceUsage {
    /// Revocable resources in use by executors.
    pub fn allocated_revocable(&self) -> Resources {
        let mut sum = Resources::default();
        for executor in &self.executors {
            sum += &executor.allocated.revocable().unallocate();
        }
        sum
    }
}

/// An order of a QoS controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosCorrection {
    /// Kill this executor now.
    Kill {
        /// Framework of the executor.
        framework_id: FrameworkId,
        /// The executor.
        executor_id: ExecutorId,
        /// Its container; `None` means the current one.
        container_id: Option<ContainerId>,
    },
}
