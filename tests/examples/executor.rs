//! A worked executor: runs the tasks of the framework beside this file (`framework.rs`), in its own process.
//!
//! It is started by an agent, never by hand. A task's data is a line of text: the executor tells it to the scheduler in capitals, and the
//! task has finished. A task here is work inside this process; an executor that starts processes of its own must end them when told.
//!
//! It remembers nothing: a task is over as soon as it has begun.

use std::process::ExitCode;
use std::time::Duration;

use executor_driver::{DriverEnd, Executor, ExecutorDriverRef};
use protocol::message::executor::ExecutorSubscribed;
use protocol::{KillPolicy, TaskId, TaskInfo, TaskState};

struct Poet;

impl Executor for Poet {
    fn subscribed(&mut self, subscribed: &ExecutorSubscribed, _: &ExecutorDriverRef) {
        // Standard output is a file in the sandbox.
        println!(
            "{} works for {}",
            subscribed.executor.executor_id, subscribed.framework.name
        );
    }

    fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef) {
        driver.report(&task.task_id, TaskState::Running);
        let line = String::from_utf8_lossy(&task.data).to_uppercase();
        driver.message(line);
        // Updates reach the scheduler in the order in which they are reported.
        driver.report(&task.task_id, TaskState::Finished);
    }

    fn kill(&mut self, task: TaskId, _: Option<KillPolicy>, driver: &ExecutorDriverRef) {
        // Too late for a task that has finished: its first terminal state is the one that counts.
        driver.report(&task, TaskState::Killed);
    }

    fn message(&mut self, data: Vec<u8>, driver: &ExecutorDriverRef) {
        driver.message(data);
    }

    fn shutdown(&mut self, _: Duration, driver: &ExecutorDriverRef) {
        driver.stop();
    }
}

fn main() -> ExitCode {
    match executor_driver::run(Poet) {
        Ok(DriverEnd::Stopped | DriverEnd::Disconnected) => ExitCode::SUCCESS,
        Ok(end) => {
            eprintln!("executor: ended {end:?}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("executor: {error}");
            ExitCode::FAILURE
        }
    }
}
