//! The error of a command: one line with the cause and the next step.
//!
//! All errors of the command end here. Contains no backtrace, and prints nothing itself.

use std::error::Error;
use std::fmt;

use crate::output::print::escaped;

/// The exit code of a failed command.
pub const FAILED: u8 = 1;
/// The exit code of an invalid command line.
pub const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug)]
pub struct CliError {
    message: String,
    code: u8,
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, CliError>;

impl CliError {
    /// An error with this message: the cause and the next step.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: one_line(&message.into()),
            code: FAILED,
        }
    }

    /// An invalid command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            ..Self::new(message)
        }
    }

    /// The error that `what` failed because of `error` and its sources.
    pub fn because(what: impl fmt::Display, error: &dyn Error) -> Self {
        Self::new(format!("{what}: {}", chain(error)))
    }

    /// An error without a message: the process ends with `code`.
    pub fn code(code: u8) -> Self {
        Self {
            message: String::new(),
            code,
        }
    }

    /// Adds the next step.
    pub fn next(mut self, advice: impl fmt::Display) -> Self {
        self.message = one_line(&format!("{} ({advice})", self.message));
        self
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CliError {}

/// An error followed by its sources, without repetitions.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = error.source();
    }
    text
}

/// The text in one line, escaped because it may contain text of clients.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    escaped(&lines.join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_one_line_with_cause_and_advice() {
        let cause = std::io::Error::other("no space\nleft");
        let failure = CliError::because("cannot write", &cause).next("free some space");
        assert_eq!(
            failure.to_string(),
            "cannot write: no space left (free some space)"
        );
        assert_eq!(CliError::usage("x").exit_code(), 2);
    }
}
