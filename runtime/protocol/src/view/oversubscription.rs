//! Snapshot of an agent's oversubscription, for operators' commands and pages.

use std::fmt;

use resources::Quantities;
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, ContainerId, ExecutorId, FrameworkId, TaskId};
use crate::usage::Throttle;

/// Oversubscription of one agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OversubscriptionView {
    /// Its id; `None` before its first registration.
    pub agent_id: Option<AgentId>,
    /// Resources of executors that are not revocable.
    pub regular: UsedResources,
    /// Revocable resources of executors, idle reservations included.
    pub revocable: UsedResources,
    /// The newest estimate; `None` before the first.
    pub estimate: Option<EstimateView>,
    /// Upper bound of the lent resources, of those that have one.
    pub maximum: Quantities,
    /// Number of corrections since the start of the agent.
    pub counts: CorrectionCounts,
    /// The newest corrections, oldest first.
    pub corrections: Vec<CorrectionView>,
}

/// Resources that are allocated to executors, and the part in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedResources {
    /// Allocated.
    pub allocated: Quantities,
    /// CPUs and memory (in megabytes) in use; without those that could not be measured.
    pub used: Quantities,
}

impl UsedResources {
    /// Allocated and not in use, of the measured resources.
    pub fn slack(&self) -> Quantities {
        let measured = self.used.iter();
        let slack = measured.map(|(name, used)| {
            let allocated = self.allocated.get(name);
            (name.clone(), allocated.saturating_sub(used))
        });
        slack.collect()
    }
}

/// An estimate of a resource estimator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstimateView {
    /// Time of the estimate.
    pub at: Timestamp,
    /// Resources that could be lent beside those that are, according to the estimator.
    pub available: Quantities,
    /// All revocable resources, allocated and available, within the upper bound.
    pub total: Quantities,
}

/// Corrections by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectionCounts {
    /// Executors killed.
    pub kill: u64,
    /// Executors throttled, or throttled to another degree.
    pub throttle: u64,
    /// Executors that were restored.
    pub restore: u64,
}

/// A correction of the QoS controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectionView {
    /// Time at which it was carried out, or failed.
    pub at: Timestamp,
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its container.
    pub container_id: ContainerId,
    /// Its active tasks.
    pub tasks: Vec<TaskId>,
    /// The kind.
    pub kind: CorrectionKind,
    /// The controller's reason; may be empty.
    pub reason: String,
    /// Why it could not be carried out.
    pub problem: Option<String>,
}

/// The kind of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CorrectionKind {
    /// The executor was killed.
    Kill,
    /// The executor was throttled to this degree.
    Throttle(Throttle),
    /// Throttling ended.
    Restore,
}

impl CorrectionKind {
    /// The name, as the wire has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Throttle(_) => "THROTTLE",
            Self::Restore => "RESTORE",
        }
    }
}

impl fmt::Display for CorrectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttle(degree) => write!(f, "{} to {degree}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}
