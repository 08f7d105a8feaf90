//! Helpers: short-lived processes of this program that work with other rights than the agent.
//!
//! A helper's standard input is a socket. Over it the helper takes its order, one line of JSON, and
//! may send an answer. A helper ends when its agent does, or when its work is cancelled.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::{Either, select};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid};
use runtime::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::host::sys;

/// Maximum writable memory of a helper, in bytes. The allocator alone reserves 1 GiB.
const MEMORY_MAX: u64 = 4 << 30;

/// How long a helper may take to end after its answer, and the pause between two looks.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(2);

/// A user id, a group id and all groups; `None` means those of the agent.
pub type Identity = Option<(u32, u32, Vec<u32>)>;

/// The program of a kind of helper.
#[derive(Clone, Debug)]
pub struct Helper {
    program: PathBuf,
    arguments: Vec<String>,
    /// It is killed after this time.
    limit: Option<Duration>,
}

/// The end of a helper.
#[derive(Debug)]
pub struct HelperEnd {
    /// What it has sent.
    pub answer: Vec<u8>,
    /// Its exit status.
    pub status: ExitStatus,
}

impl Helper {
    /// Helpers are `program` with `arguments`.
    pub fn new(program: &Path, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            limit: None,
        }
    }

    /// Helpers that are killed after this time.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs a helper to its end in `directory`, at most until `cancelled`. `files` opens its
    /// standard output and error. Its answer has at most `answer_max` bytes.
    pub async fn run(
        &self,
        node: &Node,
        directory: PathBuf,
        files: impl FnOnce() -> io::Result<(Stdio, Stdio)> + Send + 'static,
        (order, answer_max): (&impl Serialize, u64),
        cancelled: &mut oneshot::Receiver<()>,
    ) -> Result<HelperEnd, String> {
        let mut line = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let this = self.clone();
        let spawned = node
            .blocking(move || this.spawn(&directory, files()?))
            .await;
        let spawned = spawned.map_err(|error| error.to_string())?;
        let (mut child, socket) = spawned.map_err(|error| {
            let program = self.program.display();
            format!("the helper `{program}` cannot be started: {error}")
        })?;
        let work = unless_cancelled(exchange(socket, &line, answer_max), cancelled);
        let ended = match self.limit {
            None => work.await,
            Some(limit) => {
                let late = |_| {
                    let limit = protocol::text::duration::format(limit);
                    Err(format!("it took longer than {limit}"))
                };
                node.clock().timeout(limit, work).await.unwrap_or_else(late)
            }
        };
        let ended = ended.and_then(|ended| ended.map_err(|error| error.to_string()));
        let clock = node.clock();
        let deadline = clock.now() + END_PATIENCE;
        // It may have closed its socket without an end.
        while ended.is_ok() && clock.now() < deadline && matches!(child.try_wait(), Ok(None)) {
            clock.sleep(END_PAUSE).await;
        }
        let waited = node.blocking(move || {
            // Nothing, if it has ended.
            let _ = child.kill();
            (child.wait(), ended)
        });
        let (status, ended) = waited.await.map_err(|error| error.to_string())?;
        let answer = ended?;
        let status = status.map_err(|error| error.to_string())?;
        Ok(HelperEnd { answer, status })
    }

    /// Blocking. Returns the helper and its socket.
    fn spawn(
        &self,
        directory: &Path,
        (output, log): (Stdio, Stdio),
    ) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program);
        // Its user can read its environment, so it gets none of the agent's.
        let child = command
            .args(&self.arguments)
            .env_clear()
            .current_dir(directory)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(output)
            .stderr(log)
            .spawn()?;
        Ok((child, ours))
    }
}

impl HelperEnd {
    /// The error is the exit status.
    pub fn success(&self) -> Result<(), String> {
        use std::os::unix::process::ExitStatusExt;
        match (self.status.code(), self.status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(format!("exited with status {code}")),
            (None, Some(signal)) => Err(format!("terminated by signal {signal}")),
            (None, None) => Err("ended".to_owned()),
        }
    }
}

/// The output of a future, unless its work is cancelled before.
pub async fn unless_cancelled<F: Future>(
    future: F,
    cancelled: &mut oneshot::Receiver<()>,
) -> Result<F::Output, String> {
    match select(std::pin::pin!(future), cancelled).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(_) => Err("cancelled".to_owned()),
    }
}

/// Sends the order, then reads until the helper ends.
async fn exchange(socket: UnixStream, order: &[u8], answer_max: u64) -> io::Result<Vec<u8>> {
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    // If it fails, the helper has ended, and its status has the reason.
    let _ = socket.write_all(order).await;
    let mut answer = Vec::new();
    // One byte more shows that the bound is exceeded.
    let mut socket = socket.take(answer_max + 1);
    let _ = socket.read_to_end(&mut answer).await;
    match answer.len() as u64 > answer_max {
        true => Err(io::Error::other("the helper's answer is too long")),
        false => Ok(answer),
    }
}

/// In a helper: its order. Must be called before anything is opened.
pub fn take_order<T: DeserializeOwned>() -> Result<T, String> {
    sys::close_inherited().map_err(|error| error.to_string())?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| error.to_string())?;
    serde_json::from_str(&line).map_err(|error| error.to_string())
}

/// In a helper: sends the answer.
pub fn send_answer(answer: &impl Serialize) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let answer = serde_json::to_vec(answer)?;
    UnixStream::from(socket).write_all(&answer)
}

/// In a helper: calls this and exits when its agent has ended or no longer wants its work.
pub fn end_with_agent(log: fn()) {
    std::thread::spawn(move || {
        let _ = io::stdin().lock().read(&mut [0]);
        log();
        std::process::exit(1);
    });
}

/// In a helper: bounds memory and files, since archives may state any sizes. Of all processes of
/// the host, this one is killed first when memory runs out.
pub fn limit_itself(file_max: u64) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "1000")?;
    setrlimit(Resource::RLIMIT_DATA, MEMORY_MAX, MEMORY_MAX)?;
    setrlimit(Resource::RLIMIT_FSIZE, file_max, file_max)?;
    Ok(())
}

/// In a helper: becomes this user, and can gain no rights any more.
pub fn become_user(identity: &Identity) -> nix::Result<()> {
    // Not reached by signals from the agent's terminal. Fails only for a leader of a group.
    let _ = nix::unistd::setsid();
    if let Some((uid, gid, groups)) = identity {
        let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setgid(Gid::from_raw(*gid))?;
        nix::unistd::setuid(Uid::from_raw(*uid))?;
    }
    nix::sys::prctl::set_no_new_privs()
}
