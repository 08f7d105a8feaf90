//! The zygote: a small single-threaded process beside each agent that starts executors and reports
//! their exits.
//!
//! Handles [`wire::Request`]s from its standard input, a socket, and sends [`wire::Report`]s over
//! it. It forks command executors without exec, so it must stay small: it is executed afresh and
//! keeps only its process table.
//!
//! When the agent ends, executors without a checkpoint get their grace period: each notices the end
//! by itself and stops its tasks; the zygote kills those that take longer. With the other executors
//! it waits for the next agent, which connects through a socket in the work directory. As their
//! parent it knows reliably which still live and how the others ended. If no agent connects in
//! time, it ends the rest in the same way, and then itself. It never reads task output. It has no
//! environment and no descriptors of the agent except the socket, so that tasks cannot read them
//! from it.

mod connection;
pub mod process_table;
pub mod wire;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use executor_driver::environment as variable;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use protocol::text::duration;
use protocol::{ContainerId, Termination};
use runtime::{Clock, Instant};

use self::connection::AgentConnection;
use self::process_table::{Child, ProcessTable};
use self::wire::{ExecutorProgram, FORM, LaunchRequest, LeftContainer, Report, Request};
use crate::host::accounts::OwnUser;
use crate::host::procfs;
use crate::host::sys::{self, Forked, Program};
use crate::launcher::command_executor;
use crate::sandbox;

/// Milliseconds between sweeps while strays do not die.
const SWEEP_INTERVAL: u8 = 20;
/// Attempts to kill remaining processes before the zygote gives up.
const KILL_ATTEMPTS_MAX: u32 = 250;
/// Requests handled before children are reaped again.
const REQUESTS_A_TURN: usize = 16;
/// Milliseconds between checks whether the next agent can still connect.
const WAITING_INTERVAL: u16 = 1000;
/// Locked by the zygote while any process of its agent may run.
const LOCK: &str = "launcher.lock";
/// Grace period of executors without one from their agent.
const GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// Runs the zygote until its work is done. Its standard input must be the agent's socket.
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
    // First: all other open descriptors were inherited from the agent's parent.
    sys::close_inherited()?;
    // A signal to the process group also stops the agent, and executors end after it; a zygote that
    // ended now would take them along at once. Forked executors inherit this, their tasks do not.
    sys::ignore_ends()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // Signals to the agent's group, for example from a terminal, must not end the zygote first.
    nix::unistd::setsid().or_else(|_| {
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map(|()| Pid::this())
    })?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut zygote = Zygote {
        connection: AgentConnection::to(socket),
        signals: child_signals()?,
        processes: ProcessTable::default(),
        lock: None,
        checkpointed: BTreeSet::new(),
        patience: Duration::ZERO,
        wait_deadline: None,
        ending: Vec::new(),
        own: OwnUser::look_up().unwrap_or_else(|error| {
            eprintln!("executor-zygote: cannot look up its own user: {error}");
            OwnUser::unnamed()
        }),
        clock: Clock::real(),
    };
    command_executor::warm_up()?;
    let served = zygote.run();
    zygote.connection.stop_listening();
    zygote.kill_everything();
    served
}

/// A descriptor that becomes readable when a child ends.
pub(crate) fn child_signals() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
    Ok(SignalFd::with_flags(
        &signals,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Drains pending signals; ended children are found by `waitpid`.
pub(crate) fn forget_signals(signals: &SignalFd) {
    // Terminates: the descriptor does not block, and each read consumes a signal.
    while let Ok(Some(_)) = signals.read_signal() {}
}

/// Reaps one ended child, if any; `Err` if there are no children.
pub(crate) fn ended_child() -> Result<Option<(i32, Termination)>, nix::errno::Errno> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
        WaitStatus::Exited(pid, code) => Ok(Some((pid.as_raw(), Termination::Exited(code)))),
        WaitStatus::Signaled(pid, signal, _) => {
            Ok(Some((pid.as_raw(), Termination::Signaled(signal as i32))))
        }
        _ => Ok(None),
    }
}

/// Sends SIGKILL to each process. Ignores processes that have ended.
pub(crate) fn kill_all(pids: &BTreeSet<i32>) {
    for &pid in pids {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

struct Zygote {
    connection: AgentConnection,
    signals: SignalFd,
    processes: ProcessTable,
    /// Held while any process of this agent may run; the next agent's zygote waits for it.
    lock: Option<File>,
    /// Checkpointed containers with an exit that no agent has received.
    checkpointed: BTreeSet<ContainerId>,
    /// How long they may run without an agent.
    patience: Duration,
    /// Deadline for the next agent, while there is none.
    wait_deadline: Option<Instant>,
    /// Containers to end because their agent is gone, with their deadlines.
    ending: Vec<(Instant, ContainerId)>,
    /// The agent's own user. Looked up once; forked executors inherit it.
    own: OwnUser,
    clock: Clock,
}

impl Zygote {
    /// Runs until the agent is gone and nothing waits for the next one, or the wait is over.
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let (readable, reap) = self.wait_for_events()?;
            if reap {
                self.reap();
            }
            if self.processes.must_sweep() {
                self.sweep()?;
            }
            self.kill_overdue()?;
            if readable && !self.connection.has_agent() {
                self.connection.accept();
            } else if readable && (!self.connection.receive(&mut buffer) || !self.handle_requests())
            {
                self.disconnect_agent();
            }
            self.expire_wait();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// Waits for input or an ended child. Returns whether there is either.
    fn wait_for_events(&self) -> io::Result<(bool, bool)> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let poll_fd = self.connection.poll_fd();
        fds.extend(poll_fd.map(|poll_fd| PollFd::new(poll_fd, PollFlags::POLLIN)));
        let soonest = self.ending.iter().map(|(at, _)| *at).min();
        let timeout = match (self.processes.must_sweep(), soonest, self.wait_deadline) {
            (true, _, _) => PollTimeout::from(SWEEP_INTERVAL),
            (false, Some(at), _) => {
                let millis = (at - self.clock.now()).as_millis() + 1;
                PollTimeout::from(
                    u16::try_from(millis)
                        .unwrap_or(u16::MAX)
                        .min(WAITING_INTERVAL),
                )
            }
            (false, None, Some(_)) => PollTimeout::from(WAITING_INTERVAL),
            (false, None, None) => PollTimeout::NONE,
        };
        match poll(&mut fds, timeout) {
            Ok(_) => {
                let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
                Ok((fds.get(1).is_some_and(ready), ready(&fds[0])))
            }
            Err(nix::errno::Errno::EINTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Disconnects an agent that ended or sent an invalid request, and waits for the next one.
    fn disconnect_agent(&mut self) {
        self.connection.disconnect();
        let now = self.clock.now();
        self.wait_deadline.get_or_insert(now + self.patience);
        self.begin_ending(now);
    }

    /// Ends the waiting containers if no agent connected in time.
    fn expire_wait(&mut self) {
        let now = self.clock.now();
        if self.wait_deadline.is_some_and(|until| until <= now) && !self.checkpointed.is_empty() {
            self.checkpointed.clear();
            self.begin_ending(now);
        }
    }

    /// Starts the grace period of containers that are not checkpointed. Running periods continue.
    fn begin_ending(&mut self, now: Instant) {
        let graces = self.processes.graces();
        let fresh: Vec<_> = graces
            .filter(|(id, _)| !self.checkpointed.contains(id))
            .filter(|(id, _)| !self.ending.iter().any(|(_, known)| known == *id))
            .map(|(id, grace)| (now + grace, id.clone()))
            .collect();
        self.ending.extend(fresh);
    }

    /// Kills containers after their grace period.
    fn kill_overdue(&mut self) -> io::Result<()> {
        if self.ending.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let due = self.ending.extract_if(.., |(at, _)| *at <= now);
        let leaders: Vec<i32> = due
            .filter_map(|(_, id)| self.processes.leader(&id))
            .collect();
        kill_trees(&leaders)
    }

    /// Whether the zygote can end.
    fn is_over(&self) -> bool {
        if self.wait_deadline.is_none() {
            return false;
        }
        if !self.connection.is_reachable() {
            return true;
        }
        // An agent that connects when no container waits starts another zygote, and the remaining
        // processes here are killed.
        self.checkpointed.is_empty() && (self.processes.is_idle() || self.connection.has_agent())
    }

    /// Handles the received requests. `false` on a protocol error.
    fn handle_requests(&mut self) -> bool {
        let mut handled = 0;
        loop {
            match self.connection.request() {
                Ok(None) => return true,
                Ok(Some(request)) => {
                    if !self.handle(request) {
                        return false;
                    }
                }
                Err(error) => {
                    eprintln!("executor-zygote: invalid request: {error}");
                    return false;
                }
            }
            handled += 1;
            if handled % REQUESTS_A_TURN == 0 {
                self.reap();
            }
        }
    }

    /// `false` if the agent must be disconnected.
    fn handle(&mut self, request: Request) -> bool {
        match request {
            Request::Serve { work_dir, patience } => self.serve(&work_dir, patience),
            Request::Resume { form, patience } => self.resume(form, patience),
            // Not resumed: a new connection has to identify itself first.
            _ if self.wait_deadline.is_some() => false,
            Request::KeepNothing => {
                self.checkpointed.clear();
                true
            }
            Request::Launch(request) => {
                let report = self.launch(*request);
                self.send(report);
                true
            }
            Request::Kill { container_id } => {
                let leader = self.processes.leader(&container_id);
                if let Err(error) = kill_trees(leader.as_slice()) {
                    eprintln!("executor-zygote: {container_id} cannot be killed: {error}");
                }
                true
            }
        }
    }

    fn serve(&mut self, work_dir: &Path, patience: Duration) -> bool {
        if self.lock.is_some() {
            return false; // Already serving.
        }
        let taken = take_over(work_dir).and_then(|lock| {
            self.connection.listen(work_dir)?;
            Ok(lock)
        });
        match taken {
            Ok(lock) => {
                (self.lock, self.patience) = (Some(lock), patience);
                self.send(Report::Ready);
                true
            }
            Err(error) => {
                let reason = format!("{}: {error}", work_dir.display());
                self.send(Report::Unable { reason });
                true
            }
        }
    }

    /// Continues for another agent if it uses the same protocol version.
    fn resume(&mut self, form: u32, patience: Duration) -> bool {
        if form != FORM {
            let reason = format!("protocol version {form}, expected {FORM}");
            self.connection.send(&Report::Unable { reason });
            return false;
        }
        (self.patience, self.wait_deadline) = (patience, None);
        let left = self.checkpointed.iter().map(|container_id| LeftContainer {
            container_id: container_id.clone(),
            pid: self.processes.leader(container_id),
        });
        let left = left.collect();
        self.send(Report::Resumed { left });
        for report in self.connection.take_undelivered() {
            self.send(report);
        }
        true
    }

    fn launch(&mut self, request: LaunchRequest) -> Report {
        let container_id = request.container_id.clone();
        let cleans_up = request.program == ExecutorProgram::Command;
        if request.outlives {
            self.checkpointed.insert(container_id.clone());
        }
        let started = match &request.program {
            ExecutorProgram::Command => self.fork_command_executor(&request),
            ExecutorProgram::Custom(_) => start_custom(&request, &self.own),
        };
        match started {
            Ok(pid) => {
                let child = Child {
                    container_id: container_id.clone(),
                    cleans_up,
                    grace: grace(&request),
                };
                self.processes.started(pid.as_raw(), child);
                Report::Started {
                    container_id,
                    pid: pid.as_raw(),
                }
            }
            Err(reason) => {
                self.checkpointed.remove(&container_id);
                Report::Failed {
                    container_id,
                    reason,
                }
            }
        }
    }

    fn fork_command_executor(&mut self, request: &LaunchRequest) -> Result<Pid, String> {
        let own = nix::unistd::getpid();
        // Opened before the fork, so that a missing sandbox fails the launch.
        let (out, error) = open_output(&request.sandbox)?;
        match sys::fork().map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(child) => Ok(child),
            Forked::Child => {
                let status = match self.become_executor(own, &request.sandbox, out, error) {
                    Ok(()) => command_executor::run(request, self.own.clone()),
                    Err(error) => {
                        eprintln!("command executor: {error}");
                        command_executor::UNCLEAN
                    }
                };
                sys::exit_now(status)
            }
        }
    }

    /// Turns the forked child into a session leader and drops the zygote's state.
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
        let dev_null = File::open("/dev/null")?;
        // Releases the zygote's descriptors before others take their numbers.
        let null = UnixStream::from(dev_null.as_fd().try_clone_to_owned()?);
        self.connection.detach(null);
        self.lock = None;
        // Freeing these would copy all their pages in each container.
        std::mem::forget(std::mem::take(&mut self.processes));
        std::mem::forget(std::mem::take(&mut self.checkpointed));
        std::mem::forget(std::mem::take(&mut self.ending));
        self.signals = child_signals()?;
        Ok(())
    }

    fn reap(&mut self) {
        forget_signals(&self.signals);
        // Terminates: each round reaps one child.
        while let Ok(Some((pid, termination))) = ended_child() {
            if let Some(report) = self.processes.reaped(pid, termination) {
                self.send(report);
            }
        }
    }

    fn sweep(&mut self) -> io::Result<()> {
        let strays = self
            .processes
            .strays(&procfs::processes()?, nix::unistd::getpid().as_raw());
        kill_all(&strays);
        for report in self.processes.swept(strays.len()) {
            self.send(report);
        }
        Ok(())
    }

    /// Sends a report. Exits that cannot be delivered are stored for the next agent; the closed
    /// connection is noticed at the next read.
    fn send(&mut self, report: Report) {
        let sent = self.connection.send(&report);
        match connection::exited_container(&report, &self.checkpointed).cloned() {
            Some(ended) if sent => drop(self.checkpointed.remove(&ended)),
            Some(_) => self.connection.store(report),
            None => {}
        }
    }

    /// Kills all remaining processes before the zygote ends, except those stuck in the kernel.
    fn kill_everything(&mut self) {
        let own = nix::unistd::getpid().as_raw();
        for _ in 0..KILL_ATTEMPTS_MAX {
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

/// Kills these processes and their descendants.
fn kill_trees(leaders: &[i32]) -> io::Result<()> {
    if !leaders.is_empty() {
        let mut all = procfs::descendants(&procfs::processes()?, leaders);
        all.extend(leaders);
        kill_all(&all);
    }
    Ok(())
}

/// Waits for an earlier zygote to end, and kills its leftovers if it was killed.
fn take_over(work_dir: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(work_dir.join(LOCK))?;
    let mut attempts = 0;
    while let Err(error) = lock.try_lock() {
        attempts += 1;
        match error {
            std::fs::TryLockError::WouldBlock if attempts < KILL_ATTEMPTS_MAX => pause(),
            std::fs::TryLockError::WouldBlock => {
                return Err(io::Error::other(
                    "an earlier agent's launcher still holds launcher.lock",
                ));
            }
            std::fs::TryLockError::Error(error) => return Err(error),
        }
    }
    for _ in 0..KILL_ATTEMPTS_MAX {
        let leftovers = leftovers(work_dir)?;
        if leftovers.is_empty() {
            return Ok(lock);
        }
        kill_all(&leftovers);
        pause();
    }
    Err(io::Error::other(format!(
        "cannot kill processes of an earlier agent: {:?}",
        leftovers(work_dir)?
    )))
}

/// Processes with a container of this work directory in their environment, and their descendants.
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

/// Whether no process of any agent runs in this work directory.
pub fn is_over(work_dir: &Path) -> bool {
    match File::open(work_dir.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

/// The executor's grace period, from its environment.
fn grace(request: &LaunchRequest) -> Duration {
    let text = request.environment.get(variable::SHUTDOWN_GRACE_PERIOD);
    let grace = text.and_then(|text| duration::parse(text).ok());
    grace.unwrap_or(GRACE_DEFAULT)
}

fn pause() {
    let _ = poll(&mut [], PollTimeout::from(SWEEP_INTERVAL));
}

fn open_output(sandbox: &Path) -> Result<(File, File), String> {
    let open = |name: &str| {
        let path = sandbox.join(name);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(sandbox::FILE_MODE)
            .open(&path);
        file.map_err(|error| format!("open `{}`: {error}", path.display()))
    };
    Ok((open("stdout")?, open("stderr")?))
}

/// Starts a custom executor.
fn start_custom(request: &LaunchRequest, own: &OwnUser) -> Result<Pid, String> {
    let ExecutorProgram::Custom(executor) = &request.program else {
        return Err("a command executor is forked, not executed".into());
    };
    let (out, error) = open_output(&request.sandbox)?;
    let program = Program {
        directory: Some(request.sandbox.clone()),
        output: Some((out.as_raw_fd(), error.as_raw_fd())),
        ..command_executor::program(
            executor,
            &request.environment,
            own,
            request.user.as_deref(),
            sys::Leads::Session,
        )?
    };
    sys::spawn(&program).map_err(|error| error.to_string())
}
