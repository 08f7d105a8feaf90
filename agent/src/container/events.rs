//! What the containerizer hears from the agent, and what it answers. Each handler finds the container and lets its machine decide.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::message::executor::{ExecutorUpdated, SubscribeExecutor};
use protocol::message::registration::{DisownTasks, Held, RunningExecutor, RunningTask};
use protocol::message::scheduler::{FrameworkMessage, KillTask};
use protocol::message::task::{DrainTasks, EndExecutor, RunTasks, ShutDownFramework};
use protocol::usage::ExecutorUsage;
use protocol::{
    AgentInfo, Capability, ContainerId, FrameworkId, FrameworkInfo, QosCorrection, Reason, TaskId,
    TaskState, TaskStatus,
};
use resources::Resources;
use runtime::Timestamp;
use runtime::prelude::*;

use super::machine::{Container, Phase, Task};
use super::unplaced::only_named;
use super::{Containerizer, forget};
use crate::disk::DiskWatch;
use crate::launcher::LauncherEvent;
use crate::metrics::Counts;

/// The agent is this one, and has this master or none.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Registered {
    /// With its id once it has one.
    pub agent: AgentInfo,
    /// Where ends of executors and messages go.
    pub master: Option<Pid>,
}

/// Operations have made this of the agent's resources: tasks may use it, and nothing else of its kind.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Checkpointed(pub Resources);

/// A task's end has been acknowledged.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct TaskClosed {
    /// Whose.
    pub framework_id: FrameworkId,
    /// Which.
    pub task_id: TaskId,
}

/// These executors must yield at once (S27).
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Correct(pub Vec<QosCorrection>);

/// Every executor must end within its grace period, and the agent will not come back as itself.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct EndEverything;

/// What is here that a master must know?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Held")]
pub struct TakeInventory;

/// Who runs here, given what?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<Occupant>")]
pub struct Occupants;

/// A container that is not over.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// Who and what; not yet measured.
    pub usage: ExecutorUsage,
    /// The process that leads its session, once it runs.
    pub leader: Option<i32>,
}

/// Requests the sandboxes of all containers that have not ended.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<PathBuf>")]
pub struct SandboxesInUse;

/// The disk of the work directory is watched by this actor.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct DiskWatched(pub Handle<DiskWatch>);

/// How do the containers look?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Survey")]
pub struct TakeSurvey;

/// The containers at one moment, for pages and metrics.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Frameworks with something here.
    pub frameworks: Vec<FrameworkInfo>,
    /// The containers.
    pub containers: Vec<ContainerView>,
    /// The newest runs of executors that are over and acknowledged, oldest first.
    pub completed: Vec<Arc<ContainerView>>,
    /// The newest frameworks of which nothing else is left, oldest first.
    pub completed_frameworks: Vec<FrameworkInfo>,
    /// Whether the agent is being drained: there is something here that is to end.
    pub drain: Option<Draining>,
    /// What has happened since the start.
    pub counts: Counts,
}

/// The agent is being drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The longest time that a task has to end; `None` is each task's own.
    pub max_grace_period: Option<Duration>,
    /// Since when, by the agent's clock.
    pub since: Timestamp,
}

/// One container, for pages and metrics.
#[derive(Clone, Debug)]
pub struct ContainerView {
    /// Its id.
    pub id: ContainerId,
    /// Whose.
    pub framework_id: FrameworkId,
    /// Its executor.
    pub executor: protocol::ExecutorInfo,
    /// Whether its executor is our own command executor.
    pub is_command: bool,
    /// Where it is in its life.
    pub phase: Phase,
    /// The process that leads its session, while it runs.
    pub leader: Option<i32>,
    /// The address of its network, which is its host's, where the agent was told one.
    pub address: Option<IpAddr>,
    /// Its sandbox.
    pub directory: String,
    /// What it holds.
    pub allocated: Resources,
    /// Its tasks with their states.
    pub tasks: Vec<(protocol::TaskInfo, TaskState)>,
    /// The newest of those that have ended and are acknowledged, oldest first.
    pub completed: Vec<(protocol::TaskInfo, TaskState)>,
    /// What was last told of each task, the newest last; nothing of one of which nothing was told yet.
    pub told: BTreeMap<TaskId, Vec<Arc<TaskStatus>>>,
}

impl ContainerView {
    /// The share that Mesos counts for a command's executor itself, beside its task's: 0.1 cpus and 32 MB. Masters do not count it.
    pub fn own_share(&self) -> Resources {
        let mut allocated = self.allocated.iter();
        let role = allocated.find_map(|one| one.allocation_role());
        match role.filter(|_| self.is_command) {
            // The text is right, and nothing else would be harmful.
            Some(role) => Resources::parse("cpus:0.1;mem:32")
                .unwrap_or_default()
                .allocate(role),
            None => Resources::new(),
        }
    }

    /// All that its executor counts as holding.
    pub fn counted(&self) -> Resources {
        &self.allocated + &self.own_share()
    }

    /// The task of a command's executor, until it is forgotten.
    pub fn command_task(&self) -> Option<&protocol::TaskInfo> {
        let mut tasks = self.tasks.iter().chain(&self.completed);
        tasks
            .next()
            .filter(|_| self.is_command)
            .map(|(info, _)| info)
    }
}

/// What finds no room is refused. Executors say their updates again until they are confirmed, and the agent compares with its master when it cannot
/// hand on what that said; what follows from what is done here comes past the bound (`tell_always`).
impl Process for Containerizer {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<SubscribeExecutor>(&[Role::Executor]);
        ears.hear::<ExecutorUpdated>(&[Role::Executor]);
        ears.hear::<FrameworkMessage>(&[Role::Executor]);
    }
}

impl Handler<Registered> for Containerizer {
    type Result = ();
    fn handle(&mut self, Registered { agent, master }: Registered, ctx: &mut Context<Self>) {
        self.agent = agent;
        self.master = master;
        self.tell_untold(ctx);
    }
}

impl Handler<RunTasks> for Containerizer {
    type Result = ();
    fn handle(&mut self, RunTasks { framework, tasks }: RunTasks, ctx: &mut Context<Self>) {
        if self.is_leaving() {
            // Its master calls them gone when it hears that the agent has left.
            let count = tasks.len();
            tracing::info!(tasks = count, "nothing is run on an agent that leaves");
            return;
        }
        // Nothing is launched on an agent that is being drained: it is so no more.
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
                tracing::debug!(task = %kill.task_id, "a kill of a task that is over");
            }
            None => {
                // It was never here, or its launch was lost on the way: the master must not wait for it.
                let aware = self.frameworks.get(&kill.framework_id);
                let aware =
                    aware.is_some_and(|framework| framework.info.can(Capability::PartitionAware));
                let state = TaskState::Dropped.as_told(aware);
                let problem = "Cannot find executor".to_owned();
                let Some(agent) = self.agent.id.clone() else {
                    return; // No master has said it that the agent is with.
                };
                let task = only_named(&kill, agent);
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
        tracing::info!(containers = all.len(), "this agent is being drained");
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
                tracing::info!(executor = %end.executor_id, "an executor that should end is not here");
            }
        }
    }
}

impl Containerizer {
    /// Has an executor end by itself within its grace period, or be killed.
    pub(super) fn shut_down(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let executor = self
            .containers
            .get(id)
            .and_then(|container| container.executor.shutdown_grace_period);
        let grace = executor.unwrap_or(self.config.settings.executor_shutdown_grace_period);
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
        match event {
            LauncherEvent::Started { container_id, pid } => {
                self.with(&container_id, ctx, |container| container.started(pid));
            }
            LauncherEvent::Failed {
                container_id,
                reason,
            } => {
                self.counts.container_launch_errors += 1;
                tracing::warn!(container = %container_id, reason, "no executor");
                self.with(&container_id, ctx, |container| {
                    container.launch_failed(&reason)
                });
            }
            LauncherEvent::Exited {
                container_id,
                termination,
            } => {
                self.with(&container_id, ctx, |container| {
                    container.exited(Some(termination))
                });
            }
            LauncherEvent::Lost { .. } => {
                // A launch that waits for its sandbox goes to the next launcher.
                let lost = self
                    .containers
                    .iter()
                    .filter(|(_, container)| container.phase != Phase::Preparing);
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
        let Some(id) = self.containers.unplace(&framework_id, &task_id) else {
            return;
        };
        self.forget_task(&id, &task_id);
        if let Some(container) = self.containers.get_mut(&id) {
            container.closed(&task_id);
        }
        self.forget_if_over(&id);
    }
}

impl Handler<Correct> for Containerizer {
    type Result = ();
    fn handle(&mut self, Correct(corrections): Correct, ctx: &mut Context<Self>) {
        for correction in corrections {
            let QosCorrection::Kill {
                framework_id,
                executor_id,
                container_id,
            } = correction;
            let current = self.containers.current(&framework_id, &executor_id);
            // Advice on a run that is over, on an unknown one or on one that is ending is harmless.
            let Some(id) =
                current.filter(|id| container_id.as_ref().is_none_or(|wanted| wanted == id))
            else {
                tracing::debug!(%framework_id, %executor_id, "a correction for nobody here");
                continue;
            };
            if self.is_ending(&framework_id)
                || !self.containers.get(&id).is_some_and(Container::takes_tasks)
            {
                continue;
            }
            tracing::info!(%framework_id, %executor_id, container = %id, "preempted");
            self.counts.executors_preempted += 1;
            self.with(&id, ctx, Container::preempt);
        }
    }
}

impl Handler<EndEverything> for Containerizer {
    type Result = ();
    fn handle(&mut self, _: EndEverything, ctx: &mut Context<Self>) {
        self.keep_nothing();
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

impl Handler<Checkpointed> for Containerizer {
    type Result = ();
    fn handle(&mut self, Checkpointed(resources): Checkpointed, _: &mut Context<Self>) {
        self.checkpointed = resources;
    }
}

impl Handler<TakeInventory> for Containerizer {
    type Result = MessageResult<TakeInventory>;
    fn handle(&mut self, _: TakeInventory, _: &mut Context<Self>) -> Self::Result {
        // Whoever compares this with what a master believes sees who has ended.
        self.untold.clear();
        let mut held = Held::default();
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

impl Handler<Occupants> for Containerizer {
    type Result = Vec<Occupant>;
    fn handle(&mut self, _: Occupants, _: &mut Context<Self>) -> Vec<Occupant> {
        let living = self
            .containers
            .iter()
            .filter(|(_, container)| container.phase != Phase::Terminated);
        let occupant = |(framework_id, container): (&FrameworkId, &Container)| Occupant {
            usage: ExecutorUsage {
                framework_id: framework_id.clone(),
                executor_id: container.executor.executor_id.clone(),
                container_id: container.id.clone(),
                allocated: container.allocated(),
                tasks: container
                    .tasks()
                    .filter(|task| !task.state.is_terminal())
                    .map(|task| task.info.task_id.clone())
                    .collect(),
                statistics: None,
            },
            leader: container.leader,
        };
        living.map(occupant).collect()
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
    /// One container as it is shown.
    pub(super) fn view(&self, framework_id: &FrameworkId, container: &Container) -> ContainerView {
        let shown = |task: &Task| (task.info.clone(), task.state);
        let all = container.tasks().chain(container.completed());
        ContainerView {
            id: container.id.clone(),
            framework_id: framework_id.clone(),
            executor: container.executor.clone(),
            is_command: container.is_command,
            phase: container.phase,
            leader: container.leader,
            address: self.config.container_address(),
            directory: self
                .sandbox(framework_id, container)
                .to_string_lossy()
                .into_owned(),
            allocated: container.allocated(),
            tasks: container.tasks().map(shown).collect(),
            completed: container.completed().map(shown).collect(),
            told: all
                .map(|task| {
                    let told = task.told.iter().cloned();
                    (task.info.task_id.clone(), told.collect())
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
        MessageResult(Survey {
            drain: self.draining.filter(|_| !is_empty),
            frameworks: self
                .frameworks
                .values()
                .map(|framework| framework.info.clone())
                .collect(),
            containers: self
                .containers
                .iter()
                .map(|(framework, container)| self.view(framework, container))
                .collect(),
            completed: self.history.runs().cloned().collect(),
            completed_frameworks: self.history.frameworks().cloned().collect(),
            counts: self.counts.clone(),
        })
    }
}
