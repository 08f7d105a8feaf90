//! Orders: what the master that has this agent says to it, and whom that is handed on to. What any other master says is not obeyed.

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
use crate::operations::{self, Acknowledged, Apply};
use crate::status::Acknowledge;

impl Agent {
    /// Whether a message comes from the master that has us, or is about to. An older or a foreign one is not obeyed.
    pub(super) fn obeys(&mut self, ctx: &Context<Self>) -> bool {
        let Some(sender) = ctx.sender() else {
            return true; // Said by somebody on this node.
        };
        let ours = self.master.as_ref().map(|master| &master.pid);
        // Two masters of one node, one after the other, are told apart by what the node says of them.
        let obeyed = ours.or(self.courted.as_ref()).is_some_and(|ours| {
            let own = |pid: &Pid| pid == ours;
            *ours.node() == sender.peer.node && sender.pid.as_ref().is_none_or(own)
        });
        if !obeyed {
            self.refuse(ctx);
        }
        obeyed
    }

    /// The message being handled is of a master that does not have us. One that was deposed is told so.
    pub(super) fn refuse(&mut self, ctx: &Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        let node = &sender.peer.node;
        let Some(term) = self.fence.refuse(node) else {
            return;
        };
        tracing::warn!(peer = %node, term, "messages of a master that does not have us are refused");
        // Whichever actor there spoke, the one that may have to end has this name.
        let master = Pid::new("master", node.clone(), 0);
        if let Err(error) = ctx.node().tell(&master, TermSeen { term }) {
            tracing::debug!(%error, "it is not told");
        }
    }

    fn hand_on<M: Remote<Result = ()>>(&mut self, message: M, ctx: &mut Context<Self>)
    where
        Containerizer: Handler<M>,
    {
        if let Err(error) = self.containerizer.tell(message) {
            tracing::error!(%error, message = M::NAME, "the containerizer does not hear");
            self.begin_anew(ctx);
        }
    }
}

/// Messages that are handed on as they are when the master says them.
macro_rules! hands_on {
    ($($message:ty),*) => {$(
        impl Handler<$message> for Agent {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                if self.obeys(ctx) {
                    self.hand_on(message, ctx);
                }
            }
        }
    )*};
}

hands_on!(
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
            self.hand_on(run, ctx);
        }
    }
}

impl Handler<FrameworkMessage> for Agent {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        if self.obeys(ctx)
            && let Err(error) = self.containerizer.tell(message)
        {
            tracing::debug!(%error, "a framework message is lost"); // As any may be.
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
        // Nothing that the master says after it is heard before it is done: a task may use what it makes.
        ctx.wait(applied.into_actor(self).map(|total, this, _| match total {
            Ok(total) => this.total = total,
            Err(error) => tracing::error!(%error, "an operation is not applied"),
        }));
    }
}

impl Handler<AcknowledgeOperation> for Agent {
    type Result = ();
    fn handle(&mut self, acknowledged: AcknowledgeOperation, ctx: &mut Context<Self>) {
        if self.obeys(ctx) {
            let _ = self.operations.tell(Acknowledged(acknowledged));
        }
    }
}
