//! The output of `meros run`'s tasks: read from their agents while they run, and to the last byte when they have ended.
//!
//! Remembers where agents are and which tasks are being read. Reads a bounded number of tasks at once; the others wait their turn, and
//! their files with them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use protocol::{AgentId, ExecutorId, FrameworkId, TaskId};
use runtime::Pid;
use tokio::sync::{Semaphore, watch};

use super::progress::Progress;
use crate::failure::{Failure, Outcome};
use crate::operator::Operator;
use crate::operator::tail::Tail;
use crate::print;

/// How many tasks are read at once.
const READERS_MAX: usize = 32;
/// How often a running task's files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long what an ended task wrote may stay unreadable.
const LAST_TRIES: u32 = 20;

/// Where bytes are printed.
type Sink = fn(&[u8]) -> Outcome;

/// Reads and prints what tasks write.
#[derive(Clone)]
pub struct Output(Rc<Inner>);

struct Inner {
    operator: Operator,
    progress: Rc<RefCell<Progress>>,
    agents: RefCell<BTreeMap<AgentId, Pid>>,
    readers: Semaphore,
    /// The first failed write.
    unwritable: RefCell<Option<Failure>>,
    /// Whether each line bears its task's name.
    named: bool,
}

/// A task has ended, and this is to be said about it.
#[derive(Debug)]
struct Ended {
    last_words: Option<String>,
}

/// A task whose output is being read.
pub struct Reading {
    ended: watch::Sender<Option<Ended>>,
    task: tokio::task::JoinHandle<()>,
}

impl Reading {
    /// The task has ended: what it wrote is all there. `last_words` are said after it.
    pub fn task_ended(&self, last_words: Option<String>) {
        self.ended.send_replace(Some(Ended { last_words }));
    }

    /// Whether all that the task wrote has been printed.
    pub fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until all that the task wrote has been printed.
    pub async fn done(self) {
        let _ = self.task.await; // A reader that fell has logged it.
    }
}

impl Output {
    /// Reads by this operator's connection.
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

    /// The connection it reads by.
    pub fn operator(&self) -> &Operator {
        &self.0.operator
    }

    /// Fails once after a write to standard output or error has failed.
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

    /// Says farewell to the cluster, if nothing is being read.
    pub async fn close(self) {
        if let Ok(inner) = Rc::try_unwrap(self.0) {
            inner.operator.close().await;
        }
    }

    /// Begins to print what a task writes.
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
                    .say(&format!("the output of {task} is not shown: {failure}"));
            }
            let ended = is_ended.borrow();
            if let Some(words) = ended.as_ref().and_then(|ended| ended.last_words.as_ref()) {
                this.0.progress.borrow().say(words);
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
            // Looked at before reading: what was written before the end is read after it.
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
                Err(failure) if last && failures >= LAST_TRIES => return Err(failure),
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
                true => clock.timeout(LOOK_EVERY, std::future::pending()).await,
                false => clock
                    .timeout(LOOK_EVERY, ended.wait_for(Option::is_some))
                    .await
                    .map(drop),
            }; // Late means: look again.
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
        let agent = agent.ok_or_else(|| Failure::new(format!("agent {id} is not registered")))?;
        let pid = self.operator().agent(agent).await?;
        self.0.agents.borrow_mut().insert(id.clone(), pid.clone());
        Ok(pid)
    }
}

/// The longest line that is kept whole under its task's name.
const LINE_MAX: usize = 64 << 10;

/// Bytes on their way out: as they are, or line by line under their task's name.
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
