//! Launcher: starts containers, reports their ends, kills them.
//!
//! [`Launcher`] separates the agent's actors from the host; tests substitute their own.
//! [`ZygoteLauncher`] talks to a zygote process and starts another if it dies. The zygote of an
//! earlier agent process is resumed (`zygote`). Never blocks the agent's mailbox.

mod zygote;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use protocol::{CommandInfo, ContainerId, Uuid};
use runtime::Clock;
use runtime::prelude::*;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::sync::{mpsc, oneshot};

use self::zygote::{Zygote, ZygoteCommand};
use crate::fetcher::Fetcher;
use crate::host::sys;
use crate::zygote::wire::{self, Report, Request};
pub use crate::zygote::wire::{
    ContainerEnd, ContainerProgram, LaunchRequest, LeftContainer, ProgramEnd, Session,
};

/// Maximum queued requests; further launches fail.
const REQUESTS_MAX: usize = 65_536;

/// The first and the longest pause before a zygote is started again.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A change of a container's processes.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
#[rtype(result = "()")]
pub enum LauncherEvent {
    /// The executor was started, or the command.
    Started {
        /// Its container.
        container_id: ContainerId,
        /// The process that leads the container's session.
        pid: i32,
    },
    /// The container could not be started.
    Failed {
        /// The container.
        container_id: ContainerId,
        /// The failed step and the system error.
        reason: String,
    },
    /// The container has ended.
    Exited {
        /// The container.
        container_id: ContainerId,
        /// How.
        end: ContainerEnd,
    },
    /// A further program in a container has ended.
    ProgramEnded {
        /// The container.
        container_id: ContainerId,
        /// The program.
        program: Uuid,
        /// How.
        end: ProgramEnd,
    },
    /// The launcher has ended, and every container with it.
    Lost {
        /// The reason, as far as known.
        reason: String,
    },
}

/// Receives launcher events.
pub type Events = Arc<dyn Fn(LauncherEvent) + Send + Sync>;

/// A launch request that was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LaunchError {
    /// Why.
    pub reason: String,
}

/// Starts and kills containers. Its functions must not block.
pub trait Launcher: Send + 'static {
    /// Takes the checkpointed containers of an earlier agent. Called once, before all other
    /// functions.
    fn left(&mut self) -> Vec<LeftContainer> {
        Vec::new()
    }
    /// Sets the receiver of events. Called once, on the calling actor's thread.
    fn attach(&mut self, events: Events);
    /// Starts fetchers; `None` if it cannot.
    fn fetcher(&self) -> Option<Fetcher> {
        None
    }
    /// Starts a container. `Started`, `Failed` or `Exited` follows, and after `Started` an
    /// `Exited`.
    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError>;
    /// Starts a session likewise, with descriptors for its input and output. Fails by default.
    fn launch_session(
        &mut self,
        _request: LaunchRequest,
        _descriptors: Vec<OwnedFd>,
    ) -> Result<(), LaunchError> {
        let reason = "this launcher has no sessions".to_owned();
        Err(LaunchError { reason })
    }
    /// Attaches a reader to the terminal of a container: the writer's end of a socket. It is closed
    /// if there is none.
    fn attach_reader(&mut self, _container_id: &ContainerId, _writer: OwnedFd) {}
    /// Sends a signal to the program of a nested container. Without effect by default.
    fn signal(&mut self, _container_id: &ContainerId, _signal: i32) {}
    /// Sends SIGTERM to all processes of a container that runs a command, and SIGKILL to those that
    /// remain after `grace`. A repeated call can only shorten this time.
    fn terminate(&mut self, container_id: &ContainerId, grace: Duration);
    /// Kills all processes of a container. `Exited` follows if it was started.
    fn kill(&mut self, container_id: &ContainerId);
    /// Starts a further program in a container whose [`LaunchRequest`] allows it. `ProgramEnded`
    /// follows, unless the container ends. Without effect by default.
    fn run_program(&mut self, _container_id: &ContainerId, _program: Uuid, _command: CommandInfo) {}
    /// Kills a further program.
    fn kill_program(&mut self, _container_id: &ContainerId, _program: Uuid) {}
    /// The end of a checkpointed container is stored: no later agent needs it.
    fn forget(&mut self, _container_id: &ContainerId) {}
    /// Treats no container as checkpointed any more.
    fn discard_checkpoints(&mut self) {}
    /// [`LauncherEvent::Lost`] was handled: containers launched before it have ended. Without
    /// effect by default.
    fn loss_handled(&mut self) {}
}

/// Why there is no zygote.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// Its program cannot be started.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system error.
        source: io::Error,
    },
    /// It ended or sent nothing before it was ready.
    #[error("the executor launcher is not ready: {0}")]
    Silent(io::Error),
    /// It reported that it cannot work.
    #[error("the executor launcher cannot work: {0}")]
    Unable(String),
    /// The zygote of an earlier agent cannot be resumed.
    #[error(
        "the executor launcher of an earlier agent in `{work_dir}` cannot be resumed: {problem}; start that version of the agent again, or kill its executors with --recover=cleanup"
    )]
    Foreign {
        /// The work directory.
        work_dir: String,
        /// The problem.
        problem: String,
    },
}

/// The real launcher: a zygote process.
pub struct ZygoteLauncher {
    command: ZygoteCommand,
    fresh: Option<Zygote>,
    queue: Arc<Mutex<RequestQueue>>,
    fetcher: Option<Fetcher>,
}

/// Requests to the zygote.
#[derive(Default)]
struct RequestQueue {
    /// To the running one; `None` while there is none.
    sender: Option<mpsc::Sender<Outgoing>>,
    /// Launches that wait for the next one, and later requests about their containers.
    waiting: Vec<(ContainerId, Outgoing)>,
    /// Answered when the loss of the last one was handled.
    loss: Option<oneshot::Sender<()>>,
}

/// An encoded request, with the descriptors that go along.
type Outgoing = (Vec<u8>, Vec<OwnedFd>);

impl ZygoteLauncher {
    /// Resumes the zygote in `work_dir`, or starts one by executing `program` with `arguments`,
    /// which must call [`crate::zygote::main`]. Checkpointed containers may run without an agent
    /// for `patience`. Blocks until the zygote is ready; a new one first kills all leftovers of an
    /// earlier agent.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        work_dir: &Path,
        patience: Duration,
    ) -> Result<Self, ZygoteError> {
        let command = ZygoteCommand {
            program: program.to_owned(),
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            work_dir: work_dir.to_owned(),
            patience,
        };
        let fresh = match command.resume()? {
            Some(left) => left,
            None => command.start()?,
        };
        Ok(Self {
            command,
            fresh: Some(fresh),
            queue: Arc::default(),
            fetcher: None,
        })
    }

    /// Sets the program that fetches files.
    #[must_use]
    pub fn with_fetcher(mut self, fetcher: Fetcher) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    fn send(&self, request: &impl Serialize) -> Result<(), LaunchError> {
        lock(&self.queue).send((encode(request)?, Vec::new()))
    }

    /// Launches a container: with the next zygote while there is none.
    fn send_launch(
        &self,
        request: LaunchRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), LaunchError> {
        let container_id = request.container_id.clone();
        let bytes = encode(&Request::Launch(Box::new(request)))?;
        let mut queue = lock(&self.queue);
        match queue.sender {
            None if queue.waiting.len() < REQUESTS_MAX => {
                queue.waiting.push((container_id, (bytes, descriptors)));
                Ok(())
            }
            _ => queue.send((bytes, descriptors)),
        }
    }

    /// Sends a request about a container, which ends with its zygote unless it waits for the next.
    fn send_about(&self, container_id: &ContainerId, request: &Request) {
        let sent = encode(request).and_then(|bytes| {
            let mut queue = lock(&self.queue);
            if { queue.waiting.iter() }.any(|(waiting, _)| waiting == container_id) {
                queue
                    .waiting
                    .push((container_id.clone(), (bytes, Vec::new())));
                return Ok(());
            }
            queue.send((bytes, Vec::new()))
        });
        if let Err(error) = sent {
            tracing::warn!(%container_id, %error, "a request to the launcher is not sent");
        }
    }
}

fn lock(queue: &Mutex<RequestQueue>) -> MutexGuard<'_, RequestQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn encode(request: &impl Serialize) -> Result<Vec<u8>, LaunchError> {
    wire::encode(request).map_err(|error| LaunchError {
        reason: error.to_string(),
    })
}

impl RequestQueue {
    fn send(&self, request: Outgoing) -> Result<(), LaunchError> {
        let failed = |reason: &str| LaunchError {
            reason: reason.to_owned(),
        };
        let sender = self.sender.as_ref();
        let sender = sender.ok_or_else(|| failed("the executor launcher is not running"))?;
        let sent = sender.try_send(request);
        sent.map_err(|_| failed("the executor launcher is overloaded or gone"))
    }
}

impl Launcher for ZygoteLauncher {
    fn left(&mut self) -> Vec<LeftContainer> {
        let fresh = self.fresh.as_mut();
        fresh
            .map(|zygote| std::mem::take(&mut zygote.left))
            .unwrap_or_default()
    }

    fn fetcher(&self) -> Option<Fetcher> {
        self.fetcher.clone()
    }

    fn attach(&mut self, events: Events) {
        let Some(zygote) = self.fresh.take() else {
            return;
        };
        let queue = Arc::downgrade(&self.queue);
        tokio::task::spawn_local(keep_alive(
            self.command.clone(),
            zygote,
            open(&self.queue),
            queue,
            events,
        ));
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        self.send_launch(request, Vec::new())
    }

    fn launch_session(
        &mut self,
        request: LaunchRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), LaunchError> {
        self.send_launch(request, descriptors)
    }

    fn attach_reader(&mut self, container_id: &ContainerId, writer: OwnedFd) {
        let container_id = container_id.clone();
        let attached = encode(&Request::Attach { container_id })
            .and_then(|bytes| lock(&self.queue).send((bytes, vec![writer])));
        if let Err(error) = attached {
            tracing::warn!(%error, "a reader is not attached");
        }
    }

    fn signal(&mut self, container_id: &ContainerId, signal: i32) {
        let request = Request::Signal {
            container_id: container_id.clone(),
            signal,
        };
        self.send_about(container_id, &request);
    }

    fn terminate(&mut self, container_id: &ContainerId, grace: Duration) {
        self.send_about(
            container_id,
            &Request::Terminate {
                container_id: container_id.clone(),
                grace,
            },
        );
    }

    fn kill(&mut self, container_id: &ContainerId) {
        let container_id = container_id.clone();
        self.send_about(&container_id.clone(), &Request::Kill { container_id });
    }

    fn run_program(&mut self, container_id: &ContainerId, program: Uuid, command: CommandInfo) {
        let request = Request::RunProgram {
            container_id: container_id.clone(),
            program,
            command,
        };
        self.send_about(container_id, &request);
    }

    fn kill_program(&mut self, container_id: &ContainerId, program: Uuid) {
        let request = Request::KillProgram {
            container_id: container_id.clone(),
            program,
        };
        self.send_about(container_id, &request);
    }

    fn forget(&mut self, container_id: &ContainerId) {
        let container_id = container_id.clone();
        self.send_about(&container_id.clone(), &Request::Forget { container_id });
    }

    fn discard_checkpoints(&mut self) {
        if let Err(error) = self.send(&Request::KeepNothing) {
            tracing::debug!(%error, "discarding checkpointed containers failed");
        }
    }

    fn loss_handled(&mut self) {
        let mut queue = lock(&self.queue);
        queue.waiting.clear();
        if let Some(handled) = queue.loss.take() {
            let _ = handled.send(()); // Without a receiver, nothing is restarted.
        }
    }
}

/// Connects a new zygote's request queue, beginning with the waiting requests; returns its
/// receiver.
fn open(queue: &Mutex<RequestQueue>) -> mpsc::Receiver<Outgoing> {
    let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
    let mut queue = lock(queue);
    for (container_id, request) in std::mem::take(&mut queue.waiting) {
        if sender.try_send(request).is_err() {
            tracing::warn!(%container_id, "a request to the launcher is not sent");
        }
    }
    queue.sender = Some(sender);
    receiver
}

/// No zygote can be started: the waiting containers fail.
fn fail_waiting(queue: &Mutex<RequestQueue>, problem: &str, events: &Events) {
    let waiting = std::mem::take(&mut lock(queue).waiting);
    let containers: BTreeSet<ContainerId> = waiting.into_iter().map(|(id, _)| id).collect();
    for container_id in containers {
        let reason = format!("the executor launcher is not running: {problem}");
        events(LauncherEvent::Failed {
            container_id,
            reason,
        });
    }
}

/// Transfers requests and reports until the launcher is dropped. Restarts a zygote that died: at
/// once, or with growing pauses if none works.
async fn keep_alive(
    command: ZygoteCommand,
    mut zygote: Zygote,
    mut requests: mpsc::Receiver<Outgoing>,
    queue: Weak<Mutex<RequestQueue>>,
    events: Events,
) {
    let mut pause = Duration::ZERO;
    loop {
        let received = std::mem::take(&mut zygote.received);
        let end = transfer(zygote.socket, received, requests, &events).await;
        let Some(shut) = queue.upgrade() else { return };
        let (loss, handled) = oneshot::channel();
        {
            let mut queue = lock(&shut);
            (queue.sender, queue.loss) = (None, Some(loss));
        }
        drop(shut);
        let reason = match &end.failure {
            Some(failure) => failure.to_string(),
            None => "the executor launcher ended".to_owned(),
        };
        tracing::error!(reason, "executor launcher lost with all containers");
        events(LauncherEvent::Lost { reason });
        if end.reports > 0 {
            pause = Duration::ZERO;
        }
        let mut process = zygote.process;
        // Two zygotes must not coexist, and a closed socket does not prove that this one ended. Its
        // process is pinned (a child or a pidfd), so no other process can be killed.
        if tokio::task::spawn_blocking(move || process.end())
            .await
            .is_err()
        {
            return;
        }
        // Handling the loss ends all containers launched before it, so the next zygote must not get
        // them. Fails once the launcher is dropped.
        if handled.await.is_err() {
            return;
        }
        zygote = loop {
            Clock::real().sleep(pause).await;
            pause = (2 * pause).clamp(RESTART_PAUSE_MIN, RESTART_PAUSE_MAX);
            let Some(shut) = queue.upgrade() else { return };
            let command = command.clone();
            match tokio::task::spawn_blocking(move || command.start()).await {
                Ok(Ok(fresh)) => {
                    requests = open(&shut);
                    break fresh;
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot restart the executor launcher; trying again");
                    fail_waiting(&shut, &error.to_string(), &events);
                }
                Err(_) => return,
            }
        };
    }
}

/// How a zygote's connection ended.
struct ConnectionEnd {
    reports: u64,
    failure: Option<io::Error>,
}

async fn transfer(
    socket: UnixStream,
    mut received: Vec<u8>,
    requests: mpsc::Receiver<Outgoing>,
    events: &Events,
) -> ConnectionEnd {
    let mut end = ConnectionEnd {
        reports: 0,
        failure: None,
    };
    let connected = socket
        .set_nonblocking(true)
        .and_then(|()| tokio::net::UnixStream::from_std(socket));
    let (mut reports, commands) = match connected {
        Ok(connected) => connected.into_split(),
        Err(error) => {
            return ConnectionEnd {
                failure: Some(error),
                ..end
            };
        }
    };
    let writer = tokio::task::spawn_local(write(commands, requests));
    end.failure = loop {
        match deliver_reports(&mut received, events) {
            Ok(count) => end.reports += count,
            Err(error) => break Some(error),
        }
        let mut buffer = [0; 16 * 1024];
        match reports.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => break Some(error),
        }
    };
    writer.abort();
    end
}

/// Writes requests in batches until the queue is closed, then closes the zygote's input.
async fn write(
    mut commands: tokio::net::unix::OwnedWriteHalf,
    mut requests: mpsc::Receiver<Outgoing>,
) {
    let mut next = None;
    while let Some((mut bytes, descriptors)) = match next.take() {
        Some(next) => Some(next),
        None => requests.recv().await,
    } {
        while descriptors.is_empty()
            && bytes.len() < 64 * 1024
            && let Ok((more, along)) = requests.try_recv()
        {
            if !along.is_empty() {
                next = Some((more, along));
                break;
            }
            bytes.extend_from_slice(&more);
        }
        let mut sent = 0;
        if !descriptors.is_empty() {
            let stream: &tokio::net::UnixStream = commands.as_ref();
            let send = || sys::send(stream, &bytes, &descriptors);
            match stream.async_io(Interest::WRITABLE, send).await {
                Ok(length) => sent = length,
                Err(_) => return,
            }
        }
        if commands.write_all(&bytes[sent..]).await.is_err() {
            return;
        }
    }
    let _ = commands.shutdown().await;
}

fn deliver_reports(received: &mut Vec<u8>, events: &Events) -> io::Result<u64> {
    let mut count = 0;
    while let Some(report) = wire::decode::<Report>(received).map_err(io::Error::other)? {
        count += 1;
        events(match report {
            Report::Started { container_id, pid } => LauncherEvent::Started { container_id, pid },
            Report::Failed {
                container_id,
                reason,
            } => LauncherEvent::Failed {
                container_id,
                reason,
            },
            Report::Exited { container_id, end } => LauncherEvent::Exited { container_id, end },
            Report::ProgramEnded {
                container_id,
                program,
                end,
            } => LauncherEvent::ProgramEnded {
                container_id,
                program,
                end,
            },
            Report::Ready | Report::Resumed { .. } | Report::Unable { .. } => continue,
        });
    }
    Ok(count)
}

/// Kills all leftovers of an earlier agent in `work_dir` and returns the number of containers.
/// `program` and `arguments` as for [`ZygoteLauncher::start`]. Blocks until done.
pub fn clean_up(program: &Path, arguments: &[&str], work_dir: &Path) -> Result<usize, ZygoteError> {
    let command = ZygoteCommand {
        program: program.to_owned(),
        arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
        work_dir: work_dir.to_owned(),
        patience: Duration::ZERO,
    };
    command.clean_up()
}
