//! Rate limits of native drivers: how many calls of each principal are handled.
//!
//! Calls that must wait stay at their driver: of each scheduler at most one batch is held here, for
//! a second or two; then the calls that had their turn are acknowledged and the rest is sent again.
//! So a noisy framework costs the others almost nothing and needs no capacity: calls that it kept
//! while no master led are handled at its rate. HTTP calls wait before they come here, in the same
//! queue, in which each waiting driver has a place. New subscriptions wait in that queue too.

use std::time::Duration;

use protocol::FrameworkId;
use protocol::message::scheduler::SubscriptionRefused;
use runtime::delivery::{HeldSequence, NotAcknowledged, SequenceAck, Sequenced};
use runtime::prelude::*;
use runtime::{Instant, Promise, Reply, promise};

use super::Master;
use authority::RateDecision;

/// Maximum time a batch is held before some of it is handled or its sender is told to repeat it.
/// Shorter than the sender's timeout.
const HOLD: Duration = Duration::from_secs(1);
/// How often it is held again while other calls of its principal come first.
const HOLDS: u32 = 3;

/// How long a due place is kept for a driver that does not repeat its call.
const PLACE_KEPT: Duration = Duration::from_secs(60);

/// The reason for a refused request.
pub(super) const TOO_MANY: &str =
    "too many calls of the framework's principal wait for their turn under --rate_limits";

/// A batch that waits for its turn.
struct Waiting {
    principal: Option<String>,
    held: HeldSequence,
    promise: Promise<Result<SequenceAck, NotAcknowledged>>,
    tries: u32,
}

impl Master {
    /// Handles numbered calls as far as it is their turn.
    pub(super) fn take_in_turn(
        &mut self,
        principal: Option<String>,
        numbered: Sequenced,
        promise: Promise<Result<SequenceAck, NotAcknowledged>>,
        ctx: &mut Context<Self>,
    ) {
        // Calls after a waiting batch must not overtake it.
        if self.waiting.contains(numbered.from()) {
            let reason = "an earlier call waits for its turn".to_owned();
            return promise.answer(Err(NotAcknowledged::NotNow { reason }));
        }
        let waiting = Waiting {
            principal,
            held: HeldSequence::new(numbered, ctx),
            promise,
            tries: 0,
        };
        self.next_turn(waiting, ctx);
    }

    fn next_turn(&mut self, waiting: Waiting, ctx: &mut Context<Self>) {
        let fresh = self.incoming.fresh(waiting.held.numbered());
        if fresh == 0 {
            return self.take_held(waiting, 0, ctx);
        }
        let now = ctx.clock().now() - Instant::default();
        let principal = waiting.principal.as_deref();
        let from = waiting.held.numbered().from();
        match self.turn_of(from, principal, fresh as u64, now) {
            RateDecision::Now(most) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.take_held(waiting, most, ctx);
            }
            // The batch is kept at its sender, so it never exceeds a bound.
            RateDecision::After(_) | RateDecision::Rejected(_) if waiting.tries >= HOLDS => {
                let reason = TOO_MANY.to_owned();
                waiting
                    .promise
                    .answer(Err(NotAcknowledged::NotNow { reason }));
            }
            RateDecision::After(wait) | RateDecision::Rejected(wait) => {
                let limit = self.config.throttle.limit(principal);
                let qps = limit.map_or(1.0, |limit| limit.qps);
                let all = Duration::try_from_secs_f64(fresh as f64 / qps).unwrap_or(HOLD);
                self.hold(waiting, wait.max(all).min(HOLD), ctx);
            }
        }
    }

    /// How many of these calls have their turn: one whose place is due, and as many more as there
    /// are permits. A waiting driver keeps its place while it repeats its calls.
    fn turn_of(
        &mut self,
        from: &Pid,
        principal: Option<&str>,
        fresh: u64,
        now: Duration,
    ) -> RateDecision {
        let throttle = &self.config.throttle;
        match self.turn_times.get(from) {
            Some(due) if *due > now => RateDecision::After(*due - now),
            Some(_) => {
                self.turn_times.remove(from);
                match throttle.take(principal, fresh.saturating_sub(1), now) {
                    RateDecision::Now(more) => RateDecision::Now(1 + more),
                    RateDecision::After(_) | RateDecision::Rejected(_) => RateDecision::Now(1),
                }
            }
            None => {
                let turn = throttle.take_or_reserve(principal, fresh, now);
                if let RateDecision::After(wait) = turn {
                    self.turn_times.retain(|_, due| now < *due + PLACE_KEPT);
                    self.turn_times.insert(from.clone(), now + wait);
                }
                turn
            }
        }
    }

    fn hold(&mut self, mut waiting: Waiting, time: Duration, ctx: &mut Context<Self>) {
        waiting.tries += 1;
        let from = waiting.held.numbered().from().clone();
        self.waiting.insert(from.clone());
        ctx.after(time, move |master, ctx| {
            master.waiting.remove(&from);
            match master.may_speak(&from) {
                Ok(_) => master.next_turn(waiting, ctx),
                Err(refused) => waiting.promise.answer(Err(refused)),
            }
        });
    }

    /// Handles at most `most` calls of the held batch.
    fn take_held(&mut self, waiting: Waiting, most: usize, ctx: &mut Context<Self>) {
        let fresh = self.incoming.fresh(waiting.held.numbered());
        let handled = fresh.min(most) as u64;
        let principal = waiting.principal.as_deref();
        self.config.throttle.count(principal, |traffic| {
            traffic.received += handled;
            traffic.processed += handled;
        });
        self.has_had_turn = true;
        let taken = waiting
            .held
            .take(self, |master| &mut master.incoming, most, ctx);
        self.has_had_turn = false;
        waiting.promise.answer(taken);
    }

    /// Runs the subscription of a remote scheduler in its turn, by the limit of its framework's
    /// principal. It waits in the bounded queue of HTTP calls, and is refused for now if that is
    /// full: its driver tries again.
    pub(super) fn in_turn<T: 'static>(
        &mut self,
        principal: Option<&str>,
        ctx: &mut Context<Self>,
        act: impl FnOnce(&mut Self, Promise<Result<T, SubscriptionRefused>>, &mut Context<Self>)
        + 'static,
    ) -> Reply<Result<T, SubscriptionRefused>> {
        let (promise, reply) = promise();
        match self.turn_of_subscription(principal, ctx) {
            RateDecision::Now(_) => act(self, promise, ctx),
            RateDecision::After(wait) => {
                ctx.after_as_sender(wait, move |master, ctx| {
                    // A caller that has gone no longer wants to subscribe.
                    if promise.is_awaited() {
                        act(master, promise, ctx);
                    }
                });
            }
            RateDecision::Rejected(_) => {
                let reason = TOO_MANY.to_owned();
                promise.answer(Err(SubscriptionRefused::NotNow { reason }));
            }
        }
        reply
    }

    /// A caller that names a principal which it does not prove is limited under its own name.
    fn turn_of_subscription(&self, principal: Option<&str>, ctx: &Context<Self>) -> RateDecision {
        let Some(sender) = ctx.sender() else {
            return RateDecision::Now(1);
        };
        let proves = self.config.authenticate_frameworks;
        let proved = proves.then(|| sender.peer.node.name());
        let now = ctx.clock().now() - Instant::default();
        let throttle = &self.config.throttle;
        throttle.admit_call(proved.or(principal), now)
    }

    /// Whether the current remote message of a framework has its turn. A driver sends only numbered
    /// calls; others are ignored rather than queued.
    pub(super) fn has_turn(&self, id: &FrameworkId, ctx: &Context<Self>) -> bool {
        if self.has_had_turn || ctx.sender().is_none() {
            return true;
        }
        let framework = self.state.frameworks.get(id);
        let principal = framework.and_then(|framework| framework.info.principal.as_deref());
        let throttle = &self.config.throttle;
        let now = ctx.clock().now() - Instant::default();
        let is_now = matches!(throttle.take(principal, 1, now), RateDecision::Now(_));
        throttle.count(principal, |traffic| {
            traffic.received += 1;
            match is_now {
                true => traffic.processed += 1,
                false => traffic.dropped += 1,
            }
        });
        is_now
    }
}
