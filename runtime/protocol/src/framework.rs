//! [`FrameworkInfo`] and framework capabilities.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::FrameworkId;
use crate::task::Labels;

/// A framework's description of itself, sent when it subscribes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkInfo {
    /// Default user of its tasks.
    pub user: String,
    /// Name for display.
    pub name: String,
    /// Set on a resubscription, `None` on the first subscription.
    pub id: Option<FrameworkId>,
    /// How long the master keeps the framework's tasks while no scheduler is connected. Zero: not
    /// at all.
    pub failover_timeout: Duration,
    /// Whether executors survive a restart of their agent.
    pub checkpoint: bool,
    /// Roles in which it receives offers, at least one.
    pub roles: BTreeSet<String>,
    /// Host of its scheduler.
    pub hostname: String,
    /// Principal of the scheduler.
    pub principal: Option<String>,
    /// URL of the framework's own page.
    pub webui_url: Option<String>,
    /// Optional features that it supports.
    pub capabilities: BTreeSet<Capability>,
    /// Labels; may contain [reserved ones](crate::text::reserved_labels).
    pub labels: Labels,
}

impl FrameworkInfo {
    /// A framework in role `*` without capabilities and without a failover timeout.
    pub fn new(user: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            name: name.into(),
            id: None,
            failover_timeout: Duration::ZERO,
            checkpoint: false,
            roles: BTreeSet::from(["*".to_owned()]),
            hostname: String::new(),
            principal: None,
            webui_url: None,
            capabilities: BTreeSet::new(),
            labels: Labels::default(),
        }
    }

    /// Whether the framework declared `capability`.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// Optional features of a framework (`FrameworkInfo.Capability.Type` in Mesos).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    /// Accepts revocable resources. Other frameworks never receive them.
    RevocableResources,
    /// Understands `TASK_KILLING`.
    TaskKillingState,
    /// Accepts agents with GPUs.
    GpuResources,
    /// Understands shared persistent volumes.
    SharedResources,
    /// Distinguishes unreachable tasks from lost ones.
    PartitionAware,
    /// May have any number of roles.
    MultiRole,
    /// Understands refined reservations.
    ReservationRefinement,
    /// Accepts agents of other regions.
    RegionAware,
}

impl Capability {
    /// All capabilities with their v1 names.
    pub const NAMES: [(Self, &'static str); 8] = [
        (Self::RevocableResources, "REVOCABLE_RESOURCES"),
        (Self::TaskKillingState, "TASK_KILLING_STATE"),
        (Self::GpuResources, "GPU_RESOURCES"),
        (Self::SharedResources, "SHARED_RESOURCES"),
        (Self::PartitionAware, "PARTITION_AWARE"),
        (Self::MultiRole, "MULTI_ROLE"),
        (Self::ReservationRefinement, "RESERVATION_REFINEMENT"),
        (Self::RegionAware, "REGION_AWARE"),
    ];

    /// The v1 name, for example `REVOCABLE_RESOURCES`.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(capability, _)| *capability == self)
            .map_or("", |(_, name)| name)
    }
}
