//! What the master hears from schedulers that speak over HTTP.
//!
//! Each is an actor on this node (see `http::scheduler`), which the books know like a driver. Its calls come here from the page that read
//! them, in the order in which they were read, and count only while that actor speaks for the framework: one that was replaced in between
//! says nothing any more. Decides nothing: the books do.

use protocol::FrameworkId;
use protocol::message::scheduler::{SubscriptionRefused, UpdateFramework};
use runtime::prelude::*;
use v1::convert::scheduler::Said;
use v1::schema::scheduler::CallType;

use super::Master;
use crate::dealings::Dealing;
use crate::effects::Effect;
use crate::permission::Asker;
use crate::reconcile::Next;
use crate::validation;

/// What a framework's scheduler says.
#[derive(Debug)]
pub(crate) struct HttpCall {
    /// The actor that hears in its stead.
    pub scheduler: Pid,
    /// Whose it is, as the call says.
    pub framework_id: FrameworkId,
    /// The call.
    pub said: Said,
}

impl Message for HttpCall {
    type Result = ();
}

/// The stream of a framework's scheduler was written a heartbeat.
#[derive(Debug)]
pub(crate) struct HeartbeatWritten {
    /// The actor that writes the stream.
    pub scheduler: Pid,
}

impl Message for HeartbeatWritten {
    type Result = ();
}

/// How are all tasks of a framework that have not ended? Told in parts: answered with where the next one begins, if there is one.
#[derive(Debug)]
pub(crate) struct HttpReconcile {
    /// The actor that hears in its scheduler's stead.
    pub scheduler: Pid,
    /// Whose tasks.
    pub framework_id: FrameworkId,
    /// Where this part begins; `None` is the first.
    pub from: Option<Next>,
    /// How many tasks are looked at.
    pub most: usize,
}

impl Message for HttpReconcile {
    type Result = Option<Next>;
}

/// The framework is something else from now on; answered when that is recorded.
pub(crate) struct HttpUpdate {
    /// The actor that hears in its stead.
    pub scheduler: Pid,
    /// What it is.
    pub update: UpdateFramework,
    /// Tells that actor so, in the turn in which it comes true: ahead of all that is said to it as what it is then, and whether or not anybody
    /// still waits for the answer.
    pub became: Box<dyn FnOnce() + Send>,
}

impl Message for HttpUpdate {
    type Result = Result<(), NotUpdated>;
}

/// The framework stays what it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotUpdated {
    /// It was removed meanwhile, or another scheduler speaks for it.
    #[error("{0}")]
    Overtaken(String),
    /// It may not be that.
    #[error("{0}")]
    Forbidden(String),
    /// It cannot be that.
    #[error("{0}")]
    Never(String),
    /// The registry cannot answer just now.
    #[error("{0}")]
    NotNow(String),
}

impl Handler<HeartbeatWritten> for Master {
    type Result = ();

    fn handle(&mut self, written: HeartbeatWritten, ctx: &mut Context<Self>) {
        let HeartbeatWritten { scheduler } = written;
        self.change(ctx, |books, _, _| {
            books.frameworks.dealt_at(&scheduler, Dealing::Heartbeat, 1);
        });
    }
}

impl Handler<HttpCall> for Master {
    type Result = ();

    fn handle(&mut self, call: HttpCall, ctx: &mut Context<Self>) {
        let HttpCall {
            scheduler,
            framework_id: id,
            said,
        } = call;
        if !self.speaks_for(&scheduler, &id) {
            return self.drop_call(&scheduler, &id, ctx);
        }
        let dealing = dealing(&said);
        self.change(ctx, |books, now, out| {
            if let Some(dealing) = dealing {
                books.frameworks.dealt(&id, dealing, 1);
            }
            match said {
                Said::Accept(accepted) => books.accept_in_part(accepted, now, out),
                Said::Decline(call) => books.decline(call, out),
                Said::AcceptInverse(call) => books.accept_inverse(call, now, out),
                Said::DeclineInverse(call) => books.decline_inverse(call, now, out),
                Said::Revive(call) => books.revive(call, out),
                Said::Suppress(call) => books.suppress(call, out),
                Said::Kill(call) => books.kill(call, now, out),
                Said::Shutdown(agent, executor) => books.end_executor(id, &agent, executor, out),
                Said::Acknowledge(call) => books.acknowledge(call, out),
                Said::AcknowledgeOperation(call) => books.acknowledge_operation(call, out),
                Said::Reconcile(call) => books.reconcile(call, now, out),
                Said::ReconcileOperations(call) => books.reconcile_operations(call, out),
                Said::Message(message) => books.message_to_executor(message, out),
                Said::TearDown(_) => {
                    books.counters.count("master/messages_unregister_framework");
                    out.push(Effect::RemoveFramework(id));
                }
                Said::Unheard(CallType::Request) => {
                    books.counters.count("master/messages_resource_request");
                }
                // The others are taken, and nothing follows from them.
                Said::Unheard(_) => books.counters.count("master/dropped_messages"),
                // These have answers, and are asked by messages of their own.
                Said::Subscribe(..) | Said::Refused(_) | Said::UpdateFramework(..) => {}
            }
        });
    }
}

impl Handler<HttpReconcile> for Master {
    type Result = MessageResult<HttpReconcile>;

    fn handle(&mut self, ask: HttpReconcile, ctx: &mut Context<Self>) -> Self::Result {
        let HttpReconcile {
            scheduler,
            framework_id: id,
            from,
            most,
        } = ask;
        if !self.speaks_for(&scheduler, &id) {
            self.drop_call(&scheduler, &id, ctx);
            return MessageResult(None);
        }
        MessageResult(self.change(ctx, |books, now, out| {
            if from.is_none() {
                books.frameworks.dealt(&id, Dealing::Reconcile, 1);
            }
            books.reconcile_all(&id, from.as_ref(), most, now, out)
        }))
    }
}

/// What is counted of a call; nothing of those that have answers, which are counted where these are made.
fn dealing(said: &Said) -> Option<Dealing> {
    Some(match said {
        Said::Accept(_) => Dealing::Accept,
        Said::Decline(_) => Dealing::Decline,
        Said::AcceptInverse(_) => Dealing::AcceptInverseOffers,
        Said::DeclineInverse(_) => Dealing::DeclineInverseOffers,
        Said::Revive(_) => Dealing::Revive,
        Said::Suppress(_) => Dealing::Suppress,
        Said::Kill(_) => Dealing::Kill,
        Said::Shutdown(..) => Dealing::Shutdown,
        Said::Acknowledge(_) => Dealing::Acknowledge,
        Said::AcknowledgeOperation(_) => Dealing::AcknowledgeOperation,
        Said::Reconcile(_) => Dealing::Reconcile,
        Said::ReconcileOperations(_) => Dealing::ReconcileOperations,
        Said::Message(_) => Dealing::MessageSaid,
        Said::TearDown(_) => Dealing::TearDown,
        Said::Unheard(CallType::Request) => Dealing::Request,
        Said::Unheard(_) | Said::Subscribe(..) | Said::Refused(_) | Said::UpdateFramework(..) => {
            return None;
        }
    })
}

impl Handler<HttpUpdate> for Master {
    type Result = Reply<Result<(), NotUpdated>>;

    fn handle(&mut self, message: HttpUpdate, ctx: &mut Context<Self>) -> Self::Result {
        let HttpUpdate {
            scheduler,
            update,
            became,
        } = message;
        let (promise, reply) = promise();
        let id = update.framework_id.clone();
        if !self.speaks_for(&scheduler, &id) {
            let expected = "one that this scheduler speaks for and that is not over";
            let problem = format!("framework_id is `{id}`: expected {expected}");
            promise.answer(Err(NotUpdated::Overtaken(problem)));
            return reply;
        }
        let asker = Asker::framework(&self.config.acls, &update.framework);
        if let Err(forbidden) = asker.register(&update.framework.roles) {
            let problem = validation::unauthorized(&update.framework, &forbidden);
            promise.answer(Err(NotUpdated::Forbidden(problem)));
            return reply;
        }
        self.update_framework(update, ctx, move |master, updated| {
            if updated.is_ok() {
                became();
            }
            let is_over =
                master.removing.contains(&id) || master.books.frameworks.get(&id).is_none();
            promise.answer(updated.map_err(|refused| match refused {
                SubscriptionRefused::Never { reason } if is_over => NotUpdated::Overtaken(reason),
                SubscriptionRefused::Never { reason } => NotUpdated::Never(reason),
                SubscriptionRefused::NotNow { reason } => NotUpdated::NotNow(reason),
            }));
        });
        reply
    }
}

impl Master {
    /// Somebody else speaks for the framework by now.
    fn drop_call(&mut self, scheduler: &Pid, id: &FrameworkId, ctx: &mut Context<Self>) {
        tracing::debug!(framework = %id, %scheduler, "a call of a scheduler that was replaced is dropped");
        self.change(ctx, |books, _, _| {
            books.counters.count("master/dropped_messages");
        });
    }

    fn speaks_for(&self, scheduler: &Pid, id: &FrameworkId) -> bool {
        self.books.frameworks.scheduler(id) == Some(scheduler)
    }
}
