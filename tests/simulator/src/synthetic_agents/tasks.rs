//! Tasks of synthetic agents: no process runs them, and they finish on request.
//!
//! Used where the end of a task matters (see [`reoffered`](super::reoffered)). An agent keeps its
//! tasks until then. It sends the end once, acknowledged or not.

use protocol::message::scheduler::AcknowledgeStatus;
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{Source, StatusUpdate, TaskState, TaskStatus, Uuid};
use rand::Rng;
use runtime::prelude::*;

use super::SyntheticAgent;

/// Sends `TASK_FINISHED` for all tasks. Answered with their number.
#[derive(Clone, Copy, Debug)]
pub struct Finish;

impl Message for Finish {
    type Result = usize;
}

impl Handler<RunTasks> for SyntheticAgent {
    type Result = ();

    fn handle(&mut self, run: RunTasks, _: &mut Context<Self>) {
        if let Some(framework) = run.framework.id {
            let tasks = run.tasks.into_iter();
            self.tasks
                .extend(tasks.map(|task| (framework.clone(), task)));
        }
    }
}

impl Handler<AcknowledgeStatus> for SyntheticAgent {
    type Result = ();

    fn handle(&mut self, _: AcknowledgeStatus, _: &mut Context<Self>) {}
}

impl Handler<Finish> for SyntheticAgent {
    type Result = MessageResult<Finish>;

    fn handle(&mut self, _: Finish, ctx: &mut Context<Self>) -> Self::Result {
        let Some(master) = self.master.clone() else {
            return MessageResult(0);
        };
        let (master, now) = (ctx.node().refer(master), ctx.clock().wall());
        let tasks = std::mem::take(&mut self.tasks);
        let count = tasks.len();
        for (framework_id, task) in tasks {
            let latest_state = TaskState::Finished;
            let mut status = TaskStatus::new(task.task_id, latest_state, Source::Executor, now);
            status.uuid = Some(Uuid(ctx.node().rng().random()));
            let update = StatusUpdate {
                framework_id,
                status,
                latest_state,
            };
            let agent_id = task.agent_id;
            if let Err(error) = master.tell(TaskUpdated { agent_id, update }) {
                tracing::warn!(%error, "the master is not told that a task has finished");
            }
        }
        MessageResult(count)
    }
}
