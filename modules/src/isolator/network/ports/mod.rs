//! Isolator `network/ports`: ends containers that listen on TCP ports which they do not have.
//!
//! Looks at all containers in the network of the host once in each interval. A container with a
//! network of its own has all ports of that network. Its state outlives a restart of the actor.

mod sockets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use module_api::isolator::{
    CleanUpContainer, ContainerConfig, ContainerLimited, LaunchPlan, Limitation, MeasureContainers,
    Measured, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::{ContainerId, Reason};
use resources::{Ranges, Resources};
use runtime::prelude::*;

/// The name of this isolator in `--isolation`.
pub const NAMES: [&str; 1] = ["network/ports"];

/// The operator's flags.
#[derive(Clone, Debug)]
struct Options {
    /// `--container_ports_watch_interval`: pause between two looks.
    interval: Duration,
    /// `--enforce_container_ports`: end containers with other ports.
    enforces: bool,
    /// The only ports that matter; `None` for all. From `--container_ports_isolated_range` or
    /// `--check_agent_port_range_only`.
    isolated: Option<Ranges>,
}

impl Options {
    fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let interval = given.optional(
            "container_ports_watch_interval",
            "a duration such as `30secs`",
            |text| {
                let interval = protocol::text::duration::parse(text).ok();
                interval.filter(|interval| !interval.is_zero())
            },
        )?;
        let flag = |key| given.optional(key, "true or false", |text| text.parse().ok());
        let ranges = |key| {
            given.optional(key, "ranges such as `[31000-32000]`", |text| {
                let ports = Resources::parse(&format!("ports:{text}")).ok()?;
                Some(ports.ports())
            })
        };
        let range = ranges("container_ports_isolated_range")?;
        let only_agents = flag("check_agent_port_range_only")?.unwrap_or(false);
        if only_agents && range.is_some() {
            let both = "Only one of `--check_agent_port_range_only` or `--container_ports_isolated_range` should be specified";
            return Err(failed(both));
        }
        let isolated = match only_agents {
            true => ranges("agent_ports")?,
            false => range,
        };
        Ok(Self {
            interval: interval.unwrap_or(Duration::from_secs(30)),
            enforces: flag("enforce_container_ports")?.unwrap_or(false),
            isolated,
        })
    }
}

fn failed(problem: &str) -> ModuleError {
    ModuleError::Fault {
        kind: ModuleKind::Isolator,
        fault: Fault::failed(problem),
    }
}

/// A container in the network of the host.
#[derive(Clone, Debug, Default)]
struct Tracked {
    /// The ports that it has.
    allocated: Ranges,
    /// The other ports on which it listened at the last look.
    others: Ranges,
    /// The ports with which it exceeded its limit, if it did.
    limitation: Option<Limitation>,
}

impl Tracked {
    /// `None` for a container with a network of its own.
    fn new(config: &ContainerConfig) -> Option<Self> {
        let container = config.container.as_deref();
        let is_apart = container.is_some_and(|container| container.has_own_network());
        // A nested one is looked at with its parent.
        (!is_apart && !config.shares_limits).then(|| Self {
            allocated: config.resources.requests.ports(),
            ..Self::default()
        })
    }

    /// Takes over the ports on which it listens. Returns the limitation if it is new.
    fn listens(
        &mut self,
        id: &ContainerId,
        ports: &Ranges,
        isolated: Option<&Ranges>,
    ) -> Option<Limitation> {
        let mut others = match isolated {
            Some(isolated) => ports.intersection(isolated),
            None => ports.clone(),
        };
        others.subtract(&self.allocated);
        let is_known = self.others == others;
        self.others = others;
        if is_known || self.others.is_empty() {
            return None;
        }
        let list = self.others.iter();
        let list: Vec<String> = list
            .map(|range| format!("{}-{}", range.begin(), range.end()))
            .collect();
        let list = list.join(", ");
        let limitation = Limitation {
            resources: Resources::parse(&format!("ports:{}", self.others)).unwrap_or_default(),
            reason: Reason::ContainerLimitation,
            message: format!("Container {id} is listening on unallocated port(s): [{list}]"),
        };
        self.limitation = Some(limitation.clone());
        Some(limitation)
    }
}

/// State that outlives a restart of the actor.
#[derive(Debug, Default)]
struct Shared {
    containerizer: Option<Pid>,
    containers: BTreeMap<ContainerId, Tracked>,
}

/// The actor.
struct Ports {
    options: Options,
    shared: Arc<Mutex<Shared>>,
}

/// Starts the isolator.
pub fn start(node: &Node, _: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let options = Options::from_parameters(given)?;
    let isolation = given.get("isolation").unwrap_or_default();
    // By its groups a process is known to be one of a container.
    if !isolation
        .split(',')
        .any(|name| name.starts_with("cgroups/"))
    {
        let problem =
            "`network/ports` needs `cgroups/cpu` or another `cgroups/` isolator beside it";
        return Err(failed(problem));
    }
    let shared = Arc::new(Mutex::default());
    let make = move || Ports {
        options: options.clone(),
        shared: Arc::clone(&shared),
    };
    let actor = crate::supervise(node, ModuleKind::Isolator, "ports_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

impl Ports {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let containers: BTreeSet<_> = self.shared().containers.keys().cloned().collect();
        let looking = ctx
            .node()
            .blocking_low_priority(move || sockets::scan(&containers));
        ctx.then(looking, |this, found, ctx| {
            match found {
                Ok(Ok(found)) => this.found(&found, ctx),
                Ok(Err(error)) => tracing::error!(%error, "listening sockets are not known"),
                Err(error) => tracing::error!(%error, "look at sockets panicked"),
            }
            this.wait(ctx);
        });
    }

    fn found(&mut self, found: &BTreeMap<ContainerId, Ranges>, ctx: &mut Context<Self>) {
        let mut shared = self.shared();
        let containerizer = shared.containerizer.clone();
        let none = Ranges::default();
        for (id, tracked) in &mut shared.containers {
            let ports = found.get(id).unwrap_or(&none);
            let isolated = self.options.isolated.as_ref();
            let Some(limitation) = tracked.listens(id, ports, isolated) else {
                continue;
            };
            tracing::info!(limitation.message, enforced = self.options.enforces);
            let Some(containerizer) = containerizer.clone().filter(|_| self.options.enforces)
            else {
                continue;
            };
            let limited = ContainerLimited {
                container_id: id.clone(),
                limitation,
            };
            if let Err(error) = ctx.node().refer(containerizer).tell(limited) {
                tracing::warn!(container = %id, %error, "cannot report its ports");
                // With the next look.
                tracked.others = Ranges::default();
            }
        }
    }

    fn wait(&self, ctx: &mut Context<Self>) {
        ctx.after(self.options.interval, Self::look);
    }
}

impl Actor for Ports {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.wait(ctx);
    }
}

impl Process for Ports {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for Ports {
    type Result = Result<(), Fault>;
    fn handle(&mut self, recover: RecoverContainers, _: &mut Context<Self>) -> Self::Result {
        let mut shared = self.shared();
        shared.containerizer = Some(recover.containerizer);
        let containers = recover.containers.iter();
        shared.containers = containers
            .filter_map(|config| Some((config.container_id.clone(), Tracked::new(config)?)))
            .collect();
        Ok(())
    }
}

impl Handler<PrepareContainer> for Ports {
    type Result = Result<LaunchPlan, Fault>;
    fn handle(&mut self, prepare: PrepareContainer, _: &mut Context<Self>) -> Self::Result {
        if let Some(tracked) = Tracked::new(&prepare.config) {
            let id = prepare.config.container_id;
            self.shared().containers.insert(id, tracked);
        }
        Ok(LaunchPlan::default())
    }
}

impl Handler<UpdateContainer> for Ports {
    type Result = Result<(), Fault>;
    fn handle(&mut self, update: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        if let Some(tracked) = self.shared().containers.get_mut(&update.container_id) {
            tracked.allocated = update.resources.requests.ports();
        }
        Ok(())
    }
}

impl Handler<MeasureContainers> for Ports {
    type Result = Result<Measured, Fault>;
    fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(Measured::new())
    }
}

impl Handler<CleanUpContainer> for Ports {
    type Result = Result<Option<Limitation>, Fault>;
    fn handle(&mut self, clean_up: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        let removed = self.shared().containers.remove(&clean_up.container_id);
        let limitation = removed.and_then(|tracked| tracked.limitation);
        Ok(limitation.filter(|_| self.options.enforces))
    }
}

#[cfg(test)]
mod tests {
    use module_api::isolator::ContainerResources;
    use protocol::task::container::{ContainerInfo, DockerNetwork, DockerOptions};
    use runtime::testing::simulate;

    use super::*;

    fn ports(text: &str) -> Ranges {
        Resources::parse(&format!("ports:{text}")).unwrap().ports()
    }

    fn config(container: ContainerInfo) -> ContainerConfig {
        ContainerConfig {
            container_id: id(),
            sandbox: "/s".into(),
            user: None,
            shares_limits: false,
            is_command: true,
            resources: ContainerResources {
                requests: Resources::parse("cpus:1;ports:[31000-31000]").unwrap(),
                ..ContainerResources::default()
            },
            container: Some(Box::new(container)),
            root: None,
        }
    }

    fn id() -> ContainerId {
        ContainerId::new("c").unwrap()
    }

    // Covers 5.5 in part: network/ports.
    #[test]
    fn other_ports_are_reported_once_with_the_words_of_mesos() {
        let mut tracked = Tracked::new(&config(ContainerInfo::default())).unwrap();
        let mut listens = |text| tracked.listens(&id(), &ports(text), None);
        assert_eq!(listens("[31000-31000]"), None);
        let limitation = listens("[80-81,31000-31001]").unwrap();
        assert_eq!(limitation.reason, Reason::ContainerLimitation);
        assert_eq!(
            limitation.resources.to_string(),
            "ports:[80-81,31001-31001]"
        );
        assert_eq!(
            limitation.message,
            "Container c is listening on unallocated port(s): [80-81, 31001-31001]"
        );
        assert_eq!(listens("[80-81,31000-31001]"), None, "once");
        assert!(listens("[80-80,31000-31001]").is_some(), "a change");
    }

    #[test]
    fn only_isolated_ports_of_the_hosts_network_count() {
        let mut tracked = Tracked::new(&config(ContainerInfo::default())).unwrap();
        let isolated = ports("[31000-32000]");
        let mut listens = |text| tracked.listens(&id(), &ports(text), Some(&isolated));
        assert_eq!(listens("[80-81]"), None);
        let limitation = listens("[80-81,31001-31001]").unwrap();
        assert_eq!(limitation.resources.to_string(), "ports:[31001-31001]");
        let apart = ContainerInfo {
            docker: Some(DockerOptions {
                network: DockerNetwork::None,
                ..DockerOptions::default()
            }),
            ..ContainerInfo::default()
        };
        assert!(Tracked::new(&config(apart)).is_none());
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let given = Parameters::none("isolation")
            .with("check_agent_port_range_only", "true")
            .with("agent_ports", "[31000-32000]");
        let options = Options::from_parameters(&given).unwrap();
        assert_eq!(options.isolated, Some(ports("[31000-32000]")));
        assert!(!options.enforces);
        let both = given.with("container_ports_isolated_range", "[1-1023]");
        let refused = Options::from_parameters(&both).unwrap_err().to_string();
        assert!(refused.contains("Only one of"), "{refused}");
    }

    #[test]
    fn control_groups_are_needed() {
        simulate(|node| async move {
            let start = |isolation: &str| {
                let given = Parameters::none("isolation").with("isolation", isolation);
                crate::registry().isolators(&node, &["network/ports"], &given)
            };
            let refused = start("network/ports").unwrap_err().to_string();
            assert!(refused.contains("needs `cgroups/cpu`"), "{refused}");
            let isolator = start("cgroups/mem,network/ports").unwrap().remove(0);
            let container = config(ContainerInfo::default());
            assert_eq!(isolator.prepare(container).await, Ok(LaunchPlan::default()));
            assert_eq!(isolator.clean_up(id()).await, Ok(None));
        });
    }
}
