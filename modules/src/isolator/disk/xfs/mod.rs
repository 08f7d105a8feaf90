//! Isolator `disk/xfs`: bounds the space of sandboxes and persistent volumes by project quotas.
//!
//! A sandbox, with the writable layer of an image, is a project of the file system, and so is each
//! persistent volume. The kernel counts them, so nothing is scanned. It is the only record: which
//! project a directory has, and which are in use. So a project is free again when nothing of it is
//! left on the file system. Volumes on MOUNT disks are not bounded: the disk is their limit.

mod kernel;
mod projects;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use module_api::isolator::{
    CleanUpContainer, ContainerConfig, ContainerLimited, ContainerResources, LaunchPlan,
    Limitation, MeasureContainers, Measured, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::{ContainerId, ResourceStatistics};
use resources::Ranges;
use runtime::prelude::*;

use projects::{Place, Policy, Projects};

/// The name of this isolator in `--isolation`.
pub const NAMES: [&str; 1] = ["disk/xfs"];

pub use projects::has_quotas;

/// A container.
#[derive(Clone, Debug)]
struct Tracked {
    /// The directories that share the project of its sandbox.
    directories: Vec<PathBuf>,
    /// The sandbox, then its volumes.
    places: Vec<Place>,
    /// Whether the agent was told that it is beyond its quota.
    limitation: Option<Limitation>,
}

/// State that outlives a restart of the actor.
#[derive(Debug, Default)]
struct Known {
    containerizer: Option<Pid>,
    containers: BTreeMap<ContainerId, Tracked>,
}

/// The actor.
struct XfsDisk {
    interval: Duration,
    projects: Arc<Projects>,
    known: Arc<Mutex<Known>>,
}

/// Starts the isolator.
pub fn start(node: &Node, names: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let or_not = |key| given.optional(key, "true or false", |text| text.parse().ok());
    let enforces: Option<bool> = or_not("enforce_container_disk_quota")?;
    let kills: Option<bool> = or_not("xfs_kill_containers")?;
    let headroom = given.optional("xfs_quota_headroom", "bytes such as `1048576B`", |text| {
        text.strip_suffix('B')?.parse().ok()
    })?;
    let policy = match (enforces.unwrap_or(false), kills.unwrap_or(false)) {
        (false, _) => Policy::Count,
        (true, false) => Policy::Refuse,
        (true, true) => Policy::End {
            headroom: headroom.unwrap_or(10 << 20),
        },
    };
    let ids = "ranges of ids from 1 to 4294967295, such as `[5000-10000]`";
    let range = given.optional("xfs_project_range", ids, projects::range)?;
    let key = "container_disk_watch_interval";
    let interval = given.optional(key, "a duration such as `15secs`", |text| {
        let interval = protocol::text::duration::parse(text).ok();
        interval.filter(|interval| !interval.is_zero())
    })?;
    let work_dir = given.required("work_dir", "a path", |text| Some(PathBuf::from(text)))?;
    has_quotas(&work_dir).map_err(|reason| ModuleError::NotStarted {
        kind: ModuleKind::Isolator,
        name: names.join(","),
        reason,
    })?;
    let range = range.unwrap_or_else(|| Ranges::new(resources::Range::new(5000, 10_000)));
    let projects = Arc::new(Projects::new(work_dir, range, policy));
    let known = Arc::new(Mutex::default());
    let make = move || XfsDisk {
        interval: interval.unwrap_or(Duration::from_secs(15)),
        projects: Arc::clone(&projects),
        known: Arc::clone(&known),
    };
    let actor = crate::supervise(node, ModuleKind::Isolator, "xfs_disk_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

/// The directories that share the project of a sandbox.
fn directories(config: &ContainerConfig) -> Vec<PathBuf> {
    let scratch = config.root.iter().map(|root| root.scratch.clone());
    [config.sandbox.clone()]
        .into_iter()
        .chain(scratch)
        .collect()
}

impl XfsDisk {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives these directories, and the volumes among the resources, their projects and limits.
    fn place(
        &self,
        directories: Vec<PathBuf>,
        resources: ContainerResources,
        ctx: &Context<Self>,
    ) -> impl Future<Output = Result<Vec<Place>, Fault>> + use<> {
        let projects = Arc::clone(&self.projects);
        let placing = move || projects.place(&directories, &resources.requests);
        let placing = ctx.node().blocking(placing);
        async move {
            let placed = placing.await.map_err(|error| error.to_string());
            placed.flatten().map_err(Fault::failed)
        }
    }

    /// Looks for containers beyond their quota at each interval.
    fn watch(&self, ctx: &mut Context<Self>) {
        ctx.after(self.interval, |this, ctx| {
            let containers = this.known().containers.clone();
            let projects = Arc::clone(&this.projects);
            let look = move || -> Vec<(ContainerId, Limitation)> {
                let exceeded =
                    |(id, one): (ContainerId, Tracked)| Some((id, projects.exceeded(&one.places)?));
                let containers = containers.into_iter();
                containers.filter_map(exceeded).collect()
            };
            let looking = ctx.node().blocking_low_priority(look);
            ctx.then(looking, |this, exceeded, ctx| {
                match exceeded {
                    Ok(exceeded) => this.report(exceeded, ctx),
                    Err(error) => tracing::error!(%error, "check of disk quotas panicked"),
                }
                this.watch(ctx);
            });
        });
    }

    fn report(&self, exceeded: Vec<(ContainerId, Limitation)>, ctx: &Context<Self>) {
        let mut known = self.known();
        let Some(containerizer) = known.containerizer.clone() else {
            return;
        };
        for (container_id, limitation) in exceeded {
            let Some(tracked) = known.containers.get_mut(&container_id) else {
                continue;
            };
            if tracked.limitation.is_some() {
                continue;
            }
            let limited = ContainerLimited {
                container_id: container_id.clone(),
                limitation: limitation.clone(),
            };
            match ctx.node().refer(containerizer.clone()).tell(limited) {
                Ok(()) => tracked.limitation = Some(limitation),
                // With the next check.
                Err(error) => {
                    tracing::warn!(container = %container_id, %error, "cannot report its disk usage");
                }
            }
        }
    }
}

impl Actor for XfsDisk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if self.projects.ends_containers() {
            self.watch(ctx);
        }
    }
}

impl Process for XfsDisk {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for XfsDisk {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, recover: RecoverContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let projects = Arc::clone(&self.projects);
        let place = move || -> BTreeMap<ContainerId, Tracked> {
            let place = |config: ContainerConfig| {
                let directories = directories(&config);
                let places = projects.place(&directories, &config.resources.requests);
                let places = places.unwrap_or_else(|problem| {
                    let container = &config.container_id;
                    tracing::error!(%container, problem, "its disk space is not bounded");
                    Vec::new()
                });
                let tracked = Tracked {
                    directories,
                    places,
                    limitation: None,
                };
                (config.container_id, tracked)
            };
            let containers = recover.containers.into_iter();
            let containers = containers.filter(|config| config.container_id.parent().is_none());
            containers.map(place).collect()
        };
        let containerizer = recover.containerizer;
        let placing = ctx.node().blocking(place);
        ctx.then(placing, move |this, placed, _| {
            let placed = placed.map_err(|error| Fault::failed(error.to_string()));
            promise.answer(placed.map(|containers| {
                *this.known() = Known {
                    containerizer: Some(containerizer),
                    containers,
                };
            }));
        });
        reply
    }
}

impl Handler<PrepareContainer> for XfsDisk {
    type Result = Reply<Result<LaunchPlan, Fault>>;

    fn handle(&mut self, prepare: PrepareContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let config = prepare.config;
        // The sandbox of a nested one is within its parent's, and so in its project.
        if config.container_id.parent().is_some() {
            promise.answer(Ok(LaunchPlan::default()));
            return reply;
        }
        let directories = directories(&config);
        let placing = self.place(directories.clone(), config.resources, ctx);
        ctx.then(placing, move |this, placed, _| {
            promise.answer(placed.map(|places| {
                let tracked = Tracked {
                    directories,
                    places,
                    limitation: None,
                };
                this.known().containers.insert(config.container_id, tracked);
                LaunchPlan::default()
            }));
        });
        reply
    }
}

impl Handler<UpdateContainer> for XfsDisk {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, update: UpdateContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let container = update.container_id;
        let known = self.known().containers.get(&container).cloned();
        let Some(known) = known else {
            promise.answer(Ok(()));
            return reply;
        };
        let placing = self.place(known.directories, update.resources, ctx);
        ctx.then(placing, move |this, placed, _| {
            promise.answer(placed.map(|places| {
                if let Some(tracked) = this.known().containers.get_mut(&container) {
                    tracked.places = places;
                }
            }));
        });
        reply
    }
}

impl Handler<MeasureContainers> for XfsDisk {
    type Result = Reply<Result<Measured, Fault>>;

    fn handle(&mut self, measure: MeasureContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let sandboxes: Vec<(ContainerId, Place)> = {
            let known = self.known();
            let sandbox = |id: ContainerId| {
                let place = known.containers.get(&id)?.places.first()?.clone();
                Some((id, place))
            };
            measure.containers.into_iter().filter_map(sandbox).collect()
        };
        let projects = Arc::clone(&self.projects);
        let look = move || -> Measured {
            let statistics = |(id, place): (ContainerId, Place)| {
                let statistics = ResourceStatistics {
                    disk_limit_bytes: place.quota,
                    disk_used_bytes: Some(projects.used(&place).ok()?),
                    ..ResourceStatistics::default()
                };
                Some((id, statistics))
            };
            sandboxes.into_iter().filter_map(statistics).collect()
        };
        let looking = ctx.node().blocking(look);
        ctx.then(looking, move |_, measured, _| {
            promise.answer(measured.map_err(|error| Fault::failed(error.to_string())));
        });
        reply
    }
}

impl Handler<CleanUpContainer> for XfsDisk {
    type Result = Reply<Result<Option<Limitation>, Fault>>;

    fn handle(&mut self, clean_up: CleanUpContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let removed = self.known().containers.remove(&clean_up.container_id);
        let Some(removed) = removed else {
            promise.answer(Ok(None));
            return reply;
        };
        let projects = Arc::clone(&self.projects);
        let sandbox = removed.places.into_iter().next();
        let releasing = ctx.node().blocking(move || {
            if let Some(sandbox) = sandbox {
                projects.release(&sandbox);
            }
        });
        ctx.then(releasing, move |_, _, _| {
            promise.answer(Ok(removed.limitation))
        });
        reply
    }
}
