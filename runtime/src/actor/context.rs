//! The context an actor runs in: actix's own, plus its pid, its node and its links.
//!
//! Implements actix's [`ActorContext`] and [`AsyncContext`], so everything written for actix works.
//! After [`TURN`] messages the actor yields to its neighbours on the thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{AsyncContextParts, ContextParts};
use actix::fut::{ActorFuture, ActorFutureExt};
use actix::{Actor, ActorContext, ActorState, Addr, AsyncContext, Handler, SpawnHandle};

use crate::actor::exit::Exited;
use crate::actor::handle::{ActorSlot, Handle, Incarnation};
use crate::actor::mailbox::Meter;
use crate::actor::mailbox::batch::{Resume, Unfinished};
use crate::actor::mailbox::priority::QueueKind;
use crate::actor::pending::{self, PendingFutures, PollPending, TimerHandle};
use crate::actor::process::HandlerTable;
use crate::clock::Clock;
use crate::identity::Pid;
use crate::link::Sender;
use crate::node::Node;
use crate::observe::tally::Counts;

/// Messages that an actor handles before its neighbours on the thread run.
const TURN: u32 = 128;
/// Urgent messages that are handled before one from the mailbox.
const URGENT_AT_ONCE: usize = 32;

/// The interface between a running actor and the runtime.
pub struct Context<A: Actor<Context = Context<A>>> {
    parts: ContextParts<A>,
    node: Node,
    pid: Pid,
    slot: Arc<ActorSlot<A>>,
    incarnation: Arc<Incarnation<A>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) counts: Counts,
    pub(crate) sender: Option<Arc<Sender>>,
    pub(crate) pending: PendingFutures<A>,
    /// Messages left in this turn.
    turn: u32,
    /// Futures that the mailbox waits for.
    waits: usize,
    /// Messages that must be handled before the mailbox, in order.
    unfinished: VecDeque<Box<dyn Unfinished<A>>>,
    /// Whether a future is pending that resumes the unfinished messages.
    resuming: bool,
}

impl<A: Actor<Context = Context<A>>> Context<A> {
    pub(crate) fn new(
        parts: ContextParts<A>,
        node: Node,
        slot: Arc<ActorSlot<A>>,
        incarnation: Arc<Incarnation<A>>,
    ) -> Self {
        let (pid, meter) = (incarnation.pid.clone(), incarnation.meter.clone());
        let counts = Counts::default();
        Self {
            parts,
            node,
            pid,
            slot,
            incarnation,
            meter,
            counts,
            sender: None,
            pending: PendingFutures::default(),
            turn: TURN,
            waits: 0,
            unfinished: VecDeque::new(),
            resuming: false,
        }
    }

    /// This incarnation's pid.
    pub fn pid(&self) -> &Pid {
        &self.pid
    }

    /// The node it lives on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node's clock.
    pub fn clock(&self) -> &Clock {
        self.node.clock()
    }

    /// A handle to this actor, which survives its restarts.
    pub fn handle(&self) -> Handle<A> {
        Handle::new(self.slot.clone())
    }

    /// The sender of the message being handled, if it came from another node; `None` for local
    /// messages, and in timers and futures.
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.as_deref()
    }

    /// Sends this actor exactly one [`Exited`] when that actor ends or its node is lost, or at once
    /// if there is no such actor. A second link to the same pid has no effect.
    pub fn link(&mut self, pid: &Pid)
    where
        A: Handler<Exited>,
    {
        let me = self.incarnation.clone();
        let notify = Box::new(move |exited| match me.meter.is_tapped() {
            false => me.tell_always(exited),
            true => me.show_exited(exited),
        });
        self.node.watch(pid, self.pid.incarnation(), notify);
    }

    /// Removes the link. An [`Exited`] already in the mailbox is still delivered.
    pub fn unlink(&mut self, pid: &Pid) {
        self.node.unwatch(pid, self.pid.incarnation());
    }

    /// Runs `act` once after this delay, unless cancelled.
    pub fn after<F>(&mut self, delay: Duration, act: F) -> TimerHandle
    where
        F: FnOnce(&mut A, &mut Self) + 'static,
    {
        let sleep = self.clock().sleep(delay);
        self.then(sleep, move |actor, (), ctx| act(actor, ctx))
    }

    /// As [`after`](Self::after), with the [`sender`](Self::sender) of the message that is being
    /// handled now.
    pub fn after_as_sender<F>(&mut self, delay: Duration, act: F) -> TimerHandle
    where
        F: FnOnce(&mut A, &mut Self) + 'static,
    {
        let sender = self.sender.clone();
        self.after(delay, move |actor, ctx| {
            let before = std::mem::replace(&mut ctx.sender, sender);
            act(actor, ctx);
            ctx.sender = before;
        })
    }

    /// Runs `act` periodically, first after one period, until cancelled. Periods missed while the
    /// actor was busy are skipped. A period below a millisecond counts as a millisecond.
    pub fn every<F>(&mut self, period: Duration, act: F) -> TimerHandle
    where
        F: FnMut(&mut A, &mut Self) + 'static,
    {
        let period = period.max(Duration::from_millis(1));
        let due = self.clock().now() + period;
        pending::repeat(self, None, due, period, act)
    }

    /// Cancels a timer or future of [`after`](Self::after), [`every`](Self::every) or
    /// [`then`](Self::then).
    pub fn cancel(&mut self, timer: TimerHandle) {
        self.pending.cancel(timer);
    }

    /// Whether the timer or future is pending: neither done nor cancelled.
    pub fn is_pending(&self, timer: TimerHandle) -> bool {
        self.pending.contains(timer)
    }

    /// Runs a future beside the mailbox, and `act` in the actor with its output.
    pub fn then<T, F>(&mut self, future: T, act: F) -> TimerHandle
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Self) + 'static,
    {
        let (timer, first) = self.pending.begin(future, act);
        let was_at_limit = self.pending.at_limit;
        self.pending.count(&self.meter);
        if self.pending.at_limit && !was_at_limit {
            tracing::warn!(pid = %self.pid, limit = self.pending.limit, "pausing the mailbox: too many pending timers and futures");
        }
        if first {
            AsyncContext::spawn(self, PollPending);
        }
        timer
    }

    #[inline]
    pub(crate) fn spend(&mut self) {
        self.turn = self.turn.saturating_sub(1);
    }

    pub(crate) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// Whether the turn ended with messages perhaps still waiting.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.turn == 0
    }

    /// Whether it may handle another message now.
    pub(crate) fn may_handle(&self) -> bool {
        !AsyncContext::waiting(self)
    }

    #[inline]
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether something must be handled before a message from the mailbox.
    #[inline]
    pub(crate) fn has_something_before(&self) -> bool {
        self.has_unfinished() || self.meter.has_urgent()
    }

    /// Keeps the remaining messages of a batch for later, in front of the mailbox.
    #[cold]
    pub(crate) fn leave_unfinished(&mut self, rest: Box<dyn Unfinished<A>>) {
        self.unfinished.push_front(rest);
        self.resume_later();
    }

    fn resume_later(&mut self) {
        if !self.resuming {
            self.resuming = true;
            AsyncContext::spawn(self, Resume);
        }
    }

    /// Handles everything that comes before the mailbox, and then this.
    #[cold]
    pub(crate) fn handle_after(&mut self, actor: &mut A, next: Box<dyn Unfinished<A>>) {
        self.unfinished.push_back(next);
        self.proceed(actor);
        if self.has_unfinished() {
            self.resume_later();
        }
    }

    /// Handles unfinished messages until none are left or the actor must pause.
    pub(crate) fn proceed(&mut self, actor: &mut A) {
        while self.may_handle() {
            if self.meter.has_urgent() {
                self.handle_urgent(actor);
                if !self.may_handle() {
                    return;
                }
            }
            let Some(mut next) = self.unfinished.pop_front() else {
                return;
            };
            if !next.proceed(actor, self) {
                self.unfinished.push_front(next);
            }
        }
    }

    /// Handles urgent messages, at most [`URGENT_AT_ONCE`] so that the mailbox is not starved.
    #[cold]
    pub(crate) fn handle_urgent(&mut self, actor: &mut A) {
        let sender = self.sender.take();
        let incarnation = self.incarnation.clone();
        if let Some(priority) = &incarnation.priority {
            for _ in 0..URGENT_AT_ONCE {
                if !self.may_handle() {
                    break;
                }
                let Some(mut next) = priority.take(&self.meter, QueueKind::Urgent) else {
                    break;
                };
                next.proceed(actor, self);
            }
        }
        self.sender = sender;
    }

    /// Handles all messages of the priority queues, until the actor must pause.
    pub(crate) fn handle_priority(&mut self, actor: &mut A) {
        let incarnation = self.incarnation.clone();
        let Some(priority) = &incarnation.priority else {
            return;
        };
        while self.may_handle() {
            if self.meter.has_urgent() {
                self.handle_urgent(actor);
            } else {
                let Some(mut next) = priority.take(&self.meter, QueueKind::Newest) else {
                    return;
                };
                next.proceed(actor, self);
            }
        }
    }

    pub(crate) fn has_resumed(&mut self) {
        self.resuming = false;
    }

    /// The messages that this actor accepts; `None` if it is known to have ended.
    pub(crate) fn handlers(&self) -> Option<Arc<HandlerTable>> {
        let entry = self.node.registry().find_pid(&self.pid)?;
        Some(entry.handlers.clone())
    }

    /// Whether it may continue with a batch: it neither ends nor waits for a future.
    pub(crate) fn may_continue(&self) -> bool {
        !self.parts.waiting() && !self.meter.is_stopping_now()
    }

    /// Whether the mailbox waits for a future.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits > 0
    }
}

impl<A: Actor<Context = Self>> ActorContext for Context<A> {
    fn stop(&mut self) {
        self.parts.stop();
    }

    fn terminate(&mut self) {
        self.parts.terminate();
    }

    fn state(&self) -> ActorState {
        self.parts.state()
    }
}

impl<A: Actor<Context = Self>> AsyncContext<A> for Context<A> {
    fn address(&self) -> Addr<A> {
        self.parts.address()
    }

    fn spawn<F>(&mut self, future: F) -> SpawnHandle
    where
        F: ActorFuture<A, Output = ()> + 'static,
    {
        self.parts.spawn(future)
    }

    fn wait<F>(&mut self, future: F)
    where
        F: ActorFuture<A, Output = ()> + 'static,
    {
        self.waits += 1;
        self.parts
            .wait(future.map(|(), _, ctx: &mut Self| ctx.waits -= 1));
    }

    #[inline]
    fn waiting(&self) -> bool {
        self.turn == 0
            || self.pending.at_limit
            || self.parts.waiting()
            || self.meter.is_stopping_now()
    }

    fn cancel_future(&mut self, handle: SpawnHandle) -> bool {
        self.parts.cancel_future(handle)
    }
}

impl<A: Actor<Context = Self>> AsyncContextParts<A> for Context<A> {
    fn parts(&mut self) -> &mut ContextParts<A> {
        &mut self.parts
    }
}

impl<A: Actor<Context = Self>> fmt::Debug for Context<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
