//! The connection between a zygote and its agent: a socket, and a listener for the next agent.
//!
//! Holds partially received requests. The listener is a socket file in the
//! work directory; connections are accepted only while there is no agent.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::wire::{self, Report, Request, SOCKET};
use crate::host::sys;

/// Listens for the next agent.
struct NextAgentListener {
    listener: UnixListener,
    path: PathBuf,
}

/// The connection.
pub(super) struct AgentConnection {
    agent: Option<UnixStream>,
    next_agent: Option<NextAgentListener>,
    received: Vec<u8>,
    /// Those of received requests.
    descriptors: VecDeque<OwnedFd>,
}

impl AgentConnection {
    pub(super) fn to(agent: UnixStream) -> Self {
        Self {
            agent: Some(agent),
            next_agent: None,
            received: Vec::new(),
            descriptors: VecDeque::new(),
        }
    }

    /// Whether an agent is connected.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// The descriptor to poll: the agent's socket, or the listener without an agent.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match (&self.agent, &self.next_agent) {
            (Some(agent), _) => Some(agent.as_fd()),
            (None, Some(next_agent)) => Some(next_agent.listener.as_fd()),
            (None, None) => None,
        }
    }

    /// Starts listening in this directory. Replaces the socket file of an earlier zygote; the
    /// directory is locked, so it has no other owner.
    pub(super) fn listen(&mut self, work_dir: &Path) -> io::Result<()> {
        let path = work_dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // A connection may be gone before it is accepted.
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        self.next_agent = Some(NextAgentListener { listener, path });
        Ok(())
    }

    /// Whether the socket file still exists, so that another agent can connect.
    pub(super) fn is_reachable(&self) -> bool {
        self.next_agent
            .as_ref()
            .is_some_and(|next_agent| next_agent.path.exists())
    }

    /// Stops listening.
    pub(super) fn stop_listening(&mut self) {
        if let Some(next_agent) = self.next_agent.take() {
            let _ = std::fs::remove_file(next_agent.path); // Its directory may have been deleted.
        }
    }

    /// Disconnects the agent.
    pub(super) fn disconnect(&mut self) {
        self.agent = None;
        self.received.clear();
        self.descriptors.clear();
    }

    /// Takes the descriptors of the next request that has some; fewer if they did not come.
    pub(super) fn take_descriptors(&mut self, count: usize) -> Vec<OwnedFd> {
        let count = count.min(self.descriptors.len());
        self.descriptors.drain(..count).collect()
    }

    /// Receives from the agent. `false` at the end of the stream.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let Some(agent) = &self.agent else {
            return false;
        };
        match sys::receive(agent, buffer) {
            Ok((0, _)) => false,
            Ok((length, descriptors)) => {
                self.received.extend_from_slice(&buffer[..length]);
                // They come with the first byte of their message, or before.
                self.descriptors.extend(descriptors);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    /// Accepts the next agent.
    pub(super) fn accept(&mut self) {
        let Some(next_agent) = &self.next_agent else {
            return;
        };
        match next_agent.listener.accept() {
            Ok((agent, _)) => self.agent = Some(agent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => eprintln!("executor-zygote: cannot accept the next agent: {error}"),
        }
    }

    /// Decodes the next request.
    pub(super) fn request(&mut self) -> Result<Option<Request>, wire::WireError> {
        wire::decode(&mut self.received)
    }

    /// Sends a report. `false` if it was not sent.
    pub(super) fn send(&mut self, report: &Report) -> bool {
        let Some(agent) = &mut self.agent else {
            return false;
        };
        match wire::encode(report) {
            Ok(bytes) => agent.write_all(&bytes).is_ok(),
            Err(error) => {
                eprintln!("executor-zygote: cannot send a report: {error}");
                true
            }
        }
    }

    /// Disconnects a forked child from the agent. The socket file stays with the parent.
    pub(super) fn detach(&mut self) {
        self.agent = None;
        self.next_agent = None;
        self.received = Vec::new();
        self.descriptors.clear();
    }
}
