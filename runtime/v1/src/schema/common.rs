//! What several areas of the v1 API speak of: labels, machines, secrets, discovery, versions, limits of rate.

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{DurationInfo, FrameworkID, Resource, TimeInfo};

messages! {
    /// Notes for people and tools.
    Labels {
        1 labels: Vec<Label>,
    }

    /// A key, perhaps with a value.
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

    /// Where something listens.
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

    /// Variables of a process.
    Environment {
        1 variables: Vec<EnvironmentVariable>,
    }

    /// A variable, given as it is or as a secret.
    EnvironmentVariable {
        1 name: String,
        /// If it is of type `VALUE`.
        2 value: Option<String>,
        3 r#type: Option<EnvironmentVariableType> = Enum(1, "VALUE"),
        /// If it is of type `SECRET`.
        4 secret: Option<Box<Secret>>,
    }

    /// Something that only a container may see: itself, or where it is kept.
    Secret {
        1 r#type: Option<SecretType>,
        2 reference: Option<SecretReference>,
        3 value: Option<SecretValue>,
    }

    /// Where a secret is kept.
    SecretReference {
        1 name: String,
        2 key: Option<String>,
    }

    /// The secret itself.
    SecretValue {
        1 data: Bytes,
    }

    /// Who somebody is, and how that is proved.
    Credential {
        1 principal: String,
        2 secret: Option<String>,
    }

    /// All that may prove who they are.
    Credentials {
        1 credentials: Vec<Credential>,
    }

    /// Where a machine lies.
    DomainInfo {
        1 fault_domain: Option<DomainInfoFaultDomain>,
    }

    /// A region has zones; zones fail apart.
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

    /// When something will be away.
    Unavailability {
        1 start: TimeInfo,
        /// Absent: for ever.
        2 duration: Option<DurationInfo>,
    }

    /// Names a machine: by its host name, its address or both.
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

    /// A port that a task or executor listens at.
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

    /// How a task or executor is found by others.
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

    /// A version and how it was built.
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

    /// A flag that a process was started with.
    Flag {
        1 name: String,
        2 value: Option<String>,
    }

    /// A role and what it has.
    Role {
        1 name: String,
        2 weight: f64,
        /// Those that have it.
        3 frameworks: Vec<FrameworkID>,
        /// What they are offered and hold in it.
        4 resources: Vec<Resource>,
    }

    /// A number about a process.
    Metric {
        1 name: String,
        2 value: Option<f64>,
    }

    /// A file or directory.
    FileInfo {
        1 path: String,
        /// Links to it.
        2 nlink: Option<i32>,
        3 size: Option<u64>,
        4 mtime: Option<TimeInfo>,
        /// Its kind and permissions, as of `stat`.
        5 mode: Option<u32>,
        6 uid: Option<String>,
        7 gid: Option<String>,
    }

    /// How much a role counts in fair shares.
    WeightInfo {
        1 weight: f64,
        2 role: Option<String>,
    }

    /// How often a principal may call.
    RateLimit {
        /// Calls per second; absent is without limit.
        1 qps: Option<f64>,
        2 principal: String,
        /// Calls that may wait; absent is without limit.
        3 capacity: Option<u64>,
    }

    /// How often each principal may call.
    RateLimits {
        1 limits: Vec<RateLimit>,
        /// Of all those together that are not listed.
        2 aggregate_default_qps: Option<f64>,
        /// Of all those together that are not listed.
        3 aggregate_default_capacity: Option<u64>,
    }

    /// How an agent is drained.
    DrainConfig {
        /// The longest time that a task has to end.
        1 max_grace_period: Option<DurationInfo>,
        /// Whether the agent is declared gone once it is drained.
        2 mark_gone: Option<bool> = Bool(false),
    }

    /// How far draining an agent has come.
    DrainInfo {
        1 state: DrainState,
        2 config: DrainConfig,
    }
}

enums! {
    /// How a variable is given.
    EnvironmentVariableType {
        Unknown = 0 "UNKNOWN",
        Value = 1 "VALUE",
        Secret = 2 "SECRET",
    }

    /// Whether it is the secret or where it is kept.
    SecretType {
        Unknown = 0 "UNKNOWN",
        Reference = 1 "REFERENCE",
        Value = 2 "VALUE",
    }

    /// How a machine stands in its maintenance.
    MachineInfoMode {
        Up = 1 "UP",
        Draining = 2 "DRAINING",
        Down = 3 "DOWN",
    }

    /// Who should find it.
    DiscoveryInfoVisibility {
        Framework = 0 "FRAMEWORK",
        Cluster = 1 "CLUSTER",
        External = 2 "EXTERNAL",
    }

    /// How far draining an agent has come.
    DrainState {
        Unknown = 0 "UNKNOWN",
        Draining = 1 "DRAINING",
        Drained = 2 "DRAINED",
    }

    /// The state of a scheduler's or executor's driver.
    Status {
        NotStarted = 1 "DRIVER_NOT_STARTED",
        Running = 2 "DRIVER_RUNNING",
        Aborted = 3 "DRIVER_ABORTED",
        Stopped = 4 "DRIVER_STOPPED",
    }
}
