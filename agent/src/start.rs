//! Starting an agent: its work directory is locked, then its actors are started, each knowing those it speaks to.
//!
//! Those that remember nothing (monitor, oversubscription, QoS) are made anew when they fall. The others (agent, containerizer, status
//! updates, operations, ledger) know together what runs here and what of it is on the disk; one that began anew would contradict the rest.
//! If one of them falls the agent ends as [`AgentEnd::Broken`] and its process with it, which harms no executor that outlives it, and the
//! next process puts all of them together from what is kept.
//!
//! The roof makes the node, the launcher and the modules; nothing here opens a socket or names a concrete module.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use module_api::qos_controller::QosControllerRef;
use module_api::resource_estimator::ResourceEstimatorRef;
use module_api::usage::CurrentUsage;
use protocol::{ResourceUsage, Uuid};
use runtime::SpawnError;
use runtime::prelude::*;

use crate::agent::{Agent, AgentEnd, AgentState, DescribeAgent, GoAway, Leave, WhenEnded};
use crate::config::{Config, Settings};
use crate::container::Containerizer;
use crate::container::callers::{NotHeard, Prove, Speak, SubscribeStream};
use crate::container::events::{DiskWatched, Survey, TakeSurvey};
use crate::container::volumes::VolumesOf;
use crate::disk::{CountRemovals, DiskFigures, DiskWatch, leftovers};
use crate::launcher::Launcher;
use crate::ledger::book::{self, Book};
use crate::ledger::reconfiguration::Incompatible;
use crate::ledger::{AllWritten, Ledger};
use crate::metrics;
use crate::monitor::{Monitor, Sampler, proc_sampler};
use crate::operations::checkpoint::{self, Keeper, OpenStore};
use crate::operations::held::Held;
use crate::operations::volumes::Mount;
use crate::operations::{KnownOperation, ListOperations, Operations};
use crate::oversubscription::Oversubscription;
use crate::qos::Qos;
use crate::recovery::recover;
use crate::sandbox;
use crate::sandboxes::{Directories, Sandboxes};
use crate::status::{StatusUpdates, Waiting};

/// How long pages wait for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);
/// An actor that remembers nothing is made anew as often as it falls: what it does is worth less than the agent, and more than nothing.
const MADE_ANEW: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};

/// What advises the agent.
pub struct Modules {
    /// What may be lent.
    pub resource_estimator: ResourceEstimatorRef,
    /// Who must yield.
    pub qos_controller: QosControllerRef,
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another agent has the work directory.
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
        /// The system's answer.
        source: io::Error,
    },
    /// What an earlier process of the agent has kept cannot be read, or does not fit the agent any more.
    #[error(
        "the resources kept in `{directory}` cannot be used: {problem}; restore that directory, or move it away to go on without the reservations and volumes in it"
    )]
    Checkpoint {
        /// Where.
        directory: String,
        /// What is wrong.
        problem: String,
    },
    /// What an earlier process of the agent has kept of its executors cannot be read, or not all of it.
    #[error(
        "what an earlier process of this agent has kept of its executors in `{directory}` cannot be read: {problem}; let it go on without that with --strict=false, or end what runs and set it aside with --recover=cleanup"
    )]
    Ledger {
        /// Where.
        directory: String,
        /// What is wrong.
        problem: String,
    },
    /// The executors that still run are not this agent's.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// The node does not take its actors.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// The right to use a work directory. Ends with its owner, however that ends.
pub struct WorkDir {
    path: PathBuf,
    sandboxes: Arc<dyn Sandboxes>,
    holding: Holding,
}

/// What makes it the owner's alone.
enum Holding {
    /// A locked file in it.
    Locked(#[expect(dead_code, reason = "the lock ends with the file")] File),
    /// It is on no disk of this machine, and this opens the store on the simulated one.
    Rehearsed {
        operations: OpenStore,
        executors: Option<RehearsedBook>,
    },
}

/// Where a simulated machine keeps what outlives its agent.
struct RehearsedBook {
    open: OpenStore,
    boot: String,
}

impl std::fmt::Debug for WorkDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkDir({})", self.path.display())
    }
}

impl WorkDir {
    /// Makes the directory if it is missing, and locks it. Comes before a launcher is started there.
    pub fn lock(path: &Path) -> Result<Self, StartError> {
        let work_dir = || path.display().to_string();
        let unusable = |source| StartError::WorkDir {
            work_dir: work_dir(),
            source,
        };
        sandbox::make_way(path).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("agent.lock"));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {
                book::close_to_others(path).map_err(unusable)?;
                close_ways(path).map_err(unusable)?;
                Ok(Self {
                    path: path.to_owned(),
                    sandboxes: Arc::new(Directories::default()),
                    holding: Holding::Locked(lock),
                })
            }
            Err(TryLockError::WouldBlock) => Err(StartError::WorkDirInUse {
                work_dir: work_dir(),
            }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Whether nothing of this agent, or of one before it, runs any more.
    pub fn is_over(path: &Path) -> bool {
        crate::zygote::is_over(path)
    }

    /// A work directory that is on no disk of this machine: sandboxes are made as `sandboxes` will have it, what outlives the agent is
    /// in the store that `open` opens, and nothing is locked.
    pub fn rehearsed(path: &Path, sandboxes: Arc<dyn Sandboxes>, open: OpenStore) -> Self {
        Self {
            path: path.to_owned(),
            sandboxes,
            holding: Holding::Rehearsed {
                operations: open,
                executors: None,
            },
        }
    }

    /// The same work directory of a simulated machine, where executors outlive the agent: what the next process of it must know of them is
    /// in the store that `open` opens, and `boot` says which run of the machine this is. One that is on a real disk stays as it is.
    #[must_use]
    pub fn keeping_executors(mut self, open: OpenStore, boot: &str) -> Self {
        if let Holding::Rehearsed { executors, .. } = &mut self.holding {
            *executors = Some(RehearsedBook {
                open,
                boot: boot.to_owned(),
            });
        }
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its sandboxes are on a disk of this machine.
    fn is_on_disk(&self) -> bool {
        matches!(self.holding, Holding::Locked(_))
    }

    /// The book of what outlives the agent; `None` if nothing does.
    pub(crate) fn book(&self, settings: &Settings) -> Option<Book> {
        let book = match &self.holding {
            Holding::Locked(_) => Some(Book::on_disk(&self.path)),
            Holding::Rehearsed { executors, .. } => {
                let executors = executors.as_ref();
                executors.map(|executors| Book::rehearsed(executors.open.clone()))
            }
        };
        book.filter(|_| settings.executors_outlive)
    }

    /// Which run of the machine this is, as a simulated one says it; `None` if the kernel says it.
    pub(crate) fn boot(&self) -> Option<&str> {
        match &self.holding {
            Holding::Locked(_) => None,
            Holding::Rehearsed { executors, .. } => {
                executors.as_ref().map(|executors| &*executors.boot)
            }
        }
    }

    fn keeper(&self) -> Keeper {
        match &self.holding {
            Holding::Locked(_) => Keeper::on_disk(&self.path),
            Holding::Rehearsed { operations, .. } => Keeper::rehearsed(operations.clone()),
        }
    }
}

/// Makes the directories of sandboxes and volumes unlistable for other users, those of an earlier version too. The work directory itself has the mode
/// that it was made with: it may be the operator's, with other things in it.
fn close_ways(work_dir: &Path) -> io::Result<()> {
    for name in ["slaves", "volumes"] {
        let way = work_dir.join(name);
        if way.is_dir() {
            std::fs::set_permissions(&way, Permissions::from_mode(sandbox::WAY_MODE))?;
        }
    }
    Ok(())
}

/// An agent that has been started.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its own actor, named `agent`.
    pub agent: Handle<Agent>,
    containerizer: Handle<Containerizer>,
    status: Handle<StatusUpdates>,
    ledger: Option<Handle<Ledger>>,
    operations: Handle<Operations>,
    disk: Option<Handle<DiskWatch>>,
    monitor: Handle<Monitor>,
    config: Arc<Config>,
    _work_dir: Arc<WorkDir>,
}

/// Starts an agent's actors on `node`. It registers by itself; the work directory is its own until `Started` is dropped.
pub fn start(
    node: &Node,
    config: Config,
    work_dir: WorkDir,
    launcher: Box<dyn Launcher>,
    modules: Modules,
) -> Result<Started, StartError> {
    start_with(node, config, work_dir, launcher, modules, proc_sampler())
}

/// The same with another look at processes than /proc.
pub fn start_with(
    node: &Node,
    mut config: Config,
    work_dir: WorkDir,
    mut launcher: Box<dyn Launcher>,
    modules: Modules,
    sampler: Sampler,
) -> Result<Started, StartError> {
    let settings = config.settings().clone();
    let mut keeper = work_dir.keeper();
    let unusable = |problem: String| StartError::Checkpoint {
        directory: checkpoint::directory(&work_dir.path).display().to_string(),
        problem,
    };
    let checkpoint = keeper.read().map_err(|error| unusable(error.to_string()))?;
    let version = Uuid(node.fresh_uuid());
    let (described, now) = (&config.info().resources, node.clock().now());
    let held = Held::recovered(described, checkpoint, version, now)
        .map_err(|invalid| unusable(invalid.to_string()))?;
    let recovered = recover(&work_dir, &config, launcher.left())?;
    config.info.id = recovered.agent_id();
    let ledger = match recovered.book {
        Some(book) => Some(node.spawn("ledger", Ledger::new(book))?),
        None => None,
    };
    let (mut plan, boot) = (recovered.plan, recovered.boot);
    let status = match &ledger {
        Some(ledger) => {
            let updates = std::mem::take(&mut plan.updates);
            StatusUpdates::keeping(ledger.clone(), updates, now)
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
    let live = recovered_ids.chain(&plan.strangers).cloned().collect();
    let mut containerizer = containerizer.keeping(ledger.clone(), boot, plan);
    containerizer.counts.recovery_errors = recovered.errors;
    let containerizer = node.spawn("containerizer", containerizer)?;
    let disk = match work_dir.is_on_disk() {
        true => {
            // Before anything new is started, or its sandbox would be taken for a leftover.
            let found = leftovers::find(&work_dir.path, &live, node.clock().wall());
            let (sandboxes, in_use) = (work_dir.sandboxes.clone(), containerizer.clone());
            let disk = node.spawn("disk", DiskWatch::new(&config, sandboxes, in_use, found))?;
            containerizer.tell_always(DiskWatched(disk.clone()));
            Some(disk)
        }
        false => None,
    };
    let operations = Operations::new(held, keeper, containerizer.clone());
    let operations = node.spawn("operations", operations)?;
    let total = config.info().resources.clone();
    let measured = containerizer.clone();
    let monitor = node.supervise("monitor", MADE_ANEW, move || {
        Monitor::new(total.clone(), measured.clone(), sampler.clone())
    })?;
    // By its name, so that modules find whichever of its lives there is.
    let by_name = node.refer(Pid::new("monitor", node.id().clone(), 0));
    let agent = Agent::new(
        config.clone(),
        containerizer.clone(),
        status.clone(),
        operations.clone(),
        work_dir.sandboxes.clone(),
        node.rng(),
    );
    let agent = agent.keeping(ledger.clone()).watching(disk.clone());
    let agent = node.spawn("agent", agent)?;
    let (estimator, usage) = (modules.resource_estimator, by_name.clone());
    let (lent_to, told) = (containerizer.clone(), agent.clone());
    let interval = settings.oversubscribed_resources_interval;
    node.supervise("oversubscription", MADE_ANEW, move || {
        let (estimator, usage) = (estimator.clone(), usage.clone());
        Oversubscription::new(estimator, usage, lent_to.clone(), told.clone(), interval)
    })?;
    let (controller, usage) = (modules.qos_controller, by_name);
    let (corrected, interval) = (containerizer.clone(), settings.qos_correction_interval_min);
    node.supervise("qos", MADE_ANEW, move || {
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
        config: Arc::new(config),
        _work_dir: Arc::new(work_dir),
    })
}

impl Started {
    /// Waits for the agent's end, and until all is on the disk that it has to say to its next process.
    pub async fn ended(&self) -> AgentEnd {
        let asked = self.agent.ask(WhenEnded, Patience::WhileLinked).await;
        let end = asked.unwrap_or_else(|error| AgentEnd::Broken {
            name: "agent".into(),
            reason: error.to_string(),
        });
        if let Some(ledger) = &self.ledger {
            // What it was told before this is done when it answers, the end of everything included.
            let _ = self.survey().await;
            let _ = ledger.ask(AllWritten, PATIENCE).await;
        }
        end
    }

    /// Stops: executors that outlive it wait for it to be started again. If there are none, it leaves.
    pub fn go_away(&self) {
        if let Err(error) = self.agent.tell(GoAway) {
            tracing::warn!(%error, "the agent does not hear that it should stop");
        }
    }

    /// Leaves the master for good and kills everything (SIGUSR1).
    pub fn leave(&self) {
        if let Err(error) = self.agent.tell(Leave) {
            tracing::warn!(%error, "the agent does not hear that it should leave");
        }
    }

    /// How the agent is; an error when it does not answer in time.
    pub async fn state(&self) -> Result<AgentState, AskError> {
        self.agent.ask(DescribeAgent, PATIENCE).await
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// An executor that speaks HTTP subscribes.
    pub async fn subscribe_stream(
        &self,
        subscribe: SubscribeStream,
    ) -> Result<Result<(), NotHeard>, AskError> {
        self.containerizer.ask(subscribe, PATIENCE).await
    }

    /// Whether what an executor proves itself by is right, or none is needed.
    pub async fn prove(&self, prove: Prove) -> Result<Result<(), NotHeard>, AskError> {
        self.containerizer.ask(prove, PATIENCE).await
    }

    /// An executor that speaks HTTP says something.
    pub async fn speak(&self, speak: Speak) -> Result<Result<(), NotHeard>, AskError> {
        self.containerizer.ask(speak, PATIENCE).await
    }

    /// How its containers are.
    pub async fn survey(&self) -> Result<Survey, AskError> {
        self.containerizer.ask(TakeSurvey, PATIENCE).await
    }

    /// The volumes of one run of an executor.
    pub(crate) async fn volumes(&self, of: VolumesOf) -> Result<Vec<Mount>, AskError> {
        self.containerizer.ask(of, PATIENCE).await
    }

    /// The named operations that it knows of.
    pub(crate) async fn operations(&self) -> Result<Vec<KnownOperation>, AskError> {
        self.operations.ask(ListOperations, PATIENCE).await
    }

    /// What its containers use.
    pub async fn usage(&self) -> Result<ResourceUsage, String> {
        let answer = self
            .monitor
            .ask(CurrentUsage, PATIENCE)
            .await
            .map_err(|error| error.to_string())?;
        answer.map_err(|error| error.to_string())
    }

    /// Its counters under Mesos' names (SPEC 5.11); `None` when it does not answer in time.
    pub async fn counters(&self) -> Option<BTreeMap<String, f64>> {
        let (state, survey) = (self.state().await.ok()?, self.survey().await.ok()?);
        let mut figures = state.figures;
        figures.updates_waiting = self.status.ask(Waiting, PATIENCE).await.ok()?;
        figures.disk = match &self.disk {
            Some(disk) => disk.ask(CountRemovals, PATIENCE).await.ok()?,
            None => DiskFigures::default(),
        };
        Some(metrics::snapshot(&figures, &survey))
    }
}
