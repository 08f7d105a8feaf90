//! The executor driver's actor: subscribes to the agent, passes tasks on, and keeps updates until
//! the agent has stored them.
//!
//! Handles tasks, kills, messages and acknowledgements of the agent, and calls from its
//! [`ExecutorDriverRef`]. Owns the unconfirmed updates and the set of launched tasks. When the
//! agent is lost, the driver informs the executor and ends. With checkpointing it instead
//! subscribes at the next agent process, or again at the same one if only the link broke
//! (`driver/absence.rs`); the executor does not notice. Unconfirmed updates are repeated
//! (`driver/repeating.rs`). Never starts a process, and never decides the state of a task.

mod absence;
mod repeating;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use protocol::message::executor::{
    EndTask, ExecutorRefused, ExecutorSubscribed, ExecutorUpdated, LaunchTask, ShutDownExecutor,
    SubscribeExecutor, UpdateStored,
};
use protocol::message::scheduler::FrameworkMessage;
use protocol::{KillPolicy, Source, TaskId, TaskInfo, TaskState, TaskStatus, Uuid};
use rand::Rng;
use rand::rngs::SmallRng;
use runtime::prelude::*;
use runtime::{ConnectError, SpawnError};

use self::absence::AgentAbsence;
use self::repeating::UpdateRepeater;
use crate::environment::Environment;

/// The agent's actor for executors.
pub const AGENT_ACTOR: &str = "containerizer";
/// Maximum number of unconfirmed updates; more are dropped.
pub const UPDATES_MAX: usize = 65_536;
/// Time limit of a subscription.
const SUBSCRIPTION_PATIENCE: Duration = Duration::from_secs(30);
/// How long a stopped driver waits until the agent has stored the last updates.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The callbacks of an executor. They may use the driver at once and must not block.
pub trait Executor: Send + 'static {
    /// The executor is subscribed; its tasks follow.
    fn subscribed(&mut self, _subscribed: &ExecutorSubscribed, _driver: &ExecutorDriverRef) {}
    /// Runs a task: report `TASK_RUNNING`, and one terminal state when it has ended.
    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef);
    /// Kills a task. `policy` is the policy of this kill; `None` uses the task's own.
    fn kill(&mut self, task_id: TaskId, policy: Option<KillPolicy>, driver: &ExecutorDriverRef);
    /// Data from the framework's scheduler.
    fn message(&mut self, _data: Vec<u8>, _driver: &ExecutorDriverRef) {}
    /// Kill all tasks and then stop the driver. After `grace` the agent kills the container.
    fn shutdown(&mut self, grace: Duration, driver: &ExecutorDriverRef);
    /// The agent is gone for good: kill all tasks. The driver ends after this.
    fn disconnected(&mut self, _driver: &ExecutorDriverRef) {}
}

/// How an executor's driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// Stopped; the agent has stored every update.
    Stopped,
    /// Stopped, but the agent did not store all updates.
    UpdatesLost {
        /// Number of lost updates.
        count: usize,
    },
    /// The agent is gone.
    Disconnected,
    /// The agent refused this executor.
    Refused(ExecutorRefused),
    /// The agent did not answer the subscription.
    NoAnswer(AskError),
}

/// Why an executor could not reach its agent.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorConnectError {
    /// The agent's socket does not answer.
    #[error("the agent cannot be reached: {0}")]
    Connect(#[from] ConnectError),
    /// No agent is behind the socket.
    #[error("no agent answers there: {0}")]
    Find(#[from] AskError),
    /// The node did not accept the driver's actor.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// Sends a status to the framework.
#[derive(Message)]
#[rtype(result = "()")]
struct Update(TaskStatus);

/// Sends data to the framework's scheduler.
#[derive(Message)]
#[rtype(result = "()")]
struct SendMessage(Vec<u8>);

/// Stops the driver.
#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

/// Waits for the end of the driver.
#[derive(Message)]
#[rtype(result = "DriverEnd")]
struct Ended;

/// Unconfirmed updates, oldest first.
#[derive(Debug, Default)]
pub struct UnconfirmedUpdates(VecDeque<TaskStatus>);

impl UnconfirmedUpdates {
    /// Adds an update. Returns `false` if there are too many.
    pub fn keep(&mut self, status: &TaskStatus) -> bool {
        if self.0.len() >= UPDATES_MAX {
            return false;
        }
        self.0.push_back(status.clone());
        true
    }

    /// Removes and returns a confirmed update.
    pub fn confirmed(&mut self, uuid: Uuid) -> Option<TaskStatus> {
        // Confirmations arrive in order, so this usually stops at the first entry.
        let at = self.0.iter().position(|status| status.uuid == Some(uuid))?;
        self.0.remove(at)
    }

    /// Uuid of the oldest update.
    pub fn oldest(&self) -> Option<Uuid> {
        self.0.front()?.uuid
    }

    /// All updates, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TaskStatus> {
        self.0.iter()
    }

    /// Number of updates.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no updates.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(crate) struct Driver {
    environment: Environment,
    /// Jitter of reconnections.
    rng: SmallRng,
    agent: Pid,
    executor: Box<dyn Executor>,
    subscribed: bool,
    /// Whether the executor was informed of a subscription.
    announced: bool,
    /// Set while the agent is gone and may return.
    absence: Option<AgentAbsence>,
    /// Launched tasks, so that an agent that does not know of a launch cannot repeat it. Only with
    /// checkpointing.
    launched: BTreeSet<TaskId>,
    /// Events before the answer to the subscription.
    early: Vec<AgentEvent>,
    unconfirmed: UnconfirmedUpdates,
    repeating: UpdateRepeater,
    stopping: bool,
    end: Option<DriverEnd>,
    waiting: Vec<Promise<DriverEnd>>,
}

enum AgentEvent {
    Launch(Box<TaskInfo>),
    Kill(EndTask),
    Message(Vec<u8>),
    Shutdown(Duration),
}

impl Actor for Driver {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.subscribe(ctx);
    }
}

impl Process for Driver {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<LaunchTask>(&[Role::Agent]);
        handlers.accept::<EndTask>(&[Role::Agent]);
        handlers.accept::<ShutDownExecutor>(&[Role::Agent]);
        handlers.accept::<UpdateStored>(&[Role::Agent]);
        handlers.accept::<FrameworkMessage>(&[Role::Agent]);
    }
}

impl Driver {
    fn reference(ctx: &Context<Self>) -> ExecutorDriverRef {
        ExecutorDriverRef {
            handle: ctx.handle(),
            node: ctx.node().clone(),
        }
    }

    /// Subscribes at the current agent.
    fn subscribe(&mut self, ctx: &mut Context<Self>) {
        ctx.link(&self.agent);
        let subscribe = SubscribeExecutor {
            framework_id: self.environment.framework_id.clone(),
            executor_id: self.environment.executor_id.clone(),
            container_id: self.environment.container_id.clone(),
            token: self.environment.token.clone(),
            pid: ctx.pid().clone(),
        };
        let agent = self.agent.clone();
        let asked = ctx.node().ask(&agent, subscribe, SUBSCRIPTION_PATIENCE);
        ctx.then(asked, move |driver, answer, ctx| {
            if driver.agent != agent {
                return; // An answer of a previous agent.
            }
            match answer {
                Ok(Ok(subscribed)) => driver.on_subscribed(&subscribed, ctx),
                Ok(Err(refused)) => driver.finish(DriverEnd::Refused(refused), ctx),
                Err(_) if driver.survives_agent() => driver.lose_agent(ctx),
                Err(error) => driver.finish(DriverEnd::NoAnswer(error), ctx),
            }
        });
    }

    fn on_subscribed(&mut self, subscribed: &ExecutorSubscribed, ctx: &mut Context<Self>) {
        let driver = Self::reference(ctx);
        self.subscribed = true;
        self.absence = None;
        if std::mem::replace(&mut self.announced, true) {
            self.resend_updates(ctx);
        } else {
            self.executor.subscribed(subscribed, &driver);
        }
        for early in std::mem::take(&mut self.early) {
            self.pass_on(early, &driver);
        }
    }

    fn receive(&mut self, event: AgentEvent, ctx: &Context<Self>) {
        if self.subscribed {
            self.pass_on(event, &Self::reference(ctx));
        } else if self.early.len() < UPDATES_MAX {
            self.early.push(event);
        }
    }

    fn pass_on(&mut self, event: AgentEvent, driver: &ExecutorDriverRef) {
        match event {
            AgentEvent::Launch(task) => {
                if self.survives_agent() && !self.launched.insert(task.task_id.clone()) {
                    return; // A restarted agent repeats the launch.
                }
                self.executor.launch(*task, driver);
            }
            AgentEvent::Kill(end) => self.executor.kill(end.task_id, end.kill_policy, driver),
            AgentEvent::Message(data) => self.executor.message(data, driver),
            AgentEvent::Shutdown(grace) => self.executor.shutdown(grace, driver),
        }
    }

    fn finish(&mut self, end: DriverEnd, ctx: &mut Context<Self>) {
        if self.end.is_some() {
            return;
        }
        if !matches!(end, DriverEnd::Stopped | DriverEnd::UpdatesLost { .. }) {
            self.executor.disconnected(&Self::reference(ctx));
        }
        for waiting in self.waiting.drain(..) {
            waiting.answer(end.clone());
        }
        self.end = Some(end);
        // The actor stays: `ended` can still be called. The node ends with the process.
    }

    /// Limits the time for the last updates while the agent is present.
    fn start_stop_timeout(&mut self, ctx: &mut Context<Self>) {
        let agent = self.agent.clone();
        ctx.after(STOP_PATIENCE, move |driver, ctx| {
            // An absence has its own limit, and the next agent gets a new one.
            if driver.absence.is_none() && driver.agent == agent {
                let count = driver.unconfirmed.len();
                driver.finish(DriverEnd::UpdatesLost { count }, ctx);
            }
        });
    }

    fn finish_if_done(&mut self, ctx: &mut Context<Self>) {
        if self.stopping && self.unconfirmed.is_empty() {
            self.finish(DriverEnd::Stopped, ctx);
        }
    }
}

impl Handler<LaunchTask> for Driver {
    type Result = ();
    fn handle(&mut self, LaunchTask { task }: LaunchTask, ctx: &mut Context<Self>) {
        self.receive(AgentEvent::Launch(Box::new(task)), ctx);
    }
}

impl Handler<EndTask> for Driver {
    type Result = ();
    fn handle(&mut self, end: EndTask, ctx: &mut Context<Self>) {
        self.receive(AgentEvent::Kill(end), ctx);
    }
}

impl Handler<ShutDownExecutor> for Driver {
    type Result = ();
    fn handle(
        &mut self,
        ShutDownExecutor { grace_period }: ShutDownExecutor,
        ctx: &mut Context<Self>,
    ) {
        self.receive(AgentEvent::Shutdown(grace_period), ctx);
    }
}

impl Handler<FrameworkMessage> for Driver {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        self.receive(AgentEvent::Message(message.data), ctx);
    }
}

impl Handler<UpdateStored> for Driver {
    type Result = ();
    fn handle(&mut self, stored: UpdateStored, ctx: &mut Context<Self>) {
        let confirmed = self.unconfirmed.confirmed(stored.uuid);
        if confirmed.is_some_and(|status| status.state.is_terminal()) {
            self.launched.remove(&stored.task_id);
        }
        self.watch_confirmations(ctx);
        self.finish_if_done(ctx);
    }
}

impl Handler<Exited> for Driver {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if exited.pid != self.agent {
            return;
        }
        let done = self.stopping && self.unconfirmed.is_empty();
        if self.survives_agent() && !done {
            return self.lose_agent(ctx);
        }
        let end = match (self.stopping, self.unconfirmed.len()) {
            (true, 0) => DriverEnd::Stopped,
            (true, count) => DriverEnd::UpdatesLost { count },
            (false, _) => DriverEnd::Disconnected,
        };
        self.finish(end, ctx);
    }
}

impl Handler<Update> for Driver {
    type Result = ();
    fn handle(&mut self, Update(mut status): Update, ctx: &mut Context<Self>) {
        status.uuid = Some(Uuid(ctx.node().fresh_uuid()));
        status.source = Source::Executor;
        status.executor_id = Some(self.environment.executor_id.clone());
        status.container_id = Some(self.environment.container_id.clone());
        status.agent_id = Some(self.environment.agent_id.clone());
        if !self.unconfirmed.keep(&status) {
            tracing::error!(task = %status.task_id, state = %status.state, "update dropped: the agent takes none");
            return;
        }
        if self.absence.is_some() {
            return; // Sent when the agent is back.
        }
        // A broken link is reported as `Exited`; then the update is lost unless the agent returns.
        if let Err(error) = ctx.node().tell(&self.agent, ExecutorUpdated { status }) {
            tracing::warn!(%error, "update not sent");
        }
        self.watch_confirmations(ctx);
    }
}

impl Handler<SendMessage> for Driver {
    type Result = ();
    fn handle(&mut self, SendMessage(data): SendMessage, ctx: &mut Context<Self>) {
        let message = FrameworkMessage {
            framework_id: self.environment.framework_id.clone(),
            agent_id: self.environment.agent_id.clone(),
            executor_id: self.environment.executor_id.clone(),
            data,
        };
        if let Err(error) = ctx.node().tell(&self.agent, message) {
            tracing::warn!(%error, "framework message not sent");
        }
    }
}

impl Handler<Stop> for Driver {
    type Result = ();
    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        self.stopping = true;
        self.finish_if_done(ctx);
        self.start_stop_timeout(ctx);
    }
}

impl Handler<Ended> for Driver {
    type Result = Reply<DriverEnd>;
    fn handle(&mut self, _: Ended, _: &mut Context<Self>) -> Reply<DriverEnd> {
        let (promise, reply) = promise();
        match &self.end {
            Some(end) => promise.answer(end.clone()),
            None => self.waiting.push(promise),
        }
        reply
    }
}

/// Handle of an executor's driver. Its methods do not block.
#[derive(Clone)]
pub struct ExecutorDriverRef {
    handle: Handle<Driver>,
    node: Node,
}

impl ExecutorDriverRef {
    /// Connects to the agent over `node` and subscribes.
    pub async fn connect(
        node: &Node,
        environment: Environment,
        executor: impl Executor,
    ) -> Result<Self, ExecutorConnectError> {
        let address = environment.address();
        let (clock, mut rng) = (node.clock(), node.rng());
        // The agent may have exited since it started this executor.
        let mut absence = AgentAbsence::since(clock.now(), environment.recovery_timeout);
        let agent = loop {
            match absence::reach(node, &address, SUBSCRIPTION_PATIENCE).await {
                Ok(agent) => break agent,
                Err(error) => match absence.pause(clock.now(), rng.random()) {
                    Some(pause) => clock.sleep(pause).await,
                    None => return Err(error),
                },
            }
        };
        let driver = Driver {
            environment,
            rng,
            agent,
            executor: Box::new(executor),
            subscribed: false,
            announced: false,
            absence: None,
            launched: BTreeSet::new(),
            early: Vec::new(),
            unconfirmed: UnconfirmedUpdates::default(),
            repeating: UpdateRepeater::default(),
            stopping: false,
            end: None,
            waiting: Vec::new(),
        };
        let handle = node.spawn("executor", driver)?;
        Ok(Self {
            handle,
            node: node.clone(),
        })
    }

    /// Reports a status of a task. The driver sets source, ids and uuid.
    pub fn update(&self, status: TaskStatus) {
        self.handle.tell_always(Update(status)); // Bounded by the driver itself.
    }

    /// Reports a state of a task without further details.
    pub fn report(&self, task_id: &TaskId, state: TaskState) {
        self.update(TaskStatus::new(
            task_id.clone(),
            state,
            Source::Executor,
            self.node.clock().wall(),
        ));
    }

    /// Sends data to the framework's scheduler, at most once.
    pub fn message(&self, data: impl Into<Vec<u8>>) {
        if let Err(error) = self.handle.tell(SendMessage(data.into())) {
            tracing::warn!(%error, "framework message not sent");
        }
    }

    /// Ends the driver once the agent has stored every update.
    pub fn stop(&self) {
        self.handle.tell_always(Stop);
    }

    /// Waits for the end of the driver.
    pub async fn ended(&self) -> DriverEnd {
        self.handle
            .ask(Ended, Patience::WhileLinked)
            .await
            .unwrap_or(DriverEnd::Disconnected)
    }

    /// The driver's node, for its clock and its actors.
    pub fn node(&self) -> &Node {
        &self.node
    }
}
