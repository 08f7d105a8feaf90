//! Kill: how a wish that a task end reaches its agent (SPEC 2.2 KILL, 3.13).
//!
//! Pure decisions on [`Books`]. A kill whose agent is not connected is remembered with its task and passed on when the agent
//! is back; a kill of what nobody knows is answered as reconciliation would. It never ends a task in the books: only its
//! agent says that it has ended.

use protocol::message::operator::{KillByOperator, OperatorError};
use protocol::message::scheduler::KillTask;
use protocol::{FrameworkId, TaskId};
use runtime::Timestamp;

use crate::books::Books;
use crate::effects::{Effects, Tell, ToAgent};

impl Books {
    /// A task should end.
    pub fn kill(&mut self, call: KillTask, now: Timestamp, out: &mut Effects) {
        self.counters.count("master/messages_kill_task");
        let (framework, id) = (&call.framework_id, &call.task_id);
        match self.tasks.get(framework, id) {
            Some(task) if !task.told.is_terminal() => match self.agents.connected(&task.agent_id) {
                Some(agent) => out.agent(&agent.pid, ToAgent::Kill(call)),
                None => {
                    let policy = call.kill_policy;
                    self.tasks
                        .update(framework, id, |task| task.kill = Some(policy));
                }
            },
            _ => {
                if let Some(status) = self.how_is(framework, id, None, now) {
                    self.tell_status(framework, status, out);
                }
            }
        }
    }

    /// An operator wants a task killed; gives whose it was.
    pub fn kill_by_operator(
        &mut self,
        call: KillByOperator,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<FrameworkId, OperatorError> {
        let framework_id = self.whose(&call)?;
        let kill = KillTask {
            framework_id: framework_id.clone(),
            task_id: call.task_id,
            kill_policy: None,
        };
        self.kill(kill, now, out);
        Ok(framework_id)
    }

    fn whose(&self, call: &KillByOperator) -> Result<FrameworkId, OperatorError> {
        let runs = |framework: &FrameworkId, task: &TaskId| {
            self.tasks
                .get(framework, task)
                .is_some_and(|task| !task.told.is_terminal())
        };
        let what = match &call.framework_id {
            Some(framework) => format!("task `{}` of framework `{framework}`", call.task_id),
            None => format!("task `{}`", call.task_id),
        };
        let mut owners: Vec<&FrameworkId> = self
            .tasks
            .frameworks()
            .map(|(framework, _)| framework)
            .filter(|framework| call.framework_id.as_ref().is_none_or(|id| id == *framework))
            .filter(|framework| runs(framework, &call.task_id))
            .collect();
        match (owners.pop(), owners.is_empty()) {
            (Some(owner), true) => Ok(owner.clone()),
            (None, _) => Err(OperatorError::NotFound { what }),
            (Some(last), false) => {
                let mut candidates: Vec<_> =
                    owners.iter().take(8).map(ToString::to_string).collect();
                candidates.push(last.to_string());
                Err(OperatorError::Ambiguous {
                    what,
                    candidates: candidates.join(", "),
                })
            }
        }
    }
}
