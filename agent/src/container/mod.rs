//! The containerizer: owns the agent's containers.
//!
//! Handles tasks and kills from the agent, process starts and exits from the launcher, and
//! subscriptions, updates and messages from executors, over their socket (`executors`) or HTTP
//! (`http_executors`). Owns the containers ([`machine::Container`] makes the decisions) and their
//! frameworks. Sends the master only messages and exits of executors. Never validates tasks: the
//! master has done so.
//!
//! | module | contents |
//! |---|---|
//! | `changed` | applies a new `FrameworkInfo` to a framework's containers |
//! | `checkpointing` | writes containers to the ledger before they start, and recovers them |
//! | `ended` | the newest tasks whose terminal updates are acknowledged |
//! | `environment` | the program, user and environment of an executor |
//! | `events` | messages that the containerizer handles from the agent |
//! | `executor_spec` | the executor that a task needs, and the user it runs as |
//! | `executors` | messages of native executors |
//! | `history` | completed executors and frameworks, for pages |
//! | `http_executors` | calls of HTTP executors, and their event streams |
//! | `isolation` | use of the isolators: preparation, limits, clean-up |
//! | `launches` | files fetched before a launch; limit of concurrent launches of commands; checks |
//! | `machine` | the pure state machine of one container |
//! | `nested` | containers of the tasks of groups, nested in their executor's |
//! | `table` | containers indexed by id, executor and task |
//! | `volumes` | checks of reservations and volumes; links of volumes into sandboxes |

mod changed;
pub mod checkpointing;
mod ended;
mod environment;
pub mod events;
pub mod executor_spec;
mod executors;
pub mod history;
pub mod http_executors;
mod isolation;
pub mod launches;
pub mod machine;
pub(crate) mod nested;
pub mod table;
pub mod volumes;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::message::executor::{EndTask, LaunchTask, ShutDownExecutor, UpdateStored};
use protocol::message::task::ExecutorExited;
use protocol::text::reserved_labels::THROTTLE;
use protocol::{
    AgentInfo, Capability, ContainerId, FrameworkId, FrameworkInfo, Reason, Source, StatusUpdate,
    TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::Resources;
use runtime::NodeId;
use runtime::prelude::*;

use self::checkpointing::Checkpointing;
use self::ended::EndedTasks;
use self::events::LiveContainer;
use self::executor_spec::ExecutorSpec;
use self::history::History;
use self::isolation::Isolation;
use self::launches::LaunchQueue;
use self::machine::throttling::is_throttle_update;
use self::machine::{Container, Effect, command};
use self::table::ContainerTable;
use crate::config::Config;
use crate::container::launches::checking::Checkers;
use crate::container::launches::fetching::Fetches;
use crate::container::launches::provisioning::Provisioning;
use crate::container::launches::times::{LaunchPhase, LaunchTimes};
use crate::container::launches::unplaced::UnplacedTasks;
use crate::container::machine::deadlines::{Deadline, DeadlineHandler, Deadlines};
use crate::launcher::Launcher;
use crate::ledger::record::StateRecord;
use crate::metrics::Counts;
use crate::oversubscription::corrections::CorrectionLog;
use crate::sandbox;
use crate::sandbox::disk::{DiskWatch, RunEnded, WriteFailed};
use crate::sandbox::kept::Sandboxes;
use crate::status::{ForgetFramework, ForgetTask, Forward, StatusUpdates};

/// Sandboxes created in one blocking job.
const SANDBOXES_AT_ONCE: usize = 32;
/// Maximum of these jobs at the same time. Each has a thread, whose heap does not shrink at once.
const SANDBOX_JOBS_MAX: usize = 4;

/// A sandbox to be created.
struct WantedSandbox {
    id: ContainerId,
    runs: PathBuf,
    /// The task of a nested container.
    nested_for: Option<TaskId>,
    user: Option<String>,
}

/// A framework with containers here.
#[derive(Clone, Debug)]
pub(crate) struct Framework {
    pub(crate) info: FrameworkInfo,
    /// Set once it is shut down: updates of its tasks are dropped.
    pub(crate) ending: bool,
}

/// The containerizer actor.
pub struct Containerizer {
    config: Config,
    agent: AgentInfo,
    launcher: Box<dyn Launcher>,
    sandboxes: Arc<dyn Sandboxes>,
    /// Queued sandbox jobs, and the number of running ones.
    wanted_sandboxes: VecDeque<Vec<WantedSandbox>>,
    sandbox_jobs: usize,
    /// The agent's reservations and volumes.
    pub(crate) checkpointed: Resources,
    status: Handle<StatusUpdates>,
    master: Option<Pid>,
    /// Executor exits that were not sent while there was no master. Cleared by each inventory.
    unreported_exits: Vec<ExecutorExited>,
    pub(crate) containers: ContainerTable,
    /// The live containers as last listed, at this revision of the table.
    listed: (u64, Arc<[LiveContainer]>),
    /// Tasks that were never put into a container.
    unplaced: UnplacedTasks,
    /// Tasks whose terminal updates are acknowledged.
    ended: EndedTasks,
    pub(crate) frameworks: BTreeMap<FrameworkId, Framework>,
    /// Completed executors and frameworks, for pages.
    history: History,
    /// Commands being started, and those queued.
    pub(crate) launches: LaunchQueue,
    launch_times: LaunchTimes,
    deadlines: Deadlines,
    timer: Option<TimerHandle>,
    /// The container of each native executor, by its node.
    native_executors: BTreeMap<NodeId, ContainerId>,
    /// The container of each HTTP executor, by its stream.
    streams: BTreeMap<Pid, ContainerId>,
    checkpointing: Checkpointing,
    provisioning: Provisioning,
    isolation: Isolation,
    fetches: Fetches,
    checkers: Checkers,
    waiting: nested::Waiting,
    requested: nested::requested::Requested,
    /// Inputs and outputs to which callers attach.
    attached: nested::attached::Attached,
    /// Deletes sandboxes of ended containers; `None` if sandboxes are not on a disk.
    disk: Option<Handle<DiskWatch>>,
    /// Set by a drain order, cleared by the next launch.
    draining: Option<events::Draining>,
    corrections: CorrectionLog,
    pub(crate) counts: Counts,
}

impl Containerizer {
    /// A containerizer without containers.
    pub fn new(
        config: Config,
        launcher: Box<dyn Launcher>,
        sandboxes: Arc<dyn Sandboxes>,
        status: Handle<StatusUpdates>,
    ) -> Self {
        Self {
            agent: config.info.clone(),
            history: History::new(config.settings.max_completed_executors_per_framework),
            config,
            launcher,
            sandboxes,
            wanted_sandboxes: VecDeque::new(),
            sandbox_jobs: 0,
            checkpointed: Resources::new(),
            status,
            master: None,
            unreported_exits: Vec::new(),
            containers: ContainerTable::default(),
            listed: (0, [].into()),
            unplaced: UnplacedTasks::default(),
            ended: EndedTasks::default(),
            frameworks: BTreeMap::new(),
            launches: LaunchQueue::default(),
            launch_times: LaunchTimes::default(),
            deadlines: Deadlines::default(),
            timer: None,
            native_executors: BTreeMap::new(),
            streams: BTreeMap::new(),
            checkpointing: Checkpointing::default(),
            provisioning: Provisioning::default(),
            isolation: Isolation::default(),
            fetches: Fetches::new(),
            checkers: Checkers::new(),
            waiting: nested::Waiting::new(),
            requested: nested::requested::Requested::default(),
            attached: nested::attached::Attached::default(),
            disk: None,
            draining: None,
            corrections: CorrectionLog::default(),
            counts: Counts::default(),
        }
    }

    /// Puts tasks into containers and starts new ones.
    pub(crate) fn run(
        &mut self,
        framework: &FrameworkInfo,
        tasks: Vec<TaskInfo>,
        ctx: &mut Context<Self>,
    ) {
        let Some(framework_id) = framework.id.clone() else {
            tracing::warn!(
                framework = framework.name,
                "ignoring tasks of a framework without an id"
            );
            return;
        };
        self.update_framework(framework);
        let known = self.frameworks.entry(framework_id.clone());
        let known = known.or_insert_with(|| Framework {
            info: framework.clone(),
            ending: false,
        });
        known.ending = false;
        self.history.remove_framework(&framework_id);
        let checkpoints = self.checkpoints(framework);
        let (mut fresh, mut kept, mut to_record) = (Vec::new(), Vec::new(), Vec::new());
        // A group runs as a whole, or not at all.
        let lacking = tasks.iter().filter_map(|task| {
            let group = task.group.clone()?;
            Some((group, self.has(task).err()?))
        });
        let lacking: BTreeMap<TaskId, String> = lacking.collect();
        for task in tasks {
            if self
                .containers
                .of_task(&framework_id, &task.task_id)
                .is_some()
            {
                tracing::warn!(task = %task.task_id, "ignoring a task with a duplicate id");
                continue;
            }
            self.ended.begins(&framework_id, &task.task_id);
            if nested::executor_of_group(&task).is_some() {
                let task_id = task.task_id.clone();
                if let Some(problem) = task.group.as_ref().and_then(|group| lacking.get(group)) {
                    let aware = framework.can(Capability::PartitionAware);
                    let state = TaskState::Dropped.for_framework(aware);
                    let (reason, problem) = (Reason::ResourcesUnknown, problem.clone());
                    self.report_unplaced(&framework_id, task, state, reason, problem, ctx);
                    continue;
                }
                let made = self.nest(framework, &framework_id, task, ctx);
                match checkpoints {
                    true => {
                        to_record.extend(made.last().map(|(id, _)| (id.clone(), task_id)));
                        kept.extend(made);
                    }
                    false => fresh.extend(made),
                }
                continue;
            }
            let spec = match ExecutorSpec::of(&task, framework) {
                Ok(spec) => spec,
                Err(problem) => {
                    let (state, reason) = (TaskState::Error, Reason::TaskInvalid);
                    self.report_unplaced(&framework_id, task, state, reason, problem, ctx);
                    continue;
                }
            };
            if let Err(problem) = self.has(&task) {
                let state =
                    TaskState::Dropped.for_framework(framework.can(Capability::PartitionAware));
                let reason = Reason::ResourcesUnknown;
                self.report_unplaced(&framework_id, task, state, reason, problem, ctx);
                continue;
            }
            match self
                .containers
                .current(&framework_id, &spec.executor.executor_id)
            {
                Some(id) if self.containers.get(&id).is_some_and(Container::takes_tasks) => {
                    if let Err(problem) = self.link_volumes(&id, &task.resources) {
                        let state = TaskState::Gone
                            .for_framework(framework.can(Capability::PartitionAware));
                        let problem =
                            format!("Failed to update resources for container: {problem}");
                        let reason = Reason::ContainerUpdateFailed;
                        self.report_unplaced(&framework_id, task, state, reason, problem, ctx);
                        continue;
                    }
                    self.containers.assign(&framework_id, &task.task_id, &id);
                    let container = self.containers.get(&id);
                    let is_checkpointed = container.is_some_and(Container::is_checkpointed);
                    let (is_isolated, task_id) = (self.is_isolated(&id), task.task_id.clone());
                    let hold = is_checkpointed || is_isolated;
                    self.with(&id, ctx, |container| container.add_and_hold(task, hold));
                    if is_isolated {
                        self.raise_limits(&id, &task_id, ctx);
                    } else if is_checkpointed {
                        to_record.push((id.clone(), task_id));
                    }
                }
                Some(_) => {
                    let state =
                        TaskState::Dropped.for_framework(framework.can(Capability::PartitionAware));
                    let problem = "Executor terminating".to_owned();
                    let reason = Reason::ExecutorTerminated;
                    self.report_unplaced(&framework_id, task, state, reason, problem, ctx);
                }
                None => {
                    let id = ContainerId::from(Uuid(ctx.node().fresh_uuid()));
                    let token = Uuid(ctx.node().secret()).to_string();
                    let executor = spec.executor.clone();
                    let mut container = Container::new(
                        id.clone(),
                        framework.clone(),
                        executor,
                        spec.is_command,
                        token,
                    );
                    if checkpoints {
                        container = container.with_checkpoint();
                        to_record.push((id.clone(), task.task_id.clone()));
                    }
                    container.add(task.clone());
                    self.launch_times.begin(&id, ctx.clock().now());
                    self.containers.insert(&framework_id, container);
                    self.containers.assign(&framework_id, &task.task_id, &id);
                    match checkpoints {
                        true => kept.push((id, spec)),
                        false => fresh.push((id, spec)),
                    }
                }
            }
        }
        if !to_record.is_empty() {
            self.record(&framework_id, kept, to_record, ctx);
        }
        self.make_sandboxes(&framework_id, fresh, ctx);
    }

    /// Creates sandboxes outside the actor, in batches, so that the first tasks do not wait for the
    /// last.
    fn make_sandboxes(
        &mut self,
        framework: &FrameworkId,
        fresh: Vec<(ContainerId, ExecutorSpec)>,
        ctx: &mut Context<Self>,
    ) {
        let switch_user = self.config.settings.switch_user;
        let fresh = self.startable(fresh, ctx);
        for some in fresh.chunks(SANDBOXES_AT_ONCE) {
            let wanted = some.iter().map(|(id, spec)| {
                let nested = self.containers.get(id).filter(|one| one.parent().is_some());
                let task = nested.and_then(|container| container.tasks().next());
                WantedSandbox {
                    id: id.clone(),
                    runs: self.runs(framework, &spec.executor.executor_id),
                    nested_for: task.map(|task| task.info.task_id.clone()),
                    user: spec.user.clone().filter(|_| switch_user),
                }
            });
            self.wanted_sandboxes.push_back(wanted.collect());
        }
        self.make_next_sandboxes(ctx);
    }

    fn make_next_sandboxes(&mut self, ctx: &mut Context<Self>) {
        while self.sandbox_jobs < SANDBOX_JOBS_MAX
            && let Some(wanted) = self.wanted_sandboxes.pop_front()
        {
            self.sandbox_jobs += 1;
            let ids: Vec<ContainerId> = wanted.iter().map(|one| one.id.clone()).collect();
            let sandboxes = self.sandboxes.clone();
            let make = move |wanted: WantedSandbox| {
                let (id, runs, user) = (wanted.id, wanted.runs, wanted.user.as_deref());
                let made = match wanted.nested_for {
                    Some(task) => sandboxes.create_nested(&runs, &id, Some(&task), user),
                    None => sandboxes.create(&runs, &id, user),
                };
                (id, made)
            };
            let made = ctx
                .node()
                .blocking(move || wanted.into_iter().map(make).collect::<Vec<_>>());
            ctx.then(made, move |this, made, ctx| {
                this.sandbox_jobs -= 1;
                this.make_next_sandboxes(ctx);
                let made = made.unwrap_or_else(|interrupted| {
                    ids.into_iter()
                        .map(|id| (id, Err(interrupted.to_string())))
                        .collect()
                });
                for (id, result) in made {
                    let result = result.and_then(|()| this.link_all_volumes(&id));
                    if let Err(problem) = &result {
                        this.counts.container_launch_errors += 1;
                        tracing::warn!(container = %id, problem, "cannot create sandbox");
                        this.write_failed();
                    }
                    match result {
                        Ok(()) => this.provision(&id, ctx),
                        Err(_) => this.with(&id, ctx, |container| container.prepared(result)),
                    }
                }
            });
        }
    }

    /// Reports a failed write: the disk may be read-only.
    fn write_failed(&self) {
        if let Some(disk) = &self.disk {
            // A lost report is harmless; the disk is also checked periodically.
            let _ = disk.tell(WriteFailed);
        }
    }

    /// The sandbox of a container.
    pub(crate) fn sandbox(&self, framework: &FrameworkId, container: &Container) -> PathBuf {
        let runs = self.runs(framework, &container.executor.executor_id);
        sandbox::path(&runs, &container.id)
    }

    pub(crate) fn runs(&self, framework: &FrameworkId, executor: &protocol::ExecutorId) -> PathBuf {
        match &self.agent.id {
            Some(agent) => sandbox::runs(self.config.work_dir(), agent, framework, executor),
            // Not reached: tasks arrive only after the agent has an id.
            None => self.config.work_dir().join("slaves").join("none"),
        }
    }

    fn enter(&mut self, id: &ContainerId, next: LaunchPhase, ctx: &Context<Self>) {
        self.launch_times.enter(id, next, ctx.clock().now());
    }

    /// Applies an event to a container and performs its effects.
    pub(crate) fn with(
        &mut self,
        id: &ContainerId,
        ctx: &mut Context<Self>,
        handler: impl FnOnce(&mut Container) -> Vec<Effect>,
    ) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let mut effects = std::collections::VecDeque::from(handler(container));
        // Terminates: an immediate launch failure adds the container's end, which adds no further
        // effects.
        while let Some(effect) = effects.pop_front() {
            effects.extend(self.act(id, effect, ctx));
        }
        let phase = self.containers.get(id).map(|container| container.phase);
        self.launches.phase_changed(id, phase);
        self.launch_times
            .phase_changed(id, phase, ctx.clock().now());
        self.cancel_pull(id);
        self.cancel_fetch(id);
        self.stop_checks(id);
        self.lower_limits(id, ctx);
        self.follow_nesting(id, ctx);
        self.forget_if_over(id);
        self.tell_recovered();
        // Recursive through immediate launch failures; only the outermost call starts queued
        // launches.
        while let Some(next) = self.launches.take_next() {
            self.with(
                &next,
                ctx,
                Container::launch as fn(&mut Container) -> Vec<Effect>,
            );
            self.launches.done();
        }
    }

    fn act(&mut self, id: &ContainerId, effect: Effect, ctx: &mut Context<Self>) -> Vec<Effect> {
        match effect {
            Effect::Launch => {
                let is_command = self
                    .containers
                    .get(id)
                    .is_some_and(|container| container.is_command);
                if is_command && !self.launches.begin(id) {
                    return Vec::new();
                }
                let Some(request) = self.launch_request(id) else {
                    return Vec::new();
                };
                if let Err(error) = self.launcher.launch(request) {
                    self.counts.container_launch_errors += 1;
                    let Some(container) = self.containers.get_mut(id) else {
                        return Vec::new();
                    };
                    return container.launch_failed(&error.reason);
                }
                if let Some(container) = self.containers.get_mut(id) {
                    return container.launch_requested();
                }
            }
            Effect::AwaitSubscription => {
                self.later(
                    id,
                    self.config.settings.executor_registration_timeout,
                    Container::subscription_overdue,
                    ctx,
                );
            }
            Effect::Run(task) => self.tell_executor(id, LaunchTask { task: *task }, ctx),
            Effect::End(task_id, kill_policy) => self.tell_executor(
                id,
                EndTask {
                    task_id,
                    kill_policy,
                },
                ctx,
            ),
            Effect::ShutDown(grace_period) => {
                self.tell_executor(id, ShutDownExecutor { grace_period }, ctx);
                self.later(id, grace_period, Container::grace_over, ctx);
            }
            Effect::AwaitReturn => {
                let patience = self.return_patience(id);
                self.later(id, patience, Container::return_overdue, ctx);
            }
            Effect::StartNested => self.start_nested(id, ctx),
            Effect::StartChecks => self.start_checks(id, ctx),
            Effect::AwaitCompletion(rest) => {
                self.later(id, rest, Container::completion_overdue, ctx);
            }
            Effect::Terminate(grace) => self.launcher.terminate(id, grace),
            Effect::DestroyAfter(grace) => self.later(id, grace, Container::grace_over, ctx),
            Effect::Destroy => {
                if self.launches.withdraw(id)
                    && let Some(container) = self.containers.get_mut(id)
                {
                    return container.exited(None);
                }
                self.launcher.kill(id);
            }
            Effect::Report(report) => {
                let Some(container) = self.containers.get(id) else {
                    return Vec::new();
                };
                let at = ctx.clock().wall();
                let mut status = TaskStatus::new(report.task_id, report.state, report.source, at);
                status.message = report.message;
                status.termination = report.termination;
                status.reason = report.reason;
                status.healthy = report.healthy;
                let task = container.task(&status.task_id);
                if is_throttle_update(report.state, report.reason)
                    && let Some(last) = task.and_then(|task| task.statuses.back())
                {
                    // The results of checks go on to hold.
                    status.healthy = last.healthy;
                    status.labels.clone_from(&last.labels);
                }
                if let Some(task) = task {
                    launches::checking::keep_check_results(
                        &mut status.labels,
                        &task.info,
                        &report.check_results,
                    );
                }
                if report.source == Source::Executor && !command::is_check_update(report.reason) {
                    status.uuid = command::update_id(id, report.state);
                }
                if let Some(exceeded) = container.exceeded_limit() {
                    v1::convert::keep_limitation(&mut status.labels, exceeded);
                }
                status.executor_id = Some(container.executor.executor_id.clone());
                status.container_id = Some(id.clone());
                self.counts.note(report.state);
                self.forward(id, status, None, ctx);
            }
            Effect::Ended(termination) => self.ended(id, termination, ctx),
        }
        Vec::new()
    }

    fn later(
        &mut self,
        id: &ContainerId,
        delay: Duration,
        handler: DeadlineHandler,
        ctx: &mut Context<Self>,
    ) {
        let at = ctx.clock().now() + delay;
        let id = id.clone();
        if self.deadlines.add(at, Deadline { id, handler, delay }) {
            self.set_timer(ctx);
        }
    }

    /// Sets the one timer to the earliest deadline.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel(timer);
        }
        let Some(soonest) = self.deadlines.soonest() else {
            return;
        };
        let delay = soonest - ctx.clock().now();
        self.timer = Some(ctx.after(delay, |this, ctx| {
            this.timer = None;
            while let Some(due) = this.deadlines.take_due(ctx.clock().now()) {
                let Deadline { id, handler, delay } = due;
                this.with(&id, ctx, |container| handler(container, delay));
            }
            this.set_timer(ctx);
        }));
    }

    fn tell_executor<M: Remote>(&self, id: &ContainerId, message: M, ctx: &Context<Self>) {
        let Some(actor) = self
            .containers
            .get(id)
            .and_then(|container| container.actor.as_ref())
        else {
            return;
        };
        if let Err(error) = ctx.node().tell(actor, message) {
            // Its exit or disconnection will be reported.
            tracing::warn!(container = %id, message = M::NAME, %error, "cannot send to the executor");
        }
    }

    fn ended(
        &mut self,
        id: &ContainerId,
        termination: Option<protocol::Termination>,
        ctx: &mut Context<Self>,
    ) {
        let Some(framework_id) = self.containers.executor_ended(id) else {
            return;
        };
        if id.parent().is_none() {
            self.counts.executors_terminated += 1;
        }
        self.clean_up_rest(id, ctx);
        self.release_root(id, ctx);
        self.isolation.forget_network(id);
        self.attached.ended(id);
        self.end_streams(id, ctx);
        let Some(container) = self.containers.get(id) else {
            return;
        };
        let of_interest = !container.is_command && !self.is_ending(&framework_id);
        if let (Some(agent_id), true) = (&self.agent.id, of_interest) {
            self.unreported_exits.push(ExecutorExited {
                agent_id: agent_id.clone(),
                framework_id,
                executor_id: container.executor.executor_id.clone(),
                termination,
            });
            self.report_exits(ctx);
        }
    }

    /// Sends the master the executor exits since the last inventory.
    fn report_exits(&mut self, ctx: &Context<Self>) {
        let Some(master) = &self.master else { return };
        for exited in self.unreported_exits.drain(..) {
            if let Err(error) = ctx.node().tell(master, exited) {
                tracing::debug!(%error, "executor exit not sent");
            }
        }
    }

    fn is_ending(&self, framework: &FrameworkId) -> bool {
        self.frameworks
            .get(framework)
            .is_none_or(|framework| framework.ending)
    }

    /// Removes a finished container, and its framework with the last one.
    fn forget_if_over(&mut self, id: &ContainerId) {
        let Some((framework, container)) = self.containers.entry(id) else {
            return;
        };
        let framework = framework.clone();
        let unheard = container.phase == machine::Phase::Terminated && self.is_ending(&framework);
        let holds_others = self.containers.inside(id).next().is_some();
        if holds_others || !container.is_over() && !unheard {
            return;
        }
        if let Some(parent) = container.parent() {
            self.forget_nested(id, &parent);
            return self.forget_if_over(&parent);
        }
        let view = self.view(&framework, container);
        if let Some(disk) = &self.disk {
            disk.tell_always(RunEnded(self.sandbox(&framework, container)));
        }
        self.history.add_run(view);
        self.forget_requests_in(id);
        self.forget_container(id);
        self.containers.remove(id);
        if !self.containers.has_framework(&framework) {
            let gone = self.frameworks.remove(&framework);
            if gone.as_ref().is_some_and(|framework| framework.ending) {
                self.status.tell_always(ForgetFramework(framework));
            }
            if let Some(gone) = gone {
                self.history.add_framework(gone.info);
            }
        }
    }

    /// Removes a finished nested container. Its parent keeps its tasks for pages.
    fn forget_nested(&mut self, id: &ContainerId, parent: &ContainerId) {
        self.forget_container(id);
        let container = self.containers.get_mut(id);
        let completed: Vec<Box<machine::Task>> = container
            .into_iter()
            .flat_map(Container::give_completed)
            .collect();
        self.containers.remove(id);
        if let Some(parent) = self.containers.get_mut(parent) {
            parent.enclose(id, None);
            parent.take_completed(completed);
        }
    }

    /// Passes a status to the status updates, unless the task is disowned or its framework is
    /// shutting down.
    fn forward(
        &mut self,
        id: &ContainerId,
        mut status: TaskStatus,
        executor: Option<Pid>,
        ctx: &Context<Self>,
    ) {
        status.agent_id = self.agent.id.clone();
        if let Some(network) = self.isolation.network(id) {
            v1::convert::keep_networks(&mut status.labels, &network.joined);
        }
        let throttle = self.throttle_of(id);
        if status.state == TaskState::Running && !throttle.is_none() {
            status
                .labels
                .insert(THROTTLE.to_owned(), throttle.to_string());
        } else {
            status.labels.remove(THROTTLE);
        }
        let uuid = *status
            .uuid
            .get_or_insert_with(|| Uuid(ctx.node().fresh_uuid()));
        if let Some(container) = self.containers.get_mut(id) {
            container.record_status(&mut status);
        }
        let Some((framework_id, container)) = self.containers.entry(id) else {
            return;
        };
        let disowned = container
            .task(&status.task_id)
            .is_some_and(|task| task.disowned);
        if disowned || self.is_ending(framework_id) {
            if let Some(executor) = executor {
                let _ = ctx.node().tell(
                    &executor,
                    UpdateStored {
                        task_id: status.task_id,
                        uuid,
                    },
                );
            }
            return;
        }
        let update = StatusUpdate {
            framework_id: framework_id.clone(),
            latest_state: status.state,
            status,
        };
        // Several changes of a task may be reported at once; each record has its own.
        let record = self.state_record(id, &update.status.task_id);
        let record = record.map(|(id, record)| {
            let state = update.status.state;
            let is_throttled = update.status.labels.contains_key(THROTTLE);
            let record = StateRecord {
                state,
                is_throttled,
                ..record
            };
            (id, record)
        });
        self.give(Forward {
            update,
            executor,
            record,
        });
    }

    fn give(&self, forward: Forward) {
        self.status.tell_always(forward);
    }
}

impl Actor for Containerizer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let events = ctx.handle();
        self.launcher
            .attach(Arc::new(move |handler| events.tell_always(handler)));
        self.follow_updates(ctx);
        self.recover(ctx);
    }
}

pub(crate) fn forget(status: &Handle<StatusUpdates>, framework: &FrameworkId, task: &TaskId) {
    status.tell_always(ForgetTask((framework.clone(), task.clone())));
}
