//! Carries out the effects of decisions, in order.
//!
//! Messages to the allocator and changes of links wait for the end of the turn (see
//! [`super::end_of_turn`]). A message that cannot be sent is counted. Three kinds are repaired at
//! once: unsent tasks never run, an agent that misses an operation must register again, and unsent
//! offers are free again. All others are asked for or sent again later.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::message::registration::PingAgent;
use protocol::{FrameworkId, OfferId};
use runtime::prelude::*;

use super::{Master, Phase};
use crate::frameworks::counters::FrameworkCounter;
use crate::state::effects::{Due, Effect, Effects, ToAgent, ToScheduler};

/// Maximum capacity, in effects, that is kept for the next decision.
const SPARE_MAX: usize = 64;

impl Master {
    /// Carries out effects, and the consequences of their failures.
    pub(super) fn perform(&mut self, mut effects: Effects, ctx: &mut Context<Self>) {
        if self.phase == Phase::Deposed {
            return; // A deposed master sends nothing.
        }
        let mut queue = VecDeque::new();
        for effect in effects.drain(..) {
            self.perform_one(effect, ctx, &mut queue);
        }
        while let Some(effect) = queue.pop_front() {
            self.perform_one(effect, ctx, &mut queue);
        }
        // Keeps the capacity for the next decision.
        if effects.capacity() <= SPARE_MAX {
            self.spare = effects;
        }
        self.record_operations(ctx);
        self.forget_operations(ctx);
    }

    fn perform_one(
        &mut self,
        effect: Effect,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        match effect {
            Effect::ToAgent(pid, message) => self.tell_agent_in_order(&pid, message, ctx, queue),
            Effect::ToScheduler(pid, message) => self.tell_scheduler(&pid, message, ctx, queue),
            Effect::ToAllocator(_) | Effect::Link(_) | Effect::Unlink(_) | Effect::Watch(..) => {
                self.at_end_of_turn(effect, ctx);
            }
            Effect::Later(after, due) => self.later(after, due, ctx),
            Effect::RemoveFramework(id) => self.remove_framework(id, ctx),
            Effect::RecordDeadline(id) => self.record_deadline(&id, ctx),
            Effect::Choose(id) => self.choose(id, ctx),
            Effect::Record(pid, agent_id, serial) => {
                self.accept_operation(pid, agent_id, serial, queue);
            }
            Effect::Forget(agent_id, serial) => self.forget_operation(agent_id, serial),
            Effect::Void(pid) => self.drop_queue(&pid, ctx, queue),
        }
    }

    pub(super) fn tell_agent(
        &mut self,
        pid: &Pid,
        message: ToAgent,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let node = ctx.node().clone();
        let mut unapplied = None;
        let sent = match message {
            ToAgent::Run(message) => return self.launch(pid, message, ctx, queue),
            ToAgent::Apply(agent_id, message) => {
                unapplied = Some(agent_id);
                node.tell(pid, *message)
            }
            ToAgent::AcknowledgeOperation(message) => node.tell(pid, message),
            ToAgent::Kill(message) => node.tell(pid, message),
            ToAgent::Acknowledge(message) => node.tell(pid, message),
            ToAgent::Message(message) => node.tell(pid, message),
            ToAgent::EndExecutor(message) => node.tell(pid, message),
            ToAgent::Drain(message) => node.tell(pid, message),
            ToAgent::ShutDownFramework(message) => node.tell(pid, message),
            ToAgent::FrameworkChanged(message) => node.tell(pid, *message),
            ToAgent::Disown(message) => node.tell(pid, message),
            ToAgent::ShutDown(message) => node.tell(pid, message),
            ToAgent::RegisterAgain => node.tell(pid, PingAgent { connected: false }),
        };
        if let Err(error) = sent {
            self.dropped(pid, &error.into());
            if let Some(agent_id) = unapplied {
                let mut out = Effects::new();
                self.state_mut().not_applied(&agent_id, &mut out);
                queue.extend(out);
            }
        }
    }

    fn tell_scheduler(
        &mut self,
        pid: &Pid,
        message: ToScheduler,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let node = ctx.node().clone();
        let mut offers: Vec<OfferId> = Vec::new();
        let leads = matches!(message, ToScheduler::Lead(_));
        let (event, events) = event(&message);
        let sent = match message {
            ToScheduler::Offers(message) => {
                offers.extend(message.offers.iter().map(|offer| offer.id.clone()));
                node.tell(pid, message)
            }
            ToScheduler::InverseOffers(message) => {
                let made = message.inverse_offers.iter();
                offers.extend(made.map(|offer| offer.id.clone()));
                node.tell(pid, message)
            }
            ToScheduler::RescindInverse(message) => node.tell(pid, message),
            ToScheduler::Rescind(message) => node.tell(pid, message),
            ToScheduler::Status(message) => node.tell(pid, *message),
            ToScheduler::Revoked(message) => node.tell(pid, message),
            ToScheduler::Operation(message) => node.tell(pid, *message),
            ToScheduler::Message(message) => node.tell(pid, message),
            ToScheduler::Lost(message) => node.tell(pid, message),
            ToScheduler::Failed(message) => node.tell(pid, message),
            ToScheduler::Lead(message) => node.tell(pid, message),
        };
        if let Err(error) = sent {
            self.dropped(pid, &error.into());
            let mut out = Effects::new();
            self.state_mut().not_offered(offers, &mut out);
            if leads {
                // It does not know that it leads: the next standby is chosen.
                self.state_mut().scheduler_gone(pid, &mut out);
            }
            queue.extend(out);
        } else if events > 0 {
            let frameworks = &mut self.state_mut().frameworks;
            frameworks.count_at(pid, event, events);
            if event == FrameworkCounter::Offers {
                frameworks.count_at(pid, FrameworkCounter::OfferSent, offers.len());
            }
        }
    }

    pub(super) fn dropped(&mut self, pid: &Pid, error: &AskError) {
        match error {
            // Its link reports that once; other messages to it are lost as well.
            AskError::Gone => tracing::debug!(to = %pid, "a message did not go out"),
            _ => tracing::warn!(to = %pid, %error, "a message did not go out"),
        }
        self.state_mut().counters.count("master/dropped_messages");
    }

    pub(super) fn state_mut(&mut self) -> &mut crate::state::MasterState {
        std::sync::Arc::make_mut(&mut self.state)
    }

    fn later(&mut self, after: Duration, due: Due, ctx: &mut Context<Self>) {
        let framework = match &due {
            Due::FailoverExpired(id, _) => Some(id.clone()),
            Due::OffersToExpire | Due::InverseOffersExpired(_) | Due::Revoked(..) => None,
            Due::LeadersAwaited | Due::RecoveryOver | Due::Overdue(_) => None,
        };
        let timer = ctx.after(after, move |master, ctx| master.due(due, ctx));
        if let Some(framework) = framework
            && let Some(older) = self.failovers.insert(framework, timer)
        {
            ctx.cancel(older);
        }
    }

    fn due(&mut self, due: Due, ctx: &mut Context<Self>) {
        match due {
            Due::OffersToExpire => {
                self.change(ctx, |state, now, out| state.expire_offers(now, out));
            }
            Due::InverseOffersExpired(ids) => {
                self.change(ctx, |state, _, out| state.rescind_inverse(ids, out));
            }
            Due::FailoverExpired(id, session) => {
                self.failovers.remove(&id);
                self.change(ctx, |state, _, out| {
                    state.failover_expired(id, session, out);
                });
            }
            Due::LeadersAwaited => self.change(ctx, |state, _, out| state.leaders_awaited(out)),
            Due::RecoveryOver => self.recovery_over(ctx),
            Due::Overdue(serial) => {
                self.change(ctx, |state, now, out| {
                    state.check_overdue(serial, now, out);
                });
            }
            Due::Revoked(tasks, deadline) => {
                self.change(ctx, |state, now, out| {
                    state.revocations_due(tasks, deadline, now, out);
                });
            }
        }
    }

    fn record_deadline(&mut self, id: &FrameworkId, ctx: &mut Context<Self>) {
        if self.removing.contains(id) {
            return; // It is being removed, and has no deadline any more.
        }
        let Some(operation) = self.state.deadline(id, ctx.clock().wall()) else {
            return;
        };
        let applied = self.registry.apply(operation);
        let id = id.clone();
        ctx.then(applied, move |master, applied, ctx| {
            if let Err(error) = applied {
                tracing::warn!(framework = %id, %error, "cannot record a failover deadline");
                master.step_down_if_over(&error, ctx);
            }
        });
    }
}

/// The v1 API event of this message, and how many events it is over HTTP.
fn event(message: &ToScheduler) -> (FrameworkCounter, usize) {
    match message {
        ToScheduler::Offers(_) => (FrameworkCounter::Offers, 1),
        ToScheduler::InverseOffers(_) => (FrameworkCounter::InverseOffers, 1),
        ToScheduler::Status(_) => (FrameworkCounter::Status, 1),
        ToScheduler::Revoked(message) => (FrameworkCounter::Status, message.tasks.len()),
        ToScheduler::Operation(_) => (FrameworkCounter::OperationStatus, 1),
        ToScheduler::Message(_) => (FrameworkCounter::MessageTold, 1),
        ToScheduler::Lost(_) => (FrameworkCounter::Failure, 1),
        ToScheduler::Failed(_) => (FrameworkCounter::Error, 1),
        // Counted by the state, because the receiver may have just been replaced or have just
        // subscribed.
        ToScheduler::Rescind(_) => (FrameworkCounter::Rescind, 0),
        ToScheduler::RescindInverse(_) => (FrameworkCounter::RescindInverseOffer, 0),
        ToScheduler::Lead(_) => (FrameworkCounter::Subscribed, 0),
    }
}
