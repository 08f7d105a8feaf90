//! What the master hears from operators.
//!
//! Views are made of a snapshot, off the mailbox and off its thread.

use protocol::FrameworkId;
use protocol::message::operator::{
    KillByOperator, Operate, OperationRefused, OperatorError, ViewCluster,
};
use protocol::view::ClusterView;
use runtime::prelude::*;

use super::Master;
use crate::view;

impl Handler<ViewCluster> for Master {
    type Result = Reply<ClusterView>;

    fn handle(&mut self, _: ViewCluster, ctx: &mut Context<Self>) -> Reply<ClusterView> {
        let (promise, reply) = promise();
        let books = self.books.clone();
        let viewed = ctx.node().blocking(move || view::cluster(&books));
        ctx.then(viewed, move |_, viewed, _| {
            // An interrupted view is no view: the operator's command hears that the question was let go.
            if let Ok(view) = viewed {
                promise.answer(view);
            }
        });
        reply
    }
}

impl Handler<Operate> for Master {
    type Result = Result<(), OperationRefused>;

    fn handle(&mut self, call: Operate, ctx: &mut Context<Self>) -> Self::Result {
        let (agent, name) = (call.agent_id.clone(), call.conversion.name());
        let done = self.change(ctx, |books, _, out| books.operate(call, out));
        match &done {
            Ok(()) => {
                tracing::info!(%agent, operation = name, "an operator's operation is applied")
            }
            Err(refused) => {
                tracing::info!(%agent, operation = name, %refused, "an operator's operation is refused")
            }
        }
        done
    }
}

impl Handler<KillByOperator> for Master {
    type Result = Result<FrameworkId, OperatorError>;

    fn handle(&mut self, call: KillByOperator, ctx: &mut Context<Self>) -> Self::Result {
        self.change(ctx, |books, now, out| {
            books.kill_by_operator(call, now, out)
        })
    }
}
