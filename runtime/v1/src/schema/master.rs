//! The operator API of the master (`/api/v1`): a tool sends a [`Call`] and receives a [`Response`]
//! or [`Event`]s.

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::allocator::quota;
use crate::schema::{
    AgentID, AgentInfo, AgentInfoCapability, DrainInfo, Duration, DurationInfo, ExecutorInfo,
    FileInfo, Flag, FrameworkID, FrameworkInfo, InverseOffer, MachineID, MasterInfo, Metric, Offer,
    Operation, Resource, ResourceProviderInfo, Role, Task, TaskState, TaskStatus, TimeInfo,
    ValueScalar, VersionInfo, WeightInfo, maintenance, scheduler,
};

messages! {
    /// A tool's call; `type` selects its field.
    Call {
        1 r#type: Option<CallType>,
        2 get_metrics: Option<CallGetMetrics>,
        3 set_logging_level: Option<CallSetLoggingLevel>,
        4 list_files: Option<CallListFiles>,
        5 read_file: Option<CallReadFile>,
        6 update_weights: Option<CallUpdateWeights>,
        7 reserve_resources: Option<Box<CallReserveResources>>,
        8 unreserve_resources: Option<CallUnreserveResources>,
        9 create_volumes: Option<CallCreateVolumes>,
        10 destroy_volumes: Option<CallDestroyVolumes>,
        11 update_maintenance_schedule: Option<CallUpdateMaintenanceSchedule>,
        12 start_maintenance: Option<CallStartMaintenance>,
        13 stop_maintenance: Option<CallStopMaintenance>,
        /// Deprecated.
        14 set_quota: Option<Box<CallSetQuota>>,
        /// Deprecated.
        15 remove_quota: Option<CallRemoveQuota>,
        16 teardown: Option<CallTeardown>,
        17 mark_agent_gone: Option<CallMarkAgentGone>,
        18 grow_volume: Option<Box<CallGrowVolume>>,
        19 shrink_volume: Option<Box<CallShrinkVolume>>,
        20 update_quota: Option<CallUpdateQuota>,
        21 drain_agent: Option<Box<CallDrainAgent>>,
        22 deactivate_agent: Option<CallDeactivateAgent>,
        23 reactivate_agent: Option<CallReactivateAgent>,
    }

    /// Requests all metrics.
    CallGetMetrics {
        1 timeout: Option<DurationInfo>,
    }

    /// Changes the log level for some time.
    CallSetLoggingLevel {
        1 level: u32,
        2 duration: DurationInfo,
    }

    /// Lists a directory.
    CallListFiles {
        1 path: String,
    }

    /// Reads a file.
    CallReadFile {
        1 path: String,
        2 offset: u64,
        /// Absent: to its end.
        3 length: Option<u64>,
    }

    /// Sets the weights of roles.
    CallUpdateWeights {
        1 weight_infos: Vec<WeightInfo>,
    }

    /// Reserves resources of an agent.
    CallReserveResources {
        1 agent_id: AgentID,
        2 resources: Vec<Resource>,
        /// The resources before; absent: unreserved.
        3 source: Vec<Resource>,
    }

    /// Removes the last reservation of resources.
    CallUnreserveResources {
        1 agent_id: AgentID,
        2 resources: Vec<Resource>,
    }

    /// Creates persistent volumes.
    CallCreateVolumes {
        1 agent_id: AgentID,
        2 volumes: Vec<Resource>,
    }

    /// Destroys persistent volumes and their content.
    CallDestroyVolumes {
        1 agent_id: AgentID,
        2 volumes: Vec<Resource>,
    }

    /// Grows a volume.
    CallGrowVolume {
        /// Absent only for a volume of a resource provider.
        1 agent_id: Option<AgentID>,
        2 volume: Resource,
        3 addition: Resource,
    }

    /// Shrinks a volume.
    CallShrinkVolume {
        /// Absent only for a volume of a resource provider.
        1 agent_id: Option<AgentID>,
        2 volume: Resource,
        3 subtract: ValueScalar,
    }

    /// Replaces the maintenance schedule.
    CallUpdateMaintenanceSchedule {
        1 schedule: maintenance::Schedule,
    }

    /// Marks machines as down.
    CallStartMaintenance {
        1 machines: Vec<MachineID>,
    }

    /// Marks machines as up again.
    CallStopMaintenance {
        1 machines: Vec<MachineID>,
    }

    /// Drains an agent: its tasks end, and none start.
    CallDrainAgent {
        1 agent_id: AgentID,
        2 max_grace_period: Option<Duration>,
        3 mark_gone: Option<bool> = Bool(false),
    }

    /// Stops offering an agent.
    CallDeactivateAgent {
        1 agent_id: AgentID,
    }

    /// Offers an agent again.
    CallReactivateAgent {
        1 agent_id: AgentID,
    }

    /// Sets the quotas of roles.
    CallUpdateQuota {
        /// Also beyond the cluster's capacity.
        1 force: Option<bool>,
        2 quota_configs: Vec<quota::QuotaConfig>,
    }

    /// Deprecated: use `CallUpdateQuota`.
    CallSetQuota {
        1 quota_request: quota::QuotaRequest,
    }

    /// Deprecated: use `CallUpdateQuota`.
    CallRemoveQuota {
        1 role: String,
    }

    /// Ends a framework with all its tasks.
    CallTeardown {
        1 framework_id: FrameworkID,
    }

    /// Marks an agent as gone for good.
    CallMarkAgentGone {
        1 agent_id: AgentID,
    }

    /// The answer to a call; `type` selects its field.
    Response {
        1 r#type: Option<ResponseType>,
        2 get_health: Option<ResponseGetHealth>,
        3 get_flags: Option<ResponseGetFlags>,
        4 get_version: Option<Box<ResponseGetVersion>>,
        5 get_metrics: Option<ResponseGetMetrics>,
        6 get_logging_level: Option<ResponseGetLoggingLevel>,
        7 list_files: Option<ResponseListFiles>,
        8 read_file: Option<ResponseReadFile>,
        9 get_state: Option<Box<ResponseGetState>>,
        10 get_agents: Option<ResponseGetAgents>,
        11 get_frameworks: Option<Box<ResponseGetFrameworks>>,
        12 get_executors: Option<ResponseGetExecutors>,
        13 get_tasks: Option<Box<ResponseGetTasks>>,
        14 get_roles: Option<ResponseGetRoles>,
        15 get_weights: Option<ResponseGetWeights>,
        16 get_master: Option<ResponseGetMaster>,
        17 get_maintenance_status: Option<ResponseGetMaintenanceStatus>,
        18 get_maintenance_schedule: Option<ResponseGetMaintenanceSchedule>,
        19 get_quota: Option<ResponseGetQuota>,
        20 get_operations: Option<ResponseGetOperations>,
    }

    /// Health of the master.
    ResponseGetHealth {
        1 healthy: bool,
    }

    /// The master's flags.
    ResponseGetFlags {
        1 flags: Vec<Flag>,
    }

    /// The master's version.
    ResponseGetVersion {
        1 version_info: VersionInfo,
    }

    /// All metrics.
    ResponseGetMetrics {
        1 metrics: Vec<Metric>,
    }

    /// The log level.
    ResponseGetLoggingLevel {
        1 level: u32,
    }

    /// A directory listing.
    ResponseListFiles {
        1 file_infos: Vec<FileInfo>,
    }

    /// Content of a file.
    ResponseReadFile {
        /// Of the whole file.
        1 size: u64,
        2 data: Bytes,
    }

    /// The whole state.
    ResponseGetState {
        1 get_tasks: Option<Box<ResponseGetTasks>>,
        2 get_executors: Option<ResponseGetExecutors>,
        3 get_frameworks: Option<Box<ResponseGetFrameworks>>,
        4 get_agents: Option<ResponseGetAgents>,
    }

    /// The agents.
    ResponseGetAgents {
        1 agents: Vec<ResponseGetAgentsAgent> = EmptyList,
        /// In the registry, and not yet reregistered.
        2 recovered_agents: Vec<AgentInfo> = EmptyList,
    }

    /// An agent.
    ResponseGetAgentsAgent {
        1 agent_info: AgentInfo,
        2 active: bool,
        3 version: String,
        4 pid: Option<String>,
        5 registered_time: Option<TimeInfo>,
        6 reregistered_time: Option<TimeInfo>,
        7 total_resources: Vec<Resource>,
        8 allocated_resources: Vec<Resource>,
        9 offered_resources: Vec<Resource>,
        10 capabilities: Vec<AgentInfoCapability>,
        11 resource_providers: Vec<ResponseGetAgentsAgentResourceProvider>,
        12 deactivated: Option<bool>,
        13 drain_info: Option<DrainInfo>,
        14 estimated_drain_start_time: Option<TimeInfo>,
    }

    /// A resource provider of an agent.
    ResponseGetAgentsAgentResourceProvider {
        1 resource_provider_info: ResourceProviderInfo,
        2 total_resources: Vec<Resource>,
    }

    /// The frameworks.
    ResponseGetFrameworks {
        1 frameworks: Vec<ResponseGetFrameworksFramework> = EmptyList,
        2 completed_frameworks: Vec<ResponseGetFrameworksFramework> = EmptyList,
        /// Their scheduler has not resubscribed. Deprecated.
        3 recovered_frameworks: Vec<FrameworkInfo>,
    }

    /// A framework.
    ResponseGetFrameworksFramework {
        1 framework_info: FrameworkInfo,
        /// Whether it receives offers.
        2 active: bool,
        3 connected: bool,
        4 registered_time: Option<TimeInfo>,
        5 reregistered_time: Option<TimeInfo>,
        6 unregistered_time: Option<TimeInfo>,
        7 offers: Vec<Offer>,
        8 inverse_offers: Vec<InverseOffer>,
        9 allocated_resources: Vec<Resource>,
        10 offered_resources: Vec<Resource>,
        11 recovered: bool,
        12 offer_constraints: Option<scheduler::OfferConstraints>,
    }

    /// The executors.
    ResponseGetExecutors {
        1 executors: Vec<ResponseGetExecutorsExecutor> = EmptyList,
        /// Deprecated.
        2 orphan_executors: Vec<ResponseGetExecutorsExecutor>,
    }

    /// An executor and its agent.
    ResponseGetExecutorsExecutor {
        1 executor_info: ExecutorInfo,
        2 agent_id: AgentID,
    }

    /// The operations.
    ResponseGetOperations {
        1 operations: Vec<Operation>,
    }

    /// The tasks.
    ResponseGetTasks {
        /// Not yet sent to their agent. Deprecated.
        1 pending_tasks: Vec<Task>,
        2 tasks: Vec<Task> = EmptyList,
        /// The most recently ended tasks.
        3 completed_tasks: Vec<Task> = EmptyList,
        /// Always empty. Deprecated.
        4 orphan_tasks: Vec<Task>,
        5 unreachable_tasks: Vec<Task> = EmptyList,
    }

    /// The roles.
    ResponseGetRoles {
        1 roles: Vec<Role>,
    }

    /// The weights other than 1.
    ResponseGetWeights {
        1 weight_infos: Vec<WeightInfo>,
    }

    /// The master's information.
    ResponseGetMaster {
        1 master_info: Option<Box<MasterInfo>>,
        /// In seconds since 1970-01-01 UTC.
        2 start_time: Option<f64>,
        /// In seconds since 1970-01-01 UTC.
        3 elected_time: Option<f64>,
    }

    /// Machines that are draining or down.
    ResponseGetMaintenanceStatus {
        1 status: maintenance::ClusterStatus,
    }

    /// The maintenance schedule.
    ResponseGetMaintenanceSchedule {
        1 schedule: maintenance::Schedule,
    }

    /// The quotas.
    ResponseGetQuota {
        1 status: quota::QuotaStatus,
    }

    /// An event for a subscriber; `type` selects its field.
    Event {
        1 r#type: Option<EventType>,
        2 subscribed: Option<EventSubscribed>,
        3 task_added: Option<Box<EventTaskAdded>>,
        4 task_updated: Option<Box<EventTaskUpdated>>,
        5 agent_added: Option<Box<EventAgentAdded>>,
        6 agent_removed: Option<EventAgentRemoved>,
        7 framework_added: Option<Box<EventFrameworkAdded>>,
        8 framework_updated: Option<Box<EventFrameworkUpdated>>,
        9 framework_removed: Option<Box<EventFrameworkRemoved>>,
    }

    /// The last event of a stream that the master ends, specific to Meros, since Mesos has no event
    /// for the reason. Clients of Mesos skip its type as unknown, and do not know its other field.
    EventLast {
        1 r#type: Option<EventType>,
        1000 error: Option<scheduler::EventError>,
    }

    /// The whole state; later events are changes.
    EventSubscribed {
        1 get_state: Option<Box<ResponseGetState>>,
        2 heartbeat_interval_seconds: Option<f64>,
    }

    /// A task was added.
    EventTaskAdded {
        1 task: Task,
    }

    /// A task changed its state.
    EventTaskUpdated {
        1 framework_id: FrameworkID,
        2 status: TaskStatus,
        /// The newest known state; `status` may be older.
        3 state: TaskState,
    }

    /// A framework was added.
    EventFrameworkAdded {
        1 framework: ResponseGetFrameworksFramework,
    }

    /// A framework changed.
    EventFrameworkUpdated {
        1 framework: ResponseGetFrameworksFramework,
    }

    /// A framework was removed.
    EventFrameworkRemoved {
        1 framework_info: FrameworkInfo,
    }

    /// An agent was added.
    EventAgentAdded {
        1 agent: ResponseGetAgentsAgent,
    }

    /// An agent was removed.
    EventAgentRemoved {
        1 agent_id: AgentID,
    }
}

enums! {
    /// Type of a call.
    CallType {
        Unknown = 0 "UNKNOWN",
        GetHealth = 1 "GET_HEALTH",
        GetFlags = 2 "GET_FLAGS",
        GetVersion = 3 "GET_VERSION",
        GetMetrics = 4 "GET_METRICS",
        GetLoggingLevel = 5 "GET_LOGGING_LEVEL",
        SetLoggingLevel = 6 "SET_LOGGING_LEVEL",
        ListFiles = 7 "LIST_FILES",
        ReadFile = 8 "READ_FILE",
        GetState = 9 "GET_STATE",
        GetAgents = 10 "GET_AGENTS",
        GetFrameworks = 11 "GET_FRAMEWORKS",
        GetExecutors = 12 "GET_EXECUTORS",
        GetTasks = 13 "GET_TASKS",
        GetRoles = 14 "GET_ROLES",
        GetWeights = 15 "GET_WEIGHTS",
        UpdateWeights = 16 "UPDATE_WEIGHTS",
        GetMaster = 17 "GET_MASTER",
        Subscribe = 18 "SUBSCRIBE",
        ReserveResources = 19 "RESERVE_RESOURCES",
        UnreserveResources = 20 "UNRESERVE_RESOURCES",
        CreateVolumes = 21 "CREATE_VOLUMES",
        DestroyVolumes = 22 "DESTROY_VOLUMES",
        GetMaintenanceStatus = 23 "GET_MAINTENANCE_STATUS",
        GetMaintenanceSchedule = 24 "GET_MAINTENANCE_SCHEDULE",
        UpdateMaintenanceSchedule = 25 "UPDATE_MAINTENANCE_SCHEDULE",
        StartMaintenance = 26 "START_MAINTENANCE",
        StopMaintenance = 27 "STOP_MAINTENANCE",
        GetQuota = 28 "GET_QUOTA",
        SetQuota = 29 "SET_QUOTA",
        RemoveQuota = 30 "REMOVE_QUOTA",
        Teardown = 31 "TEARDOWN",
        MarkAgentGone = 32 "MARK_AGENT_GONE",
        GetOperations = 33 "GET_OPERATIONS",
        GrowVolume = 34 "GROW_VOLUME",
        ShrinkVolume = 35 "SHRINK_VOLUME",
        UpdateQuota = 36 "UPDATE_QUOTA",
        DrainAgent = 37 "DRAIN_AGENT",
        DeactivateAgent = 38 "DEACTIVATE_AGENT",
        ReactivateAgent = 39 "REACTIVATE_AGENT",
    }

    /// Type of a response.
    ResponseType {
        Unknown = 0 "UNKNOWN",
        GetHealth = 1 "GET_HEALTH",
        GetFlags = 2 "GET_FLAGS",
        GetVersion = 3 "GET_VERSION",
        GetMetrics = 4 "GET_METRICS",
        GetLoggingLevel = 5 "GET_LOGGING_LEVEL",
        ListFiles = 6 "LIST_FILES",
        ReadFile = 7 "READ_FILE",
        GetState = 8 "GET_STATE",
        GetAgents = 9 "GET_AGENTS",
        GetFrameworks = 10 "GET_FRAMEWORKS",
        GetExecutors = 11 "GET_EXECUTORS",
        GetTasks = 12 "GET_TASKS",
        GetRoles = 13 "GET_ROLES",
        GetWeights = 14 "GET_WEIGHTS",
        GetMaster = 15 "GET_MASTER",
        GetMaintenanceStatus = 16 "GET_MAINTENANCE_STATUS",
        GetMaintenanceSchedule = 17 "GET_MAINTENANCE_SCHEDULE",
        GetQuota = 18 "GET_QUOTA",
        GetOperations = 19 "GET_OPERATIONS",
    }

    /// Type of an event.
    EventType {
        Unknown = 0 "UNKNOWN",
        Subscribed = 1 "SUBSCRIBED",
        TaskAdded = 2 "TASK_ADDED",
        TaskUpdated = 3 "TASK_UPDATED",
        AgentAdded = 4 "AGENT_ADDED",
        AgentRemoved = 5 "AGENT_REMOVED",
        FrameworkAdded = 6 "FRAMEWORK_ADDED",
        FrameworkUpdated = 7 "FRAMEWORK_UPDATED",
        FrameworkRemoved = 8 "FRAMEWORK_REMOVED",
        Heartbeat = 9 "HEARTBEAT",
    }
}
