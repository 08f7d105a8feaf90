//! A run: tells of one type from one sender to one actor that came in together travel to it as one.
//!
//! Hears bodies from the inbox and decodes them at once. What a turn, a wait or a stop leaves of a run stays in the
//! actor's context, in front of its mailbox, so that a run cannot be told from its messages sent one by one: only
//! its cost is that of one envelope. Never holds asks, since each of those has an asker of its own.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use actix::dev::EnvelopeProxy;
use actix::fut::ActorFuture;
use actix::{Actor, Handler, Message};

use crate::codec::{self, Garbled};
use crate::context::Context;
use crate::letter::handle_one;
use crate::link::Sender;
use crate::mailbox::Unwanted;
use crate::message::Remote;
use crate::process::{AnyIncarnation, Process, incarnation};

/// The most messages in one run.
const LENGTH_MAX: usize = 1024;

/// Tells being gathered, for an actor and of a type that only the maker knows.
pub(crate) trait Gathering {
    /// Adds the message that these bytes stand for; false once it should be sent.
    fn add(&mut self, body: &[u8]) -> Result<bool, Garbled>;

    /// Sends what was gathered, and gives how many messages the mailbox did not take, and why.
    fn send(&mut self, to: &AnyIncarnation, origin: &Arc<Sender>) -> Result<(), (u64, Unwanted)>;
}

/// Begins to gather about so many messages.
pub(crate) type Gather = fn(usize) -> Box<dyn Gathering>;

pub(crate) fn gather<A, M>(about: usize) -> Box<dyn Gathering>
where
    A: Process + Handler<M>,
    M: Remote,
{
    let messages = Vec::with_capacity(about.min(LENGTH_MAX));
    Box::new(Gathered::<A, M> {
        messages,
        actor: PhantomData,
    })
}

struct Gathered<A, M> {
    messages: Vec<M>,
    actor: PhantomData<fn(A)>,
}

impl<A, M> Gathering for Gathered<A, M>
where
    A: Process + Handler<M>,
    M: Remote,
{
    #[inline]
    fn add(&mut self, body: &[u8]) -> Result<bool, Garbled> {
        self.messages.push(codec::decode(body)?);
        Ok(self.messages.len() < LENGTH_MAX)
    }

    fn send(&mut self, to: &AnyIncarnation, origin: &Arc<Sender>) -> Result<(), (u64, Unwanted)> {
        let messages = std::mem::take(&mut self.messages);
        let count = messages.len() as u64;
        match incarnation::<A>(to) {
            Ok(to) => to.tell_run(messages, origin),
            Err(_) => Err((count, Unwanted::Gone)),
        }
    }
}

/// A run on its way, or half handled. Each of its messages has taken its place in the mailbox.
pub(crate) struct Run<M> {
    first: Option<M>,
    rest: std::vec::IntoIter<M>,
    origin: Option<Arc<Sender>>,
}

impl<M> Run<M> {
    pub(crate) fn new(first: M, rest: std::vec::IntoIter<M>, origin: Option<Arc<Sender>>) -> Self {
        Self {
            first: Some(first),
            rest,
            origin,
        }
    }

    fn take(&mut self) -> Self {
        Self {
            first: self.first.take(),
            rest: std::mem::take(&mut self.rest),
            origin: self.origin.take(),
        }
    }
}

/// What an actor must handle before it looks into its mailbox again.
pub(crate) trait Unfinished<A: Actor<Context = Context<A>>> {
    /// Goes on until it is done (true), or the actor may not hear more for now (false).
    fn go_on(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool;
}

impl<A, M> Unfinished<A> for Run<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn go_on(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        let mut done = true;
        ctx.sender = self.origin.take();
        while let Some(message) = self.first.take().or_else(|| self.rest.next()) {
            ctx.meter.taken();
            handle_one(message, None, actor, ctx);
            if ctx.meter.has_ahead() {
                ctx.hear_ahead(actor);
            }
            if !ctx.may_hear() && self.rest.len() > 0 {
                done = false;
                break;
            }
        }
        self.origin = ctx.sender.take();
        done
    }
}

impl<A, M> EnvelopeProxy<A> for Run<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn handle(&mut self, actor: &mut A, ctx: &mut Context<A>) {
        if ctx.has_something_before() {
            return ctx.handle_after(actor, Box::new(self.take()));
        }
        if !self.go_on(actor, ctx) {
            ctx.leave_unfinished(Box::new(self.take()));
        }
    }
}

/// Comes back to what is unfinished when no message does.
pub(crate) struct Resume;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Resume {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        // Nothing to be woken by: whatever keeps the actor from hearing wakes it when that is over.
        ctx.go_on(actor);
        match ctx.has_unfinished() {
            true => Poll::Pending,
            false => {
                ctx.has_resumed();
                Poll::Ready(())
            }
        }
    }
}
