//! Batches: consecutive tells of one type from one sender to one actor, enqueued as one envelope.
//!
//! The bodies come from the inbox and are decoded at once. When a turn, a wait or a stop interrupts
//! a batch, its remaining messages stay in the actor's context, in front of its mailbox, so a batch
//! behaves exactly like its messages sent one by one, at the cost of one envelope. It never holds
//! asks, since each of those has its own reply channel.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use actix::dev::EnvelopeProxy;
use actix::fut::ActorFuture;
use actix::{Actor, Handler, Message};

use crate::actor::context::Context;
use crate::actor::mailbox::MailboxError;
use crate::actor::mailbox::envelope::handle_one;
use crate::actor::process::{AnyIncarnation, Process, incarnation};
use crate::link::Sender;
use crate::wire::codec::{self, Garbled};
use crate::wire::frame_reader::Reading;
use crate::wire::message::Remote;

/// The maximum number of messages in one batch.
const LENGTH_MAX: usize = 1024;

/// A batch under construction; only its implementation knows the actor and message types.
pub(crate) trait BatchBuilder {
    /// Adds the first message, decoded from this body. The bytes that follow it only determine how
    /// much room to reserve.
    fn add_first(&mut self, body: &[u8], following: &[u8], reading: Reading)
    -> Result<(), Garbled>;

    /// Adds the messages of all similar frames at the front of the bytes, until the batch is full.
    /// It never holds more than `room` messages.
    fn add(&mut self, bytes: &[u8], reading: Reading, room: u64) -> Added;

    /// Sends the batch. On failure returns how many messages the mailbox refused, and why.
    fn send(
        &mut self,
        to: &AnyIncarnation,
        origin: &Arc<Sender>,
    ) -> Result<(), (u64, MailboxError)>;
}

/// The result of adding frames to a batch.
pub(crate) struct Added {
    /// Bytes that have been read.
    pub(crate) bytes: usize,
    /// Frames that have become messages.
    pub(crate) frames: u64,
    /// Whether the batch is full and should be sent.
    pub(crate) is_full: bool,
    /// The error of the last frame that was read.
    pub(crate) garbled: Option<Garbled>,
}

/// Calls `add` with the body of each frame at the front of the bytes that belongs to the batch.
// Inlined, so that reading and decoding share one loop: this runs for every message from a link.
#[inline(always)]
pub(crate) fn add_each(
    bytes: &[u8],
    reading: Reading,
    room: usize,
    mut add: impl FnMut(&[u8]) -> Result<(), Garbled>,
) -> Added {
    let (mut rest, mut frames, mut garbled) = (bytes, 0, None);
    while frames < room as u64
        && let Some((body, behind)) = reading.small(rest)
    {
        rest = behind;
        match add(body) {
            Ok(()) => frames += 1,
            Err(why) => {
                garbled = Some(why);
                break;
            }
        }
    }
    Added {
        bytes: bytes.len() - rest.len(),
        frames,
        is_full: frames == room as u64,
        garbled,
    }
}

/// Starts a batch.
pub(crate) type NewBatch = fn() -> Box<dyn BatchBuilder>;

pub(crate) fn new_batch<A, M>() -> Box<dyn BatchBuilder>
where
    A: Process + Handler<M>,
    M: Remote,
{
    Box::new(TypedBatchBuilder::<A, M>::new())
}

struct TypedBatchBuilder<A, M> {
    messages: Vec<M>,
    actor: PhantomData<fn(A)>,
}

impl<A, M> TypedBatchBuilder<A, M> {
    fn new() -> Self {
        Self {
            messages: Vec::new(),
            actor: PhantomData,
        }
    }
}

impl<A, M> BatchBuilder for TypedBatchBuilder<A, M>
where
    A: Process + Handler<M>,
    M: Remote,
{
    fn add_first(
        &mut self,
        body: &[u8],
        following: &[u8],
        reading: Reading,
    ) -> Result<(), Garbled> {
        // Counted, not estimated from the bytes: the next frame may already differ, and the
        // reserved room is moved into the mailbox.
        let count = 1 + reading.count(following, LENGTH_MAX - 1);
        self.messages.reserve_exact(count);
        self.messages.push(codec::decode(body)?);
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], reading: Reading, room: u64) -> Added {
        let messages = &mut self.messages;
        let length_max = usize::try_from(room).map_or(LENGTH_MAX, |room| room.min(LENGTH_MAX));
        // The previous batch was sent, together with its allocation.
        if messages.capacity() == 0 {
            messages.reserve_exact(reading.count(bytes, length_max));
        }
        let room = length_max.saturating_sub(messages.len());
        add_each(bytes, reading, room, |body| {
            messages.push(codec::decode(body)?);
            Ok(())
        })
    }

    fn send(
        &mut self,
        to: &AnyIncarnation,
        origin: &Arc<Sender>,
    ) -> Result<(), (u64, MailboxError)> {
        let messages = std::mem::take(&mut self.messages);
        let count = messages.len() as u64;
        match incarnation::<A>(to) {
            Ok(to) => to.tell_batch(messages, origin),
            Err(_) => Err((count, MailboxError::Gone)),
        }
    }
}

/// A batch in transit, or partly handled. Each of its messages has a place in the mailbox.
pub(crate) struct MessageBatch<M> {
    first: Option<M>,
    rest: std::vec::IntoIter<M>,
    origin: Option<Arc<Sender>>,
}

impl<M> MessageBatch<M> {
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

/// Messages that an actor must handle before it polls its mailbox again.
pub(crate) trait Unfinished<A: Actor<Context = Context<A>>> {
    /// Continues until done (true) or until the actor must pause (false).
    fn proceed(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool;
}

impl<A, M> Unfinished<A> for MessageBatch<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn proceed(&mut self, actor: &mut A, ctx: &mut Context<A>) -> bool {
        let mut done = true;
        ctx.sender = self.origin.take();
        while let Some(message) = self.first.take().or_else(|| self.rest.next()) {
            ctx.meter.taken();
            handle_one(message, None, actor, ctx);
            if ctx.meter.has_urgent() {
                ctx.handle_urgent(actor);
            }
            if !ctx.may_handle() && self.rest.len() > 0 {
                done = false;
                break;
            }
        }
        self.origin = ctx.sender.take();
        done
    }
}

impl<A, M> EnvelopeProxy<A> for MessageBatch<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn handle(&mut self, actor: &mut A, ctx: &mut Context<A>) {
        if ctx.has_something_before() {
            return ctx.handle_after(actor, Box::new(self.take()));
        }
        if !self.proceed(actor, ctx) {
            ctx.leave_unfinished(Box::new(self.take()));
        }
    }
}

/// Resumes unfinished messages when no message does.
pub(crate) struct Resume;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Resume {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        // Needs no waker: the condition that pauses the actor wakes it when it ends.
        ctx.proceed(actor);
        match ctx.has_unfinished() {
            true => Poll::Pending,
            false => {
                ctx.has_resumed();
                Poll::Ready(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::prelude::*;
    use crate::wire::frame::PING;
    use crate::wire::frame_reader::short;

    /// Large in memory, and a byte on the wire.
    #[derive(Serialize, Deserialize)]
    struct Large(Option<[u64; 32]>);

    remote! { Large = "run/large" v1; }

    struct Hearer;

    impl Actor for Hearer {
        type Context = Context<Self>;
    }

    impl Process for Hearer {}

    impl Handler<Large> for Hearer {
        type Result = ();
        fn handle(&mut self, _: Large, _: &mut Context<Self>) {}
    }

    const READING: Reading = Reading { frame_max: 1 << 20 };

    /// This many tells, and then a ping.
    fn tells(count: usize) -> Vec<u8> {
        let tell = [&short(1)[..], &[0]].concat();
        [&tell.repeat(count)[..], &[0, 0, 0, 1, PING]].concat()
    }

    /// A peer that sends pairs of tells between pings must not cause an allocation of full length
    /// for each pair.
    #[test]
    fn batch_reserves_exactly_the_available_messages() {
        for (first, next) in [(1, 1), (2, 3), (LENGTH_MAX, 2), (5, 2 * LENGTH_MAX)] {
            let (mut run, long) = (TypedBatchBuilder::<Hearer, Large>::new(), tells(5000));
            let room =
                |run: &TypedBatchBuilder<_, Large>| (run.messages.len(), run.messages.capacity());
            let followed = [&tells(first)[3..], &long].concat();
            run.add_first(&[0], &followed, READING).unwrap();
            assert_eq!(room(&run), (1, first));
            run.add(&followed, READING, u64::MAX);
            assert_eq!(room(&run), (first, first));
            run.messages = Vec::new(); // sent, because it was full
            run.add(&[&tells(next)[..], &long].concat(), READING, u64::MAX);
            let expected = next.min(LENGTH_MAX);
            assert_eq!(room(&run), (expected, expected));
        }
    }
}
