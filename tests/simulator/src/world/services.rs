//! The nodes of the simulation, assembled from the real parts like the real services.
//!
//! One function for each kind of node builds the node and its actors, and returns the main task of
//! its process, which ends with the service or after an ordered stop.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::agent::host::detect::Host;
use ::agent::{Launcher, Modules, Settings, WorkDir};
use ::master::registry::{Registry, RegistryMachine, ReplicatedRegistry};
use ::master::{Config, leadership};
use consensus::member::MemberHandle;
use consensus::store::StoredLog;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, select};
use module_api::{AllocatorRef, ModuleError, Parameters};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use runtime::{Clock, Node, Pid, Role};
use scheduler_driver::SchedulerDriver;
use storage::Store;
use tokio::sync::oneshot;

use super::observer::{WatchedLog, WatchedRegistry, look, watch_elections};
use super::probe::probe;
use crate::load::scheduler::{Life, LoadScheduler, SharedRecord, kill_some, revive};
use crate::load::sorter::{self, SorterFaults};
use crate::load::{self, Equipment, Manner};
use crate::report::hash::derived;
use crate::world::disk::Disk;
use crate::world::machine::Machine;
use crate::world::sim_env::SimEnv;

/// Maximum time in which an agent ends its tasks and shuts down, as in the real service.
const LEAVE_PATIENCE: Duration = Duration::from_secs(15);

/// A master's member of the group.
pub type Member = MemberHandle<RegistryMachine>;

/// The main task of a service's process; returns the reason of its end.
pub type Main = LocalBoxFuture<'static, String>;

/// The order to stop.
pub type Stop = oneshot::Receiver<()>;

/// An assembled service.
pub struct Service {
    /// Its node.
    pub node: Node,
    /// Its main task.
    pub main: Main,
    /// Its group member, if it has one.
    pub member: Option<Member>,
}

impl Service {
    fn of(node: Node, main: impl Future<Output = String> + 'static) -> Self {
        Self {
            node,
            main: main.boxed_local(),
            member: None,
        }
    }
}

/// A service that could not be assembled ends at once, and is restarted like any other.
fn failed_start(node: Node, problem: String) -> Service {
    Service::of(node, async move { problem })
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The inputs of a master.
pub struct MasterParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// Its disk.
    pub disk: &'a Disk,
    /// The number of faults that make its sorter invalid.
    pub sorter_faults: &'a SorterFaults,
    /// All masters, itself included.
    pub masters: &'a [String],
    /// Whether the group answers reads from leases.
    pub leases: bool,
    /// Until when probes run.
    pub probed: Duration,
}

/// The master role of a node.
struct Acting {
    /// The actor whose end ends the process.
    ends: Pid,
    /// Its group member.
    member: Member,
}

/// A master: a group member that leads when elected.
pub fn master(env: &SimEnv, parts: MasterParts<'_>, stop: Stop) -> Service {
    let MasterParts {
        name, life, clock, ..
    } = parts;
    let accepts = [Role::Agent, Role::Framework, Role::Operator, Role::Master];
    let node = env.node(name, life, Role::Master, &accepts, clock);
    let (hostname, port) = env.place(name);
    let config = Config {
        hostname,
        port,
        weights: load::weights(),
        offer_timeout: Some(load::OFFER_TIMEOUT),
        ..Config::default()
    };
    let started = (|| {
        let place = env.join(&node, name).map_err(words)?;
        let allocator = sorter::start_allocator(&node, parts.sorter_faults).map_err(words)?;
        let acting = member(env, &node, config, allocator, &parts)?;
        Ok((acting, place))
    })();
    let (acting, place) = match started {
        Ok(both) => both,
        Err(problem) => return failed_start(node, problem),
    };
    let (home, member) = (node.clone(), Some(acting.member.clone()));
    let main = async move {
        let ended = std::pin::pin!(home.ended(&acting.ends));
        let words = match select(ended, stop).await {
            Either::Left((exit, _)) => format!("the master has ended: {exit}"),
            Either::Right((_, ended)) => {
                acting.member.retire().await;
                home.stop(&acting.ends);
                ended.await;
                "stopped".to_owned()
            }
        };
        home.shutdown().await;
        place.close().await;
        words
    };
    Service {
        member,
        ..Service::of(node, main)
    }
}

fn member(
    env: &SimEnv,
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    parts: &MasterParts<'_>,
) -> Result<Acting, String> {
    let (watch, name) = (env.watch.clone(), parts.name.to_owned());
    let log = StoredLog::new(parts.disk.open().map_err(words)?);
    let log = WatchedLog::new(log, &watch, &name);
    let settings = load::of_group(
        env.seed,
        parts.leases,
        env.address(&name),
        &parts
            .masters
            .iter()
            .map(|master| env.address(master))
            .collect::<Vec<_>>(),
    );
    let machine = RegistryMachine::new();
    let member = consensus::member::start(node, settings, Box::new(log), machine);
    let member = member.map_err(words)?;
    watch_elections(&member, &watch, &name);
    let looking = look(
        member.clone(),
        watch.clone(),
        name.clone(),
        parts.clock.clone(),
    );
    tokio::task::spawn_local(looking);
    let rng = SmallRng::seed_from_u64(derived(env.seed, &format!("probe-{name}"), parts.life));
    let probing = probe(
        member.clone(),
        watch.clone(),
        name.clone(),
        parts.clock.clone(),
        (rng, parts.probed),
    );
    tokio::task::spawn_local(probing);
    let over = move |member| {
        let registry = Box::new(ReplicatedRegistry::over(member));
        Box::new(WatchedRegistry::new(registry, &watch, &name)) as Box<dyn Registry>
    };
    let opened = leadership::open_with(node, config, allocator, member.clone(), Box::new(over));
    let (supervisor, _) = opened.map_err(words)?;
    Ok(Acting {
        ends: supervisor.pid(),
        member,
    })
}

/// The inputs of an agent.
pub struct AgentParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// Its disk.
    pub disk: &'a Disk,
    /// Its resources and attributes.
    pub equipment: &'a Equipment,
    /// The masters' addresses.
    pub masters: Vec<String>,
    /// Its machine.
    pub machine: &'a Machine,
    /// The machine's boot id.
    pub boot: &'a str,
    /// The launcher of its processes.
    pub launcher: Box<dyn Launcher>,
}

/// An agent.
pub fn agent(env: &SimEnv, parts: AgentParts<'_>, stop: Stop) -> Service {
    let AgentParts {
        name,
        life,
        clock,
        disk,
        equipment,
        masters,
        machine,
        boot,
        launcher,
    } = parts;
    let accepts = [Role::Master, Role::Operator, Role::Executor];
    let node = env.node(name, life, Role::Agent, &accepts, clock);
    let work_dir = format!("/rehearsed/{name}");
    let mut settings = Settings::new(masters, Path::new(&work_dir));
    let (hostname, port) = env.place(name);
    (settings.hostname, settings.port) = (Some(hostname), port);
    settings.resources = Some(equipment.resources.clone());
    settings.attributes = Some(equipment.attributes.clone());
    let socket = format!("unix:{}", settings.executor_socket.display());
    env.local.place(&node, name, &socket);
    let host = Host {
        name: name.to_owned(),
        cores: 4,
        memory: 16 << 30,
        disk: 100 << 30,
    };
    let started = (|| {
        let place = env.join(&node, name).map_err(words)?;
        let config = settings.check_on(&host).map_err(words)?;
        let modules = Modules {
            isolators: machine.isolation().start(&node).map_err(words)?,
            ..advisers(&node, equipment, machine).map_err(words)?
        };
        let kept = disk.clone();
        let open = Arc::new(move || Ok(Box::new(kept.open()?) as Box<dyn Store>));
        let of_executors = disk.clone();
        let open_executors =
            Arc::new(move || Ok(Box::new(of_executors.open_executors()?) as Box<dyn Store>));
        let work_dir = WorkDir::simulated(config.work_dir(), Arc::new(disk.clone()), open)
            .with_executor_checkpoints(open_executors, boot);
        let sampler = machine.sampler(&env.clock);
        let started = ::agent::start_with(&node, config, work_dir, launcher, modules, sampler);
        Ok((started.map_err(words)?, place))
    })();
    let (started, place) = match started {
        Ok(both) => both,
        Err(problem) => return failed_start(node, problem),
    };
    let home = node.clone();
    let main = async move {
        let words = {
            let ended = std::pin::pin!(started.ended());
            match select(ended, stop).await {
                Either::Left((end, _)) => format!("the agent has ended: {end}"),
                Either::Right(_) => "stopped".to_owned(),
            }
        };
        started.leave();
        // The machine ends the rest.
        let _ = home.clock().timeout(LEAVE_PATIENCE, started.ended()).await;
        home.shutdown().await;
        place.close().await;
        words
    };
    Service::of(node, main)
}

/// A lending agent watches its machine's load, so that lent resources yield on a busy machine.
fn advisers(node: &Node, equipment: &Equipment, machine: &Machine) -> Result<Modules, ModuleError> {
    let registry = modules::registry_on(machine.load(), || Box::new(|| None));
    let (estimator, controller) = match &equipment.lends {
        Some(lends) => (
            Parameters::none("fixed").with("resources", lends.clone()),
            Parameters::none("load").with("load_threshold_5min", load::LOAD_THRESHOLD),
        ),
        None => (Parameters::none("noop"), Parameters::none("noop")),
    };
    Ok(Modules {
        resource_estimator: registry.resource_estimator(node, estimator.module(), &estimator)?,
        qos_controller: registry.qos_controller(node, controller.module(), &controller)?,
        isolators: Vec::new(),
        provisioner: None,
    })
}

/// The inputs of a framework.
pub struct FrameworkParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// The framework of this scheduler.
    pub of: &'a str,
    /// Its behaviour.
    pub manner: Manner,
    /// The number of tasks that it keeps.
    pub target: usize,
    /// Its persistent state.
    pub record: &'a SharedRecord,
    /// The masters' addresses.
    pub masters: Vec<String>,
}

/// A framework.
pub fn framework(env: &SimEnv, parts: FrameworkParts<'_>, stop: Stop) -> Service {
    let FrameworkParts {
        name,
        life,
        clock,
        of,
        manner,
        target,
        record,
        masters,
    } = parts;
    let node = env.node(name, life, Role::Framework, &[Role::Master], clock);
    let place = match env.join(&node, name) {
        Ok(place) => place,
        Err(error) => return failed_start(node, words(error)),
    };
    let mut info = manner.framework(of);
    info.id = record
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .id
        .clone();
    let own = Life::new(manner.has_standby());
    let scheduler = LoadScheduler::new(
        of,
        manner,
        target,
        record.clone(),
        node.rng(),
        (clock.clone(), own.clone()),
    );
    let mut driver = SchedulerDriver::new(masters, info);
    if manner.has_standby() {
        driver = driver.standing_by();
    }
    let driver = driver.start(&node, scheduler);
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => return failed_start(node, words(error)),
    };
    let known = || (record.clone(), own.clone());
    let kills = kill_some(driver.clone(), known(), node.rng(), clock.clone());
    tokio::task::spawn_local(kills);
    let revivals = revive(driver.clone(), known(), target, clock.clone());
    tokio::task::spawn_local(revivals);
    let home = node.clone();
    let main = async move {
        let words = {
            let ended = std::pin::pin!(driver.ended());
            match select(ended, stop).await {
                Either::Left((ended, _)) => format!("the driver has ended: {ended:?}"),
                Either::Right(_) => "stopped".to_owned(),
            }
        };
        let _ = driver.stop(true); // it may have ended
        driver.ended().await;
        home.shutdown().await;
        place.close().await;
        words
    };
    Service::of(node, main)
}

/// The equipment of the agent with this number.
pub fn equipment_of(env: &SimEnv, number: u32) -> Equipment {
    load::equipment(derived(env.seed, "cluster", 0), number)
}
