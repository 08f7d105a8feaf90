//! The verb `meros exec TASK -- COMMAND`: a command in the container of a running task.
//!
//! The agent runs it in a session: a nested container that ends with the connection. The master is
//! asked only for the task's agent and container.
//!
//! | module | contents |
//! |---|---|
//! | `attach` | the verb `meros attach TASK`: the terminal of a task |
//! | `client` | calls of an agent's operator API over HTTP |
//! | `screen` | this process' terminal |
//! | `session` | a session from its start to its exit status |

pub mod attach;
mod client;
mod screen;
mod session;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Read, stderr, stdin, stdout};

use bytes::Bytes;
use clap::Args;
use protocol::view::TaskView;
use protocol::{CommandInfo, ContainerId, FrameworkId, TaskId, Uuid};
use rand::Rng;
use tokio::sync::mpsc;

use self::client::AgentClient;
use self::screen::RawMode;
use self::session::Session;
use super::logs::{agent_of, find, shown};
use super::terminal::TerminalFilter;
use super::{ClusterFlags, Operator};
use crate::output::error::{CliError, Outcome};
use crate::output::print;
use crate::service::signals::Signals;

/// Maximum bytes of one read from standard input.
const READ_MAX: usize = 32 << 10;
/// Chunks of standard input that wait to be sent.
const CHUNKS_MAX: usize = 4;

/// Run a command in the container of a running task; the exit code is that of the command
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ExecArgs {
    /// The task's id, as `meros tasks` shows it
    task: TaskId,
    /// Pass standard input to the command
    #[arg(long, short)]
    interactive: bool,
    /// Give the command a terminal
    #[arg(long, short)]
    tty: bool,
    /// Its framework's id, if several frameworks have a task with this id
    #[arg(long, value_name = "ID")]
    framework: Option<FrameworkId>,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command. Its exit code, or 128 plus its signal, becomes that of this process.
pub async fn run(args: ExecArgs, signals: Signals) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let session = prepare(&operator, &args).await;
    operator.close().await;
    let session = session?;
    // Until the end: it restores the terminal.
    let _raw = match args.tty && args.interactive {
        true => RawMode::enter()?,
        false => None,
    };
    let input = args.interactive.then(read_stdin).transpose()?;
    let filtered = |is_terminal: bool| {
        let is_filtered = is_terminal && !args.tty;
        is_filtered.then(TerminalFilter::default)
    };
    let (mut out, mut err) = (
        filtered(stdout().is_terminal()),
        filtered(stderr().is_terminal()),
    );
    let print_out = |bytes: &[u8]| print::bytes(&shown(&mut out, bytes));
    let print_err = |bytes: &[u8]| print::error_bytes(&shown(&mut err, bytes));
    let running = session.run(input, print_out, print_err);
    match signals.unless_stopped(running).await {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(code)) | Err(code) => Err(CliError::code(code)),
        Ok(Err(failure)) => Err(failure),
    }
}

/// Finds a task's agent and container.
async fn locate(
    operator: &Operator,
    task: &TaskId,
    framework: Option<&FrameworkId>,
) -> Outcome<(AgentClient, ContainerId)> {
    let view = operator.view().await?;
    let task = find(&view, task, framework)?.task;
    let agent = agent_of(&view, task)?;
    let (_, address) = agent
        .address
        .rsplit_once('@')
        .unwrap_or(("", &agent.address));
    Ok((AgentClient::new(address), container_of(task)?))
}

async fn prepare(operator: &Operator, args: &ExecArgs) -> Outcome<Session> {
    let (agent, parent) = locate(operator, &args.task, args.framework.as_ref()).await?;
    let name = Uuid(operator.node().rng().random());
    let id = parent.nested(name);
    let id = id.map_err(|error| CliError::because("cannot name a session", &error))?;
    let mut words = args.command.iter().cloned();
    let program = words.next().unwrap_or_default();
    Ok(Session {
        agent,
        id,
        command: Some(CommandInfo::program(program, words)),
        has_terminal: args.tty,
        window: screen::size,
    })
}

/// The container that the newest status of the task has.
fn container_of(task: &TaskView) -> Outcome<ContainerId> {
    if task.state.is_terminal() {
        return Err(CliError::new(format!("task {} has ended", task.id)));
    }
    let mut statuses = task.statuses.iter().rev();
    let found = statuses.find_map(|status| status.container_id.clone());
    found.ok_or_else(|| {
        CliError::new(format!("task {} has no container yet", task.id))
            .next("it runs once its state is TASK_RUNNING")
    })
}

/// The chunks of standard input, read by a thread that ends with the process.
fn read_stdin() -> Outcome<mpsc::Receiver<Bytes>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let read = move || {
        let mut buffer = vec![0; READ_MAX];
        loop {
            match stdin().lock().read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    let chunk = Bytes::copy_from_slice(&buffer[..length]);
                    if sender.blocking_send(chunk).is_err() {
                        return;
                    }
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    let thread = thread.spawn(read);
    thread.map_err(|error| CliError::because("cannot start a thread", &error))?;
    Ok(receiver)
}
