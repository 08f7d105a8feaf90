//! Commands of tasks on a simulated machine, in virtual time, and the end of a killed task.

use std::time::Duration;

use agent::launcher::ContainerEnd;
use protocol::Termination;
use runtime::{Clock, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::load::command::{Command, Ending};

/// SIGTERM.
pub const TERMINATED: i32 = 15;
/// SIGKILL.
pub const KILLED: i32 = 9;
/// SIGSEGV.
pub const SEGMENTATION_FAULT: i32 = 11;

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

    /// Whether the grace period has passed.
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// Runs a command to its end, or until it is asked to stop within a grace period.
pub async fn run(
    command: Command,
    clock: &Clock,
    stops: &mut UnboundedReceiver<Duration>,
) -> ContainerEnd {
    let begun = clock.now();
    let mut kill = Kill::default();
    loop {
        let now = clock.now();
        let by_itself = command.end.map(|(after, ending)| (begun + after, ending));
        if let Some((_, ending)) = by_itself.filter(|(at, _)| *at <= now) {
            return match ending {
                Ending::Exits(code) => command_end(Termination::Exited(code), kill),
                Ending::Crashes => ContainerEnd::Leader(Termination::Signaled(SEGMENTATION_FAULT)),
            };
        }
        if kill.is_due(now) {
            return command_end(Termination::Signaled(KILLED), kill);
        }
        let next = by_itself
            .map(|(at, _)| at)
            .into_iter()
            .chain(kill.deadline)
            .min();
        let stop = match next {
            Some(next) => clock.timeout(next - now, stops.recv()).await.ok().flatten(),
            None => stops.recv().await,
        };
        if let Some(grace) = stop {
            kill.request(clock.now(), grace);
            if !command.stubborn {
                return command_end(Termination::Signaled(TERMINATED), kill);
            }
        }
    }
}

fn command_end(termination: Termination, kill: Kill) -> ContainerEnd {
    ContainerEnd::Command {
        termination,
        kill_wanted: kill.is_wanted(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::testing;
    use tokio::sync::mpsc::unbounded_channel;

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
    }

    /// The end of a command, and when, if it is asked to stop at these seconds within three more.
    fn end(text: &'static str, stops: &'static [u64]) -> (ContainerEnd, u64) {
        testing::run_simulated(async move {
            let clock = Clock::paused();
            let (sender, mut receiver) = unbounded_channel();
            let command = Command::parse(text).unwrap();
            let own = clock.clone();
            let run = tokio::task::spawn_local(async move {
                let end = run(command, &own, &mut receiver).await;
                (end, (own.now() - Instant::default()).as_secs())
            });
            for second in 0..20 {
                if stops.contains(&second) {
                    sender.send(Duration::from_secs(3)).unwrap();
                }
                clock.advance(Duration::from_secs(1)).await;
            }
            run.await.unwrap()
        })
    }

    #[test]
    fn commands_end_by_themselves_or_when_asked() {
        let command = |termination, kill_wanted| ContainerEnd::Command {
            termination,
            kill_wanted,
        };
        let exited = |code| Termination::Exited(code);
        assert_eq!(end("run 5s", &[]), (command(exited(0), false), 5));
        assert_eq!(end("run 5s exit 3", &[]), (command(exited(3), false), 5));
        let terminated = Termination::Signaled(TERMINATED);
        assert_eq!(end("hang", &[4]), (command(terminated, true), 4));
        let killed = Termination::Signaled(KILLED);
        assert_eq!(end("hang stubborn", &[4]), (command(killed, true), 7));
        assert_eq!(end("run 5s stubborn", &[4]), (command(exited(0), true), 5));
        let crashed = ContainerEnd::Leader(Termination::Signaled(SEGMENTATION_FAULT));
        assert_eq!(end("crash 5s", &[]), (crashed, 5));
    }
}
