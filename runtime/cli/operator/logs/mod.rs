//! The verb `meros logs TASK`: the output of a task, from its agent. `tail` reads its files.

pub mod tail;

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use protocol::view::{AgentView, ClusterView, TaskView};
use protocol::{FrameworkId, TaskId};

use super::list::all_tasks;
use super::terminal::TerminalFilter;
use super::{ClusterFlags, Operator};
use crate::output::error::{CliError, Outcome};
use crate::output::print;
use crate::service::signals::Signals;
use tail::Tail;

/// The interval at which a followed file is read.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// The number of reads between two checks whether a followed task still runs. A check costs the
/// master more than a read costs the agent.
const VIEW_EVERY: u32 = 8;

/// Print a task's standard output and error
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct LogsArgs {
    /// The task's id, as `meros tasks` shows it
    task: TaskId,
    /// Continue until the task has ended
    #[arg(long, short)]
    follow: bool,
    /// Its framework's id, if several frameworks have a task with this id
    #[arg(long, value_name = "ID")]
    framework: Option<FrameworkId>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// A task and its framework.
pub(super) struct Found<'a> {
    pub(super) framework: &'a protocol::view::FrameworkView,
    pub(super) task: &'a protocol::view::TaskView,
}

/// The task of this id.
pub(super) fn find<'a>(
    view: &'a ClusterView,
    task: &TaskId,
    framework: Option<&FrameworkId>,
) -> Outcome<Found<'a>> {
    let wanted = |found: &(&protocol::view::FrameworkView, &protocol::view::TaskView)| {
        found.1.id == *task && framework.is_none_or(|framework| found.0.id == *framework)
    };
    let mut found: Vec<_> = all_tasks(view).filter(wanted).collect();
    match (found.pop(), found.as_slice()) {
        (None, _) => Err(CliError::new(format!("task {task} is not known"))
            .next("`meros tasks` shows all tasks")),
        (Some((framework, task)), []) => Ok(Found { framework, task }),
        (Some((last, _)), others) => {
            let ids: Vec<_> = others
                .iter()
                .map(|(framework, _)| framework.id.as_str())
                .chain([last.id.as_str()])
                .collect();
            Err(CliError::new(format!(
                "several frameworks have a task {task}: {}",
                ids.join(", ")
            ))
            .next("choose one with --framework"))
        }
    }
}

/// The agent of this task.
pub(super) fn agent_of<'a>(view: &'a ClusterView, task: &TaskView) -> Outcome<&'a AgentView> {
    let mut agents = view.agents.iter();
    agents
        .find(|agent| agent.id == task.agent_id)
        .ok_or_else(|| {
            CliError::new(format!(
                "agent {}, which ran task {}, is not registered",
                task.agent_id, task.id
            ))
        })
}

/// Prints the task's output, on a terminal without control sequences; with `--follow` until the
/// task has ended.
pub async fn run(args: LogsArgs, signals: Signals) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let outcome = signals
        .unless_stopped(read(&operator, &args))
        .await
        .unwrap_or(Ok(()));
    operator.close().await;
    outcome
}

/// The bytes unchanged, or on a terminal without control sequences.
pub(super) fn shown<'b>(filter: &mut Option<TerminalFilter>, bytes: &'b [u8]) -> Cow<'b, [u8]> {
    match filter {
        Some(filter) => Cow::Owned(filter.filter(bytes)),
        None => Cow::Borrowed(bytes),
    }
}

async fn read(operator: &Operator, args: &LogsArgs) -> Outcome {
    let view = operator.view().await?;
    let found = find(&view, &args.task, args.framework.as_ref())?;
    let agent = operator.agent(agent_of(&view, found.task)?).await?;
    let tail = |path| {
        Tail::new(
            agent.clone(),
            found.framework.id.clone(),
            found.task.executor_id.clone(),
            path,
        )
    };
    let (mut stdout, mut stderr) = (tail("stdout"), tail("stderr"));
    let terminal = |is_terminal: bool| is_terminal.then(TerminalFilter::default);
    let mut out = terminal(std::io::stdout().is_terminal());
    let mut err = terminal(std::io::stderr().is_terminal());
    let framework = found.framework.id.clone();
    let mut ended = found.task.state.is_terminal();
    let mut round = 0;
    loop {
        let print_out = |bytes: &[u8]| print::bytes(&shown(&mut out, bytes));
        stdout.read(operator, print_out).await?;
        let print_err = |bytes: &[u8]| print::error_bytes(&shown(&mut err, bytes));
        stderr.read(operator, print_err).await?;
        if ended || !args.follow {
            return Ok(());
        }
        operator.node().clock().sleep(FOLLOW_EVERY).await;
        round += 1;
        if round % VIEW_EVERY == 0 {
            let view = operator.view().await?;
            // A forgotten task has ended too.
            ended = find(&view, &args.task, Some(&framework))
                .map_or(true, |found| found.task.state.is_terminal());
        }
    }
}
