//! Commands of simulated tasks, as text in place of a shell command.
//!
//! | text | effect |
//! |---|---|
//! | `run 30s` | runs for this time and succeeds |
//! | `run 1500ms exit 3` | runs for this time and exits with this status; 0 is success |
//! | `fail` | exits with status 1 at once |
//! | `crash 5s` | its executor dies of a signal after this time, without an update |
//! | `hang` | runs until it is killed, and ends when asked to |
//!
//! With ` stubborn` at the end it ignores SIGTERM and ends only by SIGKILL after the grace period.
//! Pure: only parses; the executor keeps the time.

use std::fmt;
use std::time::Duration;

/// How a task ends unless it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit status.
    Exits(i32),
    /// Its executor dies of a signal.
    Crashes,
}

/// The behaviour of a simulated task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Time and kind of its end; `None` means never.
    pub end: Option<(Duration, Ending)>,
    /// Whether it ignores SIGTERM.
    pub stubborn: bool,
}

/// A text that is not a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "command is `{text}`: expected `run DURATION [exit STATUS]`, `fail`, `crash DURATION` or `hang`, then perhaps `stubborn`"
)]
pub struct NoCommand {
    /// The text, cut to 80 characters.
    pub text: String,
}

impl Command {
    /// Parses a command.
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
    fn invalid_command_error_has_its_text() {
        for text in ["", "run", "run 30", "run 5s exit x", "sleep 5", "stubborn"] {
            let error = Command::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("command is `{text}`")),
                "{error}"
            );
        }
    }
}
