//! What the master hears from schedulers.
//!
//! Each handler checks that the framework's own scheduler speaks, and lets the books decide. Calls come numbered, so that they
//! are handled once and in order although a driver says them again when it has lost its master (S132, W17). They wait for their
//! [turn](super::turns), as whoever subscribes does. Nothing is remembered here but which of them were handled.

use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkMessage, KillTask, ReconcileOperations,
    ReconcileTasks, ReviveOffers, Subscribe, Subscribed, SubscriptionRefused, SuppressOffers,
    TearDown, UpdateFramework,
};
use protocol::{FrameworkId, FrameworkInfo};
use resources::Invalid;
use runtime::delivery::{NotTaken, Numbered, Taken};
use runtime::prelude::*;

use super::Master;
use crate::dealings::Dealing;
use crate::registry::RegistryError;
use crate::subscription::FrameworkPrepared;

type Answer = Result<Subscribed, SubscriptionRefused>;

impl Handler<Subscribe> for Master {
    type Result = Reply<Answer>;

    fn handle(&mut self, message: Subscribe, ctx: &mut Context<Self>) -> Reply<Answer> {
        let principal = message.framework.principal.clone();
        self.in_turn(principal.as_deref(), ctx, |master, promise, ctx| {
            master.subscribe(message, promise, ctx);
        })
    }
}

impl Handler<UpdateFramework> for Master {
    type Result = Reply<Result<(), SubscriptionRefused>>;

    fn handle(&mut self, message: UpdateFramework, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.update_framework(message, ctx, |_, updated| promise.answer(updated));
        reply
    }
}

impl Master {
    /// Has the framework be one, through the registry, and says how that went.
    fn subscribe(&mut self, message: Subscribe, promise: Promise<Answer>, ctx: &mut Context<Self>) {
        match self.prepare_subscription(&message, ctx) {
            Err(refused) => promise.answer(Err(refused)),
            Ok(prepared) => {
                let scheduler = message.scheduler.clone();
                self.admitting.insert(scheduler.clone());
                let applied = self.registry.apply(prepared.operation.clone());
                ctx.then(applied, move |master, applied, ctx| {
                    master.admitting.remove(&scheduler);
                    promise.answer(match applied {
                        Ok(_) => master.subscribed(prepared, message, ctx),
                        Err(error) => Err(master.subscription_refused(error, ctx)),
                    });
                });
            }
        }
    }

    /// Has the framework become something else, through the registry, and says how that went.
    pub(super) fn update_framework(
        &mut self,
        message: UpdateFramework,
        ctx: &mut Context<Self>,
        done: impl FnOnce(&mut Self, Result<(), SubscriptionRefused>) + 'static,
    ) {
        match self.prepare_update(&message, ctx) {
            Err(refused) => done(self, Err(refused)),
            Ok(prepared) => {
                let applied = self.registry.apply(prepared.operation.clone());
                ctx.then(applied, move |master, applied, ctx| {
                    let updated = match applied {
                        Ok(_) => {
                            master.change(ctx, |books, _, out| books.update(prepared, message, out))
                        }
                        Err(error) => Err(master.subscription_refused(error, ctx)),
                    };
                    done(master, updated);
                });
            }
        }
    }

    fn prepare_update(
        &mut self,
        message: &UpdateFramework,
        ctx: &mut Context<Self>,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        if let Some(reason) = self.not_leading() {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        let id = &message.framework_id;
        if !self.is_from_framework(id, ctx) {
            let reason = format!("framework_id is `{id}`: expected the asker's own framework");
            return Err(SubscriptionRefused::Never { reason });
        }
        if let Some(reason) = self.being_removed(id) {
            return Err(SubscriptionRefused::Never { reason });
        }
        if !self.has_turn(id, ctx) {
            let reason = super::turns::TOO_MANY.to_owned();
            return Err(SubscriptionRefused::NotNow { reason });
        }
        self.change(ctx, |books, _, _| books.prepare_update(message))
    }

    fn prepare_subscription(
        &mut self,
        message: &Subscribe,
        ctx: &mut Context<Self>,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.may_subscribe(&message.scheduler, &message.framework, ctx)?;
        self.change(ctx, |books, _, _| books.prepare_framework(message))
    }

    /// Whether the books may be asked about this scheduler now, and it is its sender's.
    pub(super) fn may_subscribe(
        &self,
        scheduler: &Pid,
        info: &FrameworkInfo,
        ctx: &Context<Self>,
    ) -> Result<(), SubscriptionRefused> {
        let id = info.id.as_ref();
        if let Some(reason) = self.not_leading() {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        if let Some(sender) = ctx.sender()
            && sender.peer.node != *scheduler.node()
        {
            let reason = format!(
                "scheduler is `{scheduler}`: expected an actor of the scheduler's own node, {}",
                sender.peer.node
            );
            return Err(SubscriptionRefused::Never { reason });
        }
        if self.config.authenticate_frameworks
            && let Some(sender) = ctx.sender()
            && info.principal.as_deref() != Some(sender.peer.node.name())
        {
            let given = info.principal.as_deref().unwrap_or("absent");
            let expected = format!("the name in its certificate, `{}`", sender.peer.node.name());
            let reason = Invalid::new("framework.principal", given, expected).to_string();
            return Err(SubscriptionRefused::Never { reason });
        }
        if self.admitting.contains(scheduler) {
            let reason = "the registry is being asked about this scheduler already".to_owned();
            return Err(SubscriptionRefused::NotNow { reason });
        }
        if let Some(reason) = id.and_then(|id| self.being_removed(id)) {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        Ok(())
    }

    /// Why nothing is begun for this framework, if it is being removed.
    pub(super) fn being_removed(&self, id: &FrameworkId) -> Option<String> {
        let problem = || format!("framework_id is `{id}`: expected one that is not being removed");
        self.removing.contains(id).then(problem)
    }

    fn subscribed(
        &mut self,
        prepared: FrameworkPrepared,
        message: Subscribe,
        ctx: &mut Context<Self>,
    ) -> Answer {
        if let Some(reason) = self.being_removed(&prepared.framework_id) {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        tracing::info!(framework = %prepared.framework_id, scheduler = %message.scheduler, "a framework is subscribed");
        self.change(ctx, |books, now, out| {
            let subscribed = books.subscribe(prepared, message, now, out)?;
            books.warn_again(&subscribed.framework_id, now, out);
            Ok(subscribed)
        })
    }

    pub(super) fn subscription_refused(
        &mut self,
        error: RegistryError,
        ctx: &mut Context<Self>,
    ) -> SubscriptionRefused {
        let reason = error.to_string();
        match error {
            RegistryError::Refused { .. } | RegistryError::Conflict { .. } => {
                SubscriptionRefused::Never { reason }
            }
            RegistryError::NotNow { .. } => SubscriptionRefused::NotNow { reason },
            RegistryError::LostLeadership | RegistryError::Broken { .. } => {
                self.step_down(&error, ctx);
                SubscriptionRefused::NotNow { reason }
            }
        }
    }

    /// Whether the message being handled comes from the scheduler that speaks for that framework now. The node is proved by
    /// its certificate; the actor is what that node says, and tells two schedulers on one node apart.
    fn is_from_framework(&mut self, id: &FrameworkId, ctx: &mut Context<Self>) -> bool {
        let scheduler = self.books.frameworks.scheduler(id);
        let Some(sender) = ctx.sender() else {
            return scheduler.is_some();
        };
        let right = scheduler.is_some_and(|scheduler| {
            *scheduler.node() == sender.peer.node
                && sender.pid.as_ref().is_none_or(|pid| pid == scheduler)
        });
        if !right {
            tracing::warn!(framework = %id, node = %sender.peer.node, "a call of who does not speak for this framework is ignored");
            self.change(ctx, |books, _, _| {
                books.counters.count("master/dropped_messages");
            });
        }
        right
    }
}

impl Handler<Numbered> for Master {
    type Result = Reply<Result<Taken, NotTaken>>;

    fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match self.may_speak(numbered.from()) {
            Ok(principal) => self.take_in_turn(principal, numbered, promise, ctx),
            Err(refused) => promise.answer(Err(refused)),
        }
        reply
    }
}

impl Master {
    /// Whether this scheduler speaks for a framework now; gives the framework's principal.
    pub(super) fn may_speak(&self, from: &Pid) -> Result<Option<String>, NotTaken> {
        // A deposed master takes nothing: the next one is told.
        if let Some(reason) = self.not_leading() {
            return Err(NotTaken::NotNow { reason });
        }
        // Its calls would be ignored, and then it could not say them again once it is subscribed.
        let Some(framework) = self.books.frameworks.at(from) else {
            return Err(match self.books.standbys.at(from) {
                // It led once, and what it says is no longer its framework's word.
                Some(id) => NotTaken::Never {
                    reason: format!("{from} stands by for framework {id}, which another leads"),
                },
                None => NotTaken::NotNow {
                    reason: format!("{from} speaks for no framework"),
                },
            });
        };
        Ok(framework.info.principal.clone())
    }
}

macro_rules! calls {
    ($($call:ident, $dealing:ident => $decide:expr;)*) => {$(
        impl Handler<$call> for Master {
            type Result = ();

            fn handle(&mut self, call: $call, ctx: &mut Context<Self>) {
                if self.is_from_framework(&call.framework_id, ctx) && self.has_turn(&call.framework_id, ctx) {
                    self.change(ctx, |books, now, out| {
                        books.frameworks.dealt(&call.framework_id, Dealing::$dealing, 1);
                        let decide: fn(&mut crate::books::Books, $call, runtime::Timestamp, &mut crate::effects::Effects) = $decide;
                        decide(books, call, now, out)
                    });
                }
            }
        }
    )*};
}

calls! {
    AcceptOffers, Accept => |books, call, now, out| books.accept(call, now, out);
    DeclineOffers, Decline => |books, call, _, out| books.decline(call, out);
    AcceptInverseOffers, AcceptInverseOffers => |books, call, now, out| books.accept_inverse(call, now, out);
    DeclineInverseOffers, DeclineInverseOffers => |books, call, now, out| books.decline_inverse(call, now, out);
    ReviveOffers, Revive => |books, call, _, out| books.revive(call, out);
    SuppressOffers, Suppress => |books, call, _, out| books.suppress(call, out);
    AcknowledgeStatus, Acknowledge => |books, call, _, out| books.acknowledge(call, out);
    ReconcileTasks, Reconcile => |books, call, now, out| books.reconcile(call, now, out);
    AcknowledgeOperation, AcknowledgeOperation => |books, call, _, out| books.acknowledge_operation(call, out);
    ReconcileOperations, ReconcileOperations => |books, call, _, out| books.reconcile_operations(call, out);
    KillTask, Kill => |books, call, now, out| books.kill(call, now, out);
    TearDown, TearDown => |books, call, _, out| {
        books.counters.count("master/messages_unregister_framework");
        out.push(crate::effects::Effect::RemoveFramework(call.framework_id));
    };
}

impl Handler<FrameworkMessage> for Master {
    type Result = ();

    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        let from_agent = ctx
            .sender()
            .is_some_and(|sender| sender.peer.role == Role::Agent);
        if from_agent {
            let node = ctx.sender().map(|sender| sender.peer.node.clone());
            let agent = self.books.agents.connected(&message.agent_id);
            if agent.map(|agent| agent.pid.node()) == node.as_ref() {
                self.change(ctx, |books, _, out| {
                    books.message_to_scheduler(message, out)
                });
            }
        } else if self.is_from_framework(&message.framework_id, ctx)
            && self.has_turn(&message.framework_id, ctx)
        {
            self.change(ctx, |books, _, out| {
                let id = &message.framework_id;
                books.frameworks.dealt(id, Dealing::MessageSaid, 1);
                books.message_to_executor(message, out);
            });
        }
    }
}
