//! Offers, operations and their results.

use crate::message::{enums, messages};
use crate::schema::{
    AgentID, Attribute, DomainInfo, ExecutorID, ExecutorInfo, FrameworkID, OfferID, OperationID,
    Resource, ResourceAllocationInfo, ResourceDiskInfoSourceType, ResourceProviderID,
    TaskGroupInfo, TaskInfo, URL, UUID, Unavailability, ValueScalar,
};

messages! {
    /// Resources of one agent for one framework in one role, until it answers.
    Offer {
        1 id: OfferID,
        2 framework_id: FrameworkID,
        3 agent_id: AgentID,
        4 hostname: String,
        5 resources: Vec<Resource>,
        /// Executors of this framework on the agent.
        6 executor_ids: Vec<ExecutorID>,
        7 attributes: Vec<Attribute>,
        8 url: Option<Box<URL>>,
        /// When the agent will be unavailable.
        9 unavailability: Option<Unavailability>,
        /// The role.
        10 allocation_info: Option<ResourceAllocationInfo>,
        11 domain: Option<DomainInfo>,
    }

    /// An operation on the resources of an offer; `type` selects its field.
    OfferOperation {
        1 r#type: Option<OfferOperationType>,
        2 launch: Option<OfferOperationLaunch>,
        3 reserve: Option<OfferOperationReserve>,
        4 unreserve: Option<OfferOperationUnreserve>,
        5 create: Option<OfferOperationCreate>,
        6 destroy: Option<OfferOperationDestroy>,
        7 launch_group: Option<Box<OfferOperationLaunchGroup>>,
        /// Requests status updates of the operation; not for launches.
        12 id: Option<OperationID>,
        13 grow_volume: Option<Box<OfferOperationGrowVolume>>,
        14 shrink_volume: Option<Box<OfferOperationShrinkVolume>>,
        15 create_disk: Option<Box<OfferOperationCreateDisk>>,
        16 destroy_disk: Option<Box<OfferOperationDestroyDisk>>,
    }

    /// Launches tasks.
    OfferOperationLaunch {
        1 task_infos: Vec<TaskInfo>,
    }

    /// Launches tasks together under one executor, or none of them.
    OfferOperationLaunchGroup {
        1 executor: ExecutorInfo,
        2 task_group: TaskGroupInfo,
    }

    /// Reserves resources.
    OfferOperationReserve {
        /// The resources after.
        1 resources: Vec<Resource>,
        /// The resources before; absent: without their last reservation. For operators.
        2 source: Vec<Resource>,
    }

    /// Removes the last reservation.
    OfferOperationUnreserve {
        1 resources: Vec<Resource>,
    }

    /// Creates persistent volumes.
    OfferOperationCreate {
        1 volumes: Vec<Resource>,
    }

    /// Destroys persistent volumes and their content.
    OfferOperationDestroy {
        1 volumes: Vec<Resource>,
    }

    /// Grows a volume.
    OfferOperationGrowVolume {
        1 volume: Resource,
        2 addition: Resource,
    }

    /// Shrinks a volume.
    OfferOperationShrinkVolume {
        1 volume: Resource,
        2 subtract: ValueScalar,
    }

    /// Creates a disk from a pool.
    OfferOperationCreateDisk {
        1 source: Resource,
        2 target_type: ResourceDiskInfoSourceType,
        3 target_profile: Option<String>,
    }

    /// Returns a disk to its pool.
    OfferOperationDestroyDisk {
        1 source: Resource,
    }

    /// A request to vacate an agent by some time.
    InverseOffer {
        1 id: OfferID,
        2 url: Option<Box<URL>>,
        3 framework_id: FrameworkID,
        4 agent_id: Option<AgentID>,
        5 unavailability: Unavailability,
        /// Absent: the whole agent.
        6 resources: Vec<Resource>,
    }

    /// A pending or finished operation.
    Operation {
        /// Absent for an operator's operation.
        1 framework_id: Option<FrameworkID>,
        2 agent_id: Option<AgentID>,
        3 info: OfferOperation,
        4 latest_status: OperationStatus,
        /// All statuses, oldest first.
        5 statuses: Vec<OperationStatus>,
        6 uuid: UUID,
    }

    /// Status of an operation.
    OperationStatus {
        1 operation_id: Option<OperationID>,
        2 state: OperationState,
        3 message: Option<String>,
        /// The resources after.
        4 converted_resources: Vec<Resource>,
        /// Present if the framework must acknowledge the status.
        5 uuid: Option<UUID>,
        6 agent_id: Option<AgentID>,
        7 resource_provider_id: Option<ResourceProviderID>,
    }
}

enums! {
    /// Type of an operation.
    OfferOperationType {
        Unknown = 0 "UNKNOWN",
        Launch = 1 "LAUNCH",
        Reserve = 2 "RESERVE",
        Unreserve = 3 "UNRESERVE",
        Create = 4 "CREATE",
        Destroy = 5 "DESTROY",
        LaunchGroup = 6 "LAUNCH_GROUP",
        GrowVolume = 11 "GROW_VOLUME",
        ShrinkVolume = 12 "SHRINK_VOLUME",
        CreateDisk = 13 "CREATE_DISK",
        DestroyDisk = 14 "DESTROY_DISK",
    }

    /// State of an operation.
    OperationState {
        Unsupported = 0 "OPERATION_UNSUPPORTED",
        Pending = 1 "OPERATION_PENDING",
        Finished = 2 "OPERATION_FINISHED",
        Failed = 3 "OPERATION_FAILED",
        Error = 4 "OPERATION_ERROR",
        Dropped = 5 "OPERATION_DROPPED",
        Unreachable = 6 "OPERATION_UNREACHABLE",
        GoneByOperator = 7 "OPERATION_GONE_BY_OPERATOR",
        Recovering = 8 "OPERATION_RECOVERING",
        Unknown = 9 "OPERATION_UNKNOWN",
    }
}
