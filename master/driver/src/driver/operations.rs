//! Status updates of operations and their acknowledgements.
//!
//! The newest updates are stored with those of tasks, so each is delivered once. The driver does
//! not reconcile operations by itself: only the framework knows their ids.

use protocol::message::scheduler::AcknowledgeOperation;
use protocol::{OperationId, OperationState, OperationStatus};

use super::*;

impl<S: Scheduler> Driver<S> {
    pub(super) fn operation(&mut self, status: OperationStatus, ctx: &mut Context<Self>) {
        match status.uuid.map(|uuid| self.updates.record(uuid)) {
            Some(DeliveryState::Acknowledged) => return self.acknowledge_operation(&status),
            Some(DeliveryState::Waiting) => return,
            None | Some(DeliveryState::New) => {}
        }
        self.call_back(ctx, |scheduler, calls| {
            scheduler.operation_status(calls, &status);
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
        // If this is lost, the agent repeats the status, and the driver the acknowledgement.
        self.send_call(|framework_id| AcknowledgeOperation {
            framework_id,
            agent_id,
            operation_id,
            uuid,
        });
    }

    /// Reports operations that were not sent, with the status that the master would send.
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

/// The ids of these operations, where given.
pub(super) fn named(operations: &[Operation]) -> Vec<OperationId> {
    let id = |operation: &Operation| match operation {
        Operation::Convert { id, .. } => id.clone(),
        Operation::Launch { .. } | Operation::LaunchGroup { .. } => None,
    };
    operations.iter().filter_map(id).collect()
}
