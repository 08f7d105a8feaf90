//! Processes: the messages that an actor accepts from other nodes, and from which roles.
//!
//! An actor lists its [`RemoteHandlers`] once; a message that is not listed cannot reach it from
//! outside. The resulting table decodes a body straight into the actor's mailbox. Local senders
//! that know only a pid use the same table, without any encoding.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use actix::{Actor, Handler};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::actor::ask::TellError;
use crate::actor::context::Context;
use crate::actor::handle::Incarnation;
use crate::actor::mailbox::batch::{self, NewBatch};
use crate::actor::mailbox::envelope::handle_one;
use crate::identity::{Role, Roles};
use crate::link::{Answer, Decode, Sender};
use crate::observe::tap::{self, MessageOps};
use crate::wire::codec::{self, Garbled};
use crate::wire::message::{Lane, Remote, WhenFull};

/// An actor that the runtime can run.
///
/// `started` is called before its first message. When it stops, `stopping` and `stopped` are
/// called, each once, after its last message. An actor that refuses in `stopping` continues, but
/// [`Node::stop_now`](crate::Node::stop_now) then drops it without `stopped`. After a panic neither
/// is called: the state may be inconsistent, so it is only dropped. Cleanup that must always happen
/// belongs into a `Drop`.
///
/// ```
/// use runtime::prelude::*;
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Count(u64);
/// # remote! { Count = "example/count" v1 -> u64 }
/// struct Counter(u64);
/// impl Actor for Counter { type Context = Context<Self>; }
/// impl Handler<Count> for Counter {
///     type Result = u64;
///     fn handle(&mut self, Count(more): Count, _: &mut Context<Self>) -> u64 {
///         self.0 += more;
///         self.0
///     }
/// }
/// impl Process for Counter {
///     fn accepts(handlers: &mut RemoteHandlers<Self>) {
///         handlers.accept::<Count>(&[Role::Agent]);
///     }
/// }
/// ```
pub trait Process: Actor<Context = Context<Self>> {
    /// Maximum number of messages in its mailbox. Messages of the Ping lane and
    /// [urgent](RemoteHandlers::accept_urgent) ones do not count: 1,024 of those may wait in a
    /// queue of their own.
    const MAILBOX: u32 = 65_536;

    /// Maximum encoded bytes of waiting messages from links; only messages of 4 KiB and more count,
    /// and one always fits.
    const MAILBOX_BYTES: u64 = 256 << 20;

    /// The treatment of a message beyond these bounds. A message with [`Remote::WHEN_FULL`]
    /// `CloseLink` closes its link here as well.
    const WHEN_FULL: WhenFull = WhenFull::Refuse;

    /// Maximum number of pending timers and futures. At this number the actor handles no message
    /// until one has completed; meanwhile its mailbox fills and its senders get `Full`.
    const PENDING_MAX: u32 = 1 << 20;

    /// Lists the messages that it accepts from other nodes, with the roles of those nodes. Default:
    /// none.
    fn accepts(_handlers: &mut RemoteHandlers<Self>) {}
}

/// The list of messages that an actor of this type accepts.
pub struct RemoteHandlers<A> {
    table: HandlerTable,
    actor: PhantomData<fn(A)>,
}

impl<A: Process> RemoteHandlers<A> {
    /// Accepts this message from nodes of these roles, and from its own node; tells and asks alike.
    /// From another role it is refused and counted.
    pub fn accept<M: Remote>(&mut self, roles: &[Role])
    where
        A: Handler<M>,
    {
        let handler = RemoteHandler {
            name: M::NAME,
            id: M::ID,
            version: M::VERSION,
            roles: Roles::of(roles),
            overflow: overflow::<A, M>(),
            enqueue: enqueue::<A, M>,
            decode: decode::<M, M>,
            enqueue_decoded: enqueue_decoded::<A, M, M::Result>,
            handle_now: handle_now::<A, M, M>,
            new_batch: (M::LANE == Lane::Ordinary).then_some(batch::new_batch::<A, M>),
            local: Box::new(LocalHandler::<M> {
                tell: tell_inside::<A, M>,
                ask: ask_inside::<A, M>,
            }),
        };
        self.table.note_lane::<M>();
        self.table.handlers.insert(key(M::ID, M::VERSION), handler);
    }

    /// Accepts this message through a pid, but from its own node only.
    pub fn accept_local<M: Remote>(&mut self)
    where
        A: Handler<M>,
    {
        self.accept::<M>(&[]);
    }

    /// Accepts this message, which never crosses a wire, ahead of its mailbox, like pings: it waits
    /// only for the message being handled. For cheap asks whose callers must not wait behind the
    /// queue. It may overtake earlier messages of the same sender.
    pub fn accept_urgent<M>(&mut self)
    where
        A: Handler<M>,
        M: actix::Message + Send + 'static,
    {
        self.table.note_urgent(TypeId::of::<M>());
    }

    /// Accepts an older version of a message, converted to the newer one before it is handled.
    pub fn accept_legacy<Old, New>(&mut self, roles: &[Role])
    where
        A: Handler<New>,
        Old: Remote,
        New: Remote + From<Old>,
        Old::Result: From<New::Result>,
    {
        let handler = RemoteHandler {
            name: Old::NAME,
            id: Old::ID,
            version: Old::VERSION,
            roles: Roles::of(roles),
            overflow: overflow::<A, New>(),
            enqueue: enqueue_legacy::<A, Old, New>,
            decode: decode::<Old, New>,
            enqueue_decoded: enqueue_decoded::<A, New, Old::Result>,
            handle_now: handle_now::<A, Old, New>,
            new_batch: None,
            local: Box::new(()),
        };
        self.table.note_lane::<New>();
        self.table
            .handlers
            .insert(key(Old::ID, Old::VERSION), handler);
    }

    /// The messages that this actor accepts.
    pub(crate) fn table() -> Arc<HandlerTable> {
        let mut handlers = Self {
            table: HandlerTable::default(),
            actor: PhantomData,
        };
        A::accepts(&mut handlers);
        Arc::new(handlers.table)
    }
}

/// The messages that one actor accepts, by message id and version.
#[derive(Default)]
pub(crate) struct HandlerTable {
    handlers: FxHashMap<u64, RemoteHandler>,
    /// The message types that bypass the mailbox.
    pub(crate) urgent: Vec<TypeId>,
}

/// An incarnation; only the handler knows the type of its actor.
pub(crate) type AnyIncarnation = dyn Any + Send + Sync;

pub(crate) struct RemoteHandler {
    pub(crate) name: &'static str,
    pub(crate) id: u32,
    pub(crate) version: u16,
    pub(crate) roles: Roles,
    /// The treatment of a tell from a link for which there is no room.
    pub(crate) overflow: Overflow,
    enqueue: Enqueue,
    /// The first half of `enqueue`, which needs only the body.
    pub(crate) decode: Decode,
    enqueue_decoded: EnqueueDecoded,
    handle_now: HandleNow,
    /// Builds batches of consecutive tells; `None` for pings and for versions that must be
    /// converted first.
    pub(crate) new_batch: Option<NewBatch>,
    /// A [`LocalHandler`] for this message type.
    local: Box<dyn MessageOps>,
}

/// The treatment of a tell from a link for which there is no room. It is too late to refuse it at
/// its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It waits at the link, and so do later messages for the same actor.
    Wait,
    /// It is dropped and counted: the actor keeps only the newest, and all waiting messages are
    /// asks.
    Drop,
    /// The link is closed, as the actor or the message specifies.
    CloseLink,
}

fn overflow<A: Process, M: Remote>() -> Overflow {
    match (A::WHEN_FULL, M::WHEN_FULL) {
        (WhenFull::CloseLink, _) | (_, WhenFull::CloseLink) => Overflow::CloseLink,
        (WhenFull::DropOldest, _) if M::LANE == Lane::Ordinary => Overflow::Drop,
        _ => Overflow::Wait,
    }
}

/// Why a body did not reach the mailbox.
#[derive(Debug, PartialEq)]
pub(crate) enum EnqueueError {
    Garbled(Garbled),
    Rejected(TellError),
}

type Enqueue = fn(&AnyIncarnation, &[u8], Arc<Sender>, Option<Answer>) -> Result<(), EnqueueError>;
type EnqueueDecoded = fn(
    &AnyIncarnation,
    Box<dyn Any + Send>,
    Arc<Sender>,
    Option<Answer>,
) -> Result<(), EnqueueError>;
/// The actor and its context; only the handler knows their types.
type HandleNow = fn(&mut dyn Any, &mut dyn Any, &[u8]) -> Result<(), Garbled>;
type AskInside<M> =
    fn(&AnyIncarnation, M) -> Result<oneshot::Receiver<<M as actix::Message>::Result>, TellError>;

struct LocalHandler<M: Remote> {
    tell: fn(&AnyIncarnation, M) -> Result<(), TellError>,
    ask: AskInside<M>,
}

impl<M: Remote> MessageOps for LocalHandler<M> {
    fn message(&self) -> Option<TypeId> {
        Some(TypeId::of::<M>())
    }

    fn encode(&self) -> Option<tap::Encode> {
        Some(tap::encode_any::<M>)
    }

    fn copy(&self, message: &dyn Any) -> Option<Box<dyn Any + Send>> {
        let message = message.downcast_ref::<M>()?;
        let copy: M = codec::decode(&codec::encode(message).ok()?).ok()?;
        Some(Box::new(copy))
    }
}

fn key(id: u32, version: u16) -> u64 {
    u64::from(id) << 16 | u64::from(version)
}

impl HandlerTable {
    pub(crate) fn handler(&self, id: u32, version: u16) -> Option<&RemoteHandler> {
        self.handlers.get(&key(id, version))
    }

    /// The name of a message by its type, and its [`MessageOps`].
    pub(crate) fn ops(&self, message: TypeId) -> Option<(&'static str, &dyn MessageOps)> {
        let handler = self
            .iter()
            .find(|handler| handler.local.message() == Some(message))?;
        Some((handler.name, &*handler.local))
    }

    fn note_lane<M: Remote>(&mut self) {
        if M::LANE == Lane::Ping {
            self.note_urgent(TypeId::of::<M>());
        }
    }

    fn note_urgent(&mut self, message: TypeId) {
        if !self.urgent.contains(&message) {
            self.urgent.push(message);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RemoteHandler> {
        self.handlers.values()
    }

    /// Tells by pid on the same node, without any encoding.
    pub(crate) fn tell<M: Remote>(&self, to: &AnyIncarnation, message: M) -> Result<(), TellError> {
        (self.local::<M>()?.tell)(to, message)
    }

    /// Asks by pid on the same node, without any encoding.
    pub(crate) fn ask<M: Remote>(
        &self,
        to: &AnyIncarnation,
        message: M,
    ) -> Result<oneshot::Receiver<M::Result>, TellError> {
        (self.local::<M>()?.ask)(to, message)
    }

    fn local<M: Remote>(&self) -> Result<&LocalHandler<M>, TellError> {
        self.handler(M::ID, M::VERSION)
            .and_then(|handler| (&*handler.local as &dyn Any).downcast_ref())
            .ok_or_else(|| TellError::Refused {
                reason: format!("{} v{} is not accepted", M::NAME, M::VERSION),
            })
    }
}

impl RemoteHandler {
    /// Decodes the body into the actor's mailbox; its reply, if one is requested, goes back over
    /// the link.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        to: &AnyIncarnation,
        body: &[u8],
        origin: Arc<Sender>,
        answer: Option<Answer>,
    ) -> Result<(), EnqueueError> {
        (self.enqueue)(to, body, origin, answer)
    }

    /// As [`enqueue`](Self::enqueue), with the output of `decode`.
    pub(crate) fn enqueue_decoded(
        &self,
        to: &AnyIncarnation,
        message: Box<dyn Any + Send>,
        origin: Arc<Sender>,
        answer: Option<Answer>,
    ) -> Result<(), EnqueueError> {
        (self.enqueue_decoded)(to, message, origin, answer)
    }

    /// Adds the name of the undecodable message to the error.
    #[cold]
    pub(crate) fn with_name(&self, Garbled { reason }: Garbled) -> Garbled {
        Garbled {
            reason: format!("{} v{} {reason}", self.name, self.version),
        }
    }

    /// Decodes the body and lets the actor handle it at once, within its current turn. Its reply is
    /// dropped.
    pub(crate) fn handle_now<A: Process>(
        &self,
        actor: &mut A,
        ctx: &mut Context<A>,
        body: &[u8],
    ) -> Result<(), Garbled> {
        (self.handle_now)(actor, ctx, body)
    }
}

pub(crate) fn incarnation<A: Process>(to: &AnyIncarnation) -> Result<&Incarnation<A>, TellError> {
    to.downcast_ref().ok_or(TellError::Gone)
}

fn tell_inside<A, M>(to: &AnyIncarnation, message: M) -> Result<(), TellError>
where
    A: Process + Handler<M>,
    M: Remote,
{
    incarnation::<A>(to)?
        .tell(message, None)
        .map_err(|(_, error)| error.into())
}

fn ask_inside<A, M>(
    to: &AnyIncarnation,
    message: M,
) -> Result<oneshot::Receiver<M::Result>, TellError>
where
    A: Process + Handler<M>,
    M: Remote,
{
    incarnation::<A>(to)?
        .ask(message, None)
        .map_err(|(_, error)| error.into())
}

fn enqueue<A, M>(
    to: &AnyIncarnation,
    body: &[u8],
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), EnqueueError>
where
    A: Process + Handler<M>,
    M: Remote,
{
    let message: M = codec::decode(body).map_err(EnqueueError::Garbled)?;
    pass_on::<A, M, M::Result>(to, message, origin, answer)
}

fn decode<M, Handled>(body: &[u8]) -> Result<Box<dyn Any + Send>, Garbled>
where
    M: Remote,
    Handled: Remote + From<M>,
{
    Ok(Box::new(Handled::from(codec::decode::<M>(body)?)))
}

fn enqueue_decoded<A, M, R>(
    to: &AnyIncarnation,
    message: Box<dyn Any + Send>,
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), EnqueueError>
where
    A: Process + Handler<M>,
    M: Remote,
    R: From<M::Result> + serde::Serialize + Send + 'static,
{
    // It is of this type: the same handler decoded it.
    let message = message
        .downcast()
        .map_err(|_| EnqueueError::Rejected(TellError::Gone))?;
    if answer.is_none() {
        let to = incarnation::<A>(to).map_err(EnqueueError::Rejected)?;
        return to
            .tell_admitted(*message, origin)
            .map_err(|(_, error)| EnqueueError::Rejected(error.into()));
    }
    pass_on::<A, M, R>(to, *message, origin, answer)
}

fn handle_now<A, M, Handled>(
    actor: &mut dyn Any,
    ctx: &mut dyn Any,
    body: &[u8],
) -> Result<(), Garbled>
where
    A: Process + Handler<Handled>,
    M: Remote,
    Handled: Remote + From<M>,
{
    let message = Handled::from(codec::decode::<M>(body)?);
    if let (Some(actor), Some(ctx)) = (actor.downcast_mut(), ctx.downcast_mut::<Context<A>>()) {
        if ctx.meter.is_tapped() {
            tap::local::show_sequenced(ctx, &message);
        }
        handle_one::<A, Handled>(message, None, actor, ctx);
    }
    Ok(())
}

fn enqueue_legacy<A, Old, New>(
    to: &AnyIncarnation,
    body: &[u8],
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), EnqueueError>
where
    A: Process + Handler<New>,
    Old: Remote,
    New: Remote + From<Old>,
    Old::Result: From<New::Result>,
{
    let message: Old = codec::decode(body).map_err(EnqueueError::Garbled)?;
    pass_on::<A, New, Old::Result>(to, New::from(message), origin, answer)
}

fn pass_on<A, M, R>(
    to: &AnyIncarnation,
    message: M,
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), EnqueueError>
where
    A: Process + Handler<M>,
    M: Remote,
    R: From<M::Result> + serde::Serialize + Send + 'static,
{
    let to = incarnation::<A>(to).map_err(EnqueueError::Rejected)?;
    match answer {
        None => to
            .tell(message, Some(origin))
            .map_err(|(_, error)| EnqueueError::Rejected(error.into())),
        Some(mut answer) => {
            if to.meter.is_tapped() {
                answer.show_to_tap(&to.pid, &origin, M::NAME);
            }
            let reply = to
                .ask(message, Some(origin))
                .map_err(|(_, error)| EnqueueError::Rejected(error.into()))?;
            answer.when_ready::<M::Result, R>(reply);
            Ok(())
        }
    }
}
