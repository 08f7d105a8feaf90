//! Handles: references to actors of a known type.
//!
//! A handle survives restarts of the actor: it sends to the current incarnation. It never blocks,
//! and fails at once when the mailbox is full or the actor has ended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::dev::channel::AddressSender;
use actix::{Actor, Handler, Message};
use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, oneshot};

use crate::actor::ask::{Asking, Patience, TellError};
use crate::actor::context::Context;
use crate::actor::mailbox::envelope::{priority_envelope, send_batch, send_counted};
use crate::actor::mailbox::priority::{DropPolicy, PriorityQueues, QueueKind};
use crate::actor::mailbox::{MailboxError, Meter};
use crate::identity::Pid;
use crate::link::Sender;
use crate::node::{Node, WeakNode};
use crate::wire::message::Remote;

/// One life of an actor, as senders see it.
pub(crate) struct Incarnation<A: Actor> {
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) node: WeakNode,
    /// Queues for messages that bypass the mailbox, if the actor accepts any.
    pub(crate) priority: Option<Arc<PriorityQueues<A>>>,
    address: AddressSender<A>,
}

impl<A: Actor<Context = Context<A>>> Incarnation<A> {
    pub(crate) fn new(
        pid: Pid,
        meter: Arc<Meter>,
        node: WeakNode,
        priority: Option<Arc<PriorityQueues<A>>>,
        address: AddressSender<A>,
    ) -> Self {
        Self {
            pid,
            meter,
            node,
            priority,
            address,
        }
    }

    /// The queue for messages of this type, if it is not the mailbox.
    #[inline]
    fn priority<M: 'static>(&self) -> Option<(&PriorityQueues<A>, QueueKind)> {
        let priority = self.priority.as_deref()?;
        Some((priority, priority.kind::<M>()?))
    }

    /// Enqueues, or returns the message with the reason.
    #[inline]
    pub(crate) fn tell<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(queue) = self.priority::<M>() {
            return match self.meter.is_tapped() {
                true => self.tell_refused(message, origin, MailboxError::Full),
                false => self.tell_priority(queue, message, origin),
            };
        }
        if let Err(error) = self.meter.reserve() {
            return self.tell_refused(message, origin, error);
        }
        self.enqueue(message, origin)
    }

    /// Enqueues without showing it to a tap.
    pub(crate) fn tell_past_tap<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(queue) = self.priority::<M>() {
            return self.tell_priority(queue, message, origin);
        }
        if let Err(error) = self.meter.reserve_past_tap() {
            return Err((message, error));
        }
        self.enqueue(message, origin)
    }

    fn tell_priority<M>(
        &self,
        (priority, kind): (&PriorityQueues<A>, QueueKind),
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let policy = (kind, DropPolicy::Droppable);
        priority.put(&self.meter, policy, message, |message| {
            priority_envelope(message, None, origin)
        })
    }

    /// Enqueues a message that has taken its place.
    #[inline]
    fn enqueue<M>(&self, message: M, origin: Option<Arc<Sender>>) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        send_counted(origin, || self.address.do_send(message)).map_err(|error| {
            self.meter.unreserve(1);
            (error.into_inner(), MailboxError::Gone)
        })
    }

    /// A copy, for a later send.
    pub(crate) fn same(&self) -> Self {
        Self {
            pid: self.pid.clone(),
            meter: self.meter.clone(),
            node: self.node.clone(),
            priority: self.priority.clone(),
            address: self.address.clone(),
        }
    }

    /// Enqueues regardless of the bound. If the actor has ended, the message is dropped.
    pub(crate) fn tell_always<M>(&self, message: M)
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some((priority, kind)) = self.priority::<M>() {
            let put = priority.put(
                &self.meter,
                (kind, DropPolicy::Always),
                message,
                |message| priority_envelope(message, None, None),
            );
            return drop(put);
        }
        self.meter.reserve_always();
        if send_counted(None, || self.address.do_send(message)).is_err() {
            self.meter.unreserve(1);
        }
    }

    /// Enqueues a large message; room for its bytes was taken before it was decoded.
    pub(crate) fn tell_admitted<M>(
        &self,
        message: M,
        origin: Arc<Sender>,
    ) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if self.meter.is_tapped() || self.priority::<M>().is_some() {
            return self.tell(message, Some(origin));
        }
        match self.meter.reserve_admitted(1) {
            Ok(()) => self.enqueue(message, Some(origin)),
            Err(error) => Err((message, error)),
        }
    }

    /// Enqueues messages that came in together from one sender, as one. There was room for them
    /// when they began to arrive.
    pub(crate) fn tell_batch<M>(
        &self,
        messages: Vec<M>,
        origin: &Arc<Sender>,
    ) -> Result<(), (u64, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let count = messages.len() as u64;
        if count == 0 {
            return Ok(()); // The batch was started, and no similar frame followed.
        }
        let room = match self.priority::<M>() {
            None => self.meter.reserve_admitted(count),
            Some(_) => Err(MailboxError::Full), // They are enqueued one by one.
        };
        match room {
            Ok(()) => {}
            Err(MailboxError::Gone) => return Err((count, MailboxError::Gone)),
            // One by one: a tap sees each, and messages that bypass the mailbox share no place.
            Err(MailboxError::Full) => {
                let results = messages
                    .into_iter()
                    .map(|message| self.tell(message, Some(origin.clone())));
                let refused = results.filter_map(|result| result.err().map(|(_, error)| error));
                let reasons: Vec<MailboxError> = refused.collect();
                return reasons
                    .last()
                    .map_or(Ok(()), |reason| Err((reasons.len() as u64, *reason)));
            }
        }
        let mut rest = messages.into_iter();
        let Some(first) = rest.next() else {
            return Ok(());
        };
        send_batch(origin.clone(), rest, || self.address.do_send(first)).map_err(|_| {
            self.meter.unreserve(count);
            (count, MailboxError::Gone)
        })
    }

    /// Enqueues an ask and returns the receiver of its reply.
    #[inline]
    pub(crate) fn ask<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(queue) = self.priority::<M>() {
            return match self.meter.is_tapped() {
                true => self.ask_refused(message, origin, MailboxError::Full),
                false => self.ask_priority(queue, message, origin),
            };
        }
        if let Err(error) = self.meter.reserve() {
            return self.ask_refused(message, origin, error);
        }
        self.enqueue_question(message, origin)
    }

    /// Enqueues an ask without showing it to a tap.
    pub(crate) fn ask_past_tap<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(queue) = self.priority::<M>() {
            return self.ask_priority(queue, message, origin);
        }
        if let Err(error) = self.meter.reserve_past_tap() {
            return Err((message, error));
        }
        self.enqueue_question(message, origin)
    }

    fn ask_priority<M>(
        &self,
        (priority, kind): (&PriorityQueues<A>, QueueKind),
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let (reply_to, reply) = oneshot::channel();
        let put = priority.put(
            &self.meter,
            (kind, DropPolicy::Refusable),
            message,
            |message| priority_envelope(message, Some(reply_to), origin),
        );
        put.map(|()| reply)
    }

    #[inline]
    fn enqueue_question<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        send_counted(origin, || self.address.send(message)).map_err(|error| {
            self.meter.unreserve(1);
            (error.into_inner(), MailboxError::Gone)
        })
    }
}

impl From<MailboxError> for TellError {
    fn from(error: MailboxError) -> Self {
        match error {
            MailboxError::Full => TellError::Full,
            MailboxError::Gone => TellError::Gone,
        }
    }
}

/// A request to stop the actor, which also ends the delay before a restart.
#[derive(Default)]
pub(crate) struct StopRequest {
    requested: AtomicBool,
    changed: Notify,
}

impl StopRequest {
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) async fn requested(&self) {
        while !self.is_requested() {
            let changed = self.changed.notified();
            if self.is_requested() {
                return;
            }
            changed.await;
        }
    }
}

/// The sequence of incarnations of one actor.
pub(crate) struct ActorSlot<A: Actor> {
    node: Node,
    pub(crate) halt: Arc<StopRequest>,
    /// Most actors never crash, so the first incarnation is reached without a look at `later`.
    first: Arc<Incarnation<A>>,
    later: ArcSwapOption<Incarnation<A>>,
}

impl<A: Actor<Context = Context<A>>> ActorSlot<A> {
    pub(crate) fn new(node: &Node, first: Arc<Incarnation<A>>) -> Self {
        Self {
            node: node.clone(),
            halt: Arc::default(),
            first,
            later: ArcSwapOption::empty(),
        }
    }

    pub(crate) fn take(&self, incarnation: Arc<Incarnation<A>>) {
        self.later.store(Some(incarnation));
    }

    fn newest(&self) -> Arc<Incarnation<A>> {
        self.later.load_full().unwrap_or_else(|| self.first.clone())
    }
}

/// A reference to an actor of type `A`, on any thread of this node and across restarts.
pub struct Handle<A: Actor<Context = Context<A>>> {
    slot: Arc<ActorSlot<A>>,
}

impl<A: Actor<Context = Context<A>>> Handle<A> {
    pub(crate) fn new(slot: Arc<ActorSlot<A>>) -> Self {
        Self { slot }
    }

    /// Sends a message without a reply. At most once, and in order with this sender's earlier tells
    /// and asks.
    #[inline]
    pub fn tell<M>(&self, message: M) -> Result<(), TellError>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        match self.slot.first.tell(message, None) {
            Ok(()) => Ok(()),
            Err((message, MailboxError::Gone)) => self.tell_later(message),
            Err((_, MailboxError::Full)) => Err(TellError::Full),
        }
    }

    #[cold]
    fn tell_later<M>(&self, message: M) -> Result<(), TellError>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let later = self.slot.later.load();
        let later = later.as_ref().ok_or(TellError::Gone)?;
        later.tell(message, None).map_err(|(_, error)| error.into())
    }

    /// Tells as [`tell`](Self::tell) does, regardless of the mailbox's bound. For messages that
    /// must arrive, cannot be repeated, and are bounded in number by the actor's own work, such as
    /// the end of an operation that it began. If the actor has ended, the message is dropped.
    pub fn tell_always<M>(&self, message: M)
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        self.slot.newest().tell_always(message);
    }

    /// Sends a message and waits for its reply. The message is sent now, in order with earlier
    /// tells; dropping the returned future does not take it back.
    #[inline]
    pub fn ask<M>(&self, message: M, patience: impl Into<Patience>) -> Asking<M::Result>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let asked = match self.slot.first.ask(message, None) {
            Err((message, MailboxError::Gone)) => match &*self.slot.later.load() {
                Some(later) => later.ask(message, None).map_err(|(_, error)| error),
                None => Err(MailboxError::Gone),
            },
            asked => asked.map_err(|(_, error)| error),
        };
        match asked {
            Ok(reply) => Asking::local(self.slot.node.clock(), patience.into(), reply),
            Err(error) => Asking::failed(TellError::from(error).into()),
        }
    }

    /// The pid of the newest incarnation.
    pub fn pid(&self) -> Pid {
        self.slot.newest().pid.clone()
    }

    /// An untyped reference to the newest incarnation, for remote messages.
    pub fn refer(&self) -> ActorRef {
        ActorRef::new(&self.slot.node, self.pid())
    }

    /// Ends the actor once its queue is handled. It takes no more messages and is not restarted.
    pub fn stop(&self) {
        self.slot.halt.request();
        self.slot.newest().meter.drain();
    }

    /// Whether the newest incarnation still takes messages.
    pub fn is_alive(&self) -> bool {
        let meter = &self.slot.newest().meter;
        !meter.is_closed() && !meter.is_draining()
    }
}

impl<A: Actor<Context = Context<A>>> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Self {
            slot: self.slot.clone(),
        }
    }
}

impl<A: Actor<Context = Context<A>>> fmt::Debug for Handle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.pid())
    }
}

/// A reference to the actor with a given pid, on this node or another, for remote messages.
#[derive(Clone)]
pub struct ActorRef {
    node: Node,
    pid: Pid,
}

impl ActorRef {
    pub(crate) fn new(node: &Node, pid: Pid) -> Self {
        Self {
            node: node.clone(),
            pid,
        }
    }

    /// Sends a message without a reply; at most once, in order.
    pub fn tell<M: Remote>(&self, message: M) -> Result<(), TellError> {
        self.node.tell(&self.pid, message)
    }

    /// Sends a message and waits for its reply. It is sent now; dropping the returned future does
    /// not take it back.
    pub fn ask<M: Remote>(&self, message: M, patience: impl Into<Patience>) -> Asking<M::Result> {
        self.node.ask(&self.pid, message, patience)
    }

    /// The pid of the actor.
    pub fn pid(&self) -> &Pid {
        &self.pid
    }

    /// The node that sends.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl fmt::Debug for ActorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorRef({})", self.pid)
    }
}
