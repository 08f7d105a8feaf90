//! The output of `meros run`'s tasks: read from their agents during and after their run.
//!
//! Knows the agents' addresses and the tasks being read. Reads a bounded number of tasks at once;
//! the others wait.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use protocol::{AgentId, ExecutorId, FrameworkId, TaskId};
use runtime::Pid;
use tokio::sync::{Semaphore, watch};

use super::progress::Progress;
use crate::operator::Operator;
use crate::operator::logs::tail::Tail;
use crate::output::error::{CliError, Outcome};
use crate::output::print;

/// The number of tasks read at once.
const READERS_MAX: usize = 32;
/// The interval at which a running task's files are read.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The number of failed reads after a task's end before its output is given up.
const FINAL_READS_MAX: u32 = 20;

/// A function that prints bytes.
type Sink = fn(&[u8]) -> Outcome;

/// Reads and prints the output of tasks.
#[derive(Clone)]
pub struct Output(Rc<Inner>);

struct Inner {
    operator: Operator,
    progress: Rc<RefCell<Progress>>,
    agents: RefCell<BTreeMap<AgentId, Pid>>,
    readers: Semaphore,
    /// The error of the first failed write.
    unwritable: RefCell<Option<CliError>>,
    /// Whether each line is prefixed by its task's name.
    named: bool,
}

/// The end of a task, with a message to print after its output.
#[derive(Debug)]
struct Ended {
    final_message: Option<String>,
}

/// A task whose output is being read.
pub struct Reading {
    ended: watch::Sender<Option<Ended>>,
    task: tokio::task::JoinHandle<()>,
}

impl Reading {
    /// The task has ended, so its output is complete. `final_message` is printed after it.
    pub fn task_ended(&self, final_message: Option<String>) {
        self.ended.send_replace(Some(Ended { final_message }));
    }

    /// Whether the whole output has been printed.
    pub fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the whole output has been printed.
    pub async fn done(self) {
        let _ = self.task.await; // a panicked reader was logged
    }
}

impl Output {
    /// Reads through this operator's connection.
    pub fn new(operator: Operator, progress: Rc<RefCell<Progress>>, named: bool) -> Self {
        let readers = Semaphore::new(READERS_MAX);
        Self(Rc::new(Inner {
            operator,
            progress,
            agents: RefCell::default(),
            readers,
            unwritable: RefCell::default(),
            named,
        }))
    }

    /// The connection.
    pub fn operator(&self) -> &Operator {
        &self.0.operator
    }

    /// Returns the error of the first failed write to standard output or error, once.
    pub fn check_written(&self) -> Outcome {
        self.0.unwritable.take().map_or(Ok(()), Err)
    }

    fn print(&self, bytes: &[u8], sink: Sink) {
        let mut outcome = Ok(());
        self.0.progress.borrow().print(|| outcome = sink(bytes));
        if let Err(failure) = outcome {
            self.0.unwritable.borrow_mut().get_or_insert(failure);
        }
    }

    /// Closes the connection, if no output is being read.
    pub async fn close(self) {
        if let Ok(inner) = Rc::try_unwrap(self.0) {
            inner.operator.close().await;
        }
    }

    /// Starts to print the output of a task.
    pub fn read(&self, framework: FrameworkId, task: TaskId, agent: AgentId) -> Reading {
        let (ended, is_ended) = watch::channel(None);
        let this = self.clone();
        let reading = async move {
            let Ok(_turn) = this.0.readers.acquire().await else {
                return;
            };
            if let Err(failure) = this
                .follow(framework, &task, &agent, is_ended.clone())
                .await
            {
                this.0
                    .progress
                    .borrow()
                    .message(&format!("the output of {task} is not shown: {failure}"));
            }
            let ended = is_ended.borrow();
            if let Some(words) = ended
                .as_ref()
                .and_then(|ended| ended.final_message.as_ref())
            {
                this.0.progress.borrow().message(words);
            }
        };
        Reading {
            ended,
            task: tokio::task::spawn_local(reading),
        }
    }

    async fn follow(
        &self,
        framework: FrameworkId,
        task: &TaskId,
        agent: &AgentId,
        ended: watch::Receiver<Option<Ended>>,
    ) -> Outcome {
        let agent = self.agent(agent).await?;
        let tail = |path| {
            Tail::new(
                agent.clone(),
                framework.clone(),
                ExecutorId::from(task),
                path,
            )
        };
        let (mut stdout, mut stderr) = (tail("stdout"), tail("stderr"));
        let (mut out, mut err) = (self.lines(task), self.lines(task));
        let mut failures = 0;
        loop {
            // Checked before reading: the last read happens after the task's end.
            let last = ended.borrow().is_some();
            let read = match stdout
                .read(self.operator(), |bytes| {
                    out.print(self, bytes, print::bytes);
                    Ok(())
                })
                .await
            {
                Ok(()) => {
                    stderr
                        .read(self.operator(), |bytes| {
                            err.print(self, bytes, print::error_bytes);
                            Ok(())
                        })
                        .await
                }
                failed => failed,
            };
            match read {
                Err(failure) if last && failures >= FINAL_READS_MAX => return Err(failure),
                Err(_) => failures += 1,
                Ok(()) if last => {
                    out.flush(self, print::bytes);
                    err.flush(self, print::error_bytes);
                    return Ok(());
                }
                Ok(()) => {}
            }
            let mut ended = ended.clone();
            let clock = self.operator().node().clock();
            let _ = match last {
                true => clock.timeout(CHECK_EVERY, std::future::pending()).await,
                false => clock
                    .timeout(CHECK_EVERY, ended.wait_for(Option::is_some))
                    .await
                    .map(drop),
            }; // late means: read again
        }
    }

    fn lines(&self, task: &TaskId) -> Lines {
        Lines {
            name: self.0.named.then(|| format!("{task}: ")),
            rest: Vec::new(),
        }
    }

    async fn agent(&self, id: &AgentId) -> Outcome<Pid> {
        if let Some(pid) = self.0.agents.borrow().get(id) {
            return Ok(pid.clone());
        }
        let view = self.operator().view().await?;
        let agent = view.agents.iter().find(|agent| agent.id == *id);
        let agent = agent.ok_or_else(|| CliError::new(format!("agent {id} is not registered")))?;
        let pid = self.operator().agent(agent).await?;
        self.0.agents.borrow_mut().insert(id.clone(), pid.clone());
        Ok(pid)
    }
}

/// The longest line that is kept whole.
const LINE_MAX: usize = 64 << 10;

/// Bytes to print: unchanged, or by line with the task's name.
struct Lines {
    name: Option<String>,
    rest: Vec<u8>,
}

impl Lines {
    fn print(&mut self, output: &Output, bytes: &[u8], sink: Sink) {
        let Some(name) = &self.name else {
            return output.print(bytes, sink);
        };
        self.rest.extend_from_slice(bytes);
        let mut whole = Vec::new();
        while let Some(at) = self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| at + 1)
            .or_else(|| (self.rest.len() > LINE_MAX).then_some(LINE_MAX))
        {
            whole.extend_from_slice(name.as_bytes());
            whole.extend(self.rest.drain(..at));
            if !whole.ends_with(b"\n") {
                whole.push(b'\n');
            }
        }
        if !whole.is_empty() {
            output.print(&whole, sink);
        }
    }

    fn flush(&mut self, output: &Output, sink: Sink) {
        if !self.rest.is_empty() {
            self.print(output, b"\n", sink);
        }
    }
}
