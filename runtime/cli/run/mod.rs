//! The verb `meros run`: a framework for one command, from its first offer to its last line of
//! output.
//!
//! Without `--master` it starts its own cluster. Tracks each instance until it has ended. Always
//! tears its framework down, so that no task remains. `placement` and `scheduler` run the
//! instances, `input`, `output` and `progress` serve the terminal.

mod input;
mod output;
mod placement;
mod progress;
mod scheduler;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use protocol::{AgentId, CommandInfo, FrameworkInfo, TaskId, TaskState};
use resources::{Resources, Role as ResourceRole};
use runtime::{Clock, Role};
use scheduler_driver::{DriverRef, SchedulerDriver};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::output::{Output, Reading};
use self::placement::{Job, Placement, TaskOutcome};
use self::progress::Progress;
use self::scheduler::{Event, Runner};
use crate::certs::CertsFlag;
use crate::flags::{Text, master_addresses, pair};
use crate::operator::Operator;
use crate::output::error::{CliError, FAILED, Outcome};
use crate::service;
use crate::service::agent;
use crate::service::local::{LocalCluster, Options};
use crate::service::signals::Signals;

/// The time without a master after which the command fails.
const MASTER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time without a running instance after which the command fails, if all agents are too small.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of these checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Run a command on the cluster, or on a temporary one
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct RunArgs {
    /// The masters, or some of them: each knows the leader. Without it a cluster is started for
    /// this command only
    #[arg(long, env = "MEROS_MASTER", value_name = "HOST:PORT,...", value_parser = master_addresses)]
    master: Option<String>,
    /// Number of instances, in parallel as resources allow
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    instances: u32,
    /// Resources of each instance
    #[arg(long, default_value = "cpus:0.1;mem:32", value_name = "RESOURCES")]
    resources: Text,
    /// The role of the framework
    #[arg(long, default_value = "*", value_name = "ROLE")]
    role: String,
    /// An environment variable of the command; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Name of the framework and its tasks [default: the command's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    certs: CertsFlag,
    /// The command and its arguments; it has no standard input
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl RunArgs {
    fn job(&self) -> Outcome<Job> {
        let text = &self.resources.0;
        let needs: Resources = text
            .parse()
            .map_err(|error| CliError::usage(format!("--resources=`{text}`: {error}")))?;
        if needs.is_empty() {
            return Err(CliError::usage(
                "--resources: expected at least one, as in `cpus:0.1;mem:32`",
            ));
        }
        let mut words = self.command.iter().cloned();
        let file = words.next().filter(|file| !file.is_empty());
        let file = file
            .ok_or_else(|| CliError::usage("the command is empty: expected `-- COMMAND [ARGS]`"))?;
        let base = file.rsplit('/').next().unwrap_or_default();
        let name = service::node_name(&[self.name.as_deref().unwrap_or(base)]);
        let mut command = CommandInfo::program(file, words);
        command.environment = self.env.iter().cloned().collect();
        // Leaves room for the instance's index in the task's id.
        let name = name.chars().take(200).collect();
        Ok(Job {
            name,
            command,
            needs,
            instances: self.instances,
        })
    }

    fn framework(&self, job: &Job) -> Outcome<FrameworkInfo> {
        let role = &self.role;
        ResourceRole::new(role)
            .map_err(|error| CliError::usage(format!("--role=`{role}`: {error}")))?;
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten();
        let user = user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name);
        let mut framework = FrameworkInfo::new(user, self.name.as_ref().unwrap_or(&job.name));
        framework.roles = [role.clone()].into();
        framework.hostname = service::machine_name();
        Ok(framework)
    }
}

/// The cluster on which the command runs.
struct Cluster {
    master: String,
    certs: CertsFlag,
    /// The temporary cluster, and its directory, which is removed with it.
    own: Option<(LocalCluster, tempfile::TempDir)>,
}

impl Cluster {
    async fn of(args: &RunArgs, progress: &Progress) -> Outcome<Self> {
        if let Some(master) = args.master.clone() {
            return Ok(Self {
                master,
                certs: args.certs.clone(),
                own: None,
            });
        }
        progress.stage("starting a cluster for this command");
        let directory = tempfile::Builder::new().prefix("meros-").tempdir();
        let directory = directory
            .map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
        let cluster =
            LocalCluster::start(Options::new(agent::own_program()?, directory.path())).await?;
        let certs = CertsFlag {
            certs: Some(PathBuf::from(cluster.certs())),
        };
        Ok(Self {
            master: cluster.master(),
            certs,
            own: Some((cluster, directory)),
        })
    }

    fn stop(self) -> Outcome {
        match self.own {
            Some((cluster, directory)) => {
                let stopped = cluster.stop();
                drop(directory);
                stopped
            }
            None => Ok(()),
        }
    }
}

/// Runs the instances and prints their output. An error has the exit code of the first failed task.
pub async fn run(args: RunArgs, signals: Signals) -> Outcome {
    let job = args.job()?;
    let framework = args.framework(&job)?;
    input::refuse()?;
    let progress = Progress::new(job.instances);
    let starting = signals.unless_stopped(Cluster::of(&args, &progress)).await;
    let cluster = starting.map_err(CliError::code)??;
    let progress = Rc::new(RefCell::new(progress));
    // Checked again: the writer of a pipe may have been slower than the start of the cluster.
    let outcome = match input::refuse() {
        Ok(()) => on(&cluster, job, framework, &progress, &signals).await,
        refused => refused,
    };
    let stopped = cluster.stop();
    if let Ok(progress) = Rc::try_unwrap(progress) {
        progress.into_inner().close();
    }
    outcome.and(stopped)
}

async fn on(
    cluster: &Cluster,
    job: Job,
    framework: FrameworkInfo,
    progress: &Rc<RefCell<Progress>>,
    signals: &Signals,
) -> Outcome {
    let process = std::process::id().to_string();
    let operator = cluster
        .certs
        .identity(Role::Operator, &format!("operator-{process}"))?;
    let operator = Operator::with(&operator, &cluster.master).await?;
    let output = Output::new(operator, progress.clone(), job.instances > 1);
    let identity = cluster
        .certs
        .identity(Role::Framework, &format!("run-{process}"))?;
    let (tell, events) = unbounded_channel();
    let needs = job.needs.clone();
    let driver = SchedulerDriver::new(cluster.master.split(','), framework)
        .connect(&identity, Runner::new(Placement::new(job), tell))
        .map_err(|error| CliError::because("cannot start the framework", &error))?;
    let mut watch = JobMonitor {
        needs,
        master: cluster.master.clone(),
        output: output.clone(),
        progress: progress.clone(),
        clock: Clock::real(),
        tasks: BTreeMap::new(),
        printing: Vec::new(),
        waiting: progress.borrow().total() as usize,
        running: 0,
        code: None,
        too_small: BTreeMap::new(),
    };
    progress.borrow().stage("waiting for offers");
    let outcome = {
        let watched = signals
            .unless_stopped(watch.all_ended(&driver, events))
            .await;
        watched.unwrap_or_else(|code| Err(CliError::code(code)))
    };
    let _ = driver.tear_down(); // it may have stopped already
    driver.ended().await;
    let code = watch.code;
    drop(watch);
    output.close().await;
    outcome?;
    match code {
        Some(code) => Err(CliError::code(u8::try_from(code).unwrap_or(FAILED))),
        None => Ok(()),
    }
}

/// The state of a task.
struct Task {
    agent: AgentId,
    running: bool,
    reading: Option<Reading>,
}

/// The job from the outside of its framework.
struct JobMonitor {
    needs: Resources,
    master: String,
    output: Output,
    progress: Rc<RefCell<Progress>>,
    clock: Clock,
    tasks: BTreeMap<TaskId, Task>,
    /// Ended tasks whose output is not fully printed.
    printing: Vec<Reading>,
    waiting: usize,
    running: usize,
    /// The exit code of the first failed task.
    code: Option<i32>,
    /// The newest insufficient offer of each agent.
    too_small: BTreeMap<AgentId, String>,
}

impl JobMonitor {
    /// Handles events until all instances have ended and their output is printed.
    async fn all_ended(
        &mut self,
        driver: &DriverRef,
        mut events: UnboundedReceiver<Event>,
    ) -> Outcome {
        let mut subscribed = false;
        let mut since = self.clock.now();
        let mut framework = None;
        while self.waiting + self.running > 0 {
            self.output.check_written()?;
            let clock = self.clock.clone();
            let Ok(event) = clock.timeout(CHECK_EVERY, events.recv()).await else {
                let idle = clock.now() - since;
                if !subscribed && idle >= MASTER_TIMEOUT {
                    return Err(CliError::new(format!(
                        "no master at {} has accepted the framework within {MASTER_TIMEOUT:?}",
                        self.master
                    ))
                    .next("--log info shows the attempts"));
                }
                if subscribed && self.running == 0 && idle >= CAPACITY_TIMEOUT {
                    self.check_capacity().await?;
                }
                continue;
            };
            let Some(event) = event else {
                return Err(CliError::new(format!(
                    "the framework has ended: {:?}",
                    driver.ended().await
                )));
            };
            match event {
                Event::Subscribed(id) => {
                    (subscribed, since) = (true, self.clock.now());
                    framework = Some(id);
                }
                Event::Disconnected(reason) => {
                    (subscribed, since) = (false, self.clock.now());
                    self.progress
                        .borrow()
                        .message(&format!("the master is lost ({reason}); looking for it"));
                }
                Event::TooSmall { agent, text } => {
                    self.too_small.insert(agent, text);
                }
                Event::Launched { tasks, waiting } => {
                    since = self.clock.now();
                    self.running += tasks.len();
                    self.waiting = waiting;
                    let task = |(id, agent)| {
                        (
                            id,
                            Task {
                                agent,
                                running: false,
                                reading: None,
                            },
                        )
                    };
                    self.tasks.extend(tasks.into_iter().map(task));
                }
                Event::Changed { status, outcome } => {
                    since = self.clock.now();
                    let Some(framework) = &framework else {
                        continue;
                    };
                    self.changed(framework, &status, outcome);
                }
                Event::Failed(reason) => {
                    return Err(CliError::new(format!(
                        "the master at {} refused: {reason}",
                        self.master
                    )));
                }
            }
            self.printing.retain(|reading| !reading.is_done());
        }
        for reading in self.printing.drain(..) {
            reading.done().await;
        }
        self.output.check_written()
    }

    fn changed(
        &mut self,
        framework: &protocol::FrameworkId,
        status: &protocol::TaskStatus,
        outcome: TaskOutcome,
    ) {
        let Some(task) = self.tasks.get_mut(&status.task_id) else {
            return;
        };
        if status.state == TaskState::Running && !task.running {
            task.running = true;
            self.progress.borrow_mut().running();
        }
        let wrote = task.running || status.state == TaskState::Finished;
        if wrote && task.reading.is_none() {
            let reading = self.output.read(
                framework.clone(),
                status.task_id.clone(),
                task.agent.clone(),
            );
            task.reading = Some(reading);
        }
        if outcome == TaskOutcome::Running {
            return;
        }
        self.running -= 1;
        let had_run = task.running;
        let reading = self
            .tasks
            .remove(&status.task_id)
            .and_then(|task| task.reading);
        let mut final_message = None;
        match outcome {
            TaskOutcome::Running => {}
            TaskOutcome::Relaunch => self.waiting += 1,
            TaskOutcome::Finished => self.progress.borrow_mut().ended(had_run, true),
            TaskOutcome::Failed(code) => {
                self.code.get_or_insert(code);
                self.progress.borrow_mut().ended(had_run, false);
                let reason = status
                    .reason
                    .map(|reason| format!(", {reason}"))
                    .unwrap_or_default();
                let message = if status.message.is_empty() {
                    String::new()
                } else {
                    format!(": {}", status.message)
                };
                final_message = Some(format!(
                    "{} {}{reason}{message}",
                    status.task_id, status.state
                ));
            }
        }
        match (reading, final_message) {
            (Some(reading), final_message) => {
                reading.task_ended(final_message);
                self.printing.push(reading);
            }
            (None, Some(words)) => self.progress.borrow().message(&words),
            (None, None) => {}
        }
    }

    /// Fails if no agent is large enough for one instance, even if it were empty.
    async fn check_capacity(&self) -> Outcome {
        let view = self.output.operator().view().await?;
        let needs = &self.needs;
        if view.agents.is_empty() {
            self.progress
                .borrow()
                .stage("waiting for an agent to register");
            return Ok(());
        }
        let large_enough = view
            .agents
            .iter()
            .any(|agent| agent.info.resources.find(needs).is_some());
        if large_enough {
            self.progress
                .borrow()
                .stage("waiting for resources: no offer is large enough");
            return Ok(());
        }
        let offers: BTreeSet<_> = self.too_small.values().map(String::as_str).collect();
        let offered = match offers.is_empty() {
            true => "nothing was offered".to_owned(),
            false => format!(
                "the offers were {}",
                offers.into_iter().take(3).collect::<Vec<_>>().join("; ")
            ),
        };
        Err(
            CliError::new(format!("{} fits no agent; {offered}", needs.brief()))
                .next("ask for less with --resources"),
        )
    }
}
