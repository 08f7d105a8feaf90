//! Starts a zygote, or resumes the one of an earlier agent.
//!
//! Blocking. A resumed zygote is no child of this agent; its process is identified by the socket's
//! peer credentials. Refuses the zygote of another user or with another protocol version.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, UnixCredentials, getsockopt, sockopt::PeerCredentials};

use super::ZygoteError;
use crate::host::sys::ProcessHandle;
use crate::zygote::wire::{self, FORM, LeftContainer, Report, Request, SOCKET};

/// How long a zygote may take to be ready; it may have to kill leftovers first.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// How to start a zygote, and its work directory.
#[derive(Clone)]
pub(super) struct ZygoteCommand {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) work_dir: PathBuf,
    /// How long checkpointed containers may run without an agent.
    pub(super) patience: Duration,
}

/// A zygote that is ready.
pub(super) struct Zygote {
    pub(super) process: ZygoteProcess,
    pub(super) socket: UnixStream,
    /// Bytes received after its first report.
    pub(super) received: Vec<u8>,
    /// Containers of an earlier agent.
    pub(super) left: Vec<LeftContainer>,
}

/// The zygote's process.
pub(super) enum ZygoteProcess {
    /// A child of this process.
    Child(Child),
    /// Started by an earlier agent.
    Resumed(ProcessHandle),
}

impl ZygoteProcess {
    /// Kills the zygote, and with it all containers.
    pub(super) fn end(&mut self) {
        match self {
            Self::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Self::Resumed(process) => {
                let _ = process.kill(); // It may have ended.
            }
        }
    }
}

impl ZygoteCommand {
    /// Starts a zygote and waits until it is ready.
    pub(super) fn start(&self) -> Result<Zygote, ZygoteError> {
        let start = |source| ZygoteError::Start {
            program: self.program.display().to_string(),
            source,
        };
        let (ours, theirs) = UnixStream::pair().map_err(start)?;
        let mut command = Command::new(&self.program);
        // Executors and tasks of the same user can read a zygote's environment, so it gets none of
        // the agent's.
        command
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(start)?;
        // Drops the zygote's end of the socket, so that its death closes the connection.
        drop(command);
        let mut process = ZygoteProcess::Child(child);
        let serve = Request::Serve {
            work_dir: self.work_dir.clone(),
            patience: self.patience,
        };
        let problem = match handshake(&ours, &serve) {
            Ok((Report::Ready, received)) => {
                return Ok(Zygote {
                    process,
                    socket: ours,
                    received,
                    left: Vec::new(),
                });
            }
            Ok((Report::Unable { reason }, _)) => ZygoteError::Unable(reason),
            Ok((other, _)) => ZygoteError::Silent(unexpected(&other)),
            Err(error) => ZygoteError::Silent(error),
        };
        process.end();
        Err(problem)
    }

    /// Resumes the zygote of an earlier agent; `None` if there is none.
    pub(super) fn resume(&self) -> Result<Option<Zygote>, ZygoteError> {
        let Ok(socket) = UnixStream::connect(self.work_dir.join(SOCKET)) else {
            return Ok(None);
        };
        let foreign = |problem: String| ZygoteError::Foreign {
            work_dir: self.work_dir.display().to_string(),
            problem,
        };
        let (peer, process) = match pin_peer(&socket) {
            Ok(held) => held,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(foreign(error.to_string())),
        };
        if peer.uid() != nix::unistd::geteuid().as_raw() {
            return Err(foreign(format!("it runs as user {}", peer.uid())));
        }
        let resume = Request::Resume {
            form: FORM,
            patience: self.patience,
        };
        match handshake(&socket, &resume) {
            Ok((Report::Resumed { left }, received)) => {
                tracing::info!(
                    containers = left.len(),
                    pid = peer.pid(),
                    "resuming the executor launcher of an earlier agent"
                );
                Ok(Some(Zygote {
                    process: ZygoteProcess::Resumed(process),
                    socket,
                    received,
                    left,
                }))
            }
            Ok((Report::Unable { reason }, _)) => Err(foreign(reason)),
            Ok((other, _)) => Err(foreign(unexpected(&other).to_string())),
            // It had no waiting containers and is ending; a new zygote waits for that.
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(foreign(error.to_string())),
        }
    }

    /// Kills the zygote of an earlier agent and its leftovers. Returns the number of its
    /// containers.
    pub(super) fn clean_up(&self) -> Result<usize, ZygoteError> {
        let left = match self.resume() {
            Ok(Some(mut zygote)) => {
                zygote.process.end();
                zygote.left.len()
            }
            Ok(None) => 0,
            // It cannot be resumed, but it can be killed.
            Err(error) => {
                tracing::warn!(%error, "cannot resume the executor launcher; killing it");
                let socket = UnixStream::connect(self.work_dir.join(SOCKET));
                if let Ok((_, process)) = socket.and_then(|socket| pin_peer(&socket)) {
                    ZygoteProcess::Resumed(process).end();
                }
                0
            }
        };
        // A new zygote first kills all leftovers, and ends with its agent.
        let zygote = self.start()?;
        drop(zygote.socket);
        if let ZygoteProcess::Child(mut child) = zygote.process {
            let _ = child.wait();
        }
        Ok(left)
    }
}

/// The peer process of this socket, pinned by a pidfd.
fn pin_peer(socket: &UnixStream) -> io::Result<(UnixCredentials, ProcessHandle)> {
    let peer = getsockopt(socket, PeerCredentials)?;
    let process = ProcessHandle::of(peer.pid())?;
    // The connection is still open, so the process with this pid lived when the pidfd was opened.
    let mut byte = [0];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    match socket::recv(socket.as_raw_fd(), &mut byte, flags) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) | Err(Errno::EAGAIN) => Ok((peer, process)),
        Err(error) => Err(error.into()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    ) || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

fn unexpected(report: &Report) -> io::Error {
    io::Error::other(format!("unexpected first report {report:?}"))
}

/// Sends the first request and waits for its answer. Also returns the bytes received after it.
fn handshake(mut socket: &UnixStream, first: &Request) -> io::Result<(Report, Vec<u8>)> {
    let bytes = wire::encode(first).map_err(io::Error::other)?;
    socket.set_read_timeout(Some(READY_PATIENCE))?;
    socket.write_all(&bytes)?;
    let mut received = Vec::new();
    // Terminates: each round reads bytes, returns the answer, or fails.
    loop {
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&buffer[..count]),
        }
        if let Some(report) = wire::decode::<Report>(&mut received).map_err(io::Error::other)? {
            return Ok((report, received));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_pinned_only_while_connected() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (peer, _) = pin_peer(&ours).unwrap();
        assert_eq!(peer.pid(), std::process::id() as i32);
        theirs.write_all(b"a word").unwrap();
        assert!(pin_peer(&ours).is_ok());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let gone = pin_peer(&ours).map(|_| ()).unwrap_err();
        assert!(is_gone(&gone), "{gone}");
    }
}
