//! Isolator `network/cni`: networks of their own for containers, made by plugins as the CNI
//! specification says.
//!
//! A container that names networks gets a network namespace before its launch, and each network's
//! plugins add an interface to it. They delete it after its last process has ended; the end of the
//! task does not wait for that. A container of type DOCKER without a network gets a namespace with
//! its loopback only. What each interface sends can be limited. At the start the networks of
//! containers that are gone are removed.
//!
//! | module | contents |
//! |---|---|
//! | `attachments` | the networks of each container, and their records on disk |
//! | `config` | configurations of networks |
//! | `counters` | traffic of containers |
//! | `namespace` | namespaces without processes |
//! | `netlink` | requests to the kernel: the loopback, limits of what is sent |
//! | `plugin` | execution of plugins |
//! | `requests` | the networks that a container wants |
//! | `result` | results of plugins, `/etc/hosts`, `/etc/resolv.conf` |

mod attachments;
mod config;
mod counters;
mod namespace;
mod netlink;
mod plugin;
mod requests;
mod result;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use module_api::isolator::{
    CleanUpContainer, ContainerConfig, ContainerNetwork, LaunchPlan, Limitation, MeasureContainers,
    Measured, Namespaces, NetworkRecovered, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::ContainerId;
use runtime::prelude::*;
use tokio::sync::Semaphore;

use attachments::{Networks, hostname};
use counters::Counters;

/// The name of this isolator in `--isolation`.
pub const NAMES: [&str; 1] = ["network/cni"];

/// Containers with plugins that run at once.
const CONCURRENCY: usize = 8;

/// The operator's flags.
#[derive(Clone, Debug)]
struct Options {
    /// Below the agent's work directory.
    root: PathBuf,
    /// `--network_cni_plugins_dir`: directories, separated by `:`.
    plugins_dir: String,
    /// `--network_cni_config_dir`.
    config_dir: Option<PathBuf>,
    /// `--docker_bridge_network`: the network of containers with Docker's BRIDGE.
    bridge: Option<String>,
    /// `--egress_rate_limit_per_container`: bytes in a second that each interface sends; `None`
    /// without a limit.
    egress_rate: Option<u64>,
}

impl Options {
    fn from_parameters(given: &Parameters) -> Result<Self, String> {
        let text = |key| given.get(key).filter(|text| !text.is_empty());
        let (plugins, config) = (
            text("network_cni_plugins_dir"),
            text("network_cni_config_dir"),
        );
        let missing = match (plugins, config) {
            (None, Some(_)) => Some("network_cni_plugins_dir"),
            (Some(_), None) => Some("network_cni_config_dir"),
            _ => None,
        };
        if let Some(flag) = missing {
            return Err(format!("Missing required '--{flag}' flag"));
        }
        let config = config.map(PathBuf::from);
        if let Some(path) = config.as_ref().filter(|path| !path.is_dir()) {
            let path = path.display();
            return Err(format!(
                "The CNI network configuration directory '{path}' does not exist"
            ));
        }
        let rate = given.get("egress_rate_limit_per_container");
        let rate = rate.map(|text| text.trim_end_matches('B').parse::<u64>());
        let rate = rate
            .transpose()
            .map_err(|_| "egress_rate_limit_per_container: expected bytes such as `1024B`")?;
        let work_dir = text("work_dir").ok_or("the agent's work directory is missing")?;
        Ok(Self {
            root: PathBuf::from(work_dir).join("networks"),
            plugins_dir: plugins.unwrap_or_default().to_owned(),
            config_dir: config,
            bridge: text("docker_bridge_network").map(str::to_owned),
            egress_rate: rate.filter(|&rate| rate > 0),
        })
    }
}

/// State that outlives a restart of the actor.
#[derive(Debug)]
struct Shared {
    networks: Networks,
    /// The containers between their preparation, or the recovery, and their clean-up.
    live: Mutex<BTreeSet<ContainerId>>,
    counters: Mutex<Counters>,
    permits: Semaphore,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, BTreeSet<ContainerId>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The actor.
struct Cni(Arc<Shared>);

/// Starts the isolator.
pub fn start(node: &Node, _: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let options = Options::from_parameters(given).map_err(|reason| ModuleError::NotStarted {
        kind: ModuleKind::Isolator,
        name: NAMES[0].to_owned(),
        reason,
    })?;
    let shared = Arc::new(Shared {
        networks: Networks::new(options),
        live: Mutex::default(),
        counters: Mutex::default(),
        permits: Semaphore::new(CONCURRENCY),
    });
    let make = move || Cni(shared.clone());
    let actor = crate::supervise(node, ModuleKind::Isolator, "cni_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

/// Blocking. Removes the networks of all containers of an agent whose processes have ended.
pub fn remove_all(given: &Parameters) {
    let Ok(options) = Options::from_parameters(given) else {
        return; // It has made none.
    };
    let networks = Networks::new(options);
    for (container, _) in networks.list() {
        if let Err(problem) = networks.detach(&container) {
            tracing::error!(%container, problem, "cannot remove a network");
        }
    }
}

/// The plan of a container with this network.
fn plan(config: &ContainerConfig, network: ContainerNetwork) -> LaunchPlan {
    let mut plan = LaunchPlan {
        namespaces: Namespaces {
            mount: true,
            uts: true,
            ..Namespaces::default()
        },
        hostname: Some(hostname(config)),
        network: Some(network),
        ..LaunchPlan::default()
    };
    // As in Mesos: an executor binds to the address that it has here.
    let address = ("LIBPROCESS_IP", "0.0.0.0");
    plan.environment
        .insert(address.0.to_owned(), address.1.to_owned());
    plan
}

impl Cni {
    /// Runs `work` on a blocking thread, with at most [`CONCURRENCY`] others.
    fn run<T, F>(&self, node: &Node, work: F) -> impl Future<Output = Result<T, String>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> T + Send + 'static,
    {
        let (node, shared) = (node.clone(), self.0.clone());
        async move {
            let permit = shared.permits.acquire().await;
            let _permit = permit.map_err(|error| error.to_string())?;
            let working = shared.clone();
            let worked = node.blocking(move || work(&working)).await;
            worked.map_err(|error| error.to_string())
        }
    }

    fn detach(&self, id: ContainerId, ctx: &mut Context<Self>) {
        let container = id.clone();
        let detaching = self.run(ctx.node(), move |shared| {
            shared.counters().close(&id);
            shared.networks.detach(&id)
        });
        ctx.then(detaching, move |_, detached, _| {
            if let Err(problem) = detached.and_then(|detached| detached) {
                // The next start of the agent tries again.
                tracing::error!(%container, problem, "cannot remove a network");
            }
        });
    }
}

impl Actor for Cni {
    type Context = Context<Self>;
}

impl Process for Cni {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for Cni {
    type Result = Reply<Result<(), Fault>>;
    fn handle(&mut self, recover: RecoverContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let ids = recover.containers.into_iter();
        *self.0.live() = ids.map(|config| config.container_id).collect();
        let listing = self.run(ctx.node(), |shared| shared.networks.list());
        ctx.then(listing, move |this, listed, ctx| {
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) => return promise.answer(Err(Fault::failed(error))),
            };
            let containerizer = ctx.node().refer(recover.containerizer);
            for (container_id, network) in listed {
                if !this.0.live().contains(&container_id) {
                    tracing::info!(container = %container_id, "removing the network of no container");
                    this.detach(container_id, ctx);
                    continue;
                }
                let Some(network) = network else { continue };
                let recovered = NetworkRecovered {
                    container_id,
                    network,
                };
                if let Err(error) = containerizer.tell(recovered) {
                    tracing::warn!(%error, "cannot report the network of a container");
                }
            }
            promise.answer(Ok(()));
        });
        reply
    }
}

impl Handler<PrepareContainer> for Cni {
    type Result = Reply<Result<LaunchPlan, Fault>>;
    fn handle(&mut self, prepare: PrepareContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let config = prepare.config;
        let container = config.container.as_deref();
        if !container.is_some_and(|container| container.has_own_network()) {
            promise.answer(Ok(LaunchPlan::default()));
            return reply;
        }
        self.0.live().insert(config.container_id.clone());
        let attaching = self.run(ctx.node(), move |shared| {
            let is_wanted = || shared.live().contains(&config.container_id);
            let network = shared.networks.attach(&config, is_wanted)?;
            Ok(network.map_or_else(LaunchPlan::default, |network| plan(&config, network)))
        });
        ctx.then(attaching, |_, attached, _| {
            let attached: Result<LaunchPlan, String> = attached.and_then(|attached| attached);
            promise.answer(attached.map_err(Fault::failed));
        });
        reply
    }
}

impl Handler<UpdateContainer> for Cni {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<MeasureContainers> for Cni {
    type Result = Reply<Result<Measured, Fault>>;
    fn handle(&mut self, measure: MeasureContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let mut containers = measure.containers;
        containers.retain(|container| self.0.live().contains(container));
        let (shared, now) = (self.0.clone(), ctx.clock().wall());
        // Not behind the plugins, which may take long.
        let measuring = ctx.node().blocking(move || {
            let networks = &shared.networks;
            let known = containers.into_iter();
            let known = known.map(|id| (networks.namespace(&id), id));
            let known = known.filter(|(namespace, _)| namespace.exists());
            let known = known.map(|(namespace, id)| (id, namespace)).collect();
            shared.counters().measure(known, now)
        });
        ctx.then(measuring, |_, measured, _| {
            promise.answer(measured.map_err(|error| Fault::failed(error.to_string())));
        });
        reply
    }
}

impl Handler<CleanUpContainer> for Cni {
    type Result = Result<Option<Limitation>, Fault>;
    fn handle(&mut self, clean_up: CleanUpContainer, ctx: &mut Context<Self>) -> Self::Result {
        let id = clean_up.container_id;
        // One that has ended early is cleaned up before the recovery names it.
        if self.0.live().remove(&id) || self.0.networks.has(&id) {
            self.detach(id, ctx);
        }
        Ok(None)
    }
}
