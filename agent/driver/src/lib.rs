//! What an executor links: an actor that receives tasks and reports their states (DESIGN 9).
//!
//! Implement [`Executor`] and give it to [`run`]. The agent that starts the program tells it through its environment
//! ([`Environment`]) where to connect; callbacks come in, verbs of [`ExecutorDriverRef`] go out. Updates are kept until the
//! agent has them. Without an agent there is no executor: when the agent goes, the driver ends (outliving it comes later).

mod driver;
pub mod environment;

pub use driver::{
    AGENT_ACTOR, DriverEnd, Executor, ExecutorConnectError, ExecutorDriverRef, UPDATES_MAX,
    Unconfirmed,
};
pub use environment::{Environment, EnvironmentError};
use runtime::{Node, Role};

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
    run_with(environment, |node, environment| async move {
        let driver = ExecutorDriverRef::connect(&node, environment, executor).await?;
        Ok(driver.ended().await)
    })?
}

/// Runs a story on this thread, on a node that can reach the agent of `environment`.
pub fn run_with<F: Future>(
    environment: Environment,
    story: impl FnOnce(Node, Environment) -> F,
) -> Result<F::Output, RunError> {
    let system = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&system, async move {
        let node = Node::builder(format!("executor-{}", environment.container_id))
            .role(Role::Executor)
            .accepts(&[Role::Agent])
            .build();
        let _dialling = transport::unix::Dialling::install(&node);
        story(node, environment).await
    }))
}
