//! Operations: how the scheduler hears what became of those that it has named, and how their statuses are acknowledged (SPEC 2.2, 2.3).
//!
//! Remembers the newest updates together with those of tasks, so that each comes once. It does not ask about operations by itself: only
//! the framework knows which it has named.

use protocol::message::scheduler::AcknowledgeOperation;
use protocol::{OperationId, OperationState, OperationStatus};

use super::*;

impl<S: Scheduler> Driver<S> {
    pub(super) fn operation(&mut self, status: OperationStatus, ctx: &mut Context<Self>) {
        match status.uuid.map(|uuid| self.updates.hear(uuid)) {
            Some(Heard::Acknowledged) => return self.acknowledge_operation(&status),
            Some(Heard::Waiting) => return,
            None | Some(Heard::New) => {}
        }
        self.call(ctx, |scheduler, verbs| {
            scheduler.operation_status(verbs, &status);
        });
        if self.plan.acknowledgement == Acknowledgement::Implicit {
            self.acknowledge_operation(&status);
        }
    }

    pub(super) fn acknowledge_operation(&mut self, status: &OperationStatus) {
        let (Some(uuid), Some(agent_id)) = (status.uuid, status.agent_id.clone()) else {
            return;
        };
        self.updates.acknowledge(uuid);
        let operation_id = status.operation_id.clone();
        // If it fails, the agent sends the status again, and it is acknowledged again.
        self.say(|framework_id| AcknowledgeOperation {
            framework_id,
            agent_id,
            operation_id,
            uuid,
        });
    }

    /// These operations were not asked for: told as the master would tell it.
    pub(super) fn not_converted(
        &mut self,
        operations: Vec<OperationId>,
        reason: &str,
        ctx: &mut Context<Self>,
    ) {
        for id in operations {
            let status = OperationStatus::new(id, OperationState::Dropped, reason);
            self.operation(status, ctx);
        }
    }
}

/// The names of these operations, as far as they have one.
pub(super) fn named(operations: &[Operation]) -> Vec<OperationId> {
    let id = |operation: &Operation| match operation {
        Operation::Convert { id, .. } => id.clone(),
        Operation::Launch { .. } | Operation::LaunchGroup { .. } => None,
    };
    operations.iter().filter_map(id).collect()
}
