//! What the agent's tests share: a master that writes down what it hears, modules that say what they are told to, and a launcher
//! without processes.
#![allow(dead_code, reason = "each test target uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod reports;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use meros_agent::launcher::{Events, LaunchError, LaunchRequest, Left};
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
    StatusUpdate, TaskId, TaskInfo, TaskState,
};
use resources::Resources;
use runtime::Instant;
use runtime::prelude::*;

/// Everything the master has heard, with the time since the node's start.
#[derive(Default)]
pub struct Heard {
    /// Those that tell all.
    pub registrations: Vec<(Duration, RegisterAgent)>,
    /// Those that tell a summary.
    pub returns: Vec<ReregisterAgent>,
    /// Those of them that wait for the test to answer.
    pub waiting: Vec<Promise<Result<Reregistered, RegistrationRefused>>>,
    pub updates: Vec<(Duration, StatusUpdate)>,
    pub exited: Vec<ExecutorExited>,
    pub oversubscribed: Vec<Resources>,
    /// Each suspension with its reason, and each resumption.
    pub suspensions: Vec<Option<String>>,
    pub messages: Vec<FrameworkMessage>,
    pub terms_seen: Vec<u64>,
    pub left: bool,
}

/// How the master behaves.
#[derive(Clone)]
pub struct Manners {
    /// Whether it acknowledges each update at once.
    pub acknowledges: bool,
    /// How many registrations it answers with "not now".
    pub not_now: usize,
    pub total_ping_timeout: Duration,
    /// Under which term it leads.
    pub term: u64,
    /// What it launches, before its answer is on its way, on an agent that is new.
    pub launches_first: Vec<TaskInfo>,
    /// Whether the test answers summaries; else they are answered by that nothing is known.
    pub compares_by_hand: bool,
}

impl Default for Manners {
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
    heard: Arc<Mutex<Heard>>,
    manners: Manners,
    agent: Option<Pid>,
}

/// The test's hold on the master.
#[derive(Clone)]
pub struct Master {
    pub heard: Arc<Mutex<Heard>>,
    pub node: Node,
    handle: Handle<FakeMaster>,
}

impl Master {
    pub fn start(node: &Node, manners: Manners) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let actor = FakeMaster {
            heard: heard.clone(),
            manners,
            agent: None,
        };
        let handle = node.spawn("master", actor).unwrap();
        Self {
            heard,
            node: node.clone(),
            handle,
        }
    }

    pub fn agent(&self) -> Pid {
        self.heard
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

    /// The states of a task in the order in which they came first.
    pub fn states(&self, task: &str) -> Vec<TaskState> {
        let heard = self.heard.lock().unwrap();
        let mut seen = Vec::new();
        let mut states = Vec::new();
        for (_, update) in heard
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
        let heard = self.heard.lock().unwrap();
        let own = heard
            .updates
            .iter()
            .rev()
            .find(|(_, update)| update.status.task_id == task_id(task));
        own.map(|(_, update)| update.clone())
    }

    /// Answers the oldest summary, and gives it.
    pub fn answer(&self, answer: Reregistered) -> ReregisterAgent {
        let mut heard = self.heard.lock().unwrap();
        let at = heard.returns.len() - heard.waiting.len();
        heard.waiting.remove(0).answer(Ok(answer));
        heard.returns[at].clone()
    }

    pub fn registrations(&self) -> usize {
        self.heard.lock().unwrap().registrations.len()
    }

    pub fn oversubscribed(&self) -> Vec<Resources> {
        self.heard.lock().unwrap().oversubscribed.clone()
    }
}

impl Actor for FakeMaster {
    type Context = Context<Self>;
}

impl Process for FakeMaster {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<RegisterAgent>(&[Role::Agent]);
        ears.hear::<ReregisterAgent>(&[Role::Agent]);
        ears.hear::<TaskUpdated>(&[Role::Agent]);
        ears.hear::<ExecutorExited>(&[Role::Agent]);
        ears.hear::<OversubscribedChanged>(&[Role::Agent]);
        ears.hear::<AgentSuspended>(&[Role::Agent]);
        ears.hear::<AgentResumed>(&[Role::Agent]);
        ears.hear::<FrameworkMessage>(&[Role::Agent]);
        ears.hear::<UnregisterAgent>(&[Role::Agent]);
        ears.hear::<TermSeen>(&[Role::Agent]);
    }
}

impl Handler<RegisterAgent> for FakeMaster {
    type Result = Result<AgentRegistered, RegistrationRefused>;
    fn handle(&mut self, register: RegisterAgent, ctx: &mut Context<Self>) -> Self::Result {
        let mut heard = self.heard.lock().unwrap();
        self.agent = Some(register.pid.clone());
        let id = register.agent.id.clone().unwrap_or_else(agent_id);
        heard.registrations.push((since_start(ctx), register));
        if heard.registrations.len() <= self.manners.not_now {
            return Err(RegistrationRefused::NotNow {
                reason: "the registry is busy".into(),
            });
        }
        let first = std::mem::take(&mut self.manners.launches_first);
        if let Some(agent) = self.agent.as_ref().filter(|_| !first.is_empty()) {
            let framework = kept_framework();
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
        let mut heard = self.heard.lock().unwrap();
        heard.returns.push(back);
        let (promise, reply) = promise();
        match self.manners.compares_by_hand {
            true => heard.waiting.push(promise),
            false => promise.answer(Ok(Reregistered::Unknown)),
        }
        reply
    }
}

impl FakeMaster {
    fn welcome(&self, agent_id: AgentId) -> AgentRegistered {
        let mut welcome = welcome(agent_id);
        welcome.total_ping_timeout = self.manners.total_ping_timeout;
        welcome.master.term = self.manners.term;
        welcome
    }
}

/// The answer to an agent that is admitted under this id.
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
            (self.manners.acknowledges, &self.agent, update.status.uuid)
        {
            let acknowledge = AcknowledgeStatus {
                framework_id: update.framework_id.clone(),
                agent_id,
                task_id: update.status.task_id.clone(),
                uuid,
            };
            ctx.node().tell(agent, acknowledge).unwrap();
        }
        self.heard
            .lock()
            .unwrap()
            .updates
            .push((since_start(ctx), update));
    }
}

impl Handler<ExecutorExited> for FakeMaster {
    type Result = ();
    fn handle(&mut self, exited: ExecutorExited, _: &mut Context<Self>) {
        self.heard.lock().unwrap().exited.push(exited);
    }
}

impl Handler<FrameworkMessage> for FakeMaster {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, _: &mut Context<Self>) {
        self.heard.lock().unwrap().messages.push(message);
    }
}

impl Handler<TermSeen> for FakeMaster {
    type Result = ();
    fn handle(&mut self, TermSeen { term }: TermSeen, _: &mut Context<Self>) {
        self.heard.lock().unwrap().terms_seen.push(term);
    }
}

impl Handler<UnregisterAgent> for FakeMaster {
    type Result = ();
    fn handle(&mut self, _: UnregisterAgent, _: &mut Context<Self>) {
        self.heard.lock().unwrap().left = true;
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

/// What it runs outlives its agent.
pub fn kept_framework() -> FrameworkInfo {
    FrameworkInfo {
        checkpoint: true,
        ..framework()
    }
}

pub fn task(id: &str, command: CommandInfo) -> TaskInfo {
    TaskInfo {
        name: id.into(),
        task_id: task_id(id),
        agent_id: agent_id(),
        resources: Resources::parse("cpus:0.1;mem:32").unwrap(),
        command: Some(command),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Default::default(),
    }
}

/// A module that answers what it was given, one after another, and then never again.
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<InitializeEstimator>();
        ears.hear_local::<Oversubscribable>();
        ears.hear_local::<InitializeQos>();
        ears.hear_local::<Corrections>();
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

/// What a fake launcher has been asked, and the way to make things happen.
#[derive(Clone, Default)]
pub struct Stage {
    pub launched: Arc<Mutex<Vec<LaunchRequest>>>,
    pub killed: Arc<Mutex<Vec<ContainerId>>>,
    events: Arc<Mutex<Option<Events>>>,
    /// Whether a start is told at once, and a kill ends the executor at once.
    pub prompt: bool,
    /// What an earlier agent has left.
    pub left: Vec<Left>,
    /// Whether nothing outlives the agent any more.
    pub keeps_nothing: Arc<Mutex<bool>>,
}

impl Stage {
    pub fn prompt() -> Self {
        Self {
            prompt: true,
            ..Self::default()
        }
    }

    /// One whose launcher has this container of an earlier agent.
    pub fn with_left(container_id: ContainerId) -> Self {
        let pid = Some(1 << 22);
        Self {
            left: vec![Left { container_id, pid }],
            ..Self::prompt()
        }
    }

    pub fn happens(&self, event: LauncherEvent) {
        let events = self.events.lock().unwrap().clone();
        events.expect("attached")(event);
    }

    pub fn container(&self, index: usize) -> ContainerId {
        self.launched.lock().unwrap()[index].container_id.clone()
    }
}

pub struct FakeLauncher(pub Stage);

impl Launcher for FakeLauncher {
    fn left(&mut self) -> Vec<Left> {
        self.0.left.clone()
    }

    fn keep_nothing(&mut self) {
        *self.0.keeps_nothing.lock().unwrap() = true;
    }

    fn attach(&mut self, events: Events) {
        *self.0.events.lock().unwrap() = Some(events);
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        let container_id = request.container_id.clone();
        self.0.launched.lock().unwrap().push(request);
        if self.0.prompt {
            self.0.happens(LauncherEvent::Started {
                container_id,
                pid: 1 << 22,
            });
        }
        Ok(())
    }

    fn kill(&mut self, container_id: &ContainerId) {
        self.0.killed.lock().unwrap().push(container_id.clone());
        if self.0.prompt {
            let termination = protocol::Termination::Signaled(9);
            self.0.happens(LauncherEvent::Exited {
                container_id: container_id.clone(),
                termination,
            });
        }
    }
}

/// An agent on `node` with these parts.
pub fn start_agent(
    node: &Node,
    work_dir: &Path,
    launcher: Box<dyn Launcher>,
    estimator: FakeModule,
    controller: FakeModule,
) -> Started {
    let mut settings = Settings::new(vec!["master".into()], work_dir);
    settings.resources = Some("cpus:4;mem:1024;disk:1024".into());
    start_agent_with(node, settings, launcher, estimator, controller)
}

/// The same with settings of its own.
pub fn start_agent_with(
    node: &Node,
    settings: Settings,
    launcher: Box<dyn Launcher>,
    estimator: FakeModule,
    controller: FakeModule,
) -> Started {
    let config = settings.check().unwrap();
    let lock = WorkDir::lock(config.work_dir()).unwrap();
    let estimator = node.spawn("estimator", estimator).unwrap();
    let controller = node.spawn("controller", controller).unwrap();
    let modules = Modules {
        resource_estimator: ResourceEstimatorRef::new(estimator.refer()),
        qos_controller: QosControllerRef::new(controller.refer()),
    };
    meros_agent::start(node, config, lock, launcher, modules).unwrap()
}

/// Waits, for at most so many seconds, until something holds.
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
