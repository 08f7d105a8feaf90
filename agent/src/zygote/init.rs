//! The container init: the first process of a container.
//!
//! Forked from the zygote, with one thread. It isolates itself, starts the program (a command or an
//! executor) and inherits all processes that the program leaves behind, also those in other
//! sessions. SIGTERM of the zygote
//! asks it to stop the command: all processes get SIGTERM, and the init waits for them, even if the
//! shell that started them has ended. SIGQUIT ends that wait: the remaining processes are killed.
//! If the program ends by itself, remaining processes are killed at once, as in Mesos. It reports
//! to the zygote through a socket, which its processes cannot open, and ends when no process is
//! left. Further programs (`programs`) are started on request of the zygote.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use protocol::{CommandInfo, ContainerId, Termination};

use super::SWEEP_INTERVAL;
use super::isolate::{self, ProcessCgroup};
use super::program::{program, rights};
use super::programs::Programs;
use super::wire::{ContainerProgram, InitEvent, InitReport, LaunchRequest};
use crate::host::accounts::{OwnUser, RunAs, run_as};
use crate::host::procfs;
use crate::host::sys;

/// Fruitless sweeps after which the end is reported although some processes do not die.
const SWEEPS_MAX: u32 = 100;
/// Maximum characters of a reported reason, so that a report is short.
const REASON_MAX: usize = 500;

/// Runs the program of a container in this process, which has just been forked, until none of its
/// processes is left.
pub(super) fn run(
    request: &LaunchRequest,
    own: &OwnUser,
    signals: SignalFd,
    programs: Programs,
    reports: &UnixDatagram,
) -> io::Result<()> {
    let report = |event| report(reports, &request.container_id, event);
    let short = |reason: String| reason.chars().take(REASON_MAX).collect();
    let (ContainerProgram::Command(command) | ContainerProgram::Executor(command)) =
        &request.program;
    // Users are those of the host, so they are looked up before the root file system changes.
    let user = match &request.account {
        Some(account) => Ok(RunAs::Other(account.clone())),
        None => run_as(request.user.as_deref(), own, sys::account),
    };
    let cgroup = match isolate::enter(&request.plan, &request.sandbox) {
        Ok(cgroup) => cgroup,
        Err(reason) => return report(InitEvent::NotIsolated(short(reason))),
    };
    let start = |command: &CommandInfo, variables, output_to_error| {
        let program = program(command, variables, own, user.clone()?);
        let program = sys::Program {
            cgroup: cgroup.descriptor(),
            rights: rights(&request.plan),
            output_to_error,
            ..program
        };
        let started = sys::spawn(&program).map_err(|error| error.to_string());
        started.map(|pid| pid.as_raw())
    };
    let main = match start(command, &request.environment, false) {
        Ok(main) => main,
        Err(reason) => return report(InitEvent::NotStarted(short(reason))),
    };
    report(InitEvent::Started)?;
    // In a process namespace the parent has the id 0, also as the sender of a signal.
    let zygote = nix::unistd::getppid();
    let init = Init {
        programs,
        ..Init::of(main, zygote)
    };
    // As in Mesos, a further program has the variables of the command, and its own.
    let mut variables = request.environment.clone();
    variables.extend(command.environment.clone());
    let start = |command: &CommandInfo| start(command, &variables, true);
    let ended = init.oversee(&signals, &cgroup, start, &report)?;
    report(ended)
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
    main: i32,
    zygote: Pid,
    programs: Programs,
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
    fn of(main: i32, zygote: Pid) -> Self {
        Self {
            main,
            zygote,
            programs: Programs::default(),
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
        signals: &SignalFd,
        cgroup: &ProcessCgroup,
        start: impl Fn(&CommandInfo) -> Result<i32, String>,
        report: &impl Fn(InitEvent) -> io::Result<()>,
    ) -> io::Result<InitEvent> {
        loop {
            let is_childless = self.reap(report)?;
            let timeout = match self.step(is_childless) {
                Step::Wait => PollTimeout::NONE,
                Step::Kill => {
                    self.kill(cgroup);
                    // Continues at the exit of a killed child. A child forked meanwhile needs this
                    // timeout.
                    PollTimeout::from(SWEEP_INTERVAL)
                }
                Step::End(termination, is_clean) => {
                    return Ok(InitEvent::Ended {
                        termination,
                        kill_wanted: self.kill_wanted,
                        is_clean,
                    });
                }
            };
            let all = [Some(signals.as_fd()), self.programs.poll_fd()];
            let all = all.into_iter().flatten();
            let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, timeout) {
                Ok(0) => self.sweeps += 1,
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_request = fds.get(1).and_then(PollFd::any) == Some(true);
            // A container that is ending takes no further programs.
            let is_ending = self.ended.is_some() || self.kill_wanted;
            if has_request
                && let Some(event) = self.programs.handle_request(|command| match is_ending {
                    true => Err("its container is ending".to_owned()),
                    false => start(command),
                })
            {
                report(event)?;
            }
            // Terminates: the descriptor does not block, and each read consumes a signal.
            while let Ok(Some(signal)) = signals.read_signal() {
                // A task may signal its init, but not stop it, nor claim to be the zygote.
                let is_sent = signal.ssi_code == nix::libc::SI_USER;
                if is_sent && signal.ssi_pid == self.zygote.as_raw() as u32 {
                    self.signal(signal.ssi_signo as i32);
                }
            }
        }
    }

    /// Reaps ended children. Whether none is left.
    fn reap(&mut self, report: &impl Fn(InitEvent) -> io::Result<()>) -> io::Result<bool> {
        self.programs.end_groups();
        loop {
            match sys::reap() {
                Ok(Some((pid, termination))) if pid.as_raw() == self.main => {
                    self.ended = Some(termination);
                }
                Ok(Some((pid, termination))) => {
                    if let Some(event) = self.programs.reaped(pid.as_raw(), termination) {
                        report(event)?;
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
            self.terminate();
        }
        if signal == Signal::SIGQUIT as i32 {
            self.kill_wanted |= self.ended.is_none();
            self.grace_over = true;
        }
    }

    /// Sends SIGTERM to the main process's group and to all other descendants. Once per process,
    /// since many treat a second one as urgent. SIGCONT lets stopped processes handle it. The main
    /// process is not yet reaped, so its id is valid.
    fn terminate(&self) {
        // Listed before, since a process whose parent ends meanwhile may be missing in a later
        // list.
        let mut detached: BTreeSet<i32> = self.detached().collect();
        let group = Pid::from_raw(self.main);
        // Atomic, so no process that the group forks meanwhile is missed.
        let _ = killpg(group, Signal::SIGTERM);
        let _ = killpg(group, Signal::SIGCONT);
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
            .filter(move |process| process.group != main)
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
        if self.is_group_ours(&descendants) {
            // Atomic, so no process that the group forks meanwhile is missed.
            let _ = killpg(Pid::from_raw(self.main), Signal::SIGKILL);
        }
        for process in descendants {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL); // It may have ended.
        }
    }

    /// Whether the main process's id still denotes the command's group. Once it is reaped and the
    /// group has no descendant, the kernel may reuse the id.
    fn is_group_ours(&self, descendants: &[procfs::Process]) -> bool {
        let mut descendants = descendants.iter();
        self.ended.is_none() || descendants.any(|process| process.group == self.main)
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
        Init::of(10, Pid::from_raw(5))
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
            running().is_group_ours(&other),
            "a zombie at least is in it"
        );
        assert!(after_end(false, false, 0).is_group_ours(&left));
        assert!(!after_end(false, false, 0).is_group_ours(&other));
    }
}
