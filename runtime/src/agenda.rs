//! What an actor has begun beside its mailbox and not finished: timers, and futures it comes back from.
//!
//! actix polls all futures of an actor whenever one of them is woken, so that ten thousand sleeping timers make every message dear. Here
//! only what was woken is polled. Remembers each errand until it is done or cancelled; never runs one outside its actor.

use std::pin::Pin;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use actix::Actor;
use actix::fut::ActorFuture;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use rustc_hash::FxHashMap;

use crate::clock::Instant;
use crate::context::Context;
use crate::mailbox::Meter;

/// Errands that come back in one go before the actor's neighbours get their turn.
const TURN: usize = 128;

/// Something an actor has begun by `after`, `every` or `then`; used to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errand(u64);

/// What is done in the actor when an errand comes back.
type Act<A> = Box<dyn FnOnce(&mut A, &mut Context<A>)>;
type Out<A> = Pin<Box<dyn Future<Output = (u64, Result<Act<A>, Aborted>)>>>;

pub(crate) struct Agenda<A: Actor<Context = Context<A>>> {
    out: FuturesUnordered<Out<A>>,
    wanted: FxHashMap<u64, AbortHandle>,
    next: u64,
    /// Whether [`Attend`] has been spawned.
    attended: bool,
    /// How many may be under way, and whether so many are.
    pub(crate) limit: usize,
    pub(crate) crowded: bool,
    /// Set while an errand is back in the actor: what it begins is polled right after it.
    in_time: bool,
    waker: Option<Waker>,
}

impl<A: Actor<Context = Context<A>>> Default for Agenda<A> {
    fn default() -> Self {
        Self {
            out: FuturesUnordered::new(),
            wanted: FxHashMap::default(),
            next: 0,
            attended: false,
            limit: usize::MAX,
            crowded: false,
            in_time: false,
            waker: None,
        }
    }
}

impl<A: Actor<Context = Context<A>>> Agenda<A> {
    /// Begins an errand; true if somebody must begin to attend.
    pub(crate) fn begin<T, F>(&mut self, future: T, act: F) -> (Errand, bool)
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Context<A>) + 'static,
    {
        let id = self.next;
        self.next += 1;
        self.send_out(id, future, act);
        (Errand(id), !std::mem::replace(&mut self.attended, true))
    }

    fn send_out<T, F>(&mut self, id: u64, future: T, act: F)
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Context<A>) + 'static,
    {
        let (handle, registration) = AbortHandle::new_pair();
        self.wanted.insert(id, handle);
        let future = async move {
            let output = future.await;
            let act: Act<A> = Box::new(move |actor, ctx| act(actor, output, ctx));
            act
        };
        let future = Abortable::new(future, registration);
        self.out.push(Box::pin(async move { (id, future.await) }));
        if let Some(waker) = self.waker.as_ref().filter(|_| !self.in_time) {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn is_wanted(&self, Errand(id): Errand) -> bool {
        self.wanted.contains_key(&id)
    }

    /// Tells the meter how many are under way, and notes whether those are too many.
    pub(crate) fn count(&mut self, meter: &Meter) {
        let under_way = self.out.len();
        meter.set_errands(under_way);
        self.crowded = under_way >= self.limit;
    }

    pub(crate) fn cancel(&mut self, Errand(id): Errand) {
        if let Some(handle) = self.wanted.remove(&id) {
            handle.abort();
        }
    }
}

/// Does `act` at `due` and each period after, as long as it is wanted.
pub(crate) fn again<A, F>(
    ctx: &mut Context<A>,
    errand: Option<Errand>,
    due: Instant,
    period: Duration,
    mut act: F,
) -> Errand
where
    A: Actor<Context = Context<A>>,
    F: FnMut(&mut A, &mut Context<A>) + 'static,
{
    let sleep = ctx.clock().sleep_until(due);
    let come_back = move |actor: &mut A, ctx: &mut Context<A>, id| {
        // It stays wanted meanwhile, so that it can be cancelled by what it does.
        ctx.agenda.wanted.insert(id, AbortHandle::new_pair().0);
        act(actor, ctx);
        if ctx.agenda.wanted.contains_key(&id) {
            let due = next_due(due, period, ctx.clock().now());
            again(ctx, Some(Errand(id)), due, period, act);
        }
    };
    match errand {
        Some(Errand(id)) => {
            let act = move |actor: &mut A, (), ctx: &mut Context<A>| come_back(actor, ctx, id);
            ctx.agenda.send_out(id, sleep, act);
            Errand(id)
        }
        None => {
            let id = ctx.agenda.next;
            ctx.then(sleep, move |actor, (), ctx| come_back(actor, ctx, id))
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

/// Polls what was woken and brings it back into the actor; goes on as long as the actor lives.
pub(crate) struct Attend;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Attend {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        cx: &mut task::Context<'_>,
    ) -> Poll<()> {
        if !ctx
            .agenda
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            ctx.agenda.waker = Some(cx.waker().clone());
        }
        ctx.meter.is_at_errands();
        if attend(actor, ctx, cx) {
            cx.waker().wake_by_ref();
        }
        ctx.meter.is_handling(ctx.counts.last());
        Poll::Pending
    }
}

/// Brings back what is ready, for one turn; true if there may be more.
fn attend<A>(actor: &mut A, ctx: &mut Context<A>, cx: &mut task::Context<'_>) -> bool
where
    A: Actor<Context = Context<A>>,
{
    let was_crowded = ctx.agenda.crowded;
    let mut more = true;
    for _ in 0..TURN {
        if ctx.meter.is_stopping_now() {
            return false;
        }
        let Poll::Ready(Some((id, act))) = ctx.agenda.out.poll_next_unpin(cx) else {
            more = false;
            break;
        };
        ctx.meter.returned();
        if let Ok(act) = act
            && ctx.agenda.wanted.remove(&id).is_some()
        {
            ctx.agenda.in_time = true;
            act(actor, ctx);
            ctx.agenda.in_time = false;
        }
    }
    ctx.agenda.count(&ctx.meter);
    // The mailbox was not looked at as long as there were too many.
    more || (was_crowded && !ctx.agenda.crowded)
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
