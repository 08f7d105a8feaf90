//! Launcher: starts executors, says when they end, and kills containers.
//!
//! [`Launcher`] is the seam between the agent's actors and the host; tests put their own behind it. The real one,
//! [`ZygoteLauncher`], speaks to a zygote process and starts another when that dies. A zygote that an earlier agent has left, with
//! executors in it, is gone on with (`zygote`). It never waits in the agent's mailbox.

mod zygote;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use protocol::{ContainerId, Termination};
use runtime::prelude::*;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use self::zygote::{Recipe, Zygote};
use crate::zygote::wire::{self, Report, Request};
pub use crate::zygote::wire::{ExecutorProgram, LaunchRequest, Left};

/// Requests that may wait for the zygote; one more fails its launch.
const REQUESTS_MAX: usize = 65_536;

/// What has happened to a container's processes.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
#[rtype(result = "()")]
pub enum LauncherEvent {
    /// The executor runs, and this process leads its session.
    Started {
        /// In which container.
        container_id: ContainerId,
        /// The process.
        pid: i32,
    },
    /// The executor could not be started.
    Failed {
        /// In which container.
        container_id: ContainerId,
        /// The step and the system's answer.
        reason: String,
    },
    /// The executor has ended, and nothing it started is left.
    Exited {
        /// In which container.
        container_id: ContainerId,
        /// How.
        termination: Termination,
    },
    /// The launcher itself has ended, and every executor with it.
    Lost {
        /// Why, as far as known.
        reason: String,
    },
}

/// Where events go.
pub type Events = Arc<dyn Fn(LauncherEvent) + Send + Sync>;

/// An executor was not even asked to start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LaunchError {
    /// Why.
    pub reason: String,
}

/// Starts and kills executors. None of its functions may block.
pub trait Launcher: Send + 'static {
    /// The containers that an earlier agent has left, which were to outlive it. Asked once, before anything else.
    fn left(&mut self) -> Vec<Left> {
        Vec::new()
    }
    /// Events go there from now on. Comes once, first, on the thread of the asking actor.
    fn attach(&mut self, events: Events);
    /// Starts an executor; `Started` or `Failed` follows, and after `Started` an `Exited`.
    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError>;
    /// Kills all processes of a container; its `Exited` follows if it was started.
    fn kill(&mut self, container_id: &ContainerId);
    /// Nothing outlives the agent from now on, whatever was said when it was launched.
    fn keep_nothing(&mut self) {}
}

/// Why there is no zygote.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// Its program cannot be started.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It ended or stayed silent before it was ready.
    #[error("the executor launcher is not ready: {0}")]
    Silent(io::Error),
    /// It says that it cannot work.
    #[error("the executor launcher cannot work: {0}")]
    Unable(String),
    /// An earlier agent has left one that cannot be gone on with.
    #[error(
        "the executor launcher that an earlier agent has left in `{work_dir}` does not go on for this one: {problem}; start that version of the agent again, or end what runs there with --recover=cleanup"
    )]
    Foreign {
        /// Where.
        work_dir: String,
        /// What is wrong.
        problem: String,
    },
}

/// The real launcher: a zygote process started from a program of ours.
pub struct ZygoteLauncher {
    recipe: Recipe,
    fresh: Option<Zygote>,
    door: Arc<Door>,
}

/// Where requests for the living zygote go; shut while there is none.
type Door = Mutex<Option<mpsc::Sender<Vec<u8>>>>;

impl ZygoteLauncher {
    /// Goes on with the zygote that an earlier agent has left in `work_dir`, or starts one by executing `program` with `arguments`, which
    /// must call [`crate::zygote::main`]. What outlives the agent may be without one for `patience`. Blocks until the zygote is ready: a
    /// new one first ends whatever an earlier agent left running there.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        work_dir: &Path,
        patience: Duration,
    ) -> Result<Self, ZygoteError> {
        let recipe = Recipe {
            program: program.to_owned(),
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            work_dir: work_dir.to_owned(),
            patience,
        };
        let fresh = match recipe.resume()? {
            Some(left) => left,
            None => recipe.start()?,
        };
        Ok(Self {
            recipe,
            fresh: Some(fresh),
            door: Arc::default(),
        })
    }

    fn send(&self, request: &impl Serialize) -> Result<(), LaunchError> {
        let failed = |reason: String| LaunchError { reason };
        let bytes = wire::encode(request).map_err(|error| failed(error.to_string()))?;
        let requests = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = requests
            .as_ref()
            .ok_or_else(|| failed("the executor launcher is not running".into()))?;
        requests
            .try_send(bytes)
            .map_err(|_| failed("the executor launcher is overloaded or gone".into()))
    }
}

impl Launcher for ZygoteLauncher {
    fn left(&mut self) -> Vec<Left> {
        let fresh = self.fresh.as_mut();
        fresh
            .map(|zygote| std::mem::take(&mut zygote.left))
            .unwrap_or_default()
    }

    fn attach(&mut self, events: Events) {
        let Some(zygote) = self.fresh.take() else {
            return;
        };
        let door = Arc::downgrade(&self.door);
        tokio::task::spawn_local(keep_alive(
            self.recipe.clone(),
            zygote,
            open(&self.door),
            door,
            events,
        ));
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        self.send(&Request::Launch(Box::new(request)))
    }

    fn kill(&mut self, container_id: &ContainerId) {
        if let Err(error) = self.send(&Request::Kill {
            container_id: container_id.clone(),
        }) {
            // Without a zygote there is nothing left to kill.
            tracing::warn!(%container_id, %error, "kill not sent");
        }
    }

    fn keep_nothing(&mut self) {
        if let Err(error) = self.send(&Request::KeepNothing) {
            tracing::debug!(%error, "without a launcher nothing outlives the agent");
        }
    }
}

/// Opens the door for a new zygote; requests come out of the receiver.
fn open(door: &Door) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
    *door.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    receiver
}

/// Carries requests and reports until the launcher is dropped. A zygote that has worked and died is followed by another.
async fn keep_alive(
    recipe: Recipe,
    zygote: Zygote,
    requests: mpsc::Receiver<Vec<u8>>,
    door: Weak<Door>,
    events: Events,
) {
    let (mut next, mut requests) = (Some(zygote), requests);
    while let Some(mut zygote) = next.take() {
        let arrived = std::mem::take(&mut zygote.arrived);
        let carried = carry(zygote.socket, arrived, requests, &events).await;
        let Some(shut) = door.upgrade() else { break };
        shut.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = match &carried.failure {
            Some(failure) => failure.to_string(),
            None => "the executor launcher ended".to_owned(),
        };
        tracing::error!(
            reason,
            "the executor launcher is lost, and all executors with it"
        );
        let (recipe, mut body) = (recipe.clone(), zygote.body);
        let restarted = tokio::task::spawn_blocking(move || {
            // It must not live beside its successor: it may only have hung up, which ends the socket like its own end. Held or a child of
            // ours, it is nobody else who is killed.
            body.end();
            recipe.start()
        });
        events(LauncherEvent::Lost { reason });
        if carried.reports == 0 {
            tracing::error!("the executor launcher did not work at all: it is not started again");
            break;
        }
        match restarted.await {
            Ok(Ok(fresh)) => {
                requests = open(&shut);
                next = Some(fresh);
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "no further executor can be started");
                break;
            }
            Err(_) => break,
        }
    }
}

/// How a zygote's connection ended.
struct Carried {
    reports: u64,
    failure: Option<io::Error>,
}

async fn carry(
    socket: UnixStream,
    mut arrived: Vec<u8>,
    requests: mpsc::Receiver<Vec<u8>>,
    events: &Events,
) -> Carried {
    let mut carried = Carried {
        reports: 0,
        failure: None,
    };
    let connected = socket
        .set_nonblocking(true)
        .and_then(|()| tokio::net::UnixStream::from_std(socket));
    let (mut reports, commands) = match connected {
        Ok(connected) => connected.into_split(),
        Err(error) => {
            return Carried {
                failure: Some(error),
                ..carried
            };
        }
    };
    let writer = tokio::task::spawn_local(write(commands, requests));
    carried.failure = loop {
        match hand_over(&mut arrived, events) {
            Ok(count) => carried.reports += count,
            Err(error) => break Some(error),
        }
        let mut buffer = [0; 16 * 1024];
        match reports.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(count) => arrived.extend_from_slice(&buffer[..count]),
            Err(error) => break Some(error),
        }
    };
    writer.abort();
    carried
}

/// Writes requests, several at a time, until nobody can make any more. Then the zygote sees the end of its input.
async fn write(
    mut commands: tokio::net::unix::OwnedWriteHalf,
    mut requests: mpsc::Receiver<Vec<u8>>,
) {
    while let Some(mut bytes) = requests.recv().await {
        while bytes.len() < 64 * 1024
            && let Ok(more) = requests.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        if commands.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = commands.shutdown().await;
}

fn hand_over(arrived: &mut Vec<u8>, events: &Events) -> io::Result<u64> {
    let mut count = 0;
    while let Some(report) = wire::decode::<Report>(arrived).map_err(io::Error::other)? {
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
            Report::Exited {
                container_id,
                termination,
            } => LauncherEvent::Exited {
                container_id,
                termination,
            },
            Report::Ready | Report::Resumed { .. } | Report::Unable { .. } => continue,
        });
    }
    Ok(count)
}

/// Ends whatever an earlier agent has left running in `work_dir`, and gives how many containers that were. The program and its arguments are
/// those of [`ZygoteLauncher::start`]. Blocks until nothing is left.
pub fn clean_up(program: &Path, arguments: &[&str], work_dir: &Path) -> Result<usize, ZygoteError> {
    let recipe = Recipe {
        program: program.to_owned(),
        arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
        work_dir: work_dir.to_owned(),
        patience: Duration::ZERO,
    };
    recipe.clean_up()
}
