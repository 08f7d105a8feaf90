//! The priority queues of an actor: urgent messages (pings among them), and the messages of actors
//! that keep only the newest.
//!
//! A sender can neither overtake actix's queue nor remove its oldest message, so both kinds wait in
//! queues of their own, each with its bound. The actor takes urgent messages between two others,
//! and the newest ones when its mailbox is empty. Actors that need neither kind have no such queues
//! and pay nothing for them.

use std::any::TypeId;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};

use actix::Actor;
use actix::fut::ActorFuture;

use crate::actor::context::Context;
use crate::actor::mailbox::batch::Unfinished;
use crate::actor::mailbox::{MailboxError, Meter};
use crate::actor::process::{HandlerTable, Process};
use crate::lock;
use crate::wire::message::WhenFull;

/// Maximum number of urgent messages that wait for one actor; a further one is refused.
const URGENT_MAX: usize = 1024;

/// A message in its envelope.
pub(crate) type BoxedEnvelope<A> = Box<dyn Unfinished<A> + Send>;

/// The queue of a message that is not in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Ahead of the mailbox.
    Urgent,
    /// The queue that drops its oldest messages when it is full.
    Newest,
}

/// The treatment of a message when its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropPolicy {
    /// May be dropped for a newer one.
    Droppable,
    /// Refused if there is no room, and never dropped once queued: it has a caller.
    Refusable,
    /// Always queued.
    Always,
}

struct Item<A: Actor> {
    since: u32,
    policy: DropPolicy,
    envelope: BoxedEnvelope<A>,
}

struct Queues<A: Actor> {
    urgent: VecDeque<Item<A>>,
    newest: VecDeque<Item<A>>,
    /// How many messages of `newest` may be dropped.
    droppable: usize,
    closed: bool,
}

/// Both queues of one incarnation.
pub(crate) struct PriorityQueues<A: Actor> {
    /// The urgent message types.
    urgent_types: Box<[TypeId]>,
    /// The bound of `newest`; `None` if the actor has no such queue.
    newest_max: Option<usize>,
    queues: Mutex<Queues<A>>,
}

impl<A: Process> PriorityQueues<A> {
    /// The queues of an actor, if it needs any.
    pub(crate) fn of(handlers: &HandlerTable) -> Option<Arc<Self>> {
        let newest_max = match A::WHEN_FULL {
            WhenFull::DropOldest => Some(A::MAILBOX as usize),
            WhenFull::Refuse | WhenFull::CloseLink => None,
        };
        if handlers.urgent.is_empty() && newest_max.is_none() {
            return None;
        }
        Some(Arc::new(Self {
            urgent_types: handlers.urgent.clone().into(),
            newest_max,
            queues: Mutex::new(Queues {
                urgent: VecDeque::new(),
                newest: VecDeque::new(),
                droppable: 0,
                closed: false,
            }),
        }))
    }
}

impl<A: Actor<Context = Context<A>>> PriorityQueues<A> {
    /// The queue of messages of this type; `None` is the mailbox.
    #[inline]
    pub(crate) fn kind<M: 'static>(&self) -> Option<QueueKind> {
        if self.urgent_types.contains(&TypeId::of::<M>()) {
            return Some(QueueKind::Urgent);
        }
        self.newest_max.map(|_| QueueKind::Newest)
    }

    /// Queues a message, or returns it with the reason.
    pub(crate) fn put<M>(
        &self,
        meter: &Meter,
        (kind, policy): (QueueKind, DropPolicy),
        message: M,
        envelope: impl FnOnce(M) -> BoxedEnvelope<A>,
    ) -> Result<(), (M, MailboxError)> {
        let mut dropped = None;
        let mut queues = lock(&self.queues);
        if queues.closed || (policy != DropPolicy::Always && meter.is_draining()) {
            return Err((message, MailboxError::Gone));
        }
        let full = match kind {
            QueueKind::Urgent => queues.urgent.len() >= URGENT_MAX,
            QueueKind::Newest => queues.newest.len() >= self.newest_max.unwrap_or(usize::MAX),
        };
        if full && policy != DropPolicy::Always {
            dropped = queues.drop_oldest(kind);
            if dropped.is_none() {
                drop(queues);
                meter.note_refused();
                return Err((message, MailboxError::Full));
            }
            meter.note_dropped();
        }
        let since = meter.millis();
        let envelope = envelope(message);
        let item = Item {
            since,
            policy,
            envelope,
        };
        match kind {
            QueueKind::Urgent => queues.urgent.push_back(item),
            QueueKind::Newest => {
                queues.droppable += usize::from(policy == DropPolicy::Droppable);
                queues.newest.push_back(item);
            }
        }
        queues.update_meter(meter);
        drop(queues);
        meter.task.wake();
        drop(dropped); // Its drop may run arbitrary code, so not under the lock.
        Ok(())
    }

    /// The next message of one queue.
    pub(crate) fn take(&self, meter: &Meter, kind: QueueKind) -> Option<BoxedEnvelope<A>> {
        let mut queues = lock(&self.queues);
        let item = match kind {
            QueueKind::Urgent => queues.urgent.pop_front(),
            QueueKind::Newest => queues.newest.pop_front(),
        }?;
        queues.droppable -=
            usize::from(kind == QueueKind::Newest && item.policy == DropPolicy::Droppable);
        queues.update_meter(meter);
        Some(item.envelope)
    }

    /// The actor has ended: later messages are refused, and waiting ones dropped.
    pub(crate) fn close(&self, meter: &Meter) {
        let mut queues = lock(&self.queues);
        queues.closed = true;
        queues.droppable = 0;
        let left = (
            std::mem::take(&mut queues.urgent),
            std::mem::take(&mut queues.newest),
        );
        queues.update_meter(meter);
        drop(queues);
        drop(left);
    }
}

impl<A: Actor> Queues<A> {
    /// Removes the oldest message that may be dropped.
    fn drop_oldest(&mut self, kind: QueueKind) -> Option<Item<A>> {
        if kind == QueueKind::Urgent || self.droppable == 0 {
            return None;
        }
        let droppable = |item: &Item<A>| item.policy == DropPolicy::Droppable;
        let oldest = self.newest.iter().position(droppable)?;
        self.droppable -= 1;
        self.newest.remove(oldest)
    }

    /// Updates the meter.
    fn update_meter(&self, meter: &Meter) {
        let fronts = [self.urgent.front(), self.newest.front()];
        // Times wrap around, so the older is the one that is further from now.
        let now = meter.millis();
        let since = fronts.into_iter().flatten().map(|item| item.since);
        let oldest = since.max_by_key(|since| now.wrapping_sub(*since));
        meter.set_priority(self.urgent.len() + self.newest.len(), oldest);
        meter.set_urgent(!self.urgent.is_empty());
    }
}

/// Handles the messages of the priority queues when the mailbox is idle.
pub(crate) struct PollPriority;

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for PollPriority {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        // Needs no waker: the sender of a message wakes the actor, and so does the end of its turn.
        ctx.handle_priority(actor);
        Poll::Pending
    }
}
