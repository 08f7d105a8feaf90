//! What an executor links: an actor that receives tasks and reports their states (DESIGN 9).
//!
//! Implement [`Executor`] and give it to [`run`]. The agent that starts the program tells it through its environment
//! ([`Environment`]) where to connect; callbacks come in, verbs of [`ExecutorDriverRef`] go out. Updates are kept until the
//! agent has them. When the agent goes, the driver ends, unless the framework has `checkpoint`: then it looks for the next process of the agent
//! for `MESOS_RECOVERY_TIMEOUT` and goes on there, and the executor does not notice.
//!
//! # An executor that counts words
//!
//! A framework names this program in its tasks' [`ExecutorInfo`](protocol::ExecutorInfo); the agent starts it once for all of them. A task is
//! whatever the executor makes of it: here, work within the process. Callbacks come one at a time and must not block; work that takes
//! long belongs on a thread or in a process, which keeps a clone of the driver to report with.
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
//!         driver.message(format!("{} has {words} words", task.task_id)); // to the scheduler, at most once
//!         // A task ends once: its first terminal state counts, and updates arrive in the order they are reported.
//!         driver.report(&task.task_id, TaskState::Finished);
//!     }
//!
//!     fn kill(&mut self, task: TaskId, _: Option<KillPolicy>, driver: &ExecutorDriverRef) {
//!         driver.report(&task, TaskState::Killed);
//!     }
//!
//!     fn shutdown(&mut self, _grace: Duration, driver: &ExecutorDriverRef) {
//!         driver.stop(); // it ends once the agent has every update
//!     }
//! }
//!
//! let end = executor_driver::run(Counter);
//! println!("the executor ended: {end:?}");
//! ```
//!
//! `tests/examples/executor.rs` runs in a real cluster, with the framework beside it.

mod driver;
pub mod environment;

pub use driver::{
    AGENT_ACTOR, DriverEnd, Executor, ExecutorConnectError, ExecutorDriverRef, UPDATES_MAX,
    Unconfirmed,
};
pub use environment::{Environment, EnvironmentError};
use runtime::{Node, NodeBuilder, Role};

/// Why an executor did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was not started by an agent.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// There is no agent.
    #[error(transparent)]
    Connect(#[from] ExecutorConnectError),
    /// The system gives it no event loop.
    #[error("no event loop: {0}")]
    System(#[from] std::io::Error),
}

/// Runs an executor that an agent has started, on this thread, until its driver ends.
pub fn run(executor: impl Executor) -> Result<DriverEnd, RunError> {
    let environment = Environment::read()?;
    run_on(
        node_of(&environment),
        environment,
        |node, environment| async move {
            let driver = ExecutorDriverRef::connect(&node, environment, executor).await?;
            Ok(driver.ended().await)
        },
    )?
}

/// Runs a story on this thread, on a node that can reach the agent of `environment`. No watchdog looks at the node, so that the process has one
/// thread only.
pub fn run_alone<F: Future>(
    environment: Environment,
    story: impl FnOnce(Node, Environment) -> F,
) -> Result<F::Output, RunError> {
    run_on(node_of(&environment).unwatched(), environment, story)
}

fn node_of(environment: &Environment) -> NodeBuilder {
    Node::builder(format!("executor-{}", environment.container_id))
        .role(Role::Executor)
        .accepts(&[Role::Agent])
}

fn run_on<F: Future>(
    node: NodeBuilder,
    environment: Environment,
    story: impl FnOnce(Node, Environment) -> F,
) -> Result<F::Output, RunError> {
    let system = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&system, async move {
        let node = node.build();
        let _dialling = transport::unix::Dialling::install(&node);
        story(node, environment).await
    }))
}
