//! Executor driver: the library through which an executor receives tasks and reports their states.
//!
//! Implement [`Executor`] and pass it to [`run`]. The agent that starts the program sets its
//! connection parameters in the environment ([`Environment`]). The driver runs the callbacks; the
//! executor reports through an [`ExecutorDriverRef`]. Updates are kept until the agent has stored
//! them.
//!
//! When the agent exits, the driver ends. If the framework has `checkpoint`, it instead looks for
//! the next agent process for up to `MESOS_RECOVERY_TIMEOUT` and continues there; the executor does
//! not notice.
//!
//! # An executor that counts words
//!
//! A framework names this program in the [`ExecutorInfo`](protocol::ExecutorInfo) of its tasks; the
//! agent starts it once for all of them. The executor decides how to run a task: here, within its
//! process. Callbacks run one at a time and must not block. Long work belongs on a thread or in a
//! process, with a clone of the driver for its reports.
//!
//! ```no_run
//! # use meros_executor_driver as executor_driver;
//! use std::time::Duration;
//! use executor_driver::{Executor, ExecutorDriverRef};
//! use protocol::{KillPolicy, TaskId, TaskInfo, TaskState};
//!
//! struct Counter;
//! impl Executor for Counter {
//!     fn launch(&mut self, task: TaskInfo, driver: &ExecutorDriverRef) {
//!         driver.report(&task.task_id, TaskState::Running);
//!         let words = String::from_utf8_lossy(&task.data).split_whitespace().count();
//!         // To the scheduler, at most once.
//!         driver.message(format!("{} has {words} words", task.task_id));
//!         // Only the first terminal state counts. Updates arrive in order.
//!         driver.report(&task.task_id, TaskState::Finished);
//!     }
//!
//!     fn kill(&mut self, task: TaskId, _: Option<KillPolicy>, driver: &ExecutorDriverRef) {
//!         driver.report(&task, TaskState::Killed);
//!     }
//!
//!     fn shutdown(&mut self, _grace: Duration, driver: &ExecutorDriverRef) {
//!         driver.stop(); // ends once the agent has stored every update
//!     }
//! }
//!
//! let end = executor_driver::run(Counter);
//! println!("the executor ended: {end:?}");
//! ```
//!
//! `tests/examples/executor.rs` runs in a real cluster, together with its framework.

mod driver;
pub mod environment;

pub use driver::{
    AGENT_ACTOR, DriverEnd, Executor, ExecutorConnectError, ExecutorDriverRef, UPDATES_MAX,
    UnconfirmedUpdates,
};
pub use environment::{Environment, EnvironmentError};
use runtime::{Node, Role};

/// Why an executor did not run.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorRunError {
    /// It was not started by an agent.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The agent could not be reached.
    #[error(transparent)]
    Connect(#[from] ExecutorConnectError),
    /// The event loop could not be created.
    #[error("no event loop: {0}")]
    System(#[from] std::io::Error),
}

/// Runs an executor, started by an agent, on this thread until its driver ends.
pub fn run(executor: impl Executor) -> Result<DriverEnd, ExecutorRunError> {
    let environment = Environment::read()?;
    let system = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&system, async move {
        let node = Node::builder(format!("executor-{}", environment.container_id))
            .role(Role::Executor)
            .accepts(&[Role::Agent])
            .build();
        let _dialling = transport::unix::Dialling::install(&node);
        let driver = ExecutorDriverRef::connect(&node, environment, executor).await?;
        Ok(driver.ended().await)
    })
}
