//! The verb `meros kill TASK`.

use clap::Args;
use protocol::message::operator::KillByOperator;
use protocol::{FrameworkId, TaskId};

use super::{ClusterFlags, Operator};
use crate::failure::{Failure, Outcome};
use crate::out;

/// Kill a task
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct KillArgs {
    /// The task's id, as `meros tasks` shows it
    task: TaskId,
    /// Its framework's id, when several frameworks have such a task
    #[arg(long, value_name = "ID")]
    framework: Option<FrameworkId>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Asks the master to kill the task.
pub async fn run(args: KillArgs) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let question = KillByOperator {
        task_id: args.task.clone(),
        framework_id: args.framework,
    };
    let answer = operator.ask(question).await;
    operator.close().await;
    match answer? {
        Ok(framework) => out!(
            "task {} of framework {framework} is being killed",
            args.task
        ),
        Err(error) => {
            return Err(
                Failure::because("not killed", &error).next("`meros tasks` shows all tasks")
            );
        }
    }
    Ok(())
}
