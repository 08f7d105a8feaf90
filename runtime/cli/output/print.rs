//! Printing to standard output and standard error, without a panic if a write fails.
//!
//! A failed write ends the process with an error; a closed pipe (`meros tasks | head -1`) ends it
//! silently. Characters that move a terminal's cursor, change its colour, start a new line or
//! change the text direction are escaped, because names in a cluster are chosen by its users. Bytes
//! of a task are printed unchanged.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stderr, stdout};

use crate::output::error::{CliError, Outcome};

/// Prints a line to standard output. Ends the process on an error.
pub fn line(text: Arguments<'_>) {
    or_end(bytes(
        format!("{}\n", escaped(&text.to_string())).as_bytes(),
    ));
}

/// Prints indented JSON to standard output. Ends the process on an error.
pub fn json_lines(text: &str) {
    or_end(bytes(format!("{}\n", escaped_in_json(text)).as_bytes()));
}

/// Prints bytes unchanged to standard output.
pub fn bytes(bytes: &[u8]) -> Outcome {
    written("standard output", &mut stdout().lock(), bytes)
}

/// Prints bytes unchanged to standard error.
pub fn error_bytes(bytes: &[u8]) -> Outcome {
    written("standard error", &mut stderr().lock(), bytes)
}

/// Prints one or several lines to standard error.
pub fn error_line(text: Arguments<'_>) {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(escaped).collect();
    // The exit status reports an error even if standard error is closed.
    let _ = error_bytes(format!("{}\n", lines.join("\n")).as_bytes());
}

/// Prints an error if it has a message. Returns the exit code.
pub fn report(failure: &CliError) -> u8 {
    let text = failure.to_string();
    if !text.is_empty() {
        error_line(format_args!("meros: {text}"));
    }
    failure.exit_code()
}

/// The error of a failed write to a standard stream; success with exit code 0 for a closed pipe.
pub fn unwritable(stream: &str, error: &io::Error) -> CliError {
    match error.kind() {
        ErrorKind::BrokenPipe => CliError::code(0),
        _ => CliError::because(format_args!("cannot write to {stream}"), error),
    }
}

fn written(stream: &str, sink: &mut impl Write, bytes: &[u8]) -> Outcome {
    let done = sink.write_all(bytes).and_then(|()| sink.flush());
    done.map_err(|error| unwritable(stream, &error))
}

fn or_end(outcome: Outcome) {
    if let Err(failure) = outcome {
        std::process::exit(report(&failure).into());
    }
}

/// Whether a character affects how a terminal shows its neighbours.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text in one line, with control and direction characters escaped as `\n` or `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, |character| character.escape_default().to_string())
}

/// JSON with the same characters escaped in its strings, and its line breaks unchanged.
fn escaped_in_json(text: &str) -> Cow<'_, str> {
    replaced(text, |character| match character {
        '\n' => "\n".to_owned(),
        // All of them are in the basic multilingual plane.
        character => format!("\\u{:04x}", u32::from(character)),
    })
}

fn replaced(text: &str, escape: fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_unsafe(character) {
            true => safe.push_str(&escape(character)),
            false => safe.push(character),
        }
    }
    Cow::Owned(safe)
}

/// Prints a line to standard output like `println!`, but never panics.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => { $crate::output::print::line(format_args!($($words)*)) };
}

#[cfg(test)]
mod tests {
    use testkit::assert_starts;

    use super::*;

    #[test]
    fn only_unsafe_characters_are_escaped() {
        for (text, shown) in [
            (
                "web \u{65e5}\u{672c} \u{5d0}\u{5d1} \\n",
                "web \u{65e5}\u{672c} \u{5d0}\u{5d1} \\n",
            ),
            ("a\x1b[2Jb\r\n\tc", r"a\u{1b}[2Jb\r\n\tc"),
            (
                "\u{202e}gpj\u{2069}\u{200f}\u{9b}",
                r"\u{202e}gpj\u{2069}\u{200f}\u{9b}",
            ),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({ "name": "a\u{202e}b\x7f\x1b\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = escaped_in_json(&text);
        assert!(!safe.replace('\n', "").contains(is_unsafe), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }

    #[test]
    fn closed_pipe_is_no_error() {
        let of = |kind: ErrorKind| unwritable("standard output", &kind.into());
        let closed = of(ErrorKind::BrokenPipe);
        assert_eq!((closed.exit_code(), closed.to_string().as_str()), (0, ""));
        let full = of(ErrorKind::StorageFull);
        assert_eq!(full.exit_code(), crate::output::error::FAILED);
        let text = full.to_string();
        assert_starts!(text, "cannot write to standard output: ");
    }
}
