//! Calls of schedulers that connect over HTTP.
//!
//! Each such scheduler is an actor on this node (see `http::scheduler`), which the state treats
//! like a driver. Its calls come from the page that read them, in order, and are valid only while
//! that actor is the framework's scheduler: a replaced one is ignored. All decisions are the
//! state's.

use protocol::FrameworkId;
use protocol::message::scheduler::{SubscriptionRefused, UpdateFramework};
use runtime::prelude::*;
use v1::convert::scheduler::SchedulerCall;
use v1::schema::scheduler::CallType;

use crate::frameworks::counters::FrameworkCounter;
use crate::master::Master;
use crate::permission::Caller;
use crate::state::effects::Effect;
use crate::tasks::reconcile::NextPart;
use crate::validation;

/// A call of a framework's scheduler.
#[derive(Debug)]
pub(crate) struct HttpCall {
    /// The actor that represents the scheduler.
    pub scheduler: Pid,
    /// The framework named in the call.
    pub framework_id: FrameworkId,
    /// The call.
    pub call: SchedulerCall,
}

impl Message for HttpCall {
    type Result = ();
}

/// A heartbeat was written to a scheduler's stream.
#[derive(Debug)]
pub(crate) struct HeartbeatWritten {
    /// The actor that writes the stream.
    pub scheduler: Pid,
}

impl Message for HeartbeatWritten {
    type Result = ();
}

/// Reconciles all unfinished tasks of a framework in parts; answered with the start of the next
/// part, if there is one.
#[derive(Debug)]
pub(crate) struct HttpReconcile {
    /// The actor that represents the scheduler.
    pub scheduler: Pid,
    /// The framework.
    pub framework_id: FrameworkId,
    /// The start of this part; `None` for the first.
    pub from: Option<NextPart>,
    /// Maximum tasks in this part.
    pub most: usize,
}

impl Message for HttpReconcile {
    type Result = Option<NextPart>;
}

/// Changes a framework's description; answered when that is recorded.
pub(crate) struct HttpUpdate {
    /// The actor that represents the scheduler.
    pub scheduler: Pid,
    /// The new description.
    pub update: UpdateFramework,
    /// Called in the turn in which the change takes effect: before any message that depends on it,
    /// and even if the caller no longer waits.
    pub on_updated: Box<dyn FnOnce() + Send>,
}

impl Message for HttpUpdate {
    type Result = Result<(), NotUpdated>;
}

/// The framework was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotUpdated {
    /// It was removed meanwhile, or another scheduler has replaced this one.
    #[error("{0}")]
    Overtaken(String),
    /// Not authorized.
    #[error("{0}")]
    Forbidden(String),
    /// Not valid.
    #[error("{0}")]
    Never(String),
    /// The registry cannot answer now.
    #[error("{0}")]
    NotNow(String),
}

impl Handler<HeartbeatWritten> for Master {
    type Result = ();

    fn handle(&mut self, written: HeartbeatWritten, ctx: &mut Context<Self>) {
        let HeartbeatWritten { scheduler } = written;
        self.change(ctx, |state, _, _| {
            state
                .frameworks
                .count_at(&scheduler, FrameworkCounter::Heartbeat, 1);
        });
    }
}

impl Handler<HttpCall> for Master {
    type Result = ();

    fn handle(&mut self, call: HttpCall, ctx: &mut Context<Self>) {
        let HttpCall {
            scheduler,
            framework_id: id,
            call,
        } = call;
        if !self.is_current_scheduler(&scheduler, &id) {
            return self.drop_call(&scheduler, &id, ctx);
        }
        let counter = counter_of(&call);
        self.change(ctx, |state, now, out| {
            if let Some(counter) = counter {
                state.frameworks.count(&id, counter, 1);
            }
            match call {
                SchedulerCall::Accept(accepted) => state.accept_in_part(accepted, now, out),
                SchedulerCall::Decline(call) => state.decline(call, out),
                SchedulerCall::AcceptInverse(call) => state.accept_inverse(call, now, out),
                SchedulerCall::DeclineInverse(call) => state.decline_inverse(call, now, out),
                SchedulerCall::Revive(call) => state.revive(call, out),
                SchedulerCall::Suppress(call) => state.suppress(call, out),
                SchedulerCall::Kill(call) => state.kill(call, now, out),
                SchedulerCall::Shutdown(agent, executor) => {
                    state.end_executor(id, &agent, executor, out)
                }
                SchedulerCall::Acknowledge(call) => state.acknowledge(call, out),
                SchedulerCall::AcknowledgeOperation(call) => state.acknowledge_operation(call, out),
                SchedulerCall::Reconcile(call) => state.reconcile(call, now, out),
                SchedulerCall::ReconcileOperations(call) => state.reconcile_operations(call, out),
                SchedulerCall::Message(message) => state.message_to_executor(message, out),
                SchedulerCall::TearDown(_) => {
                    state.counters.count("master/messages_unregister_framework");
                    out.push(Effect::RemoveFramework(id));
                }
                SchedulerCall::Ignored(CallType::Request) => {
                    state.counters.count("master/messages_resource_request");
                }
                // The others are accepted and have no effect.
                SchedulerCall::Ignored(_) => state.counters.count("master/dropped_messages"),
                // These have answers, and are separate messages.
                SchedulerCall::Subscribe(..)
                | SchedulerCall::Refused(_)
                | SchedulerCall::UpdateFramework(..) => {}
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
        if !self.is_current_scheduler(&scheduler, &id) {
            self.drop_call(&scheduler, &id, ctx);
            return MessageResult(None);
        }
        MessageResult(self.change(ctx, |state, now, out| {
            if from.is_none() {
                state.frameworks.count(&id, FrameworkCounter::Reconcile, 1);
            }
            state.reconcile_all(&id, from.as_ref(), most, now, out)
        }))
    }
}

/// The counter of a call; `None` for calls with answers, which are counted where they are answered.
fn counter_of(call: &SchedulerCall) -> Option<FrameworkCounter> {
    Some(match call {
        SchedulerCall::Accept(_) => FrameworkCounter::Accept,
        SchedulerCall::Decline(_) => FrameworkCounter::Decline,
        SchedulerCall::AcceptInverse(_) => FrameworkCounter::AcceptInverseOffers,
        SchedulerCall::DeclineInverse(_) => FrameworkCounter::DeclineInverseOffers,
        SchedulerCall::Revive(_) => FrameworkCounter::Revive,
        SchedulerCall::Suppress(_) => FrameworkCounter::Suppress,
        SchedulerCall::Kill(_) => FrameworkCounter::Kill,
        SchedulerCall::Shutdown(..) => FrameworkCounter::Shutdown,
        SchedulerCall::Acknowledge(_) => FrameworkCounter::Acknowledge,
        SchedulerCall::AcknowledgeOperation(_) => FrameworkCounter::AcknowledgeOperation,
        SchedulerCall::Reconcile(_) => FrameworkCounter::Reconcile,
        SchedulerCall::ReconcileOperations(_) => FrameworkCounter::ReconcileOperations,
        SchedulerCall::Message(_) => FrameworkCounter::MessageSaid,
        SchedulerCall::TearDown(_) => FrameworkCounter::TearDown,
        SchedulerCall::Ignored(CallType::Request) => FrameworkCounter::Request,
        SchedulerCall::Ignored(_)
        | SchedulerCall::Subscribe(..)
        | SchedulerCall::Refused(_)
        | SchedulerCall::UpdateFramework(..) => {
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
            on_updated,
        } = message;
        let (promise, reply) = promise();
        let id = update.framework_id.clone();
        if !self.is_current_scheduler(&scheduler, &id) {
            let expected = "this scheduler's framework, not yet removed";
            let problem = format!("framework_id is `{id}`: expected {expected}");
            promise.answer(Err(NotUpdated::Overtaken(problem)));
            return reply;
        }
        let caller = Caller::framework(&self.config.acls, &update.framework);
        if let Err(forbidden) = caller.register(&update.framework.roles) {
            let problem = validation::unauthorized(&update.framework, &forbidden);
            promise.answer(Err(NotUpdated::Forbidden(problem)));
            return reply;
        }
        self.update_framework(update, ctx, move |master, updated| {
            if updated.is_ok() {
                on_updated();
            }
            let is_over =
                master.removing.contains(&id) || master.state.frameworks.get(&id).is_none();
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
    /// Drops a call of a scheduler that was replaced.
    fn drop_call(&mut self, scheduler: &Pid, id: &FrameworkId, ctx: &mut Context<Self>) {
        tracing::debug!(framework = %id, %scheduler, "dropping a call of a replaced scheduler");
        self.change(ctx, |state, _, _| {
            state.counters.count("master/dropped_messages");
        });
    }

    fn is_current_scheduler(&self, scheduler: &Pid, id: &FrameworkId) -> bool {
        self.state.frameworks.scheduler(id) == Some(scheduler)
    }
}
