//! Handles: how others speak to an actor whose type they know.
//!
//! A handle survives restarts of the actor: it speaks to whichever incarnation lives now. It never
//! blocks, and it says at once when the mailbox is full or the actor is gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::dev::channel::AddressSender;
use actix::{Actor, Handler, Message};
use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, oneshot};

use crate::ask::{Asking, Patience, TellError};
use crate::beside::{Beside, Way, Worth};
use crate::context::Context;
use crate::identity::Pid;
use crate::letter::{letter, postmarked, postmarked_run};
use crate::link::Sender;
use crate::mailbox::{Meter, Unwanted};
use crate::message::Remote;
use crate::node::{Node, WeakNode};

/// One life of an actor, as senders see it.
pub(crate) struct Incarnation<A: Actor> {
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) node: WeakNode,
    /// Queues for what does not wait in the mailbox, if it hears any such thing.
    pub(crate) beside: Option<Arc<Beside<A>>>,
    address: AddressSender<A>,
}

impl<A: Actor<Context = Context<A>>> Incarnation<A> {
    pub(crate) fn new(
        pid: Pid,
        meter: Arc<Meter>,
        node: WeakNode,
        beside: Option<Arc<Beside<A>>>,
        address: AddressSender<A>,
    ) -> Self {
        Self {
            pid,
            meter,
            node,
            beside,
            address,
        }
    }

    /// The queue for messages of this type, if it is not the mailbox.
    #[inline]
    fn beside<M: 'static>(&self) -> Option<(&Beside<A>, Way)> {
        let beside = self.beside.as_deref()?;
        Some((beside, beside.way::<M>()?))
    }

    /// Enqueues, or gives the message back with the reason.
    #[inline]
    pub(crate) fn tell<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(aside) = self.beside::<M>() {
            return match self.meter.is_tapped() {
                true => self.tell_refused(message, origin, Unwanted::Full),
                false => self.tell_beside(aside, message, origin),
            };
        }
        if let Err(unwanted) = self.meter.reserve() {
            return self.tell_refused(message, origin, unwanted);
        }
        self.enqueue(message, origin)
    }

    /// Enqueues without showing it to a tap.
    pub(crate) fn tell_past_tap<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(aside) = self.beside::<M>() {
            return self.tell_beside(aside, message, origin);
        }
        if let Err(unwanted) = self.meter.reserve_past_tap() {
            return Err((message, unwanted));
        }
        self.enqueue(message, origin)
    }

    fn tell_beside<M>(
        &self,
        (beside, way): (&Beside<A>, Way),
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let passing = (way, Worth::Passing);
        beside.put(&self.meter, passing, message, |message| {
            letter(message, None, origin)
        })
    }

    /// Enqueues what has taken its place.
    #[inline]
    fn enqueue<M>(&self, message: M, origin: Option<Arc<Sender>>) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        postmarked(origin, || self.address.do_send(message)).map_err(|error| {
            self.meter.unreserve(1);
            (error.into_inner(), Unwanted::Gone)
        })
    }

    /// The same life once more, for what speaks to it later.
    pub(crate) fn same(&self) -> Self {
        Self {
            pid: self.pid.clone(),
            meter: self.meter.clone(),
            node: self.node.clone(),
            beside: self.beside.clone(),
            address: self.address.clone(),
        }
    }

    /// Enqueues whatever the bound says. If the actor has ended, nobody is left to care.
    pub(crate) fn tell_always<M>(&self, message: M)
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some((beside, way)) = self.beside::<M>() {
            let put = beside.put(&self.meter, (way, Worth::Certain), message, |message| {
                letter(message, None, None)
            });
            return drop(put);
        }
        self.meter.reserve_always();
        if postmarked(None, || self.address.do_send(message)).is_err() {
            self.meter.unreserve(1);
        }
    }

    /// Enqueues a large message for whose bytes room was taken before it was decoded.
    pub(crate) fn tell_admitted<M>(
        &self,
        message: M,
        origin: Arc<Sender>,
    ) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if self.meter.is_tapped() || self.beside::<M>().is_some() {
            return self.tell(message, Some(origin));
        }
        match self.meter.reserve_admitted(1) {
            Ok(()) => self.enqueue(message, Some(origin)),
            Err(unwanted) => Err((message, unwanted)),
        }
    }

    /// Enqueues messages that came in together from one sender, as one. There was room for them when they began to arrive.
    pub(crate) fn tell_run<M>(
        &self,
        messages: Vec<M>,
        origin: &Arc<Sender>,
    ) -> Result<(), (u64, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let count = messages.len() as u64;
        if count == 0 {
            return Ok(()); // A run was begun, and what followed was not like it after all.
        }
        let room = match self.beside::<M>() {
            None => self.meter.reserve_admitted(count),
            Some(_) => Err(Unwanted::Full), // They wait one by one.
        };
        match room {
            Ok(()) => {}
            Err(Unwanted::Gone) => return Err((count, Unwanted::Gone)),
            // One by one: a tap sees each, and those that wait beside the mailbox have no common place.
            Err(Unwanted::Full) => {
                let told = messages
                    .into_iter()
                    .map(|message| self.tell(message, Some(origin.clone())));
                let refused = told.filter_map(|told| told.err().map(|(_, unwanted)| unwanted));
                let reasons: Vec<Unwanted> = refused.collect();
                return reasons
                    .last()
                    .map_or(Ok(()), |reason| Err((reasons.len() as u64, *reason)));
            }
        }
        let mut rest = messages.into_iter();
        let Some(first) = rest.next() else {
            return Ok(());
        };
        postmarked_run(origin.clone(), rest, || self.address.do_send(first)).map_err(|_| {
            self.meter.unreserve(count);
            (count, Unwanted::Gone)
        })
    }

    /// Enqueues a question and gives the place where its reply will come.
    #[inline]
    pub(crate) fn ask<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(aside) = self.beside::<M>() {
            return match self.meter.is_tapped() {
                true => self.ask_refused(message, origin, Unwanted::Full),
                false => self.ask_beside(aside, message, origin),
            };
        }
        if let Err(unwanted) = self.meter.reserve() {
            return self.ask_refused(message, origin, unwanted);
        }
        self.enqueue_question(message, origin)
    }

    /// Enqueues a question without showing it to a tap.
    pub(crate) fn ask_past_tap<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if let Some(aside) = self.beside::<M>() {
            return self.ask_beside(aside, message, origin);
        }
        if let Err(unwanted) = self.meter.reserve_past_tap() {
            return Err((message, unwanted));
        }
        self.enqueue_question(message, origin)
    }

    fn ask_beside<M>(
        &self,
        (beside, way): (&Beside<A>, Way),
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let (asker, reply) = oneshot::channel();
        let put = beside.put(&self.meter, (way, Worth::Kept), message, |message| {
            letter(message, Some(asker), origin)
        });
        put.map(|()| reply)
    }

    #[inline]
    fn enqueue_question<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
    ) -> Result<oneshot::Receiver<M::Result>, (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        postmarked(origin, || self.address.send(message)).map_err(|error| {
            self.meter.unreserve(1);
            (error.into_inner(), Unwanted::Gone)
        })
    }
}

impl From<Unwanted> for TellError {
    fn from(unwanted: Unwanted) -> Self {
        match unwanted {
            Unwanted::Full => TellError::Full,
            Unwanted::Gone => TellError::Gone,
        }
    }
}

/// A wish that the actor end, which also ends the wait before a restart.
#[derive(Default)]
pub(crate) struct Halt {
    wished: AtomicBool,
    changed: Notify,
}

impl Halt {
    pub(crate) fn wish(&self) {
        self.wished.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_wished(&self) -> bool {
        self.wished.load(Ordering::Acquire)
    }

    pub(crate) async fn wished(&self) {
        while !self.is_wished() {
            let changed = self.changed.notified();
            if self.is_wished() {
                return;
            }
            changed.await;
        }
    }
}

/// Where the incarnations of one actor follow each other.
pub(crate) struct Seat<A: Actor> {
    node: Node,
    pub(crate) halt: Arc<Halt>,
    /// Most actors never fall, so the first life is reached without looking at `later`.
    first: Arc<Incarnation<A>>,
    later: ArcSwapOption<Incarnation<A>>,
}

impl<A: Actor<Context = Context<A>>> Seat<A> {
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

/// Speaks to an actor of type `A`, wherever on this node it runs and however often it was restarted.
pub struct Handle<A: Actor<Context = Context<A>>> {
    seat: Arc<Seat<A>>,
}

impl<A: Actor<Context = Context<A>>> Handle<A> {
    pub(crate) fn new(seat: Arc<Seat<A>>) -> Self {
        Self { seat }
    }

    /// Sends a message that expects nothing back. At most once, and in order with everything else that
    /// this sender told and asked before.
    #[inline]
    pub fn tell<M>(&self, message: M) -> Result<(), TellError>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        match self.seat.first.tell(message, None) {
            Ok(()) => Ok(()),
            Err((message, Unwanted::Gone)) => self.tell_later(message),
            Err((_, Unwanted::Full)) => Err(TellError::Full),
        }
    }

    #[cold]
    fn tell_later<M>(&self, message: M) -> Result<(), TellError>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let later = self.seat.later.load();
        let later = later.as_ref().ok_or(TellError::Gone)?;
        later
            .tell(message, None)
            .map_err(|(_, unwanted)| unwanted.into())
    }

    /// Tells as [`tell`](Self::tell) does, whatever the mailbox's bound says: for what must not be missing and cannot be said again, and of
    /// which there is never more than the actor has under way, such as the end of something that it began. If the actor has ended, nobody
    /// is left to care.
    pub fn tell_always<M>(&self, message: M)
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        self.seat.newest().tell_always(message);
    }

    /// Asks a question. It is sent now, in order with everything told before, and dropping the returned
    /// future does not take it back.
    #[inline]
    pub fn ask<M>(&self, message: M, patience: impl Into<Patience>) -> Asking<M::Result>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let asked = match self.seat.first.ask(message, None) {
            Err((message, Unwanted::Gone)) => match &*self.seat.later.load() {
                Some(later) => later.ask(message, None).map_err(|(_, unwanted)| unwanted),
                None => Err(Unwanted::Gone),
            },
            asked => asked.map_err(|(_, unwanted)| unwanted),
        };
        match asked {
            Ok(reply) => Asking::local(self.seat.node.clock(), patience.into(), reply),
            Err(unwanted) => Asking::failed(TellError::from(unwanted).into()),
        }
    }

    /// The pid of the newest incarnation.
    pub fn pid(&self) -> Pid {
        self.seat.newest().pid.clone()
    }

    /// An untyped reference to the newest incarnation, for remote messages.
    pub fn refer(&self) -> ActorRef {
        ActorRef::new(&self.seat.node, self.pid())
    }

    /// Ends the actor once its queue is handled; it takes nothing more and is not restarted.
    pub fn stop(&self) {
        self.seat.halt.wish();
        self.seat.newest().meter.drain();
    }

    /// Whether the newest incarnation still takes messages.
    pub fn is_alive(&self) -> bool {
        let meter = &self.seat.newest().meter;
        !meter.is_closed() && !meter.is_draining()
    }
}

impl<A: Actor<Context = Context<A>>> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Self {
            seat: self.seat.clone(),
        }
    }
}

impl<A: Actor<Context = Context<A>>> fmt::Debug for Handle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.pid())
    }
}

/// Speaks to the actor with some pid, on this node or another, in remote messages.
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

    /// Sends a message that expects nothing back; at most once, in order.
    pub fn tell<M: Remote>(&self, message: M) -> Result<(), TellError> {
        self.node.tell(&self.pid, message)
    }

    /// Asks a question. It is sent now; dropping the returned future does not take it back.
    pub fn ask<M: Remote>(&self, message: M, patience: impl Into<Patience>) -> Asking<M::Result> {
        self.node.ask(&self.pid, message, patience)
    }

    /// Whom it speaks to.
    pub fn pid(&self) -> &Pid {
        &self.pid
    }

    /// The node it speaks from.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl fmt::Debug for ActorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorRef({})", self.pid)
    }
}
