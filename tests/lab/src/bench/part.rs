//! Parts: one side of a measurement in a process of its own, for separate figures of memory, CPU
//! time and open files.
//!
//! A part prints one line on standard output when it is ready, then answers each line of standard
//! input with one line of JSON. It ends when its input ends, so also when its parent has ended.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use runtime::Clock;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::process::{Usage, usage};
use meros::output::error::{CliError, Outcome};
use meros::service::agent::own_program;

/// Timeout of a reply.
const PATIENCE: Duration = Duration::from_secs(600);

/// A part. Dropping it ends the process.
pub struct Part {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    answers: UnboundedReceiver<String>,
    first: Value,
}

impl Part {
    /// Starts the hidden verb `meros-lab bench VERB ARGUMENTS` with the certificates of this
    /// directory, and waits until it is ready. `name` appears in failures.
    pub async fn start(
        name: impl Into<String>,
        verb: &str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Outcome<Self> {
        let program = Command::new(own_program()?);
        Self::start_as(program, name.into(), verb, arguments, certs).await
    }

    /// The same at the lowest priority, for a part that stands for other machines: it gets the CPU
    /// time that the measured processes leave.
    pub async fn start_behind(
        name: impl Into<String>,
        verb: &str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Outcome<Self> {
        let mut program = Command::new("nice");
        program.args(["-n", "19"]).arg(own_program()?);
        Self::start_as(program, name.into(), verb, arguments, certs).await
    }

    async fn start_as(
        mut command: Command,
        name: String,
        verb: &str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Outcome<Self> {
        let failed = |error: &std::io::Error| CliError::because("cannot start a part", error);
        command.args(["--log", "warn", "bench", verb]);
        for (flag, value) in arguments {
            command.arg(flag).arg(value);
        }
        command.env("MEROS_CERTS", certs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (sender, answers) = unbounded_channel();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        std::thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|output| BufReader::new(output).lines());
            lines
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok());
        });
        let mut part = Self {
            name,
            child,
            input,
            answers,
            first: Value::Null,
        };
        part.first = part.read_reply().await?;
        Ok(part)
    }

    /// Its first line.
    pub fn first(&self) -> &Value {
        &self.first
    }

    /// Requests the part's action and returns its reply.
    pub async fn ask(&mut self) -> Outcome<Value> {
        let asked = self.input.as_mut().map(|input| input.write_all(b"\n"));
        if !matches!(asked, Some(Ok(()))) {
            return Err(self.gone());
        }
        self.read_reply().await
    }

    async fn read_reply(&mut self) -> Outcome<Value> {
        let clock = Clock::real();
        let line = match clock.timeout(PATIENCE, self.answers.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => return Err(self.gone()),
            Err(late) => return Err(CliError::because(&self.name, &late)),
        };
        serde_json::from_str(&line).map_err(|error| CliError::because(&self.name, &error))
    }

    fn gone(&self) -> CliError {
        CliError::new(format!("the part {} has ended", self.name))
    }

    /// Its present usage.
    pub fn usage(&self) -> Outcome<Usage> {
        usage(self.child.id())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill(); // it may have ended before
        let _ = self.child.wait();
    }
}

/// For the part itself: the lines of standard input, read by a separate thread.
pub fn input() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        lines
            .map_while(Result::ok)
            .all(|line| sender.send(line).is_ok());
    });
    receiver
}
