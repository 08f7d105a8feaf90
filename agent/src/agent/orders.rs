//! Orders: forwards the messages of the master that admitted this agent. Refuses those of any
//! other.

use protocol::message::operation::ApplyOperation;
use protocol::message::registration::{DisownTasks, TermSeen};
use protocol::message::scheduler::{
    AcknowledgeOperation, AcknowledgeStatus, FrameworkMessage, KillTask,
};
use protocol::message::task::{
    DrainTasks, EndExecutor, FrameworkChanged, RunTasks, ShutDownFramework,
};
use runtime::prelude::*;

use super::Agent;
use crate::container::Containerizer;
use crate::operations::{self, Apply, OperationAcknowledged};
use crate::status::Acknowledge;

impl Agent {
    /// Whether the message comes from the agent's master, or from the one it is registering with.
    pub(super) fn obeys(&mut self, ctx: &Context<Self>) -> bool {
        let Some(sender) = ctx.sender() else {
            return true; // Sent within this node.
        };
        let ours = self.master.as_ref().map(|master| &master.pid);
        // Two successive masters on one node differ by their pid, if the sender gives one.
        let obeyed = ours.or(self.registering_with.as_ref()).is_some_and(|ours| {
            let own = |pid: &Pid| pid == ours;
            *ours.node() == sender.peer.node && sender.pid.as_ref().is_none_or(own)
        });
        if !obeyed {
            self.refuse(ctx);
        }
        obeyed
    }

    /// Refuses a message of another master, and informs a deposed one of the newer term.
    pub(super) fn refuse(&mut self, ctx: &Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        let node = &sender.peer.node;
        let Some(term) = self.fence.reject(node) else {
            return;
        };
        tracing::warn!(peer = %node, term, "refusing messages of another master");
        // The actor of this name can step down, whichever actor there sent the message.
        let master = Pid::new("master", node.clone(), 0);
        if let Err(error) = ctx.node().tell(&master, TermSeen { term }) {
            tracing::debug!(%error, "deposed master not informed");
        }
    }

    fn forward<M: Remote<Result = ()>>(&mut self, message: M, ctx: &mut Context<Self>)
    where
        Containerizer: Handler<M>,
    {
        if let Err(error) = self.containerizer.tell(message) {
            tracing::error!(%error, message = M::NAME, "cannot reach the containerizer");
            self.reregister(ctx);
        }
    }
}

/// Forwards each message to the containerizer if its sender is obeyed.
macro_rules! forwards {
    ($($message:ty),*) => {$(
        impl Handler<$message> for Agent {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                if self.obeys(ctx) {
                    self.forward(message, ctx);
                }
            }
        }
    )*};
}

forwards!(
    KillTask,
    EndExecutor,
    DrainTasks,
    ShutDownFramework,
    FrameworkChanged,
    DisownTasks
);

impl Handler<RunTasks> for Agent {
    type Result = ();
    fn handle(&mut self, run: RunTasks, ctx: &mut Context<Self>) {
        if self.obeys(ctx) {
            self.learn_id(&run);
            self.forward(run, ctx);
        }
    }
}

impl Handler<FrameworkMessage> for Agent {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        if self.obeys(ctx)
            && let Err(error) = self.containerizer.tell(message)
        {
            // Framework messages are best effort.
            tracing::debug!(%error, "framework message dropped");
        }
    }
}

impl Handler<AcknowledgeStatus> for Agent {
    type Result = ();
    fn handle(&mut self, acknowledged: AcknowledgeStatus, ctx: &mut Context<Self>) {
        if self.obeys(ctx) {
            let key = (acknowledged.framework_id, acknowledged.task_id);
            let _ = self.status.tell(Acknowledge {
                key,
                uuid: acknowledged.uuid,
            });
        }
    }
}

impl Handler<ApplyOperation> for Agent {
    type Result = ();
    fn handle(&mut self, apply: ApplyOperation, ctx: &mut Context<Self>) {
        if !self.obeys(ctx) {
            return;
        }
        let applied = self.operations.ask(Apply(apply), operations::PATIENCE);
        // Blocks the mailbox until the operation is applied: a later launch may use its result.
        ctx.wait(applied.into_actor(self).map(|total, this, _| match total {
            Ok(total) => this.total = total,
            Err(error) => tracing::error!(%error, "operation not applied"),
        }));
    }
}

impl Handler<AcknowledgeOperation> for Agent {
    type Result = ();
    fn handle(&mut self, acknowledged: AcknowledgeOperation, ctx: &mut Context<Self>) {
        if self.obeys(ctx) {
            let _ = self.operations.tell(OperationAcknowledged(acknowledged));
        }
    }
}
