//! The executor driver's actor: it subscribes to the agent, passes tasks on, and keeps updates until the agent has them.
//!
//! Hears tasks, kills, messages and acknowledgements from the agent, and the executor's verbs from its [`ExecutorDriverRef`].
//! Remembers the updates that the agent has not confirmed, and which tasks it was given. When the agent goes, the executor is told and the
//! driver ends; but if the executor outlives its agent, the driver subscribes at the next one, or again at the same if only the link broke (`driver/away.rs`), and the executor does not
//! notice. What an agent that is there does not confirm is said again (`driver/repeating.rs`). It never starts a process and never decides what a task's state is.

mod away;
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

use self::away::Away;
use self::repeating::Repeating;
use crate::environment::Environment;

/// The agent's actor that hears executors.
pub const AGENT_ACTOR: &str = "containerizer";
/// Updates that may wait for the agent; one more is refused.
pub const UPDATES_MAX: usize = 65_536;
/// How long a subscription may take.
const SUBSCRIPTION_PATIENCE: Duration = Duration::from_secs(30);
/// How long the driver waits, once told to stop, for the agent to take the last updates.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(10);

/// What an executor does when its agent calls. Every callback may use the driver's verbs at once; none may block.
pub trait Executor: Send + 'static {
    /// The agent knows this executor; tasks follow.
    fn subscribed(&mut self, _subscribed: &ExecutorSubscribed, _driver: &ExecutorDriverRef) {}
    /// Run this task: report `TASK_RUNNING`, and one terminal state when it has ended.
    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef);
    /// End this task. `policy` is the framework's wish for this kill; `None` leaves it to the task's own.
    fn kill(&mut self, task_id: TaskId, policy: Option<KillPolicy>, driver: &ExecutorDriverRef);
    /// Bytes from the framework's scheduler.
    fn message(&mut self, _data: Vec<u8>, _driver: &ExecutorDriverRef) {}
    /// End all tasks and then stop the driver; after `grace` everything here is killed.
    fn shutdown(&mut self, grace: Duration, driver: &ExecutorDriverRef);
    /// The agent is gone for good: end all tasks. The driver ends after this.
    fn disconnected(&mut self, _driver: &ExecutorDriverRef) {}
}

/// How an executor's driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// The executor stopped it, and the agent has every update.
    Stopped,
    /// The executor stopped it, but the agent did not take all updates.
    UpdatesLost {
        /// How many.
        count: usize,
    },
    /// The agent is gone.
    Disconnected,
    /// The agent does not want this executor.
    Refused(ExecutorRefused),
    /// The agent gave no answer to the subscription.
    NoAnswer(AskError),
}

/// Why an executor could not reach its agent.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorConnectError {
    /// Its socket does not answer.
    #[error("the agent cannot be reached: {0}")]
    Connect(#[from] ConnectError),
    /// There is no agent behind the socket.
    #[error("no agent answers there: {0}")]
    Find(#[from] AskError),
    /// The node cannot take the driver.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// This status should reach the framework.
#[derive(Message)]
#[rtype(result = "()")]
struct Update(TaskStatus);

/// These bytes should reach the framework's scheduler.
#[derive(Message)]
#[rtype(result = "()")]
struct SendMessage(Vec<u8>);

/// The executor is done.
#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

/// How will the driver end? Answered when it has.
#[derive(Message)]
#[rtype(result = "DriverEnd")]
struct Ended;

/// The updates that the agent has not confirmed, oldest first.
#[derive(Debug, Default)]
pub struct Unconfirmed(VecDeque<TaskStatus>);

impl Unconfirmed {
    /// Keeps an update. `false` when there are too many.
    pub fn keep(&mut self, status: &TaskStatus) -> bool {
        if self.0.len() >= UPDATES_MAX {
            return false;
        }
        self.0.push_back(status.clone());
        true
    }

    /// The agent has this one; it is given back if it was kept.
    pub fn confirmed(&mut self, uuid: Uuid) -> Option<TaskStatus> {
        // Confirmations come in order, so this looks at the first entry only, save for duplicates.
        let at = self.0.iter().position(|status| status.uuid == Some(uuid))?;
        self.0.remove(at)
    }

    /// The uuid of the oldest.
    pub fn oldest(&self) -> Option<Uuid> {
        self.0.front()?.uuid
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TaskStatus> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(crate) struct Driver {
    environment: Environment,
    /// Spreads attempts to subscribe again.
    rng: SmallRng,
    agent: Pid,
    executor: Box<dyn Executor>,
    subscribed: bool,
    /// Whether the executor has been told that it is subscribed.
    told: bool,
    /// Set while the agent is gone and may come back.
    away: Option<Away>,
    /// Tasks that the executor was given, so that an agent that does not know whether it was gives them once. Only kept by one that outlives
    /// its agent.
    given: BTreeSet<TaskId>,
    /// Tasks and kills that arrived before the answer to the subscription was seen.
    early: Vec<Early>,
    unconfirmed: Unconfirmed,
    repeating: Repeating,
    stopping: bool,
    end: Option<DriverEnd>,
    waiting: Vec<Promise<DriverEnd>>,
}

enum Early {
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<LaunchTask>(&[Role::Agent]);
        ears.hear::<EndTask>(&[Role::Agent]);
        ears.hear::<ShutDownExecutor>(&[Role::Agent]);
        ears.hear::<UpdateStored>(&[Role::Agent]);
        ears.hear::<FrameworkMessage>(&[Role::Agent]);
    }
}

impl Driver {
    fn reference(ctx: &Context<Self>) -> ExecutorDriverRef {
        ExecutorDriverRef {
            handle: ctx.handle(),
            node: ctx.node().clone(),
        }
    }

    /// Subscribes at the agent that was found.
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
                return; // It is gone meanwhile.
            }
            match answer {
                Ok(Ok(subscribed)) => driver.on_subscribed(&subscribed, ctx),
                Ok(Err(refused)) => driver.finish(DriverEnd::Refused(refused), ctx),
                Err(_) if driver.outlives() => driver.lose_agent(ctx),
                Err(error) => driver.finish(DriverEnd::NoAnswer(error), ctx),
            }
        });
    }

    fn on_subscribed(&mut self, subscribed: &ExecutorSubscribed, ctx: &mut Context<Self>) {
        let driver = Self::reference(ctx);
        self.subscribed = true;
        self.away = None;
        if std::mem::replace(&mut self.told, true) {
            self.say_again(ctx);
        } else {
            self.executor.subscribed(subscribed, &driver);
        }
        for early in std::mem::take(&mut self.early) {
            self.pass_on(early, &driver);
        }
    }

    fn hear(&mut self, heard: Early, ctx: &Context<Self>) {
        if self.subscribed {
            self.pass_on(heard, &Self::reference(ctx));
        } else if self.early.len() < UPDATES_MAX {
            self.early.push(heard);
        }
    }

    fn pass_on(&mut self, heard: Early, driver: &ExecutorDriverRef) {
        match heard {
            Early::Launch(task) => {
                if self.outlives() && !self.given.insert(task.task_id.clone()) {
                    return; // The agent was started again and did not know.
                }
                self.executor.launch(*task, driver);
            }
            Early::Kill(end) => self.executor.kill(end.task_id, end.kill_policy, driver),
            Early::Message(data) => self.executor.message(data, driver),
            Early::Shutdown(grace) => self.executor.shutdown(grace, driver),
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
        // Whoever asks how it ended can still do so; the node goes with the process.
    }

    /// Gives an agent that is there so long to take the last updates.
    fn say_farewell(&mut self, ctx: &mut Context<Self>) {
        let agent = self.agent.clone();
        ctx.after(FAREWELL_PATIENCE, move |driver, ctx| {
            // One that is away has its own time, and the next begins anew.
            if driver.away.is_none() && driver.agent == agent {
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
        self.hear(Early::Launch(Box::new(task)), ctx);
    }
}

impl Handler<EndTask> for Driver {
    type Result = ();
    fn handle(&mut self, end: EndTask, ctx: &mut Context<Self>) {
        self.hear(Early::Kill(end), ctx);
    }
}

impl Handler<ShutDownExecutor> for Driver {
    type Result = ();
    fn handle(
        &mut self,
        ShutDownExecutor { grace_period }: ShutDownExecutor,
        ctx: &mut Context<Self>,
    ) {
        self.hear(Early::Shutdown(grace_period), ctx);
    }
}

impl Handler<FrameworkMessage> for Driver {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        self.hear(Early::Message(message.data), ctx);
    }
}

impl Handler<UpdateStored> for Driver {
    type Result = ();
    fn handle(&mut self, stored: UpdateStored, ctx: &mut Context<Self>) {
        let confirmed = self.unconfirmed.confirmed(stored.uuid);
        if confirmed.is_some_and(|status| status.state.is_terminal()) {
            self.given.remove(&stored.task_id);
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
        if self.outlives() && !done {
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
        if self.away.is_some() {
            return; // It is said when the agent is back.
        }
        // A broken link shows as `Exited`, and then the update is lost with the agent, unless that comes back.
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
        self.say_farewell(ctx);
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

/// The executor's hold on its driver: verbs that return at once.
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
        // Its agent may have ended since it started this executor.
        let mut away = Away::since(clock.now(), environment.recovery_timeout);
        let agent = loop {
            match away::reach(node, &address, SUBSCRIPTION_PATIENCE).await {
                Ok(agent) => break agent,
                Err(error) => match away.pause(clock.now(), rng.random()) {
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
            told: false,
            away: None,
            given: BTreeSet::new(),
            early: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            repeating: Repeating::default(),
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

    /// Reports a state of a task. Its source, ids and uuid are filled in here.
    pub fn update(&self, status: TaskStatus) {
        self.handle.tell_always(Update(status)); // The driver itself bounds what waits for the agent.
    }

    /// Reports a state of a task that has no more to say than the state.
    pub fn report(&self, task_id: &TaskId, state: TaskState) {
        self.update(TaskStatus::new(
            task_id.clone(),
            state,
            Source::Executor,
            self.node.clock().wall(),
        ));
    }

    /// Sends bytes to the framework's scheduler, at most once.
    pub fn message(&self, data: impl Into<Vec<u8>>) {
        if let Err(error) = self.handle.tell(SendMessage(data.into())) {
            tracing::warn!(%error, "framework message not sent");
        }
    }

    /// Ends the driver once the agent has every update.
    pub fn stop(&self) {
        self.handle.tell_always(Stop);
    }

    /// Waits for the driver's end.
    pub async fn ended(&self) -> DriverEnd {
        self.handle
            .ask(Ended, Patience::WhileLinked)
            .await
            .unwrap_or(DriverEnd::Disconnected)
    }

    /// The node it lives on, for its clock and its actors.
    pub fn node(&self) -> &Node {
        &self.node
    }
}
