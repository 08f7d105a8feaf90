//! Parts of the v1 API that only HTTP schedulers use (ACCEPT, SHUTDOWN, REQUEST).
//!
//! Pure decisions on [`MasterState`]. An ACCEPT may contain tasks and operations that are
//! unsupported here: each is rejected, and the others proceed; if the offers are invalid, all are
//! rejected. Other calls are shared with native drivers.

use protocol::message::task::EndExecutor;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskInfo, TaskState};
use resources::Resources;
use runtime::Timestamp;
use v1::convert::scheduler::{DecodedAccept, InvalidTask, OperationsWithoutId};

use crate::offers::accept::AcceptRejected;
use crate::state::effects::{Effects, SendEffects, ToAgent};
use crate::state::{MasterState, master_status};

impl MasterState {
    /// Handles an accept of which some tasks or operations are unsupported.
    pub fn accept_in_part(&mut self, accepted: DecodedAccept, now: Timestamp, out: &mut Effects) {
        let DecodedAccept {
            offers,
            tasks,
            operations,
            without_id,
            invalid_offer,
        } = accepted;
        let framework = offers.framework_id.clone();
        let offer = offers.offer_ids.first().and_then(|id| self.offers.get(id));
        let agent = offer
            .filter(|offer| offer.framework_id == framework)
            .map(|offer| offer.agent_id.clone());
        let rejected = self.accept_unless_rejected(offers, invalid_offer.as_deref(), now, out);
        let rejected = rejected.err();
        // With invalid offers nothing else matters.
        let agent = agent.filter(|_| rejected.is_none());
        for task in tasks {
            self.refuse_unsupported(
                &framework,
                agent.as_ref(),
                task,
                rejected.as_ref(),
                now,
                out,
            );
        }
        if let Some(OperationsWithoutId { count, first }) = without_id {
            self.counters.add("master/operations_nameless", count);
            tracing::info!(%framework, count, %first, "dropping unsupported operations without an id");
        }
        for (id, invalid) in operations {
            let message = rejected.as_ref().map(AcceptRejected::for_operation);
            let reason = message.unwrap_or_else(|| invalid.to_string());
            // The kind was lost when the operation was found invalid.
            let named = (Some(id), None);
            self.refuse_operation(&framework, agent.as_ref(), named, &reason, out);
        }
    }

    /// Reports that an unsupported task does not run, and remembers it like any refused task. Its
    /// agent is that of the offers, or if these are invalid, the one it names.
    fn refuse_unsupported(
        &mut self,
        framework: &FrameworkId,
        offered: Option<&AgentId>,
        task: InvalidTask,
        rejected: Option<&AcceptRejected>,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let (state, reason, message) = match rejected {
            Some(rejected) => (TaskState::Dropped, rejected.reason(), rejected.for_task()),
            None => (TaskState::Error, task.reason, task.message),
        };
        let known = self.frameworks.get(framework);
        let mut status = master_status(known, &task.task_id, state, reason, message, now);
        status.agent_id = offered.cloned().or_else(|| task.agent_id.clone());
        let Some(agent_id) = status.agent_id.clone() else {
            // Without an agent it cannot be remembered.
            self.task_ended(framework, &status);
            return self.tell_status(framework, status, out);
        };
        let named = TaskInfo {
            name: task.name,
            ..TaskInfo::new(task.task_id, agent_id, Resources::default())
        };
        self.refuse(framework, &named, state, status, out);
    }

    /// Forwards an order to end an executor with its tasks. Dropped if its agent is disconnected,
    /// like a message to it.
    pub fn end_executor(
        &mut self,
        framework_id: FrameworkId,
        agent_id: &AgentId,
        executor_id: ExecutorId,
        out: &mut Effects,
    ) {
        match self.agents.connected(agent_id) {
            Some(agent) => {
                let end = EndExecutor {
                    framework_id,
                    executor_id,
                };
                out.agent(&agent.pid, ToAgent::EndExecutor(end));
            }
            None => self.counters.count("master/dropped_messages"),
        }
    }
}
