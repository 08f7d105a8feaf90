//! Processes: what an actor hears from other nodes, and from which roles.
//!
//! An actor lists its [`Ears`] once; what is not listed cannot reach it from outside. The table made of
//! them decodes a body straight into the actor's mailbox, and gives local senders who know only a pid the
//! same door without any encoding.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use actix::{Actor, Handler};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::ask::TellError;
use crate::codec::{self, Garbled};
use crate::context::Context;
use crate::frames::{self, Counting};
use crate::handle::Incarnation;
use crate::identity::{Role, Roles};
use crate::letter::handle_one;
use crate::link::{Answer, Decode, Sender};
use crate::message::{Lane, Remote, WhenFull};
use crate::run::{self, Gather};
use crate::tap::{self, Words};

/// An actor that the runtime can run.
///
/// `started` is called before its first message. When it stops, `stopping` and `stopped` are called, each once, after its last
/// message. One that refuses in `stopping` goes on, but [`Node::stop_now`](crate::Node::stop_now) then drops it without `stopped`.
/// After a panic neither is called: its state is what the panic left, so it is only dropped. What must be given back whatever
/// happens belongs into a `Drop`.
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
///     fn hears(ears: &mut Ears<Self>) {
///         ears.hear::<Count>(&[Role::Agent]);
///     }
/// }
/// ```
pub trait Process: Actor<Context = Context<Self>> {
    /// How many messages may wait in its mailbox. Messages whose lane is Ping, and those that it [hears
    /// ahead](Ears::hear_ahead), do not count: of those 1,024 may wait beside it.
    const MAILBOX: u32 = 65_536;

    /// How many encoded bytes of messages that came over links may wait, counting those of 4 KiB and more; at least one always fits.
    const MAILBOX_BYTES: u64 = 256 << 20;

    /// What becomes of one message more than that. One that closes its link itself ([`Remote::WHEN_FULL`]) does so here as well.
    const WHEN_FULL: WhenFull = WhenFull::Refuse;

    /// How many errands (timers and futures) it may have under way. With that many it hears nothing until one has come back, so that
    /// those who send to it find its mailbox full in the end.
    const ERRANDS: u32 = 1 << 20;

    /// What it hears from other nodes, and from which roles. Nothing, unless it says so.
    fn hears(_ears: &mut Ears<Self>) {}
}

/// The list of what an actor of this type hears.
pub struct Ears<A> {
    table: EarTable,
    actor: PhantomData<fn(A)>,
}

impl<A: Process> Ears<A> {
    /// Hears this message from nodes of these roles, and from its own node; tells and asks alike.
    /// From another role it is refused and counted.
    pub fn hear<M: Remote>(&mut self, roles: &[Role])
    where
        A: Handler<M>,
    {
        let ear = Ear {
            name: M::NAME,
            id: M::ID,
            version: M::VERSION,
            roles: Roles::of(roles),
            overflow: overflow::<A, M>(),
            hear: hear::<A, M>,
            decode: decode::<M, M>,
            hear_decoded: hear_decoded::<A, M, M::Result>,
            hear_now: hear_now::<A, M, M>,
            gather: (M::LANE == Lane::Ordinary).then_some(run::gather::<A, M>),
            door: Box::new(Door::<M> {
                tell: tell_inside::<A, M>,
                ask: ask_inside::<A, M>,
            }),
        };
        self.table.note_lane::<M>();
        self.table.ears.insert(key(M::ID, M::VERSION), ear);
    }

    /// Hears this message through a pid, but from its own node only.
    pub fn hear_local<M: Remote>(&mut self)
    where
        A: Handler<M>,
    {
        self.hear::<M>(&[]);
    }

    /// Hears this message, which never crosses a wire, ahead of its mailbox, as it does pings: between two messages, however many wait. For
    /// questions that cost next to nothing and whose askers must not wait for what others have said. It may overtake what the same sender has said before.
    pub fn hear_ahead<M>(&mut self)
    where
        A: Handler<M>,
        M: actix::Message + Send + 'static,
    {
        self.table.note_ahead(TypeId::of::<M>());
    }

    /// Counts the bodies of this message that come over links, and makes nothing of them.
    #[doc(hidden)]
    pub fn count<M: Remote>(&mut self, roles: &[Role])
    where
        A: Counting + Handler<M>,
    {
        self.hear::<M>(roles);
        if let Some(ear) = self.table.ears.get_mut(&key(M::ID, M::VERSION)) {
            ear.hear = count::<A>;
            (ear.decode, ear.hear_decoded) = (measure, count_measured::<A>);
            ear.gather = Some(frames::gather::<A>);
        }
    }

    /// Hears an older shape of a message, turned into the newer one before it is handled.
    pub fn hear_older<Old, New>(&mut self, roles: &[Role])
    where
        A: Handler<New>,
        Old: Remote,
        New: Remote + From<Old>,
        Old::Result: From<New::Result>,
    {
        let ear = Ear {
            name: Old::NAME,
            id: Old::ID,
            version: Old::VERSION,
            roles: Roles::of(roles),
            overflow: overflow::<A, New>(),
            hear: hear_older::<A, Old, New>,
            decode: decode::<Old, New>,
            hear_decoded: hear_decoded::<A, New, Old::Result>,
            hear_now: hear_now::<A, Old, New>,
            gather: None,
            door: Box::new(()),
        };
        self.table.note_lane::<New>();
        self.table.ears.insert(key(Old::ID, Old::VERSION), ear);
    }

    /// What this actor hears; with `previous` as it was before the newest shape of each message.
    pub(crate) fn table(previous: bool) -> Arc<EarTable> {
        let mut ears = Self {
            table: EarTable::default(),
            actor: PhantomData,
        };
        A::hears(&mut ears);
        if previous {
            ears.table.forget_newest();
        }
        Arc::new(ears.table)
    }
}

/// Everything one actor hears, by message id and version.
#[derive(Default)]
pub(crate) struct EarTable {
    ears: FxHashMap<u64, Ear>,
    /// The types that go ahead of the mailbox.
    pub(crate) ahead: Vec<TypeId>,
}

/// One incarnation of some actor, whose type the ear knows.
pub(crate) type AnyIncarnation = dyn Any + Send + Sync;

pub(crate) struct Ear {
    pub(crate) name: &'static str,
    pub(crate) id: u32,
    pub(crate) version: u16,
    pub(crate) roles: Roles,
    /// What happens to a tell that arrives over a link and finds no room.
    pub(crate) overflow: Overflow,
    hear: Hear,
    /// The first half of `hear`, which needs nothing but the body.
    pub(crate) decode: Decode,
    hear_decoded: HearDecoded,
    hear_now: HearNow,
    /// Tells that come together travel together, unless they are pings or must be turned into another shape first.
    pub(crate) gather: Option<Gather>,
    /// A [`Door`] for this message type.
    door: Box<dyn Words>,
}

/// What happens to a tell that arrives over a link and finds no room. Its sender cannot be refused any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It waits at the link, and so do later messages for the same actor.
    Wait,
    /// It is dropped and counted: the actor keeps only the newest, and all that wait are questions.
    Drop,
    /// The link is closed, as the actor or the message has it.
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
pub(crate) enum Unheard {
    Garbled(Garbled),
    Told(TellError),
}

type Hear = fn(&AnyIncarnation, &[u8], Arc<Sender>, Option<Answer>) -> Result<(), Unheard>;
type HearDecoded =
    fn(&AnyIncarnation, Box<dyn Any + Send>, Arc<Sender>, Option<Answer>) -> Result<(), Unheard>;
/// The actor and its context, whose type the ear knows.
type HearNow = fn(&mut dyn Any, &mut dyn Any, &[u8]) -> Result<(), Garbled>;
type AskInside<M> =
    fn(&AnyIncarnation, M) -> Result<oneshot::Receiver<<M as actix::Message>::Result>, TellError>;

struct Door<M: Remote> {
    tell: fn(&AnyIncarnation, M) -> Result<(), TellError>,
    ask: AskInside<M>,
}

impl<M: Remote> Words for Door<M> {
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

impl EarTable {
    pub(crate) fn ear(&self, id: u32, version: u16) -> Option<&Ear> {
        self.ears.get(&key(id, version))
    }

    /// The name of a message by its type, and what else is known of it.
    pub(crate) fn words(&self, message: TypeId) -> Option<(&'static str, &dyn Words)> {
        let ear = self
            .iter()
            .find(|ear| ear.door.message() == Some(message))?;
        Some((ear.name, &*ear.door))
    }

    /// What is heard in an older shape as well is heard from other nodes in that alone.
    fn forget_newest(&mut self) {
        let heard: Vec<(u32, u16)> = self.iter().map(|ear| (ear.id, ear.version)).collect();
        for ear in self.ears.values_mut() {
            let of = |(id, version): &(u32, u16)| (*id == ear.id).then_some(*version);
            let newest = heard.iter().filter_map(of).max();
            if newest == Some(ear.version) && heard.iter().filter_map(of).count() > 1 {
                ear.roles = Roles::default();
            }
        }
    }

    fn note_lane<M: Remote>(&mut self) {
        if M::LANE == Lane::Ping {
            self.note_ahead(TypeId::of::<M>());
        }
    }

    fn note_ahead(&mut self, message: TypeId) {
        if !self.ahead.contains(&message) {
            self.ahead.push(message);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ear> {
        self.ears.values()
    }

    /// Tells by pid on the same node, without any encoding.
    pub(crate) fn tell<M: Remote>(&self, to: &AnyIncarnation, message: M) -> Result<(), TellError> {
        (self.door::<M>()?.tell)(to, message)
    }

    /// Asks by pid on the same node, without any encoding.
    pub(crate) fn ask<M: Remote>(
        &self,
        to: &AnyIncarnation,
        message: M,
    ) -> Result<oneshot::Receiver<M::Result>, TellError> {
        (self.door::<M>()?.ask)(to, message)
    }

    fn door<M: Remote>(&self) -> Result<&Door<M>, TellError> {
        self.ear(M::ID, M::VERSION)
            .and_then(|ear| (&*ear.door as &dyn Any).downcast_ref())
            .ok_or_else(|| TellError::Refused {
                reason: format!("{} v{} is not heard", M::NAME, M::VERSION),
            })
    }
}

impl Ear {
    /// Decodes the body into the actor's mailbox; its answer, if one is wanted, goes back over the link.
    #[inline]
    pub(crate) fn hear(
        &self,
        to: &AnyIncarnation,
        body: &[u8],
        origin: Arc<Sender>,
        answer: Option<Answer>,
    ) -> Result<(), Unheard> {
        (self.hear)(to, body, origin, answer)
    }

    /// As [`hear`](Self::hear), with what this ear's `decode` has made of the body.
    pub(crate) fn hear_decoded(
        &self,
        to: &AnyIncarnation,
        message: Box<dyn Any + Send>,
        origin: Arc<Sender>,
        answer: Option<Answer>,
    ) -> Result<(), Unheard> {
        (self.hear_decoded)(to, message, origin, answer)
    }

    /// Says which message it was that could not be decoded.
    #[cold]
    pub(crate) fn blame(&self, Garbled { reason }: Garbled) -> Garbled {
        Garbled {
            reason: format!("{} v{} {reason}", self.name, self.version),
        }
    }

    /// Decodes the body and lets the actor, whose turn it is, handle it at once. Whatever it answers is dropped.
    pub(crate) fn hear_now<A: Process>(
        &self,
        actor: &mut A,
        ctx: &mut Context<A>,
        body: &[u8],
    ) -> Result<(), Garbled> {
        (self.hear_now)(actor, ctx, body)
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
        .map_err(|(_, unwanted)| unwanted.into())
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
        .map_err(|(_, unwanted)| unwanted.into())
}

fn hear<A, M>(
    to: &AnyIncarnation,
    body: &[u8],
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), Unheard>
where
    A: Process + Handler<M>,
    M: Remote,
{
    let message: M = codec::decode(body).map_err(Unheard::Garbled)?;
    pass_on::<A, M, M::Result>(to, message, origin, answer)
}

fn decode<M, Handled>(body: &[u8]) -> Result<Box<dyn Any + Send>, Garbled>
where
    M: Remote,
    Handled: Remote + From<M>,
{
    Ok(Box::new(Handled::from(codec::decode::<M>(body)?)))
}

fn hear_decoded<A, M, R>(
    to: &AnyIncarnation,
    message: Box<dyn Any + Send>,
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), Unheard>
where
    A: Process + Handler<M>,
    M: Remote,
    R: From<M::Result> + serde::Serialize + Send + 'static,
{
    // Of another type it cannot be: the same ear decoded it.
    let message = message
        .downcast()
        .map_err(|_| Unheard::Told(TellError::Gone))?;
    if answer.is_none() {
        let to = incarnation::<A>(to).map_err(Unheard::Told)?;
        return to
            .tell_admitted(*message, origin)
            .map_err(|(_, unwanted)| Unheard::Told(unwanted.into()));
    }
    pass_on::<A, M, R>(to, *message, origin, answer)
}

fn count<A: Counting>(
    _: &AnyIncarnation,
    body: &[u8],
    _: Arc<Sender>,
    _: Option<Answer>,
) -> Result<(), Unheard> {
    A::count().add(1, body.len() as u64);
    Ok(())
}

/// How long the body is, in place of what it says.
fn measure(body: &[u8]) -> Result<Box<dyn Any + Send>, Garbled> {
    Ok(Box::new(body.len()))
}

fn count_measured<A: Counting>(
    _: &AnyIncarnation,
    length: Box<dyn Any + Send>,
    _: Arc<Sender>,
    _: Option<Answer>,
) -> Result<(), Unheard> {
    let length = length.downcast_ref::<usize>().copied().unwrap_or(0);
    A::count().add(1, length as u64);
    Ok(())
}

fn hear_now<A, M, Handled>(
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
            tap::local::show_numbered(ctx, &message);
        }
        handle_one::<A, Handled>(message, None, actor, ctx);
    }
    Ok(())
}

fn hear_older<A, Old, New>(
    to: &AnyIncarnation,
    body: &[u8],
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), Unheard>
where
    A: Process + Handler<New>,
    Old: Remote,
    New: Remote + From<Old>,
    Old::Result: From<New::Result>,
{
    let message: Old = codec::decode(body).map_err(Unheard::Garbled)?;
    pass_on::<A, New, Old::Result>(to, New::from(message), origin, answer)
}

fn pass_on<A, M, R>(
    to: &AnyIncarnation,
    message: M,
    origin: Arc<Sender>,
    answer: Option<Answer>,
) -> Result<(), Unheard>
where
    A: Process + Handler<M>,
    M: Remote,
    R: From<M::Result> + serde::Serialize + Send + 'static,
{
    let to = incarnation::<A>(to).map_err(Unheard::Told)?;
    match answer {
        None => to
            .tell(message, Some(origin))
            .map_err(|(_, unwanted)| Unheard::Told(unwanted.into())),
        Some(mut answer) => {
            if to.meter.is_tapped() {
                answer.show_to_tap(&to.pid, &origin, M::NAME);
            }
            let reply = to
                .ask(message, Some(origin))
                .map_err(|(_, unwanted)| Unheard::Told(unwanted.into()))?;
            answer.when_ready::<M::Result, R>(reply);
            Ok(())
        }
    }
}
