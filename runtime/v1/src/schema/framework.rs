//! Frameworks and their requests.

use std::collections::BTreeMap;

use crate::message::{enums, messages};
use crate::schema::{AgentID, FrameworkID, Labels, Resource, ValueScalar};

messages! {
    /// A framework's description of itself.
    FrameworkInfo {
        /// The default user of its tasks.
        1 user: String,
        2 name: String,
        /// Absent on the first subscription.
        3 id: Option<FrameworkID>,
        /// In seconds: how long its tasks outlive its scheduler.
        4 failover_timeout: Option<f64> = F64(0.0),
        /// Whether its executors outlive a restart of their agent.
        5 checkpoint: Option<bool> = Bool(false),
        /// Deprecated: use `roles`.
        6 role: Option<String>,
        7 hostname: Option<String>,
        8 principal: Option<String>,
        /// A web page of the framework.
        9 webui_url: Option<String>,
        10 capabilities: Vec<FrameworkInfoCapability>,
        11 labels: Option<Labels>,
        /// The roles for which it receives offers.
        12 roles: Vec<String>,
        /// Minimum offers, by role.
        13 offer_filters: BTreeMap<String, OfferFilters>,
    }

    /// A feature that the framework supports.
    FrameworkInfoCapability {
        1 r#type: Option<FrameworkInfoCapabilityType>,
    }

    /// Minimum size of offers.
    OfferFilters {
        1 min_allocatable_resources: Option<OfferFiltersMinAllocatableResources>,
    }

    /// Amounts by resource name.
    OfferFiltersResourceQuantities {
        1 quantities: BTreeMap<String, ValueScalar>,
    }

    /// An offer must have all amounts of at least one entry; no entries: no minimum.
    OfferFiltersMinAllocatableResources {
        1 quantities: Vec<OfferFiltersResourceQuantities>,
    }

    /// Requested resources; only a hint.
    Request {
        1 agent_id: Option<AgentID>,
        2 resources: Vec<Resource>,
    }

    /// How long declined resources are not offered again.
    Filters {
        /// Below zero is the default, more than 365 days is 365 days, zero is no filter.
        1 refuse_seconds: Option<f64> = F64(5.0),
    }
}

enums! {
    /// A feature that a framework may support.
    FrameworkInfoCapabilityType {
        Unknown = 0 "UNKNOWN",
        RevocableResources = 1 "REVOCABLE_RESOURCES",
        TaskKillingState = 2 "TASK_KILLING_STATE",
        GpuResources = 3 "GPU_RESOURCES",
        SharedResources = 4 "SHARED_RESOURCES",
        PartitionAware = 5 "PARTITION_AWARE",
        MultiRole = 6 "MULTI_ROLE",
        ReservationRefinement = 7 "RESERVATION_REFINEMENT",
        RegionAware = 8 "REGION_AWARE",
    }
}
