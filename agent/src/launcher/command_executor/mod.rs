//! The command executor: runs the command of one task and reports its states.
//!
//! Runs in a process forked from the zygote. Handles its agent through the executor driver and
//! exits of children through a signal descriptor. As a subreaper it inherits all processes that the
//! command leaves behind, also those in other sessions. A killed task gets SIGTERM in all its
//! processes, and SIGKILL in those that remain after the grace period, even if the shell that
//! started them has ended. If the command ends by itself, remaining processes are killed at once,
//! as in Mesos. The task's end is reported when all its processes are gone. Reads no output and
//! stores nothing.

pub mod outcome;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use executor_driver::{Environment, Executor, ExecutorDriverRef, environment};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid as ProcessId;
use protocol::message::executor::ExecutorSubscribed;
use protocol::{
    Capability, KillPolicy, Source, TaskId, TaskInfo, TaskState, TaskStatus, Termination,
};
use runtime::prelude::*;
use tokio::io::unix::AsyncFd;

pub use self::program::program;

use self::outcome::{GRACE_DEFAULT, Kill, KillStep, outcome};
use crate::host::accounts::OwnUser;
use crate::host::procfs;
use crate::host::sys;
use crate::zygote::{child_signals, ended_child, forget_signals, kill_all, wire::LaunchRequest};

/// Exit status of an executor that may have left processes behind.
pub const UNCLEAN: i32 = 1;
/// Interval and number of sweeps for processes that do not die.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
const SWEEPS_MAX: u32 = 250;

/// Share of the agent's grace period given to the task; the rest is for reporting its end.
const GRACE_SHARE: f64 = 0.8;

/// Runs the command executor in this process of the user `own`. Returns 0 if no process is left.
pub fn run(request: &LaunchRequest, own: OwnUser) -> i32 {
    match serve(request, own) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("command executor: {error}");
            UNCLEAN
        }
    }
}

fn serve(request: &LaunchRequest, own: OwnUser) -> Result<Infallible, Box<dyn Error>> {
    let environment = Environment::from(|name| request.environment.get(name).cloned())?;
    let task_environment = TaskEnvironment {
        variables: request.environment.clone(),
        user: request.user.clone(),
        own,
    };
    executor_driver::run_alone(environment, |node, environment| async move {
        run_executor(node, environment, task_environment).await
    })?
}

async fn run_executor(
    node: Node,
    environment: Environment,
    task_environment: TaskEnvironment,
) -> Result<Infallible, Box<dyn Error>> {
    let signals = Arc::new(sys::watch(child_signals()?)?);
    let grace = environment.shutdown_grace_period.mul_f64(GRACE_SHARE);
    let runner = node.spawn("runner", Runner::new(task_environment, grace, signals))?;
    let executor = CommandExecutor {
        runner: runner.clone(),
    };
    let driver = ExecutorDriverRef::connect(&node, environment, executor).await?;
    let clean = runner.ask(Finished, Patience::WhileLinked).await?;
    driver.stop();
    driver.ended().await;
    // Everything is acknowledged. Exits at once: the kernel cleans up faster.
    sys::exit_now(if clean { 0 } else { UNCLEAN })
}

/// Performs lazy initialization (CPU features, libc symbols) once in the zygote, so that forked
/// executors need not.
pub fn warm_up() -> std::io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("avx2");
    let system = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&system, async {
        // A watchdog would be a second thread; a forking process must have one only.
        let node = Node::builder("warm-up").unwatched().build();
        node.clock().sleep(Duration::from_millis(1)).await;
        // Fails, but initializes the connection path.
        let _dialling = transport::unix::Dialling::install(&node);
        let _ = node.connect(&format!("{}/", transport::unix::SCHEME)).await;
    });
    Ok(())
}

/// Forwards the driver's callbacks to the runner.
struct CommandExecutor {
    runner: Handle<Runner>,
}

impl CommandExecutor {
    fn tell<M>(&self, message: M)
    where
        Runner: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        // The runner ends only with the process.
        let _ = self.runner.tell(message);
    }
}

impl Executor for CommandExecutor {
    fn subscribed(&mut self, subscribed: &ExecutorSubscribed, _: &ExecutorDriverRef) {
        self.tell(Subscribed {
            reports_killing: subscribed.framework.can(Capability::TaskKillingState),
        });
    }

    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef) {
        self.tell(Launch {
            task: Box::new(task),
            driver: driver.clone(),
        });
    }

    fn kill(&mut self, task_id: TaskId, policy: Option<KillPolicy>, _: &ExecutorDriverRef) {
        self.tell(End {
            task_id: Some(task_id),
            grace: policy.map(|policy| policy.grace_period),
        });
    }

    fn shutdown(&mut self, grace: Duration, _: &ExecutorDriverRef) {
        self.tell(End {
            task_id: None,
            grace: Some(grace),
        });
    }

    fn disconnected(&mut self, _: &ExecutorDriverRef) {
        self.tell(AgentGone);
    }
}

/// Subscribed; whether the framework supports `TASK_KILLING`.
#[derive(Message)]
#[rtype(result = "()")]
struct Subscribed {
    reports_killing: bool,
}

/// Runs a task.
#[derive(Message)]
#[rtype(result = "()")]
struct Launch {
    task: Box<TaskInfo>,
    driver: ExecutorDriverRef,
}

/// Ends this task, or any.
#[derive(Message)]
#[rtype(result = "()")]
struct End {
    task_id: Option<TaskId>,
    grace: Option<Duration>,
}

/// The agent is gone for good: end the task without a report.
#[derive(Message)]
#[rtype(result = "()")]
struct AgentGone;

/// Answered when the task is over: whether no process is left.
#[derive(Message)]
#[rtype(result = "bool")]
struct Finished;

/// The task and its main process.
struct Running {
    task: Box<TaskInfo>,
    driver: ExecutorDriverRef,
    main: i32,
    kill: Kill,
    ended: Option<Termination>,
    sweeps: u32,
}

impl Running {
    /// The task's own grace period.
    fn grace(&self) -> Duration {
        let policy = self.task.kill_policy;
        policy.map_or(GRACE_DEFAULT, |policy| policy.grace_period)
    }
}

/// Environment and user of the task's main process.
struct TaskEnvironment {
    variables: BTreeMap<String, String>,
    user: Option<String>,
    own: OwnUser,
}

struct Runner {
    task_environment: TaskEnvironment,
    /// Longest grace period after the agent is gone.
    agent_gone_grace: Duration,
    signals: Arc<AsyncFd<SignalFd>>,
    reports_killing: bool,
    running: Option<Running>,
    agent_gone: bool,
    finished: Option<bool>,
    waiting: Vec<Promise<bool>>,
}

impl Runner {
    fn new(
        mut task_environment: TaskEnvironment,
        agent_gone_grace: Duration,
        signals: Arc<AsyncFd<SignalFd>>,
    ) -> Self {
        // The task must not be able to impersonate its executor.
        task_environment.variables.remove(environment::TOKEN);
        task_environment.variables.remove(environment::SOCKET);
        Self {
            task_environment,
            agent_gone_grace,
            signals,
            reports_killing: false,
            running: None,
            agent_gone: false,
            finished: None,
            waiting: Vec::new(),
        }
    }

    /// Waits for the next ended child.
    fn watch(&self, ctx: &mut Context<Self>) {
        let signals = self.signals.clone();
        let ready = async move {
            if let Ok(mut guard) = signals.readable().await {
                forget_signals(signals.get_ref());
                guard.clear_ready();
            }
        };
        ctx.then(ready, |runner, (), ctx| {
            runner.reap(ctx);
            if runner.finished.is_none() {
                runner.watch(ctx);
            }
        });
    }

    /// Reaps children. Once the main process has ended, kills the remaining ones or waits for them.
    fn reap(&mut self, ctx: &mut Context<Self>) {
        let Some(running) = &mut self.running else {
            return;
        };
        let childless = loop {
            match ended_child() {
                Ok(Some((pid, termination))) if pid == running.main => {
                    running.ended = Some(termination)
                }
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        let Some(termination) = running.ended else {
            return;
        };
        if childless {
            return self.finish(termination, true, ctx);
        }
        if running.kill.has_time(ctx.clock().now()) {
            return; // They got SIGTERM. The next exit or the deadline continues.
        }
        running.sweeps += 1;
        if running.sweeps > SWEEPS_MAX {
            return self.finish(termination, false, ctx);
        }
        kill_descendants(running);
        // The exit of a killed child continues here; a child forked meanwhile needs this timer.
        ctx.after(SWEEP_INTERVAL, Self::reap);
    }

    fn finish(&mut self, termination: Termination, clean: bool, ctx: &mut Context<Self>) {
        let Some(running) = self.running.take() else {
            return;
        };
        if !self.agent_gone {
            let outcome = outcome(termination, running.kill.is_wanted());
            let mut status = status(&running.task.task_id, outcome.state, ctx);
            status.message = outcome.message;
            status.termination = Some(termination);
            running.driver.update(status);
        }
        self.set_finished(clean);
    }

    fn set_finished(&mut self, clean: bool) {
        self.finished = Some(clean);
        for waiting in self.waiting.drain(..) {
            waiting.answer(clean);
        }
    }

    /// Sends SIGTERM to the task's processes, and SIGKILL to those that remain after `grace`.
    fn begin_kill(&mut self, grace: Duration, ctx: &mut Context<Self>) {
        let reports_killing = self.reports_killing && !self.agent_gone;
        let Some(running) = &mut self.running else {
            return;
        };
        if running.ended.is_some() && !running.kill.is_wanted() {
            return; // It has ended by itself, and its remaining processes are being killed.
        }
        let now = ctx.clock().now();
        let step = running.kill.request(now, grace);
        if let KillStep::Begin(_) = step {
            if reports_killing {
                running
                    .driver
                    .update(status(&running.task.task_id, TaskState::Killing, ctx));
            }
            terminate(running.main);
        }
        if let KillStep::Begin(deadline) | KillStep::Shorten(deadline) = step {
            ctx.after(deadline - now, |runner, ctx| {
                if let Some(running) = &runner.running
                    && running.kill.is_due(ctx.clock().now())
                {
                    kill_descendants(running);
                    runner.reap(ctx);
                }
            });
        }
    }
}

/// Sends SIGTERM to the main process's group and to all other descendants. Once per process, since
/// many treat a second one as urgent. SIGCONT lets stopped processes handle it. The main process is
/// not yet reaped, so its id is valid.
fn terminate(main: i32) {
    let group = ProcessId::from_raw(main);
    // Atomic, so no process that the group forks meanwhile is missed.
    let _ = killpg(group, Signal::SIGTERM);
    let _ = killpg(group, Signal::SIGCONT);
    let Ok(processes) = procfs::processes() else {
        return;
    };
    let all = procfs::descendants(&processes, &[ProcessId::this().as_raw()]);
    let detached = processes
        .iter()
        .filter(|process| process.group != main && all.contains(&process.pid));
    for process in detached {
        let pid = ProcessId::from_raw(process.pid);
        let _ = kill(pid, Signal::SIGTERM);
        let _ = kill(pid, Signal::SIGCONT);
    }
}

/// Kills the main process's group and all descendants of this executor.
fn kill_descendants(running: &Running) {
    let processes = procfs::processes().unwrap_or_default();
    let own = procfs::descendants(&processes, &[ProcessId::this().as_raw()]);
    let (main, is_reaped) = (running.main, running.ended.is_some());
    if is_group_ours(main, is_reaped, &processes, &own) {
        // Atomic, so no process that the group forks meanwhile is missed.
        let _ = killpg(ProcessId::from_raw(main), Signal::SIGKILL);
    }
    if !is_reaped {
        let _ = kill(ProcessId::from_raw(main), Signal::SIGKILL);
    }
    kill_all(&own);
}

/// Whether the main process's id still denotes the task's group. Once it is reaped and the group
/// has no descendant, the kernel may reuse the id.
fn is_group_ours(
    main: i32,
    is_reaped: bool,
    processes: &[procfs::Process],
    own: &BTreeSet<i32>,
) -> bool {
    let is_in_group =
        |process: &procfs::Process| process.group == main && own.contains(&process.pid);
    !is_reaped || processes.iter().any(is_in_group)
}

fn status(task_id: &TaskId, state: TaskState, ctx: &Context<Runner>) -> TaskStatus {
    TaskStatus::new(task_id.clone(), state, Source::Executor, ctx.clock().wall())
}

impl Actor for Runner {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        self.watch(ctx);
    }
}

impl Process for Runner {}

impl Handler<Subscribed> for Runner {
    type Result = ();
    fn handle(&mut self, Subscribed { reports_killing }: Subscribed, _: &mut Context<Self>) {
        self.reports_killing = reports_killing;
    }
}

impl Handler<Launch> for Runner {
    type Result = ();
    fn handle(&mut self, Launch { task, driver }: Launch, ctx: &mut Context<Self>) {
        let failed = |message: String, ctx: &mut Context<Self>| {
            let mut failed = status(&task.task_id, TaskState::Failed, ctx);
            failed.message = message;
            failed
        };
        if self.running.is_some() || self.finished.is_some() {
            return driver.update(failed("a command executor runs one task only".into(), ctx));
        }
        driver.update(status(&task.task_id, TaskState::Starting, ctx));
        let mut variables = self.task_environment.variables.clone();
        variables.insert("MESOS_TASK_ID".into(), task.task_id.to_string());
        let started = task
            .command
            .as_ref()
            .ok_or_else(|| "the task has no command".to_owned())
            .and_then(|command| {
                let program = program(
                    command,
                    &variables,
                    &self.task_environment.own,
                    self.task_environment.user.as_deref(),
                    sys::Leads::Group,
                )?;
                sys::spawn(&program).map_err(|error| error.to_string())
            });
        match started {
            Ok(main) => {
                driver.update(status(&task.task_id, TaskState::Running, ctx));
                let kill = Kill::default();
                self.running = Some(Running {
                    task,
                    driver,
                    main: main.as_raw(),
                    kill,
                    ended: None,
                    sweeps: 0,
                });
                // It may have ended already, with its signal consumed.
                self.reap(ctx);
            }
            Err(reason) => {
                driver.update(failed(format!("Command cannot be started: {reason}"), ctx));
                self.set_finished(true);
            }
        }
    }
}

impl Handler<End> for Runner {
    type Result = ();
    fn handle(&mut self, End { task_id, grace }: End, ctx: &mut Context<Self>) {
        let Some(running) = &self.running else {
            // Shutdown without a task.
            if task_id.is_none() && self.finished.is_none() {
                self.set_finished(true);
            }
            return;
        };
        if task_id
            .as_ref()
            .is_some_and(|task_id| *task_id != running.task.task_id)
        {
            return;
        }
        let own = running.grace();
        let grace = match (task_id, grace) {
            // Ends before the agent's own deadline.
            (None, Some(grace)) => own.min(grace.mul_f64(GRACE_SHARE)),
            (_, grace) => grace.unwrap_or(own),
        };
        self.begin_kill(grace, ctx);
    }
}

impl Handler<AgentGone> for Runner {
    type Result = ();
    fn handle(&mut self, _: AgentGone, ctx: &mut Context<Self>) {
        self.agent_gone = true;
        match &self.running {
            Some(running) => {
                let grace = running.grace().min(self.agent_gone_grace);
                self.begin_kill(grace, ctx);
            }
            None if self.finished.is_none() => self.set_finished(true),
            None => {}
        }
    }
}

impl Handler<Finished> for Runner {
    type Result = Reply<bool>;
    fn handle(&mut self, _: Finished, _: &mut Context<Self>) -> Reply<bool> {
        let (promise, reply) = promise();
        match self.finished {
            Some(clean) => promise.answer(clean),
            None => self.waiting.push(promise),
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaped_leaders_group_is_ours_while_descendants_remain() {
        let process = |line: &str| procfs::parse_stat(line).unwrap();
        let rest = "7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0";
        let left = process(&format!("12 (left) S 1 10 {rest}"));
        let stranger = process(&format!("13 (stranger) S 1 11 {rest}"));
        let own = BTreeSet::from([12]);
        let is_ours = |main, is_reaped| is_group_ours(main, is_reaped, &[left, stranger], &own);
        assert!(is_ours(11, false), "a zombie at least is in it");
        assert!(is_ours(10, true));
        assert!(!is_ours(11, true), "the id may be reused");
    }
}
