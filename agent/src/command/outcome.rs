//! What the end of a command means for its task, and how a kill grows from polite to certain. Pure.

use std::time::Duration;

use protocol::{TaskState, Termination};
use runtime::Instant;

/// The time between the polite signal and the certain one, where nobody says otherwise (SPEC 5.4).
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);

/// A task's last state, and a sentence for people. It has no reason: the executor gives none, as Mesos' does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state.
    pub state: TaskState,
    /// The sentence.
    pub message: String,
}

/// What a task has come to when its command has ended so.
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

/// A signal as shells name it.
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

/// How far the killing of a task has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kill {
    deadline: Option<Instant>,
}

/// What a wish to kill changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillStep {
    /// The first wish: ask politely now, and be certain at the deadline.
    Begin(Instant),
    /// A later wish with less patience: be certain at this deadline.
    Shorten(Instant),
    /// A later wish with no less patience.
    Nothing,
}

impl Kill {
    /// Whether anybody wants the task killed.
    pub fn is_wanted(&self) -> bool {
        self.deadline.is_some()
    }

    /// Somebody wants the task killed; a later wish may only shorten the grace (SPEC 5.4).
    pub fn wish(&mut self, now: Instant, grace: Duration) -> KillStep {
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

    /// Whether the task was asked to end and still has time to.
    pub fn has_time(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now < deadline)
    }

    /// Whether it is time to be certain.
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 5.4.
    #[test]
    fn the_exit_status_decides_unless_a_kill_was_wanted() {
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
        assert_eq!(kill.wish(at(0), second * 3), KillStep::Begin(at(3)));
        assert_eq!(kill.wish(at(1), second * 5), KillStep::Nothing);
        assert_eq!(kill.wish(at(1), second), KillStep::Shorten(at(2)));
        assert!(!kill.is_due(at(1)) && kill.is_due(at(2)));
        assert!(kill.has_time(at(1)) && !kill.has_time(at(2)));
        assert!(!Kill::default().has_time(at(0)), "no kill was asked for");
    }
}
