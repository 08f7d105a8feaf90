//! Settings and states of containers, their images and volumes.

pub(in crate::schema) mod volume;

use crate::message::{enums, messages};
use crate::schema::{ContainerID, Image, Labels, Parameter, Volume};

messages! {
    /// Settings of a container.
    ContainerInfo {
        1 r#type: ContainerInfoType,
        2 volumes: Vec<Volume>,
        3 docker: Option<Box<ContainerInfoDockerInfo>>,
        4 hostname: Option<String>,
        5 mesos: Option<ContainerInfoMesosInfo>,
        7 network_infos: Vec<NetworkInfo>,
        /// Settings that only Linux has.
        8 linux_info: Option<Box<LinuxInfo>>,
        9 rlimit_info: Option<RLimitInfo>,
        10 tty_info: Option<TTYInfo>,
    }

    /// A Docker container.
    ContainerInfoDockerInfo {
        1 image: String,
        2 network: Option<ContainerInfoDockerInfoNetwork> = Enum(1, "HOST"),
        3 port_mappings: Vec<ContainerInfoDockerInfoPortMapping>,
        4 privileged: Option<bool> = Bool(false),
        /// Options for Docker's command line.
        5 parameters: Vec<Parameter>,
        6 force_pull_image: Option<bool>,
        /// Deprecated.
        7 volume_driver: Option<String>,
    }

    /// Maps a port of the host to one of the container.
    ContainerInfoDockerInfoPortMapping {
        1 host_port: u32,
        2 container_port: u32,
        3 protocol: Option<String>,
    }

    /// A Mesos container.
    ContainerInfoMesosInfo {
        1 image: Option<Image>,
    }

    /// Settings of a container that only Linux has.
    LinuxInfo {
        /// Deprecated.
        1 capability_info: Option<CapabilityInfo>,
        2 bounding_capabilities: Option<CapabilityInfo>,
        3 effective_capabilities: Option<CapabilityInfo>,
        4 share_pid_namespace: Option<bool>,
        5 seccomp: Option<SeccompInfo>,
        6 ipc_mode: Option<LinuxInfoIpcMode>,
        /// In megabytes.
        7 shm_size: Option<u32>,
        /// Whether a nested container shares the cgroups of its parent.
        8 share_cgroups: Option<bool> = Bool(true),
    }

    /// Capabilities of a process.
    CapabilityInfo {
        1 capabilities: Vec<CapabilityInfoCapability>,
    }

    /// The system calls that a container may use.
    SeccompInfo {
        1 profile_name: Option<String>,
        2 unconfined: Option<bool>,
    }

    /// Resource limits of a process (`setrlimit`).
    RLimitInfo {
        1 rlimits: Vec<RLimitInfoRLimit>,
    }

    /// One limit; without `hard` and `soft`: unlimited.
    RLimitInfoRLimit {
        1 r#type: Option<RLimitInfoRLimitType>,
        2 hard: Option<u64>,
        3 soft: Option<u64>,
    }

    /// A terminal.
    TTYInfo {
        1 window_size: Option<TTYInfoWindowSize>,
    }

    /// In characters.
    TTYInfoWindowSize {
        1 rows: u32,
        2 columns: u32,
    }

    /// A network of a container.
    NetworkInfo {
        /// Containers of one group can reach each other.
        3 groups: Vec<String>,
        4 labels: Option<Labels>,
        5 ip_addresses: Vec<NetworkInfoIPAddress>,
        6 name: Option<String>,
        7 port_mappings: Vec<NetworkInfoPortMapping>,
    }

    /// A requested or assigned address.
    NetworkInfoIPAddress {
        1 protocol: Option<NetworkInfoProtocol> = Enum(1, "IPv4"),
        2 ip_address: Option<String>,
    }

    /// Maps a port of the host to one of the container.
    NetworkInfoPortMapping {
        1 host_port: u32,
        2 container_port: u32,
        3 protocol: Option<String>,
    }

    /// State of a container.
    ContainerStatus {
        1 network_infos: Vec<NetworkInfo>,
        2 cgroup_info: Option<CgroupInfo>,
        /// In the PID namespace of the agent's host.
        3 executor_pid: Option<u32>,
        4 container_id: Option<ContainerID>,
    }

    /// A container's cgroups.
    CgroupInfo {
        1 net_cls: Option<CgroupInfoNetCls>,
    }

    /// Block I/O.
    CgroupInfoBlkio {}

    /// An amount for one kind of operation.
    CgroupInfoBlkioValue {
        1 op: Option<CgroupInfoBlkioOperation>,
        2 value: Option<u64>,
    }

    /// The CFQ I/O scheduler.
    CgroupInfoBlkioCFQ {}

    /// Statistics of a device from the CFQ scheduler.
    CgroupInfoBlkioCFQStatistics {
        1 device: Option<DeviceNumber>,
        2 sectors: Option<u64>,
        3 time: Option<u64>,
        4 io_serviced: Vec<CgroupInfoBlkioValue>,
        5 io_service_bytes: Vec<CgroupInfoBlkioValue>,
        6 io_service_time: Vec<CgroupInfoBlkioValue>,
        7 io_wait_time: Vec<CgroupInfoBlkioValue>,
        8 io_merged: Vec<CgroupInfoBlkioValue>,
        9 io_queued: Vec<CgroupInfoBlkioValue>,
    }

    /// I/O throttling.
    CgroupInfoBlkioThrottling {}

    /// Statistics of a device from throttling.
    CgroupInfoBlkioThrottlingStatistics {
        1 device: Option<DeviceNumber>,
        2 io_serviced: Vec<CgroupInfoBlkioValue>,
        3 io_service_bytes: Vec<CgroupInfoBlkioValue>,
    }

    /// Statistics of devices.
    CgroupInfoBlkioStatistics {
        1 cfq: Vec<CgroupInfoBlkioCFQStatistics>,
        2 cfq_recursive: Vec<CgroupInfoBlkioCFQStatistics>,
        3 throttling: Vec<CgroupInfoBlkioThrottlingStatistics>,
    }

    /// Tag of the container's network packets.
    CgroupInfoNetCls {
        1 classid: Option<u32>,
    }

    /// A device, by path or number.
    Device {
        1 path: Option<String>,
        2 number: Option<DeviceNumber>,
    }

    /// A device's number.
    DeviceNumber {
        1 major_number: u64,
        2 minor_number: u64,
    }

    /// Permitted operations on a device.
    DeviceAccess {
        1 device: Device,
        2 access: DeviceAccessAccess,
    }

    /// The permitted operations.
    DeviceAccessAccess {
        1 read: Option<bool>,
        2 write: Option<bool>,
        3 mknod: Option<bool>,
    }

    /// Permitted devices.
    DeviceWhitelist {
        1 allowed_devices: Vec<DeviceAccess>,
    }
}

enums! {
    /// The containerizer.
    ContainerInfoType {
        Docker = 1 "DOCKER",
        Mesos = 2 "MESOS",
    }

    /// Network mode.
    ContainerInfoDockerInfoNetwork {
        Host = 1 "HOST",
        Bridge = 2 "BRIDGE",
        None = 3 "NONE",
        User = 4 "USER",
    }

    /// IPC namespace and shared memory.
    LinuxInfoIpcMode {
        Unknown = 0 "UNKNOWN",
        Private = 1 "PRIVATE",
        ShareParent = 2 "SHARE_PARENT",
    }

    /// A Linux capability (`CAP_CHOWN` is 1000, and so on).
    CapabilityInfoCapability {
        Unknown = 0 "UNKNOWN",
        Chown = 1000 "CHOWN",
        DacOverride = 1001 "DAC_OVERRIDE",
        DacReadSearch = 1002 "DAC_READ_SEARCH",
        Fowner = 1003 "FOWNER",
        Fsetid = 1004 "FSETID",
        Kill = 1005 "KILL",
        Setgid = 1006 "SETGID",
        Setuid = 1007 "SETUID",
        Setpcap = 1008 "SETPCAP",
        LinuxImmutable = 1009 "LINUX_IMMUTABLE",
        NetBindService = 1010 "NET_BIND_SERVICE",
        NetBroadcast = 1011 "NET_BROADCAST",
        NetAdmin = 1012 "NET_ADMIN",
        NetRaw = 1013 "NET_RAW",
        IpcLock = 1014 "IPC_LOCK",
        IpcOwner = 1015 "IPC_OWNER",
        SysModule = 1016 "SYS_MODULE",
        SysRawio = 1017 "SYS_RAWIO",
        SysChroot = 1018 "SYS_CHROOT",
        SysPtrace = 1019 "SYS_PTRACE",
        SysPacct = 1020 "SYS_PACCT",
        SysAdmin = 1021 "SYS_ADMIN",
        SysBoot = 1022 "SYS_BOOT",
        SysNice = 1023 "SYS_NICE",
        SysResource = 1024 "SYS_RESOURCE",
        SysTime = 1025 "SYS_TIME",
        SysTtyConfig = 1026 "SYS_TTY_CONFIG",
        Mknod = 1027 "MKNOD",
        Lease = 1028 "LEASE",
        AuditWrite = 1029 "AUDIT_WRITE",
        AuditControl = 1030 "AUDIT_CONTROL",
        Setfcap = 1031 "SETFCAP",
        MacOverride = 1032 "MAC_OVERRIDE",
        MacAdmin = 1033 "MAC_ADMIN",
        Syslog = 1034 "SYSLOG",
        WakeAlarm = 1035 "WAKE_ALARM",
        BlockSuspend = 1036 "BLOCK_SUSPEND",
        AuditRead = 1037 "AUDIT_READ",
    }

    /// The limited resource.
    RLimitInfoRLimitType {
        Unknown = 0 "UNKNOWN",
        RlmtAs = 1 "RLMT_AS",
        RlmtCore = 2 "RLMT_CORE",
        RlmtCpu = 3 "RLMT_CPU",
        RlmtData = 4 "RLMT_DATA",
        RlmtFsize = 5 "RLMT_FSIZE",
        RlmtLocks = 6 "RLMT_LOCKS",
        RlmtMemlock = 7 "RLMT_MEMLOCK",
        RlmtMsgqueue = 8 "RLMT_MSGQUEUE",
        RlmtNice = 9 "RLMT_NICE",
        RlmtNofile = 10 "RLMT_NOFILE",
        RlmtNproc = 11 "RLMT_NPROC",
        RlmtRss = 12 "RLMT_RSS",
        RlmtRtprio = 13 "RLMT_RTPRIO",
        RlmtRttime = 14 "RLMT_RTTIME",
        RlmtSigpending = 15 "RLMT_SIGPENDING",
        RlmtStack = 16 "RLMT_STACK",
    }

    /// IP version.
    NetworkInfoProtocol {
        IPv4 = 1 "IPv4",
        IPv6 = 2 "IPv6",
    }

    /// A kind of operation.
    CgroupInfoBlkioOperation {
        Unknown = 0 "UNKNOWN",
        Total = 1 "TOTAL",
        Read = 2 "READ",
        Write = 3 "WRITE",
        Sync = 4 "SYNC",
        Async = 5 "ASYNC",
        Discard = 6 "DISCARD",
    }
}
