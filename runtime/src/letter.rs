//! Letters: the envelope that a message travels in from its sender to its actor.
//!
//! Remembers the message, who asked, where it came from, and whether it took a place in the mailbox. An ask whose asker has gone is
//! handled all the same. Never decides whether there is room: whoever sends has taken a place before.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use actix::dev::{Envelope, EnvelopeProxy, OneshotSender, ToEnvelope};
use actix::{Actor, Handler, Message};

use crate::beside::Waiting;
use crate::context::Context;
use crate::link::Sender;
use crate::mailbox::Weight;
use crate::respond::respond;
use crate::run::{Run, Unfinished};

/// What the sending handle says about the message it is about to enqueue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Postmark {
    /// Sent through a raw actix address: took no place.
    None,
    /// Took a place.
    Counted,
    /// Took a place and came from a link.
    FromLink,
    /// Took as many places as there are messages in the run that it is the first of.
    Run,
}

thread_local! {
    // actix gives `pack` nothing but the message, so the handle leaves these here just before.
    static POSTMARK: Cell<Postmark> = const { Cell::new(Postmark::None) };
    static ORIGIN: RefCell<Option<Arc<Sender>>> = const { RefCell::new(None) };
    /// What the large message from a link weighs that is about to be enqueued.
    static WEIGHT: Cell<Option<Box<Weight>>> = const { Cell::new(None) };
    /// The messages of a run after its first.
    static REST: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Runs `hear`, whose message will carry this weight until it is handled or let go.
pub(crate) fn weighing<T>(weight: Option<Weight>, hear: impl FnOnce() -> T) -> T {
    let Some(weight) = weight else {
        return hear();
    };
    WEIGHT.set(Some(Box::new(weight)));
    let heard = hear();
    drop(WEIGHT.take()); // Not enqueued after all.
    heard
}

/// Runs `send`, whose message will carry that it took a place, and where it came from.
#[inline]
pub(crate) fn postmarked<T, E>(
    origin: Option<Arc<Sender>>,
    send: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    match origin {
        None => POSTMARK.set(Postmark::Counted),
        Some(origin) => {
            ORIGIN.set(Some(origin));
            POSTMARK.set(Postmark::FromLink);
        }
    }
    send().inspect_err(|_| wipe()) // The queue was closed and nothing was packed.
}

/// Runs `send` for the first message of a run, which will carry the others.
pub(crate) fn postmarked_run<M: 'static, T, E>(
    origin: Arc<Sender>,
    rest: std::vec::IntoIter<M>,
    send: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    ORIGIN.set(Some(origin));
    REST.set(Some(Box::new(rest)));
    POSTMARK.set(Postmark::Run);
    send().inspect_err(|_| wipe()) // The queue was closed and nothing was packed.
}

#[cold]
fn wipe() {
    POSTMARK.set(Postmark::None);
    ORIGIN.set(None);
    REST.set(None);
}

/// The message of a letter, and whether it took a place.
enum Content<M> {
    Counted(M),
    Uncounted(M),
    Taken,
}

/// A message from this node.
struct Letter<M: Message> {
    content: Content<M>,
    asker: Option<OneshotSender<M::Result>>,
}

/// A message that came from a link.
struct Parcel<M: Message> {
    letter: Letter<M>,
    origin: Option<Arc<Sender>>,
    weight: Option<Box<Weight>>,
}

impl<A, M> ToEnvelope<A, M> for Context<A>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    #[inline]
    fn pack(message: M, asker: Option<OneshotSender<M::Result>>) -> Envelope<A> {
        let content = match POSTMARK.replace(Postmark::None) {
            Postmark::Counted => Content::Counted(message),
            Postmark::None => Content::Uncounted(message),
            Postmark::Run => {
                let rest = REST.take().and_then(|rest| rest.downcast().ok());
                let run = Run::new(
                    message,
                    rest.map_or_else(Default::default, |rest| *rest),
                    ORIGIN.take(),
                );
                return Envelope::with_proxy(Box::new(run));
            }
            Postmark::FromLink => {
                let letter = Letter {
                    content: Content::Counted(message),
                    asker,
                };
                return Envelope::with_proxy(Box::new(Parcel {
                    letter,
                    origin: ORIGIN.take(),
                    weight: WEIGHT.take(),
                }));
            }
        };
        Envelope::with_proxy(Box::new(Letter { content, asker }))
    }
}

/// A letter that waits beside the mailbox, where it needs no place.
pub(crate) fn letter<A, M>(
    message: M,
    asker: Option<OneshotSender<M::Result>>,
    origin: Option<Arc<Sender>>,
) -> Waiting<A>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    let content = Content::Uncounted(message);
    let letter = Letter { content, asker };
    match origin {
        None => Box::new(letter),
        Some(_) => Box::new(Parcel {
            letter,
            origin,
            weight: WEIGHT.take(),
        }),
    }
}

/// Lets the actor handle one message, counted and now and then timed.
#[inline]
pub(crate) fn handle_one<A, M>(
    message: M,
    asker: Option<OneshotSender<M::Result>>,
    actor: &mut A,
    ctx: &mut Context<A>,
) where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    ctx.spend();
    let sample = ctx.counts.count::<M>(&ctx.meter);
    let sample = sample.map(|sample| (sample, ctx.clock().now()));
    respond::<A, M>(actor.handle(message, ctx), asker, ctx);
    if let Some((sample, start)) = sample {
        let took = ctx.clock().now() - start;
        ctx.counts.record(sample, took);
    }
}

impl<M: Message> Letter<M> {
    #[inline]
    fn open<A>(&mut self, actor: &mut A, ctx: &mut Context<A>)
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Send + 'static,
    {
        let message = match std::mem::replace(&mut self.content, Content::Taken) {
            Content::Counted(message) => {
                ctx.meter.taken();
                message
            }
            Content::Uncounted(message) => message,
            Content::Taken => return,
        };
        handle_one(message, self.asker.take(), actor, ctx);
    }

    fn take(&mut self) -> Self {
        Self {
            content: std::mem::replace(&mut self.content, Content::Taken),
            asker: self.asker.take(),
        }
    }
}

impl<M: Message> Parcel<M> {
    #[inline]
    fn open<A>(&mut self, actor: &mut A, ctx: &mut Context<A>)
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Send + 'static,
    {
        ctx.sender = self.origin.take();
        drop(self.weight.take());
        self.letter.open(actor, ctx);
        ctx.sender = None;
    }
}

impl<A, M> EnvelopeProxy<A> for Letter<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    #[inline]
    fn handle(&mut self, actor: &mut A, ctx: &mut Context<A>) {
        if ctx.has_something_before() {
            return ctx.handle_after(actor, Box::new(self.take()));
        }
        self.open(actor, ctx);
    }
}

impl<A, M> EnvelopeProxy<A> for Parcel<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn handle(&mut self, actor: &mut A, ctx: &mut Context<A>) {
        if ctx.has_something_before() {
            let parcel = Parcel {
                letter: self.letter.take(),
                origin: self.origin.take(),
                weight: self.weight.take(),
            };
            return ctx.handle_after(actor, Box::new(parcel));
        }
        self.open(actor, ctx);
    }
}

impl<A, M> Unfinished<A> for Letter<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    fn go_on(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        self.open(actor, ctx);
        true
    }
}

impl<A, M> Unfinished<A> for Parcel<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    fn go_on(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        self.open(actor, ctx);
        true
    }
}
