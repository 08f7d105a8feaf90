//! Services: how the nodes of the world are put together from the real parts, as the roof does it for real machines.
//!
//! One function a kind of node: it builds the node and its actors, and gives the main task of its process, which ends when the
//! service does or when it is told to stop in good order. Decides nothing that the services decide.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::agent::detect::Host;
use ::agent::{Launcher, Modules, Settings, WorkDir};
use ::master::{Config, LocalRegistry};
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, select};
use module_api::{ModuleError, Parameters};
use runtime::{Clock, Node, Role};
use scheduler_driver::SchedulerDriver;
use tokio::sync::oneshot;

use crate::disk::Disk;
use crate::ground::Ground;
use crate::hash::derived;
use crate::load::scheduler::{LoadScheduler, SharedBook, kill_some, revive};
use crate::load::{self, Equipment, Manner};
use crate::machine::Machine;

/// How long an agent may take to end its tasks and say farewell, as in the roof.
const LEAVE_PATIENCE: Duration = Duration::from_secs(15);
/// The name of the one master.
pub const MASTER: &str = "master";

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
}

/// A service that could not be put together ends at once, and is tried again like any other that ended.
fn stillborn(node: Node, problem: String) -> Service {
    let main = async move { problem }.boxed_local();
    Service { node, main }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The master.
pub fn master(ground: &Ground, life: u64, clock: &Clock, disk: &Disk, stop: Stop) -> Service {
    let accepts = [Role::Agent, Role::Framework, Role::Operator];
    let node = ground.node(MASTER, life, Role::Master, &accepts, clock);
    let config = Config {
        hostname: MASTER.to_owned(),
        weights: load::weights(),
        offer_timeout: Some(load::OFFER_TIMEOUT),
        ..Config::default()
    };
    let started = (|| {
        let place = ground.join(&node, MASTER).map_err(words)?;
        let store = disk.open().map_err(words)?;
        let registry = LocalRegistry::open(&node, Box::new(store)).map_err(words)?;
        let modules = modules::registry();
        let allocator = modules
            .allocator(&node, "hierarchical", &Parameters::none("hierarchical"))
            .map_err(words)?;
        let started = ::master::start(&node, config, 0, allocator, Box::new(registry));
        Ok((started.map_err(words)?, place))
    })();
    let (started, place) = match started {
        Ok(both) => both,
        Err(problem) => return stillborn(node, problem),
    };
    let (home, master) = (node.clone(), started.master.pid());
    let main = async move {
        let ended = std::pin::pin!(home.ended(&master));
        let words = match select(ended, stop).await {
            Either::Left((exit, _)) => format!("the master has ended: {exit}"),
            Either::Right((_, ended)) => {
                home.stop(&master);
                ended.await;
                "stopped".to_owned()
            }
        };
        home.shutdown().await;
        place.close().await;
        words
    };
    Service {
        node,
        main: main.boxed_local(),
    }
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
    /// Its machine.
    pub machine: &'a Machine,
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
        machine,
        launcher,
    } = parts;
    let accepts = [Role::Master, Role::Operator, Role::Executor];
    let node = ground.node(name, life, Role::Agent, &accepts, clock);
    let work_dir = format!("/rehearsed/{name}");
    let mut settings = Settings::new(vec![ground.address(MASTER)], Path::new(&work_dir));
    settings.hostname = Some(name.to_owned());
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
        let advisers = advisers(&node, equipment).map_err(words)?;
        let work_dir = WorkDir::rehearsed(config.work_dir(), Arc::new(disk.clone()));
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
    Service {
        node,
        main: main.boxed_local(),
    }
}

fn advisers(node: &Node, equipment: &Equipment) -> Result<Modules, ModuleError> {
    let registry = modules::registry();
    let (estimator, parameters) = match &equipment.lends {
        Some(lends) => (
            "fixed",
            Parameters::none("fixed").with("resources", lends.clone()),
        ),
        None => ("noop", Parameters::none("noop")),
    };
    Ok(Modules {
        resource_estimator: registry.resource_estimator(node, estimator, &parameters)?,
        qos_controller: registry.qos_controller(node, "noop", &Parameters::none("noop"))?,
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
    /// How it behaves.
    pub manner: Manner,
    /// How many tasks it wants.
    pub target: usize,
    /// What it remembers.
    pub book: &'a SharedBook,
}

/// A framework.
pub fn framework(ground: &Ground, parts: FrameworkParts<'_>, stop: Stop) -> Service {
    let FrameworkParts {
        name,
        life,
        clock,
        manner,
        target,
        book,
    } = parts;
    let node = ground.node(name, life, Role::Framework, &[Role::Master], clock);
    let place = match ground.join(&node, name) {
        Ok(place) => place,
        Err(error) => return stillborn(node, words(error)),
    };
    let mut info = manner.framework(name);
    info.id = book
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .id
        .clone();
    let scheduler = LoadScheduler::new(
        name,
        manner,
        target,
        book.clone(),
        node.rng(),
        clock.clone(),
    );
    let driver = SchedulerDriver::new([ground.address(MASTER)], info).start(&node, scheduler);
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => return stillborn(node, words(error)),
    };
    let kills = kill_some(driver.clone(), book.clone(), node.rng(), clock.clone());
    tokio::task::spawn_local(kills);
    let revivals = revive(driver.clone(), book.clone(), target, clock.clone());
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
    Service {
        node,
        main: main.boxed_local(),
    }
}

/// The equipment of the agent of this name, by its number.
pub fn equipment_of(ground: &Ground, number: u32) -> Equipment {
    load::equipment(derived(ground.seed, "cluster", 0), number)
}
