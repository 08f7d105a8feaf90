//! The pending timers and futures of an actor.
//!
//! actix polls all futures of an actor whenever one of them is woken, so ten thousand sleeping
//! timers would make every message expensive. Here only woken futures are polled. Completions
//! always run inside the actor.

use std::pin::Pin;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use actix::Actor;
use actix::fut::ActorFuture;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use rustc_hash::FxHashMap;

use crate::actor::context::Context;
use crate::actor::mailbox::Meter;
use crate::clock::Instant;

/// Completions in one poll before the actor's neighbours on the thread run.
const TURN: usize = 128;

/// A pending timer or future of `after`, `every` or `then`; used to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerHandle(u64);

/// The continuation in the actor.
type Act<A> = Box<dyn FnOnce(&mut A, &mut Context<A>)>;
type PendingFuture<A> = Pin<Box<dyn Future<Output = (u64, Result<Act<A>, Aborted>)>>>;

pub(crate) struct PendingFutures<A: Actor<Context = Context<A>>> {
    futures: FuturesUnordered<PendingFuture<A>>,
    handles: FxHashMap<u64, AbortHandle>,
    next: u64,
    /// Whether [`PollPending`] has been spawned.
    spawned: bool,
    /// The maximum number of pending futures, and whether it is reached.
    pub(crate) limit: usize,
    pub(crate) at_limit: bool,
    /// Set while a continuation runs: futures that it starts are polled right after it.
    completing: bool,
    waker: Option<Waker>,
}

impl<A: Actor<Context = Context<A>>> Default for PendingFutures<A> {
    fn default() -> Self {
        Self {
            futures: FuturesUnordered::new(),
            handles: FxHashMap::default(),
            next: 0,
            spawned: false,
            limit: usize::MAX,
            at_limit: false,
            completing: false,
            waker: None,
        }
    }
}

impl<A: Actor<Context = Context<A>>> PendingFutures<A> {
    /// Starts a future; true if [`PollPending`] must be spawned.
    pub(crate) fn begin<T, F>(&mut self, future: T, act: F) -> (TimerHandle, bool)
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Context<A>) + 'static,
    {
        let id = self.next;
        self.next += 1;
        self.push(id, future, act);
        (TimerHandle(id), !std::mem::replace(&mut self.spawned, true))
    }

    fn push<T, F>(&mut self, id: u64, future: T, act: F)
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Context<A>) + 'static,
    {
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id, handle);
        let future = async move {
            let output = future.await;
            let act: Act<A> = Box::new(move |actor, ctx| act(actor, output, ctx));
            act
        };
        let future = Abortable::new(future, registration);
        self.futures
            .push(Box::pin(async move { (id, future.await) }));
        if let Some(waker) = self.waker.as_ref().filter(|_| !self.completing) {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn contains(&self, TimerHandle(id): TimerHandle) -> bool {
        self.handles.contains_key(&id)
    }

    /// Updates the meter, and notes whether the limit is reached.
    pub(crate) fn count(&mut self, meter: &Meter) {
        let under_way = self.futures.len();
        meter.set_pending(under_way);
        self.at_limit = under_way >= self.limit;
    }

    pub(crate) fn cancel(&mut self, TimerHandle(id): TimerHandle) {
        if let Some(handle) = self.handles.remove(&id) {
            handle.abort();
        }
    }
}

/// Runs `act` at `due` and each period after, until cancelled.
pub(crate) fn repeat<A, F>(
    ctx: &mut Context<A>,
    timer: Option<TimerHandle>,
    due: Instant,
    period: Duration,
    mut act: F,
) -> TimerHandle
where
    A: Actor<Context = Context<A>>,
    F: FnMut(&mut A, &mut Context<A>) + 'static,
{
    let sleep = ctx.clock().sleep_until(due);
    let on_due = move |actor: &mut A, ctx: &mut Context<A>, id| {
        // It stays registered meanwhile, so that `act` can cancel it.
        ctx.pending.handles.insert(id, AbortHandle::new_pair().0);
        act(actor, ctx);
        if ctx.pending.handles.contains_key(&id) {
            let due = next_due(due, period, ctx.clock().now());
            repeat(ctx, Some(TimerHandle(id)), due, period, act);
        }
    };
    match timer {
        Some(TimerHandle(id)) => {
            let act = move |actor: &mut A, (), ctx: &mut Context<A>| on_due(actor, ctx, id);
            ctx.pending.push(id, sleep, act);
            TimerHandle(id)
        }
        None => {
            let id = ctx.pending.next;
            ctx.then(sleep, move |actor, (), ctx| on_due(actor, ctx, id))
        }
    }
}

/// The first time after `now` that lies a whole number of periods after `due`.
fn next_due(due: Instant, period: Duration, now: Instant) -> Instant {
    let next = due + period;
    if next > now {
        return next;
    }
    let missed = (now - next).as_nanos() / period.as_nanos().max(1) + 1;
    next + period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX))
}

/// Polls woken futures and runs their continuations, as long as the actor lives.
pub(crate) struct PollPending;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for PollPending {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        cx: &mut task::Context<'_>,
    ) -> Poll<()> {
        if !ctx
            .pending
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            ctx.pending.waker = Some(cx.waker().clone());
        }
        ctx.meter.is_polling_futures();
        if poll_pending(actor, ctx, cx) {
            cx.waker().wake_by_ref();
        }
        ctx.meter.is_handling(ctx.counts.last());
        Poll::Pending
    }
}

/// Runs ready continuations for one turn; true if there may be more.
fn poll_pending<A>(actor: &mut A, ctx: &mut Context<A>, cx: &mut task::Context<'_>) -> bool
where
    A: Actor<Context = Context<A>>,
{
    let was_at_limit = ctx.pending.at_limit;
    let mut more = true;
    for _ in 0..TURN {
        if ctx.meter.is_stopping_now() {
            return false;
        }
        let Poll::Ready(Some((id, act))) = ctx.pending.futures.poll_next_unpin(cx) else {
            more = false;
            break;
        };
        ctx.meter.returned();
        if let Ok(act) = act
            && ctx.pending.handles.remove(&id).is_some()
        {
            ctx.pending.completing = true;
            act(actor, ctx);
            ctx.pending.completing = false;
        }
    }
    ctx.pending.count(&ctx.meter);
    // The mailbox was not polled while the limit was reached.
    more || (was_at_limit && !ctx.pending.at_limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_periods_are_skipped_and_the_rhythm_is_kept() {
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let ten = Duration::from_millis(10);
        assert_eq!(next_due(at(10), ten, at(10)), at(20));
        assert_eq!(next_due(at(10), ten, at(19)), at(20));
        assert_eq!(next_due(at(10), ten, at(20)), at(30));
        assert_eq!(next_due(at(10), ten, at(57)), at(60));
    }
}
