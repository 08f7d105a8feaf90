//! The zygote: a small single-threaded process beside each agent that starts containers and reports
//! their ends.
//!
//! Handles [`wire::Request`]s from its standard input, a socket, and sends [`wire::Report`]s over
//! it. It forks a container init for each container, without exec, so it must stay small: it is
//! executed afresh and keeps only its process table.
//!
//! When the agent ends, containers without a checkpoint get their grace period: an executor notices
//! the end by itself, a command gets SIGTERM; the zygote kills those that take longer. With the
//! other containers it waits for the next agent, which connects through a socket in the work
//! directory. As their parent it knows reliably which still live and how the others ended. If no
//! agent connects in time, it ends the rest in the same way, and then itself. It never reads task
//! output; a container init reads that of a terminal. It has no environment and no descriptors of
//! the agent except the socket, so that tasks cannot read them from it.

mod connection;
mod init;
mod isolate;
mod leftovers;
pub mod process_table;
mod program;
mod programs;
mod terminal;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
use nix::unistd::Pid;
use protocol::ContainerId;
use runtime::{Clock, Instant};

use self::connection::AgentConnection;
use self::init::Surroundings;
pub use self::leftovers::is_over;
use self::leftovers::take_over;
use self::process_table::{Child, ProcessTable};
use self::programs::{Programs, request_sockets};
use self::wire::{
    ContainerEnd, ContainerProgram, FORM, InitOrder, InitReport, InitRequest, LaunchRequest,
    LeftContainer, ProgramEnd, Report, Request, Session,
};
use crate::host::accounts::OwnUser;
use crate::host::sys::{self, Forked};
use crate::host::{output, procfs};

/// Open files that are kept for others than requests to container inits.
const FILES_KEPT: usize = 128;
/// Milliseconds between sweeps while strays do not die.
const SWEEP_INTERVAL: u8 = 20;
/// Attempts to kill remaining processes before the zygote gives up.
const KILL_ATTEMPTS_MAX: u32 = 250;
/// Requests handled before children are reaped again.
const REQUESTS_A_TURN: usize = 16;
/// Milliseconds between checks whether the next agent can still connect.
const WAITING_INTERVAL: u16 = 1000;
/// How long a container init may take to kill its processes, more than its sweeps take. Then it is
/// killed with them.
const INIT_PATIENCE: Duration = Duration::from_secs(5);

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
    // A signal to the process group also stops the agent, and containers end after it; a zygote
    // that ended now would take them along at once. Container inits inherit this, their commands do
    // not.
    sys::ignore_ends()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // Signals to the agent's group, for example from a terminal, must not end the zygote first.
    nix::unistd::setsid().or_else(|_| {
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map(|()| Pid::this())
    })?;
    nix::sys::prctl::set_child_subreaper(true)?;
    // A container costs it a descriptor. Programs keep the limit that the agent has.
    let files = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, files.1, files.1)?;
    let (inits, init_reports) = UnixDatagram::pair()?;
    inits.set_nonblocking(true)?;
    // Reports come with the process id of their init.
    nix::sys::socket::setsockopt(&inits, nix::sys::socket::sockopt::PassCred, &true)?;
    let mut zygote = Zygote {
        connection: AgentConnection::to(socket),
        signals: signals()?,
        inits: Some(inits),
        init_reports,
        processes: ProcessTable::default(),
        lock: None,
        checkpointed: BTreeSet::new(),
        ends: BTreeMap::new(),
        patience: Duration::ZERO,
        wait_deadline: None,
        ending: BTreeMap::new(),
        cgroups: BTreeMap::new(),
        program_requests: BTreeMap::new(),
        own: OwnUser::look_up().unwrap_or_else(|error| {
            eprintln!("executor-zygote: cannot look up its own user: {error}");
            OwnUser::unnamed()
        }),
        files,
        clock: Clock::real(),
    };
    let served = zygote.run();
    zygote.connection.stop_listening();
    zygote.kill_everything();
    served
}

/// A descriptor that becomes readable when a child ends or, in a container init, when it is asked
/// to stop. A forked init inherits that these signals are blocked, so that Linux queues them
/// although they are also ignored: none is lost before the init reads them.
fn signals() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGQUIT] {
        signals.add(signal);
    }
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
    Ok(SignalFd::with_flags(
        &signals,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Drains pending signals; ended children are found by `waitpid`.
fn forget_signals(signals: &SignalFd) {
    // Terminates: the descriptor does not block, and each read consumes a signal.
    while let Ok(Some(_)) = signals.read_signal() {}
}

/// Sends SIGKILL to each process. Ignores processes that have ended.
fn kill_all(pids: &BTreeSet<i32>) {
    for &pid in pids {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The sources that have something to read.
#[derive(Default)]
struct Ready {
    signals: bool,
    inits: bool,
    agent: bool,
}

struct Zygote {
    connection: AgentConnection,
    signals: SignalFd,
    /// Receives the reports of container inits.
    inits: Option<UnixDatagram>,
    /// The other end, which each init inherits.
    init_reports: UnixDatagram,
    processes: ProcessTable,
    /// Held while any process of this agent may run; the next agent's zygote waits for it.
    lock: Option<File>,
    /// Checkpointed containers, until an agent has stored their ends.
    checkpointed: BTreeSet<ContainerId>,
    /// The ends of those that have ended.
    ends: BTreeMap<ContainerId, ContainerEnd>,
    /// How long they may run without an agent.
    patience: Duration,
    /// Deadline for the next agent, while there is none.
    wait_deadline: Option<Instant>,
    /// Containers that are asked to stop.
    ending: BTreeMap<ContainerId, Ending>,
    /// The control groups of containers, innermost first. Removed here if there is no agent.
    cgroups: BTreeMap<ContainerId, Vec<PathBuf>>,
    /// Sockets to the inits of containers that take further programs.
    program_requests: BTreeMap<ContainerId, OwnedFd>,
    /// The limits of open files that it was started with.
    files: (u64, u64),
    /// The agent's own user. Looked up once; forked inits inherit it.
    own: OwnUser,
    clock: Clock,
}

/// The state of a container that is asked to stop.
struct Ending {
    deadline: Instant,
    /// Whether the grace period is over, so that its init is killing it until the deadline.
    is_overdue: bool,
}

impl Zygote {
    /// Runs until the agent is gone and nothing waits for the next one, or the wait is over.
    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let ready = self.wait_for_events()?;
            if ready.signals {
                self.reap();
            } else if ready.inits {
                self.read_init_reports();
            }
            if self.processes.must_sweep() {
                self.sweep()?;
            }
            self.kill_overdue()?;
            if ready.agent && !self.connection.has_agent() {
                self.connection.accept();
            } else if ready.agent
                && (!self.connection.receive(&mut buffer) || !self.handle_requests())
            {
                self.disconnect_agent();
            }
            self.expire_wait();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// Waits for a message or an ended child.
    fn wait_for_events(&self) -> io::Result<Ready> {
        let inits = self.inits.as_ref().map(AsFd::as_fd);
        let all = [Some(self.signals.as_fd()), inits, self.connection.poll_fd()];
        let all = all.into_iter().flatten();
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let soonest = self.ending.values().map(|ending| ending.deadline).min();
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
                let ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| fd.any().unwrap_or(true));
                Ok(Ready {
                    signals: ready(fds.first()),
                    inits: ready(fds.get(1)),
                    agent: ready(fds.get(2)),
                })
            }
            Err(nix::errno::Errno::EINTR) => Ok(Ready::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Disconnects an agent that ended or sent an invalid request, and waits for the next one.
    fn disconnect_agent(&mut self) {
        self.connection.disconnect();
        // No agent waits for their ends or bounds their time.
        let children = self.processes.children();
        let all: Vec<_> = children.map(|child| child.container_id.clone()).collect();
        for container_id in all {
            let _ = self.request_of_init(&container_id, InitOrder::KillAll, &[]);
        }
        let now = self.clock.now();
        self.wait_deadline.get_or_insert(now + self.patience);
        self.begin_ending(now);
    }

    /// Ends the waiting containers if no agent connected in time.
    fn expire_wait(&mut self) {
        let now = self.clock.now();
        if self.wait_deadline.is_some_and(|until| until <= now) && !self.checkpointed.is_empty() {
            self.keep_nothing();
            self.begin_ending(now);
        }
    }

    fn keep_nothing(&mut self) {
        self.checkpointed.clear();
        self.ends.clear();
    }

    /// Starts the grace period of containers that are not checkpointed. Running periods continue.
    fn begin_ending(&mut self, now: Instant) {
        let children = self.processes.children();
        let ending: Vec<_> = children
            .filter(|child| !self.checkpointed.contains(&child.container_id))
            .map(|child| (child.container_id.clone(), child.grace))
            .collect();
        for (container_id, grace) in ending {
            self.terminate(container_id, now + grace);
        }
    }

    /// Asks a container to stop until `deadline`, if it has no earlier one. An executor knows by
    /// itself that it must stop.
    fn terminate(&mut self, container_id: ContainerId, deadline: Instant) {
        let Some(child) = self.processes.child(&container_id) else {
            return;
        };
        let is_first = !std::mem::replace(&mut child.kill_wanted, true);
        if child.is_command && is_first {
            self.end_container(&container_id, Signal::SIGTERM, InitOrder::Terminate);
        }
        let ending = self.ending.entry(container_id).or_insert(Ending {
            deadline,
            is_overdue: false,
        });
        if !ending.is_overdue {
            ending.deadline = ending.deadline.min(deadline);
        }
    }

    /// Asks a container init to kill its processes now. It is killed with them if it takes too
    /// long.
    fn kill(&mut self, container_id: ContainerId) {
        let Some(child) = self.processes.child(&container_id) else {
            return;
        };
        child.kill_wanted = true;
        let is_asked = |ending: &Ending| ending.is_overdue;
        if !self.ending.get(&container_id).is_some_and(is_asked) {
            self.end_container(&container_id, Signal::SIGQUIT, InitOrder::KillContainer);
            let ending = Ending {
                deadline: self.clock.now() + INIT_PATIENCE,
                is_overdue: true,
            };
            self.ending.insert(container_id, ending);
        }
    }

    /// Asks a container init to end its container: by a signal, or a nested one by an order.
    fn end_container(&self, container_id: &ContainerId, signal: Signal, order: InitOrder) {
        match self.processes.leader(container_id) {
            // It has not been reaped, so the process is this one.
            Some(leader) => {
                let _ = kill(Pid::from_raw(leader), signal);
            }
            None => {
                if let Err(reason) = self.request_of_init(container_id, order, &[]) {
                    eprintln!("executor-zygote: cannot end {container_id}: {reason}");
                }
            }
        }
    }

    /// Kills containers after their grace period: an init kills its processes, and is killed with
    /// them if it takes too long.
    fn kill_overdue(&mut self) -> io::Result<()> {
        if self.ending.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let processes = &self.processes;
        let (mut to_end, mut to_kill) = (Vec::new(), Vec::new());
        self.ending.retain(|container_id, ending| {
            if !processes.has(container_id) {
                return false; // It has ended.
            }
            if now < ending.deadline {
                return true;
            }
            if !ending.is_overdue {
                to_end.push(container_id.clone());
                ending.is_overdue = true;
                ending.deadline = now + INIT_PATIENCE;
                return true;
            }
            to_kill.extend(processes.any_leader(container_id));
            false
        });
        for container_id in to_end {
            self.end_container(&container_id, Signal::SIGQUIT, InitOrder::KillContainer);
        }
        kill_trees(&to_kill)
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
                self.keep_nothing();
                true
            }
            Request::Launch(request) => {
                let count = request.session.map_or(0, Session::descriptors);
                let descriptors = self.connection.take_descriptors(count);
                if let Some(report) = self.launch(*request, &descriptors) {
                    self.send(report);
                }
                true
            }
            Request::Terminate {
                container_id,
                grace,
            } => {
                self.terminate(container_id, self.clock.now() + grace);
                true
            }
            Request::Forget { container_id } => {
                self.checkpointed.remove(&container_id);
                self.ends.remove(&container_id);
                true
            }
            Request::Kill { container_id } => {
                self.kill(container_id);
                true
            }
            Request::Signal {
                container_id,
                signal,
            } => {
                // It may have ended.
                let _ = self.request_of_init(&container_id, InitOrder::Signal(signal), &[]);
                true
            }
            Request::Attach { container_id } => {
                let reader = self.connection.take_descriptors(1);
                // It is closed if the container has ended.
                let _ = self.request_of_init(&container_id, InitOrder::Attach, &reader);
                true
            }
            Request::RunProgram {
                container_id,
                program,
                command,
            } => {
                let run = InitOrder::Run { program, command };
                if let Err(reason) = self.request_of_init(&container_id, run, &[]) {
                    self.send(Report::ProgramEnded {
                        container_id,
                        program,
                        end: ProgramEnd::NotStarted(reason),
                    });
                }
                true
            }
            Request::KillProgram {
                container_id,
                program,
            } => {
                // Its end is reported only if it was started.
                let _ = self.request_of_init(&container_id, InitOrder::Kill(program), &[]);
                true
            }
        }
    }

    /// Sends an order to a container init, through those of its parents. Does not block.
    fn request_of_init(
        &self,
        container_id: &ContainerId,
        order: InitOrder,
        descriptors: &[OwnedFd],
    ) -> Result<(), String> {
        let socket = self.program_requests.get(&container_id.outermost());
        let socket = socket.ok_or("the container takes no further programs")?;
        let to = container_id.clone();
        let request = InitRequest { to, order };
        let bytes = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let sent = sys::send(socket, &bytes, descriptors);
        sent.map(drop).map_err(|error| error.to_string())
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
        let now = self.clock.now();
        let left = self.checkpointed.iter().map(|container_id| LeftContainer {
            container_id: container_id.clone(),
            pid: self.processes.started_leader(container_id),
            age: self.processes.age(container_id, now),
        });
        let left = left.collect();
        self.send(Report::Resumed { left });
        for (container_id, end) in self.ends.clone() {
            self.send(Report::Exited { container_id, end });
        }
        true
    }

    /// Starts a container. The start of its program is reported by its init.
    fn launch(&mut self, request: LaunchRequest, descriptors: &[OwnedFd]) -> Option<Report> {
        let container_id = request.container_id.clone();
        if request.outlives {
            self.checkpointed.insert(container_id.clone());
        }
        let started = match container_id.parent() {
            Some(parent) => {
                let launched = self.launch_nested(&parent, &request, descriptors);
                launched.map(|()| None)
            }
            None => self.fork_init(&request).map(Some),
        };
        match started {
            Ok(pid) => {
                let LaunchRequest { plan, grace, .. } = request;
                let cgroups = plan.process_cgroup.into_iter().chain(plan.cgroups);
                let cgroups: Vec<PathBuf> = cgroups.collect();
                if !cgroups.is_empty() {
                    self.cgroups.insert(container_id.clone(), cgroups);
                }
                let child = Child {
                    container_id,
                    is_command: matches!(request.program, ContainerProgram::Command(_)),
                    grace,
                    kill_wanted: false,
                    since: self.clock.now(),
                    event: None,
                };
                match pid {
                    Some(pid) => self.processes.started(pid.as_raw(), child),
                    None => self.processes.nested(child),
                }
                None
            }
            Err(reason) => {
                self.checkpointed.remove(&container_id);
                Some(Report::Failed {
                    container_id,
                    reason,
                })
            }
        }
    }

    /// Asks the init of its parent to start a container.
    fn launch_nested(
        &self,
        parent: &ContainerId,
        request: &LaunchRequest,
        descriptors: &[OwnedFd],
    ) -> Result<(), String> {
        if !self.processes.has(parent) {
            return Err("its parent has ended".to_owned());
        }
        let order = InitOrder::Launch(Box::new(request.clone()));
        self.request_of_init(parent, order, descriptors)
    }

    fn fork_init(&mut self, request: &LaunchRequest) -> Result<Pid, String> {
        let namespaces = request.plan.namespaces;
        // A process of another namespace has the id 0.
        let zygote = match namespaces.pid {
            true => Pid::from_raw(0),
            false => nix::unistd::getpid(),
        };
        // Opened before the fork, so that a missing sandbox fails the launch.
        let (out, error) = open_output(&request.sandbox)?;
        // With few descriptors left it takes no further programs, and runs.
        let has_room = (self.program_requests.len() + FILES_KEPT) as u64 * 2 < self.files.1;
        let programs = has_room.then(request_sockets).and_then(Result::ok);
        let forked = sys::fork_into(isolate::clone_flags(namespaces));
        match forked.map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(child) => {
                if let Some((ours, _)) = programs {
                    let container_id = request.container_id.clone();
                    self.program_requests.insert(container_id, ours);
                }
                Ok(child)
            }
            Forked::Child => {
                let programs = Programs::on_request(programs.map(|(_, theirs)| theirs));
                let ended = self
                    .become_init(zygote, &request.sandbox, &out, &error)
                    .and_then(|signals| {
                        let surroundings = Surroundings {
                            own: &self.own,
                            reports: &self.init_reports,
                            files: self.files,
                            cgroup: None,
                        };
                        init::run(request, surroundings, signals, programs)
                    });
                if let Err(error) = &ended {
                    eprintln!("container init: {error}");
                }
                sys::exit_now(i32::from(ended.is_err()))
            }
        }
    }

    /// Turns the forked child into a session leader. Returns its signals. Of the zygote's
    /// descriptors it keeps only the one for its reports.
    fn become_init(
        &mut self,
        zygote: Pid,
        sandbox: &Path,
        out: &File,
        error: &File,
    ) -> io::Result<SignalFd> {
        init::lead_session(zygote)?;
        nix::unistd::dup2_stdout(out)?;
        nix::unistd::dup2_stderr(error)?;
        std::env::set_current_dir(sandbox)?;
        self.connection.detach();
        (self.lock, self.inits) = (None, None);
        self.program_requests.clear();
        signals()
    }

    /// Reaps ended children.
    fn reap(&mut self) {
        forget_signals(&self.signals);
        let mut ended = Vec::new();
        // Terminates: each round reaps one child.
        while let Ok(Some(child)) = sys::reap() {
            ended.push(child);
        }
        // An init has sent its last report before its end.
        self.read_init_reports();
        for (pid, termination) in ended {
            let container_id = self.processes.container_of(pid.as_raw()).cloned();
            if let Some(container_id) = &container_id {
                self.program_requests.remove(container_id);
            }
            let reports = self.processes.reaped(pid.as_raw(), termination);
            if reports.is_empty() {
                self.kill_group(container_id.as_ref());
            }
            for report in reports {
                self.send(report);
            }
        }
    }

    /// Kills the processes that an init has left behind, if they have a control group. The others
    /// are swept.
    fn kill_group(&self, container_id: Option<&ContainerId>) {
        let cgroups = container_id.and_then(|id| self.cgroups.get(id));
        if let Some(innermost) = cgroups.and_then(|cgroups| cgroups.first()) {
            let _ = std::fs::write(innermost.join("cgroup.kill"), "1"); // The file may be missing.
        }
    }

    /// Handles the reports of container inits.
    fn read_init_reports(&mut self) {
        let mut buffer = [0; 16 * 1024];
        // Terminates: it does not block, and each init sends two reports, and one for each further
        // program.
        while let Some((length, pid)) = self.receive_report(&mut buffer) {
            match serde_json::from_slice::<InitReport>(&buffer[..length]) {
                Ok(report) => {
                    for report in self.processes.note(report, pid) {
                        self.send(report);
                    }
                }
                Err(error) => eprintln!("executor-zygote: invalid report of an init: {error}"),
            }
        }
    }

    /// Receives a report with the process id of its sender.
    fn receive_report(&self, buffer: &mut [u8]) -> Option<(usize, i32)> {
        let inits = self.inits.as_ref()?;
        let mut control = nix::cmsg_space!(UnixCredentials);
        let mut bytes = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let received = recvmsg::<()>(inits.as_raw_fd(), &mut bytes, Some(&mut control), flags);
        let received = received.ok()?;
        let mut attached = received.cmsgs().ok()?;
        let pid = attached.find_map(|one| match one {
            ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid()),
            _ => None,
        });
        Some((received.bytes, pid?))
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

    /// Sends a report. Ends of checkpointed containers are kept until an agent has stored them; an
    /// agent that has connected but not resumed yet gets them afterwards. A closed connection is
    /// noticed at the next read.
    fn send(&mut self, report: Report) {
        if let Report::Exited { container_id, end } = &report
            && self.checkpointed.contains(container_id)
        {
            self.ends.insert(container_id.clone(), end.clone());
        }
        if let Report::Failed { container_id, .. } = &report {
            // It never ran: the next agent must not wait for its end.
            self.checkpointed.remove(container_id);
        }
        if let Report::Exited { container_id, .. } | Report::Failed { container_id, .. } = &report
            && let Some(cgroups) = self.cgroups.remove(container_id)
            && self.wait_deadline.is_some()
            && !self.checkpointed.contains(container_id)
        {
            // With an agent, its isolators remove them. What is left here, the next agent removes.
            for directory in cgroups {
                let _ = std::fs::remove_dir(directory);
            }
        }
        if self.wait_deadline.is_none() {
            self.connection.send(&report);
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
                match sys::reap() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return, // ECHILD
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

fn open_output(sandbox: &Path) -> Result<(File, File), String> {
    let open = |name: &str| {
        let path = sandbox.join(name);
        let file = output::open_output(&path);
        file.map_err(|error| format!("open `{}`: {error}", path.display()))
    };
    Ok((open("stdout")?, open("stderr")?))
}
