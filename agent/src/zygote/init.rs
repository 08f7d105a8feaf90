//! The container init: the first process of a container.
//!
//! Forked from the zygote, with one thread. It isolates itself, starts the program (a command or an
//! executor) and inherits all processes that the program leaves behind, also those in other
//! sessions. SIGTERM of the zygote
//! asks it to stop the command: all processes get SIGTERM, and the init waits for them, even if the
//! shell that started them has ended. SIGQUIT ends that wait: the remaining processes are killed.
//! If the program ends by itself, remaining processes are killed at once, as in Mesos. It reports
//! to the zygote through a socket, which its processes cannot open, and ends when no process is
//! left. Further programs and nested containers (`programs`) are started on request of the zygote.
//! The init of a nested container is this code too, forked from its parent's init.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use module_api::isolator::LaunchPlan;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use protocol::{CommandInfo, ContainerId, Termination};

use super::SWEEP_INTERVAL;
use super::isolate::{self, ProcessCgroup};
use super::program::{program, rights};
use super::programs::{Nested, Programs, request_sockets};
use super::terminal::{Terminal, put_in_foreground};
use super::wire::{
    ContainerProgram, InitEvent, InitOrder, InitReport, LaunchRequest, ProgramEnd, Session,
};
use crate::host::accounts::{OwnUser, RunAs, run_as};
use crate::host::beneath::Beneath;
use crate::host::sys::{self, Forked};
use crate::host::{output, procfs};

/// Fruitless sweeps after which the end is reported although some processes do not die.
const SWEEPS_MAX: u32 = 100;
/// Maximum characters of a reported reason, so that a report is short.
const REASON_MAX: usize = 500;

/// Turns a forked child into the leader of a session that ends with its parent.
pub(super) fn lead_session(parent: Pid) -> io::Result<()> {
    nix::unistd::setsid()?;
    prctl::set_child_subreaper(true)?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    match nix::unistd::getppid() == parent {
        true => Ok(()),
        false => Err(io::Error::other("its parent is gone")),
    }
}

/// The means that an init has from the zygote and the init of its parent.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// The agent's own user.
    pub(super) own: &'a OwnUser,
    /// For reports to the zygote.
    pub(super) reports: &'a UnixDatagram,
    /// The number of files that programs may open, which is smaller than the zygote's.
    pub(super) files: (u64, u64),
    /// The control group that a nested container joins if it has none.
    pub(super) cgroup: Option<&'a ProcessCgroup>,
}

/// Runs the program of a container in this process, which has just been forked, until none of its
/// processes is left.
pub(super) fn run(
    request: &LaunchRequest,
    surroundings: Surroundings<'_>,
    signals: SignalFd,
    programs: Programs,
) -> io::Result<()> {
    let Surroundings {
        own,
        reports,
        files,
        cgroup: outer,
    } = surroundings;
    let report = |event| report(reports, &request.container_id, event);
    let command = match &request.program {
        ContainerProgram::Command(command) | ContainerProgram::Executor(command) => Some(command),
        ContainerProgram::Group => None,
    };
    // Users are those of the host, so they are looked up before the root file system changes.
    let user = match &request.account {
        Some(account) => Ok(RunAs::Other(account.clone())),
        None => run_as(request.user.as_deref(), own, sys::account),
    };
    // Before it loses sight of the host's terminals.
    let has_terminal = request.has_terminal && command.is_some();
    let terminal = match has_terminal.then(Terminal::open).transpose() {
        Ok(terminal) => terminal,
        Err(reason) => return report(InitEvent::NotIsolated(short(reason))),
    };
    let cgroup = match isolate::enter(&request.plan, &request.sandbox, outer) {
        Ok(cgroup) => cgroup,
        Err(reason) => return report(InitEvent::NotIsolated(short(reason))),
    };
    let start = |command: &CommandInfo, variables, output_to_error, terminal: Option<&Terminal>| {
        let program = program(command, variables, own, user.clone()?);
        let uid = program.credentials.as_ref().map(|one| one.uid);
        let program = sys::Program {
            cgroup: cgroup.descriptor(),
            rights: rights(&request.plan, files),
            output_to_error,
            terminal: terminal.map(|terminal| terminal.lend(uid)),
            ..program
        };
        let started = sys::spawn(&program).map_err(|error| error.to_string());
        started.map(|pid| pid.as_raw())
    };
    let main = command.map(|command| {
        let terminal = terminal.as_ref();
        start(command, &request.environment, false, terminal)
    });
    let main = match main.transpose() {
        Ok(main) => main,
        Err(reason) => return report(InitEvent::NotStarted(short(reason))),
    };
    match (main, &terminal, request.session) {
        (Some(main), Some(terminal), _) => terminal.put_in_foreground(main),
        (Some(main), _, Some(Session { has_terminal: true })) => {
            put_in_foreground(&io::stdin(), main);
        }
        _ => {}
    }
    report(InitEvent::Started)?;
    // In a process namespace the parent has the id 0, also as the sender of a signal.
    let parent = nix::unistd::getppid();
    let init = Init {
        programs,
        terminal,
        ..Init::of(main, parent)
    };
    // As in Mesos, a further program has the variables of the command, and its own.
    let mut variables = request.environment.clone();
    variables.extend(
        command
            .into_iter()
            .flat_map(|command| command.environment.clone()),
    );
    let inside = Inside {
        request,
        surroundings: Surroundings {
            cgroup: Some(&cgroup),
            ..surroundings
        },
        signals: &signals,
        cgroup: &cgroup,
        variables: &variables,
        user: &user,
    };
    let start = |command: &CommandInfo| start(command, &variables, true, None);
    let ended = init.oversee(&inside, start)?;
    report(ended)
}

/// Cuts a reason to a length that fits into a report.
fn short(reason: String) -> String {
    reason.chars().take(REASON_MAX).collect()
}

/// The unchanging state of a running init.
struct Inside<'a> {
    request: &'a LaunchRequest,
    /// For nested containers.
    surroundings: Surroundings<'a>,
    signals: &'a SignalFd,
    cgroup: &'a ProcessCgroup,
    /// The environment of its program.
    variables: &'a BTreeMap<String, String>,
    /// The user of its program.
    user: &'a Result<RunAs, String>,
}

impl Inside<'_> {
    fn report(&self, event: InitEvent) -> io::Result<()> {
        self.report_of(&self.request.container_id, event)
    }

    fn report_of(&self, container_id: &ContainerId, event: InitEvent) -> io::Result<()> {
        report(self.surroundings.reports, container_id, event)
    }

    /// The request with what a nested container has of this one.
    fn inherited(&self, request: &LaunchRequest) -> LaunchRequest {
        let own = self.request;
        let mut environment = match request.session {
            Some(_) => self.variables.clone(),
            None => BTreeMap::new(),
        };
        environment.extend(request.environment.clone());
        LaunchRequest {
            environment,
            // As found on the host: its image may have other users of that name.
            account: match (&request.user, self.user) {
                (None, Ok(RunAs::Other(account))) => Some(account.clone()),
                _ => None,
            },
            plan: LaunchPlan {
                no_new_privileges: own.plan.no_new_privileges,
                capabilities: own.plan.capabilities,
                rlimits: own.plan.rlimits.clone(),
                seccomp: own.plan.seccomp.clone(),
                ..LaunchPlan::default()
            },
            ..request.clone()
        }
    }

    /// Forks the init of a nested container.
    fn fork_nested(
        &self,
        request: &LaunchRequest,
        descriptors: Vec<OwnedFd>,
        leave: impl FnOnce(),
    ) -> Result<(Pid, Nested), String> {
        // Without isolators of its own it has no more rights than its parent.
        let is_plain = request.plan == LaunchPlan::default();
        let inherited = is_plain.then(|| self.inherited(request));
        let request = inherited.as_ref().unwrap_or(request);
        if self.request.plan.root.is_some() && request.user.is_some() {
            let problem = "a user of its own needs a parent without an image";
            return Err(problem.to_owned());
        }
        let namespaces = request.plan.namespaces;
        // A process of another namespace has the id 0.
        let parent = match namespaces.pid {
            true => Pid::from_raw(0),
            false => nix::unistd::getpid(),
        };
        let (requests, theirs) = request_sockets()?;
        let forked = sys::fork_into(isolate::clone_flags(namespaces));
        match forked.map_err(|error| format!("fork: {error}"))? {
            Forked::Parent(child) => {
                let container_id = request.container_id.clone();
                let nested = Nested {
                    container_id,
                    requests,
                };
                Ok((child, nested))
            }
            Forked::Child => {
                drop(requests);
                leave();
                let programs = Programs::on_request(Some(theirs));
                let entered = || match request.session {
                    Some(session) => enter_session(session, descriptors),
                    None => enter_sandbox(request),
                };
                let ended = lead_session(parent).and_then(|()| match entered() {
                    Ok(signals) => run(request, self.surroundings, signals, programs),
                    Err(reason) => {
                        let event = InitEvent::NotIsolated(short(reason));
                        self.report_of(&request.container_id, event)
                    }
                });
                if let Err(error) = &ended {
                    eprintln!("container init: {error}");
                }
                sys::exit_now(i32::from(ended.is_err()))
            }
        }
    }
}

/// Makes these descriptors the standard input, output and error of a new init. It stays where its
/// parent is. Returns its signals.
fn enter_session(session: Session, descriptors: Vec<OwnedFd>) -> Result<SignalFd, String> {
    let failed = |error: io::Error| format!("connect the session: {error}");
    let (input, output, error) = match (session.has_terminal, descriptors.as_slice()) {
        (true, [terminal]) => {
            sys::take_terminal(terminal).map_err(failed)?;
            (terminal, terminal, terminal)
        }
        (false, [input, output, error]) => (input, output, error),
        _ => return Err("the descriptors of the session are missing".to_owned()),
    };
    nix::unistd::dup2_stdin(input).map_err(|error| failed(error.into()))?;
    nix::unistd::dup2_stdout(output).map_err(|error| failed(error.into()))?;
    nix::unistd::dup2_stderr(error).map_err(|error| failed(error.into()))?;
    super::signals().map_err(failed)
}

/// Enters the sandbox of a nested container, which is below that of the outermost one. The task may
/// have changed it, so links are not followed. Returns the signals of the new init.
fn enter_sandbox(request: &LaunchRequest) -> Result<SignalFd, String> {
    let sandbox = &request.sandbox;
    let failed = |error: io::Error| format!("open `{}`: {error}", sandbox.display());
    let mut outermost = sandbox.as_path();
    let mut outer = request.container_id.parent();
    while let Some(container) = outer {
        let above = outermost.parent().and_then(std::path::Path::parent);
        outermost = above.unwrap_or(outermost);
        outer = container.parent();
    }
    let inner = sandbox.strip_prefix(outermost).unwrap_or(sandbox);
    let base = Beneath::open(outermost).map_err(failed)?;
    let directory = base.plain_directory(inner).map_err(failed)?;
    nix::unistd::fchdir(&directory).map_err(|error| failed(error.into()))?;
    let out = output::open_output("stdout".as_ref()).map_err(failed)?;
    let error = output::open_output("stderr".as_ref()).map_err(failed)?;
    nix::unistd::dup2_stdout(&out).map_err(|error| failed(error.into()))?;
    nix::unistd::dup2_stderr(&error).map_err(|error| failed(error.into()))?;
    super::signals().map_err(failed)
}

fn report(reports: &UnixDatagram, container_id: &ContainerId, event: InitEvent) -> io::Result<()> {
    let container_id = container_id.clone();
    let bytes = serde_json::to_vec(&InitReport {
        container_id,
        event,
    })?;
    reports.send(&bytes).map(drop)
}

/// The state of a container. Pure, except for `oversee` and the signals that it sends.
#[derive(Debug)]
struct Init {
    /// The program; `None` in a container of a task group.
    main: Option<i32>,
    /// The zygote, or the init of the parent.
    parent: Pid,
    programs: Programs,
    terminal: Option<Terminal>,
    ended: Option<Termination>,
    kill_wanted: bool,
    grace_over: bool,
    sweeps: u32,
    /// Whether it has begun to kill the processes.
    has_killed: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Wait for a signal.
    Wait,
    /// Kill all processes, then look again after [`SWEEP_INTERVAL`].
    Kill,
    /// The program is over; whether all its processes are gone.
    End(Termination, bool),
}

impl Init {
    fn of(main: Option<i32>, parent: Pid) -> Self {
        Self {
            main,
            parent,
            programs: Programs::default(),
            terminal: None,
            ended: None,
            kill_wanted: false,
            grace_over: false,
            sweeps: 0,
            has_killed: false,
        }
    }

    /// Waits for the end of the program.
    fn oversee(
        mut self,
        inside: &Inside<'_>,
        start: impl Fn(&CommandInfo) -> Result<i32, String>,
    ) -> io::Result<InitEvent> {
        loop {
            let is_childless = self.reap(inside)?;
            let timeout = match self.step(is_childless) {
                Step::Wait => PollTimeout::NONE,
                Step::Kill => {
                    self.kill(inside.cgroup);
                    // Continues at the exit of a killed child. A child forked meanwhile needs this
                    // timeout.
                    PollTimeout::from(SWEEP_INTERVAL)
                }
                Step::End(termination, is_clean) => {
                    if let Some(terminal) = self.terminal.take() {
                        terminal.end();
                    }
                    return Ok(InitEvent::Ended {
                        termination,
                        kill_wanted: self.kill_wanted,
                        is_clean,
                    });
                }
            };
            let (signals, requests) = (inside.signals.as_fd(), self.programs.poll_fd());
            let output = self.terminal.as_ref().map(Terminal::poll_fd);
            let all = [Some(signals), requests, output].into_iter().flatten();
            let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let behind = self.terminal.iter().flat_map(Terminal::behind);
            fds.extend(behind.map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
            match poll(&mut fds, timeout) {
                Ok(0) => self.sweeps += 1,
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::any) == Some(true);
            let has_request = requests.is_some() && is_ready(fds.get(1));
            let place = 1 + usize::from(requests.is_some());
            let has_output = output.is_some() && is_ready(fds.get(place));
            if let Some(terminal) = &mut self.terminal {
                if has_output {
                    terminal.copy();
                }
                terminal.flush();
            }
            if has_request
                && let Some((order, with)) = self.programs.receive(&inside.request.container_id)
            {
                self.follow(order, with, inside, &start)?;
            }
            // Terminates: the descriptor does not block, and each read consumes a signal.
            while let Ok(Some(signal)) = inside.signals.read_signal() {
                // A task may signal its init, but not stop it, nor claim to be its parent.
                let is_sent = signal.ssi_code == nix::libc::SI_USER;
                if is_sent && signal.ssi_pid == self.parent.as_raw() as u32 {
                    self.signal(signal.ssi_signo as i32);
                }
            }
        }
    }

    /// Carries out an order of the zygote.
    fn follow(
        &mut self,
        order: InitOrder,
        mut descriptors: Vec<OwnedFd>,
        inside: &Inside<'_>,
        start: &impl Fn(&CommandInfo) -> Result<i32, String>,
    ) -> io::Result<()> {
        // A container that is ending takes no further programs.
        let check = || match self.ended.is_some() || self.kill_wanted {
            true => Err("its container is ending".to_owned()),
            false => Ok(()),
        };
        match order {
            InitOrder::Launch(request) => {
                let checked = check();
                // Its reader must not stay connected to the fork.
                let leave = || self.terminal.take().into_iter().for_each(Terminal::leave);
                let fork = |()| inside.fork_nested(&request, descriptors, leave);
                match checked.and_then(fork) {
                    Ok((pid, nested)) => self.programs.nested_forked(pid.as_raw(), nested),
                    Err(reason) => {
                        let id = &request.container_id;
                        inside.report_of(id, InitEvent::NotIsolated(short(reason)))?;
                        inside.report_of(id, InitEvent::Gone(Termination::Exited(0)))?;
                    }
                }
            }
            InitOrder::Run { program, command } => match check().and_then(|()| start(&command)) {
                Ok(pid) => self.programs.started(pid, program),
                Err(reason) => {
                    let end = ProgramEnd::NotStarted(short(reason));
                    inside.report(InitEvent::ProgramEnded { program, end })?;
                }
            },
            InitOrder::Terminate => self.signal(Signal::SIGTERM as i32),
            InitOrder::Signal(number) => {
                let signal = Signal::try_from(number).ok();
                // The program is not reaped, so its id is valid.
                let main = self.main.filter(|_| self.ended.is_none());
                if let Some((main, signal)) = main.zip(signal) {
                    let _ = kill(Pid::from_raw(main), signal);
                }
            }
            InitOrder::Attach => {
                if let (Some(terminal), Some(reader)) = (&mut self.terminal, descriptors.pop()) {
                    terminal.attach(reader);
                }
            }
            InitOrder::KillContainer => self.signal(Signal::SIGQUIT as i32),
            InitOrder::Kill(program) => self.programs.kill(program),
            InitOrder::KillAll => self.programs.kill_all(),
        }
        Ok(())
    }

    /// Reaps ended children. Whether none is left.
    fn reap(&mut self, inside: &Inside<'_>) -> io::Result<bool> {
        self.programs.end_groups();
        loop {
            match sys::reap() {
                Ok(Some((pid, termination))) if Some(pid.as_raw()) == self.main => {
                    self.ended = Some(termination);
                }
                Ok(Some((pid, termination))) => {
                    if let Some(event) = self.programs.reaped(pid.as_raw(), termination) {
                        inside.report(event)?;
                    } else if let Some(nested) = self.programs.nested_reaped(pid.as_raw()) {
                        if self.main.is_none() {
                            self.programs.kill_left_behind(None);
                        }
                        inside.report_of(&nested, InitEvent::Gone(termination))?;
                    }
                }
                Ok(None) => return Ok(false),
                Err(_) => return Ok(true), // ECHILD
            }
        }
    }

    fn step(&self, is_childless: bool) -> Step {
        match self.ended {
            Some(termination) if is_childless => Step::End(termination, true),
            // They got SIGTERM and have time.
            Some(_) if self.kill_wanted && !self.grace_over => Step::Wait,
            Some(termination) if self.sweeps >= SWEEPS_MAX => Step::End(termination, false),
            Some(_) => Step::Kill,
            None if self.grace_over => Step::Kill,
            None => Step::Wait,
        }
    }

    fn signal(&mut self, signal: i32) {
        let is_first = !self.kill_wanted && self.ended.is_none();
        if signal == Signal::SIGTERM as i32 && is_first {
            self.kill_wanted = true;
            // They serve the command and must not prolong its end.
            self.programs.kill_all();
            self.programs.kill_nested();
            self.terminate();
        }
        if signal == Signal::SIGQUIT as i32 {
            self.kill_wanted |= self.ended.is_none();
            self.grace_over = true;
        }
        if self.main.is_none() && self.kill_wanted {
            self.ended = self.ended.or(Some(Termination::Exited(0)));
        }
    }

    /// Sends SIGTERM to the main process's group and to all other descendants. Once per process,
    /// since many treat a second one as urgent. SIGCONT lets stopped processes handle it. The main
    /// process is not yet reaped, so its id is valid.
    fn terminate(&self) {
        // Listed before, since a process whose parent ends meanwhile may be missing in a later
        // list.
        let mut detached: BTreeSet<i32> = self.detached().collect();
        if let Some(group) = self.main.map(Pid::from_raw) {
            // Atomic, so no process that the group forks meanwhile is missed.
            let _ = killpg(group, Signal::SIGTERM);
            let _ = killpg(group, Signal::SIGCONT);
        }
        detached.extend(self.detached());
        for pid in detached.into_iter().map(Pid::from_raw) {
            let _ = kill(pid, Signal::SIGTERM);
            let _ = kill(pid, Signal::SIGCONT);
        }
    }

    /// The descendants outside of the main process's group.
    fn detached(&self) -> impl Iterator<Item = i32> {
        let main = self.main;
        let outside = own_descendants().into_iter();
        outside
            .filter(move |process| Some(process.group) != main)
            .map(|process| process.pid)
    }

    /// Kills the main process's group and all other descendants. Those that have left the control
    /// group are found in the next sweep.
    fn kill(&mut self, cgroup: &ProcessCgroup) {
        let is_first = !std::mem::replace(&mut self.has_killed, true);
        if cgroup.kill() && is_first {
            return;
        }
        let descendants = own_descendants();
        if let Some(main) = self
            .main
            .filter(|&main| self.is_group_ours(main, &descendants))
        {
            // Atomic, so no process that the group forks meanwhile is missed.
            let _ = killpg(Pid::from_raw(main), Signal::SIGKILL);
        }
        for process in descendants {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL); // It may have ended.
        }
    }

    /// Whether the main process's id still denotes the command's group. Once it is reaped and the
    /// group has no descendant, the kernel may reuse the id.
    fn is_group_ours(&self, main: i32, descendants: &[procfs::Process]) -> bool {
        let mut descendants = descendants.iter();
        self.ended.is_none() || descendants.any(|process| process.group == main)
    }
}

/// The descendants of this process. Empty if /proc cannot be read.
fn own_descendants() -> Vec<procfs::Process> {
    procfs::descendants_of(nix::unistd::getpid().as_raw()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXITED: Termination = Termination::Exited(0);

    fn running() -> Init {
        Init::of(Some(10), Pid::from_raw(5))
    }

    fn after_end(kill_wanted: bool, grace_over: bool, sweeps: u32) -> Init {
        Init {
            ended: Some(EXITED),
            kill_wanted,
            grace_over,
            sweeps,
            ..running()
        }
    }

    #[test]
    fn a_command_ends_with_its_last_process() {
        assert_eq!(running().step(false), Step::Wait);
        let overdue = Init {
            grace_over: true,
            sweeps: 10 * SWEEPS_MAX,
            ..running()
        };
        assert_eq!(overdue.step(false), Step::Kill);
        for (init, step) in [
            (after_end(false, false, 0), Step::Kill),
            (after_end(true, false, 0), Step::Wait),
            (after_end(true, true, 0), Step::Kill),
            (after_end(true, true, SWEEPS_MAX), Step::End(EXITED, false)),
        ] {
            assert_eq!(init.step(false), step, "{init:?}");
            assert_eq!(init.step(true), Step::End(EXITED, true), "{init:?}");
        }
    }

    #[test]
    fn a_command_that_has_ended_cannot_be_killed() {
        let signals = [Signal::SIGTERM, Signal::SIGQUIT];
        for signal in signals.map(|signal| signal as i32) {
            let mut ended = after_end(false, false, 0);
            ended.signal(signal);
            assert!(!ended.kill_wanted, "{ended:?}");
        }
        let mut overdue = running();
        overdue.signal(Signal::SIGQUIT as i32);
        assert!(overdue.kill_wanted && overdue.grace_over);
    }

    #[test]
    fn reaped_leaders_group_is_ours_while_descendants_remain() {
        let process = |line: &str| procfs::parse_stat(line).unwrap();
        let rest = "7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0";
        let left = [process(&format!("12 (left) S 1 10 {rest}"))];
        let other = [process(&format!("13 (other) S 1 11 {rest}"))];
        assert!(
            running().is_group_ours(10, &other),
            "a zombie at least is in it"
        );
        assert!(after_end(false, false, 0).is_group_ours(10, &left));
        assert!(!after_end(false, false, 0).is_group_ours(10, &other));
    }

    #[test]
    fn container_of_a_group_ends_only_when_it_is_killed() {
        let mut group = Init::of(None, Pid::from_raw(5));
        assert_eq!(group.step(true), Step::Wait);
        group.signal(Signal::SIGQUIT as i32);
        assert_eq!(group.step(false), Step::Kill);
        assert_eq!(group.step(true), Step::End(EXITED, true));
    }
}
