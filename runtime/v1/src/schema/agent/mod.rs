//! The operator API of the agent (`/api/v1`): a tool sends a [`Call`] and receives a [`Response`]
//! or a stream of [`ProcessIO`]. `module` has the agent's own questions to modules.

pub mod module;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentInfo, CommandInfo, ContainerID, ContainerInfo, ContainerStatus, DrainConfig, DurationInfo,
    ExecutorID, ExecutorInfo, FileInfo, Flag, FrameworkID, FrameworkInfo, Image, Metric, Operation,
    Resource, ResourceProviderID, ResourceProviderInfo, ResourceStatistics, TTYInfo, Task,
    TaskResourceLimitation, TaskState, TaskStatusReason, TimeInfo, ValueScalar, VersionInfo,
};

messages! {
    /// A tool's call; `type` selects its field.
    Call {
        1 r#type: Option<CallType>,
        2 get_metrics: Option<CallGetMetrics>,
        3 set_logging_level: Option<CallSetLoggingLevel>,
        4 list_files: Option<CallListFiles>,
        5 read_file: Option<CallReadFile>,
        /// Deprecated.
        6 launch_nested_container: Option<CallLaunchNestedContainer>,
        /// Deprecated.
        7 wait_nested_container: Option<CallWaitNestedContainer>,
        /// Deprecated.
        8 kill_nested_container: Option<CallKillNestedContainer>,
        9 launch_nested_container_session: Option<CallLaunchNestedContainerSession>,
        10 attach_container_input: Option<CallAttachContainerInput>,
        11 attach_container_output: Option<CallAttachContainerOutput>,
        /// Deprecated.
        12 remove_nested_container: Option<CallRemoveNestedContainer>,
        13 launch_container: Option<Box<CallLaunchContainer>>,
        14 wait_container: Option<CallWaitContainer>,
        15 kill_container: Option<CallKillContainer>,
        16 remove_container: Option<CallRemoveContainer>,
        17 add_resource_provider_config: Option<Box<CallAddResourceProviderConfig>>,
        18 update_resource_provider_config: Option<Box<CallUpdateResourceProviderConfig>>,
        19 remove_resource_provider_config: Option<CallRemoveResourceProviderConfig>,
        20 get_containers: Option<CallGetContainers>,
        21 prune_images: Option<CallPruneImages>,
        22 mark_resource_provider_gone: Option<CallMarkResourceProviderGone>,
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

    /// Lists the containers.
    CallGetContainers {
        /// Also nested containers.
        1 show_nested: Option<bool>,
        /// Also containers without a framework.
        2 show_standalone: Option<bool>,
    }

    /// Deprecated: use `CallLaunchContainer`.
    CallLaunchNestedContainer {
        1 container_id: ContainerID,
        2 command: Option<Box<CommandInfo>>,
        3 container: Option<Box<ContainerInfo>>,
    }

    /// Deprecated: use `CallWaitContainer`.
    CallWaitNestedContainer {
        1 container_id: ContainerID,
    }

    /// Deprecated: use `CallKillContainer`.
    CallKillNestedContainer {
        1 container_id: ContainerID,
        2 signal: Option<i32>,
    }

    /// Deprecated: use `CallRemoveContainer`.
    CallRemoveNestedContainer {
        1 container_id: ContainerID,
    }

    /// Starts a nested container that ends with this connection.
    CallLaunchNestedContainerSession {
        1 container_id: ContainerID,
        2 command: Option<Box<CommandInfo>>,
        3 container: Option<Box<ContainerInfo>>,
    }

    /// Input of a container.
    CallAttachContainerInput {
        1 r#type: Option<CallAttachContainerInputType>,
        2 container_id: Option<ContainerID>,
        3 process_io: Option<Box<ProcessIO>>,
    }

    /// Output of a container.
    CallAttachContainerOutput {
        1 container_id: ContainerID,
    }

    /// Starts a container, nested or without a framework.
    CallLaunchContainer {
        1 container_id: ContainerID,
        2 command: Option<Box<CommandInfo>>,
        3 resources: Vec<Resource>,
        4 container: Option<Box<ContainerInfo>>,
        5 limits: BTreeMap<String, ValueScalar>,
    }

    /// Waits for a container's end.
    CallWaitContainer {
        1 container_id: ContainerID,
    }

    /// Sends a signal to a container.
    CallKillContainer {
        1 container_id: ContainerID,
        2 signal: Option<i32>,
    }

    /// Removes a container that has ended.
    CallRemoveContainer {
        1 container_id: ContainerID,
    }

    /// Adds a resource provider.
    CallAddResourceProviderConfig {
        1 info: ResourceProviderInfo,
    }

    /// Updates a resource provider.
    CallUpdateResourceProviderConfig {
        1 info: ResourceProviderInfo,
    }

    /// Removes a resource provider.
    CallRemoveResourceProviderConfig {
        1 r#type: String,
        2 name: String,
    }

    /// Marks a resource provider as gone for good.
    CallMarkResourceProviderGone {
        1 resource_provider_id: ResourceProviderID,
    }

    /// Removes unused images.
    CallPruneImages {
        1 excluded_images: Vec<Image>,
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
        10 get_containers: Option<ResponseGetContainers>,
        11 get_frameworks: Option<ResponseGetFrameworks>,
        12 get_executors: Option<ResponseGetExecutors>,
        13 get_tasks: Option<Box<ResponseGetTasks>>,
        14 wait_nested_container: Option<Box<ResponseWaitNestedContainer>>,
        15 get_agent: Option<ResponseGetAgent>,
        16 wait_container: Option<Box<ResponseWaitContainer>>,
        17 get_resource_providers: Option<ResponseGetResourceProviders>,
        18 get_operations: Option<ResponseGetOperations>,
    }

    /// Health of the agent.
    ResponseGetHealth {
        1 healthy: bool,
    }

    /// The agent's flags.
    ResponseGetFlags {
        1 flags: Vec<Flag>,
    }

    /// The agent's version.
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
        3 get_frameworks: Option<ResponseGetFrameworks>,
    }

    /// The containers.
    ResponseGetContainers {
        1 containers: Vec<ResponseGetContainersContainer>,
    }

    /// A container.
    ResponseGetContainersContainer {
        1 framework_id: Option<FrameworkID>,
        2 executor_id: Option<ExecutorID>,
        3 executor_name: Option<String>,
        4 container_id: ContainerID,
        5 container_status: Option<Box<ContainerStatus>>,
        6 resource_statistics: Option<Box<ResourceStatistics>>,
    }

    /// Frameworks with executors or tasks on the agent.
    ResponseGetFrameworks {
        1 frameworks: Vec<ResponseGetFrameworksFramework> = EmptyList,
        2 completed_frameworks: Vec<ResponseGetFrameworksFramework> = EmptyList,
    }

    /// A framework.
    ResponseGetFrameworksFramework {
        1 framework_info: FrameworkInfo,
    }

    /// The executors.
    ResponseGetExecutors {
        1 executors: Vec<ResponseGetExecutorsExecutor> = EmptyList,
        2 completed_executors: Vec<ResponseGetExecutorsExecutor> = EmptyList,
    }

    /// An executor.
    ResponseGetExecutorsExecutor {
        1 executor_info: ExecutorInfo,
    }

    /// The operations.
    ResponseGetOperations {
        1 operations: Vec<Operation>,
    }

    /// The tasks.
    ResponseGetTasks {
        /// Their executor has not started.
        1 pending_tasks: Vec<Task> = EmptyList,
        /// Their executor has not subscribed.
        2 queued_tasks: Vec<Task> = EmptyList,
        3 launched_tasks: Vec<Task> = EmptyList,
        /// Ended, with unacknowledged status.
        4 terminated_tasks: Vec<Task> = EmptyList,
        /// Ended, with all statuses acknowledged.
        5 completed_tasks: Vec<Task> = EmptyList,
    }

    /// The agent's information.
    ResponseGetAgent {
        1 agent_info: Option<Box<AgentInfo>>,
        2 drain_config: Option<DrainConfig>,
        3 estimated_drain_start_time: Option<TimeInfo>,
    }

    /// The agent's resource providers.
    ResponseGetResourceProviders {
        1 resource_providers: Vec<ResponseGetResourceProvidersResourceProvider>,
    }

    /// A resource provider.
    ResponseGetResourceProvidersResourceProvider {
        1 resource_provider_info: ResourceProviderInfo,
        2 total_resources: Vec<Resource>,
    }

    /// How a container ended.
    ResponseWaitNestedContainer {
        /// Exit status, as from `wait`.
        1 exit_status: Option<i32>,
        2 state: Option<TaskState>,
        3 reason: Option<TaskStatusReason>,
        4 limitation: Option<TaskResourceLimitation>,
        5 message: Option<String>,
    }

    /// How a container ended.
    ResponseWaitContainer {
        /// Exit status, as from `wait`.
        1 exit_status: Option<i32>,
        2 state: Option<TaskState>,
        3 reason: Option<TaskStatusReason>,
        4 limitation: Option<TaskResourceLimitation>,
        5 message: Option<String>,
    }

    /// A chunk of a process' input or output.
    ProcessIO {
        1 r#type: Option<ProcessIOType>,
        2 data: Option<ProcessIOData>,
        3 control: Option<ProcessIOControl>,
    }

    /// Bytes.
    ProcessIOData {
        1 r#type: Option<ProcessIODataType>,
        2 data: Option<Bytes>,
    }

    /// A control message.
    ProcessIOControl {
        1 r#type: Option<ProcessIOControlType>,
        2 tty_info: Option<TTYInfo>,
        3 heartbeat: Option<ProcessIOControlHeartbeat>,
    }

    /// Keeps the stream alive.
    ProcessIOControlHeartbeat {
        /// Until the next heartbeat.
        1 interval: Option<DurationInfo>,
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
        GetContainers = 10 "GET_CONTAINERS",
        GetFrameworks = 11 "GET_FRAMEWORKS",
        GetExecutors = 12 "GET_EXECUTORS",
        GetTasks = 13 "GET_TASKS",
        LaunchNestedContainer = 14 "LAUNCH_NESTED_CONTAINER",
        WaitNestedContainer = 15 "WAIT_NESTED_CONTAINER",
        KillNestedContainer = 16 "KILL_NESTED_CONTAINER",
        LaunchNestedContainerSession = 17 "LAUNCH_NESTED_CONTAINER_SESSION",
        AttachContainerInput = 18 "ATTACH_CONTAINER_INPUT",
        AttachContainerOutput = 19 "ATTACH_CONTAINER_OUTPUT",
        GetAgent = 20 "GET_AGENT",
        RemoveNestedContainer = 21 "REMOVE_NESTED_CONTAINER",
        LaunchContainer = 22 "LAUNCH_CONTAINER",
        WaitContainer = 23 "WAIT_CONTAINER",
        KillContainer = 24 "KILL_CONTAINER",
        RemoveContainer = 25 "REMOVE_CONTAINER",
        GetResourceProviders = 26 "GET_RESOURCE_PROVIDERS",
        AddResourceProviderConfig = 27 "ADD_RESOURCE_PROVIDER_CONFIG",
        UpdateResourceProviderConfig = 28 "UPDATE_RESOURCE_PROVIDER_CONFIG",
        RemoveResourceProviderConfig = 29 "REMOVE_RESOURCE_PROVIDER_CONFIG",
        PruneImages = 30 "PRUNE_IMAGES",
        GetOperations = 31 "GET_OPERATIONS",
        MarkResourceProviderGone = 32 "MARK_RESOURCE_PROVIDER_GONE",
    }

    /// Type of an input message.
    CallAttachContainerInputType {
        Unknown = 0 "UNKNOWN",
        ContainerId = 1 "CONTAINER_ID",
        ProcessIo = 2 "PROCESS_IO",
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
        GetContainers = 9 "GET_CONTAINERS",
        GetFrameworks = 10 "GET_FRAMEWORKS",
        GetExecutors = 11 "GET_EXECUTORS",
        GetTasks = 12 "GET_TASKS",
        WaitNestedContainer = 13 "WAIT_NESTED_CONTAINER",
        GetAgent = 14 "GET_AGENT",
        WaitContainer = 15 "WAIT_CONTAINER",
        GetResourceProviders = 16 "GET_RESOURCE_PROVIDERS",
        GetOperations = 17 "GET_OPERATIONS",
    }

    /// Type of a chunk.
    ProcessIOType {
        Unknown = 0 "UNKNOWN",
        Data = 1 "DATA",
        Control = 2 "CONTROL",
    }

    /// The stream of the data.
    ProcessIODataType {
        Unknown = 0 "UNKNOWN",
        Stdin = 1 "STDIN",
        Stdout = 2 "STDOUT",
        Stderr = 3 "STDERR",
    }

    /// Type of a control message.
    ProcessIOControlType {
        Unknown = 0 "UNKNOWN",
        TtyInfo = 1 "TTY_INFO",
        Heartbeat = 2 "HEARTBEAT",
    }
}
