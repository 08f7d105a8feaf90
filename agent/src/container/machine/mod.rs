//! The state machine of one container: its processes, its executor's actor, and its tasks until the
//! last acknowledgement.
//!
//! Pure: each event returns its effects in order. Knows no processes and no clock. The submodules
//! have commands without an executor, deadlines, disconnected executors, HTTP streams, checkpoints
//! and throttling.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use module_api::isolator::{ContainerResources, Limitation};
use protocol::message::executor::ExecutorRefused;
use protocol::task::{Limit, TaskLimits};
use protocol::text::duration;
use protocol::text::reserved_labels::THROTTLE;
use protocol::usage::Throttle;
use protocol::{
    Capability, ContainerId, ExecutorInfo, ExecutorKind, FrameworkInfo, KillPolicy, Reason, Source,
    TaskId, TaskInfo, TaskState, TaskStatus, Termination, Uuid,
};
use resources::Resources;
use runtime::Pid;

use self::command::{CommandState, kill_grace};
use self::disconnected::Disconnections;
use super::history::without_data;

/// The phase of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its sandbox is being created.
    Preparing,
    /// Its executor or command is being started.
    Launching,
    /// Its executor runs but has not subscribed.
    Registering,
    /// Its executor has outlived an earlier agent process and has not subscribed again.
    Recovering,
    /// Its executor has subscribed, or its command has started.
    Running,
    /// It is being ended.
    Terminating,
    /// Its processes are gone; tasks may wait for acknowledgement.
    Terminated,
}

/// An action that a container requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start the executor or the command.
    Launch,
    /// Set the deadline for the first subscription, or the start of a command.
    AwaitSubscription,
    /// Send this task to the executor.
    Run(Box<TaskInfo>),
    /// Send a kill of this task to the executor.
    End(TaskId, Option<KillPolicy>),
    /// Send a shutdown to the executor, and kill the container after this time.
    ShutDown(Duration),
    /// Kill the container after this time unless it ends by itself.
    DestroyAfter(Duration),
    /// Set the deadline for subscribing again.
    AwaitReturn,
    /// It runs: start the containers nested in it.
    StartNested,
    /// Start the checks of the command's task.
    StartChecks,
    /// Set the deadline for the end of the command.
    AwaitCompletion(Duration),
    /// Ask the command's processes to end, and kill those that remain after this time.
    Terminate(Duration),
    /// Kill all its processes.
    Destroy,
    /// Report a task's state.
    Report(TaskReport),
    /// The executor has ended; its id may be used again.
    Ended(Option<Termination>),
}

/// A task's state that no executor has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    /// The task.
    pub task_id: TaskId,
    /// The state.
    pub state: TaskState,
    /// On whose behalf: the agent's or, for a command, an executor's.
    pub source: Source,
    /// The reason, if the agent decided.
    pub reason: Option<Reason>,
    /// A text for people.
    pub message: String,
    /// How the command ended.
    pub termination: Option<Termination>,
    /// The result of the command's health check, if it is reported.
    pub healthy: Option<bool>,
    /// The results of the command's checks in the order of [`TaskInfo::all_checks`], `None` for
    /// those without a result. Empty if they are not reported.
    pub check_results: Vec<Option<i32>>,
}

/// How to handle a status from the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Forward it.
    New,
    /// The task has ended already: only confirm it.
    Late,
    /// There is no such task.
    Unknown,
}

/// The overhead that Mesos adds to the allocation of a command for its executor: 0.1 cpus and 32
/// MB. Masters do not count it. Empty for the framework's executors.
pub fn executor_overhead(allocated: &Resources, is_command: bool) -> Resources {
    let role = allocated.iter().find_map(|one| one.allocation_role());
    match role.filter(|_| is_command) {
        // The text is a constant that parses.
        Some(role) => Resources::parse("cpus:0.1;mem:32")
            .unwrap_or_default()
            .allocate(role),
        None => Resources::new(),
    }
}

/// Acknowledged tasks shown per executor, as in Mesos.
const COMPLETED_MAX: usize = 200;

/// Statuses shown per task.
const STATUSES_MAX: usize = 10;

/// A task in a container.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its description.
    pub info: TaskInfo,
    /// Its newest state.
    pub state: TaskState,
    /// Whether the master has disowned it: its updates are dropped.
    pub disowned: bool,
    /// Whether its record has lost its secrets, so that it cannot be sent to its executor again.
    lacks_secrets: bool,
    /// The kill request, if there was one.
    kill_request: Option<KillRequest>,
    /// UUIDs of the newest updates received, to detect repeated ones.
    received: VecDeque<Uuid>,
    /// Whether its newest status has the label of a throttled container.
    is_throttled: bool,
    /// The newest statuses since this process started, one per change of state, without their data.
    /// For pages.
    pub statuses: VecDeque<Arc<TaskStatus>>,
}

impl Task {
    fn new(info: TaskInfo) -> Self {
        Self {
            info,
            state: TaskState::Staging,
            disowned: false,
            lacks_secrets: false,
            kill_request: None,
            received: VecDeque::new(),
            is_throttled: false,
            statuses: VecDeque::new(),
        }
    }

    /// Stores a status for pages, without its data, which only the framework reads. Replaces the
    /// previous one if the state is the same.
    pub fn record_status(&mut self, status: &mut TaskStatus) {
        if self
            .statuses
            .back()
            .is_some_and(|last| last.state == status.state)
        {
            self.statuses.pop_back();
        }
        self.is_throttled = status.labels.contains_key(THROTTLE);
        let data = std::mem::take(&mut status.data);
        self.statuses.push_back(Arc::new(status.clone()));
        status.data = data;
        if self.statuses.len() > STATUSES_MAX {
            self.statuses.pop_front();
        }
    }
}

/// A kill request with the framework's policy, if it gave one.
#[derive(Clone, Copy, Debug)]
struct KillRequest(Option<KillPolicy>);

/// One run of one executor.
#[derive(Debug)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Its framework.
    pub framework: FrameworkInfo,
    /// Its executor.
    pub executor: ExecutorInfo,
    /// Whether it runs a command without an executor of the framework.
    pub is_command: bool,
    /// The secret with which the executor subscribes.
    pub token: String,
    /// Receives messages for the executor, once subscribed.
    pub actor: Option<Pid>,
    /// The session leader, once started.
    pub leader: Option<i32>,
    /// Its phase.
    pub phase: Phase,
    /// Set once its executor has subscribed over HTTP.
    uses_http: bool,
    disconnections: Disconnections,
    /// Whether it outlives the agent.
    checkpointed: bool,
    /// Nearly always one, while a map has room for eleven at once.
    tasks: BTreeMap<TaskId, Box<Task>>,
    /// The newest acknowledged tasks, oldest first. For pages.
    completed: VecDeque<Box<Task>>,
    /// What the live containers nested in it may use, if its limits are theirs.
    inside: BTreeMap<ContainerId, (Resources, TaskLimits)>,
    /// Whether it ends because none nested in it is left.
    is_unused: bool,
    /// Tasks not yet sent to the executor.
    queue: VecDeque<TaskId>,
    /// Queued tasks that are not yet checkpointed, or whose limits are not yet set.
    held_back: BTreeSet<TaskId>,
    /// Whether the executor was ever sent a task, also by an earlier agent process.
    has_run_tasks: bool,
    /// Overrides the status of live tasks when the container ends. The default is failed.
    end_status: Option<(TaskState, Reason, String)>,
    /// The limit that it exceeded.
    exceeded: Option<Resources>,
    /// How corrections throttle it; `None` if they never did.
    throttle: Option<Throttle>,
    /// Whether its processes are gone, although its end is not handled yet.
    is_gone: bool,
    /// The state of its command.
    command: CommandState,
}

impl Container {
    /// A container whose sandbox is about to be created.
    pub fn new(
        id: ContainerId,
        framework: FrameworkInfo,
        executor: ExecutorInfo,
        is_command: bool,
        token: String,
    ) -> Self {
        Self {
            id,
            framework,
            executor,
            is_command,
            token,
            actor: None,
            leader: None,
            phase: Phase::Preparing,
            uses_http: false,
            disconnections: Disconnections::default(),
            checkpointed: false,
            tasks: BTreeMap::new(),
            completed: VecDeque::new(),
            inside: BTreeMap::new(),
            is_unused: false,
            queue: VecDeque::new(),
            held_back: BTreeSet::new(),
            has_run_tasks: false,
            end_status: None,
            exceeded: None,
            throttle: None,
            is_gone: false,
            command: CommandState::default(),
        }
    }

    /// Whether it holds the containers of task groups: the agent is its executor.
    pub fn is_group(&self) -> bool {
        self.executor.kind == ExecutorKind::Default && !self.is_command
    }

    /// Its tasks, including ended ones until acknowledged.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().map(AsRef::as_ref)
    }

    /// The newest acknowledged tasks, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Task> {
        self.completed.iter().map(AsRef::as_ref)
    }

    /// Stores a status of one of its tasks for pages.
    pub fn record_status(&mut self, status: &mut TaskStatus) {
        if let Some(task) = self.tasks.get_mut(&status.task_id) {
            task.record_status(status);
        }
    }

    /// One of its tasks.
    pub fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id).map(AsRef::as_ref)
    }

    /// Whether some task has not ended.
    pub fn has_live_tasks(&self) -> bool {
        self.tasks.values().any(|task| !task.state.is_terminal())
    }

    /// Whether tasks wait for the disk or for their limits.
    pub fn holds_tasks_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Resources of the executor and its live tasks, and of those nested in it.
    pub fn allocated(&self) -> Resources {
        let mut sum = self.executor.resources.clone();
        for (resources, _) in self.live() {
            sum += resources;
        }
        sum
    }

    /// Resources and limits of its live tasks, and of those nested in it.
    fn live(&self) -> impl Iterator<Item = (&Resources, &TaskLimits)> {
        let live = self.tasks.values().filter(|task| !task.state.is_terminal());
        let live = live.map(|task| (&task.info.resources, &task.info.limits));
        let inside = self.inside.values();
        live.chain(inside.map(|(resources, limits)| (resources, limits)))
    }

    /// What isolators let it use.
    pub fn resources(&self) -> ContainerResources {
        let allocated = self.allocated();
        // A task of a group has no executor of its own.
        let has_executor = self.is_command && self.parent().is_none();
        let requests = &allocated + &executor_overhead(&allocated, has_executor);
        // With a limit of any task, the requests of the others and of the executor add to it.
        let limit = |own: fn(&TaskLimits) -> Option<Limit>, amount: fn(&Resources) -> f64| {
            let limited = self
                .live()
                .filter_map(|(resources, limits)| Some((own(limits)?, resources)));
            let first = (None, amount(&requests));
            let (sum, rest) = limited.fold(first, |(sum, rest), (limit, resources)| {
                let sum: Limit = sum.map_or(limit, |sum: Limit| sum.plus(limit));
                (Some(sum), rest - amount(resources))
            });
            sum.map(|sum: Limit| sum.plus(Limit::Amount(rest.max(0.0))))
        };
        ContainerResources {
            cpus_limit: limit(|limits| limits.cpus, |all| all.cpus().as_f64()),
            mem_limit: limit(|limits| limits.mem, |all| all.mem().as_f64()),
            requests,
            throttle: self.throttle(),
        }
    }

    /// It has exceeded a limit: the reason of its end, unless there is one already.
    pub fn exceeded(&mut self, limitation: Limitation) {
        let Limitation {
            resources,
            reason,
            message,
        } = limitation;
        if self.end_status.is_none() {
            self.end_status = Some((TaskState::Failed, reason, message));
            self.exceeded = Some(resources);
        }
    }

    /// Its processes are gone. Its end is handled when its isolators have cleaned up; until then it
    /// takes no tasks, and no deadline and no correction changes the reason.
    pub fn processes_gone(&mut self) {
        self.is_gone = true;
        self.phase = Phase::Terminating;
    }

    /// Whether its end is known and will be handled.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The limit that ended it.
    pub fn exceeded_limit(&self) -> Option<&Resources> {
        self.exceeded.as_ref()
    }

    /// Whether it accepts further tasks.
    pub fn takes_tasks(&self) -> bool {
        !matches!(self.phase, Phase::Terminating | Phase::Terminated)
    }

    /// Whether its executor can receive messages.
    fn is_connected(&self) -> bool {
        self.phase == Phase::Running && self.actor.is_some()
    }

    /// Adds a task.
    pub fn add(&mut self, info: TaskInfo) -> Vec<Effect> {
        self.add_and_hold(info, self.checkpointed)
    }

    /// Adds a task. With `hold` it waits for [`release`](Self::release).
    pub fn add_and_hold(&mut self, info: TaskInfo, hold: bool) -> Vec<Effect> {
        let id = info.task_id.clone();
        let at_once = self.is_connected() && !hold;
        let run = at_once.then(|| Effect::Run(Box::new(info.clone())));
        self.has_run_tasks |= at_once;
        if run.is_none() {
            self.queue.push_back(id.clone());
        }
        if hold {
            self.held_back.insert(id.clone());
        }
        self.tasks.insert(id, Box::new(Task::new(info)));
        run.into_iter().collect()
    }

    /// The sandbox was created, or failed.
    pub fn prepared(&mut self, sandbox: Result<(), String>) -> Vec<Effect> {
        match (self.phase, sandbox) {
            (Phase::Preparing, Ok(())) => {
                self.phase = Phase::Launching;
                vec![Effect::Launch]
            }
            (_, Err(problem)) => self.launch_failed(&problem),
            // All tasks were killed meanwhile; nothing was started.
            (_, Ok(())) => self.end(None, "the executor was not started"),
        }
    }

    /// The launch is requested: from now on a kill reaches a command, which must start in time.
    pub fn launch_requested(&mut self) -> Vec<Effect> {
        if !self.is_command {
            return Vec::new(); // An executor gets its tasks when it subscribes.
        }
        self.has_run_tasks = true;
        self.queue.clear();
        vec![Effect::AwaitSubscription]
    }

    /// A queued launch has its turn. No effect if it is no longer wanted.
    pub fn launch(&mut self) -> Vec<Effect> {
        let wanted = self.phase == Phase::Launching;
        wanted.then_some(Effect::Launch).into_iter().collect()
    }

    /// The executor could not be started.
    pub fn launch_failed(&mut self, problem: &str) -> Vec<Effect> {
        let end_status = (
            TaskState::Failed,
            Reason::ContainerLaunchFailed,
            format!("Failed to launch container: {problem}"),
        );
        self.end_status.get_or_insert(end_status);
        self.end(None, problem)
    }

    /// The executor's process has started, or the command.
    pub fn started(&mut self, leader: i32) -> Vec<Effect> {
        self.leader = Some(leader);
        match self.phase {
            // It may have been starting when the agent restarted.
            Phase::Launching | Phase::Recovering if self.is_command => self.command_started(),
            Phase::Launching | Phase::Recovering if self.is_group() => self.group_started(),
            Phase::Launching => {
                self.phase = Phase::Registering;
                vec![Effect::AwaitSubscription]
            }
            // It was killed after its launch, in this order.
            Phase::Terminating if self.is_command => Vec::new(),
            Phase::Terminating => vec![Effect::Destroy],
            // It subscribed before its start was reported.
            _ => Vec::new(),
        }
    }

    /// The executor subscribes from `actor`.
    pub fn subscribe(&mut self, token: &str, actor: Pid) -> Result<Vec<Effect>, ExecutorRefused> {
        let refused = |reason: &str| {
            Err(ExecutorRefused {
                reason: reason.to_owned(),
            })
        };
        if self.is_command || self.is_group() {
            return refused("the agent itself runs its tasks");
        }
        if !self.token_matches(token) {
            return refused("the token is wrong");
        }
        match self.phase {
            Phase::Launching | Phase::Registering | Phase::Recovering => {}
            // A retry: the answer was late, or the link broke.
            Phase::Running
                if !self.uses_http() && self.actor.as_ref().is_none_or(|is| *is == actor) => {}
            Phase::Running => return refused("it has subscribed already"),
            _ => return refused("its container is being ended"),
        }
        self.phase = Phase::Running;
        self.actor = Some(actor);
        // A native executor ignores tasks that it already has.
        Ok(self.resend_lost(&BTreeSet::new()))
    }

    /// Handles a task state from the executor.
    pub fn on_update(&mut self, task_id: &TaskId, state: TaskState) -> UpdateOutcome {
        match self.tasks.get_mut(task_id) {
            None => UpdateOutcome::Unknown,
            Some(task) if task.state.is_terminal() => UpdateOutcome::Late,
            Some(task) => {
                task.state = state;
                UpdateOutcome::New
            }
        }
    }

    /// Kills a task.
    pub fn kill(&mut self, task_id: &TaskId, policy: Option<KillPolicy>) -> Vec<Effect> {
        let Some(task) = self
            .tasks
            .get_mut(task_id)
            .filter(|task| !task.state.is_terminal())
        else {
            return Vec::new();
        };
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            if self.is_command {
                return self.kill_command(task_id, policy);
            }
            // The executor has it. An ending executor ends it anyway; a disconnected one gets the
            // kill when it is back.
            task.kill_request = Some(KillRequest(policy));
            let end = || Effect::End(task.info.task_id.clone(), policy.or(task.info.kill_policy));
            return (self.phase == Phase::Running)
                .then(end)
                .into_iter()
                .collect();
        };
        self.queue.remove(at);
        self.held_back.remove(task_id);
        let message = match self.tasks.get(task_id).map(|task| &task.info.group) {
            Some(Some(_)) => {
                "A task within the task group was killed before delivery to the executor"
            }
            _ => "Killed before delivery to the executor",
        };
        let message = message.to_owned();
        let mut effects = Vec::from_iter(self.report_end(
            task_id,
            TaskState::Killed,
            Reason::TaskKilledDuringLaunch,
            message,
        ));
        // An executor that has run tasks waits for the next one; an ending one keeps its grace
        // period.
        if !self.has_run_tasks && self.takes_tasks() && !self.has_live_tasks() {
            effects.extend(self.destroy());
        }
        effects
    }

    /// Kills all tasks, each within its own grace period or `max`, whichever is shorter.
    pub fn drain(&mut self, max: Option<Duration>) -> Vec<Effect> {
        let live = self.tasks.values().filter(|task| !task.state.is_terminal());
        let policy = |task: &Task| {
            max.map(|max| KillPolicy {
                grace_period: kill_grace(&task.info).min(max),
            })
        };
        let kills: Vec<_> = live
            .map(|task| (task.info.task_id.clone(), policy(task)))
            .collect();
        let kills = kills.into_iter();
        kills
            .flat_map(|(id, policy)| self.kill(&id, policy))
            .collect()
    }

    /// Drops further updates of a task.
    pub fn disown(&mut self, task_id: &TaskId) {
        if let Some(task) = self.tasks.get_mut(task_id) {
            task.disowned = true;
        }
    }

    /// Shuts the executor down; it is killed after `grace`.
    pub fn shut_down(&mut self, grace: Duration) -> Vec<Effect> {
        match self.phase {
            _ if self.has_command() => self.shut_down_command(grace),
            Phase::Running if self.is_group() => {
                self.phase = Phase::Terminating;
                vec![Effect::DestroyAfter(grace)]
            }
            Phase::Running if self.actor.is_some() => {
                self.phase = Phase::Terminating;
                vec![Effect::ShutDown(grace)]
            }
            // Disconnected: gets the shutdown when it subscribes again, and is killed after `grace`
            // otherwise.
            Phase::Running if self.uses_http() => {
                self.phase = Phase::Terminating;
                vec![Effect::DestroyAfter(grace)]
            }
            // Already ending: a second order does not change its deadline.
            Phase::Terminating => Vec::new(),
            _ => self.destroy(),
        }
    }

    /// Kills the container for the QoS controller. One that ended while the agent was down was not
    /// preempted: its exit is being reported.
    pub fn preempt(&mut self) -> Vec<Effect> {
        let is_over = self.phase == Phase::Recovering && self.leader.is_none();
        if self.phase == Phase::Terminated || is_over || self.is_gone {
            return Vec::new();
        }
        let aware = self.framework.can(Capability::PartitionAware);
        let message = "Container preempted by QoS correction".to_owned();
        self.end_status = Some((
            TaskState::Gone.for_framework(aware),
            Reason::ContainerPreempted,
            message,
        ));
        self.destroy()
    }

    /// The executor did not subscribe within `patience`.
    pub fn subscription_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Launching | Phase::Registering) {
            return Vec::new();
        }
        let patience = duration::format(patience);
        let message = format!("Executor did not register within {patience}");
        self.end_status = Some((
            TaskState::Failed,
            Reason::ExecutorRegistrationTimeout,
            message,
        ));
        self.destroy()
    }

    /// The grace period has passed.
    pub fn grace_over(&mut self, _: Duration) -> Vec<Effect> {
        self.destroy()
    }

    /// Kills all processes; their exit ends the container.
    pub fn destroy(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Terminated => Vec::new(),
            // Nothing runs yet; the pending sandbox result ends it.
            Phase::Preparing => {
                self.phase = Phase::Terminating;
                Vec::new()
            }
            _ => {
                self.phase = Phase::Terminating;
                vec![Effect::Destroy]
            }
        }
    }

    /// The executor's processes have ended.
    pub fn exited(&mut self, termination: Option<Termination>) -> Vec<Effect> {
        // The message of Mesos. The scheduler gets the exit status in a FAILURE event.
        self.end(termination, "Executor terminated")
    }

    /// A terminal update was acknowledged. `true` if the container can be removed.
    pub fn closed(&mut self, task_id: &TaskId) -> bool {
        if self
            .tasks
            .get(task_id)
            .is_some_and(|task| task.state.is_terminal())
            && let Some(mut task) = self.tasks.remove(task_id)
        {
            without_data(&mut task.info);
            self.push_completed(task);
        }
        self.is_over()
    }

    fn push_completed(&mut self, task: Box<Task>) {
        self.completed.push_back(task);
        if self.completed.len() > COMPLETED_MAX {
            self.completed.pop_front();
        }
    }

    /// Whether nothing of it is left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Terminated && self.tasks.values().all(|task| task.disowned)
    }

    fn end(&mut self, termination: Option<Termination>, how: &str) -> Vec<Effect> {
        if self.phase == Phase::Terminated {
            return Vec::new();
        }
        self.phase = Phase::Terminated;
        self.actor = None;
        self.leader = None;
        self.queue.clear();
        self.held_back.clear();
        let end_status = self.end_status.clone();
        let (state, reason, message) = end_status.unwrap_or_else(|| {
            (
                TaskState::Failed,
                Reason::ExecutorTerminated,
                how.to_owned(),
            )
        });
        let live = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.state.is_terminal());
        let live: Vec<TaskId> = live.map(|(id, _)| id.clone()).collect();
        let mut effects: Vec<Effect> = live
            .iter()
            .filter_map(|id| self.report_end(id, state, reason, message.clone()))
            .collect();
        effects.push(Effect::Ended(termination));
        effects
    }

    fn report_end(
        &mut self,
        task_id: &TaskId,
        state: TaskState,
        reason: Reason,
        message: String,
    ) -> Option<Effect> {
        self.report(TaskReport {
            task_id: task_id.clone(),
            state,
            source: Source::Agent,
            reason: Some(reason),
            message,
            termination: None,
            healthy: None,
            check_results: Vec::new(),
        })
    }

    fn report(&mut self, report: TaskReport) -> Option<Effect> {
        self.tasks.get_mut(&report.task_id)?.state = report.state;
        Some(Effect::Report(report))
    }
}

pub mod command;
pub mod deadlines;
mod disconnected;
mod group;
mod http_stream;
mod recovered;
#[cfg(test)]
mod tests;
pub mod throttling;
