//! Commands that end in time, or fail their test with what they said.
//!
//! A command that never ends would leave its test waiting for ever, and nobody would learn which one. Nothing here looks at how a command
//! ended.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::support::{LONGEST, PATIENCE, within};

/// [`Command::output`] and [`Command::status`] with a bound: that of a whole test, for some are one, in a place of its own. An error says that the command could not be started.
pub trait InTime {
    /// Runs it to its end and gives what it printed.
    fn output_in_time(&mut self) -> io::Result<Output>;
    /// Runs it to its end; what it prints goes where the command says.
    fn status_in_time(&mut self) -> io::Result<ExitStatus>;
}

impl InTime for Command {
    fn output_in_time(&mut self) -> io::Result<Output> {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.stdin(Stdio::null()).spawn()?;
        let (out, err) = (heard(child.stdout.take()), heard(child.stderr.take()));
        let status = ended(&mut child);
        // Who outlives it may hold its output open, and then there is no end to wait for.
        let all = |said: Receiver<Vec<u8>>| said.recv_timeout(PATIENCE).ok();
        match (status, all(out), all(err)) {
            (Some(status), Some(stdout), Some(stderr)) => Ok(Output {
                status,
                stdout,
                stderr,
            }),
            (status, out, err) => {
                let text = |said: Option<Vec<u8>>| {
                    said.map(|said| String::from_utf8_lossy(&said).into_owned())
                };
                let (out, err) = (text(out), text(err));
                panic!(
                    "{self:?} has not ended within {LONGEST:?}, or others hold its output open: {status:?} {out:?} {err:?}"
                )
            }
        }
    }

    fn status_in_time(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.stdin(Stdio::null()).spawn()?;
        let status = ended(&mut child);
        Ok(status.unwrap_or_else(|| panic!("{self:?} goes on after {LONGEST:?}")))
    }
}

/// How it ended; nothing if it had to be killed.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let status = within(LONGEST, || child.try_wait().ok().flatten());
    if status.is_none() {
        let _ = child.kill(); // It may end at this very moment.
        let _ = child.wait();
    }
    status
}

/// All that is said here, once it is all.
fn heard(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (say, said) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut all); // What was read until then is what there is.
        }
        let _ = say.send(all); // Nobody may listen any more.
    });
    said
}
