//! Parts: one side of a measurement in a process of its own, so that its memory, time and open files are seen apart.
//!
//! A part says on standard output that it is ready, then answers each line of standard input with one line of JSON. It ends with its input,
//! that is when whoever started it has gone. What a part does is not known here.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use runtime::Clock;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::process::{Usage, usage};
use crate::agent::own_program;
use crate::failure::{Failure, Outcome};

/// How long a part may take to answer.
const PATIENCE: Duration = Duration::from_secs(600);

/// A part, which ends when this is dropped.
pub struct Part {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    answers: UnboundedReceiver<String>,
    first: Value,
}

impl Part {
    /// Starts the hidden verb `meros bench VERB ARGUMENTS` with the certificates of this directory, and waits until it is ready. `name` is
    /// for failures.
    pub async fn start(
        name: impl Into<String>,
        verb: &str,
        arguments: &[(&str, String)],
        certs: &Path,
    ) -> Outcome<Self> {
        let program = Command::new(own_program()?);
        Self::start_as(program, name.into(), verb, arguments, certs).await
    }

    /// The same at the lowest priority: a part that stands for other machines has what whoever is measured leaves it.
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
        let failed = |error: &std::io::Error| Failure::because("cannot start a part", error);
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
        part.first = part.hear().await?;
        Ok(part)
    }

    /// What it said when it was ready.
    pub fn first(&self) -> &Value {
        &self.first
    }

    /// Lets the part do its one thing, and gives its answer.
    pub async fn ask(&mut self) -> Outcome<Value> {
        let asked = self.input.as_mut().map(|input| input.write_all(b"\n"));
        if !matches!(asked, Some(Ok(()))) {
            return Err(self.gone());
        }
        self.hear().await
    }

    async fn hear(&mut self) -> Outcome<Value> {
        let clock = Clock::real();
        let line = match clock.timeout(PATIENCE, self.answers.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => return Err(self.gone()),
            Err(late) => return Err(Failure::because(&self.name, &late)),
        };
        serde_json::from_str(&line).map_err(|error| Failure::because(&self.name, &error))
    }

    fn gone(&self) -> Failure {
        Failure::new(format!("the part {} has ended", self.name))
    }

    /// What it uses now.
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

/// The part's own side: the lines of standard input, read by a thread of its own.
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
