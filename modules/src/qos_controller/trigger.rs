//! The kernel's pressure triggers: a file of a control group is ready as soon as its processes have
//! waited for some time within a window. At most one event in each window.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::Interest;

use crate::kernel_event::KernelEvent;

/// The window: the shortest in which a tenth of the bounds is more than a tick.
const WINDOW: Duration = Duration::from_secs(1);
/// The shortest window without privileges.
const WINDOW_UNPRIVILEGED: Duration = Duration::from_secs(2);

/// A pressure file, and the part of the time from which on it is ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trigger {
    /// `cpu.pressure`, `memory.pressure` or `io.pressure` of a control group.
    pub file: PathBuf,
    /// Thousandths of the window in which at least one process waits.
    pub thousandths: u32,
}

impl Trigger {
    /// Registers. Blocks shortly.
    pub fn open(&self) -> io::Result<KernelEvent> {
        match self.open_with(WINDOW) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.open_with(WINDOW_UNPRIVILEGED)
            }
            opened => opened,
        }
    }

    fn open_with(&self, window: Duration) -> io::Result<KernelEvent> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.file)?;
        let stall = window * self.thousandths / 1000;
        let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        file.write_all(text.as_bytes())?;
        Ok(KernelEvent::new(file.into(), Interest::PRIORITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn missing_file_is_an_error() {
        let trigger = Trigger {
            file: PathBuf::from("/nowhere/cpu.pressure"),
            thousandths: 150,
        };
        let error = trigger.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    /// Processes that wait for a CPU in a group of their own.
    #[test]
    fn waiting_processes_fire_the_trigger() {
        let skipped = |reason: &dyn std::fmt::Display| {
            _ = writeln!(io::stderr(), "skipped: no pressure triggers: {reason}");
        };
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let counts = |mount: &&Path| mount.join("cpu.pressure").exists();
        let Some(mount) = mounts.into_iter().find(counts) else {
            return skipped(&"no pressure files");
        };
        let dir = mount.join(format!("meros-test-{}-trigger", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            return skipped(&error);
        }
        let group = Group(dir);
        let trigger = Trigger {
            file: group.0.join("cpu.pressure"),
            thousandths: 100,
        };
        let event = match trigger.open() {
            Ok(event) => event,
            Err(error) => return skipped(&error),
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let script = format!(
            r#"echo $$ > "$0/cgroup.procs" && for n in $(seq {}); do (while :; do :; done) & done; wait"#,
            cpus + 1
        );
        let mut command = Command::new("sh");
        let mut process = command.args(["-c", &script]).arg(&group.0).spawn().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let fires = async {
                let event = event.next().await.unwrap();
                event.next().await.unwrap();
            };
            let patience = std::time::Duration::from_secs(60);
            let fired = runtime::Clock::real().timeout(patience, fires).await;
            fired.expect("the processes wait all the time");
        });
        drop(group);
        process.wait().unwrap();
    }

    /// A control group, whose processes end with it.
    struct Group(PathBuf);

    impl Drop for Group {
        fn drop(&mut self) {
            fs::write(self.0.join("cgroup.kill"), "1").unwrap();
            // Killed processes leave it a moment later.
            while let Err(error) = fs::remove_dir(&self.0) {
                assert_eq!(error.kind(), ErrorKind::ResourceBusy);
                std::thread::yield_now();
            }
        }
    }
}
