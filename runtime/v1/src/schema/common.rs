//! Messages of several areas: labels, machines, secrets, discovery, versions, rate limits.

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{DurationInfo, FrameworkID, Resource, TimeInfo};

messages! {
    /// Labels for people and tools.
    Labels {
        1 labels: Vec<Label>,
    }

    /// A key, optionally with a value.
    Label {
        1 key: String,
        2 value: Option<String>,
    }

    /// A key with a value.
    Parameter {
        1 key: String,
        2 value: String,
    }

    /// Keys with values.
    Parameters {
        1 parameter: Vec<Parameter>,
    }

    /// The address of a listener.
    Address {
        /// Or `ip`, or both.
        1 hostname: Option<String>,
        2 ip: Option<String>,
        3 port: i32,
    }

    /// A URL in its parts.
    URL {
        1 scheme: String,
        2 address: Address,
        3 path: Option<String>,
        4 query: Vec<Parameter>,
        5 fragment: Option<String>,
    }

    /// Environment variables of a process.
    Environment {
        1 variables: Vec<EnvironmentVariable>,
    }

    /// An environment variable, with a plain or a secret value.
    EnvironmentVariable {
        1 name: String,
        /// For type `VALUE`.
        2 value: Option<String>,
        3 r#type: Option<EnvironmentVariableType> = Enum(1, "VALUE"),
        /// For type `SECRET`.
        4 secret: Option<Box<Secret>>,
    }

    /// A secret, by value or by reference.
    Secret {
        1 r#type: Option<SecretType>,
        2 reference: Option<SecretReference>,
        3 value: Option<SecretValue>,
    }

    /// The location of a secret.
    SecretReference {
        1 name: String,
        2 key: Option<String>,
    }

    /// The secret itself.
    SecretValue {
        1 data: Bytes,
    }

    /// A principal and its secret.
    Credential {
        1 principal: String,
        2 secret: Option<String>,
    }

    /// All known credentials.
    Credentials {
        1 credentials: Vec<Credential>,
    }

    /// The location of a machine.
    DomainInfo {
        1 fault_domain: Option<DomainInfoFaultDomain>,
    }

    /// A region has zones, which fail independently.
    DomainInfoFaultDomain {
        1 region: DomainInfoFaultDomainRegionInfo,
        2 zone: DomainInfoFaultDomainZoneInfo,
    }

    /// A region.
    DomainInfoFaultDomainRegionInfo {
        1 name: String,
    }

    /// A zone of a region.
    DomainInfoFaultDomainZoneInfo {
        1 name: String,
    }

    /// A period in which a machine is unavailable.
    Unavailability {
        1 start: TimeInfo,
        /// Absent: forever.
        2 duration: Option<DurationInfo>,
    }

    /// Identifies a machine by host name, address or both.
    MachineID {
        1 hostname: Option<String>,
        2 ip: Option<String>,
    }

    /// A machine and its maintenance.
    MachineInfo {
        1 id: MachineID,
        2 mode: Option<MachineInfoMode>,
        3 unavailability: Option<Unavailability>,
    }

    /// A port of a task or executor.
    Port {
        1 number: u32,
        2 name: Option<String>,
        /// For example `tcp` or `http`.
        3 protocol: Option<String>,
        4 visibility: Option<DiscoveryInfoVisibility>,
        5 labels: Option<Labels>,
    }

    /// Ports.
    Ports {
        1 ports: Vec<Port>,
    }

    /// How others find a task or executor.
    DiscoveryInfo {
        1 visibility: DiscoveryInfoVisibility,
        2 name: Option<String>,
        /// For example `prod`.
        3 environment: Option<String>,
        /// For example a data centre.
        4 location: Option<String>,
        5 version: Option<String>,
        6 ports: Option<Ports>,
        7 labels: Option<Labels>,
    }

    /// A version and its build.
    VersionInfo {
        1 version: String,
        2 build_date: Option<String>,
        /// In seconds since 1970-01-01 UTC.
        3 build_time: Option<f64>,
        4 build_user: Option<String>,
        5 git_sha: Option<String>,
        6 git_branch: Option<String>,
        7 git_tag: Option<String>,
    }

    /// A command-line flag of a process.
    Flag {
        1 name: String,
        2 value: Option<String>,
    }

    /// A role and its resources.
    Role {
        1 name: String,
        2 weight: f64,
        /// The frameworks of the role.
        3 frameworks: Vec<FrameworkID>,
        /// Offered to and allocated by the role.
        4 resources: Vec<Resource>,
    }

    /// A metric.
    Metric {
        1 name: String,
        2 value: Option<f64>,
    }

    /// A file or directory.
    FileInfo {
        1 path: String,
        /// Number of hard links.
        2 nlink: Option<i32>,
        3 size: Option<u64>,
        4 mtime: Option<TimeInfo>,
        /// Kind and permissions, as from `stat`.
        5 mode: Option<u32>,
        6 uid: Option<String>,
        7 gid: Option<String>,
    }

    /// Weight of a role in fair sharing.
    WeightInfo {
        1 weight: f64,
        2 role: Option<String>,
    }

    /// Rate limit of a principal's calls.
    RateLimit {
        /// Calls per second; absent: unlimited.
        1 qps: Option<f64>,
        2 principal: String,
        /// Maximum queued calls; absent: unlimited.
        3 capacity: Option<u64>,
    }

    /// Rate limits by principal.
    RateLimits {
        1 limits: Vec<RateLimit>,
        /// For all principals that are not listed together.
        2 aggregate_default_qps: Option<f64>,
        /// For all principals that are not listed together.
        3 aggregate_default_capacity: Option<u64>,
    }

    /// Settings of a drain.
    DrainConfig {
        /// Maximum time for a task to end.
        1 max_grace_period: Option<DurationInfo>,
        /// Whether the agent is marked gone once drained.
        2 mark_gone: Option<bool> = Bool(false),
    }

    /// Progress of a drain.
    DrainInfo {
        1 state: DrainState,
        2 config: DrainConfig,
    }
}

enums! {
    /// How the value of a variable is given.
    EnvironmentVariableType {
        Unknown = 0 "UNKNOWN",
        Value = 1 "VALUE",
        Secret = 2 "SECRET",
    }

    /// Whether the secret is given by value or reference.
    SecretType {
        Unknown = 0 "UNKNOWN",
        Reference = 1 "REFERENCE",
        Value = 2 "VALUE",
    }

    /// Maintenance mode of a machine.
    MachineInfoMode {
        Up = 1 "UP",
        Draining = 2 "DRAINING",
        Down = 3 "DOWN",
    }

    /// The audience of a discovery.
    DiscoveryInfoVisibility {
        Framework = 0 "FRAMEWORK",
        Cluster = 1 "CLUSTER",
        External = 2 "EXTERNAL",
    }

    /// Progress of a drain.
    DrainState {
        Unknown = 0 "UNKNOWN",
        Draining = 1 "DRAINING",
        Drained = 2 "DRAINED",
    }

    /// State of a scheduler or executor driver.
    Status {
        NotStarted = 1 "DRIVER_NOT_STARTED",
        Running = 2 "DRIVER_RUNNING",
        Aborted = 3 "DRIVER_ABORTED",
        Stopped = 4 "DRIVER_STOPPED",
    }
}
