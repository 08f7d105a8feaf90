//! The simulated executor: executes its tasks' commands in virtual time, behind the real executor
//! driver.
//!
//! It runs many tasks, from their data, and ends after [`IDLE_MAX`] without a task. Nothing starts
//! on the real machine.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::container::machine::command::{kill_grace, outcome};
use executor_driver::{Environment, Executor, ExecutorDriverRef};
use protocol::message::executor::ExecutorSubscribed;
use protocol::{
    Capability, ContainerId, KillPolicy, Reason, Source, TaskId, TaskInfo, TaskState, TaskStatus,
    Termination,
};
use rand::Rng;
use runtime::prelude::*;
use runtime::{Promise, Reply, TimerHandle, promise};

use super::command::{KILLED, Kill, KillStep, SEGMENTATION_FAULT, TERMINATED};
use crate::load::command::{Command, Ending};

/// A framework's executor ends after this time without a task.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum delay between launch and start of a task.
const START_MAX: Duration = Duration::from_millis(20);

/// The node name of a container's executor.
pub fn node_of(container: &ContainerId) -> String {
    format!("executor-{container}")
}

/// Runs an executor on this node until it ends; returns the termination of its process.
pub async fn live(node: Node, environment: Environment) -> Termination {
    let Ok(runner) = node.spawn("runner", Runner::default()) else {
        return Termination::Exited(1);
    };
    let executor = Ears(runner.clone());
    let driver = match ExecutorDriverRef::connect(&node, environment, executor).await {
        Ok(driver) => driver,
        Err(error) => {
            tracing::info!(%error, "a simulated executor did not reach its agent");
            return Termination::Exited(1);
        }
    };
    match runner.ask(WhenOver, Patience::WhileLinked).await {
        Ok(Over::Done) => {
            driver.stop();
            driver.ended().await;
            Termination::Exited(0)
        }
        Ok(Over::Crashed) => Termination::Signaled(SEGMENTATION_FAULT),
        Err(_) => Termination::Exited(1),
    }
}

/// Forwards the agent's calls to the runner.
struct Ears(Handle<Runner>);

impl Ears {
    fn tell<M>(&self, message: M)
    where
        Runner: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        // The runner ends with the process.
        let _ = self.0.tell(message);
    }
}

impl Executor for Ears {
    fn subscribed(&mut self, subscribed: &ExecutorSubscribed, _: &ExecutorDriverRef) {
        let tells_killing = subscribed.framework.can(Capability::TaskKillingState);
        self.tell(Subscribed { tells_killing });
    }

    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef) {
        let driver = driver.clone();
        self.tell(Launch {
            task: Box::new(task),
            driver,
        });
    }

    fn kill(&mut self, task_id: TaskId, policy: Option<KillPolicy>, _: &ExecutorDriverRef) {
        let grace = policy.map(|policy| policy.grace_period);
        self.tell(End {
            task: Some(task_id),
            grace,
        });
    }

    fn shutdown(&mut self, grace: Duration, _: &ExecutorDriverRef) {
        self.tell(End {
            task: None,
            grace: Some(grace),
        });
    }

    fn disconnected(&mut self, _: &ExecutorDriverRef) {
        self.tell(Abandon);
    }
}

/// The agent has registered the executor; the framework may want `TASK_KILLING`.
#[derive(Message)]
#[rtype(result = "()")]
struct Subscribed {
    tells_killing: bool,
}

/// Runs a task.
#[derive(Message)]
#[rtype(result = "()")]
struct Launch {
    task: Box<TaskInfo>,
    driver: ExecutorDriverRef,
}

/// Ends a task, or all tasks and then the executor.
#[derive(Message)]
#[rtype(result = "()")]
struct End {
    task: Option<TaskId>,
    grace: Option<Duration>,
}

/// The agent is gone: ends at once.
#[derive(Message)]
#[rtype(result = "()")]
struct Abandon;

/// Answered when the executor has ended, with the kind of its end.
#[derive(Message)]
#[rtype(result = "Over")]
struct WhenOver;

/// How an executor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// Its work was done.
    Done,
    /// By a signal.
    Crashed,
}

/// A task that has not ended.
struct Running {
    info: Box<TaskInfo>,
    driver: ExecutorDriverRef,
    command: Command,
    kill: Kill,
}

#[derive(Default)]
struct Runner {
    tells_killing: bool,
    tasks: BTreeMap<TaskId, Running>,
    stopping: bool,
    idle: Option<TimerHandle>,
    over: Option<Over>,
    waiting: Vec<Promise<Over>>,
}

impl Runner {
    fn launch(&mut self, info: Box<TaskInfo>, driver: ExecutorDriverRef, ctx: &mut Context<Self>) {
        let refuse = |message: String, ctx: &Context<Self>| {
            status(&info.task_id, TaskState::Failed, ctx)
                .with_reason(Reason::CommandExecutorFailed, message)
        };
        if self.stopping || self.over.is_some() {
            return driver.update(refuse("the executor takes no more tasks".into(), ctx));
        }
        let text = String::from_utf8_lossy(&info.data);
        let command = match Command::parse(&text) {
            Ok(command) => command,
            Err(error) => return driver.update(refuse(error.to_string(), ctx)),
        };
        if let Some(idle) = self.idle.take() {
            ctx.cancel(idle);
        }
        driver.update(status(&info.task_id, TaskState::Starting, ctx));
        let id = info.task_id.clone();
        let running = Running {
            info,
            driver,
            command,
            kill: Kill::default(),
        };
        self.tasks.insert(id.clone(), running);
        let pause = START_MAX.mul_f64(ctx.node().rng().random());
        ctx.after(pause, move |this, ctx| this.begin(&id, ctx));
    }

    /// Starts the task's command.
    fn begin(&mut self, id: &TaskId, ctx: &mut Context<Self>) {
        let Some(running) = self.tasks.get(id).filter(|task| !task.kill.is_wanted()) else {
            return;
        };
        let update = status(id, TaskState::Running, ctx);
        running.driver.update(update);
        if let Some((after, ending)) = running.command.end {
            let id = id.clone();
            ctx.after(after, move |this, ctx| match ending {
                Ending::Exits(code) => this.finish(&id, Termination::Exited(code), ctx),
                Ending::Crashes if this.tasks.contains_key(&id) => this.end(Over::Crashed),
                Ending::Crashes => {}
            });
        }
    }

    fn finish(&mut self, id: &TaskId, termination: Termination, ctx: &mut Context<Self>) {
        let Some(running) = self.tasks.remove(id) else {
            return;
        };
        let (state, message) = outcome(termination, running.kill.is_wanted());
        let mut last = status(id, state, ctx);
        last.message = message;
        last.termination = Some(termination);
        running.driver.update(last);
        if !self.tasks.is_empty() {
            return;
        }
        if self.stopping {
            return self.end(Over::Done);
        }
        self.idle = Some(ctx.after(IDLE_MAX, |this, _| {
            if this.tasks.is_empty() {
                this.stopping = true;
                this.end(Over::Done);
            }
        }));
    }

    fn end(&mut self, how: Over) {
        let over = *self.over.get_or_insert(how);
        for waiting in self.waiting.drain(..) {
            waiting.answer(over);
        }
    }

    /// Asks a task to end, and enforces it after the grace period.
    fn kill(
        &mut self,
        id: &TaskId,
        shutdown: bool,
        given: Option<Duration>,
        ctx: &mut Context<Self>,
    ) {
        let tells_killing = self.tells_killing;
        let Some(running) = self.tasks.get_mut(id) else {
            return;
        };
        let own = kill_grace(&running.info);
        let grace = match (shutdown, given) {
            // In a shutdown the grace is shorter than the agent's wait.
            (true, Some(grace)) => own.min(grace.mul_f64(0.8)),
            (_, grace) => grace.unwrap_or(own),
        };
        let now = ctx.clock().now();
        match running.kill.request(now, grace) {
            KillStep::Nothing => {}
            KillStep::Begin(_) if !running.command.stubborn => {
                if tells_killing {
                    running.driver.update(status(id, TaskState::Killing, ctx));
                }
                self.finish(id, Termination::Signaled(TERMINATED), ctx);
            }
            KillStep::Begin(deadline) | KillStep::Shorten(deadline) => {
                if tells_killing && deadline == now + grace {
                    running.driver.update(status(id, TaskState::Killing, ctx));
                }
                let id = id.clone();
                ctx.after(deadline - now, move |this, ctx| {
                    let due = this
                        .tasks
                        .get(&id)
                        .is_some_and(|task| task.kill.is_due(ctx.clock().now()));
                    if due {
                        this.finish(&id, Termination::Signaled(KILLED), ctx);
                    }
                });
            }
        }
    }
}

fn status(id: &TaskId, state: TaskState, ctx: &Context<Runner>) -> TaskStatus {
    TaskStatus::new(id.clone(), state, Source::Executor, ctx.clock().wall())
}

impl Actor for Runner {
    type Context = Context<Self>;
}

impl Process for Runner {}

impl Handler<Subscribed> for Runner {
    type Result = ();
    fn handle(&mut self, Subscribed { tells_killing }: Subscribed, _: &mut Context<Self>) {
        self.tells_killing = tells_killing;
    }
}

impl Handler<Launch> for Runner {
    type Result = ();
    fn handle(&mut self, Launch { task, driver }: Launch, ctx: &mut Context<Self>) {
        self.launch(task, driver, ctx);
    }
}

impl Handler<End> for Runner {
    type Result = ();
    fn handle(&mut self, End { task, grace }: End, ctx: &mut Context<Self>) {
        match task {
            Some(task) => self.kill(&task, false, grace, ctx),
            None => {
                self.stopping = true;
                let all: Vec<TaskId> = self.tasks.keys().cloned().collect();
                if all.is_empty() {
                    self.end(Over::Done);
                }
                for task in all {
                    self.kill(&task, true, grace, ctx);
                }
            }
        }
    }
}

impl Handler<Abandon> for Runner {
    type Result = ();
    fn handle(&mut self, _: Abandon, _: &mut Context<Self>) {
        self.tasks.clear();
        self.end(Over::Done);
    }
}

impl Handler<WhenOver> for Runner {
    type Result = Reply<Over>;
    fn handle(&mut self, _: WhenOver, _: &mut Context<Self>) -> Reply<Over> {
        let (promise, reply) = promise();
        match self.over {
            Some(over) => promise.answer(over),
            None => self.waiting.push(promise),
        }
        reply
    }
}
