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

use crate::again::Reading;
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
    /// Adds the message that this body stands for, the first of all. What follows it is only looked at, for how much room to make.
    fn add_first(&mut self, body: &[u8], following: &[u8], reading: Reading)
    -> Result<(), Garbled>;

    /// Adds the messages of all frames at the front of the bytes that are like those before them, until it should be sent.
    /// It never holds more than `room` messages.
    fn add(&mut self, bytes: &[u8], reading: Reading, room: u64) -> Added;

    /// Sends what was gathered, and gives how many messages the mailbox did not take, and why.
    fn send(&mut self, to: &AnyIncarnation, origin: &Arc<Sender>) -> Result<(), (u64, Unwanted)>;
}

/// What was added to a run.
pub(crate) struct Added {
    /// Bytes that have been read.
    pub(crate) bytes: usize,
    /// Frames that have become messages.
    pub(crate) frames: u64,
    /// Whether the run should be sent: it holds as many as it may.
    pub(crate) is_full: bool,
    /// Of the last frame that was read.
    pub(crate) garbled: Option<Garbled>,
}

/// Calls `add` with the body of each frame at the front of the bytes that may be gathered.
// In one loop with what is done with the bodies: this runs for every message that comes in.
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

/// Begins to gather messages.
pub(crate) type Gather = fn() -> Box<dyn Gathering>;

pub(crate) fn gather<A, M>() -> Box<dyn Gathering>
where
    A: Process + Handler<M>,
    M: Remote,
{
    Box::new(Gathered::<A, M>::new())
}

struct Gathered<A, M> {
    messages: Vec<M>,
    actor: PhantomData<fn(A)>,
}

impl<A, M> Gathered<A, M> {
    fn new() -> Self {
        Self {
            messages: Vec::new(),
            actor: PhantomData,
        }
    }
}

impl<A, M> Gathering for Gathered<A, M>
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
        // Counted, not guessed from the bytes: what is alike may end at once, and the room goes to the mailbox as well.
        let count = 1 + reading.count(following, LENGTH_MAX - 1);
        self.messages.reserve_exact(count);
        self.messages.push(codec::decode(body)?);
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], reading: Reading, room: u64) -> Added {
        let messages = &mut self.messages;
        let length_max = usize::try_from(room).map_or(LENGTH_MAX, |room| room.min(LENGTH_MAX));
        // Those gathered before were sent, together with their room.
        if messages.capacity() == 0 {
            messages.reserve_exact(reading.count(bytes, length_max));
        }
        let room = length_max.saturating_sub(messages.len());
        add_each(bytes, reading, room, |body| {
            messages.push(codec::decode(body)?);
            Ok(())
        })
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

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::again::short;
    use crate::frame::PING;
    use crate::prelude::*;

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

    const READING: Reading = Reading {
        frame_max: 1 << 20,
        short: true,
    };

    /// So many tells, and then a ping.
    fn tells(count: usize) -> Vec<u8> {
        let tell = [&short(1)[..], &[0]].concat();
        [&tell.repeat(count)[..], &[0, 0, 0, 1, PING]].concat()
    }

    /// A peer that says two tells between pings, over and over, must not be given the room of a long run for each pair.
    #[test]
    fn a_run_has_room_for_what_is_there_and_no_more() {
        for (first, next) in [(1, 1), (2, 3), (LENGTH_MAX, 2), (5, 2 * LENGTH_MAX)] {
            let (mut run, long) = (Gathered::<Hearer, Large>::new(), tells(5000));
            let room = |run: &Gathered<_, Large>| (run.messages.len(), run.messages.capacity());
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
