//! Beside the mailbox: pings and what else an actor hears ahead of it, and the messages of actors that want only the newest.
//!
//! actix's queue can neither be overtaken nor be emptied from its front by a sender, so both wait in queues of our own, each with its bound.
//! The actor looks at the first between two messages and at the second when its mailbox is empty. Remembers what waits and nothing else;
//! actors that hear nothing ahead and want everything have no such queues and pay nothing for them.

use std::any::TypeId;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};

use actix::Actor;
use actix::fut::ActorFuture;

use crate::context::Context;
use crate::lock;
use crate::mailbox::{Meter, Unwanted};
use crate::message::WhenFull;
use crate::process::{EarTable, Process};
use crate::run::Unfinished;

/// How many that go ahead may wait for one actor; one more is refused.
const AHEAD_MAX: usize = 1024;

/// A message in its letter.
pub(crate) type Waiting<A> = Box<dyn Unfinished<A> + Send>;

/// Where a message waits that is not in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Ahead of all that waits in the mailbox.
    Ahead,
    /// Among those of which the oldest are thrown away.
    Newest,
}

/// What becomes of a message when there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// May be thrown away for a newer one.
    Passing,
    /// Is refused if there is no room, and once taken is kept: it has an asker.
    Kept,
    /// Is always taken.
    Certain,
}

struct Item<A: Actor> {
    since: u32,
    worth: Worth,
    letter: Waiting<A>,
}

struct Queues<A: Actor> {
    ahead: VecDeque<Item<A>>,
    newest: VecDeque<Item<A>>,
    /// How many of the newest may be thrown away.
    passing: usize,
    closed: bool,
}

/// Both queues of one incarnation.
pub(crate) struct Beside<A: Actor> {
    /// The types that go ahead.
    of_ahead: Box<[TypeId]>,
    /// How many of the newest are kept, if not everything is wanted.
    newest_max: Option<usize>,
    queues: Mutex<Queues<A>>,
}

impl<A: Process> Beside<A> {
    /// The queues of an actor, if it needs any.
    pub(crate) fn of(ears: &EarTable) -> Option<Arc<Self>> {
        let newest_max = match A::WHEN_FULL {
            WhenFull::DropOldest => Some(A::MAILBOX as usize),
            WhenFull::Refuse | WhenFull::CloseLink => None,
        };
        if ears.ahead.is_empty() && newest_max.is_none() {
            return None;
        }
        Some(Arc::new(Self {
            of_ahead: ears.ahead.clone().into(),
            newest_max,
            queues: Mutex::new(Queues {
                ahead: VecDeque::new(),
                newest: VecDeque::new(),
                passing: 0,
                closed: false,
            }),
        }))
    }
}

impl<A: Actor<Context = Context<A>>> Beside<A> {
    /// Where a message of this type waits; `None` is the mailbox.
    #[inline]
    pub(crate) fn way<M: 'static>(&self) -> Option<Way> {
        if self.of_ahead.contains(&TypeId::of::<M>()) {
            return Some(Way::Ahead);
        }
        self.newest_max.map(|_| Way::Newest)
    }

    /// Puts a message there, or gives it back with the reason.
    pub(crate) fn put<M>(
        &self,
        meter: &Meter,
        (way, worth): (Way, Worth),
        message: M,
        letter: impl FnOnce(M) -> Waiting<A>,
    ) -> Result<(), (M, Unwanted)> {
        let mut thrown_away = None;
        let mut queues = lock(&self.queues);
        if queues.closed || (worth != Worth::Certain && meter.is_draining()) {
            return Err((message, Unwanted::Gone));
        }
        let full = match way {
            Way::Ahead => queues.ahead.len() >= AHEAD_MAX,
            Way::Newest => queues.newest.len() >= self.newest_max.unwrap_or(usize::MAX),
        };
        if full && worth != Worth::Certain {
            thrown_away = queues.throw_away(way);
            if thrown_away.is_none() {
                drop(queues);
                meter.note_refused();
                return Err((message, Unwanted::Full));
            }
            meter.note_dropped();
        }
        let since = meter.millis();
        let letter = letter(message);
        let item = Item {
            since,
            worth,
            letter,
        };
        match way {
            Way::Ahead => queues.ahead.push_back(item),
            Way::Newest => {
                queues.passing += usize::from(worth == Worth::Passing);
                queues.newest.push_back(item);
            }
        }
        queues.tell(meter);
        drop(queues);
        meter.task.wake();
        drop(thrown_away); // What it holds may do anything when dropped, so not under the lock.
        Ok(())
    }

    /// The next message of one queue.
    pub(crate) fn take(&self, meter: &Meter, way: Way) -> Option<Waiting<A>> {
        let mut queues = lock(&self.queues);
        let item = match way {
            Way::Ahead => queues.ahead.pop_front(),
            Way::Newest => queues.newest.pop_front(),
        }?;
        queues.passing -= usize::from(way == Way::Newest && item.worth == Worth::Passing);
        queues.tell(meter);
        Some(item.letter)
    }

    /// The actor has ended: nothing more is taken, and what waits is let go.
    pub(crate) fn close(&self, meter: &Meter) {
        let mut queues = lock(&self.queues);
        queues.closed = true;
        queues.passing = 0;
        let left = (
            std::mem::take(&mut queues.ahead),
            std::mem::take(&mut queues.newest),
        );
        queues.tell(meter);
        drop(queues);
        drop(left);
    }
}

impl<A: Actor> Queues<A> {
    /// Takes out the oldest that may be thrown away.
    fn throw_away(&mut self, way: Way) -> Option<Item<A>> {
        if way == Way::Ahead || self.passing == 0 {
            return None;
        }
        let passing = |item: &Item<A>| item.worth == Worth::Passing;
        let oldest = self.newest.iter().position(passing)?;
        self.passing -= 1;
        self.newest.remove(oldest)
    }

    /// Tells the meter what waits.
    fn tell(&self, meter: &Meter) {
        let fronts = [self.ahead.front(), self.newest.front()];
        // Times wrap around, so the older is the one that is further from now.
        let now = meter.millis();
        let since = fronts.into_iter().flatten().map(|item| item.since);
        let oldest = since.max_by_key(|since| now.wrapping_sub(*since));
        meter.set_beside(self.ahead.len() + self.newest.len(), oldest);
        meter.set_ahead(!self.ahead.is_empty());
    }
}

/// Hears what waits beside the mailbox when nothing in the mailbox leads there.
pub(crate) struct Attendant;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Attendant {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        // Nothing to be woken by: who puts something there wakes the actor, and so does the end of its turn.
        ctx.hear_beside(actor);
        Poll::Pending
    }
}
