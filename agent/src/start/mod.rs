//! Starts an agent: locks its work directory and spawns its actors.
//!
//! Stateless actors (monitor, oversubscription, QoS) are restarted when they panic. The others
//! (agent, containerizer, status updates, operations, ledger, disk watch) share the state of the
//! containers and the disk, and one restarted alone would contradict the rest. If one of them
//! panics, the agent ends as [`AgentEnd::ActorFailed`] together with its process. Checkpointed
//! executors live on, and the next process recovers everything from the disk.
//!
//! The binary creates the node, the launcher and the modules; this crate opens no socket and names
//! no concrete module.

pub mod config;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use authority::Subject;
use module_api::isolator::IsolatorRef;
use module_api::qos_controller::QosControllerRef;
use module_api::resource_estimator::ResourceEstimatorRef;
use module_api::usage::CurrentUsage;
use protocol::view::oversubscription::OversubscriptionView;
use protocol::{ResourceUsage, Uuid};
use runtime::SpawnError;
use runtime::prelude::*;

use crate::agent::{
    Agent, AgentEnd, AgentState, DescribeAgent, DescribeOversubscription, Leave, StopAgent,
    WhenEnded,
};
use crate::config::{Config, Settings};
use crate::container::Containerizer;
use crate::container::events::{ContainersView, DiskWatched, HasNothingLeft, TakeSurvey};
use crate::container::http_executors::{CallRejected, CheckToken, ExecutorCalled, SubscribeStream};
use crate::container::nested::requested::KillNested;
use crate::container::volumes::VolumesOf;
use crate::images::containers::Provisioner;
use crate::launcher::Launcher;
use crate::ledger::misfits::misfits;
use crate::ledger::reconfiguration::{Incompatible, ReconfigurationPolicy};
use crate::ledger::recovery::recover;
use crate::ledger::store::{self, CheckpointStore};
use crate::ledger::{FlushLedger, Ledger};
use crate::metrics;
use crate::operations::checkpoint::{self, OpenStore, OperationStore};
use crate::operations::resource_state::ResourceState;
use crate::operations::volumes::{Mount, mounted_disk};
use crate::operations::{KnownOperation, ListOperations, Operations};
use crate::oversubscription::monitor::{MeasuredUse, Monitor, RecentUse, Sampler, proc_sampler};
use crate::oversubscription::qos::Qos;
use crate::oversubscription::trace::Recorder;
use crate::oversubscription::{Lending, Oversubscription};
use crate::sandbox;
use crate::sandbox::disk::{CountRemovals, DiskMetrics, DiskWatch, leftovers};
use crate::sandbox::kept::{Directories, Sandboxes};
use crate::status::{CountUnacknowledged, StatusUpdates};

/// How long pages wait for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bounds only what never ends.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A stateless actor is restarted without limit.
const RESTART_ALWAYS: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};

/// The agent's modules.
pub struct Modules {
    /// Estimates the resources that can be lent.
    pub resource_estimator: ResourceEstimatorRef,
    /// Decides which revocable tasks must give way.
    pub qos_controller: QosControllerRef,
    /// Limit what containers can use and see, in the order of their preparation.
    pub isolators: Vec<IsolatorRef>,
    /// Gives containers the root file systems of images; `None` if there are no images here.
    pub provisioner: Option<Provisioner>,
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another agent uses the work directory.
    #[error(
        "--work_dir `{work_dir}` is in use by another agent: give each agent a directory of its own"
    )]
    WorkDirInUse {
        /// The directory.
        work_dir: String,
    },
    /// The work directory cannot be used.
    #[error("--work_dir `{work_dir}` cannot be used: {source}")]
    WorkDir {
        /// The directory.
        work_dir: String,
        /// The system error.
        source: io::Error,
    },
    /// The checkpoint of operations cannot be read, or does not fit the agent's resources.
    #[error(
        "the operations checkpoint in `{directory}` cannot be used: {problem}; restore that directory, or move it away to drop its reservations and volumes"
    )]
    Checkpoint {
        /// Its directory.
        directory: String,
        /// The problem.
        problem: String,
    },
    /// The checkpoints of executors cannot be read, at least not completely.
    #[error(
        "the executor checkpoints in `{directory}` cannot be read: {problem}; skip unreadable records with --strict=false, or kill all executors and set the checkpoints aside with --recover=cleanup"
    )]
    Ledger {
        /// Their directory.
        directory: String,
        /// The problem.
        problem: String,
    },
    /// The running executors belong to an agent with another description.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// The node does not accept the actors.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// A locked work directory. Released when dropped.
pub struct WorkDir {
    path: PathBuf,
    sandboxes: Arc<dyn Sandboxes>,
    backing: Backing,
}

/// Makes the directory exclusive.
enum Backing {
    /// A locked file in it.
    Locked(#[expect(dead_code, reason = "the lock ends with the file")] File),
    /// A simulated disk.
    Simulated {
        operations: OpenStore,
        executors: Option<SimulatedCheckpoints>,
    },
}

/// The checkpoint store of a simulated machine.
struct SimulatedCheckpoints {
    open: OpenStore,
    boot: String,
}

impl std::fmt::Debug for WorkDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkDir({})", self.path.display())
    }
}

impl WorkDir {
    /// Creates the directory if missing, and locks it. Must precede the start of a launcher there.
    pub fn lock(path: &Path) -> Result<Self, StartError> {
        let work_dir = || path.display().to_string();
        let unusable = |source| StartError::WorkDir {
            work_dir: work_dir(),
            source,
        };
        sandbox::create_with_parents(path).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("agent.lock"));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {
                store::restrict_access(path).map_err(unusable)?;
                restrict_parents(path).map_err(unusable)?;
                Ok(Self {
                    path: path.to_owned(),
                    sandboxes: Arc::new(Directories::default()),
                    backing: Backing::Locked(lock),
                })
            }
            Err(TryLockError::WouldBlock) => Err(StartError::WorkDirInUse {
                work_dir: work_dir(),
            }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Whether no process of this agent or an earlier one runs any more.
    pub fn is_over(path: &Path) -> bool {
        crate::zygote::is_over(path)
    }

    /// A simulated work directory, without a lock: sandboxes are created by `sandboxes`, operations
    /// are stored in the store that `open` opens.
    pub fn simulated(path: &Path, sandboxes: Arc<dyn Sandboxes>, open: OpenStore) -> Self {
        Self {
            path: path.to_owned(),
            sandboxes,
            backing: Backing::Simulated {
                operations: open,
                executors: None,
            },
        }
    }

    /// Adds checkpointing of executors to a simulated work directory: in the store that `open`
    /// opens, with the boot id `boot`. No effect on a real one.
    #[must_use]
    pub fn with_executor_checkpoints(mut self, open: OpenStore, boot: &str) -> Self {
        if let Backing::Simulated { executors, .. } = &mut self.backing {
            *executors = Some(SimulatedCheckpoints {
                open,
                boot: boot.to_owned(),
            });
        }
        self
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its sandboxes are on a disk of this machine.
    fn is_on_disk(&self) -> bool {
        matches!(self.backing, Backing::Locked(_))
    }

    /// The checkpoint store; `None` if checkpointing is off.
    pub(crate) fn checkpoint_store(&self, settings: &Settings) -> Option<CheckpointStore> {
        let store = match &self.backing {
            Backing::Locked(_) => Some(CheckpointStore::on_disk(&self.path)),
            Backing::Simulated { executors, .. } => {
                let executors = executors.as_ref();
                executors.map(|executors| CheckpointStore::simulated(executors.open.clone()))
            }
        };
        store.filter(|_| settings.checkpoint_executors)
    }

    /// A simulated machine's boot id; `None` for a real one.
    pub(crate) fn boot(&self) -> Option<&str> {
        match &self.backing {
            Backing::Locked(_) => None,
            Backing::Simulated { executors, .. } => {
                executors.as_ref().map(|executors| &*executors.boot)
            }
        }
    }

    fn operation_store(&self) -> OperationStore {
        match &self.backing {
            Backing::Locked(_) => OperationStore::on_disk(&self.path),
            Backing::Simulated { operations, .. } => OperationStore::simulated(operations.clone()),
        }
    }
}

/// Makes the directories of sandboxes and volumes unlistable for other users, also those of earlier
/// versions. The work directory keeps its mode: it may be shared with other uses.
fn restrict_parents(work_dir: &Path) -> io::Result<()> {
    for name in ["slaves", "volumes"] {
        let way = work_dir.join(name);
        if way.is_dir() {
            std::fs::set_permissions(&way, Permissions::from_mode(sandbox::PARENT_MODE))?;
        }
    }
    Ok(())
}

/// A running agent.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its main actor, named `agent`.
    pub agent: Handle<Agent>,
    containerizer: Handle<Containerizer>,
    status: Handle<StatusUpdates>,
    ledger: Option<Handle<Ledger>>,
    operations: Handle<Operations>,
    disk: Option<Handle<DiskWatch>>,
    monitor: Handle<Monitor>,
    provisioner: Option<Provisioner>,
    config: Arc<Config>,
    _work_dir: Arc<WorkDir>,
}

/// Starts an agent's actors on `node`. It registers by itself; the work directory stays locked
/// until `Started` is dropped.
pub fn start(
    node: &Node,
    config: Config,
    work_dir: WorkDir,
    launcher: Box<dyn Launcher>,
    modules: Modules,
) -> Result<Started, StartError> {
    start_with(node, config, work_dir, launcher, modules, proc_sampler())
}

/// Likewise, with another process sampler than /proc.
pub fn start_with(
    node: &Node,
    mut config: Config,
    work_dir: WorkDir,
    mut launcher: Box<dyn Launcher>,
    modules: Modules,
    sampler: Sampler,
) -> Result<Started, StartError> {
    let settings = config.settings().clone();
    let mut store = work_dir.operation_store();
    let unusable = |problem: String| StartError::Checkpoint {
        directory: checkpoint::directory(&work_dir.path).display().to_string(),
        problem,
    };
    let checkpoint = store.read().map_err(|error| unusable(error.to_string()))?;
    let reserved = checkpoint.made.without_operations();
    let missing = reserved.saturating_sub(&config.info().resources);
    if settings.reconfiguration_policy == ReconfigurationPolicy::Any && !missing.is_empty() {
        tracing::warn!(
            missing = %missing.brief(),
            reserved = %reserved.brief(),
            "reservations and volumes exceed --resources; they are kept, and this agent has more resources than configured"
        );
        // A whole disk of another size is the same disk.
        let disks: Vec<_> = missing.iter().filter_map(mounted_disk).collect();
        let is_other =
            |one: &resources::Resource| mounted_disk(one).is_none_or(|own| !disks.contains(&own));
        config.info.resources = config.info.resources.filter(is_other);
        config.info.resources += &missing;
    }
    let version = Uuid(node.fresh_uuid());
    let (described, now) = (&config.info().resources, node.clock().now());
    let resource_state = ResourceState::recovered(described, checkpoint, version, now)
        .map_err(|invalid| unusable(invalid.to_string()))?;
    let recovered = recover(&work_dir, &config, launcher.left())?;
    config.info.id = recovered.agent_id();
    let ledger = match recovered.store {
        Some(store) => Some(node.spawn("ledger", Ledger::new(store))?),
        None => None,
    };
    let (mut plan, boot) = (recovered.plan, recovered.boot);
    for misfit in misfits(resource_state.total(), &plan.containers) {
        tracing::warn!(
            user = %misfit.user,
            resources = %misfit.resources.brief(),
            missing = %misfit.missing.brief(),
            "recovered task exceeds the resources of this agent; it keeps running"
        );
    }
    let status = match &ledger {
        Some(ledger) => {
            let updates = std::mem::take(&mut plan.updates);
            StatusUpdates::with_ledger(ledger.clone(), updates, now)
        }
        None => StatusUpdates::default(),
    };
    let status = node.spawn("status_updates", status)?;
    let containerizer = Containerizer::new(
        config.clone(),
        launcher,
        work_dir.sandboxes.clone(),
        status.clone(),
    );
    let recovered_ids = plan.containers.iter().map(|(id, ..)| id);
    let live = recovered_ids.chain(&plan.unknown).cloned().collect();
    let isolators = modules.isolators;
    let has_isolators = !isolators.is_empty();
    let provisioned = modules.provisioner.as_ref();
    let provisioned = provisioned.map_or_else(Vec::new, |one| one.recover(&live));
    let provisioner = modules.provisioner;
    let containerizer = containerizer.with_provisioner(provisioner.clone(), provisioned);
    let containerizer = containerizer.with_isolators(isolators.clone());
    let mut containerizer = containerizer.with_ledger(ledger.clone(), boot, plan);
    containerizer.counts.recovery_errors = recovered.errors;
    let containerizer = node.spawn("containerizer", containerizer)?;
    let disk = match work_dir.is_on_disk() {
        true => {
            // Before any launch, so that new sandboxes are not taken for leftovers.
            let found = leftovers::find(&work_dir.path, &live, node.clock().wall());
            let (sandboxes, in_use) = (work_dir.sandboxes.clone(), containerizer.clone());
            let disk = node.spawn("disk", DiskWatch::new(&config, sandboxes, in_use, found))?;
            containerizer.tell_always(DiskWatched(disk.clone()));
            Some(disk)
        }
        false => None,
    };
    let operations = Operations::new(resource_state, store, containerizer.clone());
    let operations = node.spawn("operations", operations)?;
    let (measured, totals) = (containerizer.clone(), operations.clone());
    let monitor = node.supervise("monitor", RESTART_ALWAYS, move || {
        let sampler = sampler.clone();
        Monitor::new(measured.clone(), totals.clone(), sampler, isolators.clone())
    })?;
    // By name, so that modules reach the monitor after a restart too.
    let by_name = node.refer(Pid::new("monitor", node.id().clone(), 0));
    let agent = Agent::new(
        config.clone(),
        containerizer.clone(),
        status.clone(),
        operations.clone(),
        work_dir.sandboxes.clone(),
        node.rng(),
    );
    let agent = agent
        .with_ledger(ledger.clone())
        .with_isolators(has_isolators)
        .with_monitor(monitor.clone())
        .with_disk_watch(disk.clone());
    let agent = node.spawn("agent", agent)?;
    let (estimator, usage) = (modules.resource_estimator, by_name.clone());
    let (lent_to, told) = (containerizer.clone(), agent.clone());
    if let Some(file) = settings.record_usage.clone() {
        let usage = by_name.clone();
        node.supervise("recorder", RESTART_ALWAYS, move || {
            Recorder::new(usage.clone(), file.clone())
        })?;
    }
    let lending = Lending {
        total: config.info().resources.clone(),
        max: settings.oversubscription_max.clone(),
        interval: settings.oversubscribed_resources_interval,
    };
    node.supervise("oversubscription", RESTART_ALWAYS, move || {
        let (estimator, usage) = (estimator.clone(), usage.clone());
        let lending = lending.clone();
        Oversubscription::new(estimator, usage, lent_to.clone(), told.clone(), lending)
    })?;
    let (controller, usage) = (modules.qos_controller, by_name);
    let (corrected, interval) = (containerizer.clone(), settings.qos_correction_interval_min);
    node.supervise("qos", RESTART_ALWAYS, move || {
        let (controller, usage) = (controller.clone(), usage.clone());
        Qos::new(controller, usage, corrected.clone(), interval)
    })?;
    Ok(Started {
        agent,
        containerizer,
        status,
        ledger,
        operations,
        disk,
        monitor,
        provisioner,
        config: Arc::new(config),
        _work_dir: Arc::new(work_dir),
    })
}

impl Started {
    /// Waits for the agent's end and for pending checkpoint writes.
    pub async fn ended(&self) -> AgentEnd {
        let asked = self.agent.ask(WhenEnded, Patience::WhileLinked).await;
        let end = asked.unwrap_or_else(|error| AgentEnd::ActorFailed {
            name: "agent".into(),
            reason: error.to_string(),
        });
        if let Some(ledger) = &self.ledger {
            // The answer implies that earlier messages are handled, including `ShutDownAll`.
            let _ = self.survey().await;
            let _ = ledger.ask(FlushLedger, PATIENCE).await;
        }
        end
    }

    /// Stops for a restart under the same id (SIGTERM). Kills executors without a checkpoint.
    pub fn stop(&self) {
        if let Err(error) = self.agent.tell(StopAgent) {
            tracing::warn!(%error, "cannot send the stop order to the agent");
        }
    }

    /// Unregisters for good and kills all executors (SIGUSR1).
    pub fn leave(&self) {
        if let Err(error) = self.agent.tell(Leave) {
            tracing::warn!(%error, "cannot send the leave order to the agent");
        }
    }

    /// The agent's state; an error if it does not answer in time.
    pub async fn state(&self) -> Result<AgentState, AskError> {
        self.agent.ask(DescribeAgent, PATIENCE).await
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Subscribes an HTTP executor.
    pub async fn subscribe_stream(
        &self,
        subscribe: SubscribeStream,
    ) -> Result<Result<(), CallRejected>, AskError> {
        self.containerizer.ask(subscribe, PATIENCE).await
    }

    /// Checks an HTTP executor's token.
    pub async fn check_token(
        &self,
        check_token: CheckToken,
    ) -> Result<Result<(), CallRejected>, AskError> {
        self.containerizer.ask(check_token, PATIENCE).await
    }

    /// Handles a call of an HTTP executor.
    pub async fn executor_called(
        &self,
        executor_called: ExecutorCalled,
    ) -> Result<Result<(), CallRejected>, AskError> {
        self.containerizer.ask(executor_called, PATIENCE).await
    }

    /// Asks about nested containers. A launch takes as long as its files take, and a wait as long
    /// as the container lives.
    pub(crate) async fn nested<M>(&self, asked: M) -> Result<M::Result, AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send + 'static,
        Containerizer: Handler<M>,
    {
        self.containerizer.ask(asked, FOREVER).await
    }

    /// Kills a nested container.
    pub(crate) fn kill_nested(&self, kill: KillNested) {
        self.containerizer.tell_always(kill);
    }

    /// Whether all containers have ended and nothing is left that was made for them.
    pub async fn has_nothing_left(&self) -> bool {
        let asked = self.containerizer.ask(HasNothingLeft, PATIENCE).await;
        match asked {
            Ok(answer) => answer,
            Err(AskError::Gone) => true, // Nothing more is removed without a containerizer.
            Err(_) => false,
        }
    }

    /// Its containers.
    pub async fn survey(&self) -> Result<ContainersView, AskError> {
        self.containerizer.ask(TakeSurvey, PATIENCE).await
    }

    /// The volumes of an executor run.
    pub(crate) async fn volumes(&self, of: VolumesOf) -> Result<Vec<Mount>, AskError> {
        self.containerizer.ask(of, PATIENCE).await
    }

    /// The named operations that it knows.
    pub(crate) async fn operations(&self) -> Result<Vec<KnownOperation>, AskError> {
        self.operations.ask(ListOperations, PATIENCE).await
    }

    /// Removes all images that no container uses, except those with these names.
    pub(crate) async fn prune_images(&self, excluded: Vec<String>) -> Result<(), String> {
        match &self.provisioner {
            Some(provisioner) => provisioner.prune(excluded).await,
            // Without images there is nothing to remove.
            None => Ok(()),
        }
    }

    /// Resource usage of its containers.
    pub async fn usage(&self) -> Result<ResourceUsage, String> {
        let answer = self
            .monitor
            .ask(CurrentUsage, PATIENCE)
            .await
            .map_err(|error| error.to_string())?;
        answer.map_err(|error| error.to_string())
    }

    /// Its oversubscription, as far as this subject may see it.
    pub async fn oversubscription(&self, subject: Subject) -> Result<OversubscriptionView, String> {
        let asked = self.agent.ask(DescribeOversubscription(subject), PATIENCE);
        asked.await.map_err(|error| error.to_string())?
    }

    /// The use of its containers by a recent measurement, or by a new one if there is none.
    async fn measured(&self) -> Option<MeasuredUse> {
        let recent = || self.monitor.ask(RecentUse, PATIENCE);
        if let Some(measured) = recent().await.ok()? {
            return Some(measured);
        }
        self.usage().await.ok()?;
        recent().await.ok()?
    }

    /// Its metrics; `None` if it does not answer in time.
    pub async fn counters(&self) -> Option<BTreeMap<String, f64>> {
        let (state, survey) = (self.state().await.ok()?, self.survey().await.ok()?);
        let mut metrics = state.metrics;
        metrics.updates_waiting = self.status.ask(CountUnacknowledged, PATIENCE).await.ok()?;
        metrics.disk = match &self.disk {
            Some(disk) => disk.ask(CountRemovals, PATIENCE).await.ok()?,
            None => DiskMetrics::default(),
        };
        metrics.measured = self.measured().await;
        Some(metrics::snapshot(&metrics, &survey))
    }
}
