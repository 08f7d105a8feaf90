//! Reads a growing file in a task's sandbox from its agent, in chunks.
//!
//! Keeps the offset. Requests at most one MiB at a time, and no byte twice.

use protocol::message::operator::{FileChunk, OperatorError, ReadSandbox};
use protocol::{ExecutorId, FrameworkId};
use runtime::Pid;

use super::super::{ANSWER_TIMEOUT, Operator};
use crate::output::error::{CliError, Outcome};

/// The largest chunk, in bytes.
const PIECE_MAX: u32 = 1 << 20;

/// A file in a sandbox, and the offset of the next read.
#[derive(Clone, Debug)]
pub struct Tail {
    agent: Pid,
    framework: FrameworkId,
    executor: ExecutorId,
    path: &'static str,
    offset: u64,
}

impl Tail {
    /// The start of a file, such as `stdout`, of an executor's newest run.
    pub fn new(
        agent: Pid,
        framework: FrameworkId,
        executor: ExecutorId,
        path: &'static str,
    ) -> Self {
        Self {
            agent,
            framework,
            executor,
            path,
            offset: 0,
        }
    }

    /// Reads all new content and passes it to `sink` in order.
    pub async fn read(
        &mut self,
        operator: &Operator,
        mut sink: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome {
        loop {
            let piece = self.piece(operator).await?;
            if piece.data.is_empty() {
                if piece.size < self.offset {
                    // The agent has rotated the file, so it starts again.
                    self.offset = 0;
                    continue;
                }
                return Ok(());
            }
            self.offset += piece.data.len() as u64;
            sink(&piece.data)?;
        }
    }

    async fn piece(&self, operator: &Operator) -> Outcome<FileChunk> {
        let question = ReadSandbox {
            framework_id: self.framework.clone(),
            executor_id: self.executor.clone(),
            path: self.path.to_owned(),
            offset: self.offset,
            length: PIECE_MAX,
        };
        let what = || format!("cannot read {} of {}", self.path, self.executor);
        match operator
            .node()
            .ask(&self.agent, question, ANSWER_TIMEOUT)
            .await
        {
            Ok(Ok(piece)) => Ok(piece),
            // The sandbox is created shortly before its files.
            Ok(Err(OperatorError::NotFound { .. })) if self.offset == 0 => Ok(FileChunk {
                data: Vec::new(),
                size: 0,
            }),
            Ok(Err(error)) => Err(CliError::because(what(), &error)),
            Err(error) => Err(CliError::because(what(), &error)),
        }
    }
}
