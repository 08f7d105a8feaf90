//! Failure: why a command did not do what it was asked, in one line that says what to do next.
//!
//! Everything that can go wrong below ends here. It never holds a backtrace, and prints nothing itself.

use std::error::Error;
use std::fmt;

use crate::print::escaped;

/// The exit code of a command that was understood but failed.
pub const FAILED: u8 = 1;
/// The exit code of a command line that was not understood.
pub const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

/// What a command ends with.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure in these words: what happened, and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: one_line(&message.into()),
            code: FAILED,
        }
    }

    /// The command line was wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            ..Self::new(message)
        }
    }

    /// `what` did not work because of `error` and its sources.
    pub fn because(what: impl fmt::Display, error: &dyn Error) -> Self {
        Self::new(format!("{what}: {}", chain(error)))
    }

    /// A failure without words of its own: the process ends with `code`.
    pub fn code(code: u8) -> Self {
        Self {
            message: String::new(),
            code,
        }
    }

    /// The same, with what to do next.
    pub fn next(mut self, advice: impl fmt::Display) -> Self {
        self.message = one_line(&format!("{} ({advice})", self.message));
        self
    }

    /// What the process should exit with.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

/// An error followed by its sources, each once.
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

/// The text in one line. It may repeat names that strangers have chosen, so it is escaped.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    escaped(&lines.join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_cause_and_advice() {
        let cause = std::io::Error::other("no space\nleft");
        let failure = Failure::because("cannot write", &cause).next("free some space");
        assert_eq!(
            failure.to_string(),
            "cannot write: no space left (free some space)"
        );
        assert_eq!(Failure::usage("x").exit_code(), 2);
    }
}
