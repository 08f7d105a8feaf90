//! Example of a framework: a scheduler that runs a few tasks and prints their states.
//!
//! With a cluster from `meros local` and its certificates:
//!
//! ```text
//! cargo run --example framework -- 127.0.0.1:5050 ~/.local/state/meros/local/certs
//! cargo run --example framework -- 127.0.0.1:5050 CERTS target/debug/examples/executor
//! ```
//!
//! Without a third argument each task is a shell command, run by the agent. With one, that program
//! is the framework's own executor (see `executor.rs`): it runs all tasks and answers with
//! messages.
//!
//! It stores nothing on disk. When it exits, its tasks are killed, because its failover timeout is
//! zero.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use protocol::message::scheduler::Subscribed;
use protocol::{
    AgentId, CommandInfo, ExecutorId, ExecutorInfo, Filters, FrameworkInfo, Offer, TaskId,
    TaskInfo, TaskState, TaskStatus,
};
use resources::Resources;
use runtime::Role;
use scheduler_driver::{Calls, Ended, Scheduler, SchedulerDriver};

/// Number of tasks.
const TASKS: usize = 3;

/// The scheduler, with tasks to launch and running tasks.
struct Poem {
    /// The framework's own executor, if any.
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

    /// A task on this agent, with a part of the offered resources.
    fn task(&self, task_id: TaskId, agent_id: AgentId, resources: Resources) -> TaskInfo {
        let line = format!("echo this is {task_id}");
        TaskInfo {
            // A task has a command, or an executor that interprets its data.
            command: self.executor.is_none().then(|| CommandInfo::shell(line)),
            executor: self.executor.clone(),
            data: format!("this is {task_id}").into_bytes(),
            ..TaskInfo::new(task_id, agent_id, resources)
        }
    }
}

impl Scheduler for Poem {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        println!("subscribed as {}", subscribed.framework_id);
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let Ok(needed) = "cpus:0.1;mem:16".parse::<Resources>() else {
            return;
        };
        for offer in offers {
            let (mut room, mut tasks) = (offer.resources.clone(), Vec::new());
            // The executor needs some resources itself, once for all its tasks.
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
            // `find` returns a matching part of an offer, with its reservations and allocation
            // role.
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
            // The remaining resources are declined; without tasks, this declines the whole offer.
            driver.launch(vec![offer.id], tasks);
        }
        if self.to_launch.is_empty() {
            driver.suppress(BTreeSet::new());
        }
    }

    fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
        println!("{} is {} {}", status.task_id, status.state, status.message);
        if !status.state.is_terminal() {
            return;
        }
        self.running.remove(&status.task_id);
        self.failed += usize::from(status.state != TaskState::Finished);
        if self.running.is_empty() && self.to_launch.is_empty() {
            println!("all tasks have ended, {} unsuccessfully", self.failed);
            driver.tear_down();
        }
    }

    fn message(&mut self, _: &mut Calls, _: &AgentId, executor: &ExecutorId, data: &[u8]) {
        println!("{executor} says: {}", String::from_utf8_lossy(data));
    }

    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        println!("master lost: {reason}");
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        println!("framework failed: {reason}");
    }
}

async fn run(master: &str, certs: &Path, executor: Option<&str>) -> Result<bool, Box<dyn Error>> {
    let executor = executor.map(|program| -> Result<_, Box<dyn Error>> {
        Ok(ExecutorInfo {
            name: "poet".to_owned(),
            ..ExecutorInfo::new(
                ExecutorId::new("poet")?,
                CommandInfo::program(std::fs::canonicalize(program)?.to_string_lossy(), []),
                "cpus:0.1;mem:16".parse()?,
            )
        })
    });
    let scheduler = Poem::new(executor.transpose()?)?;
    let identity = transport::Identity::load(certs, Role::Framework)?;
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let driver = SchedulerDriver::new([master], FrameworkInfo::new(user, "poem"))
        .connect(&identity, scheduler)?;
    // The driver runs on this thread while we wait for its end.
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
