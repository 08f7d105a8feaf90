//! Envelopes: the message, its reply channel, its origin, and its place in the mailbox.
//!
//! An ask whose caller has gone is handled all the same. There is no check for room here: the
//! sender has reserved a place before.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use actix::dev::{Envelope, EnvelopeProxy, OneshotSender, ToEnvelope};
use actix::{Actor, Handler, Message};

use crate::actor::context::Context;
use crate::actor::mailbox::Weight;
use crate::actor::mailbox::batch::{MessageBatch, Unfinished};
use crate::actor::mailbox::priority::BoxedEnvelope;
use crate::actor::respond::respond;
use crate::link::Sender;

/// How the sending handle enqueues its next message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackMode {
    /// Sent through a raw actix address: no place reserved.
    None,
    /// One place reserved.
    Counted,
    /// One place reserved, for a message from a link.
    FromLink,
    /// One place reserved for each message of the batch that this message begins.
    Batch,
}

thread_local! {
    // actix passes only the message to `pack`, so the handle leaves the rest here just before.
    static MODE: Cell<PackMode> = const { Cell::new(PackMode::None) };
    static ORIGIN: RefCell<Option<Arc<Sender>>> = const { RefCell::new(None) };
    /// The weight of the large message from a link that is about to be enqueued.
    static WEIGHT: Cell<Option<Box<Weight>>> = const { Cell::new(None) };
    /// The messages of a batch after its first.
    static REST: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Runs `enqueue`, whose message will hold this weight until it is handled or dropped.
pub(crate) fn with_weight<T>(weight: Option<Weight>, enqueue: impl FnOnce() -> T) -> T {
    let Some(weight) = weight else {
        return enqueue();
    };
    WEIGHT.set(Some(Box::new(weight)));
    let result = enqueue();
    drop(WEIGHT.take()); // Not enqueued after all.
    result
}

/// Runs `send`, whose message will carry its reserved place and its origin.
#[inline]
pub(crate) fn send_counted<T, E>(
    origin: Option<Arc<Sender>>,
    send: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    match origin {
        None => MODE.set(PackMode::Counted),
        Some(origin) => {
            ORIGIN.set(Some(origin));
            MODE.set(PackMode::FromLink);
        }
    }
    send().inspect_err(|_| reset()) // The queue was closed and nothing was packed.
}

/// Runs `send` for the first message of a batch, which will carry the others.
pub(crate) fn send_batch<M: 'static, T, E>(
    origin: Arc<Sender>,
    rest: std::vec::IntoIter<M>,
    send: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    ORIGIN.set(Some(origin));
    REST.set(Some(Box::new(rest)));
    MODE.set(PackMode::Batch);
    send().inspect_err(|_| reset()) // The queue was closed and nothing was packed.
}

#[cold]
fn reset() {
    MODE.set(PackMode::None);
    ORIGIN.set(None);
    REST.set(None);
}

/// The message of an envelope, and whether it holds a place in the mailbox.
enum Content<M> {
    Counted(M),
    Uncounted(M),
    Taken,
}

/// A message from this node.
struct LocalEnvelope<M: Message> {
    content: Content<M>,
    reply_to: Option<OneshotSender<M::Result>>,
}

/// A message that came from a link.
struct RemoteEnvelope<M: Message> {
    local: LocalEnvelope<M>,
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
    fn pack(message: M, reply_to: Option<OneshotSender<M::Result>>) -> Envelope<A> {
        let content = match MODE.replace(PackMode::None) {
            PackMode::Counted => Content::Counted(message),
            PackMode::None => Content::Uncounted(message),
            PackMode::Batch => {
                let rest = REST.take().and_then(|rest| rest.downcast().ok());
                let batch = MessageBatch::new(
                    message,
                    rest.map_or_else(Default::default, |rest| *rest),
                    ORIGIN.take(),
                );
                return Envelope::with_proxy(Box::new(batch));
            }
            PackMode::FromLink => {
                let local = LocalEnvelope {
                    content: Content::Counted(message),
                    reply_to,
                };
                return Envelope::with_proxy(Box::new(RemoteEnvelope {
                    local,
                    origin: ORIGIN.take(),
                    weight: WEIGHT.take(),
                }));
            }
        };
        Envelope::with_proxy(Box::new(LocalEnvelope { content, reply_to }))
    }
}

/// An envelope for a priority queue, where it needs no place in the mailbox.
pub(crate) fn priority_envelope<A, M>(
    message: M,
    reply_to: Option<OneshotSender<M::Result>>,
    origin: Option<Arc<Sender>>,
) -> BoxedEnvelope<A>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    let content = Content::Uncounted(message);
    let local = LocalEnvelope { content, reply_to };
    match origin {
        None => Box::new(local),
        Some(_) => Box::new(RemoteEnvelope {
            local,
            origin,
            weight: WEIGHT.take(),
        }),
    }
}

/// Lets the actor handle one message. Counts it, and samples its duration.
#[inline]
pub(crate) fn handle_one<A, M>(
    message: M,
    reply_to: Option<OneshotSender<M::Result>>,
    actor: &mut A,
    ctx: &mut Context<A>,
) where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    ctx.spend();
    let sample = ctx.counts.count::<M>(&ctx.meter);
    let sample = sample.map(|sample| (sample, ctx.clock().now()));
    respond::<A, M>(actor.handle(message, ctx), reply_to, ctx);
    if let Some((sample, start)) = sample {
        let took = ctx.clock().now() - start;
        ctx.counts.record(sample, took);
    }
}

impl<M: Message> LocalEnvelope<M> {
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
        handle_one(message, self.reply_to.take(), actor, ctx);
    }

    fn take(&mut self) -> Self {
        Self {
            content: std::mem::replace(&mut self.content, Content::Taken),
            reply_to: self.reply_to.take(),
        }
    }
}

impl<M: Message> RemoteEnvelope<M> {
    #[inline]
    fn open<A>(&mut self, actor: &mut A, ctx: &mut Context<A>)
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Send + 'static,
    {
        ctx.sender = self.origin.take();
        drop(self.weight.take());
        self.local.open(actor, ctx);
        ctx.sender = None;
    }
}

impl<A, M> EnvelopeProxy<A> for LocalEnvelope<M>
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

impl<A, M> EnvelopeProxy<A> for RemoteEnvelope<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn handle(&mut self, actor: &mut A, ctx: &mut Context<A>) {
        if ctx.has_something_before() {
            let envelope = RemoteEnvelope {
                local: self.local.take(),
                origin: self.origin.take(),
                weight: self.weight.take(),
            };
            return ctx.handle_after(actor, Box::new(envelope));
        }
        self.open(actor, ctx);
    }
}

impl<A, M> Unfinished<A> for LocalEnvelope<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    fn proceed(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        self.open(actor, ctx);
        true
    }
}

impl<A, M> Unfinished<A> for RemoteEnvelope<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
{
    fn proceed(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        self.open(actor, ctx);
        true
    }
}
