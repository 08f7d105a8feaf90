//! Status updates: their effect, their forwarding, and the acknowledgements.
//!
//! Pure decisions on [`MasterState`]. An update is forwarded, since its agent resends it until the
//! framework has acknowledged it, unless the framework was already sent another end of the task.
//! Resources are freed by the newest state that the agent knows, which may be ahead of the update.
//! A terminal state is final.

use protocol::message::scheduler::{AcknowledgeStatus, FrameworkMessage, Lost, StatusChanged};
use protocol::message::task::{ExecutorExited, ShutDownFramework, TaskUpdated};
use protocol::{AgentId, FrameworkId, TaskState, TaskStatus};
use runtime::Pid;

use crate::state::MasterState;
use crate::state::effects::{Effects, SendEffects, ToAgent, ToScheduler};
use crate::tasks::Task;

impl MasterState {
    /// Handles an agent's report of a task's new state.
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
            self.answer_for_removed_framework(&framework_id, &agent_id, &status, out);
            return;
        };
        status.state = framework.report_state(status.state);
        let latest = framework.report_state(update.latest_state);
        let scheduler = framework.scheduler.clone();
        let found = self.tasks.find(&framework_id, &status.task_id);
        let over = found.filter(|task| task.agent_id == agent_id && task.told.is_terminal());
        if over.is_some_and(|task| task.told != status.state) {
            // The framework was sent the task's final end, when its agent returned without the
            // task.
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
            // An end without a uuid is never acknowledged.
            if status.state.is_terminal() && status.uuid.is_none() {
                self.tasks.complete(&framework_id, &status.task_id);
            }
        } else {
            self.counters.count("master/invalid_status_updates");
            let newest = self.tasks.find(&framework_id, &status.task_id);
            if newest.is_some_and(|task| task.agent_id != agent_id)
                && self.tasks.is_taken(&framework_id, &status.task_id)
            {
                // Another agent has a task with this id, and its framework would misattribute the
                // update.
                tracing::warn!(task = %status.task_id, agent = %agent_id, "dropping a status of another agent's task");
                return acknowledge_for(&framework_id, &agent_id, &pid, &status, out);
            }
        }
        match scheduler {
            Some(scheduler) => out.scheduler(
                Some(&scheduler),
                ToScheduler::Status(Box::new(StatusChanged { status })),
            ),
            // The agent resends it until a scheduler returns.
            None => tracing::debug!(%framework_id, agent = %pid, "no scheduler for a status"),
        }
    }

    /// The framework is removed: the master acknowledges instead, and tells the agent again.
    fn answer_for_removed_framework(
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

    /// Handles a framework's acknowledgement.
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

    /// A framework's own executor has ended: its resources are free, and its framework is notified.
    /// An executor that the state does not know is not reported.
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

    /// Forwards a message from a scheduler to an executor, at most once.
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

    /// Forwards a message from an executor to its scheduler, at most once.
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

    /// Number of tasks in each state, without acknowledged ends.
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

/// Acknowledges for the framework, so that the agent stops resending the status.
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
