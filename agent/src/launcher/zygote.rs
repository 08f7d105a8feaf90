//! How an agent comes by its zygote: it starts one, or goes on with the one that an earlier agent has left.
//!
//! Blocking functions. A zygote that was left is no child of this agent; the kernel says which process it is. Never takes one that is
//! another user's, or that speaks otherwise.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, UnixCredentials, getsockopt, sockopt::PeerCredentials};

use super::ZygoteError;
use crate::sys::HeldProcess;
use crate::zygote::wire::{self, FORM, Left, Report, Request, SOCKET};

/// How long a zygote may take to be ready; it may have to end what an earlier agent left behind.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// How a zygote is started, and where.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) work_dir: PathBuf,
    /// How long what outlives the agent may be without one.
    pub(super) patience: Duration,
}

/// A zygote that is ready.
pub(super) struct Zygote {
    pub(super) body: Body,
    pub(super) socket: UnixStream,
    /// What it has said already beside that it is ready.
    pub(super) arrived: Vec<u8>,
    /// What an earlier agent has left with it.
    pub(super) left: Vec<Left>,
}

/// The zygote's process.
pub(super) enum Body {
    /// Ours.
    Child(Child),
    /// An earlier agent's.
    Left(HeldProcess),
}

impl Body {
    /// Ends it, whatever state it is in, and all executors with it.
    pub(super) fn end(&mut self) {
        match self {
            Self::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Self::Left(process) => {
                let _ = process.kill(); // It may have ended.
            }
        }
    }
}

impl Recipe {
    /// Starts a zygote and waits until it is ready.
    pub(super) fn start(&self) -> Result<Zygote, ZygoteError> {
        let start = |source| ZygoteError::Start {
            program: self.program.display().to_string(),
            source,
        };
        let (ours, theirs) = UnixStream::pair().map_err(start)?;
        let mut command = Command::new(&self.program);
        // Executors and tasks of this user can read a zygote's environment: it has none of the agent's.
        command
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(start)?;
        // The command holds the zygote's end; without it the zygote's death shows.
        drop(command);
        let mut body = Body::Child(child);
        let serve = Request::Serve {
            work_dir: self.work_dir.clone(),
            patience: self.patience,
        };
        let problem = match greet(&ours, &serve) {
            Ok((Report::Ready, arrived)) => {
                return Ok(Zygote {
                    body,
                    socket: ours,
                    arrived,
                    left: Vec::new(),
                });
            }
            Ok((Report::Unable { reason }, _)) => ZygoteError::Unable(reason),
            Ok((other, _)) => ZygoteError::Silent(unexpected(&other)),
            Err(error) => ZygoteError::Silent(error),
        };
        body.end();
        Err(problem)
    }

    /// Goes on with the zygote that an earlier agent has left; `None` if there is none.
    pub(super) fn resume(&self) -> Result<Option<Zygote>, ZygoteError> {
        let Ok(socket) = UnixStream::connect(self.work_dir.join(SOCKET)) else {
            return Ok(None);
        };
        let foreign = |problem: String| ZygoteError::Foreign {
            work_dir: self.work_dir.display().to_string(),
            problem,
        };
        let (peer, process) = match hold(&socket) {
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
        match greet(&socket, &resume) {
            Ok((Report::Resumed { left }, arrived)) => {
                tracing::info!(
                    containers = left.len(),
                    pid = peer.pid(),
                    "the executor launcher of an earlier agent goes on"
                );
                Ok(Some(Zygote {
                    body: Body::Left(process),
                    socket,
                    arrived,
                    left,
                }))
            }
            Ok((Report::Unable { reason }, _)) => Err(foreign(reason)),
            Ok((other, _)) => Err(foreign(unexpected(&other).to_string())),
            // It had nothing to wait with and is ending; the next one waits for that.
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(foreign(error.to_string())),
        }
    }

    /// Ends what an earlier agent has left in the work directory, with its zygote. Gives how many containers that were.
    pub(super) fn clean_up(&self) -> Result<usize, ZygoteError> {
        let left = match self.resume() {
            Ok(Some(mut zygote)) => {
                zygote.body.end();
                zygote.left.len()
            }
            Ok(None) => 0,
            // It cannot be spoken with, but it can be ended.
            Err(error) => {
                tracing::warn!(%error, "ended without a word");
                let socket = UnixStream::connect(self.work_dir.join(SOCKET));
                if let Ok((_, process)) = socket.and_then(|socket| hold(&socket)) {
                    Body::Left(process).end();
                }
                0
            }
        };
        // A new one begins by ending whatever else is left, and ends with its agent.
        let zygote = self.start()?;
        drop(zygote.socket);
        if let Body::Child(mut child) = zygote.body {
            let _ = child.wait();
        }
        Ok(left)
    }
}

/// The process that has the other end of this socket.
fn hold(socket: &UnixStream) -> io::Result<(UnixCredentials, HeldProcess)> {
    let peer = getsockopt(socket, PeerCredentials)?;
    let process = HeldProcess::of(peer.pid())?;
    // It still has that end, so it lives, and it was the one with this number when that was held.
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

/// Says the first thing to a zygote, and waits for its answer; what it says after that is given too, be it whole or not.
fn greet(mut socket: &UnixStream, first: &Request) -> io::Result<(Report, Vec<u8>)> {
    let bytes = wire::encode(first).map_err(io::Error::other)?;
    socket.set_read_timeout(Some(READY_PATIENCE))?;
    socket.write_all(&bytes)?;
    let mut arrived = Vec::new();
    // Ends: each round reads something, has the whole answer, or fails.
    loop {
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => arrived.extend_from_slice(&buffer[..count]),
        }
        if let Some(report) = wire::decode::<Report>(&mut arrived).map_err(io::Error::other)? {
            return Ok((report, arrived));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_other_end_is_held_and_nobody_when_that_is_closed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (peer, _) = hold(&ours).unwrap();
        assert_eq!(peer.pid(), std::process::id() as i32);
        theirs.write_all(b"a word").unwrap();
        assert!(hold(&ours).is_ok());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let gone = hold(&ours).map(|_| ()).unwrap_err();
        assert!(is_gone(&gone), "{gone}");
    }
}
