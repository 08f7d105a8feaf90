//! Responses: how what a handler returned becomes the reply.
//!
//! actix lets a `ResponseFuture` run as a task of its own, where a panic is felt by nobody but the asker. Here it still
//! runs beside the actor and to its end, but a panic in it is a panic of the actor, as anywhere else in it; it is one of the actor's errands,
//! of which there is a bound; and the watchdog sees it. Whoever waits for one that outlives its actor is let go after [`GRACE`].

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

use crate::ask::Promise;
use crate::clock;
use crate::context::Context;
use crate::mailbox::Meter;
use crate::supervise::{as_current, words_of};
use crate::watchdog::Post;

/// Gives the asker what the handler returned, now or when it is there.
#[inline]
pub(crate) fn respond<A, M>(
    response: A::Result,
    asker: Option<OneshotSender<M::Result>>,
    ctx: &mut Context<A>,
) where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    // Known when this is compiled, so other responses pay nothing.
    if TypeId::of::<A::Result>() != TypeId::of::<ResponseFuture<M::Result>>() {
        return response.handle(ctx, asker);
    }
    let mut response = Some(response);
    let future =
        (&mut response as &mut dyn Any).downcast_mut::<Option<ResponseFuture<M::Result>>>();
    if let Some(future) = future.and_then(Option::take) {
        run(future, asker, ctx);
    }
}

/// Answers with what a handler has returned, now or when it is there: for who calls a handler of its own for somebody who waits.
pub fn answer_with<A, M>(promise: Promise<M::Result>, response: A::Result, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    let (tell, told) = oneshot::channel();
    respond::<A, M>(response, Some(tell), ctx);
    ctx.then(told, move |_, answer, _| {
        // What is never said breaks the promise.
        if let Ok(answer) = answer {
            promise.answer(answer);
        }
    });
}

/// So long after the end of its actor a future that a handler has returned may still answer.
const GRACE: Duration = Duration::from_secs(10);

fn run<A, T>(future: ResponseFuture<T>, asker: Option<OneshotSender<T>>, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>>,
    T: 'static,
{
    let (node, meter) = (ctx.node().downgrade(), ctx.meter.clone());
    let (pid, clock) = (Arc::new(ctx.pid().clone()), ctx.clock().clone());
    let watched_as = ctx.node().0.watched_as;
    let post = (watched_as > 0).then(Post::here);
    // An errand of the actor's as long as it runs, which is dropped with the actor.
    let (mut errand, over) = oneshot::channel::<()>();
    ctx.then(over, |_, _, _| {});
    tokio::task::spawn_local(async move {
        let mut future = AssertUnwindSafe(future).catch_unwind();
        // What it says comes from the actor, as long as that lives.
        let mut answer = std::pin::pin!(poll_fn(|cx| {
            let step = meter.begin_errand();
            if let Some(post) = &post {
                post.enter(watched_as, pid.incarnation());
            }
            let polled = as_current(&pid, &meter, || future.poll_unpin(cx));
            if let Some(post) = &post {
                post.leave();
            }
            meter.end_errand(step);
            polled
        }));
        let ended = std::pin::pin!(async {
            errand.closed().await;
            clock.sleep(GRACE).await;
        });
        let (output, asker) = match select(answer.as_mut(), ended).await {
            Either::Left((output, _)) => (output, asker),
            Either::Right(_) => {
                drop(asker);
                (answer.await, None)
            }
        };
        match output {
            Ok(value) => drop(asker.map(|asker| asker.send(value))), // The asker may have gone.
            Err(panic) => {
                let words = words_of(panic);
                match node.upgrade() {
                    Some(node) => node.registry().fall(pid.incarnation(), &meter, words),
                    None => meter.stop_now(),
                }
            }
        }
        clock::moved();
    });
}

impl crate::registry::Registry {
    /// An actor panicked outside its own task: it ends before its next message, with these words.
    pub(crate) fn fall(&self, incarnation: u64, meter: &Arc<Meter>, words: String) {
        if self.note_fall(incarnation, words) {
            meter.fall();
        }
    }
}
