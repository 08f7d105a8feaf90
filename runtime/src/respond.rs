//! Responses: how what a handler returned becomes the reply.
//!
//! actix lets a `ResponseFuture` run as a task of its own, where a panic is felt by nobody but the asker. Here it still
//! runs beside the actor and to its end, but a panic in it is a panic of the actor, as anywhere else in it.

use std::any::{Any, TypeId};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Handler, Message, ResponseFuture};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::ask::Promise;
use crate::clock;
use crate::context::Context;
use crate::mailbox::Meter;
use crate::supervise::{as_current, words_of};

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

fn run<A, T>(future: ResponseFuture<T>, asker: Option<OneshotSender<T>>, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>>,
    T: 'static,
{
    let (node, meter) = (ctx.node().downgrade(), ctx.meter.clone());
    let pid = Arc::new(ctx.pid().clone());
    let mut future = AssertUnwindSafe(future).catch_unwind();
    tokio::task::spawn_local(async move {
        // What it says comes from the actor, as long as that lives.
        let output = poll_fn(|cx| as_current(&pid, &meter, || future.poll_unpin(cx))).await;
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
