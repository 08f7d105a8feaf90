//! Tails: reading a growing file in a task's sandbox, from its agent, piece by piece.
//!
//! Remembers how far it has read. Asks for at most a mebibyte at a time and never for what it has had.

use protocol::message::operator::{FilePiece, OperatorError, ReadSandbox};
use protocol::{ExecutorId, FrameworkId};
use runtime::Pid;

use super::{Operator, PATIENCE};
use crate::failure::{Failure, Outcome};

/// The most bytes in one answer.
const PIECE_MAX: u32 = 1 << 20;

/// A file in a sandbox, and how much of it has been read.
#[derive(Clone, Debug)]
pub struct Tail {
    agent: Pid,
    framework: FrameworkId,
    executor: ExecutorId,
    path: &'static str,
    offset: u64,
}

impl Tail {
    /// The beginning of a file, such as `stdout`, of an executor's newest run.
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

    /// Reads all that is there now and has not been read, and hands it to `sink` in order.
    pub async fn read(
        &mut self,
        operator: &Operator,
        mut sink: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome {
        loop {
            let piece = self.piece(operator).await?;
            if piece.data.is_empty() {
                if piece.size < self.offset {
                    // Its older part was moved away by the agent, and the file has begun anew.
                    self.offset = 0;
                    continue;
                }
                return Ok(());
            }
            self.offset += piece.data.len() as u64;
            sink(&piece.data)?;
        }
    }

    async fn piece(&self, operator: &Operator) -> Outcome<FilePiece> {
        let question = ReadSandbox {
            framework_id: self.framework.clone(),
            executor_id: self.executor.clone(),
            path: self.path.to_owned(),
            offset: self.offset,
            length: PIECE_MAX,
        };
        let what = || format!("cannot read {} of {}", self.path, self.executor);
        match operator.node().ask(&self.agent, question, PATIENCE).await {
            Ok(Ok(piece)) => Ok(piece),
            // The sandbox is made a moment before its files are.
            Ok(Err(OperatorError::NotFound { .. })) if self.offset == 0 => Ok(FilePiece {
                data: Vec::new(),
                size: 0,
            }),
            Ok(Err(error)) => Err(Failure::because(what(), &error)),
            Err(error) => Err(Failure::because(what(), &error)),
        }
    }
}
