//! Printing: lines to standard output and complaints to standard error, without falling when nobody reads them.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Prints a line to standard output, and ends the process quietly if its reader has gone (`meros tasks | head -1`).
pub fn line(text: Arguments<'_>) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are to standard output.
pub fn bytes(bytes: &[u8]) {
    let mut out = stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    if written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        std::process::exit(0);
    }
}

/// Prints a line to standard error.
pub fn complain(text: Arguments<'_>) {
    error_bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are to standard error.
pub fn error_bytes(bytes: &[u8]) {
    let _ = stderr().lock().write_all(bytes); // Nowhere is left to say that nobody listens.
}

/// Prints a line to standard output, as `println!` would, but never panics.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => { $crate::print::line(format_args!($($words)*)) };
}
