//! Isolator `disk/loop`: bounds the space of sandboxes by file systems of their own, on any disk.
//!
//! The sandbox of a container with the resource `disk` is a mounted ext4 file system of that size,
//! in a sparse file beside it. A write beyond it fails as on a full disk. The mount stays as long
//! as the sandbox, so that its files can be read; the garbage collection of the agent removes both.
//! The limit grows with the tasks and never shrinks. Persistent volumes and the writable layer of
//! an image are not bounded.

mod device;
mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use module_api::isolator::{
    CleanUpContainer, ContainerResources, LaunchPlan, Limitation, MeasureContainers, Measured,
    PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::{ContainerId, ResourceStatistics};
use runtime::prelude::*;

use super::{MEGABYTE, quota};

/// The name of this isolator in `--isolation`.
pub const NAMES: [&str; 1] = ["disk/loop"];

pub use files::mkfs;

/// A container whose sandbox has a file system of its own.
#[derive(Clone, Debug)]
struct Tracked {
    sandbox: PathBuf,
    /// Size of the file system.
    bytes: u64,
}

/// The actor.
struct LoopDisk {
    work_dir: PathBuf,
    mkfs: PathBuf,
    /// Outlives a restart of the actor.
    containers: Arc<Mutex<BTreeMap<ContainerId, Tracked>>>,
    /// Held by threads that mount or grow: a request that was given up or repeated still runs.
    changing: Arc<Mutex<()>>,
}

/// Starts the isolator.
pub fn start(node: &Node, names: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let work_dir = given.required("work_dir", "a path", |text| Some(PathBuf::from(text)))?;
    let mkfs = mkfs().map_err(|reason| ModuleError::NotStarted {
        kind: ModuleKind::Isolator,
        name: names.join(","),
        reason,
    })?;
    let (containers, changing) = (Arc::default(), Arc::default());
    let make = move || LoopDisk {
        work_dir: work_dir.clone(),
        mkfs: mkfs.clone(),
        containers: Arc::clone(&containers),
        changing: Arc::clone(&changing),
    };
    let actor = crate::supervise(node, ModuleKind::Isolator, "loop_disk_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

/// The limit in bytes, if there is one.
fn limit(resources: &ContainerResources) -> Option<u64> {
    let quota = quota(resources);
    (!quota.is_empty()).then(|| (quota.disk().as_f64() * MEGABYTE) as u64)
}

impl LoopDisk {
    fn containers(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Tracked>> {
        lock(&self.containers)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Actor for LoopDisk {
    type Context = Context<Self>;
}

impl Process for LoopDisk {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for LoopDisk {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, recover: RecoverContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let (work_dir, changing) = (self.work_dir.clone(), Arc::clone(&self.changing));
        let mounting = ctx.node().blocking(move || {
            let _changing = lock(&changing);
            files::mount_all(&work_dir);
            let containers = recover.containers.into_iter();
            let outermost = containers.filter(|config| config.container_id.parent().is_none());
            let tracked = outermost.filter_map(|config| {
                let (id, sandbox) = (config.container_id, config.sandbox);
                let bytes = files::size(&sandbox)?;
                Some((id, Tracked { sandbox, bytes }))
            });
            tracked.collect::<BTreeMap<_, _>>()
        });
        ctx.then(mounting, move |this, tracked, _| {
            let tracked = tracked.map_err(|error| Fault::failed(error.to_string()));
            promise.answer(tracked.map(|tracked| *this.containers() = tracked));
        });
        reply
    }
}

impl Handler<PrepareContainer> for LoopDisk {
    type Result = Reply<Result<LaunchPlan, Fault>>;

    fn handle(&mut self, prepare: PrepareContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let config = prepare.config;
        // The sandbox of a nested one is within its parent's.
        let is_nested = config.container_id.parent().is_some();
        let limit = limit(&config.resources).filter(|_| !is_nested);
        let Some(limit) = limit else {
            promise.answer(Ok(LaunchPlan::default()));
            return reply;
        };
        let (id, mkfs) = (config.container_id, self.mkfs.clone());
        let making = ctx.node().blocking(move || {
            let sandbox = config.sandbox;
            let bytes = files::make(&mkfs, &sandbox, limit)?;
            Ok(Tracked { sandbox, bytes })
        });
        ctx.then(
            making,
            move |this, made: Result<Result<_, String>, _>, _| {
                let made = made.map_err(|error| error.to_string()).flatten();
                promise.answer(made.map_err(Fault::failed).map(|tracked| {
                    this.containers().insert(id, tracked);
                    LaunchPlan::default()
                }));
            },
        );
        reply
    }
}

impl Handler<UpdateContainer> for LoopDisk {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, update: UpdateContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let id = update.container_id;
        let tracked = self.containers().get(&id).cloned();
        let wanted = tracked.zip(limit(&update.resources));
        let Some((tracked, limit)) = wanted.filter(|(one, limit)| *limit > one.bytes) else {
            promise.answer(Ok(()));
            return reply;
        };
        let changing = Arc::clone(&self.changing);
        let growing = ctx.node().blocking(move || {
            let _changing = lock(&changing);
            files::grow(&tracked.sandbox, limit)
        });
        ctx.then(growing, move |this, grown, _| {
            let grown = grown.map_err(|error| error.to_string()).flatten();
            promise.answer(grown.map_err(Fault::failed).map(|bytes| {
                if let Some(tracked) = this.containers().get_mut(&id) {
                    tracked.bytes = tracked.bytes.max(bytes);
                }
            }));
        });
        reply
    }
}

impl Handler<MeasureContainers> for LoopDisk {
    type Result = Reply<Result<Measured, Fault>>;

    fn handle(&mut self, measure: MeasureContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let mut containers = self.containers().clone();
        containers.retain(|id, _| measure.containers.contains(id));
        let looking = ctx.node().blocking(move || -> Measured {
            let statistics = |(id, one): (ContainerId, Tracked)| {
                let statistics = ResourceStatistics {
                    disk_limit_bytes: Some(one.bytes),
                    disk_used_bytes: Some(files::used(&one.sandbox).ok()?),
                    ..ResourceStatistics::default()
                };
                Some((id, statistics))
            };
            containers.into_iter().filter_map(statistics).collect()
        });
        ctx.then(looking, move |_, measured, _| {
            promise.answer(measured.map_err(|error| Fault::failed(error.to_string())));
        });
        reply
    }
}

impl Handler<CleanUpContainer> for LoopDisk {
    type Result = Result<Option<Limitation>, Fault>;

    fn handle(&mut self, clean_up: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        self.containers().remove(&clean_up.container_id);
        Ok(None)
    }
}
