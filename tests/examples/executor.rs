//! Example of an executor: runs the tasks of the framework in `framework.rs`, within its own
//! process.
//!
//! An agent starts it. The data of a task is a line of text, which the executor sends to the
//! scheduler in capital letters; then the task is finished. An executor that starts processes must
//! end them when it is told to.

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
        // Updates reach the scheduler in the order of the reports.
        driver.report(&task.task_id, TaskState::Finished);
    }

    fn kill(&mut self, task: TaskId, _: Option<KillPolicy>, driver: &ExecutorDriverRef) {
        // Has no effect on a finished task: the first terminal state counts.
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
