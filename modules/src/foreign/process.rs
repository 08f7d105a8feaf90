//! The process of a module and its Unix socket.
//!
//! It is the leader of a process group, in `/`, with an environment of its own. It inherits no
//! descriptors but its standard ones: its input is a pipe that the agent never writes, so that its
//! end shows the agent's; its output is discarded, its error output is the agent's. The socket is in
//! a directory that only the agent's user can enter.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use module_api::wire;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use runtime::Clock;
use tempfile::TempDir;
use tokio::net::UnixStream;

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
    /// Until it is connected, so that an agent that is killed leaves none behind.
    directory: Option<TempDir>,
    is_killed: bool,
}

impl ModuleProcess {
    /// Starts the program. Takes a few milliseconds. Must be called on a thread that lives as long as
    /// the module is needed: a starter lets the end of that thread end the module.
    pub(super) fn start(program: &Path, starter: Option<&Starter>) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("meros-module-").tempdir()?;
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

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("socket")
}
