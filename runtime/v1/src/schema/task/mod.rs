//! Tasks, commands, executors, checks and task statuses.

pub(in crate::schema) mod status;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentID, ContainerInfo, DiscoveryInfo, DurationInfo, Environment, ExecutorID, FrameworkID,
    Labels, NetworkInfoProtocol, Resource, TaskID, TaskState, TaskStatus, ValueScalar,
};

messages! {
    /// A task to be launched. It has either `executor` or `command`.
    TaskInfo {
        1 name: String,
        2 task_id: TaskID,
        3 agent_id: AgentID,
        4 resources: Vec<Resource>,
        5 executor: Option<Box<ExecutorInfo>>,
        /// For the executor.
        6 data: Option<Bytes>,
        7 command: Option<Box<CommandInfo>>,
        8 health_check: Option<Box<HealthCheck>>,
        9 container: Option<Box<ContainerInfo>>,
        10 labels: Option<Labels>,
        11 discovery: Option<Box<DiscoveryInfo>>,
        12 kill_policy: Option<KillPolicy>,
        13 check: Option<Box<CheckInfo>>,
        /// It is killed after this time.
        14 max_completion_time: Option<DurationInfo>,
        /// Limits above its resources by name (`cpus`, `mem`); may be infinite.
        15 limits: BTreeMap<String, ValueScalar>,
        /// Further checks. Specific to Meros: Mesos skips them.
        1000 checks: Vec<NamedCheck>,
    }

    /// Tasks that are launched together.
    TaskGroupInfo {
        1 tasks: Vec<TaskInfo>,
    }

    /// A task as masters and agents know it.
    Task {
        1 name: String,
        2 task_id: TaskID,
        3 framework_id: FrameworkID,
        4 executor_id: Option<ExecutorID>,
        5 agent_id: AgentID,
        /// The newest state.
        6 state: TaskState,
        7 resources: Vec<Resource>,
        8 statuses: Vec<TaskStatus>,
        /// The newest state in a status update for its framework.
        9 status_update_state: Option<TaskState>,
        10 status_update_uuid: Option<Bytes>,
        11 labels: Option<Labels>,
        12 discovery: Option<Box<DiscoveryInfo>>,
        13 container: Option<Box<ContainerInfo>>,
        /// The user it runs as.
        14 user: Option<String>,
        15 health_check: Option<Box<HealthCheck>>,
        16 kill_policy: Option<KillPolicy>,
        17 limits: BTreeMap<String, ValueScalar>,
    }

    /// A command.
    CommandInfo {
        /// Files to fetch first.
        1 uris: Vec<CommandInfoURI>,
        2 environment: Option<Environment>,
        3 value: Option<String>,
        /// The user it runs as; absent: the framework's user.
        5 user: Option<String>,
        /// Whether `value` is run by `/bin/sh -c`. Otherwise it is a file, and `arguments` its
        /// whole `argv`.
        6 shell: Option<bool> = Bool(true),
        7 arguments: Vec<String>,
    }

    /// A file to fetch before a command runs.
    CommandInfoURI {
        1 value: String,
        2 executable: Option<bool>,
        3 extract: Option<bool> = Bool(true),
        4 cache: Option<bool>,
        /// Its name in the sandbox.
        5 output_file: Option<String>,
        /// The digest that its content must have, such as `sha256:...`. Specific to Meros: Mesos
        /// skips it.
        1000 digest: Option<String>,
    }

    /// A program that runs tasks. The same id on an agent always means the same info.
    ExecutorInfo {
        1 executor_id: ExecutorID,
        /// Passed to the executor when it subscribes.
        4 data: Option<Bytes>,
        5 resources: Vec<Resource>,
        7 command: Option<Box<CommandInfo>>,
        8 framework_id: Option<FrameworkID>,
        9 name: Option<String>,
        /// For people only. Deprecated.
        10 source: Option<String>,
        11 container: Option<Box<ContainerInfo>>,
        12 discovery: Option<Box<DiscoveryInfo>>,
        /// Time for it to stop.
        13 shutdown_grace_period: Option<DurationInfo>,
        14 labels: Option<Labels>,
        15 r#type: Option<ExecutorInfoType>,
    }

    /// How a task is killed.
    KillPolicy {
        /// Between SIGTERM and SIGKILL.
        1 grace_period: Option<DurationInfo>,
    }

    /// A periodic check, whose result goes to the framework.
    CheckInfo {
        1 r#type: Option<CheckInfoType>,
        2 command: Option<Box<CheckInfoCommand>>,
        3 http: Option<CheckInfoHttp>,
        /// Before the first check.
        4 delay_seconds: Option<f64> = F64(15.0),
        5 interval_seconds: Option<f64> = F64(10.0),
        6 timeout_seconds: Option<f64> = F64(20.0),
        7 tcp: Option<CheckInfoTcp>,
    }

    /// A check with a name that is unique in its task. Specific to Meros.
    NamedCheck {
        1 name: String,
        2 check: CheckInfo,
    }

    /// Runs a command.
    CheckInfoCommand {
        1 command: CommandInfo,
    }

    /// Sends a GET.
    CheckInfoHttp {
        1 port: u32,
        2 path: Option<String>,
    }

    /// Connects.
    CheckInfoTcp {
        1 port: u32,
    }

    /// A periodic health check; an unhealthy task is killed.
    HealthCheck {
        1 http: Option<Box<HealthCheckHTTPCheckInfo>>,
        2 delay_seconds: Option<f64> = F64(15.0),
        3 interval_seconds: Option<f64> = F64(10.0),
        4 timeout_seconds: Option<f64> = F64(20.0),
        /// The task is killed after this many failures in a row.
        5 consecutive_failures: Option<u32> = Unsigned(3),
        /// Failures within this time after the start do not count.
        6 grace_period_seconds: Option<f64> = F64(10.0),
        7 command: Option<Box<CommandInfo>>,
        8 r#type: Option<HealthCheckType>,
        9 tcp: Option<HealthCheckTCPCheckInfo>,
    }

    /// Sends a GET.
    HealthCheckHTTPCheckInfo {
        1 port: u32,
        2 path: Option<String>,
        /// `http` or `https`.
        3 scheme: Option<String>,
        /// Statuses of a healthy task.
        4 statuses: Vec<u32>,
        5 protocol: Option<NetworkInfoProtocol> = Enum(1, "IPv4"),
    }

    /// Connects.
    HealthCheckTCPCheckInfo {
        1 port: u32,
        2 protocol: Option<NetworkInfoProtocol> = Enum(1, "IPv4"),
    }
}

enums! {
    /// Type of an executor.
    ExecutorInfoType {
        Unknown = 0 "UNKNOWN",
        Default = 1 "DEFAULT",
        Custom = 2 "CUSTOM",
    }

    /// Type of a check.
    CheckInfoType {
        Unknown = 0 "UNKNOWN",
        Command = 1 "COMMAND",
        Http = 2 "HTTP",
        Tcp = 3 "TCP",
    }

    /// Type of a health check.
    HealthCheckType {
        Unknown = 0 "UNKNOWN",
        Command = 1 "COMMAND",
        Http = 2 "HTTP",
        Tcp = 3 "TCP",
    }
}
