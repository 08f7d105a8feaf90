//! Messages from schedulers.
//!
//! Each handler checks that the framework's own scheduler is the sender, and lets the state decide.
//! Calls are numbered, so that each is handled once and in order although a driver repeats them
//! after a failover. They wait for their [turn](super::turns), as subscriptions do.

pub(in crate::master) mod over_http;
pub(in crate::master) mod standbys;

use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkMessage, KillTask, ReconcileOperations,
    ReconcileTasks, ReviveOffers, Subscribe, Subscribed, SubscriptionRefused, SuppressOffers,
    TearDown, UpdateFramework,
};
use protocol::{FrameworkId, FrameworkInfo};
use resources::Invalid;
use runtime::delivery::{NotAcknowledged, SequenceAck, Sequenced};
use runtime::prelude::*;

use super::Master;
use crate::frameworks::counters::FrameworkCounter;
use crate::frameworks::subscription::FrameworkPrepared;
use crate::registry::RegistryError;

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
    /// Subscribes a framework through the registry, and answers.
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

    /// Changes a framework through the registry, and answers.
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
                            master.change(ctx, |state, _, out| state.update(prepared, message, out))
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
        self.change(ctx, |state, _, _| state.prepare_update(message))
    }

    fn prepare_subscription(
        &mut self,
        message: &Subscribe,
        ctx: &mut Context<Self>,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.may_subscribe(&message.scheduler, &message.framework, ctx)?;
        self.change(ctx, |state, _, _| state.prepare_framework(message))
    }

    /// Whether the scheduler is the sender's, and the registry is not being asked about it already.
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
            let reason = "a subscription of this scheduler is being recorded".to_owned();
            return Err(SubscriptionRefused::NotNow { reason });
        }
        if let Some(reason) = id.and_then(|id| self.being_removed(id)) {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        Ok(())
    }

    /// The reason to refuse a framework that is being removed.
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
        tracing::info!(framework = %prepared.framework_id, scheduler = %message.scheduler, "framework subscribed");
        self.change(ctx, |state, now, out| {
            let subscribed = state.subscribe(prepared, message, now, out)?;
            state.warn_again(&subscribed.framework_id, now, out);
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

    /// Whether the current message comes from the framework's current scheduler. The certificate
    /// proves the node; the actor is that node's statement, and distinguishes two schedulers on one
    /// node.
    fn is_from_framework(&mut self, id: &FrameworkId, ctx: &mut Context<Self>) -> bool {
        let scheduler = self.state.frameworks.scheduler(id);
        let Some(sender) = ctx.sender() else {
            return scheduler.is_some();
        };
        let right = scheduler.is_some_and(|scheduler| {
            *scheduler.node() == sender.peer.node
                && sender.pid.as_ref().is_none_or(|pid| pid == scheduler)
        });
        if !right {
            tracing::warn!(framework = %id, node = %sender.peer.node, "ignoring a call from a node that is not the framework's scheduler");
            self.change(ctx, |state, _, _| {
                state.counters.count("master/dropped_messages");
            });
        }
        right
    }
}

impl Handler<Sequenced> for Master {
    type Result = Reply<Result<SequenceAck, NotAcknowledged>>;

    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match self.may_speak(numbered.from()) {
            Ok(principal) => self.take_in_turn(principal, numbered, promise, ctx),
            Err(refused) => promise.answer(Err(refused)),
        }
        reply
    }
}

impl Master {
    /// Checks that this scheduler leads a framework; returns the framework's principal.
    pub(super) fn may_speak(&self, from: &Pid) -> Result<Option<String>, NotAcknowledged> {
        // A deposed master accepts nothing: the driver sends it to the next one.
        if let Some(reason) = self.not_leading() {
            return Err(NotAcknowledged::NotNow { reason });
        }
        // Its calls would be ignored, and it could not repeat them once it is subscribed.
        let Some(framework) = self.state.frameworks.at(from) else {
            return Err(match self.state.standbys.at(from) {
                // It has led before, and its calls are no longer valid.
                Some(id) => NotAcknowledged::Never {
                    reason: format!("{from} stands by for framework {id}, which another leads"),
                },
                None => NotAcknowledged::NotNow {
                    reason: format!("{from} is not subscribed"),
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
                    self.change(ctx, |state, now, out| {
                        state.frameworks.count(&call.framework_id, FrameworkCounter::$dealing, 1);
                        let decide: fn(&mut crate::state::MasterState, $call, runtime::Timestamp, &mut crate::state::effects::Effects) = $decide;
                        decide(state, call, now, out)
                    });
                }
            }
        }
    )*};
}

calls! {
    AcceptOffers, Accept => |state, call, now, out| state.accept(call, now, out);
    DeclineOffers, Decline => |state, call, _, out| state.decline(call, out);
    AcceptInverseOffers, AcceptInverseOffers => |state, call, now, out| state.accept_inverse(call, now, out);
    DeclineInverseOffers, DeclineInverseOffers => |state, call, now, out| state.decline_inverse(call, now, out);
    ReviveOffers, Revive => |state, call, _, out| state.revive(call, out);
    SuppressOffers, Suppress => |state, call, _, out| state.suppress(call, out);
    AcknowledgeStatus, Acknowledge => |state, call, _, out| state.acknowledge(call, out);
    ReconcileTasks, Reconcile => |state, call, now, out| state.reconcile(call, now, out);
    AcknowledgeOperation, AcknowledgeOperation => |state, call, _, out| state.acknowledge_operation(call, out);
    ReconcileOperations, ReconcileOperations => |state, call, _, out| state.reconcile_operations(call, out);
    KillTask, Kill => |state, call, now, out| state.kill(call, now, out);
    TearDown, TearDown => |state, call, _, out| {
        state.counters.count("master/messages_unregister_framework");
        out.push(crate::state::effects::Effect::RemoveFramework(call.framework_id));
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
            let agent = self.state.agents.connected(&message.agent_id);
            if agent.map(|agent| agent.pid.node()) == node.as_ref() {
                self.change(ctx, |state, _, out| {
                    state.message_to_scheduler(message, out)
                });
            }
        } else if self.is_from_framework(&message.framework_id, ctx)
            && self.has_turn(&message.framework_id, ctx)
        {
            self.change(ctx, |state, _, out| {
                let id = &message.framework_id;
                state.frameworks.count(id, FrameworkCounter::MessageSaid, 1);
                state.message_to_executor(message, out);
            });
        }
    }
}
