//! Reconcile: what a framework is told when it asks how its tasks are (SPEC 2.2 RECONCILE).
//!
//! Pure. The table of `unknown_state` is the whole policy for tasks that nobody knows; known ones are told as they were
//! told last. Answers bear no uuid, no data and no labels but the marks of what an executor says of its container and of checks. Whoever asks how all are that it has may be told in parts, so
//! that none of them is long. It never asks an agent.

use std::sync::Arc;

use protocol::marks::{CHECK_STATUS, CONTAINER_STATUS};
use protocol::message::scheduler::ReconcileTasks;
use protocol::{AgentId, FrameworkId, Reason, Source, TaskId, TaskState, TaskStatus};
use runtime::Timestamp;

use crate::agents::Standing;
use crate::books::Books;
use crate::effects::Effects;
use crate::tasks::Task;

/// Where the next part of an answer begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next(TaskId);

impl Books {
    /// A framework asks how these tasks are, or with none named, how all are that have not ended.
    pub fn reconcile(&mut self, call: ReconcileTasks, now: Timestamp, out: &mut Effects) {
        let id = &call.framework_id;
        if call.tasks.is_empty() {
            self.reconcile_all(id, None, usize::MAX, now, out);
            return;
        }
        self.counters.count("master/messages_reconcile_tasks");
        let asked = call.tasks.iter();
        let answers: Vec<TaskStatus> = asked
            .filter_map(|(task, agent)| self.how_is(id, task, agent.as_ref(), now))
            .collect();
        for status in answers {
            self.tell_status(id, status, out);
        }
    }

    /// A framework asks how all its tasks are that have not ended: the first part of the answer, or the one that begins there. Of those that are active it looks at
    /// `most`, in the order of their ids; what changes between two parts its framework is told anyway. Those whose agents cannot be reached are few, and
    /// in the first. Gives where the next part begins, if there is one.
    pub fn reconcile_all(
        &mut self,
        id: &FrameworkId,
        from: Option<&Next>,
        most: usize,
        now: Timestamp,
        out: &mut Effects,
    ) -> Option<Next> {
        if from.is_none() {
            self.counters.count("master/messages_reconcile_tasks");
        }
        let of = self.tasks.of_framework(id)?;
        let mut active = of.active_after(from.map(|Next(last)| last)).peekable();
        let (mut answers, mut last) = (Vec::new(), None);
        let is_told = |task: &&Arc<Task>| !task.told.is_terminal();
        for task in active.by_ref().take(most) {
            last = Some(&task.id);
            answers.extend(
                Some(task)
                    .filter(is_told)
                    .and_then(|task| self.answer(id, task, now)),
            );
        }
        let next = last.filter(|_| active.peek().is_some()).cloned();
        drop(active);
        if from.is_none() {
            let unreachable = of.unreachable().filter(is_told);
            answers.extend(unreachable.filter_map(|task| self.answer(id, task, now)));
        }
        for status in answers {
            self.tell_status(id, status, out);
        }
        next.map(Next)
    }

    /// How one task is; `None` while an agent that may know has not come back yet, or has still to tell of its end.
    pub(crate) fn how_is(
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
            .because(Reason::Reconciliation, message);
        status.agent_id = agent.cloned();
        if let Some(Standing::Unreachable(since)) = agent.map(|id| self.agents.standing(id)) {
            status.unreachable_since = Some(since);
        }
        Some(self.in_words_of(framework, status))
    }

    /// As its framework was told last. Nothing while its agent has still to tell what its framework has not heard, or has
    /// heard from an earlier master: what came before is not true any more, and the end must not come ahead of it.
    fn answer(&self, framework: &FrameworkId, task: &Task, now: Timestamp) -> Option<TaskStatus> {
        if task.state.is_terminal() && !task.told.is_terminal() {
            return None;
        }
        Some(self.as_told(framework, task, now))
    }

    /// As its framework was told last, without any question.
    pub(crate) fn as_told(
        &self,
        framework: &FrameworkId,
        task: &Task,
        now: Timestamp,
    ) -> TaskStatus {
        let mut status = TaskStatus::new(task.id.clone(), task.told, Source::Master, now)
            .because(Reason::Reconciliation, "Reconciliation: Latest task state")
            .on(&task.agent_id);
        if let Some(newest) = task.statuses.last() {
            status.executor_id = newest.executor_id.clone();
            status.container_id = newest.container_id.clone();
            status.address = newest.address;
            status.healthy = newest.healthy;
            status.termination = newest.termination;
            status.unreachable_since = newest.unreachable_since;
            let said =
                [CONTAINER_STATUS, CHECK_STATUS].map(|mark| newest.labels.get_key_value(mark));
            let said = said.into_iter().flatten();
            status.labels = said
                .map(|(mark, text)| (mark.clone(), text.clone()))
                .collect();
        }
        self.in_words_of(framework, status)
    }

    fn in_words_of(&self, framework: &FrameworkId, mut status: TaskStatus) -> TaskStatus {
        status.state = match self.frameworks.get(framework) {
            Some(framework) => framework.told(status.state),
            None => status.state.as_told(false),
        };
        status
    }
}

/// The state of a task that the master does not know, by what it knows of the agent that was named, if one was.
/// `awaited` says whether any agent has still to come back after the master's restart.
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
    #[test]
    fn an_unknown_task_is_told_by_what_is_known_of_its_agent() {
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
