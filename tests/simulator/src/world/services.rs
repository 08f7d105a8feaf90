//! Services: how the nodes of the world are put together from the real parts, as the roof does it for real machines.
//!
//! One function a kind of node: it builds the node and its actors, and gives the main task of its process, which ends when the
//! service does or when it is told to stop in good order. Decides nothing that the services decide.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::agent::detect::Host;
use ::agent::{Launcher, Modules, Settings, WorkDir};
use ::master::registry::{Registry, RegistryMachine, ReplicatedRegistry};
use ::master::{Config, LocalRegistry, office};
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

use super::probe::probe;
use super::witness::{WatchedLog, WatchedRegistry, look, watch_elections};
use crate::disk::Disk;
use crate::ground::Ground;
use crate::hash::derived;
use crate::load::scheduler::{Life, LoadScheduler, SharedBook, kill_some, revive};
use crate::load::{self, Equipment, Manner};
use crate::machine::Machine;
use crate::sorter::{self, Lies};

/// How long an agent may take to end its tasks and say farewell, as in the roof.
const LEAVE_PATIENCE: Duration = Duration::from_secs(15);

/// A master's member of the group.
pub type Member = MemberHandle<RegistryMachine>;

/// The main task of a service's process: it ends with the words of its end.
pub type Main = LocalBoxFuture<'static, String>;

/// Told to stop in good order.
pub type Stop = oneshot::Receiver<()>;

/// What is known of a service that has been put together.
pub struct Service {
    /// Its node.
    pub node: Node,
    /// Its main task.
    pub main: Main,
    /// Its member of the group of masters, if it has one.
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

/// A service that could not be put together ends at once, and is tried again like any other that ended.
fn stillborn(node: Node, problem: String) -> Service {
    Service::of(node, async move { problem })
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A master on its machine.
pub struct MasterParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// Its disk.
    pub disk: &'a Disk,
    /// How many faults want its sorter to lie.
    pub lies: &'a Lies,
    /// All masters, itself too.
    pub masters: &'a [String],
    /// Whether the group answers reads from leases.
    pub leases: bool,
    /// Until when the group is asked for more than masters do.
    pub probed: Duration,
}

/// Whoever acts as master on a node.
struct Acting {
    /// The actor whose end is the process'.
    ends: Pid,
    /// Its member of the group, if there is one.
    member: Option<Member>,
}

/// A master: alone, or a member of a group that acts while it leads.
pub fn master(ground: &Ground, parts: MasterParts<'_>, stop: Stop) -> Service {
    let MasterParts {
        name, life, clock, ..
    } = parts;
    let accepts = [Role::Agent, Role::Framework, Role::Operator, Role::Master];
    let node = ground.node(name, life, Role::Master, &accepts, clock);
    let (hostname, port) = ground.place(name);
    let config = Config {
        hostname,
        port,
        weights: load::weights(),
        offer_timeout: Some(load::OFFER_TIMEOUT),
        ..Config::default()
    };
    let started = (|| {
        let place = ground.join(&node, name).map_err(words)?;
        let allocator = sorter::start_allocator(&node, parts.lies).map_err(words)?;
        let acting = match parts.masters.len() {
            1 => alone(ground, &node, config, allocator, parts.disk),
            _ => grouped(ground, &node, config, allocator, &parts),
        };
        Ok((acting?, place))
    })();
    let (acting, place) = match started {
        Ok(both) => both,
        Err(problem) => return stillborn(node, problem),
    };
    let (home, member) = (node.clone(), acting.member.clone());
    let main = async move {
        let ended = std::pin::pin!(home.ended(&acting.ends));
        let words = match select(ended, stop).await {
            Either::Left((exit, _)) => format!("the master has ended: {exit}"),
            Either::Right((_, ended)) => {
                if let Some(member) = acting.member {
                    member.retire().await;
                }
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

fn alone(
    ground: &Ground,
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    disk: &Disk,
) -> Result<Acting, String> {
    let store = disk.open().map_err(words)?;
    let registry = LocalRegistry::open(node, Box::new(store)).map_err(words)?;
    let registry = WatchedRegistry::new(Box::new(registry), &ground.watch, node.id().name());
    let started = ::master::start(node, config, 0, allocator, Box::new(registry));
    Ok(Acting {
        ends: started.map_err(words)?.master.pid(),
        member: None,
    })
}

fn grouped(
    ground: &Ground,
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    parts: &MasterParts<'_>,
) -> Result<Acting, String> {
    let (watch, name) = (ground.watch.clone(), parts.name.to_owned());
    let log = StoredLog::over(parts.disk.open().map_err(words)?);
    let log = WatchedLog::new(log, &watch, &name);
    let settings = load::of_group(
        ground.seed,
        parts.leases,
        ground.address(&name),
        &parts
            .masters
            .iter()
            .map(|master| ground.address(master))
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
    let rng = SmallRng::seed_from_u64(derived(ground.seed, &format!("probe-{name}"), parts.life));
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
    let opened = office::open_with(node, config, allocator, member.clone(), Box::new(over));
    let (office, _) = opened.map_err(words)?;
    Ok(Acting {
        ends: office.pid(),
        member: Some(member),
    })
}

/// An agent on its machine.
pub struct AgentParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// Its disk.
    pub disk: &'a Disk,
    /// What it has.
    pub equipment: &'a Equipment,
    /// Where the masters are.
    pub masters: Vec<String>,
    /// Its machine.
    pub machine: &'a Machine,
    /// Which run of the machine this is.
    pub boot: &'a str,
    /// What starts processes there.
    pub launcher: Box<dyn Launcher>,
}

/// An agent.
pub fn agent(ground: &Ground, parts: AgentParts<'_>, stop: Stop) -> Service {
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
    let node = ground.node(name, life, Role::Agent, &accepts, clock);
    let work_dir = format!("/rehearsed/{name}");
    let mut settings = Settings::new(masters, Path::new(&work_dir));
    let (hostname, port) = ground.place(name);
    (settings.hostname, settings.port) = (Some(hostname), port);
    settings.resources = Some(equipment.resources.clone());
    settings.attributes = Some(equipment.attributes.clone());
    let socket = format!("unix:{}", settings.executor_socket.display());
    ground.local.place(&node, name, &socket);
    let host = Host {
        name: name.to_owned(),
        cores: 4,
        memory: 16 << 30,
        disk: 100 << 30,
    };
    let started = (|| {
        let place = ground.join(&node, name).map_err(words)?;
        let config = settings.check_on(&host).map_err(words)?;
        let advisers = advisers(&node, equipment, machine).map_err(words)?;
        let kept = disk.clone();
        let open = Arc::new(move || Ok(Box::new(kept.open()?) as Box<dyn Store>));
        let of_executors = disk.clone();
        let open_executors =
            Arc::new(move || Ok(Box::new(of_executors.open_executors()?) as Box<dyn Store>));
        let work_dir = WorkDir::rehearsed(config.work_dir(), Arc::new(disk.clone()), open)
            .keeping_executors(open_executors, boot);
        let sampler = machine.sampler(&ground.clock);
        let started = ::agent::start_with(&node, config, work_dir, launcher, advisers, sampler);
        Ok((started.map_err(words)?, place))
    })();
    let (started, place) = match started {
        Ok(both) => both,
        Err(problem) => return stillborn(node, problem),
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
        // The machine ends what is left.
        let _ = home.clock().timeout(LEAVE_PATIENCE, started.ended()).await;
        home.shutdown().await;
        place.close().await;
        words
    };
    Service::of(node, main)
}

/// An agent that lends watches its machine's load, so that what it lent yields when the machine is busy.
fn advisers(node: &Node, equipment: &Equipment, machine: &Machine) -> Result<Modules, ModuleError> {
    let registry = modules::registry_seeing(machine.load());
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
    })
}

/// A framework.
pub struct FrameworkParts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its life, counted from 0.
    pub life: u64,
    /// Its clock.
    pub clock: &'a Clock,
    /// Which framework's scheduler it is.
    pub of: &'a str,
    /// How it behaves.
    pub manner: Manner,
    /// How many tasks it wants.
    pub target: usize,
    /// What it remembers.
    pub book: &'a SharedBook,
    /// Where the masters are.
    pub masters: Vec<String>,
}

/// A framework.
pub fn framework(ground: &Ground, parts: FrameworkParts<'_>, stop: Stop) -> Service {
    let FrameworkParts {
        name,
        life,
        clock,
        of,
        manner,
        target,
        book,
        masters,
    } = parts;
    let node = ground.node(name, life, Role::Framework, &[Role::Master], clock);
    let place = match ground.join(&node, name) {
        Ok(place) => place,
        Err(error) => return stillborn(node, words(error)),
    };
    let mut info = manner.framework(of);
    info.id = book
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .id
        .clone();
    let own = Life::new(manner.has_standby());
    let scheduler = LoadScheduler::new(
        of,
        manner,
        target,
        book.clone(),
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
        Err(error) => return stillborn(node, words(error)),
    };
    let known = || (book.clone(), own.clone());
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
        let _ = driver.stop(true); // It may have ended.
        driver.ended().await;
        home.shutdown().await;
        place.close().await;
        words
    };
    Service::of(node, main)
}

/// The equipment of the agent of this name, by its number.
pub fn equipment_of(ground: &Ground, number: u32) -> Equipment {
    load::equipment(derived(ground.seed, "cluster", 0), number)
}
