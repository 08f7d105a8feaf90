//! A mailbox: its bound and meter, and the envelope that a message travels in.
//!
//! actix's queue below is unbounded and first in, first out; the bound is ours, counted here by whoever
//! sends. Tells and asks are enqueued the same way, so they keep their order. An ask whose asker has gone
//! is handled all the same. The meter remembers counts only, never messages.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use actix::dev::{Envelope, EnvelopeProxy, MessageResponse, OneshotSender, ToEnvelope};
use actix::{Actor, Handler, Message};
use futures_util::task::AtomicWaker;

use crate::context::Context;
use crate::link::Sender;
use crate::lock;
use crate::run::{Run, Unfinished};

/// No more messages are taken; those in the queue are still handled.
const DRAINING: u64 = 1 << 63;
/// The actor has ended.
const CLOSED: u64 = 1 << 62;
/// A tap wants to see what is sent: whoever sends must take the slow way.
const TAPPED: u64 = 1 << 61;
const COUNT: u64 = TAPPED - 1;
/// One message in this many is timed.
const SAMPLED: u64 = 64;
/// How many timings are kept.
const TIMINGS: usize = 128;

/// Why the mailbox takes no message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwanted {
    Full,
    Gone,
}

/// A cache line of its own, so that senders and the actor do not slow each other down.
#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

/// What is known of one mailbox from outside.
pub(crate) struct Meter {
    /// Messages ever sent, and the three flags. Written by every sender.
    sent: Line,
    /// Messages ever handled. Written by the actor alone.
    handled: Line,
    bound: u64,
    stop_now: AtomicBool,
    /// The actor's task, to be woken when a flag was set.
    pub(crate) task: AtomicWaker,
    tallies: Mutex<Vec<Arc<Tally>>>,
    timings: OnceLock<Box<[AtomicU32; TIMINGS]>>,
    timed: AtomicU64,
}

/// How many messages of one type were handled.
pub(crate) struct Tally {
    name: &'static str,
    count: AtomicU64,
}

impl Meter {
    pub(crate) fn new(bound: u32) -> Self {
        Self {
            sent: Line::default(),
            handled: Line::default(),
            bound: u64::from(bound),
            stop_now: AtomicBool::new(false),
            task: AtomicWaker::new(),
            tallies: Mutex::default(),
            timings: OnceLock::new(),
            timed: AtomicU64::new(0),
        }
    }

    /// Takes a place in the queue.
    #[inline]
    pub(crate) fn reserve(&self) -> Result<(), Unwanted> {
        let before = self.sent.0.fetch_add(1, Ordering::AcqRel);
        // Flags make the number larger than any bound, so one comparison serves all four questions.
        if before.wrapping_sub(self.handled.0.load(Ordering::Relaxed)) < self.bound {
            return Ok(());
        }
        Err(self.give_back(before))
    }

    /// Takes a place in the queue of a tapped mailbox.
    pub(crate) fn reserve_past_tap(&self) -> Result<(), Unwanted> {
        let before = self.sent.0.fetch_add(1, Ordering::AcqRel) & !TAPPED;
        if before.wrapping_sub(self.handled.0.load(Ordering::Relaxed)) < self.bound {
            return Ok(());
        }
        Err(self.give_back(before))
    }

    /// Marks the mailbox as one whose messages a tap sees, or takes the mark away.
    pub(crate) fn set_tapped(&self, tapped: bool) {
        match tapped {
            true => self.sent.0.fetch_or(TAPPED, Ordering::AcqRel),
            false => self.sent.0.fetch_and(!TAPPED, Ordering::AcqRel),
        };
    }

    pub(crate) fn is_tapped(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & TAPPED != 0
    }

    /// Takes this many places, or none.
    pub(crate) fn reserve_run(&self, count: u64) -> Result<(), Unwanted> {
        let before = self.sent.0.fetch_add(count, Ordering::AcqRel);
        let depth = before.wrapping_sub(self.handled.0.load(Ordering::Relaxed));
        if depth < self.bound && count <= self.bound - depth {
            return Ok(());
        }
        self.sent.0.fetch_sub(count - 1, Ordering::AcqRel);
        Err(self.give_back(before))
    }

    #[cold]
    fn give_back(&self, before: u64) -> Unwanted {
        self.sent.0.fetch_sub(1, Ordering::AcqRel);
        if before & (DRAINING | CLOSED) == 0 {
            return Unwanted::Full;
        }
        self.task.wake(); // It may have seen our place taken and waited for a message.
        Unwanted::Gone
    }

    /// Takes a place that the bound does not apply to.
    pub(crate) fn reserve_always(&self) {
        self.sent.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives back places for which no message came, because the queue was closed.
    pub(crate) fn unreserve(&self, count: u64) {
        self.sent.0.fetch_sub(count, Ordering::AcqRel);
    }

    /// Messages waiting now.
    pub(crate) fn depth(&self) -> u64 {
        (self.sent.0.load(Ordering::Acquire) & COUNT)
            .saturating_sub(self.handled.0.load(Ordering::Relaxed))
    }

    /// A message left the queue. Only the actor's own thread calls this.
    #[inline]
    pub(crate) fn taken(&self) {
        self.handled.0.store(
            self.handled.0.load(Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
    }

    /// Stop once the queue is empty.
    pub(crate) fn drain(&self) {
        self.sent.0.fetch_or(DRAINING, Ordering::AcqRel);
        self.task.wake();
    }

    /// Stop before the next message.
    pub(crate) fn stop_now(&self) {
        self.stop_now.store(true, Ordering::Release);
        self.drain();
    }

    pub(crate) fn close(&self) {
        self.sent.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & DRAINING != 0
    }

    pub(crate) fn is_stopping_now(&self) -> bool {
        self.stop_now.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sent.0.load(Ordering::Acquire) & CLOSED != 0
    }

    fn tally(&self, name: &'static str) -> Arc<Tally> {
        let tally = Arc::new(Tally {
            name,
            count: AtomicU64::new(0),
        });
        lock(&self.tallies).push(tally.clone());
        tally
    }

    /// Messages handled so far, by type.
    pub(crate) fn tallies(&self) -> Vec<(&'static str, u64)> {
        lock(&self.tallies)
            .iter()
            .map(|tally| (tally.name, tally.count.load(Ordering::Relaxed)))
            .collect()
    }

    fn record(&self, took: Duration) {
        let ring = self
            .timings
            .get_or_init(|| Box::new([const { AtomicU32::new(0) }; TIMINGS]));
        let at = self.timed.fetch_add(1, Ordering::Relaxed) as usize % TIMINGS;
        ring[at].store(
            u32::try_from(took.as_nanos()).unwrap_or(u32::MAX),
            Ordering::Relaxed,
        );
    }

    /// Median and 99th percentile of the handling times sampled last; none yet gives zeros.
    pub(crate) fn timings(&self) -> (Duration, Duration) {
        let kept = (self.timed.load(Ordering::Relaxed) as usize).min(TIMINGS);
        let Some(ring) = self.timings.get().filter(|_| kept > 0) else {
            return Default::default();
        };
        let mut sorted: Vec<u32> = ring[..kept]
            .iter()
            .map(|took| took.load(Ordering::Relaxed))
            .collect();
        sorted.sort_unstable();
        let at =
            |percent: usize| Duration::from_nanos(u64::from(sorted[(kept - 1) * percent / 100]));
        (at(50), at(99))
    }
}

/// The actor's own side of its tallies: found by type without a lock.
#[derive(Default)]
pub(crate) struct Counts {
    by_type: Vec<(TypeId, Arc<Tally>)>,
    last: usize,
}

impl Counts {
    /// Counts one message; true if this one should be timed.
    #[inline]
    fn count<M: 'static>(&mut self, meter: &Meter) -> bool {
        let id = TypeId::of::<M>();
        if self
            .by_type
            .get(self.last)
            .is_none_or(|(last, _)| *last != id)
        {
            self.last = self.find::<M>(id, meter);
        }
        let count = &self.by_type[self.last].1.count;
        let before = count.load(Ordering::Relaxed);
        count.store(before + 1, Ordering::Relaxed);
        before.is_multiple_of(SAMPLED)
    }

    fn find<M>(&mut self, id: TypeId, meter: &Meter) -> usize {
        self.by_type
            .iter()
            .position(|(known, _)| *known == id)
            .unwrap_or_else(|| {
                self.by_type
                    .push((id, meter.tally(std::any::type_name::<M>())));
                self.by_type.len() - 1
            })
    }
}

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
    /// The messages of a run after its first.
    static REST: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
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
                }));
            }
        };
        Envelope::with_proxy(Box::new(Letter { content, asker }))
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
    let timed = ctx.counts.count::<M>(&ctx.meter);
    let start = timed.then(|| ctx.clock().now());
    actor.handle(message, ctx).handle(ctx, asker);
    if let Some(start) = start {
        ctx.meter.record(ctx.clock().now() - start);
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
        if ctx.has_unfinished() {
            return ctx.handle_after_unfinished(actor, Box::new(self.take()));
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
        if ctx.has_unfinished() {
            let parcel = Parcel {
                letter: self.letter.take(),
                origin: self.origin.take(),
            };
            return ctx.handle_after_unfinished(actor, Box::new(parcel));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_beyond_the_bound_is_refused_until_one_is_taken() {
        let meter = Meter::new(2);
        assert_eq!(
            [meter.reserve(), meter.reserve(), meter.reserve()],
            [Ok(()), Ok(()), Err(Unwanted::Full)]
        );
        assert_eq!(meter.depth(), 2);
        meter.taken();
        assert_eq!((meter.reserve(), meter.depth()), (Ok(()), 2));
    }

    #[test]
    fn a_draining_mailbox_takes_nothing_more_and_keeps_its_depth() {
        let meter = Meter::new(2);
        meter.reserve().unwrap();
        meter.drain();
        assert_eq!((meter.reserve(), meter.depth()), (Err(Unwanted::Gone), 1));
    }

    #[test]
    fn percentiles_come_from_the_last_timings() {
        let meter = Meter::new(1);
        assert_eq!(meter.timings(), (Duration::ZERO, Duration::ZERO));
        (1..=1000).for_each(|nanos| meter.record(Duration::from_nanos(nanos)));
        assert_eq!(
            meter.timings(),
            (Duration::from_nanos(936), Duration::from_nanos(998))
        );
    }
}
