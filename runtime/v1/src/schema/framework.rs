//! Who a framework is, and what it asks for.

use std::collections::BTreeMap;

use crate::message::{enums, messages};
use crate::schema::{AgentID, FrameworkID, Labels, Resource, ValueScalar};

messages! {
    /// What a framework says of itself when it subscribes.
    FrameworkInfo {
        /// Its tasks run as this user by default.
        1 user: String,
        2 name: String,
        /// Absent when it subscribes for the first time.
        3 id: Option<FrameworkID>,
        /// In seconds: how long its tasks outlive its scheduler.
        4 failover_timeout: Option<f64> = F64(0.0),
        /// Whether its executors outlive a restart of their agent.
        5 checkpoint: Option<bool> = Bool(false),
        /// Read `roles` instead. Deprecated.
        6 role: Option<String>,
        7 hostname: Option<String>,
        8 principal: Option<String>,
        /// A page about it.
        9 webui_url: Option<String>,
        10 capabilities: Vec<FrameworkInfoCapability>,
        11 labels: Option<Labels>,
        /// Those it is offered resources for.
        12 roles: Vec<String>,
        /// By role, how large an offer must at least be.
        13 offer_filters: BTreeMap<String, OfferFilters>,
    }

    /// Something that the framework understands beyond the basics.
    FrameworkInfoCapability {
        1 r#type: Option<FrameworkInfoCapabilityType>,
    }

    /// How large an offer must at least be.
    OfferFilters {
        1 min_allocatable_resources: Option<OfferFiltersMinAllocatableResources>,
    }

    /// Amounts by the name of the resource.
    OfferFiltersResourceQuantities {
        1 quantities: BTreeMap<String, ValueScalar>,
    }

    /// An offer must hold all amounts of any of these; of none if there is none.
    OfferFiltersMinAllocatableResources {
        1 quantities: Vec<OfferFiltersResourceQuantities>,
    }

    /// What a framework would like to have; only a hint.
    Request {
        1 agent_id: Option<AgentID>,
        2 resources: Vec<Resource>,
    }

    /// For how long what was refused should not be offered again.
    Filters {
        /// Below zero is the default, more than 365 days is 365 days, zero is no filter.
        1 refuse_seconds: Option<f64> = F64(5.0),
    }
}

enums! {
    /// What a framework may understand beyond the basics.
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
