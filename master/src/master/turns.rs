//! Turns: how many calls of each principal's native drivers are handled, by the operator's rate limits (SPEC 3.3, W29).
//!
//! What is not handled yet waits at its driver, not here: of each scheduler one envelope at most is held, for a second or two, then what had
//! its turn is acknowledged and the rest is sent again. So a noisy framework costs the others next to nothing, and no capacity is needed for
//! it: whatever it has kept while no master led is heard at its rate. Calls over HTTP have their turns before they come here, in the same
//! line, in which each driver that waits has a place. Whoever is not subscribed yet stands in that line as they do.

use std::time::Duration;

use protocol::FrameworkId;
use protocol::message::scheduler::SubscriptionRefused;
use runtime::delivery::{Held, NotTaken, Numbered, Taken};
use runtime::prelude::*;
use runtime::{Instant, Promise, Reply, promise};

use super::Master;
use authority::Turn;

/// The longest that an envelope is held before some of it is handled, or its sender is told to say it again. Its sender waits longer.
const HOLD: Duration = Duration::from_secs(1);
/// How often it is held again while others of its principal have been faster.
const HOLDS: u32 = 3;

/// How long a place that has come is kept for a driver that does not say again what it is for.
const PLACE_KEPT: Duration = Duration::from_secs(60);

/// Why a question is not answered now.
pub(super) const TOO_MANY: &str =
    "too many calls of the framework's principal wait for their turn under --rate_limits";

/// An envelope that waits for its turn.
struct Waiting {
    principal: Option<String>,
    held: Held,
    promise: Promise<Result<Taken, NotTaken>>,
    tries: u32,
}

impl Master {
    /// Handles what is numbered, as far as it is its turn.
    pub(super) fn take_in_turn(
        &mut self,
        principal: Option<String>,
        numbered: Numbered,
        promise: Promise<Result<Taken, NotTaken>>,
        ctx: &mut Context<Self>,
    ) {
        // What comes after something that waits would be too early.
        if self.waiting.contains(numbered.from()) {
            let reason = "what was said before waits for its turn".to_owned();
            return promise.answer(Err(NotTaken::NotNow { reason }));
        }
        let waiting = Waiting {
            principal,
            held: Held::new(numbered, ctx),
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
            Turn::Now(most) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.take_held(waiting, most, ctx);
            }
            // What waits is at its sender: it is never too much.
            Turn::After(_) | Turn::Over(_) if waiting.tries >= HOLDS => {
                let reason = TOO_MANY.to_owned();
                waiting.promise.answer(Err(NotTaken::NotNow { reason }));
            }
            Turn::After(wait) | Turn::Over(wait) => {
                let limit = self.config.throttle.limit(principal);
                let qps = limit.map_or(1.0, |limit| limit.qps);
                let all = Duration::try_from_secs_f64(fresh as f64 / qps).unwrap_or(HOLD);
                self.hold(waiting, wait.max(all).min(HOLD), ctx);
            }
        }
    }

    /// How many of these have their turn: one whose place has come, and as many more as there are permits for. Who has to wait has a place
    /// from then on, also while it says again what it has said.
    fn turn_of(&mut self, from: &Pid, principal: Option<&str>, fresh: u64, now: Duration) -> Turn {
        let throttle = &self.config.throttle;
        match self.places.get(from) {
            Some(due) if *due > now => Turn::After(*due - now),
            Some(_) => {
                self.places.remove(from);
                match throttle.take(principal, fresh.saturating_sub(1), now) {
                    Turn::Now(more) => Turn::Now(1 + more),
                    Turn::After(_) | Turn::Over(_) => Turn::Now(1),
                }
            }
            None => {
                let turn = throttle.take_or_book(principal, fresh, now);
                if let Turn::After(wait) = turn {
                    self.places.retain(|_, due| now < *due + PLACE_KEPT);
                    self.places.insert(from.clone(), now + wait);
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

    /// Handles at most so many of what is held, which have their turn.
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

    /// Has a scheduler from another node subscribe, or stand by, in its turn, by the limit of its framework's principal. It stands in the line of
    /// calls over HTTP, in which only so many wait and not for long, and is refused for now where it is too long: its driver asks again.
    pub(super) fn in_turn<T: 'static>(
        &mut self,
        principal: Option<&str>,
        ctx: &mut Context<Self>,
        act: impl FnOnce(&mut Self, Promise<Result<T, SubscriptionRefused>>, &mut Context<Self>)
        + 'static,
    ) -> Reply<Result<T, SubscriptionRefused>> {
        let (promise, reply) = promise();
        match self.turn_of_subscription(principal, ctx) {
            Turn::Now(_) => act(self, promise, ctx),
            Turn::After(wait) => {
                ctx.after_as_sender(wait, move |master, ctx| {
                    // Whoever has gone meanwhile wants to be no framework.
                    if promise.is_awaited() {
                        act(master, promise, ctx);
                    }
                });
            }
            Turn::Over(_) => {
                let reason = TOO_MANY.to_owned();
                promise.answer(Err(SubscriptionRefused::NotNow { reason }));
            }
        }
        reply
    }

    /// Who names another's principal, where that must be proved, has a turn of his own for it.
    fn turn_of_subscription(&self, principal: Option<&str>, ctx: &Context<Self>) -> Turn {
        let Some(sender) = ctx.sender() else {
            return Turn::Now(1);
        };
        let proves = self.config.authenticate_frameworks;
        let proved = proves.then(|| sender.peer.node.name());
        let now = ctx.clock().now() - Instant::default();
        let throttle = &self.config.throttle;
        throttle.stand_in_line_as_call(proved.or(principal), now)
    }

    /// Whether a message of a framework from another node, which is being handled, has its turn. A driver has none of its calls come
    /// otherwise than numbered; whoever does does not wait but is ignored.
    pub(super) fn has_turn(&self, id: &FrameworkId, ctx: &Context<Self>) -> bool {
        if self.has_had_turn || ctx.sender().is_none() {
            return true;
        }
        let framework = self.books.frameworks.get(id);
        let principal = framework.and_then(|framework| framework.info.principal.as_deref());
        let throttle = &self.config.throttle;
        let now = ctx.clock().now() - Instant::default();
        let is_now = matches!(throttle.take(principal, 1, now), Turn::Now(_));
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
