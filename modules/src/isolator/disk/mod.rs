//! Isolator `disk/du`: measures the sandboxes of containers, and ends those beyond their quota.
//!
//! One scan at a time goes through all sandboxes. A persistent volume has its own space and is not
//! counted. What it knows outlives a restart of the actor.

pub mod image;
mod scan;
pub mod xfs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use module_api::isolator::{
    CleanUpContainer, ContainerConfig, ContainerLimited, ContainerResources, LaunchPlan,
    Limitation, MeasureContainers, Measured, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::text::bytes;
use protocol::{ContainerId, Reason, ResourceStatistics};
use resources::{Resource, Resources};
use runtime::prelude::*;

/// The names that this isolator has in `--isolation`; the second is Mesos' older one.
pub const NAMES: [&str; 2] = ["disk/du", "posix/disk"];

/// Bytes of a unit of the resource `disk`.
const MEGABYTE: f64 = 1_048_576.0;

/// The operator's flags.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// `--container_disk_watch_interval`: pause between two scans.
    interval: Duration,
    /// `--enforce_container_disk_quota`: end containers beyond their quota.
    enforces: bool,
}

/// A container.
#[derive(Clone, Debug)]
struct Tracked {
    /// The directories that count.
    directories: Vec<PathBuf>,
    /// Its resource `disk`, without persistent volumes.
    quota: Resources,
    /// The newest result, in bytes.
    used: Option<u64>,
    /// Whether the agent was told that it is beyond its quota.
    limitation: Option<Limitation>,
}

impl Tracked {
    fn new(config: &ContainerConfig) -> Self {
        let scratch = config.root.iter().map(|root| root.scratch.join("upper"));
        Self {
            directories: [config.sandbox.clone()]
                .into_iter()
                .chain(scratch)
                .collect(),
            quota: quota(&config.resources),
            used: None,
            limitation: None,
        }
    }

    /// The quota in bytes, if the container has one.
    fn limit(&self) -> Option<u64> {
        let is_set = !self.quota.is_empty();
        is_set.then(|| (self.quota.disk().as_f64() * MEGABYTE) as u64)
    }

    /// Takes over the result of a scan. Returns the limitation if it is new.
    fn scanned(&mut self, used: Result<u64, String>) -> Option<Limitation> {
        let limit = self.limit()?;
        let message = match used {
            Ok(used) => {
                self.used = Some(used);
                if used <= limit {
                    return None;
                }
                let (used, limit) = (bytes::format(used), bytes::format(limit));
                format!("Disk usage ({used}) exceeds quota ({limit})")
            }
            Err(problem) => format!("Disk usage is not known: {problem}"),
        };
        let limitation = Limitation {
            resources: self.quota.clone(),
            reason: Reason::ContainerLimitationDisk,
            message,
        };
        let is_new = self.limitation.is_none();
        self.limitation = Some(limitation.clone());
        is_new.then_some(limitation)
    }
}

fn quota(resources: &ContainerResources) -> Resources {
    let disk = resources
        .requests
        .iter()
        .filter(|resource| resource.name_str() == "disk" && !resource.is_persistent_volume());
    disk.cloned()
        .collect::<Vec<Resource>>()
        .into_iter()
        .collect()
}

/// State that outlives a restart of the actor.
#[derive(Debug, Default)]
struct Shared {
    containerizer: Option<Pid>,
    containers: BTreeMap<ContainerId, Tracked>,
}

/// The actor.
struct DiskUsage {
    options: Options,
    shared: Arc<Mutex<Shared>>,
}

/// Starts the isolator.
pub fn start(node: &Node, _: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let key = "container_disk_watch_interval";
    let interval = given.optional(key, "a duration such as `15secs`", |text| {
        let interval = protocol::text::duration::parse(text).ok();
        interval.filter(|interval| !interval.is_zero())
    })?;
    let key = "enforce_container_disk_quota";
    let enforces = given.optional(key, "true or false", |text| text.parse().ok())?;
    let options = Options {
        interval: interval.unwrap_or(Duration::from_secs(15)),
        enforces: enforces.unwrap_or(false),
    };
    let shared = Arc::new(Mutex::default());
    let make = move || DiskUsage {
        options,
        shared: Arc::clone(&shared),
    };
    let actor = crate::supervise(node, ModuleKind::Isolator, "disk_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

impl DiskUsage {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scan(&mut self, ctx: &mut Context<Self>) {
        let containers = self.shared().containers.clone();
        let scan = move || -> Vec<(ContainerId, Result<u64, String>)> {
            let used = |one: &Tracked| {
                let parts = one.directories.iter().map(|path| scan::usage(path));
                parts
                    .sum::<Result<u64, _>>()
                    .map_err(|error| error.to_string())
            };
            let containers = containers.into_iter();
            containers.map(|(id, one)| (id, used(&one))).collect()
        };
        let scanning = ctx.node().blocking_low_priority(scan);
        ctx.then(scanning, |this, scanned, ctx| {
            match scanned {
                Ok(scanned) => this.scanned(scanned, ctx),
                Err(error) => tracing::error!(%error, "scan of sandboxes panicked"),
            }
            this.wait(ctx);
        });
    }

    fn scanned(
        &mut self,
        scanned: Vec<(ContainerId, Result<u64, String>)>,
        ctx: &mut Context<Self>,
    ) {
        let mut shared = self.shared();
        let containerizer = shared.containerizer.clone();
        for (container_id, used) in scanned {
            let Some(tracked) = shared.containers.get_mut(&container_id) else {
                continue;
            };
            let Some(limitation) = tracked.scanned(used) else {
                continue;
            };
            if !self.options.enforces {
                tracing::info!(container = %container_id, limitation.message, "not enforced");
                continue;
            }
            let Some(containerizer) = containerizer.clone() else {
                continue;
            };
            let limited = ContainerLimited {
                container_id: container_id.clone(),
                limitation,
            };
            if let Err(error) = ctx.node().refer(containerizer).tell(limited) {
                tracing::warn!(container = %container_id, %error, "cannot report its disk usage");
                // With the next scan.
                tracked.limitation = None;
            }
        }
    }

    fn wait(&self, ctx: &mut Context<Self>) {
        ctx.after(self.options.interval, Self::scan);
    }
}

impl Actor for DiskUsage {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.wait(ctx);
    }
}

impl Process for DiskUsage {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for DiskUsage {
    type Result = Result<(), Fault>;
    fn handle(&mut self, recover: RecoverContainers, _: &mut Context<Self>) -> Self::Result {
        let mut shared = self.shared();
        shared.containerizer = Some(recover.containerizer);
        let containers = recover.containers.iter();
        let containers = containers.filter(|config| !config.shares_limits);
        shared.containers = containers
            .map(|config| (config.container_id.clone(), Tracked::new(config)))
            .collect();
        Ok(())
    }
}

impl Handler<PrepareContainer> for DiskUsage {
    type Result = Result<LaunchPlan, Fault>;
    fn handle(&mut self, prepare: PrepareContainer, _: &mut Context<Self>) -> Self::Result {
        let config = prepare.config;
        // Its sandbox is within that of its parent, and counted there.
        if !config.shares_limits {
            let tracked = Tracked::new(&config);
            let containers = &mut self.shared().containers;
            containers.insert(config.container_id, tracked);
        }
        Ok(LaunchPlan::default())
    }
}

impl Handler<UpdateContainer> for DiskUsage {
    type Result = Result<(), Fault>;
    fn handle(&mut self, update: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        if let Some(tracked) = self.shared().containers.get_mut(&update.container_id) {
            tracked.quota = quota(&update.resources);
        }
        Ok(())
    }
}

impl Handler<MeasureContainers> for DiskUsage {
    type Result = Result<Measured, Fault>;
    fn handle(&mut self, measure: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        let shared = self.shared();
        let statistics = |id: ContainerId| {
            let tracked = shared.containers.get(&id)?;
            let statistics = ResourceStatistics {
                disk_limit_bytes: tracked.limit(),
                disk_used_bytes: tracked.used,
                ..ResourceStatistics::default()
            };
            Some((id, statistics))
        };
        Ok(measure
            .containers
            .into_iter()
            .filter_map(statistics)
            .collect())
    }
}

impl Handler<CleanUpContainer> for DiskUsage {
    type Result = Result<Option<Limitation>, Fault>;
    fn handle(&mut self, clean_up: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        let removed = self.shared().containers.remove(&clean_up.container_id);
        let limitation = removed.and_then(|tracked| tracked.limitation);
        Ok(limitation.filter(|_| self.options.enforces))
    }
}

#[cfg(test)]
mod tests {
    use runtime::testing::simulate;
    use tokio::sync::mpsc;

    use super::*;

    /// Stands for the containerizer: passes the limitations on.
    struct Containerizer(mpsc::UnboundedSender<ContainerLimited>);

    impl Actor for Containerizer {
        type Context = Context<Self>;
    }

    impl Process for Containerizer {
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept_local::<ContainerLimited>();
        }
    }

    impl Handler<ContainerLimited> for Containerizer {
        type Result = ();
        fn handle(&mut self, limited: ContainerLimited, _: &mut Context<Self>) {
            self.0.send(limited).unwrap();
        }
    }

    fn config(sandbox: &std::path::Path, requests: &str) -> ContainerConfig {
        ContainerConfig {
            container_id: id(),
            sandbox: sandbox.to_owned(),
            user: None,
            shares_limits: false,
            is_command: true,
            resources: resources(requests),
            container: None,
            root: None,
        }
    }

    fn resources(requests: &str) -> ContainerResources {
        ContainerResources {
            requests: Resources::parse(requests).unwrap(),
            ..ContainerResources::default()
        }
    }

    fn id() -> ContainerId {
        ContainerId::new("c").unwrap()
    }

    /// Runs a story with an isolator with these parameters, and the limitations that it reports.
    fn story<F: Future<Output = ()>>(
        enforces: &'static str,
        requests: &'static str,
        tell: impl FnOnce(Node, IsolatorRef, PathBuf, mpsc::UnboundedReceiver<ContainerLimited>) -> F
        + 'static,
    ) {
        let sandbox = tempfile::tempdir().unwrap();
        let path = sandbox.path().to_owned();
        simulate(move |node| async move {
            let (sender, limited) = mpsc::unbounded_channel();
            let containerizer = node.spawn("containerizer", Containerizer(sender)).unwrap();
            let given = Parameters::none("isolators")
                .with("enforce_container_disk_quota", enforces)
                .with("container_disk_watch_interval", "15secs");
            let registry = crate::registry();
            let isolator = registry
                .isolators(&node, &["disk/du"], &given)
                .unwrap()
                .remove(0);
            let recover = RecoverContainers {
                containers: Vec::new(),
                containerizer: containerizer.pid().clone(),
            };
            isolator.recover(recover).await.unwrap();
            isolator.prepare(config(&path, requests)).await.unwrap();
            tell(node, isolator, path, limited).await;
        });
    }

    // Covers 5.5 in part: disk/du; 5.12 Isolation; S75.
    #[test]
    fn container_beyond_its_quota_is_reported_once_with_the_words_of_mesos() {
        story(
            "true",
            "cpus:1;disk:1",
            |node, isolator, sandbox, mut limited| async move {
                node.clock().sleep(Duration::from_secs(20)).await;
                let measured = isolator.measure(vec![id()]).await.unwrap();
                assert_eq!(measured[&id()].disk_limit_bytes, Some(1 << 20));
                assert!(measured[&id()].disk_used_bytes.is_some());
                std::fs::write(sandbox.join("big"), vec![1; 3 << 20]).unwrap();
                let limitation = limited.recv().await.unwrap().limitation;
                assert_eq!(limitation.reason, Reason::ContainerLimitationDisk);
                assert_eq!(limitation.resources.to_string(), "disk:1");
                let message = limitation.message.clone();
                assert!(message.starts_with("Disk usage (3"), "{message}");
                assert!(message.ends_with("B) exceeds quota (1MB)"), "{message}");
                node.clock().sleep(Duration::from_secs(40)).await;
                assert!(limited.try_recv().is_err(), "once");
                assert_eq!(isolator.clean_up(id()).await.unwrap(), Some(limitation));
            },
        );
    }

    #[test]
    fn quota_grows_with_the_tasks_and_is_soft_by_default() {
        story(
            "true",
            "disk:1",
            |node, isolator, sandbox, mut limited| async move {
                let more = UpdateContainer {
                    container_id: id(),
                    resources: resources("disk:100"),
                };
                isolator.update(more).await.unwrap();
                std::fs::write(sandbox.join("big"), vec![1; 3 << 20]).unwrap();
                node.clock().sleep(Duration::from_secs(40)).await;
                assert!(limited.try_recv().is_err());
                assert_eq!(isolator.clean_up(id()).await.unwrap(), None);
            },
        );
        for (enforces, requests) in [("false", "disk:1"), ("true", "cpus:1")] {
            story(
                enforces,
                requests,
                |node, isolator, sandbox, mut limited| async move {
                    std::fs::write(sandbox.join("big"), vec![1; 3 << 20]).unwrap();
                    node.clock().sleep(Duration::from_secs(40)).await;
                    assert!(limited.try_recv().is_err());
                    assert_eq!(isolator.clean_up(id()).await.unwrap(), None);
                },
            );
        }
    }
}
