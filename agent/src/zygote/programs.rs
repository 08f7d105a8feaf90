//! Further programs in a container, for example the commands of checks.
//!
//! The container init starts them on request of the zygote, so they have its namespaces, its
//! control group and its limits without further steps. Each leads a process group, which is killed
//! with it. They count as processes of the container: its end kills them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use protocol::{CommandInfo, Termination, Uuid};

use super::wire::{InitEvent, InitRequest, ProgramEnd};
use crate::host::procfs;

/// Maximum bytes of a request; the usual bound of a datagram in Linux.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// The further programs of one container.
#[derive(Debug, Default)]
pub(super) struct Programs {
    requests: Option<UnixDatagram>,
    running: BTreeMap<i32, Uuid>,
}

impl Programs {
    /// None yet; requests arrive here.
    pub(super) fn on_request(requests: Option<UnixDatagram>) -> Self {
        Self {
            requests,
            running: BTreeMap::new(),
        }
    }

    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.requests.as_ref().map(AsFd::as_fd)
    }

    /// Handles one request, if there is one. Returns the report of a program that does not start.
    pub(super) fn handle_request(
        &mut self,
        start: impl FnOnce(&CommandInfo) -> Result<i32, String>,
    ) -> Option<InitEvent> {
        let requests = self.requests.as_ref()?;
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let length = requests.recv(&mut buffer).ok()?;
        match serde_json::from_slice(&buffer[..length]) {
            Ok(InitRequest::Run { program, command }) => match start(&command) {
                Ok(pid) => {
                    self.running.insert(pid, program);
                }
                Err(reason) => {
                    let end = ProgramEnd::NotStarted(reason);
                    return Some(InitEvent::ProgramEnded { program, end });
                }
            },
            Ok(InitRequest::Kill(program)) => {
                let found = self.running.iter().find(|(_, one)| **one == program);
                if let Some((&pid, _)) = found {
                    kill_tree(pid);
                }
            }
            Ok(InitRequest::KillAll) => self.kill_all(),
            Err(error) => eprintln!("container init: invalid request: {error}"),
        }
        None
    }

    /// Kills all of them. None is reaped, so their ids are valid.
    pub(super) fn kill_all(&self) {
        self.running.keys().for_each(|&pid| kill_tree(pid));
    }

    /// Kills the groups of those that have ended and are not reaped yet, while their ids cannot
    /// denote other groups.
    pub(super) fn end_groups(&self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        for pid in self.running.keys().map(|&pid| Pid::from_raw(pid)) {
            if !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)) {
                let _ = killpg(pid, Signal::SIGKILL); // It may be the only process.
            }
        }
    }

    /// The report of a reaped child, if it is one of them.
    pub(super) fn reaped(&mut self, pid: i32, termination: Termination) -> Option<InitEvent> {
        let program = self.running.remove(&pid)?;
        let end = ProgramEnd::Ended(termination);
        Some(InitEvent::ProgramEnded { program, end })
    }
}

/// Kills the group of a process that is not reaped yet, and its other descendants.
fn kill_tree(pid: i32) {
    let descendants = procfs::descendants_of(pid).unwrap_or_default();
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    for process in descendants {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL); // It may have ended.
    }
}
