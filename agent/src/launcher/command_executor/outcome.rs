//! The status of an ended command, and the escalation from SIGTERM to SIGKILL. Pure.

use std::time::Duration;

use protocol::{TaskState, Termination};
use runtime::Instant;

/// Default time between SIGTERM and SIGKILL.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);

/// A task's terminal state and message. Without a reason, as from Mesos' executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state.
    pub state: TaskState,
    /// The message.
    pub message: String,
}

/// The status of a task after its command has ended.
pub fn outcome(termination: Termination, kill_wanted: bool) -> Outcome {
    let message = match termination {
        Termination::Exited(code) => format!("Command exited with status {code}"),
        Termination::Signaled(signal) => {
            format!("Command terminated with signal {}", signal_name(signal))
        }
    };
    let state = match termination {
        _ if kill_wanted => TaskState::Killed,
        Termination::Exited(0) => TaskState::Finished,
        _ => TaskState::Failed,
    };
    Outcome { state, message }
}

/// A signal's name, as shells print it.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        31 => "Bad system call",
        _ => return signal.to_string(),
    };
    name.to_owned()
}

/// The state of a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kill {
    deadline: Option<Instant>,
}

/// The effect of a kill request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillStep {
    /// First request: send SIGTERM now, SIGKILL at the deadline.
    Begin(Instant),
    /// A shorter grace period: SIGKILL at this deadline.
    Shorten(Instant),
    /// No change.
    Nothing,
}

impl Kill {
    /// Whether the task is being killed.
    pub fn is_wanted(&self) -> bool {
        self.deadline.is_some()
    }

    /// Requests a kill; later requests can only shorten the grace period.
    pub fn request(&mut self, now: Instant, grace: Duration) -> KillStep {
        let deadline = now + grace;
        match self.deadline {
            None => {
                self.deadline = Some(deadline);
                KillStep::Begin(deadline)
            }
            Some(earlier) if deadline < earlier => {
                self.deadline = Some(deadline);
                KillStep::Shorten(deadline)
            }
            Some(_) => KillStep::Nothing,
        }
    }

    /// Whether the grace period is running.
    pub fn has_time(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Whether the grace period has passed.
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 5.4.
    #[test]
    fn exit_status_decides_the_state_unless_killed() {
        let check = |termination, wanted, state, message: &str| {
            let outcome = outcome(termination, wanted);
            assert_eq!((outcome.state, outcome.message.as_str()), (state, message));
        };
        check(
            Termination::Exited(0),
            false,
            TaskState::Finished,
            "Command exited with status 0",
        );
        check(
            Termination::Exited(3),
            false,
            TaskState::Failed,
            "Command exited with status 3",
        );
        check(
            Termination::Signaled(9),
            false,
            TaskState::Failed,
            "Command terminated with signal Killed",
        );
        check(
            Termination::Signaled(15),
            true,
            TaskState::Killed,
            "Command terminated with signal Terminated",
        );
        check(
            Termination::Exited(0),
            true,
            TaskState::Killed,
            "Command exited with status 0",
        );
        check(
            Termination::Signaled(40),
            false,
            TaskState::Failed,
            "Command terminated with signal 40",
        );
    }

    /// SPEC 5.4.
    #[test]
    fn a_later_kill_may_only_shorten_the_grace() {
        let second = Duration::from_secs(1);
        let at = |seconds: u32| Instant::default() + second * seconds;
        let mut kill = Kill::default();
        assert_eq!(kill.request(at(0), second * 3), KillStep::Begin(at(3)));
        assert_eq!(kill.request(at(1), second * 5), KillStep::Nothing);
        assert_eq!(kill.request(at(1), second), KillStep::Shorten(at(2)));
        assert!(!kill.is_due(at(1)) && kill.is_due(at(2)));
        assert!(kill.has_time(at(1)) && !kill.has_time(at(2)));
        assert!(!Kill::default().has_time(at(0)), "no kill was asked for");
    }
}
