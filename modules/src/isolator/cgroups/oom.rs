//! Memory events of a group: awaited without a thread.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::controllers::{Setting, Version};
use super::files::{self, FileError};

/// A registration for the events of one group. It ends when it is dropped.
///
/// v1 has an event descriptor, which the kernel writes when the group is out of memory and when it
/// is removed. v2 has the file `memory.events`, which has priority data after each change.
#[derive(Debug)]
pub struct MemoryEvents {
    source: OwnedFd,
    interest: Interest,
}

impl MemoryEvents {
    /// Registers for the group in this directory. Blocks.
    pub fn open(dir: &Path, version: Version) -> Result<Self, FileError> {
        let open = |file: &str| {
            let path = dir.join(file);
            File::open(&path).map_err(|error| FileError::new("open", &path, error))
        };
        match version {
            Version::V1 => {
                let source = open("memory.oom_control")?;
                let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
                let event = EventFd::from_flags(flags).map_err(|error| {
                    FileError::new("make an event descriptor for", dir, error.into())
                })?;
                let value = format!("{} {}", event.as_raw_fd(), source.as_raw_fd());
                let file = "cgroup.event_control";
                files::write(dir, &Setting { file, value })?;
                Ok(Self {
                    source: event.into(),
                    interest: Interest::READABLE,
                })
            }
            Version::V2 => {
                let source = open("memory.events")?;
                // Only changes after a read are events.
                let read = io::read_to_string(&source);
                read.map_err(|error| FileError::new("read", &dir.join("memory.events"), error))?;
                Ok(Self {
                    source: source.into(),
                    interest: Interest::PRIORITY,
                })
            }
        }
    }

    /// Completes at the next event. Needs a runtime with I/O.
    pub async fn next(self) -> io::Result<()> {
        // SAFETY: an `OwnedFd` is open, and the same descriptor, until it is dropped.
        #[allow(unsafe_code)]
        let source = unsafe { AsyncFd::register_with_interest(self.source, self.interest) }?;
        source.ready(self.interest).await?.retain_ready();
        Ok(())
    }
}
