//! The verb `meros kill TASK`.

use clap::Args;
use protocol::message::operator::KillByOperator;
use protocol::{FrameworkId, TaskId};

use super::{ClusterFlags, Operator};
use crate::out;
use crate::output::error::{CliError, Outcome};

/// Kill a task
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct KillArgs {
    /// The task's id, as `meros tasks` shows it
    task: TaskId,
    /// Its framework's id, if several frameworks have a task with this id
    #[arg(long, value_name = "ID")]
    framework: Option<FrameworkId>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Requests the kill at the master.
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
                CliError::because("not killed", &error).next("`meros tasks` shows all tasks")
            );
        }
    }
    Ok(())
}
