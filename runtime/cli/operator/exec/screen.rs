//! This process' terminal: raw mode, and its size.

use std::io::{IsTerminal, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::output::error::{CliError, Outcome};

/// Standard input in raw mode: each key goes to the command, also those that send signals. Restored
/// when dropped.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// `None` if standard input is no terminal.
    pub fn enter() -> Outcome<Option<Self>> {
        if !stdin().is_terminal() {
            return Ok(None);
        }
        let failed = |error| CliError::because("cannot use the terminal", &error);
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Flush, &raw).map_err(failed)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Rows and columns of the terminal at standard output, if it is one.
pub fn size() -> Option<(u32, u32)> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some((size.ws_row.into(), size.ws_col.into()))
}
