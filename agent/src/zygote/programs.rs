//! What a container init runs beside its own program: further programs, for example the commands of
//! checks, and the inits of nested containers.
//!
//! The init starts them on request of the zygote, so they have its namespaces, its control group
//! and its limits without further steps. A program leads a process group, which is killed with it.
//! All count as processes of the container: its end kills them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use protocol::{ContainerId, Termination, Uuid};

use super::wire::{InitEvent, InitOrder, InitRequest, ProgramEnd};
use crate::host::{procfs, sys};

/// Maximum bytes of a request.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of requests that may wait for an init.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The further programs and nested containers of one container.
#[derive(Debug, Default)]
pub(super) struct Programs {
    requests: Option<OwnedFd>,
    running: BTreeMap<i32, Uuid>,
    nested: BTreeMap<i32, Nested>,
}

/// The init of a nested container.
#[derive(Debug)]
pub(super) struct Nested {
    pub(super) container_id: ContainerId,
    /// For its requests.
    pub(super) requests: OwnedFd,
}

/// The sender's end, which does not block, and the init's end of a socket for requests. It is
/// bounded in bytes; of datagrams it would hold ten.
pub(super) fn request_sockets() -> Result<(OwnedFd, OwnedFd), String> {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    let sockets = socketpair(family, kind, None, SockFlag::SOCK_CLOEXEC);
    let sockets = sockets.and_then(|(ours, theirs)| {
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // Without the right to it, the usual 200 KiB remain.
        let _ = setsockopt(&ours, SndBufForce, &WAITING_BYTES_MAX);
        Ok((ours, theirs))
    });
    sockets.map_err(|error| format!("socket: {error}"))
}

impl Programs {
    /// None yet; requests arrive here.
    pub(super) fn on_request(requests: Option<OwnedFd>) -> Self {
        Self {
            requests,
            ..Self::default()
        }
    }

    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.requests.as_ref().map(AsFd::as_fd)
    }

    /// Receives a request to the init of `own`, if there is one. Those to nested containers are
    /// passed on.
    pub(super) fn receive(&mut self, own: &ContainerId) -> Option<(InitOrder, Vec<OwnedFd>)> {
        let requests = self.requests.as_ref()?;
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let (length, descriptors) = sys::receive(requests, &mut buffer).ok()?;
        if length == 0 {
            self.requests = None; // The zygote has ended, and this process will.
            return None;
        }
        match serde_json::from_slice::<InitRequest>(&buffer[..length]) {
            Ok(InitRequest { to, order }) if to == *own => return Some((order, descriptors)),
            Ok(InitRequest { to, .. }) => {
                let is_there =
                    |one: &&Nested| one.container_id == to || to.is_inside(&one.container_id);
                if let Some(nested) = self.nested.values().find(is_there) {
                    // One that takes no more ends with this container.
                    let _ = sys::send(&nested.requests, &buffer[..length], &descriptors);
                }
            }
            Err(error) => eprintln!("container init: invalid request: {error}"),
        }
        None
    }

    /// A further program was started.
    pub(super) fn started(&mut self, pid: i32, program: Uuid) {
        self.running.insert(pid, program);
    }

    /// The init of a nested container was forked.
    pub(super) fn nested_forked(&mut self, pid: i32, nested: Nested) {
        self.nested.insert(pid, nested);
    }

    /// Kills a further program.
    pub(super) fn kill(&self, program: Uuid) {
        let found = self.running.iter().find(|(_, one)| **one == program);
        if let Some((&pid, _)) = found {
            kill_tree(pid);
        }
    }

    /// Kills all further programs. None is reaped, so their ids are valid.
    pub(super) fn kill_all(&self) {
        self.running.keys().for_each(|&pid| kill_tree(pid));
    }

    /// Asks the inits of nested containers to kill them.
    pub(super) fn kill_nested(&self) {
        for nested in self.nested.values() {
            let to = nested.container_id.clone();
            let order = InitOrder::KillContainer;
            if let Ok(bytes) = serde_json::to_vec(&InitRequest { to, order }) {
                // Otherwise they end with this container.
                let _ = sys::send(&nested.requests, &bytes, &[]);
            }
        }
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

    /// The report of a reaped child, if it is a further program.
    pub(super) fn reaped(&mut self, pid: i32, termination: Termination) -> Option<InitEvent> {
        let program = self.running.remove(&pid)?;
        let end = ProgramEnd::Ended(termination);
        Some(InitEvent::ProgramEnded { program, end })
    }

    /// The container of a reaped child, if it is the init of a nested one.
    pub(super) fn nested_reaped(&mut self, pid: i32) -> Option<ContainerId> {
        let nested = self.nested.remove(&pid)?;
        Some(nested.container_id)
    }

    /// Kills what a nested container has left behind: its init was killed, and this process
    /// inherited its children. `main` is not one of them.
    pub(super) fn kill_left_behind(&self, main: Option<i32>) {
        let own = nix::unistd::getpid().as_raw();
        let children = procfs::descendants_of(own).unwrap_or_default();
        let children = children.iter().filter(|process| process.parent == own);
        let unknown = children.map(|process| process.pid).filter(|pid| {
            !self.running.contains_key(pid) && !self.nested.contains_key(pid) && main != Some(*pid)
        });
        for pid in unknown {
            kill_tree(pid);
        }
    }
}

/// Kills the group of a process that is not reaped yet, and its other descendants.
fn kill_tree(pid: i32) {
    let descendants = procfs::descendants_of(pid).unwrap_or_default();
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    for process in descendants {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL); // It may have ended.
    }
}
