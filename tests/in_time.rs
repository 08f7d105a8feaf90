//! Commands with a time limit: one that does not end fails its test with its output.
//!
//! Exit statuses are left to the caller.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::support::{LONGEST, PATIENCE, within};

/// [`Command::output`] and [`Command::status`] bounded by [`LONGEST`], because some commands run a
/// whole test in namespaces. An error means that the command could not be started.
pub trait InTime {
    /// Waits for its exit and returns its output.
    fn output_in_time(&mut self) -> io::Result<Output>;
    /// Waits for its exit; its output goes where the command directs it.
    fn status_in_time(&mut self) -> io::Result<ExitStatus>;
}

impl InTime for Command {
    fn output_in_time(&mut self) -> io::Result<Output> {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.stdin(Stdio::null()).spawn()?;
        let (out, err) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
        let status = ended(&mut child);
        // A surviving child process may hold the output open, so this wait is bounded too.
        let all = |output: Receiver<Vec<u8>>| output.recv_timeout(PATIENCE).ok();
        match (status, all(out), all(err)) {
            (Some(status), Some(stdout), Some(stderr)) => Ok(Output {
                status,
                stdout,
                stderr,
            }),
            (status, out, err) => {
                let text = |output: Option<Vec<u8>>| {
                    output.map(|output| String::from_utf8_lossy(&output).into_owned())
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

/// Its exit status; `None` if it had to be killed.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let status = within(LONGEST, || child.try_wait().ok().flatten());
    if status.is_none() {
        let _ = child.kill(); // It may end at this very moment.
        let _ = child.wait();
    }
    status
}

/// Reads to the end on a thread; the receiver gets all bytes at once.
fn read_all(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, output) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut all); // What was read until then is what there is.
        }
        let _ = send.send(all); // Nobody may listen any more.
    });
    output
}
