//! The process of a module and its Unix socket.
//!
//! It is the leader of a process group, in `/`, with an environment of its own. It inherits no
//! descriptors but its standard ones: its input is a pipe that the agent never writes, so that its
//! end shows the agent's; its output is discarded, its error output is the agent's. The socket is
//! in a directory that only the agent's user can enter.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use module_api::wire;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use runtime::{Clock, Timestamp};
use tempfile::TempDir;
use tokio::net::UnixStream;

/// How the names of the directories of sockets begin.
const DIRECTORY: &str = "meros-module-";
/// A directory of this age is a leftover: a module has 10 seconds to listen.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);
/// Pause between two attempts to reach a module that has just been started.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Where programs are looked up if the agent has no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that runs the module's own in its place, so that it ends with the agent even if it
/// ignores its standard input. It gets the module's program as its last argument.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
}

/// A running module. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct ModuleProcess {
    child: Child,
    /// Until it is connected. An agent that is killed before leaves it behind.
    directory: Option<TempDir>,
    is_killed: bool,
}

impl ModuleProcess {
    /// Starts the program. Takes a few milliseconds. Must be called on a thread that lives as long
    /// as the module is needed: a starter lets the end of that thread end the module.
    pub(super) fn start(program: &Path, starter: Option<&Starter>) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let mut command = match starter {
            Some(starter) => {
                let mut command = Command::new(&starter.program);
                command.args(&starter.arguments).arg(program);
                command
            }
            None => Command::new(program),
        };
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let child = command
            .env_clear()
            .env("PATH", path)
            .env(wire::SOCKET, socket(&directory))
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self {
            child,
            directory: Some(directory),
            is_killed: false,
        })
    }

    /// Connects once it listens. Waits as long as it runs: the caller bounds that.
    pub(super) async fn connect(&mut self, clock: &Clock) -> Result<UnixStream, String> {
        let socket = self.directory.as_ref().map(socket).unwrap_or_default();
        loop {
            // Otherwise it does not listen yet.
            if let Ok(stream) = UnixStream::connect(&socket).await {
                self.directory = None;
                return Ok(stream);
            }
            if self.has_ended() {
                return Err("it ended before it listened".to_owned());
            }
            clock.sleep(CONNECT_PAUSE).await;
        }
    }

    /// Whether it has ended. It stays a zombie, so that its id is not used again.
    fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let ended = waitid(Id::Pid(self.pid()), flags);
        ended.is_ok_and(|status| status != WaitStatus::StillAlive)
    }

    /// Kills it and waits for its end. Blocking, but only for moments. Returns how it has ended,
    /// unless by that.
    pub(super) fn stop(mut self) -> Option<String> {
        self.kill();
        let status = self.child.wait().ok()?;
        match (status.code(), status.signal()) {
            // Its answer to the end of its connection.
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("it exited with status {code}")),
            (None, Some(signal)) if signal != Signal::SIGKILL as i32 => {
                Some(format!("it was terminated by signal {signal}"))
            }
            _ => None,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_killed, true) {
            let _ = killpg(self.pid(), Signal::SIGKILL); // It may have ended just now.
        }
    }
}

impl Drop for ModuleProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Removes the directories in the temporary one that killed agents have left behind.
pub(super) fn remove_leftovers(now: Timestamp) {
    remove_leftovers_in(&std::env::temp_dir(), now);
}

fn remove_leftovers_in(directory: &Path, now: Timestamp) {
    let latest = SystemTime::UNIX_EPOCH + now.saturating_since(Timestamp::from_nanos(0));
    let is_leftover = |entry: &std::fs::DirEntry| {
        let changed = entry.metadata().and_then(|data| data.modified());
        let age = changed.map(|changed| latest.duration_since(changed).unwrap_or_default());
        let is_ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(DIRECTORY.as_bytes());
        is_ours && age.is_ok_and(|age| age >= LEFTOVER_AGE)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for leftover in entries.filter(is_leftover) {
        let _ = std::fs::remove_dir_all(leftover.path()); // It may be another user's.
    }
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_directory_is_private() {
        let process = ModuleProcess::start(Path::new("/bin/cat"), None).unwrap();
        let data = process.directory.as_ref().unwrap().path().metadata();
        assert_eq!(data.unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(process.stop(), None);
    }

    #[test]
    fn leftover_directories_are_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("meros-module-left");
        std::fs::create_dir(&directory).unwrap();
        let changed = directory.metadata().unwrap().modified().unwrap();
        let changed = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let after = |age: Duration| {
            let nanos = u64::try_from((changed + age).as_nanos()).unwrap();
            remove_leftovers_in(temporary.path(), Timestamp::from_nanos(nanos));
            directory.exists()
        };
        assert!(after(Duration::from_secs(10)));
        assert!(!after(LEFTOVER_AGE));
    }
}
