//! Reading: serves files of a sandbox to operators over a link, for `meros logs`.
//!
//! The subject is the name in the operator's certificate; [`crate::api::visibility`] authorizes it.
//! Requests within this node are trusted.

use std::path::PathBuf;
use std::time::Duration;

use authority::{RateDecision, Subject, TOO_MANY_COMMANDS};
use protocol::message::operator::{FileChunk, OperatorError, ReadSandbox};
use runtime::prelude::*;
use runtime::{Instant, Sender};

use super::Agent;
use crate::api::visibility;
use crate::container::events::TakeSurvey;
use crate::sandbox::{self, LATEST, ReadError};

/// How long to wait for the containerizer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Handler<ReadSandbox> for Agent {
    type Result = ResponseFuture<Result<FileChunk, OperatorError>>;

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
            .filter(|_| !self.config.settings.acls.current().is_open());
        let subject = sender.map(|sender| Subject::named(sender.peer.node.name()));
        let admitted = subject.map(|subject| self.admitted(subject, &read, runs.clone(), ctx));
        let turn = self.turn(ctx);
        let (node, sandboxes) = (ctx.node().clone(), self.sandboxes.clone());
        Box::pin(async move {
            let piece = async {
                match turn {
                    RateDecision::Now(_) => {}
                    RateDecision::After(wait) => node.clock().sleep(wait).await,
                    RateDecision::Rejected(_) => {
                        return Err(ReadFailure::because(TOO_MANY_COMMANDS));
                    }
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
                let piece = node.blocking(reading).await.map_err(ReadFailure::because)?;
                piece.map_err(|error| match error {
                    ReadError::NotFound => ReadFailure::NotFound,
                    error => ReadFailure::because(error),
                })
            };
            piece.await.map_err(|failure| match failure {
                ReadFailure::NotFound => OperatorError::NotFound { what },
                ReadFailure::Failed(reason) => OperatorError::Failed { what, reason },
            })
        })
    }
}

/// Why nothing was read.
enum ReadFailure {
    NotFound,
    Failed(String),
}

impl ReadFailure {
    fn because(problem: impl std::fmt::Display) -> Self {
        Self::Failed(problem.to_string())
    }
}

impl Agent {
    /// Applies the rate limit to the current message.
    pub(super) fn turn(&self, ctx: &Context<Self>) -> RateDecision {
        let is_command = |sender: &&Sender| sender.peer.role == Role::Operator;
        let Some(sender) = ctx.sender().filter(is_command) else {
            return RateDecision::Now(1);
        };
        let now = ctx.clock().now() - Instant::default();
        let throttle = &self.config.settings.throttle;
        throttle.admit_command(sender.peer.node.name(), now)
    }

    /// The newest sandbox below `runs`, if this subject may read it.
    fn admitted(
        &self,
        subject: Subject,
        read: &ReadSandbox,
        runs: PathBuf,
        ctx: &Context<Self>,
    ) -> impl Future<Output = Result<PathBuf, ReadFailure>> + use<> {
        let (node, sandboxes) = (ctx.node().clone(), self.sandboxes.clone());
        let (containerizer, acls) = (
            self.containerizer.clone(),
            self.config.settings.acls.current(),
        );
        let (framework, executor) = (read.framework_id.clone(), read.executor_id.clone());
        async move {
            let below = runs.clone();
            let newest = node.blocking(move || sandboxes.newest(&below)).await;
            let newest = newest
                .map_err(ReadFailure::because)?
                .ok_or(ReadFailure::NotFound)?;
            let survey = containerizer.ask(TakeSurvey, PATIENCE).await;
            let survey = survey.map_err(ReadFailure::because)?;
            let run = newest.as_str();
            let owner = visibility::owner(&survey, framework.as_str(), executor.as_str(), run);
            visibility::check_sandbox_access(owner, &acls, &subject)
                .map_err(ReadFailure::because)?;
            Ok(runs.join(run))
        }
    }
}
