//! Fetcher: files that are fetched into a sandbox before its command runs.
//!
//! `plan` decides what to fetch to which file. For each container the agent starts its own program
//! again ([`main`]), which becomes the task's user and fetches all files (`program`): from the host,
//! or over HTTP (`download`, `redirect`). It extracts archives (`archive`). Its log is in the
//! sandbox's `stderr`. Nothing is cached: each container fetches for itself.

pub mod archive;
mod download;
pub mod plan;
mod program;
mod redirect;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use nix::libc;
use runtime::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};

use self::archive::ExtractionBounds;
use self::plan::FetchItem;
pub use self::program::{FetchOrder, main};
use crate::host::accounts::{OwnUser, RunAs, run_as};
use crate::host::sys;

/// Most fetchers at once; others wait for their turn.
const AT_ONCE: usize = 64;

/// The files of one container.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Where they go.
    pub sandbox: PathBuf,
    /// The user that owns them, if not the agent's.
    pub user: Option<String>,
    /// A server that sends nothing for so long has failed.
    pub stall_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub authorities: Option<PathBuf>,
    /// The files.
    pub items: Vec<FetchItem>,
}

/// Starts fetchers.
#[derive(Clone, Debug)]
pub struct Fetcher {
    program: PathBuf,
    arguments: Vec<String>,
    turns: Arc<Semaphore>,
}

impl Fetcher {
    /// Fetchers are `program` with `arguments`, which must call [`main`].
    pub fn new(program: &Path, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Fetches all files. Returns when the fetcher has ended, at once after `cancelled`. The error
    /// says how it ended.
    pub async fn fetch(
        self,
        node: Node,
        request: FetchRequest,
        cancelled: oneshot::Receiver<()>,
    ) -> Result<(), String> {
        let turns = self.turns.clone();
        let Either::Left((turn, cancelled)) = select(Box::pin(turns.acquire()), cancelled).await
        else {
            return Err("cancelled".to_owned());
        };
        let _turn = turn.map_err(|error| error.to_string())?;
        let starting = node.blocking(move || self.start(&request)).await;
        let (mut child, socket, order) = starting.map_err(|error| error.to_string())??;
        let exchange = Box::pin(exchange(socket, &order));
        let end = match select(exchange, cancelled).await {
            Either::Left((ended, _)) => ended.map_err(|error| error.to_string()),
            Either::Right(_) => Err("cancelled".to_owned()),
        };
        let waited = node.blocking(move || {
            // Harmless after a regular end: it closes its socket only by ending.
            if end.is_err() {
                let _ = child.kill();
            }
            (child.wait(), end)
        });
        let (status, end) = waited.await.map_err(|error| error.to_string())?;
        end?;
        match status.map_err(|error| error.to_string())? {
            status if status.success() => Ok(()),
            status => Err(ending(status)),
        }
    }

    /// Blocking. Returns the fetcher, its socket, and what to send it.
    fn start(&self, request: &FetchRequest) -> Result<(Child, UnixStream, Vec<u8>), String> {
        let credentials = match run_as(request.user.as_deref(), &OwnUser::unnamed(), sys::account)?
        {
            RunAs::Own => None,
            RunAs::Other(account) => {
                let of_user = account.credentials;
                Some((of_user.uid, of_user.gid, of_user.groups))
            }
        };
        let order = FetchOrder {
            credentials,
            stall_timeout: request.stall_timeout,
            authorities: request.authorities.clone(),
            bounds: ExtractionBounds::default(),
            items: request.items.clone(),
        };
        let mut line = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let (child, socket) = self.spawn(&request.sandbox).map_err(|error| {
            let program = self.program.display();
            format!("the fetcher `{program}` cannot be started: {error}")
        })?;
        Ok((child, socket, line))
    }

    fn spawn(&self, sandbox: &Path) -> io::Result<(Child, UnixStream)> {
        let log = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(sandbox.join("stderr"))?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program);
        // The user can read its environment, so it gets none of the agent's.
        let child = command
            .args(&self.arguments)
            .env_clear()
            .current_dir(sandbox)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok((child, ours))
    }
}

/// Sends the order, then waits until the fetcher ends.
async fn exchange(socket: UnixStream, order: &[u8]) -> io::Result<()> {
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    // If it fails, the fetcher has ended, and its status says more.
    let _ = socket.write_all(order).await;
    let mut nothing = [0];
    let _ = socket.read(&mut nothing).await;
    Ok(())
}

fn ending(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("terminated by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
