//! The zygote: a small process with one thread beside each agent, which starts executors and sees them end.
//!
//! Hears [`wire::Request`]s over its standard input, a socket, and tells [`wire::Report`]s over the same. It forks command
//! executors without an exec, so it must stay small: it is executed afresh and never grows. It remembers its children only.
//! When the agent goes, it kills everything and goes too. It never decides what runs, and never reads a task's output.

pub mod book;
pub mod wire;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use protocol::Termination;

use self::book::Book;
use self::wire::{ExecutorProgram, LaunchRequest, Report, Request};
use crate::sys::{self, Forked};
use crate::{command, procfs};

/// Milliseconds between two looks for strays that do not die at once.
const SWEEP_INTERVAL: u8 = 20;
/// Looks before the zygote gives up on processes that do not die, at its own end.
const FAREWELL_MAX: u32 = 250;
/// Requests handled before the next look at ended children.
const REQUESTS_A_TURN: usize = 16;

/// Runs the zygote until its agent is gone. Its standard input must be the agent's socket.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("executor-zygote: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // A signal for the agent's group, for example from a terminal, must not end the zygote before its agent.
    nix::unistd::setsid().or_else(|_| {
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map(|()| Pid::this())
    })?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut zygote = Zygote {
        socket,
        signals: child_signals()?,
        book: Book::default(),
        arrived: Vec::new(),
        lock: None,
    };
    command::warm_up()?;
    let served = zygote.run();
    zygote.kill_everything();
    served
}

/// Ended children as something to poll for.
pub(crate) fn child_signals() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
    Ok(SignalFd::with_flags(
        &signals,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Reads away the signals that have arrived; they are counted by waiting for children.
pub(crate) fn forget_signals(signals: &SignalFd) {
    // Ends: the descriptor does not block, and each round takes one signal off it.
    while let Ok(Some(_)) = signals.read_signal() {}
}

/// A child that has ended, if any; `Err` when there is no child at all.
pub(crate) fn ended_child() -> Result<Option<(i32, Termination)>, nix::errno::Errno> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
        WaitStatus::Exited(pid, code) => Ok(Some((pid.as_raw(), Termination::Exited(code)))),
        WaitStatus::Signaled(pid, signal, _) => {
            Ok(Some((pid.as_raw(), Termination::Signaled(signal as i32))))
        }
        _ => Ok(None),
    }
}

/// Sends SIGKILL to each; one that is gone already is fine.
pub(crate) fn kill_all(pids: &BTreeSet<i32>) {
    for &pid in pids {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

struct Zygote {
    socket: UnixStream,
    signals: SignalFd,
    book: Book,
    arrived: Vec<u8>,
    /// Held while anything of this agent may run, so that a new agent's zygote waits for it.
    lock: Option<File>,
}

impl Zygote {
    /// Ends when the agent is gone or talks nonsense.
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let (mut heard, mut reap) = (false, false);
            {
                let mut fds = [
                    PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                ];
                let timeout = match self.book.must_sweep() {
                    true => PollTimeout::from(SWEEP_INTERVAL),
                    false => PollTimeout::NONE,
                };
                match poll(&mut fds, timeout) {
                    Ok(_) => {
                        heard = fds[0].any().unwrap_or(true);
                        reap = fds[1].any().unwrap_or(true);
                    }
                    Err(nix::errno::Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if reap {
                self.reap()?;
            }
            if self.book.must_sweep() {
                self.sweep()?;
            }
            if heard {
                match self.socket.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(length) => self.arrived.extend_from_slice(&buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The agent has died with reports unread.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                    Err(error) => return Err(error),
                }
                self.handle_arrived()?;
            }
        }
    }

    fn handle_arrived(&mut self) -> io::Result<()> {
        let mut handled = 0;
        while let Some(request) = wire::decode(&mut self.arrived).map_err(io::Error::other)? {
            self.handle(request)?;
            handled += 1;
            if handled % REQUESTS_A_TURN == 0 {
                self.reap()?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Serve { work_dir } => {
                let report = match take_over(&work_dir) {
                    Ok(lock) => {
                        self.lock = Some(lock);
                        Report::Ready
                    }
                    Err(error) => Report::Unable {
                        reason: format!("{}: {error}", work_dir.display()),
                    },
                };
                self.tell(&report)
            }
            Request::Launch(request) => {
                let report = self.launch(*request);
                self.tell(&report)
            }
            Request::Kill { container_id } => {
                if let Some(leader) = self.book.leader(&container_id) {
                    let mut all = procfs::descendants(&procfs::processes()?, &[leader]);
                    all.insert(leader);
                    kill_all(&all);
                }
                Ok(())
            }
        }
    }

    fn launch(&mut self, request: LaunchRequest) -> Report {
        let container_id = request.container_id.clone();
        let cleans_up = request.program == ExecutorProgram::Command;
        let started = match &request.program {
            ExecutorProgram::Command => self.fork_command_executor(&request),
            ExecutorProgram::Custom(_) => start_custom(&request),
        };
        match started {
            Ok(pid) => {
                self.book
                    .started(pid.as_raw(), container_id.clone(), cleans_up);
                Report::Started {
                    container_id,
                    pid: pid.as_raw(),
                }
            }
            Err(reason) => Report::Failed {
                container_id,
                reason,
            },
        }
    }

    fn fork_command_executor(&mut self, request: &LaunchRequest) -> Result<Pid, String> {
        let own = nix::unistd::getpid();
        // The files are opened here, so that a sandbox that is not there is a failure of the launch.
        let (out, error) = open_output(&request.sandbox)?;
        match sys::fork().map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(child) => Ok(child),
            Forked::Child => {
                let status = match self.become_executor(own, &request.sandbox, out, error) {
                    Ok(()) => command::run(request),
                    Err(error) => {
                        eprintln!("command executor: {error}");
                        command::UNCLEAN
                    }
                };
                std::process::exit(status)
            }
        }
    }

    /// Turns the forked child into the first process of a container: nothing of the zygote's is left in it.
    fn become_executor(
        &mut self,
        zygote: Pid,
        sandbox: &Path,
        out: File,
        error: File,
    ) -> io::Result<()> {
        nix::unistd::setsid()?;
        nix::sys::prctl::set_child_subreaper(true)?;
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if nix::unistd::getppid() != zygote {
            return Err(io::Error::other("the zygote is gone"));
        }
        nix::unistd::dup2_stdout(&out)?;
        nix::unistd::dup2_stderr(&error)?;
        std::env::set_current_dir(sandbox)?;
        let null = File::open("/dev/null")?;
        // The numbers of the zygote's descriptors are given other meanings before anything else can take them.
        self.socket = UnixStream::from(null.as_fd().try_clone_to_owned()?);
        self.lock = None;
        self.book = Book::default();
        self.arrived = Vec::new();
        self.signals = child_signals()?;
        Ok(())
    }

    fn reap(&mut self) -> io::Result<()> {
        forget_signals(&self.signals);
        // Ends: each round takes one ended child away.
        while let Ok(Some((pid, termination))) = ended_child() {
            if let Some(report) = self.book.reaped(pid, termination) {
                self.tell(&report)?;
            }
        }
        Ok(())
    }

    fn sweep(&mut self) -> io::Result<()> {
        let strays = self
            .book
            .strays(&procfs::processes()?, nix::unistd::getpid().as_raw());
        kill_all(&strays);
        for report in self.book.swept(strays.len()) {
            self.tell(&report)?;
        }
        Ok(())
    }

    fn tell(&mut self, report: &Report) -> io::Result<()> {
        let bytes = wire::encode(report).map_err(io::Error::other)?;
        self.socket.write_all(&bytes)
    }

    /// The end: no process of any container is left when the zygote goes, save those that the kernel will not let die.
    fn kill_everything(&mut self) {
        let own = nix::unistd::getpid().as_raw();
        for _ in 0..FAREWELL_MAX {
            let Ok(processes) = procfs::processes() else {
                return;
            };
            kill_all(&procfs::descendants(&processes, &[own]));
            loop {
                match ended_child() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(SWEEP_INTERVAL));
            forget_signals(&self.signals);
        }
    }
}

/// Waits for an earlier agent's zygote to finish, and ends what was left behind if that was killed.
fn take_over(work_dir: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(work_dir.join("launcher.lock"))?;
    let mut attempts = 0;
    while let Err(error) = lock.try_lock() {
        attempts += 1;
        match error {
            std::fs::TryLockError::WouldBlock if attempts < FAREWELL_MAX => pause(),
            std::fs::TryLockError::WouldBlock => {
                return Err(io::Error::other(
                    "an earlier agent's launcher still holds launcher.lock",
                ));
            }
            std::fs::TryLockError::Error(error) => return Err(error),
        }
    }
    for _ in 0..FAREWELL_MAX {
        let leftovers = leftovers(work_dir)?;
        if leftovers.is_empty() {
            return Ok(lock);
        }
        kill_all(&leftovers);
        pause();
    }
    Err(io::Error::other(format!(
        "processes of an earlier agent do not die: {:?}",
        leftovers(work_dir)?
    )))
}

/// Processes whose environment says that they belong to a container in this work directory, with their descendants.
fn leftovers(work_dir: &Path) -> io::Result<BTreeSet<i32>> {
    let processes = procfs::processes()?;
    let of_this_agent = |pid: i32| {
        let sandbox = procfs::variable(pid, "MESOS_SANDBOX");
        sandbox.is_some_and(|sandbox| Path::new(&sandbox).starts_with(work_dir))
            && procfs::variable(pid, "MEROS_CONTAINER_ID").is_some()
    };
    let alive = processes
        .iter()
        .filter(|process| !process.zombie)
        .map(|process| process.pid);
    let roots: Vec<i32> = alive.filter(|&pid| of_this_agent(pid)).collect();
    let mut all = procfs::descendants(&processes, &roots);
    all.extend(roots);
    all.remove(&nix::unistd::getpid().as_raw());
    Ok(all)
}

fn pause() {
    let _ = poll(&mut [], PollTimeout::from(SWEEP_INTERVAL));
}

fn open_output(sandbox: &Path) -> Result<(File, File), String> {
    let open = |name: &str| {
        let path = sandbox.join(name);
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.map_err(|error| format!("open `{}`: {error}", path.display()))
    };
    Ok((open("stdout")?, open("stderr")?))
}

/// Starts a framework's own executor.
fn start_custom(request: &LaunchRequest) -> Result<Pid, String> {
    let ExecutorProgram::Custom(executor) = &request.program else {
        return Err("a command executor is forked, not executed".into());
    };
    let (out, error) = open_output(&request.sandbox)?;
    let program = command::program(
        executor,
        &request.environment,
        request.user.as_deref(),
        Some(request.sandbox.clone()),
        Some((out.as_raw_fd(), error.as_raw_fd())),
        sys::Leads::Session,
    )?;
    sys::spawn(&program).map_err(|error| error.to_string())
}
