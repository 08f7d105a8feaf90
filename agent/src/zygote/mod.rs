//! The zygote: a small process with one thread beside each agent, which starts executors and sees them end.
//!
//! Hears [`wire::Request`]s over its standard input, a socket, and tells [`wire::Report`]s over the same. It forks command
//! executors without an exec, so it must stay small: it is executed afresh and never grows. It remembers its children only.
//! When the agent goes, executors that do not outlive it have their grace period: each sees by itself that its agent is gone, and ends
//! its tasks. The zygote kills those that run longer. With the rest it waits for the next agent, which finds it by a socket in the
//! work directory; being the parent of all executors, it knows for certain which of them still live and how the others have ended. If
//! no agent has come in time, the rest is ended in the same way. The zygote ends last. It never decides what runs, and never
//! reads a task's output. It has nothing of the agent's environment and none of its descriptors but the socket, so that no process of a
//! task can read them there.

pub mod book;
mod line;
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
use protocol::{ContainerId, Termination, duration};
use runtime::{Clock, Instant};

use self::book::{Book, Child};
use self::line::Line;
use self::wire::{ExecutorProgram, FORM, LaunchRequest, Left, Report, Request};
use crate::accounts::Own;
use crate::sys::{self, Forked, Program};
use crate::{command, procfs, sandbox};

/// Milliseconds between two looks for strays that do not die at once.
const SWEEP_INTERVAL: u8 = 20;
/// Looks before the zygote gives up on processes that do not die, at its own end.
const FAREWELL_MAX: u32 = 250;
/// Requests handled before the next look at ended children.
const REQUESTS_A_TURN: usize = 16;
/// Milliseconds between two looks whether the next agent can still come.
const WAITING_INTERVAL: u16 = 1000;
/// The file that a zygote holds locked while anything of its agent may run.
const LOCK: &str = "launcher.lock";
/// The grace period of an executor whose agent did not name one.
const GRACE_DEFAULT: Duration = Duration::from_secs(5);

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
    // Comes first: every other descriptor that is open now was inherited from the starter of the agent.
    sys::close_inherited()?;
    // A signal to the whole group stops the agent too, and the executors end after it. A zygote that ended now would take them along
    // at once. Executors that are forked inherit this, their tasks do not.
    sys::ignore_ends()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // A signal for the agent's group, for example from a terminal, must not end the zygote before its agent.
    nix::unistd::setsid().or_else(|_| {
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map(|()| Pid::this())
    })?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut zygote = Zygote {
        line: Line::to(socket),
        signals: child_signals()?,
        book: Book::default(),
        lock: None,
        outliving: BTreeSet::new(),
        patience: Duration::ZERO,
        awaited: None,
        ending: Vec::new(),
        own: Own::look_up().unwrap_or_else(|error| {
            eprintln!("executor-zygote: its own user cannot be looked up: {error}");
            Own::unnamed()
        }),
        clock: Clock::real(),
    };
    command::warm_up()?;
    let served = zygote.run();
    zygote.line.shut_door();
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
    line: Line,
    signals: SignalFd,
    book: Book,
    /// Held while anything of this agent may run, so that a new agent's zygote waits for it.
    lock: Option<File>,
    /// Containers that outlive the agent and whose end no agent knows.
    outliving: BTreeSet<ContainerId>,
    /// How long they may be without one.
    patience: Duration,
    /// Until when the next agent is awaited, while there is none.
    awaited: Option<Instant>,
    /// Containers whose agent is gone for good, and when each is killed.
    ending: Vec<(Instant, ContainerId)>,
    /// The user of all that runs as the agent's own. Looked up once: executors that are forked have it already.
    own: Own,
    clock: Clock,
}

impl Zygote {
    /// Ends when the agent is gone, and nothing waits for the next or nobody comes.
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let (heard, reap) = self.look()?;
            if reap {
                self.reap();
            }
            if self.book.must_sweep() {
                self.sweep()?;
            }
            self.kill_overdue()?;
            if heard && !self.line.has_agent() {
                self.line.welcome();
            } else if heard && (!self.line.hear(&mut buffer) || !self.handle_arrived()) {
                self.lose_agent();
            }
            self.stop_waiting();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// Waits until somebody speaks or a child has ended, whichever it is.
    fn look(&self) -> io::Result<(bool, bool)> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let ear = self.line.ear();
        fds.extend(ear.map(|ear| PollFd::new(ear, PollFlags::POLLIN)));
        let soonest = self.ending.iter().map(|(at, _)| *at).min();
        let timeout = match (self.book.must_sweep(), soonest, self.awaited) {
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

    /// The agent is gone, or talks nonsense: what does not outlive it ends, and the next may come.
    fn lose_agent(&mut self) {
        self.line.hang_up();
        let now = self.clock.now();
        self.awaited.get_or_insert(now + self.patience);
        self.begin_ending(now);
    }

    /// If no agent has come in time, the containers that wait for one end like the rest.
    fn stop_waiting(&mut self) {
        let now = self.clock.now();
        if self.awaited.is_some_and(|until| until <= now) && !self.outliving.is_empty() {
            self.outliving.clear();
            self.begin_ending(now);
        }
    }

    /// Gives containers that do not outlive the agent their grace period, which begins once.
    fn begin_ending(&mut self, now: Instant) {
        let graces = self.book.graces();
        let fresh: Vec<_> = graces
            .filter(|(id, _)| !self.outliving.contains(id))
            .filter(|(id, _)| !self.ending.iter().any(|(_, known)| known == *id))
            .map(|(id, grace)| (now + grace, id.clone()))
            .collect();
        self.ending.extend(fresh);
    }

    /// Kills containers whose grace period is over.
    fn kill_overdue(&mut self) -> io::Result<()> {
        if self.ending.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let due = self.ending.extract_if(.., |(at, _)| *at <= now);
        let leaders: Vec<i32> = due.filter_map(|(_, id)| self.book.leader(&id)).collect();
        kill_trees(&leaders)
    }

    /// Whether there is nothing more to do.
    fn is_over(&self) -> bool {
        if self.awaited.is_none() {
            return false;
        }
        if !self.line.can_be_found() {
            return true;
        }
        // An agent that comes while no container waits for it starts another zygote, and the remaining processes here are killed.
        self.outliving.is_empty() && (self.book.is_idle() || self.line.has_agent())
    }

    /// Does what the agent wants. `false` if that cannot be understood.
    fn handle_arrived(&mut self) -> bool {
        let mut handled = 0;
        loop {
            match self.line.request() {
                Ok(None) => return true,
                Ok(Some(request)) => {
                    if !self.handle(request) {
                        return false;
                    }
                }
                Err(error) => {
                    eprintln!("executor-zygote: the agent is not understood: {error}");
                    return false;
                }
            }
            handled += 1;
            if handled % REQUESTS_A_TURN == 0 {
                self.reap();
            }
        }
    }

    /// `false` if the agent must go.
    fn handle(&mut self, request: Request) -> bool {
        match request {
            Request::Serve { work_dir, patience } => self.serve(&work_dir, patience),
            Request::Resume { form, patience } => self.resume(form, patience),
            // It has not said that it is the next: what it wants is nobody's wish.
            _ if self.awaited.is_some() => false,
            Request::KeepNothing => {
                self.outliving.clear();
                true
            }
            Request::Launch(request) => {
                let report = self.launch(*request);
                self.tell(report);
                true
            }
            Request::Kill { container_id } => {
                let leader = self.book.leader(&container_id);
                if let Err(error) = kill_trees(leader.as_slice()) {
                    eprintln!("executor-zygote: {container_id} is not killed: {error}");
                }
                true
            }
        }
    }

    fn serve(&mut self, work_dir: &Path, patience: Duration) -> bool {
        if self.lock.is_some() {
            return false; // It serves already.
        }
        let taken = take_over(work_dir).and_then(|lock| {
            self.line.open_door(work_dir)?;
            Ok(lock)
        });
        match taken {
            Ok(lock) => {
                (self.lock, self.patience) = (Some(lock), patience);
                self.tell(Report::Ready);
                true
            }
            Err(error) => {
                let reason = format!("{}: {error}", work_dir.display());
                self.tell(Report::Unable { reason });
                true
            }
        }
    }

    /// Goes on for another agent, unless that speaks otherwise.
    fn resume(&mut self, form: u32, patience: Duration) -> bool {
        if form != FORM {
            let reason = format!("it speaks form {form}, expected {FORM}");
            self.line.tell(&Report::Unable { reason });
            return false;
        }
        (self.patience, self.awaited) = (patience, None);
        let left = self.outliving.iter().map(|container_id| Left {
            container_id: container_id.clone(),
            pid: self.book.leader(container_id),
        });
        let left = left.collect();
        self.tell(Report::Resumed { left });
        for report in self.line.take_untold() {
            self.tell(report);
        }
        true
    }

    fn launch(&mut self, request: LaunchRequest) -> Report {
        let container_id = request.container_id.clone();
        let cleans_up = request.program == ExecutorProgram::Command;
        if request.outlives {
            self.outliving.insert(container_id.clone());
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
                self.book.started(pid.as_raw(), child);
                Report::Started {
                    container_id,
                    pid: pid.as_raw(),
                }
            }
            Err(reason) => {
                self.outliving.remove(&container_id);
                Report::Failed {
                    container_id,
                    reason,
                }
            }
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
                    Ok(()) => command::run(request, self.own.clone()),
                    Err(error) => {
                        eprintln!("command executor: {error}");
                        command::UNCLEAN
                    }
                };
                sys::exit_now(status)
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
        let nobody = UnixStream::from(null.as_fd().try_clone_to_owned()?);
        self.line.cut(nobody);
        self.lock = None;
        // Freeing them would copy every page that they are on, for as many containers as there are.
        std::mem::forget(std::mem::take(&mut self.book));
        std::mem::forget(std::mem::take(&mut self.outliving));
        std::mem::forget(std::mem::take(&mut self.ending));
        self.signals = child_signals()?;
        Ok(())
    }

    fn reap(&mut self) {
        forget_signals(&self.signals);
        // Ends: each round takes one ended child away.
        while let Ok(Some((pid, termination))) = ended_child() {
            if let Some(report) = self.book.reaped(pid, termination) {
                self.tell(report);
            }
        }
    }

    fn sweep(&mut self) -> io::Result<()> {
        let strays = self
            .book
            .strays(&procfs::processes()?, nix::unistd::getpid().as_raw());
        kill_all(&strays);
        for report in self.book.swept(strays.len()) {
            self.tell(report);
        }
        Ok(())
    }

    /// Tells the agent; an end that it does not hear is kept for the next. That it is gone shows when it is listened to.
    fn tell(&mut self, report: Report) {
        let told = self.line.tell(&report);
        match line::whose_end(&report, &self.outliving).cloned() {
            Some(ended) if told => drop(self.outliving.remove(&ended)),
            Some(_) => self.line.keep(report),
            None => {}
        }
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

/// Kills these processes with all their descendants.
fn kill_trees(leaders: &[i32]) -> io::Result<()> {
    if !leaders.is_empty() {
        let mut all = procfs::descendants(&procfs::processes()?, leaders);
        all.extend(leaders);
        kill_all(&all);
    }
    Ok(())
}

/// Waits for an earlier agent's zygote to finish, and ends what was left behind if that was killed.
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

/// Whether nothing of any agent runs in this work directory: its zygote has ended, or there never was one.
pub fn is_over(work_dir: &Path) -> bool {
    match File::open(work_dir.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

/// The grace period of this executor, from its own environment.
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

/// Starts a framework's own executor.
fn start_custom(request: &LaunchRequest, own: &Own) -> Result<Pid, String> {
    let ExecutorProgram::Custom(executor) = &request.program else {
        return Err("a command executor is forked, not executed".into());
    };
    let (out, error) = open_output(&request.sandbox)?;
    let program = Program {
        directory: Some(request.sandbox.clone()),
        output: Some((out.as_raw_fd(), error.as_raw_fd())),
        ..command::program(
            executor,
            &request.environment,
            own,
            request.user.as_deref(),
            sys::Leads::Session,
        )?
    };
    sys::spawn(&program).map_err(|error| error.to_string())
}
