//! The command executor: runs one task's command and reports how it is (SPEC 5.4).
//!
//! Lives in a process of its own, forked from the zygote. Hears its agent through the executor driver, and the ends of its
//! children through a signal descriptor. As a subreaper it inherits every process that the command leaves behind, so it knows
//! all processes of the task, those in sessions of their own too. A task that is killed gets SIGTERM in all of them, and SIGKILL
//! in those that run when the grace period is over: the end of the shell that started them cuts nothing short. Where the command
//! ends by itself, the processes that it left behind are killed at once, as by Mesos. The end of the task is reported when none of
//! them runs. It reads no output and keeps nothing on disk.

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
use crate::accounts::Own;
use crate::procfs;
use crate::sys;
use crate::zygote::{child_signals, ended_child, forget_signals, kill_all, wire::LaunchRequest};

/// The exit status of an executor that may have left something behind.
pub const UNCLEAN: i32 = 1;
/// Time between two looks for processes that do not die at once, and how many looks there are.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
const SWEEPS_MAX: u32 = 250;

/// Part of the agent's grace period that a task gets; the rest is for its end to be reported.
const GRACE_SHARE: f64 = 0.8;

/// Runs the command executor in this process, whose user is `own`. Its exit status 0 says that it has left nothing behind.
pub fn run(request: &LaunchRequest, own: Own) -> i32 {
    match serve(request, own) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("command executor: {error}");
            UNCLEAN
        }
    }
}

fn serve(request: &LaunchRequest, own: Own) -> Result<Infallible, Box<dyn Error>> {
    let environment = Environment::from(|name| request.environment.get(name).cloned())?;
    let starts_as = StartsAs {
        variables: request.environment.clone(),
        user: request.user.clone(),
        own,
    };
    executor_driver::run_alone(environment, |node, environment| async move {
        live(node, environment, starts_as).await
    })?
}

async fn live(
    node: Node,
    environment: Environment,
    starts_as: StartsAs,
) -> Result<Infallible, Box<dyn Error>> {
    let signals = Arc::new(sys::watch(child_signals()?)?);
    let grace = environment.shutdown_grace_period.mul_f64(GRACE_SHARE);
    let runner = node.spawn("runner", Runner::new(starts_as, grace, signals))?;
    let executor = CommandExecutor {
        runner: runner.clone(),
    };
    let driver = ExecutorDriverRef::connect(&node, environment, executor).await?;
    let clean = runner.ask(Finished, Patience::WhileLinked).await?;
    driver.stop();
    driver.ended().await;
    // The agent has everything. Nothing is taken down piece by piece: the kernel does that faster.
    sys::exit_now(if clean { 0 } else { UNCLEAN })
}

/// Does once, in the zygote, what would else be done in every executor that is forked from it: what is looked up and remembered
/// at first use (the processor's abilities, symbols of the system's library) is there already.
pub fn warm_up() -> std::io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("avx2");
    let system = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&system, async {
        // A watchdog would be a thread, and what is forked has one thread only.
        let node = Node::builder("warm-up").unwatched().build();
        node.clock().sleep(Duration::from_millis(1)).await;
        // There is no agent: the way to one is what counts.
        let _dialling = transport::unix::Dialling::install(&node);
        let _ = node.connect(&format!("{}/", transport::unix::SCHEME)).await;
    });
    Ok(())
}

/// Passes the agent's calls on to the runner.
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
        // The runner ends with the process, so there is nobody left to hear of a failure.
        let _ = self.runner.tell(message);
    }
}

impl Executor for CommandExecutor {
    fn subscribed(&mut self, subscribed: &ExecutorSubscribed, _: &ExecutorDriverRef) {
        self.tell(Subscribed {
            tells_killing: subscribed.framework.can(Capability::TaskKillingState),
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
        self.tell(Abandon);
    }
}

/// The agent knows us; whether its framework wants to hear of `TASK_KILLING`.
#[derive(Message)]
#[rtype(result = "()")]
struct Subscribed {
    tells_killing: bool,
}

/// Run this.
#[derive(Message)]
#[rtype(result = "()")]
struct Launch {
    task: Box<TaskInfo>,
    driver: ExecutorDriverRef,
}

/// End this task, or whatever runs.
#[derive(Message)]
#[rtype(result = "()")]
struct End {
    task_id: Option<TaskId>,
    grace: Option<Duration>,
}

/// The agent is gone for good: end the task, and report nothing.
#[derive(Message)]
#[rtype(result = "()")]
struct Abandon;

/// Is it over? Answered when it is, with whether nothing is left behind.
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
    /// The grace period that the task asks for.
    fn grace(&self) -> Duration {
        let policy = self.task.kill_policy;
        policy.map_or(GRACE_DEFAULT, |policy| policy.grace_period)
    }
}

/// Environment and user of the task's main process.
struct StartsAs {
    variables: BTreeMap<String, String>,
    user: Option<String>,
    own: Own,
}

struct Runner {
    starts_as: StartsAs,
    /// The longest grace period of a task whose agent is gone.
    abandoned_grace: Duration,
    signals: Arc<AsyncFd<SignalFd>>,
    tells_killing: bool,
    running: Option<Running>,
    abandoned: bool,
    finished: Option<bool>,
    waiting: Vec<Promise<bool>>,
}

impl Runner {
    fn new(
        mut starts_as: StartsAs,
        abandoned_grace: Duration,
        signals: Arc<AsyncFd<SignalFd>>,
    ) -> Self {
        // The task must not be able to speak for its executor.
        starts_as.variables.remove(environment::TOKEN);
        starts_as.variables.remove(environment::SOCKET);
        Self {
            starts_as,
            abandoned_grace,
            signals,
            tells_killing: false,
            running: None,
            abandoned: false,
            finished: None,
            waiting: Vec::new(),
        }
    }

    /// Waits for the next ended child, and comes back.
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

    /// Takes ended children away; with the main process gone, ends the processes that it left behind, or waits for them.
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
            return; // They got SIGTERM. The last one's end wakes us, or the deadline does.
        }
        running.sweeps += 1;
        if running.sweeps > SWEEPS_MAX {
            return self.finish(termination, false, ctx);
        }
        kill_descendants(running);
        // A killed child wakes us; a child that forked meanwhile does not.
        ctx.after(SWEEP_INTERVAL, Self::reap);
    }

    fn finish(&mut self, termination: Termination, clean: bool, ctx: &mut Context<Self>) {
        let Some(running) = self.running.take() else {
            return;
        };
        if !self.abandoned {
            let outcome = outcome(termination, running.kill.is_wanted());
            let mut status = status(&running.task.task_id, outcome.state, ctx);
            status.message = outcome.message;
            status.termination = Some(termination);
            running.driver.update(status);
        }
        self.over(clean);
    }

    fn over(&mut self, clean: bool) {
        self.finished = Some(clean);
        for waiting in self.waiting.drain(..) {
            waiting.answer(clean);
        }
    }

    /// Asks the processes of the task to end, and kills those that still run after `grace`.
    fn begin_kill(&mut self, grace: Duration, ctx: &mut Context<Self>) {
        let tells_killing = self.tells_killing && !self.abandoned;
        let Some(running) = &mut self.running else {
            return;
        };
        if running.ended.is_some() && !running.kill.is_wanted() {
            return; // It has ended by itself, and the processes that it left behind are being killed.
        }
        let now = ctx.clock().now();
        let step = running.kill.wish(now, grace);
        if let KillStep::Begin(_) = step {
            if tells_killing {
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

/// Asks the main process's group, and every other descendant of this executor, to end. Each process gets one SIGTERM: many take a
/// second one for impatience. Stopped processes go on, to handle it. The main process is not reaped yet, so its id is its own.
fn terminate(main: i32) {
    let group = ProcessId::from_raw(main);
    // In one step, so that no process of the group that forks meanwhile is missed.
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

/// Kills the main process's group, and everything that descends from this executor.
fn kill_descendants(running: &Running) {
    let processes = procfs::processes().unwrap_or_default();
    let own = procfs::descendants(&processes, &[ProcessId::this().as_raw()]);
    let (main, is_reaped) = (running.main, running.ended.is_some());
    if is_group_ours(main, is_reaped, &processes, &own) {
        // In one step, so that no process of the group that forks meanwhile is missed.
        let _ = killpg(ProcessId::from_raw(main), Signal::SIGKILL);
    }
    if !is_reaped {
        let _ = kill(ProcessId::from_raw(main), Signal::SIGKILL);
    }
    kill_all(&own);
}

/// Whether the main process's id still names the task's group. Once that process is reaped and no process of the task is in the group,
/// the kernel may give the id to another.
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
    fn handle(&mut self, Subscribed { tells_killing }: Subscribed, _: &mut Context<Self>) {
        self.tells_killing = tells_killing;
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
        let mut variables = self.starts_as.variables.clone();
        variables.insert("MESOS_TASK_ID".into(), task.task_id.to_string());
        let started = task
            .command
            .as_ref()
            .ok_or_else(|| "the task has no command".to_owned())
            .and_then(|command| {
                let program = program(
                    command,
                    &variables,
                    &self.starts_as.own,
                    self.starts_as.user.as_deref(),
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
                // It may have ended before this line, with its signal already taken.
                self.reap(ctx);
            }
            Err(reason) => {
                driver.update(failed(format!("Command cannot be started: {reason}"), ctx));
                self.over(true);
            }
        }
    }
}

impl Handler<End> for Runner {
    type Result = ();
    fn handle(&mut self, End { task_id, grace }: End, ctx: &mut Context<Self>) {
        let Some(running) = &self.running else {
            // Told to stop with nothing to do.
            if task_id.is_none() && self.finished.is_none() {
                self.over(true);
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
            // A shutdown leaves less time than the agent will wait.
            (None, Some(grace)) => own.min(grace.mul_f64(GRACE_SHARE)),
            (_, grace) => grace.unwrap_or(own),
        };
        self.begin_kill(grace, ctx);
    }
}

impl Handler<Abandon> for Runner {
    type Result = ();
    fn handle(&mut self, _: Abandon, ctx: &mut Context<Self>) {
        self.abandoned = true;
        match &self.running {
            Some(running) => {
                let grace = running.grace().min(self.abandoned_grace);
                self.begin_kill(grace, ctx);
            }
            None if self.finished.is_none() => self.over(true),
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
    fn the_group_of_a_reaped_process_is_ours_while_a_descendant_is_in_it() {
        let process = |line: &str| procfs::parse_stat(line).unwrap();
        let rest = "7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0";
        let left = process(&format!("12 (left) S 1 10 {rest}"));
        let stranger = process(&format!("13 (stranger) S 1 11 {rest}"));
        let own = BTreeSet::from([12]);
        let is_ours = |main, is_reaped| is_group_ours(main, is_reaped, &[left, stranger], &own);
        assert!(is_ours(11, false), "a zombie at least is in it");
        assert!(is_ours(10, true));
        assert!(!is_ours(11, true), "it is a stranger's by now");
    }
}
