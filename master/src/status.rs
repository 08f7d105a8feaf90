//! Status: what a status update changes, whom it goes to, and how acknowledgements go back (SPEC 2.2 ACKNOWLEDGE, 5.3).
//!
//! Pure decisions on [`Books`]. An update is passed on, because its agent sends it again until the framework has acknowledged
//! it, unless the framework was told before that the task has ended otherwise; resources are freed by the newest state that the agent knows, which may be
//! ahead of the update. It never lets a task that has ended live again.

use protocol::message::scheduler::{AcknowledgeStatus, FrameworkMessage, Lost, StatusChanged};
use protocol::message::task::{ExecutorExited, ShutDownFramework, TaskUpdated};
use protocol::{AgentId, FrameworkId, TaskState, TaskStatus};
use runtime::Pid;

use crate::books::Books;
use crate::effects::{Effects, Tell, ToAgent, ToScheduler};
use crate::tasks::Task;

impl Books {
    /// An agent reports a task's new state.
    pub fn task_updated(&mut self, message: TaskUpdated, out: &mut Effects) {
        self.counters.count("master/messages_status_update");
        let TaskUpdated { agent_id, update } = message;
        let framework_id = update.framework_id;
        let Some(agent) = self.agents.connected(&agent_id) else {
            self.counters.count("master/invalid_status_updates");
            return;
        };
        let pid = agent.pid.clone();
        let mut status = update.status;
        status.agent_id = Some(agent_id.clone());
        status.address = agent.address().filter(|_| status.container_id.is_some());
        self.explain_drained(&agent_id, &framework_id, &mut status);
        self.explain_revoked(&framework_id, &mut status);
        let Some(framework) = self.frameworks.get(&framework_id) else {
            self.counters.count("master/invalid_status_updates");
            self.answer_for_the_removed(&framework_id, &agent_id, &status, out);
            return;
        };
        status.state = framework.told(status.state);
        let latest = framework.told(update.latest_state);
        let scheduler = framework.scheduler.clone();
        let found = self.tasks.find(&framework_id, &status.task_id);
        let over = found.filter(|task| task.agent_id == agent_id && task.told.is_terminal());
        if over.is_some_and(|task| task.told != status.state) {
            // To its framework the task has ended, once and for ever: the master has said so when its agent came without it.
            self.counters.count("master/invalid_status_updates");
            return acknowledge_for(&framework_id, &agent_id, &pid, &status, out);
        }
        let known = self.tasks.get(&framework_id, &status.task_id);
        if known.is_some_and(|task| task.agent_id == agent_id) {
            self.counters.count("master/valid_status_updates");
            let new_end = known.is_some_and(|task| !task.told.is_terminal());
            if new_end && status.state.is_terminal() {
                self.task_ended(&framework_id, &status);
            }
            let freed = self.tasks.update(&framework_id, &status.task_id, |task| {
                task.observe(&status, latest);
            });
            if let Some(freed) = freed {
                self.recovered_by_end(freed, out);
            }
            // Nobody will acknowledge an end that bears no uuid.
            if status.state.is_terminal() && status.uuid.is_none() {
                self.tasks.complete(&framework_id, &status.task_id);
            }
        } else {
            self.counters.count("master/invalid_status_updates");
            let newest = self.tasks.find(&framework_id, &status.task_id);
            if newest.is_some_and(|task| task.agent_id != agent_id)
                && self.tasks.is_taken(&framework_id, &status.task_id)
            {
                // Another agent has a task of this id: its framework would believe this of that one.
                tracing::warn!(task = %status.task_id, agent = %agent_id, "a status of another agent's task is not passed on");
                return acknowledge_for(&framework_id, &agent_id, &pid, &status, out);
            }
        }
        match scheduler {
            Some(scheduler) => out.scheduler(
                Some(&scheduler),
                ToScheduler::Status(Box::new(StatusChanged { status })),
            ),
            // The agent sends it again until a scheduler is back.
            None => tracing::debug!(%framework_id, agent = %pid, "no scheduler for a status"),
        }
    }

    /// The framework is no more: the master acknowledges in its stead, and says again that it is no more.
    fn answer_for_the_removed(
        &self,
        framework: &FrameworkId,
        agent: &AgentId,
        status: &TaskStatus,
        out: &mut Effects,
    ) {
        let Some(agent) = self.agents.get(agent) else {
            return;
        };
        if !status.state.is_terminal() {
            let framework_id = framework.clone();
            let shut_down = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
            out.agent(&agent.pid, shut_down);
        }
        acknowledge_for(framework, &agent.id, &agent.pid, status, out);
    }

    /// A framework has a status in hand.
    pub fn acknowledge(&mut self, call: AcknowledgeStatus, out: &mut Effects) {
        self.counters
            .count("master/messages_status_update_acknowledgement");
        let Some(agent) = self.agents.connected(&call.agent_id) else {
            self.counters
                .count("master/invalid_status_update_acknowledgements");
            return;
        };
        self.counters
            .count("master/valid_status_update_acknowledgements");
        let (framework, task) = (&call.framework_id, &call.task_id);
        let there = |task: &Task| task.agent_id == call.agent_id;
        if self.tasks.get(framework, task).is_some_and(there) {
            self.tasks.acknowledge(framework, task, call.uuid);
        }
        out.agent(&agent.pid, ToAgent::Acknowledge(call));
    }

    /// A framework's own executor has ended: what it held itself is free, and its framework hears of it (SPEC 2.3 FAILURE). Of one that the books
    /// do not know nothing is told: the end of a command executor is the end of its task, of which its agent says so itself.
    pub fn executor_exited(&mut self, message: ExecutorExited, out: &mut Effects) {
        self.counters.count("master/messages_exited_executor");
        let ExecutorExited {
            agent_id,
            framework_id,
            executor_id,
            termination,
        } = message;
        let freed = self
            .tasks
            .remove_executor(&agent_id, &framework_id, &executor_id);
        let Some(freed) = freed else { return };
        self.recovered_by_end(freed, out);
        let lost = Lost {
            agent_id,
            executor_id: Some(executor_id),
            termination,
        };
        out.scheduler(
            self.frameworks.scheduler(&framework_id),
            ToScheduler::Lost(lost),
        );
    }

    /// Bytes from a scheduler for an executor; at most once.
    pub fn message_to_executor(&mut self, message: FrameworkMessage, out: &mut Effects) {
        self.counters.count("master/messages_framework_to_executor");
        match self.agents.connected(&message.agent_id) {
            Some(agent) => {
                self.counters
                    .count("master/valid_framework_to_executor_messages");
                out.agent(&agent.pid, ToAgent::Message(message));
            }
            None => self
                .counters
                .count("master/invalid_framework_to_executor_messages"),
        }
    }

    /// Bytes from an executor for its scheduler; at most once.
    pub fn message_to_scheduler(&mut self, message: FrameworkMessage, out: &mut Effects) {
        self.counters.count("master/messages_executor_to_framework");
        match self.frameworks.scheduler(&message.framework_id) {
            Some(scheduler) => {
                self.counters
                    .count("master/valid_executor_to_framework_messages");
                out.scheduler(Some(scheduler), ToScheduler::Message(message));
            }
            None => self
                .counters
                .count("master/invalid_executor_to_framework_messages"),
        }
    }

    /// How many tasks are in each state now, ended and acknowledged ones left out.
    pub fn tasks_by_state(&self) -> std::collections::BTreeMap<TaskState, u64> {
        let mut by_state = std::collections::BTreeMap::new();
        for (_, of) in self.tasks.frameworks() {
            for task in of.active().chain(of.unreachable()) {
                *by_state.entry(task.state).or_default() += 1;
            }
        }
        by_state
    }
}

/// Acknowledges in the framework's stead, so that the agent sends the status no more.
fn acknowledge_for(
    framework: &FrameworkId,
    agent: &AgentId,
    pid: &Pid,
    status: &TaskStatus,
    out: &mut Effects,
) {
    if let Some(uuid) = status.uuid {
        let acknowledged = AcknowledgeStatus {
            framework_id: framework.clone(),
            agent_id: agent.clone(),
            task_id: status.task_id.clone(),
            uuid,
        };
        out.agent(pid, ToAgent::Acknowledge(acknowledged));
    }
}

#[cfg(test)]
mod tests;
