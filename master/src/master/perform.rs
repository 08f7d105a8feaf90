//! Carrying out: what decisions want done, done in order.
//!
//! What the allocator is told and what is done about links waits for the end of the turn (see [`super::collected`]). A message that does not go out is counted. Three kinds are mended at once: tasks that did not go out have never run, an agent that
//! was not told of an operation must register again, and offers that did not go out are free again. For all others somebody asks or sends again.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::message::registration::PingAgent;
use protocol::{FrameworkId, OfferId};
use runtime::prelude::*;

use super::{Master, Phase};
use crate::dealings::Dealing;
use crate::effects::{Due, Effect, Effects, ToAgent, ToScheduler};

/// Room for so many effects is kept for the next decision.
const SPARE_MAX: usize = 64;

impl Master {
    /// Carries these out, and what follows from their failures.
    pub(super) fn perform(&mut self, mut effects: Effects, ctx: &mut Context<Self>) {
        if self.phase == Phase::Deposed {
            return; // Nothing is said in its name any more.
        }
        let mut queue = VecDeque::new();
        for effect in effects.drain(..) {
            self.do_one(effect, ctx, &mut queue);
        }
        while let Some(effect) = queue.pop_front() {
            self.do_one(effect, ctx, &mut queue);
        }
        // Its room serves the next decision.
        if effects.capacity() <= SPARE_MAX {
            self.spare = effects;
        }
        self.record_operations(ctx);
        self.forget_operations(ctx);
    }

    fn do_one(&mut self, effect: Effect, ctx: &mut Context<Self>, queue: &mut VecDeque<Effect>) {
        match effect {
            Effect::ToAgent(pid, message) => self.tell_agent_in_line(&pid, message, ctx, queue),
            Effect::ToScheduler(pid, message) => self.tell_scheduler(&pid, message, ctx, queue),
            Effect::ToAllocator(_) | Effect::Link(_) | Effect::Unlink(_) | Effect::Watch(..) => {
                self.collect(effect, ctx);
            }
            Effect::Later(after, due) => self.later(after, due, ctx),
            Effect::RemoveFramework(id) => self.remove_framework(id, ctx),
            Effect::RecordDeadline(id) => self.record_deadline(&id, ctx),
            Effect::Choose(id) => self.choose(id, ctx),
            Effect::Record(pid, agent_id, serial) => {
                self.accept_operation(pid, agent_id, serial, queue);
            }
            Effect::Forget(agent_id, serial) => self.forget_operation(agent_id, serial),
            Effect::Void(pid) => self.void_line(&pid, ctx, queue),
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
        let told = match message {
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
        if let Err(error) = told {
            self.dropped(pid, &error.into());
            if let Some(agent_id) = unapplied {
                let mut out = Effects::new();
                self.books_mut().not_applied(&agent_id, &mut out);
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
        let told = match message {
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
        if let Err(error) = told {
            self.dropped(pid, &error.into());
            let mut out = Effects::new();
            self.books_mut().not_offered(offers, &mut out);
            if leads {
                // It does not know that it is its turn: the next one's.
                self.books_mut().scheduler_gone(pid, &mut out);
            }
            queue.extend(out);
        } else if events > 0 {
            let frameworks = &mut self.books_mut().frameworks;
            frameworks.dealt_at(pid, event, events);
            if event == Dealing::Offers {
                frameworks.dealt_at(pid, Dealing::OfferSent, offers.len());
            }
        }
    }

    pub(super) fn dropped(&mut self, pid: &Pid, error: &AskError) {
        match error {
            // Its link says so once, and whatever else is on its way to it comes to nothing too.
            AskError::Gone => tracing::debug!(to = %pid, "a message did not go out"),
            _ => tracing::warn!(to = %pid, %error, "a message did not go out"),
        }
        self.books_mut().counters.count("master/dropped_messages");
    }

    pub(super) fn books_mut(&mut self) -> &mut crate::books::Books {
        std::sync::Arc::make_mut(&mut self.books)
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
                self.change(ctx, |books, now, out| books.expire_offers(now, out));
            }
            Due::InverseOffersExpired(ids) => {
                self.change(ctx, |books, _, out| books.rescind_inverse(ids, out));
            }
            Due::FailoverExpired(id, session) => {
                self.failovers.remove(&id);
                self.change(ctx, |books, _, out| {
                    books.failover_expired(id, session, out);
                });
            }
            Due::LeadersAwaited => self.change(ctx, |books, _, out| books.leaders_awaited(out)),
            Due::RecoveryOver => self.recovery_over(ctx),
            Due::Overdue(serial) => {
                self.change(ctx, |books, now, out| {
                    books.look_for_overdue(serial, now, out);
                });
            }
            Due::Revoked(tasks, deadline) => {
                self.change(ctx, |books, now, out| {
                    books.revocations_due(tasks, deadline, now, out);
                });
            }
        }
    }

    fn record_deadline(&mut self, id: &FrameworkId, ctx: &mut Context<Self>) {
        if self.removing.contains(id) {
            return; // It is on its way out, and has no deadline any more.
        }
        let Some(operation) = self.books.deadline(id, ctx.clock().wall()) else {
            return;
        };
        let applied = self.registry.apply(operation);
        let id = id.clone();
        ctx.then(applied, move |master, applied, ctx| {
            if let Err(error) = applied {
                tracing::warn!(framework = %id, %error, "a failover deadline is not recorded");
                master.step_down_if_over(&error, ctx);
            }
        });
    }
}

/// Which event of the v1 API this is to a framework, and how many of them it is over HTTP.
fn event(message: &ToScheduler) -> (Dealing, usize) {
    match message {
        ToScheduler::Offers(_) => (Dealing::Offers, 1),
        ToScheduler::InverseOffers(_) => (Dealing::InverseOffers, 1),
        ToScheduler::Status(_) => (Dealing::Status, 1),
        ToScheduler::Revoked(message) => (Dealing::Status, message.tasks.len()),
        ToScheduler::Operation(_) => (Dealing::OperationStatus, 1),
        ToScheduler::Message(_) => (Dealing::MessageTold, 1),
        ToScheduler::Lost(_) => (Dealing::Failure, 1),
        ToScheduler::Failed(_) => (Dealing::Error, 1),
        // These the books have counted, for they may be told to a scheduler that was just replaced, or to one that has just become one.
        ToScheduler::Rescind(_) => (Dealing::Rescind, 0),
        ToScheduler::RescindInverse(_) => (Dealing::RescindInverseOffer, 0),
        ToScheduler::Lead(_) => (Dealing::Subscribed, 0),
    }
}
