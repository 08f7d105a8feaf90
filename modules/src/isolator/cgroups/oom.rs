//! Memory events of a group: awaited without a thread.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::io::Interest;

use super::controllers::{Setting, Version};
use super::files::{self, FileError};
use crate::kernel_event::KernelEvent;

/// A registration for the events of one group. It ends when it is dropped.
///
/// v1 has an event descriptor, which the kernel writes when the group is out of memory and when it
/// is removed. v2 has the file `memory.events`, which has priority data after each change.
#[derive(Debug)]
pub struct MemoryEvents(KernelEvent);

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
                files::write(dir, &Setting::new(file, value))?;
                Ok(Self(KernelEvent::new(event.into(), Interest::READABLE)))
            }
            Version::V2 => {
                let source = open("memory.events")?;
                // Only changes after a read are events.
                let read = io::read_to_string(&source);
                read.map_err(|error| FileError::new("read", &dir.join("memory.events"), error))?;
                Ok(Self(KernelEvent::new(source.into(), Interest::PRIORITY)))
            }
        }
    }

    /// Completes at the next event. Needs a runtime with I/O.
    pub async fn next(self) -> io::Result<()> {
        self.0.next().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// The kernel notifies of changes in `memory.events` as in `cgroup.events`, which a unified
    /// tree without controllers has as well.
    #[test]
    fn changed_file_of_the_unified_tree_is_an_event() {
        let skipped = |reason: &dyn std::fmt::Display| {
            _ = writeln!(io::stderr(), "skipped: no writable unified tree: {reason}");
        };
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let is_unified = |mount: &&Path| mount.join("cgroup.controllers").exists();
        let Some(mount) = mounts.into_iter().find(is_unified) else {
            return skipped(&"not mounted");
        };
        let dir = mount.join(format!("meros-test-{}-events", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            return skipped(&error);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let source = File::open(dir.join("cgroup.events")).unwrap();
            assert!(io::read_to_string(&source).unwrap().contains("populated 0"));
            let events = MemoryEvents(KernelEvent::new(source.into(), Interest::PRIORITY));
            let script = r#"echo $$ > "$0/cgroup.procs" && read line"#;
            let mut command = Command::new("sh");
            command.args(["-c", script]).arg(&dir).stdin(Stdio::piped());
            let mut process = command.spawn().unwrap();
            events.next().await.unwrap();
            assert!(files::read(&dir, "cgroup.events").contains("populated 1"));
            drop(process.stdin.take());
            process.wait().unwrap();
        });
        files::remove(&dir).unwrap();
    }
}
