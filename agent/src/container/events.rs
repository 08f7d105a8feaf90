//! Messages that the containerizer handles from the agent, and their answers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use module_api::isolator::{ContainerLimited, ContainerResources, NetworkRecovered};
use protocol::message::executor::{ExecutorUpdated, SubscribeExecutor};
use protocol::message::registration::{AgentInventory, DisownTasks, RunningExecutor, RunningTask};
use protocol::message::scheduler::{FrameworkMessage, KillTask};
use protocol::message::task::{DrainTasks, EndExecutor, RunTasks, ShutDownFramework};
use protocol::task::TaskLimits;
use protocol::task::network::NetworkInfo;
use protocol::usage::{ExecutorUsage, Throttle};
use protocol::view::oversubscription::CorrectionKind;
use protocol::{
    AgentInfo, Capability, ContainerId, FrameworkId, FrameworkInfo, QosCorrection, Reason, TaskId,
    TaskState, TaskStatus,
};
use resources::Resources;
use runtime::Timestamp;
use runtime::prelude::*;

use super::machine::{Container, Phase, Task, executor_overhead};
use super::{Containerizer, forget};
use crate::container::launches::times::LaunchTimes;
use crate::container::launches::unplaced::placeholder;
use crate::launcher::LauncherEvent;
use crate::metrics::Counts;
use crate::oversubscription::corrections::CorrectionLog;
use crate::sandbox::disk::DiskWatch;

/// How long the end of a nested container waits for the limit that its parent has exceeded.
const LIMITATION_PATIENCE: Duration = Duration::from_millis(500);

/// The agent's current id and master.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Registered {
    /// Has an id once registered.
    pub agent: AgentInfo,
    /// Receives executor exits and framework messages.
    pub master: Option<Pid>,
}

/// The agent's reservations and volumes after an operation. Tasks may use no others.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ResourcesCheckpointed(pub Resources);

/// The terminal update of a task was acknowledged.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct TaskClosed {
    /// Framework of the task.
    pub framework_id: FrameworkId,
    /// The task.
    pub task_id: TaskId,
}

/// Applies these corrections of the QoS controller at once, in this order.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ApplyCorrections(pub Vec<QosCorrection>);

/// Shuts down every executor within its grace period. The agent will not return under its id.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct ShutDownAll;

/// Asks whether all containers have ended and nothing is left that was made for them.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "bool")]
pub struct HasNothingLeft;

/// Requests the inventory to report to a master.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentInventory")]
pub struct TakeInventory;

/// Lists the live containers, for the usage monitor.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Arc<[LiveContainer]>")]
pub struct ListLiveContainers;

/// A container that has not ended.
#[derive(Clone, Debug)]
pub struct LiveContainer {
    /// Ids and allocation; not yet measured.
    pub usage: ExecutorUsage,
    /// Its session leader, once started.
    pub leader: Option<i32>,
    /// Its requests and limits.
    pub resources: ContainerResources,
    /// Those nested in it that have control groups of their own. Its allocation includes theirs.
    pub apart: Vec<LiveNested>,
}

/// A live nested container with control groups of its own.
#[derive(Clone, Debug)]
pub struct LiveNested {
    /// Its id.
    pub id: ContainerId,
    /// Its session leader, once started.
    pub leader: Option<i32>,
    /// Its requests and limits.
    pub resources: ContainerResources,
}

/// Requests the sandboxes of all containers that have not ended.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<PathBuf>")]
pub struct SandboxesInUse;

/// Sets the disk watch of the work directory.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct DiskWatched(pub Handle<DiskWatch>);

/// Requests a view of the containers.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "ContainersView")]
pub struct TakeSurvey;

/// The containers at one moment, for pages and metrics.
#[derive(Clone, Debug, Default)]
pub struct ContainersView {
    /// Frameworks with containers here.
    pub frameworks: Vec<FrameworkInfo>,
    /// The containers.
    pub containers: Vec<ContainerView>,
    /// The living containers that are nested in them.
    pub nested: Vec<NestedView>,
    /// The newest completed executor runs, oldest first.
    pub completed: Vec<Arc<ContainerView>>,
    /// The newest completed frameworks, oldest first.
    pub completed_frameworks: Vec<FrameworkInfo>,
    /// The drain order, while containers are still ending.
    pub drain: Option<Draining>,
    /// Number of executors that are throttled.
    pub throttled: usize,
    /// Corrections of the QoS controller.
    pub corrections: CorrectionLog,
    /// Counters since the start.
    pub counts: Counts,
    /// The times of the phases of launches.
    pub launch_times: LaunchTimes,
}

/// A drain order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Upper bound of the tasks' grace periods; `None` keeps each task's own.
    pub max_grace_period: Option<Duration>,
    /// Start, by the agent's clock.
    pub since: Timestamp,
}

/// One container, for pages and metrics.
#[derive(Clone, Debug)]
pub struct ContainerView {
    /// Its id.
    pub id: ContainerId,
    /// Its framework.
    pub framework_id: FrameworkId,
    /// Its executor.
    pub executor: protocol::ExecutorInfo,
    /// Whether it runs a command without an executor of the framework.
    pub is_command: bool,
    /// Its phase.
    pub phase: Phase,
    /// Its session leader, while it runs.
    pub leader: Option<i32>,
    /// Its network address, which is the host's, if configured.
    pub address: Option<IpAddr>,
    /// The networks that it has joined instead, with its addresses.
    pub networks: Vec<NetworkInfo>,
    /// Its sandbox.
    pub directory: String,
    /// Its resources.
    pub allocated: Resources,
    /// Its tasks with their states.
    pub tasks: Vec<(protocol::TaskInfo, TaskState)>,
    /// The newest acknowledged tasks, oldest first.
    pub completed: Vec<(protocol::TaskInfo, TaskState)>,
    /// The newest statuses of each task, the newest last. Tasks without a status are absent.
    pub statuses: BTreeMap<TaskId, Vec<Arc<TaskStatus>>>,
}

impl ContainerView {
    /// The resources of a command executor's description, which stay when it has ended.
    pub fn executor_resources(&self) -> Resources {
        let task = self.command_task().map(|task| &task.resources);
        task.map_or_else(Resources::new, |own| {
            executor_overhead(own, self.is_command)
        })
    }

    /// Allocation including the overhead.
    pub fn allocated_with_overhead(&self) -> Resources {
        &self.allocated + &self.executor_overhead()
    }

    /// The overhead of a command's executor; empty for others.
    pub fn executor_overhead(&self) -> Resources {
        executor_overhead(&self.allocated, self.is_command)
    }

    /// The task of a command executor, until it is removed.
    pub fn command_task(&self) -> Option<&protocol::TaskInfo> {
        let mut tasks = self.tasks.iter().chain(&self.completed);
        tasks
            .next()
            .filter(|_| self.is_command)
            .map(|(info, _)| info)
    }
}

/// A living nested container, for pages.
#[derive(Clone, Debug)]
pub struct NestedView {
    /// Its id, in which are those of its parents.
    pub id: ContainerId,
    /// Its session leader, once started.
    pub leader: Option<i32>,
    /// The networks that it has joined instead of those of its parent.
    pub networks: Vec<NetworkInfo>,
    /// The requests and limits of its task; `None` if it has none.
    pub resources: Option<(Resources, TaskLimits)>,
}

/// Messages that exceed the mailbox bound are refused: executors repeat unconfirmed updates, and
/// the agent reregisters when it cannot forward a master's message. Internal messages bypass the
/// bound (`tell_always`).
impl Process for Containerizer {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<SubscribeExecutor>(&[Role::Executor]);
        handlers.accept::<ExecutorUpdated>(&[Role::Executor]);
        handlers.accept::<FrameworkMessage>(&[Role::Executor]);
        handlers.accept::<ContainerLimited>(&[Role::Module]);
        handlers.accept::<NetworkRecovered>(&[Role::Module]);
    }
}

impl Handler<Registered> for Containerizer {
    type Result = ();
    fn handle(&mut self, Registered { agent, master }: Registered, ctx: &mut Context<Self>) {
        self.agent = agent;
        self.master = master;
        self.record_agent();
        self.report_exits(ctx);
    }
}

impl Handler<RunTasks> for Containerizer {
    type Result = ();
    fn handle(&mut self, RunTasks { framework, tasks }: RunTasks, ctx: &mut Context<Self>) {
        if self.is_leaving() {
            // The master declares them gone when the agent unregisters.
            let count = tasks.len();
            tracing::info!(tasks = count, "ignoring tasks: the agent is leaving");
            return;
        }
        // Masters launch nothing on a draining agent, so the drain is over.
        self.draining = None;
        self.run(&framework, tasks, ctx);
    }
}

impl Handler<KillTask> for Containerizer {
    type Result = ();
    fn handle(&mut self, kill: KillTask, ctx: &mut Context<Self>) {
        match self.containers.of_task(&kill.framework_id, &kill.task_id) {
            Some(id) => self.with(&id, ctx, |container| {
                container.kill(&kill.task_id, kill.kill_policy)
            }),
            None if self.ended.has(&kill.framework_id, &kill.task_id) => {
                tracing::debug!(task = %kill.task_id, "ignoring a kill of an ended task");
            }
            None => {
                // Never here, or its launch was lost: the master must not wait for it.
                let aware = self.frameworks.get(&kill.framework_id);
                let aware =
                    aware.is_some_and(|framework| framework.info.can(Capability::PartitionAware));
                let state = TaskState::Dropped.for_framework(aware);
                let problem = "Cannot find executor".to_owned();
                let Some(agent) = self.agent.id.clone() else {
                    return; // Only a master that admitted the agent sends this.
                };
                let task = placeholder(&kill, agent);
                let (id, reason) = (&kill.framework_id, Reason::ExecutorTerminated);
                self.report_unplaced(id, task, state, reason, problem, ctx);
            }
        }
    }
}

impl Handler<DrainTasks> for Containerizer {
    type Result = ();
    fn handle(&mut self, DrainTasks { max_grace_period }: DrainTasks, ctx: &mut Context<Self>) {
        let containers = self.containers.iter();
        let all: Vec<ContainerId> = containers.map(|(_, one)| one.id.clone()).collect();
        tracing::info!(containers = all.len(), "draining this agent");
        let since = self.draining.map(|draining| draining.since);
        self.draining = Some(Draining {
            max_grace_period,
            since: since.unwrap_or_else(|| ctx.clock().wall()),
        });
        for id in all {
            self.with(&id, ctx, |container| container.drain(max_grace_period));
        }
    }
}

impl Handler<ShutDownFramework> for Containerizer {
    type Result = ();
    fn handle(
        &mut self,
        ShutDownFramework { framework_id }: ShutDownFramework,
        ctx: &mut Context<Self>,
    ) {
        if let Some(framework) = self.frameworks.get_mut(&framework_id) {
            framework.ending = true;
        }
        self.status
            .tell_always(crate::status::ForgetFramework(framework_id.clone()));
        self.unplaced.forget_framework(&framework_id);
        for id in self.containers.of_framework(&framework_id) {
            self.shut_down(&id, ctx);
        }
    }
}

impl Handler<EndExecutor> for Containerizer {
    type Result = ();
    fn handle(&mut self, end: EndExecutor, ctx: &mut Context<Self>) {
        match self.containers.current(&end.framework_id, &end.executor_id) {
            Some(id) => self.shut_down(&id, ctx),
            None => {
                tracing::info!(executor = %end.executor_id, "no such executor to shut down");
            }
        }
    }
}

impl Containerizer {
    /// Shuts down an executor: kills it if it does not stop within its grace period.
    pub(super) fn shut_down(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let executor = self
            .containers
            .get(id)
            .and_then(|container| container.executor.shutdown_grace_period);
        let grace = executor.unwrap_or(self.config.settings.executor_shutdown_grace_period);
        let inside = self.containers.inside(id);
        let inside: Vec<ContainerId> = inside.map(|nested| nested.id.clone()).collect();
        for nested in inside {
            self.with(&nested, ctx, |container| container.shut_down(grace));
        }
        self.with(id, ctx, |container| container.shut_down(grace));
    }
}

impl Handler<DisownTasks> for Containerizer {
    type Result = ();
    fn handle(&mut self, DisownTasks { tasks }: DisownTasks, ctx: &mut Context<Self>) {
        for (framework_id, task_id) in tasks {
            forget(&self.status, &framework_id, &task_id);
            self.unplaced.forget(&framework_id, &task_id);
            if let Some(id) = self.containers.of_task(&framework_id, &task_id) {
                self.with(&id, ctx, |container| {
                    container.disown(&task_id);
                    container.kill(&task_id, None)
                });
            }
        }
    }
}

impl Handler<LauncherEvent> for Containerizer {
    type Result = ();
    fn handle(&mut self, event: LauncherEvent, ctx: &mut Context<Self>) {
        match &event {
            LauncherEvent::Exited { container_id, .. }
            | LauncherEvent::Failed { container_id, .. } => {
                self.attached.ended(container_id);
            }
            LauncherEvent::Lost { .. } => self.attached.all_ended(),
            LauncherEvent::Started { .. } | LauncherEvent::ProgramEnded { .. } => {}
        }
        if self.requested_event(&event) {
            return;
        }
        match event {
            LauncherEvent::Started { container_id, pid } => {
                self.with(&container_id, ctx, |container| container.started(pid));
            }
            LauncherEvent::Failed {
                container_id,
                reason,
            } => {
                self.counts.container_launch_errors += 1;
                tracing::warn!(container = %container_id, reason, "cannot start container");
                self.with(&container_id, ctx, |container| {
                    container.launch_failed(&reason)
                });
            }
            LauncherEvent::Exited { container_id, end } => {
                match self.may_be_limited(&container_id, &end) {
                    // The isolators may say meanwhile that it exceeded the limits of its parent.
                    true => {
                        ctx.after(LIMITATION_PATIENCE, move |this, ctx| {
                            this.processes_ended(&container_id, end, ctx);
                        });
                    }
                    false => self.processes_ended(&container_id, end, ctx),
                }
            }
            LauncherEvent::ProgramEnded {
                container_id,
                program,
                end,
            } => self.check_command_ended(&container_id, program, end),
            LauncherEvent::Lost { .. } => {
                self.launcher.loss_handled();
                // Containers that wait for their sandbox use the next launcher.
                let lost = self
                    .containers
                    .iter()
                    .filter(|(_, one)| one.phase != Phase::Preparing && !one.is_gone());
                let lost: Vec<ContainerId> =
                    lost.map(|(_, container)| container.id.clone()).collect();
                for id in lost {
                    self.with(&id, ctx, |container| container.exited(None));
                }
            }
        }
    }
}

impl Handler<TaskClosed> for Containerizer {
    type Result = ();
    fn handle(
        &mut self,
        TaskClosed {
            framework_id,
            task_id,
        }: TaskClosed,
        _: &mut Context<Self>,
    ) {
        self.unplaced.forget(&framework_id, &task_id);
        self.ended.note(&framework_id, &task_id);
        let Some(id) = self.containers.remove_task(&framework_id, &task_id) else {
            return;
        };
        self.forget_task(&id, &task_id);
        if let Some(container) = self.containers.get_mut(&id) {
            container.closed(&task_id);
        }
        self.forget_if_over(&id);
    }
}

impl Handler<ApplyCorrections> for Containerizer {
    type Result = ();
    fn handle(&mut self, ApplyCorrections(corrections): ApplyCorrections, ctx: &mut Context<Self>) {
        for correction in corrections {
            let (framework_id, executor_id, container_id) = correction.target();
            let current = self.containers.current(framework_id, executor_id);
            // Corrections for an ended, unknown or ending container are ignored.
            let Some(id) = current.filter(|id| container_id.is_none_or(|wanted| wanted == id))
            else {
                tracing::debug!(%framework_id, %executor_id, "ignoring a correction for an unknown container");
                continue;
            };
            if self.is_ending(framework_id)
                || !self.containers.get(&id).is_some_and(Container::takes_tasks)
            {
                continue;
            }
            let reason = correction.reason();
            match &correction {
                QosCorrection::Kill { .. } => {
                    tracing::info!(%framework_id, %executor_id, container = %id, "preempted");
                    let container = self.containers.get_mut(&id);
                    let effects = container.map(Container::preempt).unwrap_or_default();
                    // One that has ended by itself is not corrected.
                    if !effects.is_empty() {
                        self.corrected(&id, CorrectionKind::Kill, reason, None, ctx);
                    }
                    self.with(&id, ctx, |_| effects);
                }
                QosCorrection::Throttle { degree, .. } => self.throttle(&id, *degree, reason, ctx),
                QosCorrection::Restore { .. } => {
                    self.throttle(&id, Throttle::default(), reason, ctx);
                }
            }
        }
    }
}

impl Handler<ShutDownAll> for Containerizer {
    type Result = ();
    fn handle(&mut self, _: ShutDownAll, ctx: &mut Context<Self>) {
        self.discard_checkpoints();
        let all: Vec<ContainerId> = self
            .containers
            .iter()
            .map(|(_, container)| container.id.clone())
            .collect();
        for id in all {
            self.shut_down(&id, ctx);
        }
    }
}

impl Handler<HasNothingLeft> for Containerizer {
    type Result = bool;
    fn handle(&mut self, _: HasNothingLeft, _: &mut Context<Self>) -> bool {
        let mut all = self.containers.iter();
        let has_ended = all.all(|(_, container)| container.phase == Phase::Terminated);
        has_ended && self.isolation.is_unused() && self.provisioning.is_unused()
    }
}

impl Handler<ResourcesCheckpointed> for Containerizer {
    type Result = ();
    fn handle(
        &mut self,
        ResourcesCheckpointed(resources): ResourcesCheckpointed,
        _: &mut Context<Self>,
    ) {
        self.checkpointed = resources;
    }
}

impl Handler<TakeInventory> for Containerizer {
    type Result = MessageResult<TakeInventory>;
    fn handle(&mut self, _: TakeInventory, _: &mut Context<Self>) -> Self::Result {
        // The master compares the inventory with its own state and so learns of these exits.
        self.unreported_exits.clear();
        let mut held = AgentInventory::default();
        for (framework_id, container) in
            self.containers.iter().filter(|(id, _)| !self.is_ending(id))
        {
            if !container.is_command && container.phase != Phase::Terminated {
                held.executors.push(RunningExecutor {
                    framework_id: framework_id.clone(),
                    info: container.executor.clone(),
                });
            }
            for task in container.tasks().filter(|task| !task.disowned) {
                held.tasks.push(RunningTask {
                    framework_id: framework_id.clone(),
                    info: task.info.clone(),
                    state: task.state,
                });
            }
        }
        let of_a_container = |task: &RunningTask| {
            let id = &task.info.task_id;
            self.containers.of_task(&task.framework_id, id).is_some()
        };
        let unplaced = self.unplaced.held().filter(|task| !of_a_container(task));
        held.tasks.extend(unplaced);
        let known = self
            .frameworks
            .values()
            .filter(|framework| !framework.ending);
        held.frameworks = known.map(|framework| framework.info.clone()).collect();
        held.drop_unused_frameworks();
        MessageResult(held)
    }
}

impl Handler<ListLiveContainers> for Containerizer {
    type Result = MessageResult<ListLiveContainers>;
    fn handle(&mut self, _: ListLiveContainers, _: &mut Context<Self>) -> Self::Result {
        let revision = self.containers.revision();
        if self.listed.0 != revision {
            self.listed = (revision, self.live_containers().collect());
        }
        MessageResult(self.listed.1.clone())
    }
}

impl Handler<SandboxesInUse> for Containerizer {
    type Result = Vec<PathBuf>;
    fn handle(&mut self, _: SandboxesInUse, _: &mut Context<Self>) -> Vec<PathBuf> {
        let living = self.containers.iter();
        let living = living.filter(|(_, container)| container.phase != Phase::Terminated);
        living
            .map(|(framework, container)| self.sandbox(framework, container))
            .collect()
    }
}

impl Handler<DiskWatched> for Containerizer {
    type Result = ();
    fn handle(&mut self, DiskWatched(disk): DiskWatched, _: &mut Context<Self>) {
        self.disk = Some(disk);
    }
}

impl Containerizer {
    fn live_containers(&self) -> impl Iterator<Item = LiveContainer> {
        // Nested ones are measured with their parents.
        let lives = |one: &Container| one.phase != Phase::Terminated && one.parent().is_none();
        let living = self.containers.iter().filter(move |(_, one)| lives(one));
        living.map(|(framework_id, container)| LiveContainer {
            usage: ExecutorUsage {
                framework_id: framework_id.clone(),
                executor_id: container.executor.executor_id.clone(),
                executor_name: container.executor.name.clone(),
                is_command: container.is_command,
                container_id: container.id.clone(),
                allocated: self.allocated_in(container),
                tasks: self
                    .tasks_in(container)
                    .filter(|task| !task.state.is_terminal())
                    .map(|task| task.info.task_id.clone())
                    .collect(),
                statistics: None,
                throttle: container.throttle().unwrap_or_default(),
                objectives: std::iter::once(container)
                    .chain(self.containers.inside(&container.id))
                    .filter_map(Container::objective)
                    .collect(),
            },
            leader: container.leader,
            resources: container.resources(),
            apart: self
                .apart_in(container)
                .map(|one| LiveNested {
                    id: one.id.clone(),
                    leader: one.leader,
                    resources: one.resources(),
                })
                .collect(),
        })
    }

    /// The tasks of a container, and of those nested in it.
    pub(super) fn tasks_in<'a>(
        &'a self,
        container: &'a Container,
    ) -> impl Iterator<Item = &'a Task> {
        let inside = self.containers.inside(&container.id);
        container.tasks().chain(inside.flat_map(Container::tasks))
    }

    /// The living containers nested in this one that have control groups of their own.
    fn apart_in(&self, container: &Container) -> impl Iterator<Item = &Container> {
        let inside = self.containers.inside(&container.id);
        inside.filter(|one| !one.shares_limits() && one.phase != Phase::Terminated)
    }

    /// Resources of a container and of all live tasks in it. Its own control groups are limited to
    /// those that share them: [`Container::allocated`].
    fn allocated_in(&self, container: &Container) -> Resources {
        let mut sum = container.allocated();
        for one in self.apart_in(container) {
            sum += &one.allocated();
        }
        sum
    }

    /// The living nested containers: of tasks, and on request.
    fn nested_views(&self) -> Vec<NestedView> {
        let of_tasks = self.containers.iter().map(|(_, container)| container);
        let of_tasks = of_tasks
            .filter(|one| one.parent().is_some() && one.phase != Phase::Terminated)
            .map(|one| NestedView {
                id: one.id.clone(),
                leader: one.leader,
                networks: self.networks_of(&one.id),
                resources: one
                    .tasks()
                    .next()
                    .map(|task| (task.info.resources.clone(), task.info.limits)),
            });
        let on_request = self.requested.living();
        let on_request = on_request.map(|(id, leader)| NestedView {
            id: id.clone(),
            leader,
            networks: Vec::new(),
            resources: None,
        });
        of_tasks.chain(on_request).collect()
    }

    fn networks_of(&self, id: &ContainerId) -> Vec<NetworkInfo> {
        let network = self.isolation.network(id);
        network.map_or_else(Vec::new, |network| network.joined.clone())
    }

    /// Builds the view of one container.
    pub(super) fn view(&self, framework_id: &FrameworkId, container: &Container) -> ContainerView {
        let shown = |task: &Task| (task.info.clone(), task.state);
        let all = self.tasks_in(container);
        let completed = || {
            self.containers
                .inside(&container.id)
                .flat_map(Container::completed)
        };
        let completed = || container.completed().chain(completed());
        let all = all.chain(completed());
        ContainerView {
            id: container.id.clone(),
            framework_id: framework_id.clone(),
            executor: container.executor.clone(),
            is_command: container.is_command,
            phase: container.phase,
            leader: container.leader,
            address: self.config.container_address(),
            networks: self.networks_of(&container.id),
            directory: self
                .sandbox(framework_id, container)
                .to_string_lossy()
                .into_owned(),
            allocated: self.allocated_in(container),
            tasks: self.tasks_in(container).map(shown).collect(),
            completed: completed().map(shown).collect(),
            statuses: all
                .map(|task| {
                    let statuses = task.statuses.iter().cloned();
                    (task.info.task_id.clone(), statuses.collect())
                })
                .collect(),
        }
    }
}

impl Handler<TakeSurvey> for Containerizer {
    type Result = MessageResult<TakeSurvey>;
    fn handle(&mut self, _: TakeSurvey, _: &mut Context<Self>) -> Self::Result {
        let is_empty = self
            .containers
            .iter()
            .all(|(_, one)| one.phase == Phase::Terminated);
        let fetcher = self.launcher.fetcher();
        let (cache_size_total_bytes, cache_size_used_bytes) = fetcher
            .map(|fetcher| fetcher.cache_figures())
            .unwrap_or_default();
        MessageResult(ContainersView {
            drain: self.draining.filter(|_| !is_empty),
            frameworks: self
                .frameworks
                .values()
                .map(|framework| framework.info.clone())
                .collect(),
            containers: self
                .containers
                .iter()
                .filter(|(_, container)| container.parent().is_none())
                .map(|(framework, container)| self.view(framework, container))
                .collect(),
            nested: self.nested_views(),
            completed: self.history.runs().cloned().collect(),
            completed_frameworks: self.history.frameworks().cloned().collect(),
            throttled: {
                let all = self.containers.iter().map(|(_, one)| one);
                let own = all.filter(|one| one.parent().is_none());
                own.filter(|one| one.throttle().is_some_and(|degree| !degree.is_none()))
                    .filter(|one| one.phase != Phase::Terminated)
                    .count()
            },
            corrections: self.corrections.clone(),
            counts: Counts {
                cache_size_total_bytes,
                cache_size_used_bytes,
                ..self.counts.clone()
            },
            launch_times: self.launch_times.clone(),
        })
    }
}
