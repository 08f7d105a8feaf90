//! Isolator `cgroups`: limits and measures containers by control groups, v1 and v2.
//!
//! Handles all messages of an isolator. The address of the containerizer, the live containers and
//! the lock of the agent's root outlive a restart of the actor, which registers for memory events
//! again and goes on with removals. It kills only processes of containers that are not live; the
//! agent ends all others.
//!
//! | module | contents |
//! |---|---|
//! | `bpf` | the device program of v2 |
//! | `controllers` | resources as the contents of control files, and statistics from them |
//! | `files` | control files and group directories |
//! | `groups` | the groups of all containers |
//! | `hierarchy` | where control groups are mounted |
//! | `oom` | memory events |
//! | `options` | the operator's flags |

mod bpf;
pub mod controllers;
mod files;
pub mod groups;
pub mod hierarchy;
mod oom;
pub mod options;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use module_api::isolator::{
    CleanUpContainer, ContainerLimited, LaunchPlan, Limitation, MeasureContainers, Measured,
    PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::ContainerId;
use runtime::observe::host::Memory;
use runtime::prelude::*;

use files::FileError;
use groups::Groups;
use oom::MemoryEvents;
use options::Options;

/// The names that this isolator has in `--isolation`.
pub const NAMES: [&str; 7] = [
    "cgroups/cpu",
    "cgroups/mem",
    "cgroups/pids",
    "cgroups/cpuset",
    "cgroups/devices",
    "cgroups/blkio",
    "cgroups/all",
];

/// The first and the longest pause between two tries to remove a group.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Pause after an event without a kill: a container near its limit causes them all the time.
const EVENT_PAUSE: Duration = Duration::from_millis(100);

/// A job on the groups, and its continuation in the actor.
type Job = Box<dyn FnOnce(&Groups) -> Done + Send>;
type Done = Box<dyn FnOnce(&mut Cgroups, &mut Context<Cgroups>) + Send>;

/// State that outlives a restart of the actor.
#[derive(Debug)]
struct Shared {
    groups: Groups,
    containerizer: Mutex<Option<Pid>>,
    /// The containers between their preparation, or the recovery, and their clean-up. The groups of
    /// all others are to be removed.
    live: Mutex<BTreeSet<ContainerId>>,
}

impl Shared {
    fn live(&self) -> std::sync::MutexGuard<'_, BTreeSet<ContainerId>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn containerizer(&self) -> std::sync::MutexGuard<'_, Option<Pid>> {
        let locked = self.containerizer.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The actor.
pub struct Cgroups {
    shared: Arc<Shared>,
    waiting: BTreeMap<ContainerId, TimerHandle>,
    /// Jobs for the next blocking call: there is one call at a time, so that a thousand launches
    /// do not take a thousand threads.
    jobs: Vec<Job>,
    working: bool,
}

/// Starts the isolator for those of its names that the operator chose.
pub fn start(node: &Node, names: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let options = Options::from_parameters(given)?;
    let groups = open(names, options).map_err(|reason| ModuleError::NotStarted {
        kind: ModuleKind::Isolator,
        name: names.join(","),
        reason,
    })?;
    start_with(node, groups)
}

/// Blocking. Removes the groups of all containers of an agent whose processes have ended.
pub fn remove_all(names: &[&str], given: &Parameters) {
    let options = Options::from_parameters(given);
    let groups = options.map_err(|error| error.to_string());
    match groups.and_then(|options| open(names, options)) {
        Ok(groups) => {
            for container in groups.list() {
                if let Err(error) = groups.remove(&container) {
                    tracing::error!(%container, %error, "cannot remove a control group");
                }
            }
        }
        Err(problem) => tracing::error!(problem, "cannot remove control groups"),
    }
}

fn open(names: &[&str], mut options: Options) -> Result<Groups, String> {
    let kernel = Path::new("/proc/sys/kernel");
    let own = |file| files::read(kernel, file);
    let default = || controllers::pids::default_limit(&own("pid_max"), &own("threads-max"));
    options.pids_limit = options.pids_limit.or_else(default);
    let found = groups::hierarchies(&options.hierarchy)
        .map_err(|error| format!("cannot read /proc/self/mountinfo: {error}"))?;
    let trees = hierarchy::trees(names, &found)?;
    Groups::open(trees, options, Memory::now().total)
}

fn start_with(node: &Node, groups: Groups) -> Result<IsolatorRef, ModuleError> {
    let shared = Arc::new(Shared {
        groups,
        containerizer: Mutex::default(),
        live: Mutex::default(),
    });
    let make = move || Cgroups {
        shared: shared.clone(),
        waiting: BTreeMap::new(),
        jobs: Vec::new(),
        working: false,
    };
    let actor = crate::supervise(node, ModuleKind::Isolator, "cgroups", make)?;
    Ok(IsolatorRef::new(actor))
}

impl Cgroups {
    /// Runs `work` on a blocking thread and `done` with its result here.
    fn submit<T: Send + 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        work: impl FnOnce(&Groups) -> T + Send + 'static,
        done: impl FnOnce(&mut Self, T, &mut Context<Self>) + Send + 'static,
    ) {
        self.jobs.push(Box::new(move |groups| {
            let result = work(groups);
            Box::new(move |this, ctx| done(this, result, ctx))
        }));
        self.work(ctx);
    }

    fn work(&mut self, ctx: &mut Context<Self>) {
        if self.working || self.jobs.is_empty() {
            return;
        }
        self.working = true;
        let (jobs, shared) = (std::mem::take(&mut self.jobs), self.shared.clone());
        let work = move || -> Vec<Done> {
            let jobs = jobs.into_iter();
            jobs.map(|job| job(&shared.groups)).collect()
        };
        let working = ctx.node().blocking(work);
        ctx.then(working, |this, done, ctx| {
            this.working = false;
            match done {
                Ok(done) => done.into_iter().for_each(|done| done(this, ctx)),
                // Dropping the jobs has answered their callers.
                Err(error) => tracing::error!(%error, "job on control groups panicked"),
            }
            this.work(ctx);
        });
    }

    /// Registers for the memory events of containers, and reports those that are over already.
    fn watch(&mut self, containers: Vec<ContainerId>, ctx: &mut Context<Self>) {
        let register = move |groups: &Groups| {
            let register = |container: ContainerId| {
                let events = groups.memory_events(&container)?;
                Some((groups.limitation(&container, false), events, container))
            };
            let containers = containers.into_iter();
            containers.filter_map(register).collect::<Vec<_>>()
        };
        self.submit(ctx, register, |this, registered, ctx| {
            for (limitation, events, container) in registered {
                this.wait(container, events, limitation, ctx);
            }
        });
    }

    fn wait(
        &mut self,
        container: ContainerId,
        events: Result<MemoryEvents, FileError>,
        limitation: Option<Limitation>,
        ctx: &mut Context<Self>,
    ) {
        if !self.shared.live().contains(&container) {
            // Cleaned up meanwhile: an event that never comes would keep the descriptor.
            return;
        }
        if let Some(limitation) = limitation {
            return self.report(container, limitation, ctx);
        }
        let unwatched = |container: &ContainerId, error: &dyn std::fmt::Display| {
            tracing::warn!(%container, %error, "an exceeded memory limit shows only at the end");
        };
        let events = match events {
            Ok(events) => events,
            Err(error) => return unwatched(&container, &error),
        };
        let id = container.clone();
        let timer = ctx.then(events.next(), move |this, event, ctx| {
            this.waiting.remove(&container);
            match event {
                Ok(()) => this.check(container, ctx),
                Err(error) => unwatched(&container, &error),
            }
        });
        if let Some(earlier) = self.waiting.insert(id, timer) {
            ctx.cancel(earlier);
        }
    }

    /// After an event: reports the limit, or waits for the next event.
    fn check(&mut self, container: ContainerId, ctx: &mut Context<Self>) {
        let id = container.clone();
        let look = move |groups: &Groups| groups.limitation(&id, true);
        self.submit(ctx, look, |this, limitation, ctx| match limitation {
            Some(limitation) => this.report(container, limitation, ctx),
            None => {
                ctx.after(EVENT_PAUSE, |this, ctx| this.watch(vec![container], ctx));
            }
        });
    }

    fn report(&self, container: ContainerId, limitation: Limitation, ctx: &Context<Self>) {
        let Some(containerizer) = self.shared.containerizer().clone() else {
            return;
        };
        let limited = ContainerLimited {
            container_id: container.clone(),
            limitation,
        };
        if let Err(error) = ctx.node().refer(containerizer).tell(limited) {
            // The limitation is in the reply of the clean-up as well.
            tracing::warn!(%container, %error, "cannot report an exceeded memory limit");
        }
    }

    /// Registers for the memory events of live containers, and removes the groups of all others.
    fn recover_groups(&mut self, ctx: &mut Context<Self>) {
        self.submit(ctx, Groups::list, |this, found, ctx| {
            let live = this.shared.live().clone();
            let (live, others): (BTreeSet<_>, _) = found
                .into_iter()
                .partition(|container| live.contains(container));
            if !others.is_empty() {
                let count = others.len();
                tracing::info!(count, "removing control groups of no container");
            }
            this.watch(live.into_iter().collect(), ctx);
            this.remove(others, ctx);
        });
    }

    /// Kills the processes of these containers and removes their groups, in the background.
    fn remove(&self, containers: BTreeSet<ContainerId>, ctx: &mut Context<Self>) {
        let (node, shared) = (ctx.node().clone(), self.shared.clone());
        ctx.then(remove(node, shared, containers), |_, remaining, _| {
            for (container, error) in remaining {
                // The next start of the agent tries again.
                tracing::error!(%container, %error, "cannot remove a control group");
            }
        });
    }
}

/// Kills the processes in these groups and removes them, with pauses while they are busy, for
/// `--cgroups_destroy_timeout`. Returns those that remain, with the reason.
async fn remove(
    node: Node,
    shared: Arc<Shared>,
    mut containers: BTreeSet<ContainerId>,
) -> BTreeMap<ContainerId, FileError> {
    let deadline = node.clock().now() + shared.groups.options().destroy_timeout;
    let mut pause = PAUSE_MIN;
    loop {
        let shared = shared.clone();
        let pass = node.blocking(move || {
            let mut remaining = BTreeMap::new();
            for container in containers {
                shared.groups.kill(&container);
                if let Err(error) = shared.groups.remove(&container) {
                    remaining.insert(container, error);
                }
            }
            remaining
        });
        let remaining = match pass.await {
            Ok(remaining) => remaining,
            Err(error) => {
                tracing::error!(%error, "removal of control groups panicked");
                return BTreeMap::new();
            }
        };
        let is_over = node.clock().now() >= deadline;
        if is_over || !remaining.values().any(FileError::is_busy) {
            return remaining;
        }
        containers = remaining.into_keys().collect();
        node.clock().sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn fault(error: impl ToString) -> Fault {
    Fault::Failed {
        reason: error.to_string(),
    }
}

impl Actor for Cgroups {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // After a restart the agent does not send the containers again.
        if self.shared.containerizer().is_some() {
            self.recover_groups(ctx);
        }
    }
}

impl Process for Cgroups {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for Cgroups {
    type Result = Result<(), Fault>;

    fn handle(&mut self, recover: RecoverContainers, ctx: &mut Context<Self>) -> Self::Result {
        *self.shared.containerizer() = Some(recover.containerizer);
        let ids = recover.containers.into_iter();
        let ids = ids.filter(|config| !config.shares_limits);
        *self.shared.live() = ids.map(|config| config.container_id).collect();
        self.recover_groups(ctx);
        Ok(())
    }
}

impl Handler<PrepareContainer> for Cgroups {
    type Result = Reply<Result<LaunchPlan, Fault>>;

    fn handle(&mut self, prepare: PrepareContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if prepare.config.shares_limits {
            promise.answer(Ok(LaunchPlan::default()));
            return reply;
        }
        let container = prepare.config.container_id.clone();
        self.shared.live().insert(container.clone());
        let create = move |groups: &Groups| {
            let plan = groups.create(&prepare.config)?;
            Ok((plan, groups.memory_events(&prepare.config.container_id)))
        };
        let done = |this: &mut Self, made: Result<_, FileError>, ctx: &mut Context<Self>| {
            let answer = made.map(|(plan, events)| {
                if let Some(events) = events {
                    this.wait(container, events, None, ctx);
                }
                plan
            });
            promise.answer(answer.map_err(fault));
        };
        self.submit(ctx, create, done);
        reply
    }
}

impl Handler<UpdateContainer> for Cgroups {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, update: UpdateContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let set = move |groups: &Groups| groups.update(&update.container_id, &update.resources);
        self.submit(ctx, set, |_, set, _| promise.answer(set.map_err(fault)));
        reply
    }
}

impl Handler<MeasureContainers> for Cgroups {
    type Result = Reply<Result<Measured, Fault>>;

    fn handle(&mut self, measure: MeasureContainers, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let now = ctx.clock().wall();
        let look = move |groups: &Groups| groups.measure(measure.containers, now);
        self.submit(ctx, look, |_, measured, _| promise.answer(Ok(measured)));
        reply
    }
}

impl Handler<CleanUpContainer> for Cgroups {
    type Result = Reply<Result<Option<Limitation>, Fault>>;

    fn handle(&mut self, clean_up: CleanUpContainer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let container = clean_up.container_id;
        self.shared.live().remove(&container);
        if let Some(timer) = self.waiting.remove(&container) {
            ctx.cancel(timer);
        }
        let id = container.clone();
        let first = move |groups: &Groups| (groups.limitation(&id, false), groups.remove(&id));
        self.submit(ctx, first, move |this, (limitation, removed), ctx| {
            // The end of the task waits for this, and a removal may take long.
            promise.answer(Ok(limitation));
            if removed.is_err() {
                this.remove(BTreeSet::from([container]), ctx);
            }
        });
        reply
    }
}
