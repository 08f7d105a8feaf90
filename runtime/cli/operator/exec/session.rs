//! A session from its start to its exit status.
//!
//! One connection starts it and has its output; if that breaks, the agent kills the session. A
//! second one has the input, and a third waits for the exit status.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocol::{CommandInfo, ContainerId};
use runtime::Clock;
use tokio::sync::mpsc;
use v1::Limits;
use v1::convert::operator::process_io::{Records, record};
use v1::schema::agent::{
    Call, CallAttachContainerInput, CallAttachContainerInputType, CallAttachContainerOutput,
    CallLaunchNestedContainerSession, CallRemoveNestedContainer, CallType, CallWaitNestedContainer,
    ProcessIO, ProcessIODataType,
};
use v1::schema::{ContainerInfo, ContainerInfoType, TTYInfo};

use super::client::{AgentClient, FORM};
use crate::output::error::{CliError, Outcome};

/// How often the size of the terminal is read: no signal is needed for its changes.
const WINDOW_EVERY: Duration = Duration::from_millis(500);
/// Heartbeats of input, in reads of the terminal's size: one in 30 s.
const HEARTBEAT_EVERY: u32 = 60;
/// The time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The time limit for the exit status after the end of the output.
const STATUS_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum bytes of a record of output.
const RECORD_MAX: usize = 1 << 20;
/// The end of the input of a terminal: ^D.
const END_OF_TRANSMISSION: &[u8] = b"\x04";

/// A session to run.
pub struct Session {
    /// The agent.
    pub agent: AgentClient,
    /// The id of its container, nested in that of the task; or that of the task.
    pub id: ContainerId,
    /// Its command; `None` attaches to the terminal of the task.
    pub command: Option<CommandInfo>,
    /// Whether it has a terminal.
    pub has_terminal: bool,
    /// Rows and columns of our terminal, if there is one.
    pub window: fn() -> Option<(u32, u32)>,
}

impl Session {
    /// Runs it; returns its exit code, or 128 plus its signal.
    pub async fn run(
        self,
        input: Option<mpsc::Receiver<Bytes>>,
        out: impl FnMut(&[u8]) -> Outcome,
        err: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome<u8> {
        let start = match &self.command {
            Some(command) => self.launch(command),
            None => self.first_output(),
        };
        let output = self.agent.stream(&start).await?;
        let (agent, wait) = (self.agent.clone(), self.wait());
        let status = self
            .command
            .is_some()
            .then(|| tokio::task::spawn_local(async move { agent.call(&wait).await }));
        let pump = (input.is_some() || self.has_terminal).then(|| self.attach(input));
        self.print(output, out, err).await?;
        drop(pump);
        let Some(status) = status else { return Ok(0) };
        let late = |_| CliError::new("the agent does not report how the command ended");
        let status = Clock::real().timeout(STATUS_TIMEOUT, status).await;
        let answer = status.map_err(late)?;
        let answer = answer.map_err(|error| CliError::because("cannot wait", &error))??;
        // Otherwise the agent remembers it until the task ends.
        if let Err(failure) = self.agent.call(&self.remove()).await {
            tracing::debug!(%failure, "cannot remove the session");
        }
        let ended = answer.wait_nested_container;
        let status = ended.as_ref().and_then(|ended| ended.exit_status);
        status.map(exit_code).ok_or_else(|| {
            let message = ended.and_then(|ended| ended.message.clone());
            let message = message.unwrap_or_else(|| "it has no exit status".to_owned());
            CliError::new(format!("the command did not run: {message}"))
        })
    }

    /// Prints the output until its end.
    async fn print(
        &self,
        mut output: Incoming,
        mut out: impl FnMut(&[u8]) -> Outcome,
        mut err: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome {
        let mut records = Records::<ProcessIO>::new(FORM, Limits::default(), RECORD_MAX);
        while let Some(frame) = output.frame().await {
            let frame = frame.map_err(|error| self.agent.failed(&error))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            let mut piece = &piece[..];
            loop {
                let record = records.next(&mut piece);
                let record = record.map_err(|bad| self.agent.failed(&bad))?;
                let Some(io) = record else { break };
                match io.bytes() {
                    Some((ProcessIODataType::Stdout, bytes)) => out(bytes)?,
                    Some((ProcessIODataType::Stderr, bytes)) => err(bytes)?,
                    _ => {}
                }
            }
        }
        records.end().map_err(|bad| self.agent.failed(&bad))
    }

    /// Sends input until it is dropped.
    fn attach(&self, input: Option<mpsc::Receiver<Bytes>>) -> AbortOnDrop {
        let (sender, records) = mpsc::channel(1);
        let agent = self.agent.clone();
        let (first, has_terminal) = (record(FORM, &self.first_input()), self.has_terminal);
        let window = self.window;
        let window = move || window().filter(|_| has_terminal);
        // The end of our input does not end that of a task. An empty chunk closes a pipe.
        let end = self.command.as_ref().map(|_| match has_terminal {
            true => END_OF_TRANSMISSION,
            false => b"",
        });
        let pump = pump(first, input, end, window, sender);
        AbortOnDrop(tokio::task::spawn_local(async move {
            let send = agent.send(records);
            let (sent, ()) = futures_util::future::join(send, pump).await;
            // For example because the command has closed its input.
            if let Err(failure) = sent {
                tracing::debug!(%failure, "input is not passed on");
            }
        }))
    }

    fn launch(&self, command: &CommandInfo) -> Call {
        let tty = self.has_terminal.then(|| {
            Box::new(ContainerInfo {
                r#type: ContainerInfoType::Mesos,
                tty_info: Some(TTYInfo::default()),
                ..ContainerInfo::default()
            })
        });
        Call {
            r#type: Some(CallType::LaunchNestedContainerSession),
            launch_nested_container_session: Some(CallLaunchNestedContainerSession {
                container_id: (&self.id).into(),
                command: Some(Box::new(command.into())),
                container: tty,
            }),
            ..Call::default()
        }
    }

    fn wait(&self) -> Call {
        Call {
            r#type: Some(CallType::WaitNestedContainer),
            wait_nested_container: Some(CallWaitNestedContainer {
                container_id: (&self.id).into(),
            }),
            ..Call::default()
        }
    }

    fn remove(&self) -> Call {
        Call {
            r#type: Some(CallType::RemoveNestedContainer),
            remove_nested_container: Some(CallRemoveNestedContainer {
                container_id: (&self.id).into(),
            }),
            ..Call::default()
        }
    }

    fn first_output(&self) -> Call {
        Call {
            r#type: Some(CallType::AttachContainerOutput),
            attach_container_output: Some(CallAttachContainerOutput {
                container_id: (&self.id).into(),
            }),
            ..Call::default()
        }
    }

    fn first_input(&self) -> Call {
        Call {
            r#type: Some(CallType::AttachContainerInput),
            attach_container_input: Some(CallAttachContainerInput {
                r#type: Some(CallAttachContainerInputType::ContainerId),
                container_id: Some((&self.id).into()),
                ..CallAttachContainerInput::default()
            }),
            ..Call::default()
        }
    }
}

/// Aborts its task when dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends the records of an input stream: its first one, then chunks of input and sizes of the
/// terminal, until the receiver is gone. `end` ends the input of the container.
async fn pump(
    first: Vec<u8>,
    mut input: Option<mpsc::Receiver<Bytes>>,
    end: Option<&'static [u8]>,
    window: impl Fn() -> Option<(u32, u32)>,
    sender: mpsc::Sender<Bytes>,
) {
    let clock = Clock::real();
    let send = async |record: Vec<u8>| sender.send(record.into()).await.is_ok();
    let io = |io: ProcessIO| record(FORM, &io.into_call());
    let stdin = |bytes: Bytes| io(ProcessIO::data(ProcessIODataType::Stdin, bytes));
    let mut is_open = send(first).await;
    let (mut known, mut reads) = (None, 0);
    while is_open {
        let size = window();
        if let Some((rows, columns)) = size.filter(|_| size != known) {
            known = size;
            is_open = send(io(ProcessIO::window(rows, columns))).await;
            continue;
        }
        let chunk = async {
            match &mut input {
                Some(input) => input.recv().await,
                None => std::future::pending().await,
            }
        };
        is_open = match clock.timeout(WINDOW_EVERY, chunk).await {
            Ok(Some(chunk)) => send(stdin(chunk)).await,
            Ok(None) => {
                input = None;
                // The terminal may still change its size.
                match end {
                    Some(end) => send(stdin(Bytes::from_static(end))).await && !end.is_empty(),
                    None => true,
                }
            }
            Err(_) => {
                reads += 1;
                match reads % HEARTBEAT_EVERY {
                    0 => send(io(ProcessIO::heartbeat(HEARTBEAT))).await,
                    _ => true,
                }
            }
        };
    }
}

/// The exit code of a status of `wait`, as a shell has it.
fn exit_code(status: i32) -> u8 {
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    let code = if signal == 0 { code } else { 128 + signal };
    u8::try_from(code).unwrap_or(u8::MAX)
}
