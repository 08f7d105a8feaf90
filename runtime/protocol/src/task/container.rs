//! Settings of a container: its image, volumes, capabilities and limits of its processes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::task::network::{NetworkInfo, PortMapping};

/// Settings of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerInfo {
    /// Settings that only containers of type `DOCKER` have; `None` for type `MESOS`.
    pub docker: Option<DockerOptions>,
    /// The image of its root file system; `None` for that of the host.
    pub image: Option<Image>,
    /// Files and directories of others that it sees.
    pub volumes: Vec<Volume>,
    /// Its host name, if not that of the host.
    pub hostname: Option<String>,
    /// Settings that only Linux has.
    pub linux: LinuxInfo,
    /// Limits of each of its processes.
    pub rlimits: Vec<RLimit>,
    /// The networks that it joins instead of that of the host.
    pub networks: Vec<NetworkInfo>,
    /// Whether its command has a terminal.
    pub has_terminal: bool,
}

impl ContainerInfo {
    /// Whether a volume of it is a secret.
    pub fn has_secrets(&self) -> bool {
        let is_secret = |volume: &Volume| matches!(volume.source, VolumeSource::Secret(_));
        self.volumes.iter().any(is_secret)
    }

    /// Empties the secrets of its volumes, for pages, checkpoints and comparisons.
    pub fn remove_secrets(&mut self) {
        for volume in &mut self.volumes {
            if let VolumeSource::Secret(secret) = &mut volume.source {
                *secret = SecretData::default();
            }
        }
    }

    /// Whether it is not in the network of the host.
    pub fn has_own_network(&self) -> bool {
        let docker = self.docker.as_ref();
        let is_docker = docker.is_some_and(|docker| docker.network != DockerNetwork::Host);
        is_docker || !self.networks.is_empty()
    }

    /// Size of all texts, in bytes.
    pub fn text_bytes(&self) -> usize {
        let volumes = self.volumes.iter();
        let volumes: usize = volumes.map(Volume::text_bytes).sum();
        let image = self.image.as_ref().map_or(0, |image| image.name.len());
        let hostname = self.hostname.as_ref().map_or(0, String::len);
        let networks: usize = self.networks.iter().map(NetworkInfo::text_bytes).sum();
        let ports = self.docker.iter().flat_map(|docker| &docker.port_mappings);
        let ports: usize = ports.map(PortMapping::text_bytes).sum();
        let rlimits = self.rlimits.len() * size_of::<RLimit>();
        volumes + image + hostname + rlimits + networks + ports
    }
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// For example `library/busybox:1.36`.
    pub name: String,
    /// Whether a copy on the agent will do, although the registry may have a newer one.
    pub is_cached: bool,
}

/// Settings of a container of type `DOCKER`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerOptions {
    /// Its network.
    pub network: DockerNetwork,
    /// Ports of the host at which ports of the container are reached.
    pub port_mappings: Vec<PortMapping>,
    /// Whether it has all rights of root on the host.
    pub is_privileged: bool,
}

/// Network of a container of type `DOCKER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DockerNetwork {
    /// That of the host.
    #[default]
    Host,
    /// None but its own loopback.
    None,
    /// The operator's bridge.
    Bridge,
    /// The one of [`ContainerInfo::networks`].
    User,
}

/// A file or directory that a container sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Where: absolute, or relative to the sandbox.
    pub container_path: String,
    /// Whether it cannot be changed.
    pub is_read_only: bool,
    /// What.
    pub source: VolumeSource,
}

impl Volume {
    fn text_bytes(&self) -> usize {
        let source = match &self.source {
            VolumeSource::Path(path)
            | VolumeSource::HostPath(path)
            | VolumeSource::SandboxPath(path) => path.len(),
            VolumeSource::Secret(SecretData(data)) => data.len(),
            VolumeSource::Memory(_) => 0,
        };
        self.container_path.len() + source + size_of::<Self>()
    }
}

/// The source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeSource {
    /// The older form: an absolute path of the host, or one relative to the sandbox.
    Path(String),
    /// An absolute path of the host.
    HostPath(String),
    /// A path in the sandbox; a directory is made if nothing is there.
    SandboxPath(String),
    /// A file with this content, in memory only.
    Secret(SecretData),
    /// A new directory in memory only (tmpfs). Mesos has no such source.
    Memory(MemoryVolume),
}

/// The content of a secret. Its `Debug` shows the length only, so that no log has it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretData(pub Vec<u8>);

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretData({} bytes)", self.0.len())
    }
}

/// A directory in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryVolume {
    /// Bytes that its files can have; `None` for the memory of the container.
    pub bytes: Option<u64>,
    /// Permissions of the directory, at most 0o1777.
    pub mode: u32,
}

impl MemoryVolume {
    /// Permissions unless others are given: everyone can make files.
    pub const MODE: u32 = 0o1777;
}

/// Settings of a container that only Linux has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxInfo {
    /// Capabilities of its processes; `None` for the agent's default.
    pub effective: Option<LinuxCapabilities>,
    /// Capabilities that its processes can gain; `None` for the agent's default.
    pub bounding: Option<LinuxCapabilities>,
    /// Whether it sees the host's processes, although the agent isolates them.
    pub shares_pid_namespace: bool,
    /// The system calls that it may use; `None` for the agent's default.
    pub seccomp: Option<Seccomp>,
    /// Its System V objects and `/dev/shm`; `None` for the agent's default.
    pub ipc_mode: Option<IpcMode>,
    /// Size of its `/dev/shm`, in MiB.
    pub shm_size: Option<u32>,
    /// Whether a nested container is in its parent's cgroups; `None` means that it is.
    pub shares_cgroups: Option<bool>,
}

/// A set of Linux capabilities: bit `n` is the kernel's capability number `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxCapabilities(pub u64);

impl LinuxCapabilities {
    /// The names of the kernel's capabilities, in the order of their numbers.
    pub const NAMES: [&str; 41] = [
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "WAKE_ALARM",
        "BLOCK_SUSPEND",
        "AUDIT_READ",
        "PERFMON",
        "BPF",
        "CHECKPOINT_RESTORE",
    ];

    /// The set of these names. An unknown name is the error.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let mut set = Self::default();
        for name in names {
            let number = Self::NAMES.iter().position(|known| *known == name);
            set.0 |= 1 << number.ok_or(name)?;
        }
        Ok(set)
    }

    /// Whether all of these are in `other`.
    pub fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

impl fmt::Display for LinuxCapabilities {
    /// In the form of Mesos: `{ CHOWN, NET_RAW }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().enumerate();
        let names = names.filter(|(number, _)| self.0 & (1 << number) != 0);
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        write!(f, "{{ {} }}", names.join(", "))
    }
}

/// The system calls that a container may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    /// Those of the profile with this name.
    Profile(String),
    /// All.
    Unconfined,
}

/// System V objects and `/dev/shm` of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpcMode {
    /// Its own.
    Private,
    /// Those of the host, or of the container in which it is nested.
    ShareParent,
}

/// A limit of each process of a container (`setrlimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RLimit {
    /// What is limited.
    pub kind: RLimitKind,
    /// The limit, and that up to which a process may raise it; `None` for no limit.
    pub limits: Option<SoftHard>,
}

/// The two values of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftHard {
    /// The limit.
    pub soft: u64,
    /// The value up to which a process may raise it.
    pub hard: u64,
}

/// What a limit of a process limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RLimitKind {
    /// Address space, in bytes.
    As,
    /// Core files, in bytes.
    Core,
    /// CPU time, in seconds.
    Cpu,
    /// Data segment, in bytes.
    Data,
    /// Written files, in bytes.
    Fsize,
    /// File locks.
    Locks,
    /// Locked memory, in bytes.
    Memlock,
    /// POSIX message queues, in bytes.
    Msgqueue,
    /// Highest nice value, as 20 minus it.
    Nice,
    /// Open files.
    Nofile,
    /// Processes of the user.
    Nproc,
    /// Resident memory, in bytes.
    Rss,
    /// Real-time priority.
    Rtprio,
    /// CPU time under a real-time scheduler, in microseconds.
    Rttime,
    /// Queued signals.
    Sigpending,
    /// Stack, in bytes.
    Stack,
}
