//! Resource usage of executors, and QoS corrections.

use std::fmt;

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
    /// Requested CPUs, if the limit differs.
    pub cpus_soft_limit: Option<f64>,
    /// Scheduler periods in which the container was runnable, where a CPU quota holds.
    pub cpus_nr_periods: Option<u32>,
    /// Number of these in which it was throttled.
    pub cpus_nr_throttled: Option<u32>,
    /// For how long it was throttled, in seconds.
    pub cpus_throttled_time_secs: Option<f64>,
    /// All memory of the container, page cache and kernel memory included, in bytes.
    pub mem_total_bytes: Option<u64>,
    /// The same with swap, in bytes.
    pub mem_total_memsw_bytes: Option<u64>,
    /// Requested memory, if the limit differs, in bytes.
    pub mem_soft_limit_bytes: Option<u64>,
    /// Page cache, in bytes.
    pub mem_cache_bytes: Option<u64>,
    /// Anonymous memory, in bytes.
    pub mem_anon_bytes: Option<u64>,
    /// Mapped files, in bytes.
    pub mem_mapped_file_bytes: Option<u64>,
    /// Swapped memory, in bytes.
    pub mem_swap_bytes: Option<u64>,
    /// Locked memory, in bytes.
    pub mem_unevictable_bytes: Option<u64>,
    /// Kernel memory, in bytes.
    pub mem_kmem_usage_bytes: Option<u64>,
    /// Buffers of TCP sockets, in bytes.
    pub mem_kmem_tcp_usage_bytes: Option<u64>,
    /// Allocated disk space of the sandbox, in bytes.
    pub disk_limit_bytes: Option<u64>,
    /// Space that the sandbox takes, in bytes.
    pub disk_used_bytes: Option<u64>,
    /// Input and output on each block device.
    pub blkio: Vec<BlockStatistics>,
    /// Traffic of a network of its own, without its loopback.
    pub net: Option<NetworkStatistics>,
    /// Waiting for CPUs.
    pub cpu_pressure: Option<Pressure>,
    /// Waiting for memory.
    pub mem_pressure: Option<Pressure>,
    /// Waiting for input and output.
    pub io_pressure: Option<Pressure>,
    /// Directory of the control group with these pressures, on the agent's host.
    pub pressure_directory: Option<String>,
}

/// Input and output on a block device since the container's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStatistics {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Bytes.
    pub bytes: BlockOperations,
    /// Requests.
    pub requests: BlockOperations,
}

/// An amount for each kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockOperations {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Discards.
    pub discard: u64,
}

impl std::ops::AddAssign for BlockOperations {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.write += other.write;
        self.discard += other.discard;
    }
}

/// Traffic since the container's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatistics {
    /// To the container.
    pub received: Traffic,
    /// From the container.
    pub sent: Traffic,
}

/// Traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Errors.
    pub errors: u64,
    /// Dropped packets.
    pub dropped: u64,
}

/// For how long processes have waited for a resource since the container's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one, in seconds.
    pub some_secs: f64,
    /// All that could have run, in seconds.
    pub full_secs: f64,
}

impl ResourceStatistics {
    /// Memory that cannot be taken back at once, in bytes: without page cache where that is
    /// counted.
    pub fn working_set_bytes(&self) -> u64 {
        let total = self.mem_total_bytes.zip(self.mem_cache_bytes);
        let without_cache = total.map(|(total, cache)| total.saturating_sub(cache));
        without_cache.map_or(self.mem_rss_bytes, |bytes| bytes.max(self.mem_rss_bytes))
    }

    /// Takes over each value that `other` has measured: the optional ones that are given, and the
    /// others that are not zero.
    pub fn overlay(&mut self, other: &Self) {
        fn take<T: Copy + Default + PartialEq>(own: &mut T, other: T) {
            if other != T::default() {
                *own = other;
            }
        }
        take(&mut self.timestamp, other.timestamp);
        take(&mut self.processes, other.processes);
        take(&mut self.threads, other.threads);
        take(&mut self.cpus_user_time_secs, other.cpus_user_time_secs);
        take(&mut self.cpus_system_time_secs, other.cpus_system_time_secs);
        take(&mut self.cpus_limit, other.cpus_limit);
        take(&mut self.mem_rss_bytes, other.mem_rss_bytes);
        take(&mut self.mem_limit_bytes, other.mem_limit_bytes);
        take(&mut self.cpus_soft_limit, other.cpus_soft_limit);
        take(&mut self.cpus_nr_periods, other.cpus_nr_periods);
        take(&mut self.cpus_nr_throttled, other.cpus_nr_throttled);
        take(
            &mut self.cpus_throttled_time_secs,
            other.cpus_throttled_time_secs,
        );
        take(&mut self.mem_total_bytes, other.mem_total_bytes);
        take(&mut self.mem_total_memsw_bytes, other.mem_total_memsw_bytes);
        take(&mut self.mem_soft_limit_bytes, other.mem_soft_limit_bytes);
        take(&mut self.mem_cache_bytes, other.mem_cache_bytes);
        take(&mut self.mem_anon_bytes, other.mem_anon_bytes);
        take(&mut self.mem_mapped_file_bytes, other.mem_mapped_file_bytes);
        take(&mut self.mem_swap_bytes, other.mem_swap_bytes);
        take(&mut self.mem_unevictable_bytes, other.mem_unevictable_bytes);
        take(&mut self.mem_kmem_usage_bytes, other.mem_kmem_usage_bytes);
        take(
            &mut self.mem_kmem_tcp_usage_bytes,
            other.mem_kmem_tcp_usage_bytes,
        );
        take(&mut self.disk_limit_bytes, other.disk_limit_bytes);
        take(&mut self.disk_used_bytes, other.disk_used_bytes);
        take(&mut self.net, other.net);
        take(&mut self.cpu_pressure, other.cpu_pressure);
        take(&mut self.mem_pressure, other.mem_pressure);
        take(&mut self.io_pressure, other.io_pressure);
        if !other.blkio.is_empty() {
            self.blkio.clone_from(&other.blkio);
        }
        if other.pressure_directory.is_some() {
            self.pressure_directory
                .clone_from(&other.pressure_directory);
        }
    }
}

/// Allocation and usage of one executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorUsage {
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its name for people.
    pub executor_name: String,
    /// Whether it is a command, for which the agent is the executor.
    pub is_command: bool,
    /// Its container.
    pub container_id: ContainerId,
    /// Resources allocated to the executor and its tasks.
    pub allocated: Resources,
    /// Active tasks.
    pub tasks: Vec<TaskId>,
    /// Usage; `None` if the measurement failed.
    pub statistics: Option<ResourceStatistics>,
    /// How it is throttled now.
    pub throttle: Throttle,
    /// Objectives of its tasks that are measured.
    pub objectives: Vec<TaskObjective>,
}

/// The objective of a task, and what its check has last measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskObjective {
    /// The objective.
    pub objective: Objective,
    /// The newest value, in the unit of the objective.
    pub value: f64,
    /// Its time.
    pub at: Timestamp,
}

impl TaskObjective {
    /// The part of the objective that is attained: 1 and more if it is met.
    pub fn attainment(&self) -> f64 {
        match self.objective {
            Objective::LatencyMillis(max) => max / self.value.max(f64::MIN_POSITIVE),
            Objective::ProgressPerSecond(min) => self.value / min,
        }
    }
}

/// A service level objective of a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Objective {
    /// A latency of at most so many milliseconds; above 0.
    LatencyMillis(f64),
    /// At least so much work in a second; above 0.
    ProgressPerSecond(f64),
}

impl Objective {
    /// Reads `latency:MILLISECONDS` or `progress:PER_SECOND`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.split_once(':')?;
        let number: f64 = number.parse().ok()?;
        let number = Some(number).filter(|number| number.is_finite() && *number > 0.0)?;
        match kind {
            "latency" => Some(Self::LatencyMillis(number)),
            "progress" => Some(Self::ProgressPerSecond(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LatencyMillis(max) => write!(f, "latency:{max}"),
            Self::ProgressPerSecond(min) => write!(f, "progress:{min}"),
        }
    }
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

/// What a throttled container may use, in thousandths; `None` for what is not throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Of its requested CPUs, as a quota; its weight is reduced as much.
    pub cpu: Option<u16>,
    /// Of its limit of memory: the kernel takes back memory above that, and slows it down.
    pub memory: Option<u16>,
    /// Of its weight for input and output.
    pub io: Option<u16>,
}

impl Throttle {
    /// The whole, in thousandths.
    pub const WHOLE: u16 = 1000;

    /// Not throttled.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The same with valid degrees: at least 1, and none that leaves all.
    #[must_use]
    pub fn within_bounds(self) -> Self {
        let valid = |degree: Option<u16>| {
            let below = degree.filter(|degree| *degree < Self::WHOLE);
            below.map(|degree| degree.max(1))
        };
        Self {
            cpu: valid(self.cpu),
            memory: valid(self.memory),
            io: valid(self.io),
        }
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("cpu", self.cpu), ("memory", self.memory), ("io", self.io)];
        let all = all
            .into_iter()
            .filter_map(|(name, degree)| Some((name, degree?)));
        for (n, (name, degree)) in all.enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}%", f64::from(degree) / 10.0)?;
        }
        Ok(())
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
        /// The controller's reason, for operators; may be empty.
        reason: String,
    },
    /// Let this executor use less, in place of an earlier degree.
    Throttle {
        /// Framework of the executor.
        framework_id: FrameworkId,
        /// The executor.
        executor_id: ExecutorId,
        /// Its container; `None` means the current one.
        container_id: Option<ContainerId>,
        /// What it may use.
        degree: Throttle,
        /// The controller's reason, for operators; may be empty.
        reason: String,
    },
    /// Throttle this executor no longer.
    Restore {
        /// Framework of the executor.
        framework_id: FrameworkId,
        /// The executor.
        executor_id: ExecutorId,
        /// Its container; `None` means the current one.
        container_id: Option<ContainerId>,
        /// The controller's reason, for operators; may be empty.
        reason: String,
    },
}

impl QosCorrection {
    /// The executor to correct, and its container unless it is the current one.
    pub fn target(&self) -> (&FrameworkId, &ExecutorId, Option<&ContainerId>) {
        match self {
            Self::Kill {
                framework_id,
                executor_id,
                container_id,
                ..
            }
            | Self::Throttle {
                framework_id,
                executor_id,
                container_id,
                ..
            }
            | Self::Restore {
                framework_id,
                executor_id,
                container_id,
                ..
            } => (framework_id, executor_id, container_id.as_ref()),
        }
    }

    /// The controller's reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Kill { reason, .. }
            | Self::Throttle { reason, .. }
            | Self::Restore { reason, .. } => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_throttling_are_within_bounds() {
        let given = Throttle {
            cpu: Some(0),
            memory: Some(1000),
            io: Some(125),
        };
        let valid = given.within_bounds();
        assert_eq!(
            (valid.cpu, valid.memory, valid.io),
            (Some(1), None, Some(125))
        );
        assert_eq!(valid.to_string(), "cpu 0.1%, io 12.5%");
        assert!(
            Throttle {
                cpu: Some(5000),
                ..Throttle::default()
            }
            .within_bounds()
            .is_none()
        );
    }

    #[test]
    fn overlay_takes_over_only_measured_values() {
        let mut own = ResourceStatistics {
            threads: 4,
            mem_rss_bytes: 4096,
            mem_swap_bytes: Some(1),
            ..ResourceStatistics::default()
        };
        let other = ResourceStatistics {
            mem_rss_bytes: 8192,
            mem_cache_bytes: Some(0),
            ..ResourceStatistics::default()
        };
        own.overlay(&other);
        assert_eq!((own.threads, own.mem_rss_bytes), (4, 8192));
        assert_eq!(own.mem_swap_bytes, Some(1));
        assert_eq!(own.mem_cache_bytes, Some(0));
    }
}
