//! The line between a zygote and its agent: their socket, and a door for the agent that may follow when this one is gone.
//!
//! Remembers what has arrived in part, and the ends that no agent has been told. The door is a socket file in the work directory; it is
//! answered only while there is no agent. Never decides what lives on.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use protocol::ContainerId;

use super::wire::{self, Report, Request, SOCKET};

/// Where the next agent knocks.
struct Door {
    listener: UnixListener,
    path: PathBuf,
}

/// The line.
pub(super) struct Line {
    agent: Option<UnixStream>,
    door: Option<Door>,
    arrived: Vec<u8>,
    untold: Vec<Report>,
}

impl Line {
    pub(super) fn to(agent: UnixStream) -> Self {
        Self {
            agent: Some(agent),
            door: None,
            arrived: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Whether there is an agent.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// What becomes readable when somebody has something to say: the agent, or without one whoever knocks.
    pub(super) fn ear(&self) -> Option<BorrowedFd<'_>> {
        match (&self.agent, &self.door) {
            (Some(agent), _) => Some(agent.as_fd()),
            (None, Some(door)) => Some(door.listener.as_fd()),
            (None, None) => None,
        }
    }

    /// Opens a door in this directory, which is ours alone: what an earlier zygote left there is replaced.
    pub(super) fn open_door(&mut self, work_dir: &Path) -> io::Result<()> {
        let path = work_dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // Whoever knocks may be gone before the door is opened.
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        self.door = Some(Door { listener, path });
        Ok(())
    }

    /// Whether another agent can still find its way here.
    pub(super) fn can_be_found(&self) -> bool {
        self.door.as_ref().is_some_and(|door| door.path.exists())
    }

    /// Nobody is let in any more.
    pub(super) fn shut_door(&mut self) {
        if let Some(door) = self.door.take() {
            let _ = std::fs::remove_file(door.path); // It may be gone with its directory.
        }
    }

    /// The agent is gone.
    pub(super) fn hang_up(&mut self) {
        self.agent = None;
        self.arrived.clear();
    }

    /// Takes what the agent has said. `false` when it is gone.
    pub(super) fn hear(&mut self, buffer: &mut [u8]) -> bool {
        let Some(agent) = &mut self.agent else {
            return false;
        };
        match agent.read(buffer) {
            Ok(0) => false,
            Ok(length) => {
                self.arrived.extend_from_slice(&buffer[..length]);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    /// Lets in whoever knocks.
    pub(super) fn welcome(&mut self) {
        let Some(door) = &self.door else { return };
        match door.listener.accept() {
            Ok((agent, _)) => self.agent = Some(agent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => eprintln!("executor-zygote: the next agent is not let in: {error}"),
        }
    }

    /// The next thing that the agent wants.
    pub(super) fn request(&mut self) -> Result<Option<Request>, wire::WireError> {
        wire::decode(&mut self.arrived)
    }

    /// Tells the agent. `false` when it did not hear.
    pub(super) fn tell(&mut self, report: &Report) -> bool {
        let Some(agent) = &mut self.agent else {
            return false;
        };
        match wire::encode(report) {
            Ok(bytes) => agent.write_all(&bytes).is_ok(),
            Err(error) => {
                eprintln!("executor-zygote: a report is not told: {error}");
                true
            }
        }
    }

    /// Keeps an end for the next agent.
    pub(super) fn keep(&mut self, report: Report) {
        self.untold.push(report);
    }

    /// What was kept.
    pub(super) fn take_untold(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.untold)
    }

    /// The line of a process that was forked: it must hear nobody and be heard by nobody. The door stays its parent's.
    pub(super) fn cut(&mut self, nobody: UnixStream) {
        self.agent = Some(nobody);
        self.door = None;
        self.arrived = Vec::new();
        self.untold = Vec::new();
    }
}

/// Whose end this report tells, if it tells one.
pub(super) fn whose_end<'a>(
    report: &'a Report,
    of: &BTreeSet<ContainerId>,
) -> Option<&'a ContainerId> {
    match report {
        Report::Exited { container_id, .. } if of.contains(container_id) => Some(container_id),
        _ => None,
    }
}
