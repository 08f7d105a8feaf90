//! Reconciliation: answers a framework's questions about its tasks.
//!
//! Pure. The table in `unknown_state` is the whole policy for unknown tasks; known tasks get the
//! state that was last sent. Answers have no uuid, no data, and only the labels for container and
//! check status. An implicit reconciliation may be answered in parts, so that none takes long.
//! Agents are never asked.

use std::sync::Arc;

use protocol::message::scheduler::ReconcileTasks;
use protocol::text::reserved_labels::{CHECK_STATUS, CHECK_STATUSES, CONTAINER_STATUS};
use protocol::{AgentId, FrameworkId, Reason, Source, TaskId, TaskState, TaskStatus};
use runtime::Timestamp;

use crate::agents::Standing;
use crate::state::MasterState;
use crate::state::effects::Effects;
use crate::tasks::Task;

/// The start of the next part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPart(TaskId);

impl MasterState {
    /// Answers for the named tasks, or for all unfinished tasks if none is named.
    pub fn reconcile(&mut self, call: ReconcileTasks, now: Timestamp, out: &mut Effects) {
        let id = &call.framework_id;
        if call.tasks.is_empty() {
            self.reconcile_all(id, None, usize::MAX, now, out);
            return;
        }
        self.counters.count("master/messages_reconcile_tasks");
        let asked = call.tasks.iter();
        let answers: Vec<TaskStatus> = asked
            .filter_map(|(task, agent)| self.reconciled_status(id, task, agent.as_ref(), now))
            .collect();
        for status in answers {
            self.tell_status(id, status, out);
        }
    }

    /// Answers for all unfinished tasks: the first part, or the part that starts at `from`. Visits
    /// `most` active tasks in the order of their ids; changes between two parts are sent as updates
    /// anyway. Tasks on unreachable agents are few, and are all in the first part. Returns the
    /// start of the next part, if there is one.
    pub fn reconcile_all(
        &mut self,
        id: &FrameworkId,
        from: Option<&NextPart>,
        most: usize,
        now: Timestamp,
        out: &mut Effects,
    ) -> Option<NextPart> {
        if from.is_none() {
            self.counters.count("master/messages_reconcile_tasks");
        }
        let of = self.tasks.of_framework(id)?;
        let mut active = of.active_after(from.map(|NextPart(last)| last)).peekable();
        let (mut answers, mut last) = (Vec::new(), None);
        let is_pending = |task: &&Arc<Task>| !task.told.is_terminal();
        for task in active.by_ref().take(most) {
            last = Some(&task.id);
            answers.extend(
                Some(task)
                    .filter(is_pending)
                    .and_then(|task| self.answer(id, task, now)),
            );
        }
        let next = last.filter(|_| active.peek().is_some()).cloned();
        drop(active);
        if from.is_none() {
            let unreachable = of.unreachable().filter(is_pending);
            answers.extend(unreachable.filter_map(|task| self.answer(id, task, now)));
        }
        for status in answers {
            self.tell_status(id, status, out);
        }
        next.map(NextPart)
    }

    /// The status of one task; `None` while an agent that may have it has not returned, or has yet
    /// to report its end.
    pub(crate) fn reconciled_status(
        &self,
        framework: &FrameworkId,
        task: &TaskId,
        agent: Option<&AgentId>,
        now: Timestamp,
    ) -> Option<TaskStatus> {
        if let Some(task) = self.tasks.find(framework, task) {
            return self.answer(framework, task, now);
        }
        let awaited = self.agents.recovered().next().is_some();
        let state = unknown_state(agent.map(|id| self.agents.standing(id)), awaited)?;
        let message = match state {
            TaskState::Gone => "Reconciliation: Task is unknown to the agent",
            TaskState::Unreachable => "Reconciliation: Task is unreachable",
            TaskState::GoneByOperator => "Reconciliation: Task is gone",
            _ => "Reconciliation: Task is unknown",
        };
        let mut status = TaskStatus::new(task.clone(), state, Source::Master, now)
            .with_reason(Reason::Reconciliation, message);
        status.agent_id = agent.cloned();
        if let Some(Standing::Unreachable(since)) = agent.map(|id| self.agents.standing(id)) {
            status.unreachable_since = Some(since);
        }
        Some(self.for_framework(framework, status))
    }

    /// The status last sent to the framework. `None` while the agent has an end to report that the
    /// framework has not been sent, or has been sent only by an earlier master: older states are no
    /// longer true, and the end must not overtake earlier updates.
    fn answer(&self, framework: &FrameworkId, task: &Task, now: Timestamp) -> Option<TaskStatus> {
        if task.state.is_terminal() && !task.told.is_terminal() {
            return None;
        }
        Some(self.last_sent_status(framework, task, now))
    }

    /// The status last sent to the framework, unconditionally.
    pub(crate) fn last_sent_status(
        &self,
        framework: &FrameworkId,
        task: &Task,
        now: Timestamp,
    ) -> TaskStatus {
        let mut status = TaskStatus::new(task.id.clone(), task.told, Source::Master, now)
            .with_reason(Reason::Reconciliation, "Reconciliation: Latest task state")
            .on(&task.agent_id);
        if let Some(newest) = task.statuses.last() {
            status.executor_id = newest.executor_id.clone();
            status.container_id = newest.container_id.clone();
            status.address = newest.address;
            status.healthy = newest.healthy;
            status.termination = newest.termination;
            status.unreachable_since = newest.unreachable_since;
            let kept = [CONTAINER_STATUS, CHECK_STATUS, CHECK_STATUSES];
            let labels = kept.map(|mark| newest.labels.get_key_value(mark));
            let labels = labels.into_iter().flatten();
            status.labels = labels
                .map(|(mark, text)| (mark.clone(), text.clone()))
                .collect();
        }
        self.for_framework(framework, status)
    }

    fn for_framework(&self, framework: &FrameworkId, mut status: TaskStatus) -> TaskStatus {
        status.state = match self.frameworks.get(framework) {
            Some(framework) => framework.report_state(status.state),
            None => status.state.for_framework(false),
        };
        status
    }
}

/// The state of an unknown task, from the status of the named agent, if there is one. `awaited`:
/// some agents have not returned since the master's restart.
fn unknown_state(agent: Option<Standing<'_>>, awaited: bool) -> Option<TaskState> {
    match agent {
        Some(Standing::Recovered) => None,
        None if awaited => None,
        Some(Standing::Registered(_)) => Some(TaskState::Gone),
        Some(Standing::Unreachable(_)) => Some(TaskState::Unreachable),
        Some(Standing::Gone) => Some(TaskState::GoneByOperator),
        Some(Standing::Unknown) | None => Some(TaskState::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 2.2, RECONCILE.
    // Covers 2.2 RECONCILE.
    #[test]
    fn unknown_task_state_follows_its_agent() {
        let since = Timestamp::from_nanos(1);
        let table = [
            (Some(Standing::Recovered), false, None),
            (None, true, None),
            (None, false, Some(TaskState::Unknown)),
            (Some(Standing::Unknown), true, Some(TaskState::Unknown)),
            (Some(Standing::Gone), true, Some(TaskState::GoneByOperator)),
            (
                Some(Standing::Unreachable(since)),
                true,
                Some(TaskState::Unreachable),
            ),
        ];
        for (agent, awaited, expected) in table {
            assert_eq!(unknown_state(agent, awaited), expected, "{agent:?}");
        }
    }
}
