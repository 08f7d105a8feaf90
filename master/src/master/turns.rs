//! Turns: how many calls of each principal's native drivers are handled, by the operator's rate limits (SPEC 3.3, W29).
//!
//! What is not handled yet waits at its driver, not here: of each scheduler one envelope at most is held, for a second or two, then what had
//! its turn is acknowledged and the rest is sent again. So a noisy framework costs the others next to nothing. Over its capacity it is told
//! that it has failed, as by Mesos, and what it has said is refused. Calls over HTTP have their turns before they come here.

use std::time::Duration;

use protocol::FrameworkId;
use protocol::message::scheduler::FrameworkFailed;
use runtime::delivery::{Held, NotTaken, Numbered, Taken};
use runtime::prelude::*;
use runtime::{Instant, Promise};

use super::Master;
use crate::effects::{Tell, ToScheduler};
use authority::Turn;

/// The longest that an envelope is held before some of it is handled, or its sender is told to say it again. Its sender waits longer.
const HOLD: Duration = Duration::from_secs(1);
/// How often it is held again while others of its principal have been faster.
const HOLDS: u32 = 3;

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
        let throttle = &self.config.throttle;
        match throttle.take(principal, fresh as u64, now) {
            Turn::Now(most) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.take_held(waiting, most, ctx);
            }
            Turn::After(_) if waiting.tries >= HOLDS => {
                let reason = TOO_MANY.to_owned();
                waiting.promise.answer(Err(NotTaken::NotNow { reason }));
            }
            Turn::After(wait) => {
                let qps = throttle.limit(principal).map_or(1.0, |limit| limit.qps);
                let all = Duration::try_from_secs_f64(fresh as f64 / qps).unwrap_or(HOLD);
                self.hold(waiting, wait.max(all).min(HOLD), ctx);
            }
            Turn::Over(_) => self.drop_waiting(waiting, fresh, ctx),
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

    fn drop_waiting(&mut self, waiting: Waiting, fresh: usize, ctx: &mut Context<Self>) {
        let principal = waiting.principal.as_deref();
        self.config.throttle.count(principal, |traffic| {
            traffic.received += fresh as u64;
            traffic.dropped += fresh as u64;
        });
        let limit = self.config.throttle.limit(principal);
        let capacity = limit.and_then(|limit| limit.capacity).unwrap_or_default();
        let message = format!(
            "{fresh} messages dropped: more than {capacity} of principal `{}` would wait for their turn under --rate_limits",
            principal.unwrap_or_default()
        );
        let from = waiting.held.numbered().from().clone();
        tracing::warn!(scheduler = %from, "{message}");
        let reason = message.clone();
        self.change(ctx, |books, _, out| {
            books.counters.add("master/dropped_messages", fresh);
            out.scheduler(
                Some(&from),
                ToScheduler::Failed(FrameworkFailed { message }),
            );
        });
        waiting.promise.answer(Err(NotTaken::Never { reason }));
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
