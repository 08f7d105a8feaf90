//! Who a framework is: [`FrameworkInfo`] and its capabilities (SPEC 2.8, 3.3).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::FrameworkId;
use crate::task::Labels;

/// What a framework says about itself when it subscribes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameworkInfo {
    /// The user that its tasks run as by default.
    pub user: String,
    /// A name for people.
    pub name: String,
    /// Set when it subscribes again; absent the first time.
    pub id: Option<FrameworkId>,
    /// How long the master keeps its tasks while no scheduler is connected. Zero: not at all.
    pub failover_timeout: Duration,
    /// Whether its executors outlive a restart of their agent.
    pub checkpoint: bool,
    /// The roles it is offered resources for, at least one.
    pub roles: BTreeSet<String>,
    /// The host its scheduler runs on.
    pub hostname: String,
    /// Whom it authenticates as.
    pub principal: Option<String>,
    /// A page about it, for people.
    pub webui_url: Option<String>,
    /// What it understands beyond the basics.
    pub capabilities: BTreeSet<Capability>,
    /// Notes for people and tools.
    pub labels: Labels,
}

impl FrameworkInfo {
    /// A framework in role `*`, with no capability and no failover timeout.
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

    /// Whether it declared `capability`.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// What a framework understands beyond the basics (SPEC 2.8, `FrameworkInfo.Capability.Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    /// It wants revocable resources; no other framework ever sees them (S11).
    RevocableResources,
    /// It understands `TASK_KILLING`.
    TaskKillingState,
    /// It wants agents that have GPUs.
    GpuResources,
    /// It understands shared persistent volumes.
    SharedResources,
    /// It tells unreachable from lost.
    PartitionAware,
    /// It may have any number of roles.
    MultiRole,
    /// It understands refined reservations.
    ReservationRefinement,
    /// It wants agents of other regions.
    RegionAware,
}

impl Capability {
    /// All of them, with their names on the v1 wire.
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

    /// Its name on the v1 wire, for example `REVOCABLE_RESOURCES`.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(capability, _)| *capability == self)
            .map_or("", |(_, name)| name)
    }
}
