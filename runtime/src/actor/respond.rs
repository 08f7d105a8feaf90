//! Responses: how a handler's return value becomes the reply.
//!
//! actix runs a `ResponseFuture` as a task of its own, where a panic is visible only to the caller.
//! Here it still runs beside the actor and to its end, but a panic in it is a panic of the actor,
//! it counts as one of the actor's pending futures, which are bounded, and the watchdog sees it. If
//! it outlives its actor, its caller is released after [`GRACE`].

use std::any::{Any, TypeId};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Handler, Message, ResponseFuture};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::actor::ask::Promise;
use crate::actor::context::Context;
use crate::actor::mailbox::Meter;
use crate::actor::supervise::{as_current, panic_message};
use crate::clock;
use crate::observe::watchdog::ThreadSlot;

/// Sends the caller the handler's return value, now or when it is ready.
#[inline]
pub(crate) fn respond<A, M>(
    response: A::Result,
    reply_to: Option<OneshotSender<M::Result>>,
    ctx: &mut Context<A>,
) where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    // Known at compile time, so other responses pay nothing.
    if TypeId::of::<A::Result>() != TypeId::of::<ResponseFuture<M::Result>>() {
        return response.handle(ctx, reply_to);
    }
    let mut response = Some(response);
    let future =
        (&mut response as &mut dyn Any).downcast_mut::<Option<ResponseFuture<M::Result>>>();
    if let Some(future) = future.and_then(Option::take) {
        run(future, reply_to, ctx);
    }
}

/// Answers with a handler's return value, now or when it is ready: for code that calls its own
/// handler on behalf of a waiting caller.
pub fn answer_with<A, M>(promise: Promise<M::Result>, response: A::Result, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    let (tell, reply) = oneshot::channel();
    respond::<A, M>(response, Some(tell), ctx);
    ctx.then(reply, move |_, answer, _| {
        // A dropped reply breaks the promise.
        if let Ok(answer) = answer {
            promise.answer(answer);
        }
    });
}

/// How long after its actor's end a response future may still answer.
const GRACE: Duration = Duration::from_secs(10);

fn run<A, T>(future: ResponseFuture<T>, reply_to: Option<OneshotSender<T>>, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>>,
    T: 'static,
{
    let (node, meter) = (ctx.node().downgrade(), ctx.meter.clone());
    let (pid, clock) = (Arc::new(ctx.pid().clone()), ctx.clock().clone());
    let watched_as = ctx.node().0.watched_as;
    let thread_slot = (watched_as > 0).then(ThreadSlot::here);
    // Counts as a pending future of the actor, and is dropped with it.
    let (mut guard, over) = oneshot::channel::<()>();
    ctx.then(over, |_, _, _| {});
    tokio::task::spawn_local(async move {
        let mut future = AssertUnwindSafe(future).catch_unwind();
        // Its log lines name the actor, as long as the actor lives.
        let mut answer = std::pin::pin!(poll_fn(|cx| {
            let step = meter.begin_future();
            if let Some(thread_slot) = &thread_slot {
                thread_slot.enter(watched_as, pid.incarnation());
            }
            let polled = as_current(&pid, &meter, || future.poll_unpin(cx));
            if let Some(thread_slot) = &thread_slot {
                thread_slot.leave();
            }
            meter.end_future(step);
            polled
        }));
        let ended = std::pin::pin!(async {
            guard.closed().await;
            clock.sleep(GRACE).await;
        });
        let (output, reply_to) = match select(answer.as_mut(), ended).await {
            Either::Left((output, _)) => (output, reply_to),
            Either::Right(_) => {
                drop(reply_to);
                (answer.await, None)
            }
        };
        match output {
            Ok(value) => drop(reply_to.map(|reply_to| reply_to.send(value))), // The caller may have gone.
            Err(panic) => {
                let words = panic_message(panic);
                match node.upgrade() {
                    Some(node) => node.registry().crash(pid.incarnation(), &meter, words),
                    None => meter.stop_now(),
                }
            }
        }
        clock::moved();
    });
}

impl crate::actor::registry::Registry {
    /// An actor panicked outside its own task: it ends before its next message, with this panic
    /// message.
    pub(crate) fn crash(&self, incarnation: u64, meter: &Arc<Meter>, words: String) {
        if self.note_crash(incarnation, words) {
            meter.crash();
        }
    }
}
