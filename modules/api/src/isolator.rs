//! Isolator: limits the resources of a container, and hides the host from its processes.
//!
//! The agent sends [`RecoverContainers`] once. For each container it asks every isolator to
//! [`PrepareContainer`] before the launch, to [`UpdateContainer`] whenever tasks come and go, and
//! to [`CleanUpContainer`] after the last process has ended. The container starts with the merged
//! [`LaunchPlan`]s. An isolator that finds a limit exceeded sends the agent
//! [`ContainerLimited`], and the agent ends the container. Only the agent launches containers,
//! and kills live ones.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use protocol::task::Limit;
use protocol::task::container::{ContainerInfo, LinuxCapabilities, RLimit, SecretData};
use protocol::task::network::NetworkInfo;
use protocol::usage::Throttle;
use protocol::{ContainerId, Reason, ResourceStatistics};
use resources::{Resource, Resources, SourceKind};
use runtime::{ActorRef, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

const KIND: ModuleKind = ModuleKind::Isolator;

/// Requests and limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerResources {
    /// Resources of the executor and its live tasks, revocable ones too.
    pub requests: Resources,
    /// Limit of `cpus`, if any task has one.
    pub cpus_limit: Option<Limit>,
    /// Limit of `mem`, if any task has one.
    pub mem_limit: Option<Limit>,
    /// How it is throttled by corrections; `None` if it never was.
    pub throttle: Option<Throttle>,
}

impl ContainerResources {
    /// Whether the whole container is revocable: one revocable resource is enough.
    pub fn is_revocable(&self) -> bool {
        !self.requests.revocable().is_empty()
    }
}

/// A container, as isolators know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// Its id.
    pub container_id: ContainerId,
    /// Its sandbox.
    pub sandbox: PathBuf,
    /// The user of its processes, if not the agent's.
    pub user: Option<String>,
    /// Whether it runs the command of one task, without an executor.
    pub is_command: bool,
    /// Its requests and limits at the start.
    pub resources: ContainerResources,
    /// Its settings, if it has any.
    pub container: Option<Box<ContainerInfo>>,
    /// Its root file system, if it has an image.
    pub root: Option<RootFilesystem>,
    /// Whether it is nested in another container whose limits include its own: it needs none.
    pub shares_limits: bool,
}

impl ContainerConfig {
    /// Whether it wants all rights of root on the host. Only the operator can allow that.
    pub fn wants_privileges(&self) -> bool {
        let docker = self.container.as_ref().and_then(|one| one.docker.as_ref());
        self.root.is_some() && docker.is_some_and(|docker| docker.is_privileged)
    }
}

/// The directory of a persistent volume; `None` for other resources. On the root disk it is
/// `volumes/roles/<role>/<id>` of the work directory, on a PATH disk likewise below its root, and
/// on a MOUNT disk it is the mounted file system.
pub fn volume_path(work_dir: &Path, volume: &Resource) -> Option<PathBuf> {
    let disk = volume.annotations().disk.as_ref()?;
    let id = &disk.persistence.as_ref()?.id;
    let source = disk.source.as_ref();
    let root = source.and_then(|source| source.root.as_ref());
    let below = match (source.map(|source| source.kind), root) {
        (None, _) => work_dir.to_owned(),
        (Some(SourceKind::Path), root) => work_dir.join(root?),
        (Some(SourceKind::Mount), root) => return Some(work_dir.join(root?)),
        (Some(SourceKind::Block | SourceKind::Raw), _) => return None,
    };
    // Roles contain no blanks, so this is unambiguous. As in Mesos.
    let role = volume.role().as_str().replace('/', " ");
    Some(below.join("volumes").join("roles").join(role).join(id))
}

/// The image of the file system of a sandbox `runs/ID` that has one of its own: `runs/.ID.disk`.
pub fn disk_image(sandbox: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(sandbox.file_name().unwrap_or_default());
    name.push(".disk");
    sandbox.with_file_name(name)
}

/// Namespaces of its own that a container gets. A process namespace implies a mount namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Process ids: the container sees only its own processes, and `/proc` is its own.
    pub pid: bool,
    /// System V objects, message queues, and `/dev/shm`.
    pub ipc: bool,
    /// Mounts: those of the container are not seen by the host.
    pub mount: bool,
    /// Host name.
    pub uts: bool,
}

/// A root file system: what a container writes is kept apart from its image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFilesystem {
    /// The directory of the unpacked image.
    pub image: PathBuf,
    /// An existing directory of the container, for what it writes. It is removed with it.
    pub scratch: PathBuf,
    /// The path of the sandbox in the container.
    pub sandbox: PathBuf,
}

/// A file or directory that a container sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What.
    pub source: MountSource,
    /// Where: absolute, or relative to the sandbox. It is made if it does not exist, except in the
    /// host's root file system.
    pub target: PathBuf,
    /// Whether it cannot be changed.
    pub is_read_only: bool,
}

/// The source of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountSource {
    /// An absolute path of the host.
    Host(PathBuf),
    /// A path below the sandbox; a directory is made if nothing is there.
    Sandbox(PathBuf),
    /// A file with this content, in memory only.
    Secret(SecretData),
    /// A new directory in memory only.
    Memory {
        /// Bytes that its files can have; `None` for the kernel's default.
        bytes: Option<u64>,
        /// Permissions of the directory.
        mode: u32,
    },
}

/// Capabilities of a container's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySets {
    /// Those they have; `None` for those of their user, within `bounding`.
    pub effective: Option<LinuxCapabilities>,
    /// Those they can gain.
    pub bounding: LinuxCapabilities,
}

/// A network of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerNetwork {
    /// The file on which its namespace is mounted.
    pub namespace: PathBuf,
    /// Files that the container sees in `/etc` under their names.
    pub files: Vec<PathBuf>,
    /// The networks that it has joined, with its addresses in them.
    pub joined: Vec<NetworkInfo>,
}

/// How the launch of a container differs from that of a plain process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// Directories of control groups that all its processes join, one in each hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// A control group for its processes without the container init. The file `cgroup.kill` in it
    /// kills them all at once.
    pub process_cgroup: Option<PathBuf>,
    /// Namespaces of its own.
    pub namespaces: Namespaces,
    /// Bytes of `/dev/shm` in its own IPC namespace; `None` for the kernel's default.
    pub shm_bytes: Option<u64>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// The score by which the kernel chooses processes to kill when memory runs out, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Whether its processes cannot gain privileges by executing a file.
    pub no_new_privileges: bool,
    /// A root file system of its own.
    pub root: Option<RootFilesystem>,
    /// Whether it has the devices of the host in its root file system, and may change `/proc` and
    /// `/sys`.
    pub is_privileged: bool,
    /// The directory in which its program starts; `None` for the sandbox.
    pub working_directory: Option<PathBuf>,
    /// Files and directories that it sees, in the order of their mounts.
    pub mounts: Vec<Mount>,
    /// Its host name, in its own UTS namespace.
    pub hostname: Option<String>,
    /// Capabilities of its processes.
    pub capabilities: Option<CapabilitySets>,
    /// Limits of its processes.
    pub rlimits: Vec<RLimit>,
    /// Filters of its system calls: BPF programs, in the byte order of the host.
    pub seccomp: Vec<Vec<u8>>,
    /// A network of its own. Needs mounts of its own.
    pub network: Option<ContainerNetwork>,
}

impl LaunchPlan {
    /// Adds the plan of another isolator. Of single values the later one wins.
    pub fn merge(&mut self, other: Self) {
        self.cgroups.extend(other.cgroups);
        self.process_cgroup = other.process_cgroup.or(self.process_cgroup.take());
        let (own, more) = (&mut self.namespaces, other.namespaces);
        own.pid |= more.pid;
        own.ipc |= more.ipc;
        own.mount |= more.mount;
        own.uts |= more.uts;
        self.shm_bytes = other.shm_bytes.or(self.shm_bytes);
        self.environment.extend(other.environment);
        self.oom_score_adj = other.oom_score_adj.or(self.oom_score_adj);
        self.no_new_privileges |= other.no_new_privileges;
        self.root = other.root.or(self.root.take());
        self.is_privileged |= other.is_privileged;
        self.working_directory = other.working_directory.or(self.working_directory.take());
        self.mounts.extend(other.mounts);
        self.hostname = other.hostname.or(self.hostname.take());
        self.capabilities = other.capabilities.or(self.capabilities);
        self.rlimits.extend(other.rlimits);
        self.seccomp.extend(other.seccomp);
        self.network = other.network.or(self.network.take());
    }
}

/// A limit that a container has exceeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limitation {
    /// The resource with its limit, for example `mem:96`.
    pub resources: Resources,
    /// For the status of its tasks.
    pub reason: Reason,
    /// The exceeded limit and the use, with figures.
    pub message: String,
}

/// The first message: the containers that run since an earlier agent process. The isolator removes
/// the remains of all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoverContainers {
    /// The running containers.
    pub containers: Vec<ContainerConfig>,
    /// The actor to which exceeded limits are sent.
    pub containerizer: Pid,
}

/// Make everything ready for a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareContainer {
    /// The container.
    pub config: ContainerConfig,
}

/// Set new limits for a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateContainer {
    /// The container.
    pub container_id: ContainerId,
    /// Its requests and limits from now on.
    pub resources: ContainerResources,
}

/// Measure these containers. One that cannot be measured is absent in the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureContainers {
    /// The containers.
    pub containers: Vec<ContainerId>,
}

/// Remove everything of a container whose processes have ended. Also sent for one whose
/// preparation failed in a later isolator. The reply is the limit that it had exceeded, if any; it
/// does not wait for the removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanUpContainer {
    /// The container.
    pub container_id: ContainerId,
}

/// To the agent: a container has exceeded a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerLimited {
    /// The container.
    pub container_id: ContainerId,
    /// The limit.
    pub limitation: Limitation,
}

/// To the agent, at the recovery: a container has this network of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecovered {
    /// The container.
    pub container_id: ContainerId,
    /// The network.
    pub network: ContainerNetwork,
}

/// Measurements by container.
pub type Measured = BTreeMap<ContainerId, ResourceStatistics>;

remote! { RecoverContainers = "isolator/recover_containers" v1 -> Result<(), Fault> }
remote! { PrepareContainer = "isolator/prepare_container" v1 -> Result<LaunchPlan, Fault> }
remote! { UpdateContainer = "isolator/update_container" v1 -> Result<(), Fault> }
remote! { MeasureContainers = "isolator/measure_containers" v1 -> Result<Measured, Fault> }
remote! { CleanUpContainer = "isolator/clean_up_container" v1 -> Result<Option<Limitation>, Fault> }
remote! { ContainerLimited = "isolator/container_limited" v1 }
remote! { NetworkRecovered = "isolator/network_recovered" v1 }

/// The agent's handle of an isolator.
#[derive(Clone, Debug)]
pub struct IsolatorRef {
    actor: ActorRef,
}

impl IsolatorRef {
    /// Timeout of each request. Generous, since a machine under memory pressure is slow.
    pub const PATIENCE: Duration = Duration::from_secs(60);
    /// Timeout of a measurement, shorter: pages of usage wait for it, and go on without it.
    pub const MEASURE_PATIENCE: Duration = Duration::from_secs(5);

    /// A handle of the isolator behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self { actor }
    }

    /// The isolator's address.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Names the running containers. Everything else is removed.
    pub async fn recover(&self, recover: RecoverContainers) -> Result<(), ModuleError> {
        flatten_reply(self.actor.ask(recover, Self::PATIENCE).await)
    }

    /// Makes everything ready for a container.
    pub async fn prepare(&self, config: ContainerConfig) -> Result<LaunchPlan, ModuleError> {
        flatten_reply(
            self.actor
                .ask(PrepareContainer { config }, Self::PATIENCE)
                .await,
        )
    }

    /// Sets new limits for a container.
    pub async fn update(&self, update: UpdateContainer) -> Result<(), ModuleError> {
        flatten_reply(self.actor.ask(update, Self::PATIENCE).await)
    }

    /// Measures containers.
    pub async fn measure(&self, containers: Vec<ContainerId>) -> Result<Measured, ModuleError> {
        let measure = MeasureContainers { containers };
        flatten_reply(self.actor.ask(measure, Self::MEASURE_PATIENCE).await)
    }

    /// Removes everything of a container. Returns the limit that it had exceeded, if any.
    pub async fn clean_up(
        &self,
        container_id: ContainerId,
    ) -> Result<Option<Limitation>, ModuleError> {
        let clean_up = CleanUpContainer { container_id };
        flatten_reply(self.actor.ask(clean_up, Self::PATIENCE).await)
    }
}

fn flatten_reply<T>(answer: Result<Result<T, Fault>, runtime::AskError>) -> Result<T, ModuleError> {
    answer
        .map_err(|error| ModuleError::of_ask(KIND, error))?
        .map_err(|fault| ModuleError::Fault { kind: KIND, fault })
}

#[cfg(test)]
mod tests {
    use runtime::prelude::*;
    use runtime::testing::simulate;

    use super::*;

    /// Keeps its callers waiting.
    #[derive(Default)]
    struct Silent(Vec<Promise<Result<Measured, Fault>>>);

    impl Actor for Silent {
        type Context = Context<Self>;
    }

    impl Process for Silent {
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept_local::<MeasureContainers>();
        }
    }

    impl Handler<MeasureContainers> for Silent {
        type Result = Reply<Result<Measured, Fault>>;
        fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
            let (promise, reply) = promise();
            self.0.push(promise);
            reply
        }
    }

    #[test]
    fn slow_measurement_is_late_after_five_seconds() {
        simulate(|node| async move {
            let silent = node.spawn("silent", Silent::default()).unwrap();
            let isolator = IsolatorRef::new(silent.refer());
            let asked = node.clock().now();
            let late = isolator.measure(Vec::new()).await;
            assert!(matches!(late, Err(ModuleError::Late { .. })), "{late:?}");
            assert_eq!((node.clock().now() - asked).as_secs(), 5);
        });
    }

    #[test]
    fn plans_of_several_isolators_add_up() {
        let mut plan = LaunchPlan {
            cgroups: vec!["/cpu/c".into()],
            process_cgroup: Some("/unified/c/p".into()),
            oom_score_adj: Some(1),
            ..LaunchPlan::default()
        };
        plan.merge(LaunchPlan {
            cgroups: vec!["/memory/c".into()],
            namespaces: Namespaces {
                pid: true,
                ..Namespaces::default()
            },
            oom_score_adj: Some(2),
            ..LaunchPlan::default()
        });
        let paths: Vec<PathBuf> = vec!["/cpu/c".into(), "/memory/c".into()];
        assert_eq!(plan.cgroups, paths);
        assert_eq!(plan.process_cgroup, Some("/unified/c/p".into()));
        assert!(plan.namespaces.pid && !plan.namespaces.ipc);
        assert_eq!(plan.oom_score_adj, Some(2));
    }
}
