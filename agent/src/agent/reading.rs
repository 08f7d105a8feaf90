//! Reading: an operator wants a file of a sandbox over its link, as `meros logs` does.
//!
//! Who asks is the name in its certificate, and whether that may look in is decided in [`crate::sight`]. Who asks on this node is trusted.

use std::path::PathBuf;
use std::time::Duration;

use authority::{Subject, TOO_MANY_COMMANDS, Turn};
use protocol::message::operator::{FilePiece, OperatorError, ReadSandbox};
use runtime::prelude::*;
use runtime::{Instant, Sender};

use super::Agent;
use crate::container::events::TakeSurvey;
use crate::sandbox::{self, LATEST, ReadError};
use crate::sight;

/// How long the containerizer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

impl Handler<ReadSandbox> for Agent {
    type Result = ResponseFuture<Result<FilePiece, OperatorError>>;

    fn handle(&mut self, read: ReadSandbox, ctx: &mut Context<Self>) -> Self::Result {
        let what = format!(
            "file `{}` of executor `{}`",
            read.path.chars().take(200).collect::<String>(),
            read.executor_id
        );
        let Some(agent_id) = &self.info.id else {
            return Box::pin(async move { Err(OperatorError::NotFound { what }) });
        };
        let runs = sandbox::runs(
            self.config.work_dir(),
            agent_id,
            &read.framework_id,
            &read.executor_id,
        );
        let sender = ctx
            .sender()
            .filter(|_| !self.config.settings.acls.now().is_open());
        let subject = sender.map(|sender| Subject::named(sender.peer.node.name()));
        let admitted = subject.map(|subject| self.admitted(subject, &read, runs.clone(), ctx));
        let turn = self.turn(ctx);
        let (node, sandboxes) = (ctx.node().clone(), self.sandboxes.clone());
        Box::pin(async move {
            let piece = async {
                match turn {
                    Turn::Now(_) => {}
                    Turn::After(wait) => node.clock().sleep(wait).await,
                    Turn::Over(_) => return Err(Unread::because(TOO_MANY_COMMANDS)),
                }
                let sandbox = match admitted {
                    Some(admitted) => admitted.await?,
                    None => runs.join(LATEST),
                };
                let ReadSandbox {
                    path,
                    offset,
                    length,
                    ..
                } = read;
                let reading = move || sandboxes.read(&sandbox, &path, offset, length);
                let piece = node.blocking(reading).await.map_err(Unread::because)?;
                piece.map_err(|error| match error {
                    ReadError::NotFound => Unread::NotFound,
                    error => Unread::because(error),
                })
            };
            piece.await.map_err(|unread| match unread {
                Unread::NotFound => OperatorError::NotFound { what },
                Unread::Failed(reason) => OperatorError::Failed { what, reason },
            })
        })
    }
}

/// Why nothing is read.
enum Unread {
    NotFound,
    Failed(String),
}

impl Unread {
    fn because(problem: impl std::fmt::Display) -> Self {
        Self::Failed(problem.to_string())
    }
}

impl Agent {
    /// Whether what is being handled has its turn by the rate limits.
    fn turn(&self, ctx: &Context<Self>) -> Turn {
        let is_command = |sender: &&Sender| sender.peer.role == Role::Operator;
        let Some(sender) = ctx.sender().filter(is_command) else {
            return Turn::Now(1);
        };
        let now = ctx.clock().now() - Instant::default();
        let throttle = &self.config.settings.throttle;
        throttle.stand_in_line_as_command(sender.peer.node.name(), now)
    }

    /// The newest sandbox below `runs`, if this subject may look into it.
    fn admitted(
        &self,
        subject: Subject,
        read: &ReadSandbox,
        runs: PathBuf,
        ctx: &Context<Self>,
    ) -> impl Future<Output = Result<PathBuf, Unread>> + use<> {
        let (node, sandboxes) = (ctx.node().clone(), self.sandboxes.clone());
        let (containerizer, acls) = (self.containerizer.clone(), self.config.settings.acls.now());
        let (framework, executor) = (read.framework_id.clone(), read.executor_id.clone());
        async move {
            let below = runs.clone();
            let newest = node.blocking(move || sandboxes.newest(&below)).await;
            let newest = newest.map_err(Unread::because)?.ok_or(Unread::NotFound)?;
            let survey = containerizer.ask(TakeSurvey, PATIENCE).await;
            let survey = survey.map_err(Unread::because)?;
            let run = newest.as_str();
            let owner = sight::owner(&survey, framework.as_str(), executor.as_str(), run);
            sight::may_enter(owner, &acls, &subject).map_err(Unread::because)?;
            Ok(runs.join(run))
        }
    }
}
