//! Shared by the agent's tests: a master that records its messages, scripted modules, and a
//! launcher without processes.
#![allow(dead_code, reason = "each test target uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

pub mod isolator;
mod reports;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use self::isolator::FakeIsolator;
use meros_agent::launcher::{ContainerEnd, Events, LaunchError, LaunchRequest, LeftContainer};
use meros_agent::{Launcher, LauncherEvent, Modules, Settings, Started, WorkDir};
use module_api::qos_controller::{Corrections, InitializeQos, QosControllerRef};
use module_api::resource_estimator::{InitializeEstimator, Oversubscribable, ResourceEstimatorRef};
use module_api::{Fault, UsageUnavailable};
use protocol::agent::MasterInfo;
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentRegistered, AgentResumed, AgentSuspended, PingAgent, RegisterAgent, RegistrationRefused,
    ReregisterAgent, Reregistered, TermSeen, UnregisterAgent,
};
use protocol::message::scheduler::{AcknowledgeStatus, FrameworkMessage, KillTask};
use protocol::message::task::{ExecutorExited, RunTasks, TaskUpdated};
use protocol::{
    AgentId, CommandInfo, ContainerId, FrameworkId, FrameworkInfo, MasterId, QosCorrection,
    StatusUpdate, TaskId, TaskInfo, TaskState, Termination,
};
use resources::Resources;
use runtime::Instant;
use runtime::prelude::*;

/// Everything that the master has received, with the time since the node's start.
#[derive(Default)]
pub struct Received {
    /// Registrations with a full inventory.
    pub registrations: Vec<(Duration, RegisterAgent)>,
    /// Registrations with a summary.
    pub returns: Vec<ReregisterAgent>,
    /// Summaries that wait for the test's answer.
    pub waiting: Vec<Promise<Result<Reregistered, RegistrationRefused>>>,
    pub updates: Vec<(Duration, StatusUpdate)>,
    pub exited: Vec<ExecutorExited>,
    pub oversubscribed: Vec<Resources>,
    /// Each suspension with its reason, and `None` for each resumption.
    pub suspensions: Vec<Option<String>>,
    pub messages: Vec<FrameworkMessage>,
    pub terms_seen: Vec<u64>,
    pub left: bool,
}

/// The master's behaviour.
#[derive(Clone)]
pub struct MasterBehavior {
    /// Whether it acknowledges each update at once.
    pub acknowledges: bool,
    /// Number of registrations to answer with "not now".
    pub not_now: usize,
    pub total_ping_timeout: Duration,
    /// The term in which it leads.
    pub term: u64,
    /// Tasks launched on a new agent before the answer to its registration is sent.
    pub launches_first: Vec<TaskInfo>,
    /// Whether the test answers summaries; otherwise the answer is "unknown".
    pub compares_by_hand: bool,
}

impl Default for MasterBehavior {
    fn default() -> Self {
        Self {
            acknowledges: true,
            not_now: 0,
            total_ping_timeout: Duration::from_secs(75),
            term: 0,
            launches_first: Vec::new(),
            compares_by_hand: false,
        }
    }
}

pub struct FakeMaster {
    received: Arc<Mutex<Received>>,
    behavior: MasterBehavior,
    agent: Option<Pid>,
}

/// Controls the master.
#[derive(Clone)]
pub struct Master {
    pub received: Arc<Mutex<Received>>,
    pub node: Node,
    handle: Handle<FakeMaster>,
}

impl Master {
    pub fn start(node: &Node, behavior: MasterBehavior) -> Self {
        let received = Arc::<Mutex<Received>>::default();
        let actor = FakeMaster {
            received: received.clone(),
            behavior,
            agent: None,
        };
        let handle = node.spawn("master", actor).unwrap();
        Self {
            received,
            node: node.clone(),
            handle,
        }
    }

    pub fn agent(&self) -> Pid {
        self.received
            .lock()
            .unwrap()
            .registrations
            .last()
            .expect("an agent has registered")
            .1
            .pid
            .clone()
    }

    pub fn tell<M: Remote>(&self, message: M) {
        self.node.tell(&self.agent(), message).unwrap();
    }

    pub fn run(&self, tasks: Vec<TaskInfo>) {
        self.tell(RunTasks {
            framework: framework(),
            tasks,
        });
    }

    pub fn kill(&self, task: &str) {
        self.tell(KillTask {
            framework_id: framework_id(),
            task_id: task_id(task),
            agent_id: None,
            kill_policy: None,
        });
    }

    pub async fn ping(&self, connected: bool) {
        let _ = self
            .node
            .ask(
                &self.agent(),
                PingAgent { connected },
                Duration::from_secs(1),
            )
            .await;
    }

    /// The distinct states of a task, in order of arrival.
    pub fn states(&self, task: &str) -> Vec<TaskState> {
        let received = self.received.lock().unwrap();
        let mut seen = Vec::new();
        let mut states = Vec::new();
        for (_, update) in received
            .updates
            .iter()
            .filter(|(_, update)| update.status.task_id == task_id(task))
        {
            if !seen.contains(&update.status.uuid) {
                seen.push(update.status.uuid);
                states.push(update.status.state);
            }
        }
        states
    }

    pub fn last(&self, task: &str) -> Option<StatusUpdate> {
        let received = self.received.lock().unwrap();
        let own = received
            .updates
            .iter()
            .rev()
            .find(|(_, update)| update.status.task_id == task_id(task));
        own.map(|(_, update)| update.clone())
    }

    /// Answers the oldest summary and returns it.
    pub fn answer(&self, answer: Reregistered) -> ReregisterAgent {
        let mut received = self.received.lock().unwrap();
        let at = received.returns.len() - received.waiting.len();
        received.waiting.remove(0).answer(Ok(answer));
        received.returns[at].clone()
    }

    pub fn registrations(&self) -> usize {
        self.received.lock().unwrap().registrations.len()
    }

    pub fn oversubscribed(&self) -> Vec<Resources> {
        self.received.lock().unwrap().oversubscribed.clone()
    }
}

impl Actor for FakeMaster {
    type Context = Context<Self>;
}

impl Process for FakeMaster {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RegisterAgent>(&[Role::Agent]);
        handlers.accept::<ReregisterAgent>(&[Role::Agent]);
        handlers.accept::<TaskUpdated>(&[Role::Agent]);
        handlers.accept::<ExecutorExited>(&[Role::Agent]);
        handlers.accept::<OversubscribedChanged>(&[Role::Agent]);
        handlers.accept::<AgentSuspended>(&[Role::Agent]);
        handlers.accept::<AgentResumed>(&[Role::Agent]);
        handlers.accept::<FrameworkMessage>(&[Role::Agent]);
        handlers.accept::<UnregisterAgent>(&[Role::Agent]);
        handlers.accept::<TermSeen>(&[Role::Agent]);
    }
}

impl Handler<RegisterAgent> for FakeMaster {
    type Result = Result<AgentRegistered, RegistrationRefused>;
    fn handle(&mut self, register: RegisterAgent, ctx: &mut Context<Self>) -> Self::Result {
        let mut received = self.received.lock().unwrap();
        self.agent = Some(register.pid.clone());
        let id = register.agent.id.clone().unwrap_or_else(agent_id);
        received.registrations.push((since_start(ctx), register));
        if received.registrations.len() <= self.behavior.not_now {
            return Err(RegistrationRefused::NotNow {
                reason: "the registry is busy".into(),
            });
        }
        let first = std::mem::take(&mut self.behavior.launches_first);
        if let Some(agent) = self.agent.as_ref().filter(|_| !first.is_empty()) {
            let framework = checkpointing_framework();
            let run = RunTasks {
                framework,
                tasks: first,
            };
            ctx.node().tell(agent, run).unwrap();
        }
        Ok(self.welcome(id))
    }
}

impl Handler<ReregisterAgent> for FakeMaster {
    type Result = Reply<Result<Reregistered, RegistrationRefused>>;
    fn handle(&mut self, back: ReregisterAgent, _: &mut Context<Self>) -> Self::Result {
        let mut received = self.received.lock().unwrap();
        received.returns.push(back);
        let (promise, reply) = promise();
        match self.behavior.compares_by_hand {
            true => received.waiting.push(promise),
            false => promise.answer(Ok(Reregistered::Unknown)),
        }
        reply
    }
}

impl FakeMaster {
    fn welcome(&self, agent_id: AgentId) -> AgentRegistered {
        let mut welcome = welcome(agent_id);
        welcome.total_ping_timeout = self.behavior.total_ping_timeout;
        welcome.master.term = self.behavior.term;
        welcome
    }
}

/// The answer that admits an agent under this id.
pub fn welcome(agent_id: AgentId) -> AgentRegistered {
    AgentRegistered {
        agent_id,
        master: MasterInfo {
            id: MasterId::new("m").unwrap(),
            hostname: "master".into(),
            port: 5050,
            version: "0".into(),
            term: 0,
            address: None,
            domain: None,
        },
        total_ping_timeout: Duration::from_secs(75),
    }
}

fn since_start(ctx: &Context<FakeMaster>) -> Duration {
    ctx.clock().now() - Instant::default()
}

impl Handler<TaskUpdated> for FakeMaster {
    type Result = ();
    fn handle(&mut self, TaskUpdated { agent_id, update }: TaskUpdated, ctx: &mut Context<Self>) {
        if let (true, Some(agent), Some(uuid)) =
            (self.behavior.acknowledges, &self.agent, update.status.uuid)
        {
            let acknowledge = AcknowledgeStatus {
                framework_id: update.framework_id.clone(),
                agent_id,
                task_id: update.status.task_id.clone(),
                uuid,
            };
            ctx.node().tell(agent, acknowledge).unwrap();
        }
        self.received
            .lock()
            .unwrap()
            .updates
            .push((since_start(ctx), update));
    }
}

impl Handler<ExecutorExited> for FakeMaster {
    type Result = ();
    fn handle(&mut self, exited: ExecutorExited, _: &mut Context<Self>) {
        self.received.lock().unwrap().exited.push(exited);
    }
}

impl Handler<FrameworkMessage> for FakeMaster {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, _: &mut Context<Self>) {
        self.received.lock().unwrap().messages.push(message);
    }
}

impl Handler<TermSeen> for FakeMaster {
    type Result = ();
    fn handle(&mut self, TermSeen { term }: TermSeen, _: &mut Context<Self>) {
        self.received.lock().unwrap().terms_seen.push(term);
    }
}

impl Handler<UnregisterAgent> for FakeMaster {
    type Result = ();
    fn handle(&mut self, _: UnregisterAgent, _: &mut Context<Self>) {
        self.received.lock().unwrap().left = true;
    }
}

pub fn agent_id() -> AgentId {
    AgentId::new("m-S0").unwrap()
}

pub fn framework_id() -> FrameworkId {
    FrameworkId::new("m-0000").unwrap()
}

pub fn task_id(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

pub fn framework() -> FrameworkInfo {
    FrameworkInfo {
        id: Some(framework_id()),
        ..FrameworkInfo::new("", "test")
    }
}

/// A framework with checkpointing.
pub fn checkpointing_framework() -> FrameworkInfo {
    FrameworkInfo {
        checkpoint: true,
        ..framework()
    }
}

pub fn task(id: &str, command: CommandInfo) -> TaskInfo {
    let resources = Resources::parse("cpus:0.1;mem:32").unwrap();
    TaskInfo::new(task_id(id), agent_id(), resources).with_command(command)
}

/// A module that returns the given answers in order, and then none.
pub struct FakeModule {
    pub estimates: VecDeque<Result<Resources, Fault>>,
    pub corrections: VecDeque<Result<Vec<QosCorrection>, Fault>>,
    pub asked: Arc<Mutex<usize>>,
    held_estimates: Vec<Promise<Result<Resources, Fault>>>,
    held_corrections: Vec<Promise<Result<Vec<QosCorrection>, Fault>>>,
}

impl FakeModule {
    pub fn new(
        estimates: impl IntoIterator<Item = Result<Resources, Fault>>,
        corrections: impl IntoIterator<Item = Result<Vec<QosCorrection>, Fault>>,
    ) -> Self {
        Self {
            estimates: estimates.into_iter().collect(),
            corrections: corrections.into_iter().collect(),
            asked: Arc::default(),
            held_estimates: Vec::new(),
            held_corrections: Vec::new(),
        }
    }

    pub fn silent() -> Self {
        Self::new([], [])
    }
}

impl Actor for FakeModule {
    type Context = Context<Self>;
}

impl Process for FakeModule {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<InitializeEstimator>();
        handlers.accept_local::<Oversubscribable>();
        handlers.accept_local::<InitializeQos>();
        handlers.accept_local::<Corrections>();
    }
}

impl Handler<InitializeEstimator> for FakeModule {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: InitializeEstimator, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<InitializeQos> for FakeModule {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: InitializeQos, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<Oversubscribable> for FakeModule {
    type Result = Reply<Result<Resources, Fault>>;
    fn handle(&mut self, _: Oversubscribable, _: &mut Context<Self>) -> Self::Result {
        *self.asked.lock().unwrap() += 1;
        let (promise, reply) = promise();
        match self.estimates.pop_front() {
            Some(estimate) => promise.answer(estimate),
            None => self.held_estimates.push(promise),
        }
        reply
    }
}

impl Handler<Corrections> for FakeModule {
    type Result = Reply<Result<Vec<QosCorrection>, Fault>>;
    fn handle(&mut self, _: Corrections, _: &mut Context<Self>) -> Self::Result {
        *self.asked.lock().unwrap() += 1;
        let (promise, reply) = promise();
        match self.corrections.pop_front() {
            Some(corrections) => promise.answer(corrections),
            None => self.held_corrections.push(promise),
        }
        reply
    }
}

/// Records the requests to the fake launcher and triggers its events.
#[derive(Clone, Default)]
pub struct LauncherControl {
    pub launched: Arc<Mutex<Vec<LaunchRequest>>>,
    pub killed: Arc<Mutex<Vec<ContainerId>>>,
    pub terminated: Arc<Mutex<Vec<(ContainerId, Duration)>>>,
    pub forgotten: Arc<Mutex<Vec<ContainerId>>>,
    events: Arc<Mutex<Option<Events>>>,
    /// Whether launches succeed at once and kills end executors at once.
    pub prompt: bool,
    /// Containers of an earlier agent.
    pub left: Vec<LeftContainer>,
    /// Whether checkpoints were discarded.
    pub checkpoints_discarded: Arc<Mutex<bool>>,
}

impl LauncherControl {
    pub fn prompt() -> Self {
        Self {
            prompt: true,
            ..Self::default()
        }
    }

    /// A launcher with this container of an earlier agent.
    pub fn with_left(container_id: ContainerId) -> Self {
        let pid = Some(1 << 22);
        Self {
            left: vec![LeftContainer {
                container_id,
                pid,
                age: Duration::ZERO,
            }],
            ..Self::prompt()
        }
    }

    pub fn emit(&self, event: LauncherEvent) {
        let events = self.events.lock().unwrap().clone();
        events.expect("attached")(event);
    }

    /// A container starts.
    pub fn start(&self, container_id: ContainerId) {
        let pid = 1 << 22;
        self.emit(LauncherEvent::Started { container_id, pid });
    }

    /// The leader of a container ends.
    pub fn exit(&self, container_id: ContainerId, termination: Termination) {
        let end = ContainerEnd::Leader(termination);
        self.emit(LauncherEvent::Exited { container_id, end });
    }

    pub fn container(&self, index: usize) -> ContainerId {
        self.launched.lock().unwrap()[index].container_id.clone()
    }
}

pub struct FakeLauncher(pub LauncherControl);

impl Launcher for FakeLauncher {
    fn left(&mut self) -> Vec<LeftContainer> {
        self.0.left.clone()
    }

    fn discard_checkpoints(&mut self) {
        *self.0.checkpoints_discarded.lock().unwrap() = true;
    }

    fn attach(&mut self, events: Events) {
        *self.0.events.lock().unwrap() = Some(events);
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        let container_id = request.container_id.clone();
        self.0.launched.lock().unwrap().push(request);
        if self.0.prompt {
            self.0.start(container_id);
        }
        Ok(())
    }

    fn terminate(&mut self, container_id: &ContainerId, grace: Duration) {
        let mut terminated = self.0.terminated.lock().unwrap();
        terminated.push((container_id.clone(), grace));
    }

    fn forget(&mut self, container_id: &ContainerId) {
        self.0.forgotten.lock().unwrap().push(container_id.clone());
    }

    fn kill(&mut self, container_id: &ContainerId) {
        self.0.killed.lock().unwrap().push(container_id.clone());
        if self.0.prompt {
            self.0.exit(container_id.clone(), Termination::Signaled(9));
        }
    }
}

/// Starts an agent on `node` with these parts.
pub fn start_agent(
    node: &Node,
    work_dir: &Path,
    launcher: Box<dyn Launcher>,
    estimator: FakeModule,
    controller: FakeModule,
) -> Started {
    start_agent_with(node, settings(work_dir), launcher, estimator, controller)
}

/// The settings of a small agent.
pub fn settings(work_dir: &Path) -> Settings {
    let mut settings = Settings::new(vec!["master".into()], work_dir);
    settings.resources = Some("cpus:4;mem:1024;disk:1024".into());
    settings
}

/// Likewise, with other settings.
pub fn start_agent_with(
    node: &Node,
    settings: Settings,
    launcher: Box<dyn Launcher>,
    estimator: FakeModule,
    controller: FakeModule,
) -> Started {
    start_isolated_agent(node, settings, launcher, (estimator, controller), &[])
}

/// Likewise, with isolators.
pub fn start_isolated_agent(
    node: &Node,
    settings: Settings,
    launcher: Box<dyn Launcher>,
    (estimator, controller): (FakeModule, FakeModule),
    isolators: &[FakeIsolator],
) -> Started {
    let config = settings.check().unwrap();
    let lock = WorkDir::lock(config.work_dir()).unwrap();
    let estimator = node.spawn("estimator", estimator).unwrap();
    let controller = node.spawn("controller", controller).unwrap();
    let modules = Modules {
        resource_estimator: ResourceEstimatorRef::new(estimator.refer()),
        qos_controller: QosControllerRef::new(controller.refer()),
        isolators: isolators.iter().map(|one| one.start(node)).collect(),
        provisioner: None,
    };
    meros_agent::start(node, config, lock, launcher, modules).unwrap()
}

/// Waits up to this many seconds until a condition holds.
pub async fn eventually(node: &Node, seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..seconds * 100 {
        if holds() {
            return;
        }
        node.clock().sleep(Duration::from_millis(10)).await;
    }
    panic!("not within {seconds} s: {what}");
}

pub fn unavailable() -> UsageUnavailable {
    UsageUnavailable {
        reason: "not in this test".into(),
    }
}
