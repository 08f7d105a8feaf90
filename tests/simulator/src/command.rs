//! Commands: what a simulated task does in virtual time, written as text where a real task has its command.
//!
//! | text | what it does |
//! |---|---|
//! | `run 30s` | runs for so long and ends well |
//! | `run 1500ms exit 3` | runs for so long and exits with this status; 0 is well |
//! | `fail` | exits with status 1 at once |
//! | `crash 5s` | its executor dies of a signal after so long, and tells nobody |
//! | `hang` | runs until it is killed, and ends when it is asked to |
//!
//! With ` stubborn` at the end it does not hear a polite kill, only the certain one after the grace period. Pure: it parses,
//! and whoever runs it keeps the time.

use std::fmt;
use std::time::Duration;

/// How a task ends if nobody kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit status.
    Exits(i32),
    /// With its executor, of a signal.
    Crashes,
}

/// What a simulated task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// After how long it ends by itself, and how; `None` is never.
    pub end: Option<(Duration, Ending)>,
    /// Whether it hears a polite kill.
    pub stubborn: bool,
}

/// A text that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "command is `{text}`: expected `run DURATION [exit STATUS]`, `fail`, `crash DURATION` or `hang`, then perhaps `stubborn`"
)]
pub struct NoCommand {
    /// The text, cut to 80 characters.
    pub text: String,
}

impl Command {
    /// Reads a command.
    pub fn parse(text: &str) -> Result<Self, NoCommand> {
        let none = || NoCommand {
            text: text.chars().take(80).collect(),
        };
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let stubborn = words.last() == Some(&"stubborn");
        if stubborn {
            words.pop();
        }
        let end = match words.as_slice() {
            ["hang"] => None,
            ["fail"] => Some((Duration::ZERO, Ending::Exits(1))),
            ["run", time] => Some((duration(time).ok_or_else(none)?, Ending::Exits(0))),
            ["run", time, "exit", status] => {
                let status = status.parse().map_err(|_| none())?;
                Some((duration(time).ok_or_else(none)?, Ending::Exits(status)))
            }
            ["crash", time] => Some((duration(time).ok_or_else(none)?, Ending::Crashes)),
            _ => return Err(none()),
        };
        Ok(Self { end, stubborn })
    }
}

/// Milliseconds or seconds.
fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok().map(Duration::from_millis),
        None => {
            let seconds = text.strip_suffix('s')?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            None => f.write_str("hang")?,
            Some((after, Ending::Exits(status))) => {
                write!(f, "run {}ms exit {status}", after.as_millis())?;
            }
            Some((after, Ending::Crashes)) => write!(f, "crash {}ms", after.as_millis())?,
        }
        if self.stubborn {
            f.write_str(" stubborn")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let read = |text: &str| Command::parse(text).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(read("run 30s").end, Some((seconds(30), Ending::Exits(0))));
        assert_eq!(
            read("run 1500ms exit 3").end,
            Some((Duration::from_millis(1500), Ending::Exits(3)))
        );
        assert_eq!(read("fail").end, Some((Duration::ZERO, Ending::Exits(1))));
        assert_eq!(read("crash 5s").end, Some((seconds(5), Ending::Crashes)));
        assert!(read("hang stubborn").stubborn && read("hang").end.is_none());
        for text in ["run 30s", "run 7s exit 2 stubborn", "crash 1s", "hang"] {
            assert_eq!(read(&read(text).to_string()), read(text));
        }
    }

    #[test]
    fn what_is_no_command_is_refused_with_its_text() {
        for text in ["", "run", "run 30", "run 5s exit x", "sleep 5", "stubborn"] {
            let error = Command::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("command is `{text}`")),
                "{error}"
            );
        }
    }
}
