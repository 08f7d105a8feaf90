//! A worked framework: a scheduler on the driver that runs a few tasks, and tells how each of them went.
//!
//! With a cluster from `meros local` and its certificates:
//!
//! ```text
//! cargo run --example framework -- 127.0.0.1:5050 ~/.local/state/meros/local/certs
//! cargo run --example framework -- 127.0.0.1:5050 CERTS target/debug/examples/executor
//! ```
//!
//! Without a third argument each task is a shell line, run by the agent's own executor. With one, that program is the framework's own
//! executor (see `executor.rs` beside this file): it is given all tasks, and answers by messages.
//!
//! It remembers which tasks have not ended, and nothing on disk: if it dies, its tasks die with it, because its failover timeout is zero.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use protocol::message::scheduler::Subscribed;
use protocol::{
    AgentId, CommandInfo, ExecutorId, ExecutorInfo, Filters, FrameworkInfo, Labels, Offer, TaskId,
    TaskInfo, TaskState, TaskStatus,
};
use resources::Resources;
use runtime::Role;
use scheduler_driver::{Ended, Scheduler, SchedulerDriver, Verbs};

/// How many tasks it runs.
const TASKS: usize = 3;

/// The scheduler: what it still has to launch, and what it waits for.
struct Poem {
    /// The framework's own executor, if it has one.
    executor: Option<ExecutorInfo>,
    to_launch: Vec<TaskId>,
    running: BTreeSet<TaskId>,
    failed: usize,
}

impl Poem {
    fn new(executor: Option<ExecutorInfo>) -> Result<Self, Box<dyn Error>> {
        let to_launch = (1..=TASKS)
            .rev()
            .map(|number| TaskId::new(format!("line-{number}")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            executor,
            to_launch,
            running: BTreeSet::new(),
            failed: 0,
        })
    }

    /// A task on this agent, with a part of what was offered.
    fn task(&self, task_id: TaskId, agent_id: AgentId, resources: Resources) -> TaskInfo {
        let line = format!("echo this is {task_id}");
        TaskInfo {
            name: task_id.to_string(),
            // A task has a command, or an executor that knows what to do with its data.
            command: self.executor.is_none().then(|| CommandInfo::shell(line)),
            executor: self.executor.clone(),
            data: format!("this is {task_id}").into_bytes(),
            task_id,
            agent_id,
            resources,
            kill_policy: None,
            labels: Labels::default(),
        }
    }
}

impl Scheduler for Poem {
    fn subscribed(&mut self, _: &mut Verbs, subscribed: &Subscribed) {
        println!("subscribed as {}", subscribed.framework_id);
    }

    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        let Ok(needed) = "cpus:0.1;mem:16".parse::<Resources>() else {
            return;
        };
        for offer in offers {
            let (mut room, mut tasks) = (offer.resources.clone(), Vec::new());
            // The executor itself uses a little, once for all its tasks.
            if let Some(executor) = &self.executor {
                let Some(taken) = room.find(&executor.resources) else {
                    driver.decline(vec![offer.id], Filters::default());
                    continue;
                };
                if room.subtract(&taken).is_err() {
                    continue;
                }
                self.executor = Some(ExecutorInfo {
                    resources: taken,
                    ..executor.clone()
                });
            }
            // `find` picks the part of an offer that serves a need, with its reservations and the role it is allocated to.
            while let Some(resources) = room.find(&needed) {
                let Some(task) = self.to_launch.pop() else {
                    break;
                };
                if room.subtract(&resources).is_err() {
                    break;
                }
                self.running.insert(task.clone());
                tasks.push(self.task(task, offer.agent_id.clone(), resources));
            }
            // What the tasks leave is given back; with no task at all this declines the offer.
            driver.launch(vec![offer.id], tasks);
        }
        if self.to_launch.is_empty() {
            driver.suppress(BTreeSet::new());
        }
    }

    fn status(&mut self, driver: &mut Verbs, status: &TaskStatus) {
        println!("{} is {} {}", status.task_id, status.state, status.message);
        if !status.state.is_terminal() {
            return;
        }
        self.running.remove(&status.task_id);
        self.failed += usize::from(status.state != TaskState::Finished);
        if self.running.is_empty() && self.to_launch.is_empty() {
            println!("all tasks have ended, {} of them badly", self.failed);
            driver.tear_down();
        }
    }

    fn message(&mut self, _: &mut Verbs, _: &AgentId, executor: &ExecutorId, data: &[u8]) {
        println!("{executor} says: {}", String::from_utf8_lossy(data));
    }

    fn disconnected(&mut self, _: &mut Verbs, reason: &str) {
        println!("the master is lost: {reason}");
    }

    fn failed(&mut self, _: &mut Verbs, reason: &str) {
        println!("the framework cannot go on: {reason}");
    }
}

async fn run(master: &str, certs: &Path, executor: Option<&str>) -> Result<bool, Box<dyn Error>> {
    let executor = executor.map(|program| -> Result<_, Box<dyn Error>> {
        Ok(ExecutorInfo {
            executor_id: ExecutorId::new("poet")?,
            name: "poet".to_owned(),
            command: CommandInfo::program(std::fs::canonicalize(program)?.to_string_lossy(), []),
            resources: "cpus:0.1;mem:16".parse()?,
            data: Vec::new(),
            shutdown_grace_period: None,
            labels: Labels::default(),
        })
    });
    let scheduler = Poem::new(executor.transpose()?)?;
    let identity = transport::Identity::load(certs, Role::Framework)?;
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let driver = SchedulerDriver::new([master], FrameworkInfo::new(user, "poem"))
        .connect(&identity, scheduler)?;
    // The driver lives on this thread while we wait for its end.
    Ok(matches!(
        driver.ended().await,
        Ended::TornDown { confirmed: true }
    ))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (master, certs, executor) = match arguments.as_slice() {
        [master, certs] => (master, certs, None),
        [master, certs, executor] => (master, certs, Some(executor.as_str())),
        _ => {
            eprintln!("usage: framework HOST:PORT CERTS [EXECUTOR]");
            return ExitCode::from(2);
        }
    };
    let done = meros::on_this_thread(run(master, Path::new(certs), executor));
    match done {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("framework: {error}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("framework: {failure}");
            ExitCode::FAILURE
        }
    }
}
